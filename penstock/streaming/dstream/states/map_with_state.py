"""`mapWithState`: a state for each key, and a record for each value.

The state is in one RDD per batch, with one `StateRecord` per partition: the states of the
partition's keys, and what the program's function returned in that batch. A batch's record is made
of the last one and of the batch's pairs, which are placed like the states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark import RDD, StorageLevel

from penstock.streaming.dstream.derived_streams import NarrowDStream
from penstock.streaming.dstream.dstream import DStream
from penstock.streaming.dstream.node import DStreamNode
from penstock.streaming.dstream.states.rdd_files import RDDFile
from penstock.streaming.dstream.states.state import State, StateSpec
from penstock.streaming.dstream.states.stateful import StatefulDStream
from penstock.streaming.durations import batch_datetime, to_milliseconds
from penstock.streaming.kernels.fusion import FlatMapOperation
from penstock.streaming.kernels.sections import Section, is_placed, over_sections
from penstock.streaming.kernels.shuffle import place_by_key

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext

_CHECKPOINT_SLIDES = 10
"""Batches between two checkpoints, as in Spark's `InternalMapWithStateDStream`."""


class StateRecord:
    """One partition of a batch: the states of its keys, and the results of the batch.

    Saved states hold it by this name, also for versions to come.

    Attributes:
        states: State by key; with a timeout, with the time of the key's last value.
        mapped: What the program's function returned.
    """

    __slots__ = ("mapped", "states")

    def __init__(self, states: dict[Any, Any], mapped: list[Any]) -> None:
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
        states_of = _timed_states_of if self._states.has_timeout else _states_of
        return self._derive(
            NarrowDStream(self._states, FlatMapOperation(states_of, preserves_partitioning=True))
        )

    def checkpoint(self, interval: float) -> DStream[Any]:
        """Checkpoint the states every `interval` seconds; the default is ten batches."""
        self._states.checkpoint(to_milliseconds(interval, "the checkpoint interval"))
        return self

    def named(self, name: str) -> MapWithStateDStream:
        self._states.set_name(name)
        return self

    @property
    def is_checkpointed(self) -> bool:
        return self._states.checkpoint_ms is not None


class StateNode(StatefulDStream):
    """The states: one RDD of `StateRecord` per batch."""

    kind = "mapWithState"
    given_rdds = ("_initial", "_seed")

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
        self._seed: RDD[Any] | None = None
        self.persist(StorageLevel.MEMORY_ONLY)

    def initialize(self, zero_ms: int) -> None:
        if self.checkpoint_ms is None:
            self.checkpoint_ms = self.slide_ms * _CHECKPOINT_SLIDES
        super().initialize(zero_ms)

    @property
    def has_timeout(self) -> bool:
        """Whether states go when their keys are idle."""
        return self._timeout_ms is not None

    def compute(self, time_ms: int) -> RDD[Any] | None:
        last = self.get_or_compute(time_ms - self.slide_ms)
        if last is None:
            last = self._first(time_ms)
        elif not is_placed(last, self._partitions, self._place):
            last = self._placed_anew(last)
        new = self.parent.get_or_compute(time_ms)
        placed = [] if new is None else [place_by_key(new, self._partitions, self._place)]
        threshold_ms = None if self._timeout_ms is None else time_ms - self._timeout_ms
        step = _Step(self._timed, self._emits_none, time_ms, threshold_ms)
        context = self.graph.spark_context
        return over_sections(context, [[last], placed], self._partitions, step, self._place)

    def _placed_anew(self, rdd: RDD[Any]) -> RDD[Any]:
        """Place states that were read back from a file where the pairs of the next batch are."""
        placed = place_by_key(rdd.flatMap(_entries_of), self._partitions, self._place)
        return placed.mapPartitions(_gather, preservesPartitioning=True)

    @property
    def form(self) -> str:
        return "timed records" if self.has_timeout else "records"

    def given(self) -> tuple[str, RDDFile | RDD[Any] | list[Any]]:
        if self._seed is not None:
            return "entries", self._saved_rdds.get("_seed") or self._seed
        return "pairs", self._saved_rdds.get("_initial") or self._initial or []

    def seed(self, entries: RDD[Any] | None) -> None:
        self._seed = entries
        self._initial = None

    def of_entries(self, entries: RDD[Any], time_ms: int) -> RDD[Any]:
        # A key without a time counts as of the next batch, as at a first start.
        return self._begun_again(entries, time_ms + self.slide_ms)

    def _begun_again(self, entries: RDD[Any], time_ms: int) -> RDD[Any]:
        known = place_by_key(entries.map(_by_key), self._partitions, self._place)
        again = _BeginAgain(time_ms if self.has_timeout else None)
        return known.mapPartitions(again, preservesPartitioning=True)

    def _first(self, time_ms: int) -> RDD[Any]:
        if self._seed is not None:
            return self._begun_again(self._seed, time_ms)
        initial = self._initial
        if not isinstance(initial, RDD):
            initial = self.graph.spark_context.parallelize(initial or [], 1)
        placed = place_by_key(initial, self._partitions, self._place)
        begin = _Begin(time_ms if self.has_timeout else None)
        return placed.mapPartitions(begin, preservesPartitioning=True)


