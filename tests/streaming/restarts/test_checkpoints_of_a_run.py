"""What a run's checkpoints hold at its end, and what a graph does that cannot be pickled now."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest

from penstock.streaming import CheckpointReadError, CheckpointWriteError, StreamingContext
from penstock.streaming.checkpoint.checkpointer import Checkpointer
from penstock.streaming.checkpoint.record import Checkpoint
from tests.streaming.checkpoint.stored import store, stored, stored_header
from tests.streaming.restarts.driven import Driven, World

BATCH_MS = 1000


def add(values: list[int], state: int | None) -> int:
    return sum(values) + (state or 0)


def totals(ssc: Any, world: World) -> None:
    world.keep(world.stream(ssc).updateStateByKey(add).named("totals"), "state")


def test_the_last_checkpoint_has_the_states_as_of_the_end_and_nothing_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save_last = Checkpointer.save_last

    def and_once_more(self: Checkpointer, last_batch_ms: int) -> None:
        save_last(self, last_batch_ms)
        # As when something of the batches was still on its way.
        self.save(last_batch_ms, ())

    monkeypatch.setattr(Checkpointer, "save_last", and_once_more)
    with Driven(totals) as program:
        program.start()
        program.receive([("a", 1)])
        program.advance(BATCH_MS)
        program.stop()
        header = stored_header(program.world.checkpoint)
    assert header.is_last
    (state,) = header.states
    assert state.time_ms == header.last_batch_ms
    # These are forced to the disk before it is written.
    found = pickle.loads(state.file)
    files = found if isinstance(found, list) else [found]
    assert files
    assert {file.path for file in files} <= set(header.rdd_files)


@pytest.mark.parametrize("changes", [{"pending_ms": (1,)}, {"last_batch_ms": 1}])
def test_who_read_a_checkpoint_that_was_replaced_before_it_had_the_folder_does_not_start(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    """As by another program that ran from it for a moment, or made batches anew."""
    start = StreamingContext.start

    def start_late(self: StreamingContext) -> None:
        found = stored(program.world.checkpoint)
        assert found is not None
        header = msgspec.structs.replace(found.header, **changes)
        store(program.world.checkpoint, Checkpoint(header, found.body))
        start(self)

    with Driven(totals) as program:
        program.start()
        program.receive([("a", 1)])
        program.advance(BATCH_MS)
        program.crash()
        monkeypatch.setattr(StreamingContext, "start", start_late)
        with pytest.raises(CheckpointReadError, match="Start it again"):
            program.start()


class Moody:
    """A function that cannot be pickled the next times."""

    times = 0

    def __call__(self, record: Any) -> Any:
        return record

    def __reduce__(self) -> Any:
        if Moody.times:
            Moody.times -= 1
            raise TypeError("not now")
        return Moody, ()


def moody(ssc: Any, world: World) -> None:
    world.keep(world.stream(ssc).map(Moody()), "out")


@pytest.fixture(autouse=True)
def _in_a_good_mood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moody, "times", 0)


def test_a_graph_that_changes_while_it_is_pickled_is_pickled_again_and_nothing_is_said() -> None:
    with Driven(moody) as program:
        program.start()
        Moody.times = 2
        program.receive([1])
        program.advance(BATCH_MS)
        assert Moody.times == 0
        assert program.world.errors == []


def test_a_graph_that_cannot_be_pickled_is_told_once_each_time_that_this_begins() -> None:
    with Driven(moody) as program:
        program.start()
        for number in (1, 2):
            Moody.times = 1_000_000
            for _ in range(3):
                program.advance(BATCH_MS)
            assert len(program.world.errors) == number
            Moody.times = 0
            program.advance(BATCH_MS)
        assert all(isinstance(error, CheckpointWriteError) for error in program.world.errors)
        assert "not now" in str(program.world.errors[0])
