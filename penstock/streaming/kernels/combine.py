"""Combining by key, without PySpark's cost per record.

PySpark's own path counts and checks memory with every record, wraps the user's functions, and
hashes every pair through a function. Here the map side is one loop, written for the operations
before it: their functions are called in it, and what they make is combined in a dict at once, with
no iterator for each operation. Memory is looked at between two stretches of records, which are
short while it grows fast: no counter runs with the pairs. When there are too many keys or too
little memory, what was combined so far is written to the shuffle and the dict starts over: the
reduce side merges it all the same. On the reduce side a dict that outgrows its bound is
handed to PySpark's `ExternalMerger`, which spills to disk.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache, reduce
from itertools import chain, islice
from typing import Any

from pyspark import RDD
from pyspark.core.rdd import Partitioner, portable_hash
from pyspark.shuffle import Aggregator, ExternalMerger

from penstock.streaming.kernels.deferred import narrow
from penstock.streaming.kernels.fusion import (
    FusedFunction,
    NarrowOperation,
    leaked_stop_iteration,
)
from penstock.streaming.kernels.shuffle import (
    BucketWriter,
    Pair,
    is_beyond,
    shuffle,
    stretches,
    used_memory_mb,
)
from penstock.worker import collect_less

MAX_KEYS = 1 << 19
"""Keys in a dict that is then written to the shuffle; about 100 MB with short strings."""

_FOLDER = os.path.dirname(__file__)

_FEWEST_RECORDS = 64
"""Records before the first look at memory, where operations may make many pairs of each."""

_MOST_RECORDS = 1 << 13
"""Records between two looks at memory, while it hardly grows."""

_GROWTH = 1 / 16
"""Part of the memory; when it grows by more, the next look comes after fewer records."""

_MAX_MERGED_KEYS = 1 << 23
"""Keys in a dict that is kept."""


@dataclass(frozen=True)
class Combiner:
    """How the values of a key become one.

    Attributes:
        create: Makes a combiner of a value; None when a value is a combiner already.
        merge_value: Merges a value into a combiner.
        merge_combiners: Merges two combiners.
    """

    create: Callable[[Any], Any] | None
    merge_value: Callable[[Any, Any], Any]
    merge_combiners: Callable[[Any, Any], Any]

    def add_values(self, combined: dict[Any, Any], pairs: Iterable[Pair]) -> None:
        """Merge pairs of key and value into `combined`."""
        merge, create = self.merge_value, self.create
        if create is None:
            _merge(combined, pairs, merge)
        else:
            for key, value in pairs:
                if key in combined:
                    combined[key] = merge(combined[key], value)
                else:
                    combined[key] = create(value)

    def add_combiners(self, combined: dict[Any, Any], pairs: Iterable[Pair]) -> None:
        """Merge pairs of key and combiner into `combined`."""
        _merge(combined, pairs, self.merge_combiners)


ADDITION = Combiner(None, operator.add, operator.add)

_EXACT = Context(prec=1000)
"""Decimals of Arrow have 76 digits at most; Python's own context rounds sums to 28."""


def exact_sum(left: Any, right: Any) -> Any:
    """Return `left + right`, of decimals with all their digits."""
    if type(left) is Decimal or type(right) is Decimal:
        return _EXACT.add(left, right)
    return left + right


EXACT_ADDITION = Combiner(None, exact_sum, exact_sum)


def _merge(
    combined: dict[Any, Any], pairs: Iterable[Pair], merge: Callable[[Any, Any], Any]
) -> None:
    for key, value in pairs:
        if key in combined:
            combined[key] = merge(combined[key], value)
        else:
            combined[key] = value


def combine_by_key(
    rdd: RDD[Any],
    combiner: Combiner,
    partitions: int,
    operations: Sequence[NarrowOperation] = (),
) -> RDD[Any]:
    """Return an RDD of each key with its combiner, like `RDD.combineByKey`.

    Args:
        rdd: The records.
        combiner: How the values of a key become one.
        partitions: Of the result.
        operations: They make pairs of the records; each has `code`.
    """
    memory_mb = rdd._memory_limit() * 0.9
    if operations and rdd.partitioner == Partitioner(partitions, portable_hash):
        # Where they keep the keys, nothing has to be shuffled.
        func = FusedFunction(operations)
        rdd = narrow(
            rdd,
            func,
            preserves_partitioning=func.preserves_partitioning,
            is_per_record=func.is_per_record,
        )
        operations = ()
    if rdd.partitioner == Partitioner(partitions, portable_hash):
        local = _CombineInPlace(combiner, memory_mb, rdd.ctx.serializer)
        return narrow(rdd, local, preserves_partitioning=True, is_per_record=True)
    merge = MergeCombiners(combiner, memory_mb, rdd.ctx.serializer)
    write = _CombineInOneLoop(tuple(operations), combiner, memory_mb, partitions)
    shuffled = shuffle(rdd, write, partitions)
    return narrow(shuffled, merge, preserves_partitioning=True, is_per_record=True)


