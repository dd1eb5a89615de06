"""Nodes that look back: windows over their parent's RDDs, and state carried from batch to batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyspark import RDD, StorageLevel

from penstock.streaming.dstream.derived_streams import union_of
from penstock.streaming.dstream.node import DStreamNode
from penstock.streaming.dstream.states.rdd_files import RDDFile
from penstock.streaming.dstream.states.stateful import StatefulDStream
from penstock.streaming.kernels.combine import Combiner, MergeCombiners, first_of_each_key
from penstock.streaming.kernels.deferred import no_partitions
from penstock.streaming.kernels.grouping import Spill, grouped
from penstock.streaming.kernels.sections import over_sections
from penstock.streaming.kernels.shuffle import Pair, place_by_key
from penstock.streaming.kernels.slide import MergeWindow, SlideWindow, UpdateStates

_SLIDES_FOR_INVERSE = 5
"""A window of fewer slides is cheaper to reduce again than to correct twice
(`PythonReducedWindowedDStream` has the same number)."""


class _OverWindow(DStreamNode):
    """What is made of the parent's RDDs in the last `window_ms`, every `slide_ms`."""

    def __init__(self, parent: DStreamNode, window_ms: int, slide_ms: int) -> None:
        parent.graph.check_can_grow()
        super().__init__(parent.graph, (parent,), slide_ms)
        self.parent = parent
        self.window_ms = window_ms
        # Each RDD of the parent is used by several windows.
        if parent.storage_level is None:
            parent.persist(StorageLevel.MEMORY_ONLY)

    @property
    def parent_remember_ms(self) -> int | None:
        return None if self.remember_ms is None else self.remember_ms + self.window_ms

    def first_asked(self, time_ms: int) -> int:
        return time_ms - self.window_ms + self.parent.slide_ms

    def _window_of_parent(self, time_ms: int) -> list[RDD[Any]]:
        return self.parent.slice(time_ms - self.window_ms + self.parent.slide_ms, time_ms)


class WindowedDStream(_OverWindow):
    """The records of the parent's RDDs in the last `window_ms`."""

    def persist(self, level: StorageLevel) -> None:
        """Persist the parent's RDDs: the windows' are unions that share them."""
        self.parent.persist(level)

    def compute(self, time_ms: int) -> RDD[Any] | None:
        return union_of(self.graph.spark_context, self._window_of_parent(time_ms))


class MergedWindowDStream(_OverWindow):
    """A reduction over a window, made from the reductions of its batches.

    Args:
        parent: A `ShuffledDStream`: the reductions of the batches.
        combiner: How values are reduced.
        wanted: Which pairs of the result stay; None for all.
        partitions: Of the parent and of the result.
        window_ms: The window.
        slide_ms: How often there is one.
    """

    def __init__(
        self,
        parent: DStreamNode,
        combiner: Combiner,
        wanted: Callable[[Pair], bool] | None,
        partitions: int,
        window_ms: int,
        slide_ms: int,
    ) -> None:
        super().__init__(parent, window_ms, slide_ms)
        self.combiner = combiner
        self.wanted = wanted
        self.partitions = partitions

    def compute(self, time_ms: int) -> RDD[Any] | None:
        batches = self._placed(self._window_of_parent(time_ms))
        if not batches:
            return self._nothing()
        merge = MergeCombiners(self.combiner, batches[0]._memory_limit() * 0.9, _serializer(self))
        context = self.graph.spark_context
        func = MergeWindow(merge, self.wanted)
        return over_sections(context, [batches], self.partitions, func)

    def _nothing(self) -> RDD[Any] | None:
        """Return the RDD of a window whose batches have none."""
        return no_partitions(self.graph.spark_context)

    def _placed(self, rdds: Iterable[RDD[Any]]) -> list[RDD[Any]]:
        return [place_by_key(rdd, self.partitions) for rdd in rdds]


class ReducedWindowedDStream(MergedWindowDStream):
    """A reduction over a window, corrected from slide to slide by what came and what left."""

    must_checkpoint = True

    def __init__(
        self,
        parent: DStreamNode,
        combiner: Combiner,
        invert: Callable[[Any, Any], Any],
        wanted: Callable[[Pair], bool] | None,
        partitions: int,
        window_ms: int,
        slide_ms: int,
    ) -> None:
        super().__init__(parent, combiner, wanted, partitions, window_ms, slide_ms)
        self.invert = invert
        self.persist(StorageLevel.MEMORY_ONLY)

    def compute(self, time_ms: int) -> RDD[Any] | None:
        previous_ms = time_ms - self.slide_ms
        step_ms = self.parent.slide_ms
        previous = self.get_or_compute(previous_ms)
        if previous is None or self.window_ms < self.slide_ms * _SLIDES_FOR_INVERSE:
            return super().compute(time_ms)
        begin_ms = time_ms - self.window_ms
        old = self._placed(self.parent.slice(previous_ms - self.window_ms + step_ms, begin_ms))
        new = self._placed(self.parent.slice(previous_ms + step_ms, time_ms))
        if not old and not new:
            return previous
        last = place_by_key(previous, self.partitions)
        func = SlideWindow(self.combiner, self.invert, self.wanted, Spill.of(last))
        context = self.graph.spark_context
        return over_sections(context, [new, old, [last]], self.partitions, func)

    def first_asked(self, time_ms: int) -> int:
        # What leaves the window was in the one before.
        return super().first_asked(time_ms - self.slide_ms)

    def _nothing(self) -> RDD[Any] | None:
        return None


class StateDStream(StatefulDStream):
    """The state of every key, made again each batch from the last states and the new values.

    Args:
        parent: Pairs.
        func: `UpdateStates` says how it is called.
        partitions: Of the states.
        initial: The states before the first batch, or None.
    """

    kind = "updateStateByKey"
    given_rdds = ("initial",)

    def __init__(
        self,
        parent: DStreamNode,
        func: Callable[[Any, Any], Any],
        partitions: int,
        initial: RDD[Any] | None,
    ) -> None:
        parent.graph.check_can_grow()
        super().__init__(parent.graph, (parent,), parent.slide_ms)
        self.parent = parent
        self.func = func
        self.partitions = partitions
        self.initial = initial
        self.persist(StorageLevel.MEMORY_ONLY)

    @property
    def form(self) -> str:
        return "pairs"

    def given(self) -> tuple[str, RDDFile | RDD[Any] | list[Any]]:
        return self.form, self._saved_rdds.get("initial") or self.initial or []

    def seed(self, entries: RDD[Any] | None) -> None:
        self.initial = None if entries is None else entries.map(_pair_of)

    def of_entries(self, entries: RDD[Any], time_ms: int) -> RDD[Any]:
        return first_of_each_key(entries.map(_pair_of), self.partitions)

    def compute(self, time_ms: int) -> RDD[Any] | None:
        last = self.get_or_compute(time_ms - self.slide_ms)
        if last is None and self.initial is not None:
            last = first_of_each_key(self.initial, self.partitions)
        new = self.parent.get_or_compute(time_ms)
        if new is None:
            return last
        values = grouped(new, self.partitions)
        func = UpdateStates(self.func, values.is_grouped, Spill.of(new))
        known = [] if last is None else [place_by_key(last, self.partitions)]
        context = self.graph.spark_context
        return over_sections(context, [[values.rdd], known], self.partitions, func)


def _pair_of(entry: tuple[Any, Any, int | None]) -> tuple[Any, Any]:
    return entry[:2]


def _serializer(node: DStreamNode) -> Any:
    context: Any = node.graph.spark_context
    return context.serializer
