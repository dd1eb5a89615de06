"""The operations on windows: the batches of the last so many seconds, every so many seconds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import RDD

from penstock.streaming._combine import Combiner, combine_by_key
from penstock.streaming._fusion import MapOperation
from penstock.streaming._recognition import is_addition
from penstock.streaming.derived_streams import NarrowDStream
from penstock.streaming.durations import to_milliseconds
from penstock.streaming.pair_operations import PairOperations
from penstock.streaming.stream_handle import T_co
from penstock.streaming.windowed_streams import ReducedWindowedDStream, WindowedDStream

if TYPE_CHECKING:
    from penstock.streaming.dstream import DStream

__all__ = ["WindowOperations"]

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class WindowOperations(PairOperations[T_co]):
    """What a stream can do with windows.

    A window of `windowDuration` seconds that ends at a batch time covers the batches after its
    begin up to and with that one; one comes every `slideDuration` seconds (default: the stream's
    own slide). Both must be multiples of the stream's slide. The first windows are shorter.
    """

    def window(
        self: WindowOperations[T], windowDuration: float, slideDuration: float | None = None
    ) -> DStream[T]:
        """Return all records of each window."""
        window_ms, slide_ms = self._window(windowDuration, slideDuration)
        return self._derive(WindowedDStream(self._node, window_ms, slide_ms))

    def reduceByWindow(
        self: WindowOperations[T],
        reduceFunc: Callable[[T, T], T],
        invReduceFunc: Callable[[T, T], T] | None,
        windowDuration: float,
        slideDuration: float,
    ) -> DStream[T]:
        """Return one record per window: all its records reduced.

        With `invReduceFunc`, the inverse of `reduceFunc`, the last window's result is corrected
        instead of reducing the whole window; a checkpoint directory must be set for that.
        """
        keyed = self._derive(NarrowDStream(self._node, MapOperation(_with_one_key)))
        reduced = keyed.reduceByKeyAndWindow(
            reduceFunc, invReduceFunc, windowDuration, slideDuration, 1
        )
        return reduced.map(operator.itemgetter(1))

    def countByWindow(
        self: WindowOperations[T], windowDuration: float, slideDuration: float
    ) -> DStream[int]:
        """Return the number of records of each window. A checkpoint directory must be set."""
        ones = self._derive(NarrowDStream(self._node, MapOperation(_one)))
        return ones.reduceByWindow(operator.add, operator.sub, windowDuration, slideDuration)

    def countByValueAndWindow(
        self: WindowOperations[K],
        windowDuration: float,
        slideDuration: float,
        numPartitions: int | None = None,
    ) -> DStream[tuple[K, int]]:
        """Return each record of a window with its count. A checkpoint directory must be set."""
        keyed = self._derive(NarrowDStream(self._node, MapOperation(_with_count)))
        return keyed.reduceByKeyAndWindow(
            operator.add, operator.sub, windowDuration, slideDuration, numPartitions, _has_count
        )

    def groupByKeyAndWindow(
        self: WindowOperations[tuple[K, V]],
        windowDuration: float,
        slideDuration: float,
        numPartitions: int | None = None,
    ) -> DStream[tuple[K, Iterable[V]]]:
        """Return each key of a window with all its values."""
        return self.window(windowDuration, slideDuration).groupByKey(numPartitions)

    def reduceByKeyAndWindow(
        self: WindowOperations[tuple[K, V]],
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
        window_ms, slide_ms = self._window(windowDuration, slideDuration)
        partitions = self._partitions(numPartitions)
        reduced = self.reduceByKey(func, partitions)
        if invFunc is None:
            windows = reduced.window(windowDuration, slideDuration)
            results = windows.reduceByKey(func, partitions)
            return results if filterFunc is None else results.filter(filterFunc)
        combiner = Combiner(None, func, func, is_addition=is_addition(func))

        def reduce(last: RDD[Any] | None, new: RDD[Any]) -> RDD[Any]:
            added = combine_by_key(new, combiner, partitions)
            result = added
            if last is not None:
                result = combine_by_key(last.union(added), combiner, partitions)
            return result if filterFunc is None else result.filter(filterFunc)

        def invert(last: RDD[Any] | None, old: RDD[Any]) -> RDD[Any]:
            assert last is not None
            removed = combine_by_key(old, combiner, partitions)
            return last.leftOuterJoin(removed, partitions).mapValues(
                lambda pair: pair[0] if pair[1] is None else invFunc(pair[0], pair[1])
            )

        node = ReducedWindowedDStream(reduced._node, reduce, invert, window_ms, slide_ms)
        return self._derive(node)

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


def _one(_: Any) -> int:
    return 1


def _with_one_key(record: Any) -> tuple[int, Any]:
    return (1, record)


def _with_count(record: Any) -> tuple[Any, int]:
    return (record, 1)


def _has_count(pair: tuple[Any, int]) -> bool:
    return pair[1] > 0
