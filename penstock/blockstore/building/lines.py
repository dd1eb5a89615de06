"""Lines as they came: where a block of lines is cut, in the task that reads it.

A receiver only counts the lines; to cut them is most of what a line costs, and a receiver is one
process where batch tasks are many. A block of lines is their bytes, each with its LF.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_LF = 10
_FIRST_NOT_ASCII = 128
_PIECE = 128 << 10
"""How many bytes of lines are made Python objects at a time, so that their memory is used again."""


def line_ends(data: memoryview) -> npt.NDArray[np.intp]:
    """Return the places of the line ends."""
    return np.flatnonzero(np.frombuffer(data, np.uint8) == _LF)


def line_column(data: memoryview, *, text: bool = False) -> pa.Array:
    """Return whole lines, without their ends, as a column.

    Args:
        data: Whole lines.
        text: Whether the column is one of strings if the lines are ASCII, which is seen faster of
            all of them than of each; else it is binary.
    """
    whole = [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
    parts = pc.split_pattern(pa.Array.from_buffers(pa.binary(), 1, whole), "\n").values
    # Behind the last end there is no line.
    lines = parts.slice(0, len(parts) - 1)
    is_ascii = text and np.frombuffer(data, np.uint8).max(initial=0) < _FIRST_NOT_ASCII
    return lines.view(pa.string()) if is_ascii else lines


def line_part(data: memoryview, number: int, parts: int) -> tuple[memoryview, int]:
    """Return one of several parts of like size, whole lines with their LF, and how many lines."""
    begin, end = (
        _end_after(data, size) if size else 0
        for size in (len(data) * number // parts, len(data) * (number + 1) // parts)
    )
    part = data[begin:end]
    return part, int(np.count_nonzero(np.frombuffer(part, np.uint8) == _LF))


def line_pieces(data: memoryview, size: int = _PIECE) -> Iterator[memoryview]:
    """Cut the bytes behind line ends, into pieces of about `size` bytes."""
    at = 0
    while at < len(data):
        end = _end_after(data, min(at + size, len(data)))
        yield data[at:end]
        at = end


def _end_after(data: memoryview, place: int) -> int:
    """Return the first place from `place` on that is behind a line end."""
    window = 4096
    place -= 1
    while True:
        found = bytes(data[place : place + window]).find(b"\n")
        if found >= 0:
            return place + found + 1
        place += window
        window *= 2


def line_chunks(data: memoryview, *, text: bool) -> Iterator[list[str] | list[bytes]]:
    """Yield the lines without their ends, a list of some at a time.

    Args:
        data: Whole lines.
        text: Whether they are decoded; what is not UTF-8 becomes U+FFFD.
    """
    for piece in line_pieces(data):
        # The last end is left out: behind it there is no line.
        if text:
            yield str(piece[:-1], "utf-8", "replace").split("\n")
        else:
            yield bytes(piece[:-1]).split(b"\n")
