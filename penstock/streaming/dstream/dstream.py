"""`DStream`: a stream as a program sees it."""

from __future__ import annotations

import operator
import sys
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark import RDD, StorageLevel

from penstock._arguments import as_count, as_storage_level
from penstock.errors import StreamGraphError
from penstock.streaming._call_site import call_site, made_by
from penstock.streaming.dstream.arity import check_arguments, check_runs, with_time
from penstock.streaming.dstream.arrow_stream import ArrowDStream, ArrowStream
from penstock.streaming.dstream.derived_streams import (
    NarrowDStream,
    ReducedDStream,
    ShuffledDStream,
    TransformedDStream,
    union_of,
)
from penstock.streaming.dstream.inputs.input_streams import DirectInputDStream, ReceiverInputDStream
from penstock.streaming.dstream.output import ForEachBatchDStream, ForEachDStream
from penstock.streaming.dstream.pair_operations import PairOperations
from penstock.streaming.dstream.stream_handle import T_co, node_of
from penstock.streaming.dstream.windowed_streams import WindowedDStream
from penstock.streaming.durations import time_milliseconds
from penstock.streaming.kernels.combine import ADDITION
from penstock.streaming.kernels.dead_letters import (
    FlatMapOrLetterOperation,
    LetterOperation,
    MapOrLetterOperation,
)
from penstock.streaming.kernels.fusion import (
    FilterOperation,
    FlatMapOperation,
    MapOperation,
    NarrowOperation,
    PartitionOperation,
    count_records,
)
from penstock.streaming.kernels.shuffle import deal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    class _SparkDStream(Generic[T_co]):
        """Type checkers see the signatures of this project only."""

else:
    # What asks for a stream of PySpark's, such as pyspark.mllib's streaming algorithms, takes these
    # as well: they have all of its methods, and use nothing of it.
    from pyspark.streaming import DStream as _SparkDStream

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
U = TypeVar("U")
V = TypeVar("V")

_RULE = "-" * 43


