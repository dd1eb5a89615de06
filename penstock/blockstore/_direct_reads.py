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

from penstock.reused_memory import ReusedMemory

_PAGE = mmap.PAGESIZE
_NO_DIRECT_IO = (errno.EINVAL, errno.EOPNOTSUPP)


_memory = ReusedMemory()


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
        yield _read(fd, begin, offset + length)[offset - begin : offset - begin + length]
    finally:
        os.close(fd)


def _read(fd: int, begin: int, end: int) -> memoryview:
    """Read from the beginning of a page on, past the page cache if the file system can."""
    size = end - begin
    view = _memory.take(-(-size // _PAGE) * _PAGE)
    have = _fill(fd, view, begin, 0, direct=True)
    # A read may be cut short anywhere, and direct ones go on at pages only.
    if have < size:
        have = _fill(fd, view[:size], begin, have, direct=False)
    if have < size:
        raise ValueError(f"the segment ends at {begin + have}, before the block's end")
    return view


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
