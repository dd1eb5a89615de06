"""Combining by key, without PySpark's cost per record.

PySpark's own path counts and checks memory with every record, wraps the user's functions, and
hashes every pair through a function. Here the map side is a plain loop over a dict, in stretches
of `_STRETCH` records; only between two stretches memory is looked at. When the dict has grown
beyond its bound, what was combined so far is written to the shuffle and the dict begins anew: the
reduce side merges it all the same. On the reduce side a dict that outgrows its bound is handed to
PySpark's `ExternalMerger`, which spills to disk.

The shuffle itself is Spark's, with PySpark's `portable_hash`, so the result has the partitioner
that any PySpark RDD with as many partitions has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import chain, islice
from typing import Any

from pyspark import RDD
from pyspark import serializers as _untyped_serializers
from pyspark import traceback_utils as _untyped_traceback_utils
from pyspark.core.rdd import Partitioner, portable_hash
from pyspark.shuffle import Aggregator, ExternalMerger, get_used_memory

__all__ = ["Combiner", "add_weighted", "combine_by_key", "count_keys", "reduce_records"]

# PySpark does not type these.
_serializers: Any = _untyped_serializers
_traceback_utils: Any = _untyped_traceback_utils

_STRETCH = 1 << 16
"""Records between two looks at memory."""

_MAX_KEYS = 1 << 19
"""Keys in one dict; about 100 MB with short strings."""

_MEGABYTE = 1 << 20

Pair = tuple[Any, Any]


@dataclass(frozen=True)
class Combiner:
    """How the values of a key become one.

    Attributes:
        create: Makes a combiner of a value; None when a value is a combiner already.
        merge_value: Merges a value into a combiner.
        merge_combiners: Merges two combiners.
        is_addition: True when both merge functions are ``a + b``, which is then not called.
    """

    create: Callable[[Any], Any] | None
    merge_value: Callable[[Any, Any], Any]
    merge_combiners: Callable[[Any, Any], Any]
    is_addition: bool = False

    def add_values(self, combined: dict[Any, Any], pairs: Iterable[Pair]) -> None:
        """Merge pairs of key and value into `combined`."""
        merge, create = self.merge_value, self.create
        if self.is_addition and create is None:
            _add_up(combined, pairs)
        elif create is None:
            _merge(combined, pairs, merge)
        else:
            for key, value in pairs:
                if key in combined:
                    combined[key] = merge(combined[key], value)
                else:
                    combined[key] = create(value)

    def add_combiners(self, combined: dict[Any, Any], pairs: Iterable[Pair]) -> None:
        """Merge pairs of key and combiner into `combined`."""
        if self.is_addition:
            _add_up(combined, pairs)
        else:
            _merge(combined, pairs, self.merge_combiners)


def _add_up(combined: dict[Any, Any], pairs: Iterable[Pair]) -> None:
    for key, value in pairs:
        if key in combined:
            combined[key] = combined[key] + value
        else:
            combined[key] = value


def _merge(
    combined: dict[Any, Any], pairs: Iterable[Pair], merge: Callable[[Any, Any], Any]
) -> None:
    for key, value in pairs:
        if key in combined:
            combined[key] = merge(combined[key], value)
        else:
            combined[key] = value


def combine_by_key(rdd: RDD[Any], combiner: Combiner, partitions: int) -> RDD[Any]:
    """Return an RDD of each key with its combiner, like `RDD.combineByKey`."""
    memory_mb = rdd._memory_limit() * 0.9
    merge = _MergeCombiners(combiner, memory_mb, rdd.ctx.serializer)
    if rdd.partitioner == Partitioner(partitions, portable_hash):
        local = _CombineInPlace(combiner, memory_mb, rdd.ctx.serializer)
        return rdd.mapPartitionsWithIndex(local, preservesPartitioning=True)
    write = _WriteCombined(combiner.add_values, memory_mb, partitions)
    return _shuffle(rdd, write, partitions).mapPartitionsWithIndex(
        merge, preservesPartitioning=True
    )


def count_keys(rdd: RDD[Any], weight: int, partitions: int) -> RDD[Any]:
    """Return an RDD of each distinct record with `weight` times its number of occurrences.

    It is ``rdd.map(lambda x: (x, weight)).reduceByKey(add, partitions)`` without the pairs.
    """
    memory_mb = rdd._memory_limit() * 0.9
    addition = Combiner(None, _plus, _plus, is_addition=True)
    write = _WriteCounts(weight, memory_mb, partitions)
    merge = _MergeCombiners(addition, memory_mb, rdd.ctx.serializer)
    return _shuffle(rdd, write, partitions).mapPartitionsWithIndex(
        merge, preservesPartitioning=True
    )


def add_weighted(counted: RDD[Any], weight: int, partitions: int) -> RDD[Any]:
    """Return an RDD of each key of pairs of key and number, with `weight` times its sum."""
    addition = Combiner(None, _plus, _plus, is_addition=True)
    if weight != 1:
        counted = counted.map(lambda pair: (pair[0], pair[1] * weight))
    return combine_by_key(counted, addition, partitions)


def reduce_records(rdd: RDD[Any], func: Callable[[Any, Any], Any]) -> RDD[Any]:
    """Return an RDD with one partition that holds the reduction of all records, if any."""
    shuffled = _shuffle(rdd, _WriteReduced(func), 1)
    return shuffled.mapPartitionsWithIndex(_ReduceValues(func))


def _plus(a: Any, b: Any) -> Any:
    return a + b


def _stretches(records: Iterable[Any]) -> Iterator[Iterator[Any]]:
    """Yield the records in stretches; each must be read to its end before the next is asked for."""
    records = iter(records)
    for first in records:
        yield chain((first,), islice(records, _STRETCH - 1))


def _shuffle(
    rdd: RDD[Any], write: Callable[[int, Iterable[Any]], Iterator[bytes]], partitions: int
) -> RDD[Any]:
    """Shuffle what `write` makes of a partition: partition numbers and pickled lists, in turn."""
    keyed = rdd.mapPartitionsWithIndex(write, preservesPartitioning=True)
    keyed._bypass_serializer = True  # type: ignore[attr-defined]  # PySpark's own shuffle does so
    context = rdd.context
    jvm = context._jvm
    assert jvm is not None
    with _traceback_utils.SCCallSiteSync(context):
        pairs = jvm.PairwiseRDD(keyed._jrdd.rdd()).asJavaPairRDD()
        partitioner = jvm.PythonPartitioner(partitions, id(portable_hash))
        values = jvm.PythonRDD.valueOfPair(pairs.partitionBy(partitioner))
    shuffled: RDD[Any] = RDD(
        values, context, _serializers.BatchedSerializer(_serializers.CPickleSerializer())
    )
    shuffled.partitioner = Partitioner(partitions, portable_hash)
    return shuffled


class _BucketWriter:
    """Writes pairs for the shuffle: each bucket as pickled lists of about a megabyte."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._step = 256
        self._dumps = _serializers.CPickleSerializer().dumps

    def write(self, pairs: Iterable[Pair]) -> Iterator[bytes]:
        for number, bucket in enumerate(self._buckets(pairs)):
            start = 0
            while start < len(bucket):
                step = self._step
                data = self._dumps(bucket[start : start + step])
                yield _serializers.pack_long(number)
                yield data
                start += step
                if len(data) < _MEGABYTE and step < 1 << 20:
                    self._step = step * 2
                elif len(data) > 8 * _MEGABYTE:
                    self._step = max(1, step // 2)

    def _buckets(self, pairs: Iterable[Pair]) -> list[list[Pair]]:
        count = self._partitions
        if count == 1:
            return [list(pairs)]
        portable_hash(None)  # Raises when hashes of str differ from worker to worker.
        buckets: list[list[Pair]] = [[] for _ in range(count)]
        for pair in pairs:
            key = pair[0]
            # What portable_hash does with a str, without the call.
            number = hash(key) if type(key) is str else portable_hash(key)
            buckets[number % count].append(pair)
        return buckets


class _WriteCombined:
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
        writer = _BucketWriter(self._partitions)
        combined: dict[Any, Any] = {}
        for stretch in _stretches(records):
            self._add(combined, stretch)
            if _is_full(combined, self._memory_mb):
                yield from writer.write(combined.items())
                combined.clear()
        yield from writer.write(combined.items())


class _WriteCounts:
    """The map side of `count_keys`; counting runs in C."""

    def __init__(self, weight: int, memory_mb: float, partitions: int) -> None:
        self._weight = weight
        self._memory_mb = memory_mb
        self._partitions = partitions

    def __call__(self, split: int, records: Iterable[Any]) -> Iterator[bytes]:
        writer = _BucketWriter(self._partitions)
        counts: Counter[Any] = Counter()
        for stretch in _stretches(records):
            counts.update(stretch)
            if _is_full(counts, self._memory_mb):
                yield from writer.write(self._weighted(counts))
                counts.clear()
        yield from writer.write(self._weighted(counts))

    def _weighted(self, counts: Counter[Any]) -> Iterable[Pair]:
        weight = self._weight
        return counts.items() if weight == 1 else ((key, n * weight) for key, n in counts.items())


class _WriteReduced:
    """The map side of `reduce_records`: one pair per partition that has records."""

    def __init__(self, func: Callable[[Any, Any], Any]) -> None:
        self._func = func

    def __call__(self, split: int, records: Iterable[Any]) -> Iterator[bytes]:
        records = iter(records)
        for first in records:
            yield from _BucketWriter(1).write([(None, reduce(self._func, records, first))])


class _ReduceValues:
    """The reduce side of `reduce_records`."""

    def __init__(self, func: Callable[[Any, Any], Any]) -> None:
        self._func = func

    def __call__(self, split: int, pairs: Iterable[Pair]) -> Iterator[Any]:
        values = (value for _, value in pairs)
        for first in values:
            yield reduce(self._func, values, first)


@dataclass(frozen=True)
class _MergeCombiners:
    """The reduce side: merges the combiners of each key."""

    combiner: Combiner
    memory_mb: float
    serializer: Any

    def __call__(self, split: int, pairs: Iterable[Pair]) -> Iterator[Pair]:
        merged: dict[Any, Any] = {}
        try:
            pairs = iter(pairs)
            for stretch in _stretches(pairs):
                self.combiner.add_combiners(merged, stretch)
                if _is_full(merged, self.memory_mb):
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
        combined: dict[Any, Any] = {}
        try:
            pairs = iter(pairs)
            for stretch in _stretches(pairs):
                self.combiner.add_values(combined, stretch)
                if _is_full(combined, self.memory_mb):
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


def _itself(value: Any) -> Any:
    return value


def _is_full(combined: dict[Any, Any], memory_mb: float) -> bool:
    return len(combined) >= _MAX_KEYS or get_used_memory() > memory_mb