class DStream(PairOperations[T_co], _SparkDStream[T_co]):
    """A discretized stream: one RDD per batch.

    It comes from an input of a `StreamingContext` or from an operation on other streams. An
    operation only describes; work is done once an output operation (`foreachRDD`,
    `foreachBatch`, `pprint`, `saveAsTextFiles`) asks for it and the context has started.

    Functions of records run in Spark's executors. Functions of RDDs (`transform`, `foreachRDD`)
    run in the driver: of `transform` while a batch is made, of output operations in the scheduler's
    threads. Consecutive `map`, `flatMap`, `filter`, `mapValues`, `mapPartitions` and their like
    become one function per partition.

    A window of `windowDuration` seconds that ends at a batch time covers the batches after its
    beginning up to and including that one; one comes every `slideDuration` seconds (default: the
    stream's own slide). Both must be multiples of the stream's slide. The first windows are
    shorter.

    What saves writes each RDD to a folder of its own, ``prefix-<ms>`` or ``prefix-<ms>.suffix``,
    with the batch time in milliseconds since the epoch. An existing folder is left as it is: the
    batch was saved before. Any path that Hadoop knows will do.
    """

    # -- record by record ----------------------------------------------------------------------

    def map(
        self: DStream[T], f: Callable[[T], U], preservesPartitioning: bool = False
    ) -> DStream[U]:
        """Return `f` of each record."""
        check_arguments(f, "a record", 1, "f")
        return self._narrow(MapOperation(f, preservesPartitioning))

    def flatMap(
        self: DStream[T], f: Callable[[T], Iterable[U]], preservesPartitioning: bool = False
    ) -> DStream[U]:
        """Return all that `f` of each record yields."""
        check_arguments(f, "a record", 1, "f")
        return self._narrow(FlatMapOperation(f, preservesPartitioning))

    def mapOrDeadLetter(
        self: DStream[T], f: Callable[[T], U], preservesPartitioning: bool = False
    ) -> DStream[U]:
        """Return `f` of each record; those for which it raises go to the dead letters.

        Such a record is kept with the error, its place in the program, stream and batch, by the
        executor and before the task ends; the batch goes on without it. A batch that is computed
        again leaves no second letter. Where letters are, and what of them outlives the program:
        docs/dead-letters.md.

        Only an `Exception` of `f` is kept so. A `MemoryError`, and what the operations before this
        one raise, fail the task, and so does a letter that cannot be written.
        """
        check_arguments(f, "a record", 1, "f")
        return self._or_dead_letter(MapOrLetterOperation, f, preservesPartitioning)

    def flatMapOrDeadLetter(
        self: DStream[T], f: Callable[[T], Iterable[U]], preservesPartitioning: bool = False
    ) -> DStream[U]:
        """Return all that `f` of each record yields; see `mapOrDeadLetter`.

        A record has all of its results in the stream, or none: where `f` yields some and then
        raises, these are left out, and the record goes to the dead letters. So what `f` yields for
        one record is in memory at once.
        """
        check_arguments(f, "a record", 1, "f")
        return self._or_dead_letter(FlatMapOrLetterOperation, f, preservesPartitioning)

    def filter(self: DStream[T], f: Callable[[T], bool]) -> DStream[T]:
        """Return the records for which `f` is true."""
        check_arguments(f, "a record", 1, "f")
        return self._narrow(FilterOperation(f, preserves_partitioning=True))

    def mapPartitions(
        self: DStream[T],
        f: Callable[[Iterable[T]], Iterable[U]],
        preservesPartitioning: bool = False,
    ) -> DStream[U]:
        """Return all that `f` of each partition's records yields."""
        check_arguments(f, "the records of a partition", 1, "f")
        return self.mapPartitionsWithIndex(lambda _, records: f(records), preservesPartitioning)

    def mapPartitionsWithIndex(
        self: DStream[T],
        f: Callable[[int, Iterable[T]], Iterable[U]],
        preservesPartitioning: bool = False,
    ) -> DStream[U]:
        """Return all that `f` of each partition's index and records yields."""
        check_arguments(f, "the index and the records of a partition", 2, "f")
        return self._narrow(PartitionOperation(f, preservesPartitioning))

    def glom(self: DStream[T]) -> DStream[list[T]]:
        """Return each partition's records as one list."""
        return self._narrow(PartitionOperation(_as_list))

    @property
    def arrow(self) -> ArrowStream:
        """The records as Arrow record batches, for operations on whole columns."""
        return ArrowStream(self._ssc, ArrowDStream(self._node))

    # -- all records -----------------------------------------------------------------------------

    def reduce(self: DStream[T], func: Callable[[T, T], T]) -> DStream[T]:
        """Return one record: all reduced by the associative, commutative `func`.

        A batch without records has none here either.
        """
        check_arguments(func, "two records", 2)
        return self._derive(ReducedDStream(self._node, func))

    def count(self) -> DStream[int]:
        """Return the number of records; nothing for a batch without partitions."""
        return self._narrow(PartitionOperation(count_records)).reduce(operator.add)

    def countByValue(self: DStream[T]) -> DStream[tuple[T, int]]:
        """Return each distinct record with its number of occurrences."""
        paired = NarrowDStream(self._node, MapOperation(_with_one))
        return self._derive(ShuffledDStream(paired, ADDITION, self._sc.defaultParallelism))

    def union(self: DStream[T], other: DStream[U]) -> DStream[T | U]:
        """Return the records of both streams."""
        if self._node.slide_ms != node_of(other, "other").slide_ms:
            raise ValueError("the two DStream should have same slide duration")
        return self._with_other(other, lambda a, b: union_of(a.context, [a, b]))

    def repartition(self: DStream[T], numPartitions: int) -> DStream[T]:
        """Return the records, spread over that many partitions."""
        partitions = self._partitions(numPartitions)
        return self._rdd_operation(lambda rdd: deal(rdd, partitions))

    # -- windows ---------------------------------------------------------------------------------

    def window(
        self: DStream[T], windowDuration: float, slideDuration: float | None = None
    ) -> DStream[T]:
        """Return all records of each window."""
        window_ms, slide_ms = self._window(windowDuration, slideDuration)
        return self._derive(WindowedDStream(self._node, window_ms, slide_ms))

    def reduceByWindow(
        self: DStream[T],
        reduceFunc: Callable[[T, T], T],
        invReduceFunc: Callable[[T, T], T] | None,
        windowDuration: float,
        slideDuration: float,
    ) -> DStream[T]:
        """Return one record per window: all its records reduced.

        With `invReduceFunc`, the inverse of `reduceFunc`, the last window's result is corrected
        instead of reducing the whole window; a checkpoint directory must be set for that.
        """
        check_arguments(reduceFunc, "two records", 2, "reduceFunc")
        if invReduceFunc is not None:
            check_arguments(invReduceFunc, "a result and what left the window", 2, "invReduceFunc")
        # Each partition is reduced first, so that the key comes once per partition.
        keyed = self._derive(NarrowDStream(self._node, PartitionOperation(_Reduced(reduceFunc))))
        reduced = keyed.reduceByKeyAndWindow(
            reduceFunc, invReduceFunc, windowDuration, slideDuration, 1
        )
        return reduced.map(operator.itemgetter(1))

    def countByWindow(
        self: DStream[T], windowDuration: float, slideDuration: float
    ) -> DStream[int]:
        """Return the number of records of each window. A checkpoint directory must be set."""
        counts = self._derive(NarrowDStream(self._node, PartitionOperation(_counted)))
        return counts.reduceByWindow(operator.add, operator.sub, windowDuration, slideDuration)

    def countByValueAndWindow(
        self: DStream[K],
        windowDuration: float,
        slideDuration: float,
        numPartitions: int | None = None,
    ) -> DStream[tuple[K, int]]:
        """Return each record of a window with its count. A checkpoint directory must be set."""
        keyed = self._derive(NarrowDStream(self._node, MapOperation(_with_one)))
        return keyed.reduceByKeyAndWindow(
            operator.add, operator.sub, windowDuration, slideDuration, numPartitions, _has_count
        )

    # -- functions of RDDs -----------------------------------------------------------------------

    def transform(
        self: DStream[T],
        func: Callable[[RDD[T]], RDD[U] | None] | Callable[[datetime, RDD[T]], RDD[U] | None],
    ) -> DStream[U]:
        """Return what `func` makes of each RDD.

        Args:
            func: Takes the RDD, or the batch time and the RDD. When it returns None, there is no
                RDD in that batch, and what follows is skipped.
        """
        return self._derive(TransformedDStream([self._node], with_time(func, 1)))

    def transformWith(
        self: DStream[T],
        func: Callable[..., RDD[V] | None],
        other: DStream[U],
        keepSerializer: bool = False,
    ) -> DStream[V]:
        """Return what `func` makes of each RDD and that of another stream.

        Args:
            func: Takes both RDDs, or the batch time and both. An RDD that is missing in a batch
                is an empty one.
            other: The other stream, with the same slide.
            keepSerializer: Has no effect; PySpark has it.
        """
        nodes = [self._node, node_of(other, "other")]
        return self._derive(TransformedDStream(nodes, with_time(func, 2)))

    # -- output ----------------------------------------------------------------------------------

    def foreachRDD(
        self: DStream[T], func: Callable[[RDD[T]], Any] | Callable[[datetime, RDD[T]], Any]
    ) -> None:
        """Call `func` with each RDD, on the driver.

        Args:
            func: Takes the RDD, or the batch time (naive local `datetime`) and the RDD. What it
                returns is not looked at. When it raises, that batch's operation has failed, the
                others go on, and `StreamingContext.awaitTermination` raises.

        Raises:
            TypeError: `func` takes other arguments, is async, or has a ``yield``.
        """
        check_runs(func)
        self._output(func, "foreachRDD")

    def foreachBatch(self, func: Callable[[DataFrame, datetime], Any]) -> None:
        """Call `func` with each batch of an input as a DataFrame, on the driver.

        For streams straight from a receiver, and for direct streams.

        The DataFrame is read from the receiver's Arrow blocks; no Python object is made per
        record. It has the columns of the stored Arrow batches or of the receiver's schema; stored
        ``bytes`` and ``str`` are one column ``value``. A direct stream says itself which columns
        it has.

        Args:
            func: Takes the DataFrame and the batch time (naive local `datetime`).

        Raises:
            StreamGraphError: This stream is neither a receiver's nor a direct one.
            TypeError: `func` cannot be called with two arguments, is async, or has a ``yield``.
            UnsupportedColumnError: Spark has no type for a column of the receiver's schema.
        """
        if not isinstance(self._node, (ReceiverInputDStream, DirectInputDStream)):
            raise StreamGraphError(
                "foreachBatch is there for streams that come straight from a receiver "
                "(receiverStream, socketTextStream), because it hands over their blocks; do the "
                "transformations on the DataFrame, or use foreachRDD"
            )
        check_arguments(func, "the DataFrame and the batch time", 2)
        check_runs(func)
        if isinstance(self._node, ReceiverInputDStream):
            self._node.check_columns()
        ForEachBatchDStream(self._node, func, call_site("foreachBatch"))

    def pprint(self, num: int = 10) -> None:
        """Print the first `num` records of each RDD, below the batch time as a date.

        Raises:
            TypeError, ValueError: `num` is no number of records.
        """
        num = as_count(num, "num", "records")
        self._output(lambda time, rdd: _show(rdd, num, str(time)), "pprint")

    def print(self, num: int = 10) -> None:
        """Print like `pprint`, with the batch time in milliseconds, as Spark does in Scala."""
        num = as_count(num, "num", "records")
        self._output(
            lambda time, rdd: _show(rdd, num, f"{time_milliseconds(time)} ms"),
            "print",
        )

    def saveAsTextFiles(self, prefix: str, suffix: str | None = None) -> None:
        """Save each RDD as text files, a line for each record."""
        self._save(prefix, suffix, "saveAsTextFiles", lambda rdd, path: rdd.saveAsTextFile(path))

    def saveAsObjectFiles(self, prefix: str, suffix: str | None = None) -> None:
        """Save each RDD as files of pickled records, which `SparkContext.pickleFile` reads."""
        self._save(
            prefix, suffix, "saveAsObjectFiles", lambda rdd, path: rdd.saveAsPickleFile(path)
        )

    # -- keeping RDDs ----------------------------------------------------------------------------

    def cache(self: DStream[T]) -> DStream[T]:
        """Persist its RDDs with `StorageLevel.MEMORY_ONLY`."""
        return self.persist(StorageLevel.MEMORY_ONLY)

    def persist(self: DStream[T], storageLevel: StorageLevel | str) -> DStream[T]:
        """Persist its RDDs, until they are no longer remembered.

        Args:
            storageLevel: The level, or its name.
        """
        self._persist(as_storage_level(storageLevel))
        return self

    def checkpoint(self: DStream[T], interval: float) -> DStream[T]:
        """Checkpoint an RDD every `interval` seconds; also persists its RDDs."""
        self._checkpoint(interval)
        return self

    def slice(self: DStream[T], begin: datetime | float, end: datetime | float) -> list[RDD[T]]:
        """Return the RDDs from `begin` to `end`, both included, of batches that were made by now.

        Args:
            begin: A local `datetime`, or seconds since the epoch.
            end: The same.

        Raises:
            IllegalStateError: The context has not started.
        """
        graph = self._node.graph
        with graph.lock:
            # A later batch would then keep the RDD that it has now, which has nothing yet.
            last_ms = min(time_milliseconds(end), graph.last_made_ms)
            return self._node.slice(time_milliseconds(begin), last_ms)

    # -- within ----------------------------------------------------------------------------------

    def _narrow(self, operation: NarrowOperation) -> DStream[Any]:
        return self._derive(NarrowDStream(self._node, operation))

    def _or_dead_letter(
        self, kind: type[LetterOperation], f: Callable[[Any], Any], preserves_partitioning: bool
    ) -> DStream[Any]:
        return self._narrow(kind(f, preserves_partitioning, uuid.uuid4().hex, made_by()))

    def _output(self, func: Callable[..., Any], name: str) -> None:
        ForEachDStream(self._node, with_time(func, 1), call_site(name))


def _show(rdd: RDD[Any], num: int, time: str) -> None:
    taken = rdd.take(num + 1)
    lines = [_RULE, f"Time: {time}", _RULE, *map(str, taken[:num])]
    if len(taken) > num:
        lines.append("...")
    # One call, so that the output of other threads does not come between.
    text = "\n".join([*lines, ""])
    try:
        print(text)
    except UnicodeEncodeError:
        # A terminal of ASCII is no reason for a batch to fail.
        encoding = sys.stdout.encoding
        print(text.encode(encoding, "backslashreplace").decode(encoding))


def _as_list(_: int, records: Iterable[Any]) -> list[list[Any]]:
    return [list(records)]


def _with_one(record: Any) -> tuple[Any, int]:
    return (record, 1)


class _Reduced:
    """Reduces a partition to one pair; an empty one has none."""

    def __init__(self, func: Callable[[Any, Any], Any]) -> None:
        self.func = func

    def __call__(self, _: int, records: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        records = iter(records)
        for first in records:
            yield (1, reduce(self.func, records, first))


def _counted(split: int, records: Iterable[Any]) -> list[int]:
    return [number for number in count_records(split, records) if number]


def _has_count(pair: tuple[Any, int]) -> bool:
    return pair[1] > 0
