"""What a file holds: read at any place, also of a compressed one, which is read from its start."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import mmap
import os
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

Key = tuple[int, int]
"""Device and inode."""

_STEP = 1 << 20


class Content(Protocol):
    """The bytes of a file that is open.

    Attributes:
        key: Which file it is.
        is_final: Whether nothing is added to it any more.
    """

    key: Key
    is_final: bool

    def length(self) -> int:
        """Return how many bytes there are now."""
        ...

    def read_into(self, place: int, view: memoryview, before: int = 0) -> tuple[bytes, int]:
        """Read on from a place.

        Args:
            place: Where.
            view: Is filled with what follows.
            before: That many bytes before the place are also read.

        Returns:
            The bytes before it, and how many were filled in.
        """
        ...

    def ends_of(self, what: bytes) -> Iterator[int]:
        """Yield where some bytes end, each time that they occur."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


def read(content: Content, place: int, size: int) -> bytes:
    """Return bytes from a place on; less at the end."""
    found = bytearray(size)
    count = content.read_into(place, memoryview(found))[1]
    return bytes(found[:count])


class PlainContent:
    """A file that may grow."""

    is_final = False

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(self._file)
        self.key = status.st_dev, status.st_ino

    def length(self) -> int:
        return os.fstat(self._file).st_size

    def read_into(self, place: int, view: memoryview, before: int = 0) -> tuple[bytes, int]:
        known = bytearray(before)
        count = os.preadv(self._file, [known, view], place - before)
        return bytes(known[:count]), max(0, count - before)

    def ends_of(self, what: bytes) -> Iterator[int]:
        if not self.length():
            return
        with mmap.mmap(self._file, 0, prot=mmap.PROT_READ) as whole:
            place = -1
            while (place := whole.find(what, place + 1)) >= 0:
                yield place + len(what)

    def close(self) -> None:
        os.close(self._file)


class _Streams:
    """The streams of an ``.xz`` or ``.bz2`` file, one after another, to the file's end.

    Python's `lzma.open` and `bz2.open` end without a word at what follows a stream and is none: at
    the zeros that may stand there ("Stream Padding", The .xz File Format 1.2.1, 2.2), and at what
    is damaged.

    Args:
        decompressor: Makes what unpacks a stream.
        path: The file.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, decompressor: Callable[[], Any], path: str) -> None:
        self._file = io.FileIO(path)
        self._decompressor = decompressor
        self._unpack = decompressor()
        self._is_over = False

    def read(self, size: int) -> bytes:
        """Return some of the next bytes; none at the end.

        Raises:
            EOFError, lzma.LZMAError: The file ends early, or is damaged.
            OSError: It cannot be read.
        """
        found = b""
        while not found and not self._is_over:
            packed = self._file.read(_STEP) if self._unpack.needs_input else b""
            if self._unpack.eof:
                packed = self._begin_of_next()
                self._is_over = not packed
                self._unpack = self._decompressor()
            elif self._unpack.needs_input and not packed:
                raise EOFError("it ends within a stream")
            found = self._unpack.decompress(packed, size)
        return found

    def _begin_of_next(self) -> bytes:
        """Pass over what is between two streams; return what follows it, none at the end."""
        rest, zeros = b"", 0
        part = self._unpack.unused_data or self._file.read(_STEP)
        while part and not rest:
            rest = part.lstrip(b"\0")
            zeros += len(part) - len(rest)
            part = rest or self._file.read(_STEP)
        if zeros % 4:
            raise lzma.LZMAError("what lies between two streams is damaged")
        return rest

    def close(self) -> None:
        self._file.close()


_OPENERS: dict[str, Any] = {
    ".gz": gzip.open,
    # pyarrow's fails at a stream of nothing between two others.
    ".bz2": partial(_Streams, bz2.BZ2Decompressor),
    ".xz": partial(_Streams, partial(lzma.LZMADecompressor, lzma.FORMAT_XZ)),
    ".zst": lambda path: pa.input_stream(path, compression="zstd"),
}
COMPRESSED = tuple(_OPENERS)
"""How the names of compressed files end."""


class CompressedContent:
    """A compressed file, which has been unpacked once, to its end, before anything is read of it.

    Args:
        path: The file.
        go_on: Called for each MB; what it raises ends the unpacking.

    Raises:
        OSError: It ends early, or is damaged (`errno.EBADMSG`): nothing of it can be trusted.
    """

    is_final = True

    def __init__(self, path: str, go_on: Callable[[], object]) -> None:
        self._path = path
        self._go_on = go_on
        status = os.stat(path)
        self.key = status.st_dev, status.st_ino
        self._stream: Any = None
        self._place = 0
        self._length = 0
        try:
            self._length = self._forward(None)
        except (EOFError, OSError, zlib.error, lzma.LZMAError, ValueError) as error:
            self.close()
            text = f"it ends early, or is damaged: {error}"
            raise OSError(errno.EBADMSG, text, path) from error
        self.close()

    def length(self) -> int:
        return self._length

    def read_into(self, place: int, view: memoryview, before: int = 0) -> tuple[bytes, int]:
        self._forward(place - before)
        known = self._fill(memoryview(bytearray(before)))
        return bytes(known), len(self._fill(view))

    def _forward(self, place: int | None) -> int:
        """Unpack up to a place, or to the end; return the place."""
        if self._stream is None or (place is not None and place < self._place):
            self.close()
            self._stream = _OPENERS[os.path.splitext(self._path)[1]](self._path)
        while place is None or self._place < place:
            step = _STEP if place is None else min(_STEP, place - self._place)
            if not (found := self._stream.read(step)):
                break
            self._place += len(found)
            self._go_on()
        return self._place

    def _fill(self, view: memoryview) -> memoryview:
        assert self._stream is not None
        at = 0
        while at < len(view) and (found := self._stream.read(min(_STEP, len(view) - at))):
            view[at : at + len(found)] = found
            at += len(found)
        self._place += at
        return view[:at]

    def ends_of(self, what: bytes) -> Iterator[int]:
        return iter(())

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = None
        self._place = 0


def open_content(path: str, go_on: Callable[[], object]) -> Content:
    """Open a file, compressed or not as its name says.

    Args:
        path: The file.
        go_on: Called for each MB that is unpacked before it is open; may raise.

    Raises:
        OSError: It cannot be opened; `errno.EBADMSG` if it is compressed and not whole.
    """
    if path.endswith(COMPRESSED):
        return CompressedContent(path, go_on)
    return PlainContent(path)
