"""Bulk calls cut into pieces; any range of them can enter the open block."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock._arguments import refused
from penstock.blockstore import BlockKind
from penstock.blockstore.building.lines import line_ends
from penstock.receiver.blocks.assembler import MAX_LEASE, BlockAssembler

MANY = (list, pa.RecordBatch, pa.Table)
"""What holds many records."""


@dataclass(frozen=True)
class WithLetters:
    """Many records for `store`, and what came with them and cannot be stored: dead letters.

    All of it is stored by one call, or nothing: where the records of a call with a position do not
    fit into one block, its letters are not made either.

    Args:
        records: A `list`, a `pyarrow.RecordBatch` or a `pyarrow.Table`; it may be empty.
        letters: What cannot be stored, each as it came, and why.

    Raises:
        TypeError: The records are something else.
    """

    records: list[Any] | pa.RecordBatch | pa.Table
    letters: Sequence[tuple[Any, str | Exception]]

    def __post_init__(self) -> None:
        if not isinstance(self.records, MANY):
            raise TypeError(refused("records", self.records, "a list, a RecordBatch or a Table"))


BULK = (*MANY, Iterator, WithLetters)
"""What `store` takes as many records."""


class Piece(Protocol):
    """Some records of a bulk call, any range of which can be added to the open block."""

    def __len__(self) -> int: ...

    def add(self, assembler: BlockAssembler, start: int, end: int) -> None: ...


class RecordsPiece:
    """Records as `BlockAssembler.prepare` keeps them."""

    def __init__(self, records: list[Any]) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def add(self, assembler: BlockAssembler, start: int, end: int) -> None:
        if start < end:
            assembler.add_chunk(self.records[start:end])


class RowsPiece(RecordsPiece):
    """Rows of the declared schema."""

    def add(self, assembler: BlockAssembler, start: int, end: int) -> None:
        if start < end:
            assembler.add_rows(self.records[start:end])


class BatchesPiece:
    """Arrow batches; more than one only if all of them are added at once."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def add(self, assembler: BlockAssembler, start: int, end: int) -> None:
        if assembler.is_undivided:
            assembler.add_batches(self.batches)
        elif start < end:
            (batch,) = self.batches
            whole = end - start == batch.num_rows
            assembler.add_batches([batch if whole else batch.slice(start, end - start)])


class FramesPiece:
    """Records of bytes, joined, with the length of each; ranges are added in order."""

    def __init__(self, kind: BlockKind, joined: bytes, lengths: npt.NDArray[np.int32]) -> None:
        self.kind = kind
        self.joined = memoryview(joined)
        self.lengths = lengths
        self._at = 0

    def __len__(self) -> int:
        return len(self.lengths)

    def add(self, assembler: BlockAssembler, start: int, end: int) -> None:
        if end - start == len(self.lengths):
            assembler.append(self.kind, self.joined, self.lengths)
        elif start < end:
            part = self.lengths[start:end]
            size = int(part.sum())
            assembler.append(self.kind, self.joined[self._at : self._at + size], part)
            self._at += size


class LinesPiece:
    """Whole lines, each with its end."""

    def __init__(self, kind: BlockKind, data: memoryview, count: int) -> None:
        self.kind = kind
        self.data = data
        self._count = count

    def __len__(self) -> int:
        return self._count

    def add(self, assembler: BlockAssembler, start: int, end: int) -> None:
        data = self.data
        if end - start < self._count:
            ends = line_ends(data)
            data = data[int(ends[start - 1]) + 1 if start else 0 : int(ends[end - 1]) + 1]
        if start < end:
            assembler.append_lines(self.kind, data, end - start)


def one_piece(pieces: list[Piece]) -> Piece:
    """Join the pieces of one bulk call, so that they enter one block."""
    if len(pieces) == 1:
        return pieces[0]
    if all(isinstance(piece, FramesPiece) for piece in pieces) and pieces:
        frames = [piece for piece in pieces if isinstance(piece, FramesPiece)]
        return FramesPiece(
            frames[0].kind,
            b"".join(piece.joined for piece in frames),
            np.concatenate([piece.lengths for piece in frames]),
        )
    if all(isinstance(piece, LinesPiece) for piece in pieces) and pieces:
        lines = [piece for piece in pieces if isinstance(piece, LinesPiece)]
        data = b"".join(piece.data for piece in lines)
        return LinesPiece(lines[0].kind, memoryview(data), sum(map(len, lines)))
    if all(isinstance(piece, BatchesPiece) for piece in pieces) and pieces:
        found = [piece for piece in pieces if isinstance(piece, BatchesPiece)]
        return BatchesPiece([batch for piece in found for batch in piece.batches])
    kept = [piece for piece in pieces if isinstance(piece, RecordsPiece)]
    make = RowsPiece if any(isinstance(piece, RowsPiece) for piece in kept) else RecordsPiece
    return make([record for piece in kept for record in piece.records])


def reader_of(data: memoryview) -> Callable[[memoryview], int]:
    """Return a `readinto` that gives `data`, and then nothing."""
    position = 0

    def readinto(target: memoryview) -> int:
        nonlocal position
        size = min(len(target), len(data) - position)
        target[:size] = data[position : position + size]
        position += size
        return size

    return readinto


_KEPT_AS_THEY_ARE: frozenset[type] = frozenset((bytes, str))
"""What `BlockAssembler.prepare` does nothing with."""


_PIECE_BYTES = 1 << 20
"""Bytes that are taken from an iterator before they enter blocks (I7)."""


def pieces_of(data: Any, assembler: BlockAssembler) -> Iterator[Piece]:
    """Cut what `store` was given, a batch, a table, a list or an iterator of records.

    Raises:
        Exception: A record of a list cannot be pickled; before the first piece.
    """
    if isinstance(data, pa.RecordBatch):
        yield BatchesPiece([data])
    elif isinstance(data, pa.Table):
        for batch in data.to_batches():
            yield BatchesPiece([batch])
    elif isinstance(data, list):
        make = RowsPiece if assembler.has_schema else RecordsPiece
        records = data
        if not assembler.has_schema and not set(map(type, data)) <= _KEPT_AS_THEY_ARE:
            records = [assembler.prepare(record)[1] for record in data]
        for start in range(0, len(records), MAX_LEASE):
            yield make(records[start : start + MAX_LEASE])
    else:
        while kept := _taken(data, assembler):
            yield (RowsPiece if assembler.has_schema else RecordsPiece)(kept)


def _taken(records: Iterator[Any], assembler: BlockAssembler) -> list[Any]:
    """Take records from an iterator, as many as make a piece.

    Each is prepared before the next is taken: what gives them may use one object again and again.
    """
    kept: list[Any] = []
    size = 0
    count = 4
    while len(kept) < MAX_LEASE and size < _PIECE_BYTES:
        if assembler.has_schema:
            copies = [assembler.copy_of_row(record) for record in itertools.islice(records, count)]
            step = [row for row, _ in copies]
            step_size = sum(length for _, length in copies)
        else:
            step = [
                record if type(record) in _KEPT_AS_THEY_ARE else assembler.prepare(record)[1]
                for record in itertools.islice(records, count)
            ]
            step_size = sum(len(item[0] if type(item) is tuple else item) for item in step)
        if not step:
            break
        kept += step
        size += step_size
        # Few at a time of large records, for their sizes are known only afterwards.
        count = max(1, min(256, _PIECE_BYTES // 4 * len(step) // max(1, step_size)))
    return kept
