"""`KafkaRDD`: ranges of offsets, one partition each, read when a task asks for them."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from penstock.sources.kafka._reading import Reading, as_records, read_chunks
from penstock.sources.kafka.columns import Layout
from penstock.sources.kafka.records import OffsetRange, TopicPartition
from penstock.sources.kafka.strategies import LocationStrategy
from penstock.streaming.kernels.deferred import Content, DeferredRDD, Source
from penstock.tracker.cluster import HostLocation, SparkCluster, TaskLocation
from penstock.worker import begin_task, collect_less

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame


class KafkaRDD(DeferredRDD):
    """The records of ranges of offsets, in the ranges' order, as `KafkaRecord`.

    A range is read again whenever a task is run again, and gives the same records each time, as
    long as Kafka has them.

    Args:
        sc: The Spark context.
        reading: How tasks read.
        ranges: The ranges; partition `i` of the RDD is range `i`.
        locations: Where each range is best read; empty for anywhere.

    Attributes:
        offsetRanges: The ranges.
    """

    def __init__(
        self,
        sc: SparkContext,
        reading: Reading,
        ranges: Sequence[OffsetRange],
        locations: Sequence[TaskLocation] = (),
    ) -> None:
        is_empty = all(each.count() <= 0 for each in ranges)
        self._parts = _placed(sc, ranges, () if is_empty else locations)
        source = Source(lambda: self._parts._jrdd, self._parts._jrdd_deserializer)
        content = Content.NO_RECORDS if is_empty else Content.UNKNOWN
        super().__init__(sc, source, partial(_records, reading), content=content)
        self.offsetRanges = tuple(ranges)
        self._reading = reading

    def dataframe(self, layout: Layout) -> DataFrame:
        """Return the records as a DataFrame; tasks make Arrow columns of them in bulk.

        Args:
            layout: The columns.
        """
        from pyspark.sql import SparkSession

        from penstock.blockstore.arrow_frames import map_in_arrow, to_spark_schema

        spark = SparkSession(self.ctx)
        schema = to_spark_schema(layout.schema)
        if self.content is not Content.UNKNOWN:
            return spark.createDataFrame([], schema)
        parts = self._parts.map(lambda part: (pickle.dumps(part),))
        frame = spark.createDataFrame(parts, "part binary")
        return map_in_arrow(frame, partial(_batches, self._reading, layout), schema)

    def count(self) -> int:
        """Return the number of records; tasks read them and make no objects of ours."""
        if self.is_cached or self.is_checkpointed or self.content is not Content.UNKNOWN:
            return super().count()
        return sum(self._parts.mapPartitions(partial(_counts, self._reading)).collect())


def _placed(
    sc: SparkContext, parts: Sequence[OffsetRange], locations: Sequence[TaskLocation]
) -> RDD[OffsetRange]:
    if not parts:
        return sc.emptyRDD()
    if not locations or SparkCluster(sc).is_local:
        return sc.parallelize(parts, len(parts))
    return SparkCluster(sc).placed(parts, [[place] for place in locations])


def places(
    sc: SparkContext,
    strategy: LocationStrategy,
    partitions: Sequence[TopicPartition],
    leader: Callable[[TopicPartition], str],
) -> list[TaskLocation]:
    """Return where the tasks of each partition are best run; nothing with a local master."""
    cluster = SparkCluster(sc)
    if cluster.is_local:
        return []
    executors = cluster.executors()
    if not executors:
        return []
    found: list[TaskLocation] = []
    for partition in partitions:
        host = ""
        if strategy.kind == "PreferBrokers":
            host = leader(partition)
        elif strategy.kind == "PreferFixed":
            host = strategy.hosts.get(partition, "")
        # Among the executors of the host, if it has any, else among all.
        among = [each for each in executors if each.host == host] or executors
        if host and among is executors:
            found.append(HostLocation(host))
            continue
        digest = hashlib.sha256(f"{partition.topic}\0".encode()).digest()
        start = int.from_bytes(digest[:4], "big")
        found.append(among[(start + partition.partition) % len(among)])
    return found


# What runs in tasks stands at the top of the module, so that a task's closure holds its name only.


def _begin() -> None:
    # The client's messages are objects that the collector would look through by the thousands.
    collect_less()
    begin_task()


def _records(reading: Reading, _: int, parts: Iterable[OffsetRange]) -> Iterator[Any]:
    _begin()
    return chain.from_iterable(
        as_records(reading.params, chunk) for part in parts for chunk in read_chunks(reading, part)
    )


def _batches(
    reading: Reading, layout: Layout, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    _begin()
    for batch in batches:
        for part in batch.column(0).to_pylist():
            for chunk in read_chunks(reading, pickle.loads(part)):
                yield layout.batch(chunk)


def _counts(reading: Reading, parts: Iterable[OffsetRange]) -> Iterator[int]:
    _begin()
    for part in parts:
        yield sum(map(len, read_chunks(reading, part)))
