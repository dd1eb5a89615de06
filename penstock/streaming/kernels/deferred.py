"""RDDs that are made in the JVM only when something asks for them.

Making an RDD in the JVM takes some ten calls to it and the pickling of a function. A batch makes
many RDDs that no one asks for by themselves: those between two shuffles, and all of them when an
output looks at nothing. And an idle stream has batches whose RDDs are known beforehand to have no
records: what asks for the records of such an RDD is answered at once, without a job.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterable
from typing import Any

from pyspark import RDD, SparkContext
from pyspark import serializers as _untyped_serializers
from pyspark.core.rdd import Partitioner, PipelinedRDD

from penstock.worker import begin_task

# PySpark does not type these.
_serializers: Any = _untyped_serializers

PartitionFunction = Callable[[int, Iterable[Any]], Iterable[Any]]


class Content(enum.Enum):
    """What is known of an RDD's records before it is made."""

    UNKNOWN = "unknown"
    NO_RECORDS = "no records"
    """It has partitions; a function of a partition may make records of nothing."""
    NO_PARTITIONS = "no partitions"


def content_of(rdd: RDD[Any]) -> Content:
    """Return what is known of an RDD."""
    return rdd.content if isinstance(rdd, DeferredRDD) else Content.UNKNOWN


class Source:
    """An RDD of the JVM that may not have been made yet.

    Args:
        make: Makes it; called once at most, by the first thread that asks.
        deserializer: Reads its bytes.
    """

    def __init__(self, make: Callable[[], Any], deserializer: Any) -> None:
        self.deserializer = deserializer
        self._make: Callable[[], Any] | None = make
        self._java_rdd: Any = None
        self._lock = threading.Lock()

    @property
    def java_rdd(self) -> Any:
        """The RDD of the JVM."""
        with self._lock:
            if self._make is not None:
                self._java_rdd = self._make()
                # What it was made of is not held any longer: states would hold all before them.
                self._make = None
            return self._java_rdd


class DeferredRDD(PipelinedRDD[Any, Any]):
    """A function of the partitions of a `Source`, or just the source.

    To PySpark it is a `PipelinedRDD`, whose attributes it has.

    Args:
        context: The Spark context.
        source: What is read.
        func: The function of a partition's index and records, or None.
        partitioner: How its keys are placed, or None.
        content: What is known of its records.
    """

    def __init__(
        self,
        context: SparkContext,
        source: Source,
        func: PartitionFunction | None = None,
        partitioner: Partitioner | None = None,
        content: Content = Content.UNKNOWN,
    ) -> None:
        self.source = source
        self.content = content
        self._function = func
        if func is not None:
            self.func = func
        self.preservesPartitioning = partitioner is not None
        self._prev_jrdd_deserializer = source.deserializer
        self._jrdd_deserializer = source.deserializer if func is None else context.serializer
        self._jrdd_val = None
        self._id = None
        self._bypass_serializer = False
        self.is_cached = False
        self.is_checkpointed = False
        self.has_resource_profile = False
        self.is_barrier = False
        self.ctx = context
        self.partitioner = partitioner
        self._making = threading.Lock()

    @property
    def _prev_jrdd(self) -> Any:
        return self.source.java_rdd

    @property
    def _jrdd(self) -> Any:
        if self._function is None:
            return self.source.java_rdd
        with self._making:
            return super()._jrdd

    def _is_pipelinable(self) -> bool:
        return self._function is not None and super()._is_pipelinable()

    def then(
        self, func: PartitionFunction, partitioner: Partitioner | None, content: Content
    ) -> DeferredRDD:
        """Return this RDD with `func` of each partition."""
        if self._function is None and not self.is_cached and not self.is_checkpointed:
            return DeferredRDD(self.ctx, self.source, _InTask(func), partitioner, content)
        if self._is_pipelinable():
            assert self._function is not None
            both = _Composed(self._function, func)
            return DeferredRDD(self.ctx, self.source, both, partitioner, content)
        source = Source(lambda: self._jrdd, self._jrdd_deserializer)
        return DeferredRDD(self.ctx, source, _InTask(func), partitioner, content)

    # -- what is answered at once ----------------------------------------------------------------

    def collect(self) -> list[Any]:
        return [] if self._has_no_records else super().collect()

    def take(self, num: int) -> list[Any]:
        return [] if self._has_no_records else super().take(num)

    def count(self) -> int:
        return 0 if self._has_no_records else super().count()

    def isEmpty(self) -> bool:
        return self._has_no_records or super().isEmpty()

    def foreach(self, f: Callable[[Any], None]) -> None:
        if not self._has_no_records:
            super().foreach(f)

    @property
    def _has_no_records(self) -> bool:
        return self.content is not Content.UNKNOWN


class _InTask:
    """The first function of a task, which has the worker made ready."""

    def __init__(self, func: PartitionFunction) -> None:
        self._func = func

    def __call__(self, split: int, records: Iterable[Any]) -> Iterable[Any]:
        begin_task()
        return self._func(split, records)


class _Composed:
    def __init__(self, first: PartitionFunction, second: PartitionFunction) -> None:
        self._first = first
        self._second = second

    def __call__(self, split: int, records: Iterable[Any]) -> Iterable[Any]:
        return self._second(split, self._first(split, records))


def narrow(
    rdd: RDD[Any],
    func: PartitionFunction,
    *,
    preserves_partitioning: bool = False,
    is_per_record: bool = False,
) -> RDD[Any]:
    """Return `func` of each partition, like `RDD.mapPartitionsWithIndex`.

    Args:
        rdd: The RDD.
        func: Takes a partition's index and records.
        preserves_partitioning: Whether keys stay where the partitioner put them.
        is_per_record: Whether it makes nothing of nothing.
    """
    if not isinstance(rdd, DeferredRDD):
        return rdd.mapPartitionsWithIndex(_InTask(func), preserves_partitioning)
    content = rdd.content
    if content is Content.NO_RECORDS and not is_per_record:
        content = Content.UNKNOWN
    return rdd.then(func, rdd.partitioner if preserves_partitioning else None, content)


def no_partitions(context: SparkContext) -> DeferredRDD:
    """Return an RDD without partitions, like `SparkContext.emptyRDD`."""
    spark: Any = context
    source = Source(lambda: spark._jsc.emptyRDD(), _serializers.NoOpSerializer())
    return DeferredRDD(context, source, content=Content.NO_PARTITIONS)