def first_of_each_key(rdd: RDD[Any], partitions: int) -> RDD[Any]:
    """Return an RDD of each key with one of its values, the first that is found.

    Key and value are the first two items of a record of any kind.
    """
    pairs = narrow(rdd, _first_items, preserves_partitioning=True, is_per_record=True)
    return combine_by_key(pairs, Combiner(None, _first, _first), partitions)


def reduce_records(rdd: RDD[Any], func: Callable[[Any, Any], Any]) -> RDD[Any]:
    """Return an RDD with one partition that holds the reduction of all records, if any."""
    shuffled = shuffle(rdd, _WriteReduced(func), 1)
    return narrow(shuffled, _ReduceValues(func), is_per_record=True)


class WriteCombined:
    """The map side: combines the pairs of a partition and writes them for the shuffle."""

    def __init__(
        self,
        add: Callable[[dict[Any, Any], Iterable[Pair]], None],
        memory_mb: float,
        partitions: int,
    ) -> None:
        self._add = add
        self._memory_mb = memory_mb
        self._partitions = partitions

    def __call__(self, split: int, records: Iterable[Any]) -> Iterator[bytes]:
        writer = BucketWriter(self._partitions)
        combined: dict[Any, Any] = {}
        for stretch in stretches(records):
            self._add(combined, stretch)
            if _is_full(combined, self._memory_mb):
                yield from writer.write(combined.items())
                combined.clear()
        yield from writer.write(combined.items())


