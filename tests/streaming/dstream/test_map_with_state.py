"""`mapWithState`: states of keys, what the function returns, and timeouts.

The names of Spark's tests are those of its `MapWithStateSuite`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import IllegalStateError
from penstock.streaming import State, StateSpec, StreamGraphError
from penstock.streaming.dstream.states.map_with_state import StateRecord, _Step
from tests.streaming.batches import Batches, batches, forget_checkpoint_directory


def running_count(key: Any, value: Any, state: Any) -> Any:
    total = (state.getOption() or 0) + value
    state.update(total)
    return key, total


class TestStateOfAKey:
    """Spark: "state - get, exists, update, remove, "."""

    def test_a_new_key_has_none(self) -> None:
        state: State[int] = State()
        assert not state.exists()
        assert state.getOption() is None
        assert not state.isTimingOut()
        with pytest.raises(IllegalStateError, match=r"^State is not set$"):
            state.get()

    def test_it_can_be_set_and_set_again(self) -> None:
        state: State[int] = State()
        state.update(1)
        assert (state.exists(), state.get(), state.getOption()) == (True, 1, 1)
        state.update(2)
        assert state.get() == 2

    def test_none_is_a_state(self) -> None:
        state: State[None] = State()
        state.update(None)
        assert state.exists()

    def test_after_it_was_removed_it_cannot_be_changed(self) -> None:
        state: State[int] = State()
        state.update(1)
        state.remove()
        assert not state.exists()
        with pytest.raises(IllegalStateError):
            state.get()
        with pytest.raises(IllegalStateError, match="update the state after it has been rem"):
            state.update(2)
        with pytest.raises(IllegalStateError, match="state that has already been removed"):
            state.remove()

    def test_when_it_times_out_it_cannot_be_changed(self) -> None:
        state: State[int] = State()
        state._wrap(1, exists=True, is_timing_out=True)
        assert state.isTimingOut()
        assert state.get() == 1
        with pytest.raises(IllegalStateError, match="Cannot update the state that is timing"):
            state.update(2)
        with pytest.raises(IllegalStateError, match="Cannot remove the state that is timing"):
            state.remove()


class TestStep:
    """One batch of one partition."""

    def run(
        self,
        func: Callable[..., Any],
        before: dict[Any, Any],
        pairs: list[Any],
        threshold_ms: int | None = None,
        emits_none: bool = False,
    ) -> tuple[dict[Any, Any], list[Any]]:
        step = _Step(func, emits_none, 10_000, threshold_ms)
        (record,) = step([iter([[StateRecord(before, ["old"])]]), iter([pairs])])
        record = pickle.loads(pickle.dumps(record))
        return record.states, record.mapped

    def test_states_follow_the_pairs_of_a_key_in_their_order(self) -> None:
        def append(time: datetime, key: str, value: int, state: Any) -> Any:
            state.update((state.getOption() or "") + str(value))
            return state.get()

        found = self.run(append, {"a": "0", "b": "9"}, [("a", 1), ("a", 2)])
        assert found == ({"a": "012", "b": "9"}, ["01", "012"])

    def test_a_removed_state_goes_and_may_come_again(self) -> None:
        def toggle(time: datetime, key: str, value: int, state: Any) -> Any:
            if state.exists():
                state.remove()
            else:
                state.update(value)

        assert self.run(toggle, {"a": 1}, [("a", 2)]) == ({}, [])
        assert self.run(toggle, {"a": 1}, [("a", 2), ("a", 3)]) == ({"a": 3}, [])
        timed = {"a": (1, 5000)}
        assert self.run(toggle, timed, [("a", 2), ("a", 3)], 4000) == ({"a": (3, 10_000)}, [])

    def test_a_key_with_data_is_not_idle_even_if_its_state_stays(self) -> None:
        def look(time: datetime, key: str, value: Any, state: Any) -> Any:
            return key, value, state.getOption(), state.isTimingOut()

        before = {"due": (1, 3999), "not yet": (2, 4000), "used": (3, 1000)}
        states, mapped = self.run(look, before, [("used", 7), ("new", 8)], threshold_ms=4000)
        assert states == {"not yet": (2, 4000), "used": (3, 10_000)}
        assert mapped == [
            ("used", 7, 3, False),
            ("new", 8, None, False),
            ("due", None, 1, True),
        ]

    def test_without_a_timeout_a_state_that_stays_is_not_touched(self) -> None:
        def change_in_place(time: datetime, key: str, value: int, state: Any) -> None:
            state.getOption().append(value)
            state._value = "not updated"

        before = {"a": [1]}
        assert self.run(change_in_place, before, [("a", 2)])[0] == {"a": [1, 2]}

    def test_none_is_left_out_on_demand(self) -> None:
        assert self.run(lambda *_: None, {}, [("a", 2)])[1] == []
        assert self.run(lambda *_: None, {}, [("a", 2)], emits_none=True)[1] == [None]


class TestStreams:
    @contextmanager
    def stateful(self, sc: Any, folder: Path) -> Iterator[Batches]:
        with batches(sc) as run:
            run.ssc.checkpoint(str(folder))
            yield run

    def test_simple_api(self, sc: Any, tmp_path: Path) -> None:
        """Spark: "mapWithState - basic operations with simple API"."""
        with self.stateful(sc, tmp_path) as run:
            stream = run.ssc.queueStream([[("a", 1), ("b", 1)], [], [("a", 2), ("c", 1), ("a", 3)]])
            states = stream.mapWithState(StateSpec.function(running_count).numPartitions(2))
            found = run.collect(states)
            snapshots = run.collect(states.stateSnapshots())
            run.run(4)
        assert [sorted(x) for x in found] == [
            [("a", 1), ("b", 1)],
            [],
            [("a", 3), ("a", 6), ("c", 1)],
            [],
        ]
        assert [dict(x) for x in snapshots] == [
            {"a": 1, "b": 1},
            {"a": 1, "b": 1},
            {"a": 6, "b": 1, "c": 1},
            {"a": 6, "b": 1, "c": 1},
        ]

    @pytest.mark.slow
    def test_advanced_api(self, sc: Any, tmp_path: Path) -> None:
        """Spark: "mapWithState - basic operations with advanced API", "initial states, with nothing
        returned from mapping function", "state removing"."""

        def remember_large(time: datetime, key: str, value: int, state: Any) -> Any:
            if value == 0:
                state.remove()
                return None
            state.update(value)
            return (time.second, key) if value > 1 else None

        with self.stateful(sc, tmp_path) as run:
            stream = run.ssc.queueStream([[("a", 1), ("b", 2)], [("a", 3), ("z", 0)]])
            spec = StateSpec.function(remember_large).initialState([("z", 9), ("y", 8)])
            states = stream.mapWithState(spec.partitioner(3, hash_of_first))
            found = run.collect(states)
            snapshots = run.collect(states.stateSnapshots())
            run.run(2)
        second = datetime.fromtimestamp(1_700_000_001).second
        assert found == [[(second, "b")], [(second + 1, "a")]]
        assert [dict(x) for x in snapshots] == [
            {"a": 1, "b": 2, "y": 8, "z": 9},
            {"a": 3, "b": 2, "y": 8},
        ]

    def test_timeouts_fire_at_the_batch_where_they_are_due(self, sc: Any, tmp_path: Path) -> None:
        """Spark: "mapWithState - state timing out"; there only batches with a checkpoint look."""

        def watch(key: str, value: Any, state: Any) -> Any:
            if not state.isTimingOut():
                state.update(value)
            return key, value, state.get(), state.isTimingOut()

        with self.stateful(sc, tmp_path) as run:
            stream = run.ssc.queueStream([[("a", 1), ("b", 1)], [("b", 2)]])
            initial = sc.parallelize([("i", 0)])
            spec = StateSpec.function(watch).timeout(2).initialState(initial)
            found = run.collect(stream.mapWithState(spec))
            run.run(6)
        assert [sorted(x) for x in found] == [
            [("a", 1, 1, False), ("b", 1, 1, False)],
            [("b", 2, 2, False)],
            [],
            [("a", None, 1, True), ("i", None, 0, True)],
            [("b", None, 2, True)],
            [],
        ]

    @pytest.mark.slow
    def test_a_batch_without_an_rdd_still_times_out(self, sc: Any, tmp_path: Path) -> None:
        with self.stateful(sc, tmp_path) as run:
            stream = run.ssc.queueStream([[("a", 1)]]).transform(
                lambda time, rdd: rdd if time.timestamp() < 1_700_000_002 else None
            )
            spec = StateSpec.function(lambda key, value, state: state.update(value) if value else 0)
            states = stream.mapWithState(spec.timeout(1))
            found = run.collect(states)
            snapshots = run.collect(states.stateSnapshots())
            run.run(3)
        assert found == [[None], [], [0]]
        assert snapshots == [[("a", 1)], [("a", 1)], []]

    @pytest.mark.long
    @pytest.mark.slow
    def test_checkpoint_durations(self, sc: Any, tmp_path: Path) -> None:
        """Spark: "mapWithState - checkpoint durations"."""
        with self.stateful(sc, tmp_path) as run:
            stream = run.ssc.queueStream([[("a", 1)], [("a", 2)]])
            usual = stream.mapWithState(StateSpec.function(running_count))
            often = stream.mapWithState(StateSpec.function(running_count)).checkpoint(2)
            found = [run.collect(usual), run.collect(often)]
            run.run(5)
            assert usual._states.checkpoint_ms == 10_000
            assert often._states.checkpoint_ms == 2000
            assert often.is_checkpointed
            rdds = often._states.generated
            assert [rdds[ms].isCheckpointed() for ms in sorted(rdds)[-3:-1]] == [False, True]
        assert found[0] == found[1] == [[("a", 1)], [("a", 3)], [], [], []]

    def test_a_checkpoint_directory_is_needed(self, sc: Any) -> None:
        forget_checkpoint_directory(sc)
        with batches(sc) as run:
            stream = run.ssc.queueStream([[("a", 1)]])
            run.collect(stream.mapWithState(StateSpec.function(running_count)))
            with pytest.raises(StreamGraphError, match="checkpoint directory has not been set"):
                run.start()

    def test_a_specification_is_checked_at_once(self) -> None:
        with pytest.raises(TypeError, match="three or four arguments"):
            StateSpec.function(lambda key, value: None)
        spec = StateSpec.function(running_count)
        with pytest.raises(ValueError, match="numPartitions"):
            spec.numPartitions(0)
        with pytest.raises(ValueError, match="idleDuration"):
            spec.timeout(0)


def hash_of_first(key: str) -> int:
    return ord(key[0])
