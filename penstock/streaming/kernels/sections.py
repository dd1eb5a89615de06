"""Reading several RDDs that are placed alike, partition by partition, in one function.

The RDDs are put side by side by Spark, whose union of RDDs with equal partitioners has their
partitions: nothing is shuffled. What is then read of a partition is all pieces of the first RDD,
those of the second and so on, and between two *sections* a mark, so that the function knows what it
reads. Pieces stay the lists that they were pickled as; no function is called per record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pyspark import RDD, SparkContext
from pyspark import serializers as _untyped_serializers
from pyspark.core.rdd import Partitioner, portable_hash

from penstock.streaming.kernels.deferred import (
    Content,
    DeferredRDD,
    Source,
    content_of,
    no_partitions,
)
from penstock.streaming.kernels.shuffle import PIECES, Place, place_by_key, shuffle
from penstock.worker import collect_less

# PySpark does not type these.
_serializers: Any = _untyped_serializers

Section = Iterator[Any]
"""The pieces of one section. It must be read to its end before the next one."""


def is_placed(rdd: RDD[Any], partitions: int, place: Place = portable_hash) -> bool:
    """Return whether pairs are where `place_by_key` would put them."""
    return rdd.partitioner == Partitioner(partitions, place)


def over_sections(
    context: SparkContext,
    sections: Sequence[Sequence[RDD[Any]]],
    partitions: int,
    func: Callable[[list[Section]], Iterable[Any]],
    place: Place = portable_hash,
) -> DeferredRDD:
    """Return what `func` makes of each partition of RDDs that are placed alike.

    Args:
        context: The Spark context.
        sections: The RDDs of each section; every one is placed in `partitions` by `place`, and
            there is at least one.
        partitions: Number of partitions.
        func: Takes the sections, which it reads one after the other; keys stay where they are, and
            it makes nothing of sections without records.
        place: How keys are placed.
    """
    with_records = [
        [rdd for rdd in rdds if content_of(rdd) is Content.UNKNOWN] for rdds in sections
    ]
    has_records = any(with_records)
    # What has no records is not held: an idle stream's states would hold all before them.
    nothing = place_by_key(no_partitions(context), partitions, place)
    chosen = with_records if has_records else [[nothing], *with_records[1:]]

    def make() -> Any:
        java_rdds = []
        for number, rdds in enumerate(chosen):
            if number:
                java_rdds.append(_marks(context, partitions, place)._jrdd)
            java_rdds.extend(_in_pieces(rdd)._jrdd for rdd in rdds)
        gateway: Any = context._gateway
        java_array = gateway.new_array(gateway.jvm.JavaRDD, len(java_rdds))
        for number, java_rdd in enumerate(java_rdds):
            java_array[number] = java_rdd
        spark: Any = context
        return spark._jsc.union(java_array)

    return DeferredRDD(
        context,
        Source(make, PIECES),
        _OverSections(func, len(sections), partitions),
        Partitioner(partitions, place),
        Content.UNKNOWN if has_records else Content.NO_RECORDS,
    )


class _OverSections:
    """Finds the sections of a partition by the marks between them."""

    def __init__(
        self, func: Callable[[list[Section]], Iterable[Any]], count: int, partitions: int
    ) -> None:
        self._func = func
        self._count = count
        self._partitions = partitions

    def __call__(self, split: int, pieces: Iterable[Any]) -> Iterable[Any]:
        if split >= self._partitions:
            raise RuntimeError(
                f"partition {split} of {self._partitions}: RDDs that should be placed alike are not"
            )
        collect_less()
        pieces = iter(pieces)
        return self._func([_section(pieces) for _ in range(self._count)])


def _section(pieces: Iterator[Any]) -> Section:
    for piece in pieces:
        if piece is None:
            return
        yield piece


def _in_pieces(rdd: RDD[Any]) -> RDD[Any]:
    """Return the RDD as one whose bytes are pickled lists."""
    found: Any = rdd._jrdd_deserializer
    if isinstance(found, _serializers.CPickleSerializer):
        return rdd
    if isinstance(found, _serializers.BatchedSerializer) and isinstance(
        found.serializer, _serializers.CPickleSerializer
    ):
        return rdd
    unlike: Any = rdd
    pieces: RDD[Any] = unlike._reserialize(_serializers.AutoBatchedSerializer(PIECES))
    return pieces


_MarksOfContext = dict[tuple[int, int], tuple[Place, RDD[Any]]]
_known_marks: dict[SparkContext, _MarksOfContext] = {}
_marks_lock = threading.Lock()


def _marks(context: SparkContext, partitions: int, place: Place) -> RDD[Any]:
    """Return an RDD with one mark in each partition; a context has one of each kind."""
    with _marks_lock:
        if context not in _known_marks:
            # A process has one Spark context at a time.
            _known_marks.clear()
        known = _known_marks.setdefault(context, {})
        found = known.get((partitions, id(place)))
        if found is None:
            marks = shuffle(context.parallelize([0], 1), _WriteMarks(partitions), partitions, place)
            # The place is also kept, so that nothing else gets its id.
            found = known[(partitions, id(place))] = (place, marks.cache())
        return found[1]


class _WriteMarks:
    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def __call__(self, split: int, _: Iterable[Any]) -> Iterator[bytes]:
        for number in range(self._partitions):
            yield _serializers.pack_long(number)
            yield PIECES.dumps(None)