@dataclass(frozen=True)
class _Begin:
    """Makes the record that the first batch begins with.

    Attributes:
        time_ms: The batch, or None when there is no timeout.
    """

    time_ms: int | None

    def __call__(self, pairs: Iterable[tuple[Any, Any]]) -> Iterator[StateRecord]:
        states = dict(pairs)
        if self.time_ms is not None:
            states = {key: (value, self.time_ms) for key, value in states.items()}
        yield StateRecord(states, [])


@dataclass(frozen=True)
class _BeginAgain:
    """Makes the record that the first batch begins with, of entries of another version.

    Attributes:
        time_ms: The batch, or None when there is no timeout.
    """

    time_ms: int | None

    def __call__(self, entries: Iterable[tuple[Any, tuple[Any, int | None]]]) -> Iterator[Any]:
        states: dict[Any, Any] = {}
        for key, (state, last_ms) in entries:
            if self.time_ms is None:
                states[key] = state
            else:
                states[key] = (state, self.time_ms if last_ms is None else last_ms)
        yield StateRecord(states, [])


@dataclass(frozen=True)
class _Step:
    """Makes the record of a batch. Sections: the last record of the partition, the new pairs.

    Attributes:
        func: The program's function, with the batch time.
        emits_none: Whether its results of None count.
        time_ms: The batch.
        threshold_ms: States of keys whose last value is older go; None when there is no timeout.
    """

    func: Any
    emits_none: bool
    time_ms: int
    threshold_ms: int | None

    def __call__(self, sections: list[Section]) -> Iterator[StateRecord]:
        last, came = sections
        states: dict[Any, Any] = {}
        for piece in last:
            states = piece[0].states
        results = self._results(states, chain.from_iterable(came))
        if not self.emits_none:
            results = (result for result in results if result is not None)
        yield StateRecord(states, list(results))

    def _results(self, states: dict[Any, Any], pairs: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
        """Bring the states up to date; yield what the program's function returns."""
        func, time, time_ms = self.func, batch_datetime(self.time_ms), self.time_ms
        has_timeout = self.threshold_ms is not None
        state: State[Any] = State()
        for key, value in pairs:
            known = key in states
            found: Any = states[key] if known else None
            state._wrap(found[0] if known and has_timeout else found, exists=known)
            result = func(time, key, value, state)
            if state._is_removed:
                states.pop(key, None)
            elif has_timeout:
                if state._exists:
                    states[key] = (state._value, time_ms)
            elif state._is_updated:
                states[key] = state._value
            yield result
        if self.threshold_ms is not None:
            idle = [key for key, (_, last_ms) in states.items() if last_ms < self.threshold_ms]
            for key in idle:
                state._wrap(states.pop(key)[0], exists=True, is_timing_out=True)
                yield func(time, key, None, state)


def _entries_of(record: StateRecord) -> Iterable[tuple[Any, Any]]:
    return record.states.items()


def _by_key(entry: tuple[Any, Any, int | None]) -> tuple[Any, tuple[Any, int | None]]:
    return entry[0], entry[1:]


def _gather(entries: Iterable[tuple[Any, Any]]) -> Iterator[StateRecord]:
    yield StateRecord(dict(entries), [])


def _mapped_of(record: StateRecord) -> list[Any]:
    return record.mapped


def _states_of(record: StateRecord) -> Iterable[tuple[Any, Any]]:
    return record.states.items()


def _timed_states_of(record: StateRecord) -> Iterator[tuple[Any, Any]]:
    return ((key, value) for key, (value, _) in record.states.items())
