"""Nodes that look back: windows over their parent's RDDs, and state carried from batch to batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark import RDD, StorageLevel

from penstock.streaming.node import DStreamNode

__all__ = ["ReducedWindowedDStream", "StateDStream", "WindowedDStream"]

_SLIDES_FOR_INVERSE = 5
"""A window of fewer slides is cheaper to reduce anew than to correct twice
(`PythonReducedWindowedDStream` has the same number)."""

Reduce = Callable[[RDD[Any] | None, RDD[Any]], RDD[Any]]
"""Makes a new result of the last one, if any, and of new records."""


class WindowedDStream(DStreamNode):
    """The records of the parent's RDDs in the last `window_ms`."""

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
        return _longer(self.remember_ms, self.window_ms)

    def persist(self, level: StorageLevel) -> None:
        """Persist the parent's RDDs: those of the windows are unions that share them."""
        self.parent.persist(level)

    def compute(self, time_ms: int) -> RDD[Any] | None:
        first_ms = time_ms - self.window_ms + self.parent.slide_ms
        return _union(self, self.parent.slice(first_ms, time_ms))


class ReducedWindowedDStream(DStreamNode):
    """A reduction over a window, corrected from slide to slide by what came and what left."""

    must_checkpoint = True

    def __init__(
        self,
        parent: DStreamNode,
        reduce: Reduce,
        invert: Reduce,
        window_ms: int,
        slide_ms: int,
    ) -> None:
        parent.graph.check_can_grow()
        super().__init__(parent.graph, (parent,), slide_ms)
        self.parent = parent
        self.reduce = reduce
        self.invert = invert
        self.window_ms = window_ms
        if parent.storage_level is None:
            parent.persist(StorageLevel.MEMORY_ONLY)
        self.persist(StorageLevel.MEMORY_ONLY)

    @property
    def parent_remember_ms(self) -> int | None:
        return _longer(self.remember_ms, self.window_ms)

    def compute(self, time_ms: int) -> RDD[Any] | None:
        previous_ms = time_ms - self.slide_ms
        step_ms = self.parent.slide_ms
        begin_ms = time_ms - self.window_ms
        previous = self.get_or_compute(previous_ms)
        if previous is None or self.window_ms < self.slide_ms * _SLIDES_FOR_INVERSE:
            whole = self.parent.slice(begin_ms + step_ms, time_ms)
            return self.reduce(None, _union(self, whole)) if whole else None
        old = self.parent.slice(previous_ms - self.window_ms + step_ms, begin_ms)
        new = self.parent.slice(previous_ms + step_ms, time_ms)
        result = self.invert(previous, _union(self, old)) if old else previous
        return self.reduce(result, _union(self, new)) if new else result


class StateDStream(DStreamNode):
    """The state of every key, made anew each batch from the last state and the new records."""

    must_checkpoint = True
    given_rdds = ("initial",)

    def __init__(self, parent: DStreamNode, update: Reduce, initial: RDD[Any] | None) -> None:
        parent.graph.check_can_grow()
        super().__init__(parent.graph, (parent,), parent.slide_ms)
        self.parent = parent
        self.update = update
        self.initial = initial
        self.persist(StorageLevel.MEMORY_ONLY)

    def compute(self, time_ms: int) -> RDD[Any] | None:
        last = self.get_or_compute(time_ms - self.slide_ms)
        if last is None:
            last = self.initial
        new = self.parent.get_or_compute(time_ms)
        return last if new is None else self.update(last, new)


def _longer(remember_ms: int | None, window_ms: int) -> int | None:
    return None if remember_ms is None else remember_ms + window_ms


def _union(node: DStreamNode, rdds: list[RDD[Any]]) -> RDD[Any]:
    context = node.graph.spark_context
    if not rdds:
        return context.emptyRDD()
    return rdds[0] if len(rdds) == 1 else context.union(rdds)