@dataclass(frozen=True)
class _CombineInOneLoop:
    """The map side of `combine_by_key`.

    What is made of a record may be any number of pairs, and a combiner may grow with each. So the
    records between two looks at memory become fewer, down to one, while it grows.
    """

    operations: tuple[NarrowOperation, ...]
    combiner: Combiner
    memory_mb: float
    partitions: int

    def __call__(self, split: int, records: Iterable[Any]) -> Iterator[bytes]:
        writer = BucketWriter(self.partitions)
        combined: dict[Any, Any] = {}
        functions = [operation.func for operation in self.operations]
        create, merge = self.combiner.create, self.combiner.merge_value
        loop = _loop(tuple(type(operation) for operation in self.operations), create is not None)
        records = iter(records)
        length = _FEWEST_RECORDS
        used_mb = used_memory_mb()
        for first in records:
            stretch = chain((first,), islice(records, length - 1))
            for _ in loop(stretch, combined, MAX_KEYS, create, merge, *functions):
                yield from writer.write(combined.items())
                combined.clear()
            before_mb, used_mb = used_mb, used_memory_mb()
            if used_mb > self.memory_mb:
                yield from writer.write(combined.items())
                combined.clear()
            if used_mb - before_mb > self.memory_mb * _GROWTH:
                length = max(1, length // 8)
            else:
                length = min(2 * length, _MOST_RECORDS)
        yield from writer.write(combined.items())


@lru_cache(maxsize=64)
def _loop(kinds: tuple[type[NarrowOperation], ...], creates: bool) -> Callable[..., Any]:
    """Return a generator function that combines what operations of these kinds make of records.

    It yields when the dict is full.
    """
    functions = [f"func{number}" for number in range(len(kinds))]
    arguments = ", ".join(["records", "combined", "most", "create", "merge", *functions])
    lines = [f"def loop({arguments}):", "    try:", "        for record0 in records:"]
    indent = 12
    for number, kind in enumerate(kinds):
        for line in kind.code:
            names = {"old": f"record{number}", "new": f"record{number + 1}"}
            lines.append(" " * indent + line.format(func=functions[number], **names))
            indent += 4 * line.endswith(":")
    body = f"""
key, value = record{len(kinds)}
if key in combined:
    combined[key] = merge(combined[key], value)
else:
    combined[key] = {"create(value)" if creates else "value"}
    if len(combined) >= most:
        yield
"""
    lines += [" " * indent + line for line in body.strip().splitlines()]
    called = ", ".join([*functions, "merge", "create"] if creates else [*functions, "merge"])
    lines += ["    except StopIteration as error:", f"        raise leaked([{called}]) from error"]
    made: dict[str, Any] = {"leaked": leaked_stop_iteration}
    # Its name is in this folder: a search for the program's frames leaves it out.
    exec(compile("\n".join(lines), f"{_FOLDER}/<one loop>", "exec"), made)
    loop: Callable[..., Any] = made["loop"]
    return loop


class _WriteReduced:
    """The map side of `reduce_records`: one pair per partition that has records."""

    def __init__(self, func: Callable[[Any, Any], Any]) -> None:
        self._func = func

    def __call__(self, split: int, records: Iterable[Any]) -> Iterator[bytes]:
        records = iter(records)
        for first in records:
            yield from BucketWriter(1).write([(None, reduce(self._func, records, first))])


class _ReduceValues:
    """The reduce side of `reduce_records`."""

    def __init__(self, func: Callable[[Any, Any], Any]) -> None:
        self._func = func

    def __call__(self, split: int, pairs: Iterable[Pair]) -> Iterator[Any]:
        values = (value for _, value in pairs)
        for first in values:
            yield reduce(self._func, values, first)


@dataclass(frozen=True)
class MergeCombiners:
    """The reduce side: merges the combiners of each key."""

    combiner: Combiner
    memory_mb: float
    serializer: Any

    def __call__(self, split: int, pairs: Iterable[Pair]) -> Iterator[Pair]:
        collect_less()
        merged: dict[Any, Any] = {}
        try:
            pairs = iter(pairs)
            for stretch in stretches(pairs):
                self.combiner.add_combiners(merged, stretch)
                if _is_too_large(merged, self.memory_mb):
                    return self._spilling(merged, pairs)
        except StopIteration as error:
            raise RuntimeError("StopIteration left a function that merges values") from error
        return iter(merged.items())

    def _spilling(self, merged: dict[Any, Any], pairs: Iterator[Pair]) -> Iterator[Pair]:
        merger = _external_merger(self.combiner, self.memory_mb, self.serializer)
        merger.mergeCombiners(merged.items())
        merged.clear()
        merger.mergeCombiners(pairs)
        return iter(merger.items())


@dataclass(frozen=True)
class _CombineInPlace:
    """Combines the pairs of a partition that already has every pair of its keys."""

    combiner: Combiner
    memory_mb: float
    serializer: Any

    def __call__(self, split: int, pairs: Iterable[Pair]) -> Iterator[Pair]:
        collect_less()
        combined: dict[Any, Any] = {}
        try:
            pairs = iter(pairs)
            for stretch in stretches(pairs):
                self.combiner.add_values(combined, stretch)
                if _is_too_large(combined, self.memory_mb):
                    merger = _external_merger(self.combiner, self.memory_mb, self.serializer)
                    merger.mergeCombiners(combined.items())
                    combined.clear()
                    merger.mergeValues(pairs)
                    return iter(merger.items())
        except StopIteration as error:
            raise RuntimeError("StopIteration left a function that merges values") from error
        return iter(combined.items())


def _external_merger(combiner: Combiner, memory_mb: float, serializer: Any) -> Any:
    create = combiner.create or _itself
    aggregator: Aggregator[Any, Any] = Aggregator(
        create, combiner.merge_value, combiner.merge_combiners
    )
    return ExternalMerger(aggregator, memory_mb, serializer)


def _first_items(split: int, records: Iterable[Any]) -> Iterator[Pair]:
    return ((record[0], record[1]) for record in records)


def _first(value: Any, _: Any) -> Any:
    return value


def _itself(value: Any) -> Any:
    return value


def _is_full(combined: dict[Any, Any], memory_mb: float) -> bool:
    return len(combined) >= MAX_KEYS or is_beyond(memory_mb)


def _is_too_large(merged: dict[Any, Any], memory_mb: float) -> bool:
    return len(merged) >= _MAX_MERGED_KEYS or is_beyond(memory_mb)
