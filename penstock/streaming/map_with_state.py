"""`mapWithState`: a state for each key, and a record for each value.

The state lies in one RDD per batch, with one `StateRecord` per partition: the states of the
partition's keys, and what the program's function returned in that batch. A batch's record is made
of the last one and of the batch's pairs, which are placed like the states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import RDD, StorageLevel

from penstock.streaming._fusion import FlatMapOperation
from penstock.streaming.derived_streams import NarrowDStream
from penstock.streaming.dstream import DStream
from penstock.streaming.durations import batch_datetime, to_milliseconds
from penstock.streaming.node import DStreamNode
from penstock.streaming.state import State, StateSpec

if TYPE_CHECKING:
    from pyspark import SparkContext

    from penstock.streaming.context import StreamingContext

__all__ = ["MapWithStateDStream"]

_CHECKPOINT_SLIDES = 10
"""Batches between two checkpoints, as in Spark's `InternalMapWithStateDStream`."""


class StateRecord:
    """One partition of a batch: states by key with the time of the key's last value, and results.

    Its class tells it from the pairs that are read with it.
    """

    __slots__ = ("mapped", "states")

    def __init__(self, states: dict[Any, tuple[Any, int]], mapped: list[Any]) -> None:
        self.states = states
        self.mapped = mapped

    def __reduce__(self) -> tuple[Any, ...]:
        return StateRecord, (self.states, self.mapped)


class MapWithStateDStream(DStream[Any]):
    """The stream of what the function of a `StateSpec` returned.

    Made by `DStream.mapWithState`.
    """

    def __init__(self, ssc: StreamingContext, parent: DStreamNode, spec: StateSpec) -> None:
        self._states = StateNode(parent, spec, ssc.sparkContext.defaultParallelism)
        super().__init__(ssc, NarrowDStream(self._states, FlatMapOperation(_mapped_of)))

    def stateSnapshots(self) -> DStream[tuple[Any, Any]]:
        """Return the pairs of all keys and their states after each batch."""
        return self._derive(
            NarrowDStream(self._states, FlatMapOperation(_states_of, preserves_partitioning=True))
        )

    def checkpoint(self, interval: float) -> DStream[Any]:
        """Checkpoint the states every `interval` seconds; the default is ten batches."""
        self._states.checkpoint(to_milliseconds(interval, "the checkpoint interval"))
        return self

    @property
    def is_checkpointed(self) -> bool:
        return self._states.checkpoint_ms is not None


class StateNode(DStreamNode):
    """The states: one RDD of `StateRecord` per batch."""

    must_checkpoint = True
    given_rdds = ("_initial",)
    transient = ("_read_back",)

    def __init__(self, parent: DStreamNode, spec: StateSpec, default_partitions: int) -> None:
        parent.graph.check_can_grow()
        super().__init__(parent.graph, (parent,), parent.slide_ms)
        self.parent = parent
        self._partitions = spec._partitions or default_partitions
        self._place = spec._partition_func
        self._timed = spec._timed
        self._emits_none = spec._emits_none
        self._timeout_ms = spec._timeout_ms
        self._initial = spec._initial
        self._read_back: set[int] | None = None
        self.persist(StorageLevel.MEMORY_ONLY)

    def initialize(self, zero_ms: int) -> None:
        if self.checkpoint_ms is None:
            self.checkpoint_ms = self.slide_ms * _CHECKPOINT_SLIDES
        super().initialize(zero_ms)

    def compute(self, time_ms: int) -> RDD[Any] | None:
        last = self.get_or_compute(time_ms - self.slide_ms)
        if last is None:
            last = self._first(time_ms)
        elif self._read_back and time_ms - self.slide_ms in self._read_back:
            last = self._placed_anew(last)
        new = self.parent.get_or_compute(time_ms)
        # Both are placed alike, so the union has the partitions of the states, those first.
        both = last if new is None else last.union(new.partitionBy(self._partitions, self._place))
        threshold_ms = None if self._timeout_ms is None else time_ms - self._timeout_ms
        step = _Step(self._timed, self._emits_none, time_ms, threshold_ms)
        return both.mapPartitions(step, preservesPartitioning=True)

    def restore(self, spark_context: SparkContext) -> None:
        super().restore(spark_context)
        self._read_back = set(self.rdd_checkpoints)

    def _placed_anew(self, rdd: RDD[Any]) -> RDD[Any]:
        """Place states that were read back where the pairs of the next batch will be."""
        placed = rdd.flatMap(_entries_of).partitionBy(self._partitions, self._place)
        return placed.mapPartitions(_gather, preservesPartitioning=True)

    def _first(self, time_ms: int) -> RDD[Any]:
        initial = self._initial
        if not isinstance(initial, RDD):
            initial = self.graph.spark_context.parallelize(initial or [], 1)
        placed = initial.partitionBy(self._partitions, self._place)
        return placed.mapPartitions(_Begin(time_ms), preservesPartitioning=True)


@dataclass(frozen=True)
class _Begin:
    """Makes the record that the first batch begins with."""

    time_ms: int

    def __call__(self, pairs: Iterable[tuple[Any, Any]]) -> Iterator[StateRecord]:
        yield StateRecord({key: (value, self.time_ms) for key, value in pairs}, [])


@dataclass(frozen=True)
class _Step:
    """Makes the record of a batch out of the last record of a partition and the batch's pairs.

    Attributes:
        func: The program's function, with the batch time.
        emits_none: Whether its results of None count.
        time_ms: The batch.
        threshold_ms: States of keys whose last value is older go; None keeps all.
    """

    func: Any
    emits_none: bool
    time_ms: int
    threshold_ms: int | None

    def __call__(self, records: Iterable[Any]) -> Iterator[StateRecord]:
        states: dict[Any, tuple[Any, int]] = {}
        mapped: list[Any] = []
        state: State[Any] = State()
        time = batch_datetime(self.time_ms)
        for record in records:
            if isinstance(record, StateRecord):
                states = record.states
                continue
            key, value = record
            known = states.get(key)
            state._wrap(None if known is None else known[0], exists=known is not None)
            result = self.func(time, key, value, state)
            if state._is_removed:
                states.pop(key, None)
            elif state._is_updated or (state._exists and self.threshold_ms is not None):
                states[key] = (state._value, self.time_ms)
            if result is not None or self.emits_none:
                mapped.append(result)
        if self.threshold_ms is not None:
            idle = [key for key, (_, last_ms) in states.items() if last_ms < self.threshold_ms]
            for key in idle:
                state._wrap(states.pop(key)[0], exists=True, is_timing_out=True)
                result = self.func(time, key, None, state)
                if result is not None or self.emits_none:
                    mapped.append(result)
        yield StateRecord(states, mapped)


def _entries_of(record: StateRecord) -> Iterable[tuple[Any, tuple[Any, int]]]:
    return record.states.items()


def _gather(entries: Iterable[tuple[Any, tuple[Any, int]]]) -> Iterator[StateRecord]:
    yield StateRecord(dict(entries), [])


def _mapped_of(record: StateRecord) -> list[Any]:
    return record.mapped


def _states_of(record: StateRecord) -> Iterator[tuple[Any, Any]]:
    return ((key, value) for key, (value, _) in record.states.items())
