"""Bulk calls cut into pieces, of which any range can enter the open block."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.blockstore import BlockKind
from penstock.blockstore._lines import line_ends
from penstock.receiver._assembler import MAX_LEASE, BlockAssembler

__all__ = [
    "BULK",
    "BatchPiece",
    "FramesPiece",
    "LinesPiece",
    "Piece",
    "RecordsPiece",
    "one_piece",
    "pieces_of",
    "reader_of",
]

BULK = (list, pa.RecordBatch, pa.Table, Iterator)
"""What `store` takes as many records."""


class Piece(Protocol):
    """Some records of a bulk call, of which any range can be added to the open block."""

    def __len__(self) -> int: ...

    def add(self, assembler: BlockAssembler, start: int, end: int) -> None: ...


class RecordsPiece:
    def __init__(self, records: list[Any]) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def add(self, assembler: BlockAssembler, start: int, end: int) -> None:
        if start < end:
            assembler.add_chunk(self.records[start:end])


class BatchPiece:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def add(self, assembler: BlockAssembler, start: int, end: int) -> None:
        if start < end:
            assembler.append_batch(self.batch.slice(start, end - start))


class FramesPiece:
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
    if all(isinstance(piece, BatchPiece) for piece in pieces) and pieces:
        batches = [piece.batch for piece in pieces if isinstance(piece, BatchPiece)]
        return BatchPiece(pa.Table.from_batches(batches).combine_chunks().to_batches()[0])
    return RecordsPiece(
        [r for piece in pieces if isinstance(piece, RecordsPiece) for r in piece.records]
    )


def reader_of(data: memoryview) -> Callable[[memoryview], int]:
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


def pieces_of(data: Any, assembler: BlockAssembler) -> Iterator[Piece]:
    """Cut what `store` was given, a batch, a table, a list or an iterator of records."""
    if isinstance(data, pa.RecordBatch):
        yield BatchPiece(data)
    elif isinstance(data, pa.Table):
        yield from map(BatchPiece, data.to_batches())
    else:
        records: Iterable[Any] = iter(data)
        while chunk := list(itertools.islice(records, MAX_LEASE)):
            if set(map(type, chunk)) <= _KEPT_AS_THEY_ARE:
                yield RecordsPiece(chunk)
            else:
                yield RecordsPiece([assembler.prepare(record)[1] for record in chunk])
