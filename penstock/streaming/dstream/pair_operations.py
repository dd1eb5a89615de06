"""The operations on streams of pairs of key and value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark import RDD
from pyspark.core.rdd import portable_hash
from pyspark.resultiterable import ResultIterable

from penstock.streaming._call_site import call_site
from penstock.streaming.dstream.arity import check_arguments, with_time
from penstock.streaming.dstream.derived_streams import (
    NarrowDStream,
    ShuffledDStream,
    TransformedDStream,
)
from penstock.streaming.dstream.output import ForEachDStream, refuse_existing_folders
from penstock.streaming.dstream.states.rdd_files import remove_unfinished_output
from penstock.streaming.dstream.stream_handle import StreamHandle, T_co, node_of
from penstock.streaming.dstream.windowed_streams import (
    MergedWindowDStream,
    ReducedWindowedDStream,
    StateDStream,
    WindowedDStream,
)
from penstock.streaming.durations import time_milliseconds, to_milliseconds
from penstock.streaming.kernels.combine import Combiner
from penstock.streaming.kernels.fusion import FlatMapValuesOperation, MapValuesOperation
from penstock.streaming.kernels.grouping import cogroup, group_by_key, join
from penstock.streaming.kernels.shuffle import place_by_key

if TYPE_CHECKING:
    from penstock.streaming.dstream.dstream import DStream
    from penstock.streaming.dstream.states.map_with_state import MapWithStateDStream
    from penstock.streaming.dstream.states.state import StateSpec

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
U = TypeVar("U")
S = TypeVar("S")


class PairOperations(StreamHandle[T_co]):
    """What a stream of pairs can do.

    `numPartitions` is `SparkContext.defaultParallelism`, as it is when the operation is called,
    unless it is given. Keys are placed by PySpark's `portable_hash`.
    """

    def mapValues(self: PairOperations[tuple[K, V]], f: Callable[[V], U]) -> DStream[tuple[K, U]]:
        """Return the pairs with `f` of each value; keys and their places stay."""
        check_arguments(f, "a value", 1, "f")
        operation = MapValuesOperation(f, preserves_partitioning=True)
        return self._derive(NarrowDStream(self._node, operation))

    def flatMapValues(
        self: PairOperations[tuple[K, V]], f: Callable[[V], Iterable[U]]
    ) -> DStream[tuple[K, U]]:
        """Return each key with all that `f` of its value yields; keys and their places stay."""
        check_arguments(f, "a value", 1, "f")
        operation = FlatMapValuesOperation(f, preserves_partitioning=True)
        return self._derive(NarrowDStream(self._node, operation))

    def reduceByKey(
        self: PairOperations[tuple[K, V]],
        func: Callable[[V, V], V],
        numPartitions: int | None = None,
    ) -> DStream[tuple[K, V]]:
        """Return each key with its values reduced by the associative, commutative `func`."""
        check_arguments(func, "two values", 2)
        combiner = Combiner(None, func, func)
        partitions = self._partitions(numPartitions)
        return self._derive(ShuffledDStream(self._node, combiner, partitions))

    def combineByKey(
        self: PairOperations[tuple[K, V]],
        createCombiner: Callable[[V], U],
        mergeValue: Callable[[U, V], U],
        mergeCombiners: Callable[[U, U], U],
        numPartitions: int | None = None,
    ) -> DStream[tuple[K, U]]:
        """Return each key with its values combined, as `RDD.combineByKey` does."""
        check_arguments(createCombiner, "a value", 1, "createCombiner")
        check_arguments(mergeValue, "a combination and a value", 2, "mergeValue")
        check_arguments(mergeCombiners, "two combinations", 2, "mergeCombiners")
        combiner = Combiner(createCombiner, mergeValue, mergeCombiners)
        partitions = self._partitions(numPartitions)
        return self._derive(ShuffledDStream(self._node, combiner, partitions))

    def groupByKey(
        self: PairOperations[tuple[K, V]], numPartitions: int | None = None
    ) -> DStream[tuple[K, Iterable[V]]]:
        """Return each key with all its values."""
        partitions = self._partitions(numPartitions)
        return self._rdd_operation(lambda rdd: group_by_key(rdd, partitions))

    def partitionBy(
        self: PairOperations[tuple[K, V]],
        numPartitions: int,
        partitionFunc: Callable[[K], int] = portable_hash,
    ) -> DStream[tuple[K, V]]:
        """Return the pairs, placed by `partitionFunc` of their keys."""
        check_arguments(partitionFunc, "a key", 1, "partitionFunc")
        partitions = self._partitions(numPartitions)
        return self._rdd_operation(lambda rdd: place_by_key(rdd, partitions, partitionFunc))

    def cogroup(
        self: PairOperations[tuple[K, V]],
        other: PairOperations[tuple[K, U]],
        numPartitions: int | None = None,
    ) -> DStream[tuple[K, tuple[ResultIterable[V], ResultIterable[U]]]]:
        """Return each key of either stream with its values in both."""
        partitions = self._partitions(numPartitions)
        return self._with_other(other, lambda a, b: cogroup(a, b, partitions))

    def join(
        self: PairOperations[tuple[K, V]],
        other: PairOperations[tuple[K, U]],
        numPartitions: int | None = None,
    ) -> DStream[tuple[K, tuple[V, U]]]:
        """Return each key of both streams with every pair of its values."""
        return self._join(other, numPartitions, keeps_left=False, keeps_right=False)

    def leftOuterJoin(
        self: PairOperations[tuple[K, V]],
        other: PairOperations[tuple[K, U]],
        numPartitions: int | None = None,
    ) -> DStream[tuple[K, tuple[V, U | None]]]:
        """Join, with None for a key that the other stream lacks."""
        return self._join(other, numPartitions, keeps_left=True, keeps_right=False)

    def rightOuterJoin(
        self: PairOperations[tuple[K, V]],
        other: PairOperations[tuple[K, U]],
        numPartitions: int | None = None,
    ) -> DStream[tuple[K, tuple[V | None, U]]]:
        """Join, with None for a key that this stream lacks."""
        return self._join(other, numPartitions, keeps_left=False, keeps_right=True)

    def fullOuterJoin(
        self: PairOperations[tuple[K, V]],
        other: PairOperations[tuple[K, U]],
        numPartitions: int | None = None,
    ) -> DStream[tuple[K, tuple[V | None, U | None]]]:
        """Join, with None for a key that either stream lacks."""
        return self._join(other, numPartitions, keeps_left=True, keeps_right=True)

    def updateStateByKey(
        self: PairOperations[tuple[K, V]],
        updateFunc: Callable[[Iterable[V], S | None], S | None],
        numPartitions: int | None = None,
        initialRDD: RDD[tuple[K, S]] | Iterable[tuple[K, S]] | None = None,
    ) -> DStream[tuple[K, S]]:
        """Return the state of every key, brought up to date with each batch.

        Args:
            updateFunc: Called for every known key in every batch with its new values (maybe
                none) and its state (None for a new key). When it returns None, the key goes.
            numPartitions: Partitions of the state.
            initialRDD: The state before the first batch.

        A checkpoint directory must be set.
        """
        check_arguments(updateFunc, "the new values and the state", 2, "updateFunc")
        partitions = self._partitions(numPartitions)
        initial: RDD[Any] | None = None
        if isinstance(initialRDD, RDD):
            initial = initialRDD
        elif initialRDD is not None:
            initial = self._sc.parallelize(list(initialRDD))

        return self._derive(StateDStream(self._node, updateFunc, partitions, initial))

    def mapWithState(self: PairOperations[tuple[K, V]], spec: StateSpec) -> MapWithStateDStream:
        """Return what a function of each pair and of the state of its key returns.

        Unlike `updateStateByKey`, the function is called only for keys with values in a batch,
        and for those whose state times out.

        Args:
            spec: The function and how its state is kept. Later changes to it are not seen.

        A checkpoint directory must be set.
        """
        from penstock.streaming.dstream.states.map_with_state import MapWithStateDStream
        from penstock.streaming.dstream.states.state import StateSpec

        if not isinstance(spec, StateSpec):
            raise TypeError(f"spec={spec!r} is not accepted: StateSpec.function(…)")
        return MapWithStateDStream(self._ssc, self._node, spec)

    def groupByKeyAndWindow(
        self: PairOperations[tuple[K, V]],
        windowDuration: float,
        slideDuration: float,
        numPartitions: int | None = None,
    ) -> DStream[tuple[K, Iterable[V]]]:
        """Return each key of a window with all its values."""
        over = self._window(windowDuration, slideDuration)
        window: DStream[Any] = self._derive(WindowedDStream(self._node, *over))
        partitions = self._partitions(numPartitions)
        return window.transform(lambda rdd: group_by_key(rdd, partitions, is_lenient=True))

    def reduceByKeyAndWindow(
        self: PairOperations[tuple[K, V]],
        func: Callable[[V, V], V],
        invFunc: Callable[[V, V], V] | None,
        windowDuration: float,
        slideDuration: float | None = None,
        numPartitions: int | None = None,
        filterFunc: Callable[[tuple[K, V]], bool] | None = None,
    ) -> DStream[tuple[K, V]]:
        """Return each key of a window with its values reduced by `func`.

        Args:
            func: Associative and commutative.
            invFunc: The inverse of `func`, to correct the last window's result by what left the
                window instead of reducing all of it; None for none. With it a checkpoint
                directory must be set, and keys stay with what is left of their value unless
                `filterFunc` drops them.
            windowDuration: Seconds.
            slideDuration: Seconds.
            numPartitions: Partitions of the results.
            filterFunc: Only pairs for which it is true stay.
        """
        check_arguments(func, "two values", 2)
        if invFunc is not None:
            check_arguments(invFunc, "a result and what left the window", 2, "invFunc")
        if filterFunc is not None:
            check_arguments(filterFunc, "a pair", 1, "filterFunc")
        window_ms, slide_ms = self._window(windowDuration, slideDuration)
        partitions = self._partitions(numPartitions)
        reduced = self.reduceByKey(func, partitions)
        combiner = Combiner(None, func, func)
        merged: MergedWindowDStream
        over = (partitions, window_ms, slide_ms)
        if invFunc is None:
            merged = MergedWindowDStream(reduced._node, combiner, filterFunc, *over)
        else:
            merged = ReducedWindowedDStream(reduced._node, combiner, invFunc, filterFunc, *over)
        return self._derive(merged)

    def saveAsHadoopFiles(
        self,
        prefix: str,
        suffix: str | None,
        outputFormatClass: str,
        keyClass: str | None = None,
        valueClass: str | None = None,
        keyConverter: str | None = None,
        valueConverter: str | None = None,
        conf: dict[str, str] | None = None,
        compressionCodecClass: str | None = None,
    ) -> None:
        """Save each RDD of pairs in a format of Hadoop's older API.

        Args:
            prefix: Beginning of the folders' path.
            suffix: Its end, or None.
            outputFormatClass: As for `RDD.saveAsHadoopFile`; so are the others.
            keyClass: A Hadoop `Writable`; None to find it out.
            valueClass: The same.
            keyConverter: Makes keys into what the format can have.
            valueConverter: The same for values.
            conf: Hadoop configuration.
            compressionCodecClass: Compresses the files; None for none.
        """

        def save(rdd: RDD[Any], path: str) -> None:
            rdd.saveAsHadoopFile(
                path,
                outputFormatClass,
                keyClass,
                valueClass,
                keyConverter,
                valueConverter,
                conf,
                compressionCodecClass,
            )

        self._save(prefix, suffix, "saveAsHadoopFiles", save)

    def saveAsNewAPIHadoopFiles(
        self,
        prefix: str,
        suffix: str | None,
        outputFormatClass: str,
        keyClass: str | None = None,
        valueClass: str | None = None,
        keyConverter: str | None = None,
        valueConverter: str | None = None,
        conf: dict[str, str] | None = None,
    ) -> None:
        """Save each RDD of pairs in a format of Hadoop's newer API.

        Args:
            prefix: Beginning of the folders' path.
            suffix: Its end, or None.
            outputFormatClass: As for `RDD.saveAsNewAPIHadoopFile`; so are the others.
            keyClass: A Hadoop `Writable`; None to find it out.
            valueClass: The same.
            keyConverter: Makes keys into what the format can have.
            valueConverter: The same for values.
            conf: Hadoop configuration.
        """

        def save(rdd: RDD[Any], path: str) -> None:
            rdd.saveAsNewAPIHadoopFile(
                path, outputFormatClass, keyClass, valueClass, keyConverter, valueConverter, conf
            )

        self._save(prefix, suffix, "saveAsNewAPIHadoopFiles", save)

    def _join(
        self,
        other: StreamHandle[Any],
        numPartitions: int | None,
        *,
        keeps_left: bool,
        keeps_right: bool,
    ) -> DStream[Any]:
        partitions = self._partitions(numPartitions)
        kind = {"keeps_left": keeps_left, "keeps_right": keeps_right}
        return self._with_other(other, lambda a, b: join(a, b, partitions, **kind))

    def _rdd_operation(self, func: Callable[[RDD[Any]], RDD[Any]]) -> DStream[Any]:
        return self._derive(TransformedDStream([self._node], lambda _, rdd: func(rdd)))

    def _with_other(
        self, other: StreamHandle[Any], func: Callable[[RDD[Any], RDD[Any]], RDD[Any]]
    ) -> DStream[Any]:
        nodes = [self._node, node_of(other, "other")]
        return self._derive(TransformedDStream(nodes, lambda _, a, b: func(a, b)))

    def _window(self, windowDuration: float, slideDuration: float | None) -> tuple[int, int]:
        """Return window and slide in milliseconds.

        Raises:
            ValueError: One of them is no multiple of this stream's slide.
        """
        own_ms = self._node.slide_ms
        window_ms = to_milliseconds(windowDuration, "windowDuration")
        slide_ms = (
            own_ms if slideDuration is None else to_milliseconds(slideDuration, "slideDuration")
        )
        for name, value_ms in (("windowDuration", window_ms), ("slideDuration", slide_ms)):
            if value_ms % own_ms:
                raise ValueError(
                    f"{name} must be multiple of the parent dstream's slide (batch) duration "
                    f"({own_ms} ms)"
                )
        return window_ms, slide_ms

    def _save(
        self, prefix: str, suffix: str | None, name: str, save: Callable[[RDD[Any], str], None]
    ) -> None:
        if not isinstance(prefix, str):
            raise TypeError(f"prefix must be a str, not {type(prefix).__name__}")
        ending = "" if suffix is None else f".{suffix}"

        def save_batch(time: datetime, rdd: RDD[Any]) -> None:
            path = f"{prefix}-{time_milliseconds(time)}{ending}"
            with refuse_existing_folders(rdd.context):
                try:
                    save(rdd, path)
                except Py4JJavaError as error:
                    if "FileAlreadyExistsException" not in str(error):
                        raise
                    if remove_unfinished_output(rdd.context, path):
                        save(rdd, path)

        ForEachDStream(self._node, with_time(save_batch, 1), call_site(name))
