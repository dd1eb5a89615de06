"""Reading a block from its segment past the page cache, into memory that is used again.

Segments are written past the page cache, so a first read through it would allocate, fill and
later drop a page for each 4 KiB: that costs several times the read itself. A worker process keeps
a buffer or two between its tasks.

Where the file system has no direct I/O the segment is mapped instead.
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
        size = os.fstat(fd).st_size
        if offset + length > size:
            raise ValueError(f"the segment ends at {size}, before the block's end")
        begin = offset // _PAGE * _PAGE
        buffer = _read_direct(fd, begin, offset + length)
        if buffer is None:
            yield _map(fd, begin, offset, length)
            return
        try:
            yield memoryview(buffer)[offset - begin : offset - begin + length]
        finally:
            _buffers.give_back(buffer)
    finally:
        os.close(fd)


def _read_direct(fd: int, begin: int, end: int) -> mmap.mmap | None:
    """Read from a page on; None when the file system cannot do it past the page cache."""
    wanted = -(-(end - begin) // _PAGE) * _PAGE
    buffer = _buffers.take(wanted)
    have = 0
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
        with memoryview(buffer) as view:
            # A read may be cut short anywhere, and ends at the end of a file of any length.
            while have < end - begin and have % _PAGE == 0:
                with view[have:wanted] as rest:
                    read = os.preadv(fd, [rest], begin + have)
                if not read:
                    break
                have += read
    except OSError as error:
        if error.errno not in _NO_DIRECT_IO:
            raise
    if have < end - begin:
        _buffers.give_back(buffer)
        return None
    return buffer


def _map(fd: int, begin: int, offset: int, length: int) -> memoryview:
    mapped = mmap.mmap(fd, offset - begin + length, prot=mmap.PROT_READ, offset=begin)
    mapped.madvise(mmap.MADV_SEQUENTIAL)
    mapped.madvise(mmap.MADV_WILLNEED)
    return memoryview(mapped)[offset - begin :]
