"""Cutting a byte stream into records, many at a time.

A frame reader fills a staging buffer that stays in the processor's cache. Lines are only counted,
with one vector operation, and handed on as they are: the reader of the block cuts them. Records
behind a length are handed on joined, with their lengths. What a reader holds is bounded: a record
that is larger than a block can be is dropped up to its end and counted.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from penstock.errors import PenstockError

_STAGING_BYTES = 256 << 10
_START = 64 << 10
"""Bytes of a dropped record that are kept to show how it begins."""
_LF = 10


class CutRecordError(PenstockError, ValueError):
    """The bytes ended in the middle of a record.

    Attributes:
        size: Bytes of it that had come.
    """

    def __init__(self, size: int) -> None:
        super().__init__(f"its source ended in the middle of it, after {size} bytes")
        self.size = size


class Dropped(NamedTuple):
    """A record that became none.

    Attributes:
        size: Its bytes; of a line, those that had come when it was known to be too large.
        start: The first of them.
        is_cut: It is not too large: the bytes ended in the middle of it.
    """

    size: int
    start: bytes
    is_cut: bool = False


class Frames(NamedTuple):
    """Records one after the other, and their lengths."""

    joined: bytes
    lengths: npt.NDArray[np.int32]


class Lines(NamedTuple):
    """Whole lines, each with its LF, and how many; valid until the reader goes on."""

    data: memoryview
    number: int


_NO_LINES = Lines(memoryview(b""), 0)


class Framing(enum.Enum):
    """How records are cut out of raw bytes."""

    LINES = "lines"
    """UTF-8 text; a record is a ``str`` and ends with LF, CR or CR LF, as Java's `readLine` has
    it. What follows the last end is also a record when the source closes."""
    NEWLINE = "newline"
    """A record is ``bytes`` and ends with LF; other bytes are left alone."""
    LENGTH_PREFIX = "length-prefix"
    """A record is ``bytes`` behind its length, 4 bytes big-endian."""


class FrameReader(Protocol):
    """Cuts one stream; not thread-safe."""

    def frames(self, readinto: Callable[[memoryview], int]) -> Iterator[Frames | Lines]:
        """Read until `readinto` returns 0 and yield the records as they come.

        Args:
            readinto: Fills part of the buffer it is given and returns how many bytes; may block.
        """
        ...

    def take_dropped(self) -> list[Dropped]:
        """Return what was dropped since the last call."""
        ...


def frame_reader(framing: Framing, max_record_bytes: int) -> FrameReader:
    """Return a reader for one stream.

    Args:
        framing: How records are cut.
        max_record_bytes: Longer records are dropped.
    """
    if framing is Framing.LENGTH_PREFIX:
        return _LengthPrefixReader(max_record_bytes)
    return _LineReader(max_record_bytes, text=framing is Framing.LINES)


class _Staging:
    """The buffer that a stream is read into, and what was dropped from it."""

    def __init__(self, max_record_bytes: int) -> None:
        self._max = max_record_bytes
        self._size = min(_STAGING_BYTES, max_record_bytes + 8)
        self._allocate(self._size)
        self._have = 0
        self._dropped: list[Dropped] = []

    def _allocate(self, size: int) -> None:
        self._bytes = bytearray(size)
        self._view = memoryview(self._bytes)
        self._array = np.frombuffer(self._view, dtype=np.uint8)

    def _keep(self, start: int, end: int) -> None:
        """Keep only the bytes from `start` to `end`, at the front of the buffer."""
        rest = bytes(self._view[start:end])
        if len(self._view) > self._size and len(rest) < self._size // 2:
            self._allocate(self._size)
        self._view[: len(rest)] = rest
        self._have = len(rest)

    def _grow(self) -> bool:
        """Double the buffer; False when the record in it is larger than a record may be."""
        if self._have < len(self._view):
            return True
        if self._have > self._max:
            return False
        old = self._view
        self._allocate(min(len(old) * 2, self._max + 8))
        self._view[: len(old)] = old
        return True

    def _note_dropped(self, size: int, start: int, end: int, *, is_cut: bool = False) -> None:
        """Note a record; what has come of it is from `start` of the buffer on, before `end`."""
        end = min(start + min(size, _START), end)
        self._dropped.append(Dropped(size, bytes(self._view[start:end]), is_cut))

    def take_dropped(self) -> list[Dropped]:
        taken, self._dropped = self._dropped, []
        return taken


class _LineReader(_Staging):
    def __init__(self, max_record_bytes: int, *, text: bool) -> None:
        super().__init__(max_record_bytes)
        self._text = text
        self._after_cr = False
        self._dropping = False

    def frames(self, readinto: Callable[[memoryview], int]) -> Iterator[Lines]:
        while count := readinto(self._view[self._have :]):
            begin = self._have
            end = begin + count
            if self._after_cr:
                # The LF of a CR LF that was cut in two.
                self._after_cr = False
                if self._array[0] == _LF:
                    self._keep(1, end)
                    end -= 1
            if self._text and self._bytes.find(b"\r", begin, end) >= 0:
                end = self._normalise(end)
                begin = 0
            if self._dropping:
                end = self._drop(end)
                begin = 0
            lines = int(np.count_nonzero(self._array[begin:end] == _LF))
            if lines:
                cut = self._bytes.rfind(b"\n", begin, end) + 1
                yield Lines(self._view[:cut], lines)
                self._keep(cut, end)
            else:
                self._have = end
            if not self._grow():
                self._dropping = True
                self._note_dropped(self._have, 0, self._have)
                self._have = 0
                yield _NO_LINES
        if self._have and self._text:
            rest = bytes(self._view[: self._have]) + b"\n"
            self._have = 0
            yield Lines(memoryview(rest), 1)
        elif self._have:
            self._note_dropped(self._have, 0, self._have, is_cut=True)
            self._have = 0
            yield _NO_LINES

    def _normalise(self, end: int) -> int:
        """Make every line end an LF; returns the new end of the bytes."""
        data = self._view[:end].tobytes()
        self._after_cr = data.endswith(b"\r")
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._view[: len(data)] = data
        return len(data)

    def _drop(self, end: int) -> int:
        """Drop the rest of a record that is too large; returns the end of what remains."""
        ends = np.flatnonzero(self._array[:end] == _LF)
        start = int(ends[0]) + 1 if len(ends) else end
        self._dropping = not len(ends)
        self._keep(start, end)
        return end - start


class _LengthPrefixReader(_Staging):
    _PREFIX = 4

    def __init__(self, max_record_bytes: int) -> None:
        super().__init__(max_record_bytes)
        self._skip = 0

    def frames(self, readinto: Callable[[memoryview], int]) -> Iterator[Frames]:
        while count := readinto(self._view[self._have :]):
            end = self._have + count
            at = min(self._skip, end)
            self._skip -= at
            records: list[memoryview] = []
            while end - at >= self._PREFIX:
                size = int.from_bytes(self._view[at : at + self._PREFIX], "big")
                start = at + self._PREFIX
                if size > self._max:
                    self._note_dropped(size, start, end)
                    self._skip = size - (min(end, start + size) - start)
                    at = min(end, start + size)
                    continue
                if end - start < size:
                    break
                records.append(self._view[start : start + size])
                at = start + size
            lengths = np.fromiter(map(len, records), np.int32, len(records))
            joined = b"".join(records)
            records.clear()
            self._keep(at, end)
            self._grow()
            if len(lengths) or self._dropped:
                yield Frames(joined, lengths)
        if self._have or self._skip:
            # The source closed in the middle of a record.
            if self._have:
                prefix = min(self._PREFIX, self._have)
                self._note_dropped(self._have - prefix, prefix, self._have, is_cut=True)
            self._have = self._skip = 0
            yield Frames(b"", np.empty(0, np.int32))
