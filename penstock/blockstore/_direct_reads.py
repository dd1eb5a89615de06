"""Reading a block from its segment past the page cache, into memory that is used again.

Segments are written past the page cache, so a first read through it would allocate, fill and
later drop a page for each 4 KiB: that costs several times the read itself. A worker process keeps
a buffer or two between its tasks.

Where the file system has no direct I/O the page cache is read. A segment is never mapped: when it
is released and used again its file may be cut, and a mapping beyond the end would end the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Iterator

__all__ = ["read_range"]

_PAGE = mmap.PAGESIZE
_KEPT_BUFFERS = 2
"""How many buffers are kept for the next reads."""

_NO_DIRECT_IO = (errno.EINVAL, errno.EOPNOTSUPP)


class _Buffers:
    """Page-aligned buffers that wait to be used again. For one thread, as a task is."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []

    def take(self, size: int) -> mmap.mmap:
        for index, buffer in enumerate(self._free):
            if len(buffer) >= size:
                return self._free.pop(index)
        return mmap.mmap(-1, size)

    def give_back(self, buffer: mmap.mmap) -> None:
        """Keep a buffer for another block, unless somebody still looks into this one."""
        if len(self._free) == _KEPT_BUFFERS:
            return
        try:
            buffer.resize(len(buffer))  # Refused while there is a view.
        except BufferError:
            return
        self._free.append(buffer)


_buffers = _Buffers()


@contextlib.contextmanager
def read_range(path: str, offset: int, length: int) -> Iterator[memoryview]:
    """Open a byte range of a file for reading.

    Args:
        path: The file.
        offset: Where the range begins.
        length: Its bytes.

    Yields:
        The bytes. Views of them that are released when the context ends let the memory be used
        again; others keep it.

    Raises:
        OSError: The file cannot be read.
        ValueError: It ends before the range does.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        begin = offset // _PAGE * _PAGE
        buffer = _read(fd, begin, offset + length)
        try:
            yield memoryview(buffer)[offset - begin : offset - begin + length]
        finally:
            _buffers.give_back(buffer)
    finally:
        os.close(fd)


def _read(fd: int, begin: int, end: int) -> mmap.mmap:
    """Read from the beginning of a page on, past the page cache if the file system can."""
    size = end - begin
    buffer = _buffers.take(-(-size // _PAGE) * _PAGE)
    try:
        with memoryview(buffer) as view:
            have = _fill(fd, view, begin, 0, direct=True)
            # A read may be cut short anywhere, and direct ones go on at pages only.
            if have < size:
                have = _fill(fd, view[:size], begin, have, direct=False)
        if have < size:
            raise ValueError(f"the segment ends at {begin + have}, before the block's end")
    except BaseException:
        _buffers.give_back(buffer)
        raise
    return buffer


def _fill(fd: int, view: memoryview, begin: int, have: int, *, direct: bool) -> int:
    """Read until a buffer is full, or no more comes; return how much of it is filled."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if direct else flags & ~os.O_DIRECT)
        while have < len(view) and not (direct and have % _PAGE):
            with view[have:] as rest:
                read = os.preadv(fd, [rest], begin + have)
            if not read:
                break
            have += read
    except OSError as error:
        if not direct or error.errno not in _NO_DIRECT_IO:
            raise
    return have
