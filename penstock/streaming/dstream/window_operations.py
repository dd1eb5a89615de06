"""The operations on windows: the batches of the last so many seconds, every so many seconds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.streaming.dstream.arity import check_arguments
from penstock.streaming.dstream.derived_streams import NarrowDStream
from penstock.streaming.dstream.pair_operations import PairOperations
from penstock.streaming.dstream.stream_handle import T_co
from penstock.streaming.dstream.windowed_streams import (
    MergedWindowDStream,
    ReducedWindowedDStream,
    WindowedDStream,
)
from penstock.streaming.durations import to_milliseconds
from penstock.streaming.kernels.combine import Combiner
from penstock.streaming.kernels.counting import count_records
from penstock.streaming.kernels.fusion import MapOperation, PartitionOperation
from penstock.streaming.kernels.grouping import group_by_key
from penstock.streaming.kernels.recognition import is_addition

if TYPE_CHECKING:
    from penstock.streaming.dstream.dstream import DStream

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
        self: WindowOperations[T], windowDuration: float, slideDuration: float
    ) -> DStream[int]:
        """Return the number of records of each window. A checkpoint directory must be set."""
        counts = self._derive(NarrowDStream(self._node, PartitionOperation(_counted)))
        return counts.reduceByWindow(operator.add, operator.sub, windowDuration, slideDuration)

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
        window = self.window(windowDuration, slideDuration)
        partitions = self._partitions(numPartitions)
        return window.transform(lambda rdd: group_by_key(rdd, partitions, is_lenient=True))

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
        check_arguments(func, "two values", 2)
        if invFunc is not None:
            check_arguments(invFunc, "a result and what left the window", 2, "invFunc")
        if filterFunc is not None:
            check_arguments(filterFunc, "a pair", 1, "filterFunc")
        window_ms, slide_ms = self._window(windowDuration, slideDuration)
        partitions = self._partitions(numPartitions)
        reduced = self.reduceByKey(func, partitions)
        combiner = Combiner(None, func, func, is_addition=is_addition(func))
        merged: MergedWindowDStream
        over = (partitions, window_ms, slide_ms)
        if invFunc is None:
            merged = MergedWindowDStream(reduced._node, combiner, filterFunc, *over)
        else:
            merged = ReducedWindowedDStream(reduced._node, combiner, invFunc, filterFunc, *over)
        return self._derive(merged)

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


def _with_count(record: Any) -> tuple[Any, int]:
    return (record, 1)


def _has_count(pair: tuple[Any, int]) -> bool:
    return pair[1] > 0
