"""Placing records in partitions, without PySpark's cost per record.

The shuffle itself is Spark's. What is written to it is made here: a partition's records are put
into one list per target and pickled in pieces of about a megabyte. The result has the partitioner
that any PySpark RDD with as many partitions and the same function of keys has.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from pyspark import RDD
from pyspark import serializers as _untyped_serializers
from pyspark import traceback_utils as _untyped_traceback_utils
from pyspark.core.rdd import Partitioner, portable_hash
from pyspark.shuffle import get_used_memory

from penstock.streaming.kernels.deferred import Content, DeferredRDD, Source, content_of, narrow
from penstock.worker import collect_less

# PySpark does not type these.
_serializers: Any = _untyped_serializers
_traceback_utils: Any = _untyped_traceback_utils

_STRETCH = 1 << 16
"""Records between two checks of memory."""

_MEGABYTE = 1 << 20

_HASHED = frozenset((str, int, float, bool, bytes))
"""Types for which `portable_hash` is `hash`."""

Pair = tuple[Any, Any]
Place = Callable[[Any], int]

PIECES = _serializers.CPickleSerializer()
"""Reads what was pickled piece by piece, as the lists that the pieces are."""


def stretches(records: Iterable[Any]) -> Iterator[Iterator[Any]]:
    """Yield the records in stretches; each must be read to its end before the next is asked for."""
    records = iter(records)
    for first in records:
        yield chain((first,), islice(records, _STRETCH - 1))


def is_beyond(memory_mb: float) -> bool:
    """Return whether this process uses more memory than that."""
    return used_memory_mb() > memory_mb


def used_memory_mb() -> float:
    """Return the memory that this process has for itself, in MiB.

    PySpark's own figure has all that is mapped, so also a receiver's memory, all of which is mapped
    by a worker that has read enough blocks.
    """
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except OSError:
        return get_used_memory()
    return (resident - shared) * mmap.PAGESIZE / _MEGABYTE


def place_by_key(rdd: RDD[Any], partitions: int, place: Place = portable_hash) -> RDD[Any]:
    """Return the pairs, placed by a function of their keys, like `RDD.partitionBy`."""
    if rdd.partitioner == Partitioner(partitions, place):
        return rdd
    write = _WritePairs(partitions, place)
    return shuffle(rdd, write, partitions, place)


def deal(rdd: RDD[Any], partitions: int) -> RDD[Any]:
    """Return the records, dealt evenly to that many partitions, like `RDD.repartition`."""
    dealt = shuffle(rdd, _Deal(partitions), partitions)
    dealt.partitioner = None
    return dealt


def shuffle(
    rdd: RDD[Any],
    write: Callable[[int, Iterable[Any]], Iterator[bytes]],
    partitions: int,
    place: Place = portable_hash,
) -> DeferredRDD:
    """Shuffle what `write` makes of a partition: partition numbers and pickled lists, in turn.

    `write` makes nothing of a partition without records.
    """
    context = rdd.context

    def make() -> Any:
        keyed = narrow(rdd, write)
        keyed._bypass_serializer = True  # type: ignore[attr-defined]  # PySpark's own does so
        jvm = context._jvm
        assert jvm is not None
        with _traceback_utils.SCCallSiteSync(context):
            pairs = jvm.PairwiseRDD(keyed._jrdd.rdd()).asJavaPairRDD()
            partitioner = jvm.PythonPartitioner(partitions, id(place))
            return jvm.PythonRDD.valueOfPair(pairs.partitionBy(partitioner))

    is_empty = content_of(rdd) is not Content.UNKNOWN
    return DeferredRDD(
        context,
        Source(make, _serializers.BatchedSerializer(PIECES)),
        partitioner=Partitioner(partitions, place),
        content=Content.NO_RECORDS if is_empty else Content.UNKNOWN,
    )


class BucketWriter:
    """Writes pairs for the shuffle: each bucket as pickled lists of about a megabyte."""

    def __init__(self, partitions: int, place: Place = portable_hash) -> None:
        collect_less()
        self._partitions = partitions
        self._place = place
        self._step = 256

    def write(self, pairs: Iterable[Pair]) -> Iterator[bytes]:
        """Yield the bytes of pairs."""
        for number, bucket in enumerate(self._buckets(pairs)):
            yield from self.write_bucket(number, bucket)

    def write_bucket(self, number: int, bucket: list[Any]) -> Iterator[bytes]:
        """Yield the bytes of what goes to one partition."""
        start = 0
        while start < len(bucket):
            step = self._step
            data = PIECES.dumps(bucket[start : start + step])
            yield _serializers.pack_long(number)
            yield data
            start += step
            if len(data) < _MEGABYTE and step < 1 << 20:
                self._step = step * 2
            elif len(data) > 8 * _MEGABYTE:
                self._step = max(1, step // 2)

    def _buckets(self, pairs: Iterable[Pair]) -> list[list[Pair]]:
        count, place = self._partitions, self._place
        buckets: list[list[Pair]] = [[] for _ in range(count)]
        if place is not portable_hash:
            for pair in pairs:
                buckets[place(pair[0]) % count].append(pair)
            return buckets
        if count == 1:
            return [list(pairs)]
        portable_hash(None)  # Raises when hashes of str differ from worker to worker.
        for pair in pairs:
            key = pair[0]
            # Without the call, where it does nothing else.
            number = hash(key) if type(key) in _HASHED else portable_hash(key)
            buckets[number % count].append(pair)
        return buckets


def _as_tuple(pair: Any) -> Pair:
    key, value = pair
    return key, value


class _WritePairs:
    """Writes pairs as tuples; anything without exactly two items is an error."""

    def __init__(self, partitions: int, place: Place) -> None:
        self._partitions = partitions
        self._place = place

    def __call__(self, split: int, pairs: Iterable[Pair]) -> Iterator[bytes]:
        writer = BucketWriter(self._partitions, self._place)
        for stretch in stretches(pairs):
            yield from writer.write(
                [
                    pair if type(pair) is tuple and len(pair) == 2 else _as_tuple(pair)
                    for pair in stretch
                ]
            )


class _Deal:
    """Deals records: each stretch goes in equal parts to all partitions."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def __call__(self, split: int, records: Iterable[Any]) -> Iterator[bytes]:
        count = self._partitions
        writer = BucketWriter(count)
        # Not all partitions begin with the same target, or the first would get the most.
        first = split
        for stretch in stretches(records):
            dealt = list(stretch)
            for offset in range(count):
                yield from writer.write_bucket((first + offset) % count, dealt[offset::count])
            first += len(dealt)
