"""Splitting lines into words, and counting them, a block at a time.

The first step of many programs is ``flatMap(lambda line: line.split(" "))`` on lines that lie in
blocks as they came. `_recognition` knows such a function by its code. Then a stretch of lines is
split in one step, since the words of lines are the words of the lines joined by the separator; and
when the program goes on to count the words, Arrow counts them without a Python object per word.
Where the words hardly repeat, that does not pay, and Python counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow.compute as pc
from pyspark import RDD

from penstock.blockstore import Block, BlockKind, BlockRDD
from penstock.streaming.kernels.arrow import words_of_bytes
from penstock.streaming.kernels.combine import MAX_KEYS
from penstock.streaming.kernels.fusion import FlatMapOperation, NarrowOperation
from penstock.streaming.kernels.recognition import Split, split_of

__all__ = ["counted_words", "split_words"]

_SPLIT_BYTES = 64 << 10
_COUNT_BYTES = 1 << 20
_BLANKS = bytes.maketrans(b"\t\n\v\f\r\x1c\x1d\x1e\x1f", b" " * 9)
"""What `str.split` takes for blanks in ASCII text."""


def split_words(rdd: RDD[Any], operation: NarrowOperation) -> RDD[Any] | None:
    """Return the words of an RDD's lines, or None if the operation is not known to split them."""
    return _on_blocks(rdd, operation, _SplitWords)


def counted_words(rdd: RDD[Any], operation: NarrowOperation) -> RDD[Any] | None:
    """Return pairs of a word and its number, a word not more than a few times in a partition.

    None if the operation is not known to split the RDD's lines.
    """
    return _on_blocks(rdd, operation, _CountWords)


def _on_blocks(
    rdd: RDD[Any],
    operation: NarrowOperation,
    kernel: Callable[[Split], Callable[[Block], Iterator[Any]]],
) -> RDD[Any] | None:
    if not isinstance(rdd, BlockRDD) or not rdd.lies_in_blocks:
        return None
    if any(block.kind != BlockKind.LINES.value for block in rdd.blocks):
        return None
    if type(operation) is not FlatMapOperation or operation.preserves_partitioning:
        return None
    split = split_of(operation.func)
    return None if split is None else rdd.map_blocks(kernel(split))


@dataclass(frozen=True)
class _SplitWords:
    split: Split

    def __call__(self, block: Block) -> Iterator[str]:
        return chain.from_iterable(
            _split(str(piece[:-1], "utf-8", "replace"), self.split)
            for piece in block.line_pieces(_SPLIT_BYTES)
        )


def _split(lines: str, split: Split) -> list[str]:
    if split.separator is None:
        return lines.split()
    return lines.replace("\n", split.separator).split(split.separator)


@dataclass(frozen=True)
class _CountWords:
    split: Split

    def __call__(self, block: Block) -> Iterator[tuple[str, int]]:
        counts: Counter[str] = Counter()
        repeating = True
        for piece in block.line_pieces(_COUNT_BYTES):
            lines = bytes(piece[:-1])
            separated = self._separated(lines) if repeating else None
            if separated is None:
                counts.update(_split(lines.decode("utf-8", "replace"), self.split))
            else:
                repeating = self._add(counts, separated)
            if len(counts) > MAX_KEYS:
                yield from counts.items()
                counts.clear()
        yield from counts.items()

    def _separated(self, lines: bytes) -> bytes | None:
        """Return the lines with one separator between words; None if Arrow cannot split them."""
        separator = self.split.separator
        if separator is not None:
            return lines.replace(b"\n", separator.encode())
        return lines.translate(_BLANKS) if lines.isascii() else None

    def _add(self, counts: Counter[str], separated: bytes) -> bool:
        """Add the words to `counts`; False if they hardly repeat."""
        words = words_of_bytes(separated, (self.split.separator or " ").encode())
        counted = pc.value_counts(words)
        found, numbers = counted.field(0).to_pylist(), counted.field(1).to_pylist()
        for word, number in zip(found, numbers, strict=True):
            # Different bytes that are no text can be the same word.
            counts[word.decode("utf-8", "replace")] += number
        if self.split.separator is None:
            # Between two blanks there is no word.
            del counts[""]
        return 2 * len(found) <= len(words)
