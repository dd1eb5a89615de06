"""The splits of a source, and the receivers that share it; a test plays the receivers."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.errors import IllegalStateError
from penstock.position_changes import PositionChanges, encoded_position
from penstock.receiver import SplitsError
from penstock.settings import Settings
from penstock.tracker import (
    ExecutorLocation,
    ReceivedBlockTracker,
    ReceiverTracker,
    SharedSource,
    TaskEnd,
)
from penstock.tracker.ledger.events import SplitsEvent
from penstock.tracker.receivers import splits as module
from penstock.tracker.receivers.splits import divided
from penstock.wire.messages import Ok, Refused, Registered, StopReceiver
from tests.bounds import HANG_S
from tests.system.leftovers import await_that
from tests.tracker.ledger_cases import LOG_OPTIONS, add, block
from tests.tracker.tracker_cases import (
    QUICK,
    WAIT_S,
    Attempt,
    Events,
    Source,
    ThreadCluster,
    make_tracker,
)

# -- how they are divided ------------------------------------------------------------------------


def test_splits_are_divided_evenly_and_in_order() -> None:
    now = dict.fromkeys(range(4))
    assert divided("abcde", now, 2) == {0: ("a", "b", "c"), 1: ("d", "e"), 2: None, 3: None}
    assert divided("ab", now, 3) == {0: ("a",), 1: ("b",), 2: (), 3: None}
    assert divided("", now, 2) == {0: (), 1: (), 2: None, 3: None}


def test_one_more_receiver_takes_from_those_that_have_too_many_and_no_one_else_changes() -> None:
    now = {0: ("a", "b"), 1: ("c", "d"), 2: ("e",), 3: None}
    assert divided("abcde", now, 4) == {0: ("a", "b"), 1: ("c",), 2: ("e",), 3: ("d",)}


def test_one_receiver_less_gives_its_splits_to_the_others() -> None:
    now = {0: ("a", "b"), 1: ("c", "d"), 2: ("e", "f")}
    assert divided("abcdef", now, 2) == {0: ("a", "b", "e"), 1: ("c", "d", "f"), 2: None}
    # Who has none, and stands before, takes nothing from one that has.
    assert divided("ab", {0: None, 1: ("a", "b")}, 1) == {0: None, 1: ("a", "b")}


def test_a_new_split_goes_to_one_receiver_and_one_that_is_gone_leaves_one() -> None:
    now = {0: ("a", "b"), 1: ("c",)}
    assert divided("abcd", now, 2) == {0: ("a", "b"), 1: ("c", "d")}
    assert divided("bc", now, 2) == {0: ("b",), 1: ("c",)}


def test_who_is_fixed_keeps_what_it_has_and_who_is_gone_has_nothing() -> None:
    now = {0: ("a", "b"), 1: ("c",), 2: None}
    assert divided("abcd", now, 1, fixed=[0]) == {0: ("a", "b"), 1: ("c", "d"), 2: None}
    assert divided("abc", now, 2, gone=[0]) == {0: None, 1: ("c", "a"), 2: ("b",)}
    # Where no one can take them, nothing changes.
    assert divided("abc", {0: ("a", "b")}, 1, gone=[0]) == {0: ("a", "b")}


@pytest.mark.parametrize("seed", range(200))
def test_every_split_has_one_owner_whatever_changes(seed: int) -> None:
    chance = random.Random(seed)
    now: dict[int, Any] = dict.fromkeys(range(chance.randint(1, 6)))
    for _ in range(20):
        splits = [f"s{n}" for n in range(12) if chance.random() < 0.8]
        wanted = chance.randint(1, len(now))
        fixed = {one for one in now if chance.random() < 0.2}
        gone = {one for one in now if one not in fixed and chance.random() < 0.1}
        then = divided(splits, now, wanted, fixed, gone)
        owned = [split for kept in then.values() for split in kept or ()]
        assert len(owned) == len(set(owned))
        able = [one for one in now if one not in fixed and one not in gone]
        if able:
            assert set(splits) <= set(owned)
        assert all(then[one] == now[one] for one in fixed)
        free = [one for one in able if then[one] is not None]
        sizes = [len(then[one]) for one in free]
        assert not sizes or max(sizes) - min(sizes) <= 1
        # Again there is nothing to do.
        assert divided(splits, then, wanted, fixed, gone) == then
        now = then


# -- in the ledger -------------------------------------------------------------------------------


def change(**places: Any) -> bytes:
    return encoded_position(PositionChanges(places))


def place(ledger: ReceivedBlockTracker, stream: int) -> Any:
    found = ledger.last_position(stream)
    return None if found is None else msgspec.msgpack.decode(found)


def test_a_split_takes_its_position_along_and_its_last_receiver_is_fenced(tmp_path: Path) -> None:
    ledger = ReceivedBlockTracker.recover([0, 1, 2], str(tmp_path), options=LOG_OPTIONS)
    ledger.divide(SplitsEvent(((0, ("a", "b")), (1, ("c",)), (2, None)), 2, 2))
    first = ledger.register_attempt(0, "A", "host")
    other = ledger.register_attempt(1, "C", "host")
    assert (first.splits, other.splits) == (("a", "b"), ("c",))
    number = first.first_block_number
    assert add(ledger, 0, "A", [block(0, "A", number, position=change(a=1, b=2))]) == Ok()
    ledger.divide(SplitsEvent(((0, ("a",)), (1, ("c",)), (2, ("b",))), 3, 2))
    assert [place(ledger, stream) for stream in range(3)] == [{"a": 1}, None, {"b": 2}]
    # Who lost a split adds nothing more; who kept its own goes on.
    late = add(ledger, 0, "A", [block(0, "A", number + 1, position=change(b=3))])
    assert isinstance(late, Refused)
    more = add(ledger, 1, "C", [block(1, "C", other.first_block_number, position=change(c=7))])
    assert more == Ok()
    assert ledger.register_attempt(2, "B", "host").splits == ("b",)
    ledger.close()
    again = ReceivedBlockTracker.recover([0, 1, 2], str(tmp_path), options=LOG_OPTIONS)
    assert [place(again, stream) for stream in range(3)] == [{"a": 1}, {"c": 7}, {"b": 2}]
    assert again.splits([0, 1, 2]) == SplitsEvent(((0, ("a",)), (1, ("c",)), (2, ("b",))), 3, 2)
    # Once more, from the snapshot that the recovery wrote.
    again.close()
    third = ReceivedBlockTracker.recover([0, 1, 2], str(tmp_path), options=LOG_OPTIONS)
    assert third.splits([0, 1, 2]).wanted == 3
    assert [place(third, stream) for stream in range(3)] == [{"a": 1}, {"c": 7}, {"b": 2}]


def test_the_position_of_a_split_that_is_gone_is_there_when_it_comes_back_elsewhere() -> None:
    ledger = ReceivedBlockTracker([0, 1])
    ledger.divide(SplitsEvent(((0, ("a", "b")), (1, ("c",))), 2, 2))
    first = ledger.register_attempt(0, "A", "host").first_block_number
    assert add(ledger, 0, "A", [block(0, "A", first, position=change(a=1, b=2))]) == Ok()
    ledger.divide(SplitsEvent(((0, ("a",)), (1, ("c",))), 2, 2))
    assert place(ledger, 0) == {"a": 1, "b": 2}
    ledger.divide(SplitsEvent(((0, ("a",)), (1, ("c", "b"))), 2, 2))
    assert (place(ledger, 0), place(ledger, 1)) == ({"a": 1}, {"b": 2})
    ledger.divide(SplitsEvent(((0, None), (1, ("c", "b", "a"))), 1, 2))
    assert (place(ledger, 0), place(ledger, 1)) == (None, {"a": 1, "b": 2})
    # A receiver that is not wanted leaves nothing, so that a program may come that has it not.
    ledger.divide(SplitsEvent(((0, ("a",)), (1, ("c", "b"))), 2, 2))
    ledger.divide(SplitsEvent(((0, ("a",)), (1, ("c",))), 2, 2))
    assert (place(ledger, 0), place(ledger, 1)) == ({"a": 1}, {"b": 2})
    ledger.divide(SplitsEvent(((0, ("a", "c")), (1, None)), 1, 2))
    assert (place(ledger, 0), place(ledger, 1)) == ({"a": 1, "b": 2}, None)
    ledger.divide(SplitsEvent(((0, None), (1, None)), 1, 2))
    assert place(ledger, 0) == {"a": 1, "b": 2}


def test_a_place_begins_where_there_is_none_and_one_that_is_forgotten_is_gone(
    tmp_path: Path,
) -> None:
    ledger = ReceivedBlockTracker.recover([0, 1], str(tmp_path), options=LOG_OPTIONS)
    has = ((0, ("a",)), (1, ("b",)))
    ledger.divide(SplitsEvent(has, 2, 2, {"a": 10, "b": 20, "c": 30}))
    assert [place(ledger, stream) for stream in range(2)] == [{"a": 10, "c": 30}, {"b": 20}]
    first = ledger.register_attempt(0, "A", "host").first_block_number
    assert add(ledger, 0, "A", [block(0, "A", first, position=change(a=11))]) == Ok()
    # Who keeps its splits goes on; a place that is there stays.
    ledger.divide(SplitsEvent(has, 2, 2, {"a": 0, "b": None, "c": None, "d": None}))
    assert add(ledger, 0, "A", [block(0, "A", first + 1, position=change(a=12))]) == Ok()
    assert ledger.split_places([0, 1]) == {"a": 12}
    assert [place(ledger, stream) for stream in range(2)] == [{"a": 12}, None]
    ledger.close()
    again = ReceivedBlockTracker.recover([0, 1], str(tmp_path), options=LOG_OPTIONS)
    assert again.split_places([0, 1]) == {"a": 12}
    assert again.splits([0, 1]) == SplitsEvent(has, 2, 2)


# -- in the tracker ------------------------------------------------------------------------------


class Shared(Source):
    """A receiver whose splits the test says."""

    def __init__(self, *splits: str) -> None:
        super().__init__()
        self.answer: Any = list(splits)
        self.is_asked = False

    def splits(self) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        if isinstance(self.answer, threading.Event):
            self.is_asked = True
            self.answer.wait(WAIT_S)
            return []
        return self.answer() if callable(self.answer) else self.answer

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "answer": None}


OFTEN = Settings(restart_max_delay_s=0.01, graceful_stop_timeout_ms=2000, splits_interval_s=0.05)


@contextmanager
def sharing(
    folder: Path,
    receiver: Shared,
    receivers: int,
    most: int,
    *,
    settings: Settings = QUICK,
    cluster: ThreadCluster | None = None,
    made: Callable[[ReceiverTracker], None] = lambda tracker: None,
) -> Iterator[tuple[ReceiverTracker, ThreadCluster, Events]]:
    cluster = cluster or ThreadCluster()
    cluster.task_slots = 100
    events = Events()
    tracker = make_tracker(
        folder,
        cluster,
        events,
        receivers={number: (receiver, f"s/{number}") for number in range(most)},
        settings=settings,
        shared=[SharedSource("s", tuple(range(most)), receivers)],
    )
    made(tracker)
    tracker.start(keep_batches=True)
    try:
        yield tracker, cluster, events
    finally:
        tracker.stop(graceful=False, timeout_s=0.0)
        cluster.close()


def begun(cluster: ThreadCluster, count: int) -> dict[int, Attempt]:
    """Take the next attempts, which register; by stream."""
    found: dict[int, Attempt] = {}
    for _ in range(count):
        attempt = cluster.next_attempt()
        answer = attempt.register()
        assert isinstance(answer, Registered)
        attempt.splits = answer.splits  # type: ignore[attr-defined]
        attempt.place = (  # type: ignore[attr-defined]
            None if answer.last_position is None else msgspec.msgpack.decode(answer.last_position)
        )
        found[attempt.launch.stream_id] = attempt
    return found


def splits_of(attempts: dict[int, Attempt]) -> dict[int, tuple[str, ...]]:
    return {stream: attempt.splits for stream, attempt in attempts.items()}  # type: ignore[attr-defined]


def store(attempt: Attempt, at: int = 0, **places: int) -> Any:
    name = attempt.launch.attempt
    stream = attempt.launch.stream_id
    made = block(stream, name, attempt.first + at, position=change(**places))
    return attempt.add(made)


def is_untold(attempt: Attempt) -> bool:
    return attempt.messages.empty()


def test_receivers_are_told_their_splits_and_those_without_do_not_run(tmp_path: Path) -> None:
    with sharing(tmp_path, Shared(*"abc"), 2, 4) as (tracker, cluster, _):
        assert splits_of(begun(cluster, 2)) == {0: ("a", "b"), 1: ("c",)}
        assert not cluster.has_more()
        assert tracker.idle_receivers() == {2, 3}
        assert tracker.tasks == tracker.jobs_left() == 2


def test_scaling_stops_and_starts_those_whose_splits_change_and_no_one_else(
    tmp_path: Path,
) -> None:
    with sharing(tmp_path, Shared(*"abcde"), 3, 4) as (tracker, cluster, events):
        before = begun(cluster, 3)
        assert splits_of(before) == {0: ("a", "b"), 1: ("c", "d"), 2: ("e",)}
        assert store(before[0], a=1, b=2) == store(before[1], c=3, d=4) == Ok()
        tracker.scale(0, 4)
        before[1].obey()
        after = begun(cluster, 2)
        assert splits_of(after) == {1: ("c",), 3: ("d",)}
        assert (after[1].place, after[3].place) == ({"c": 3}, {"d": 4})  # type: ignore[attr-defined]
        assert is_untold(before[0])
        assert is_untold(before[2])
        assert store(before[0], 1, a=5) == Ok()
        assert "error" not in events.rest()


class Ending(Shared):
    """Its splits begin at 5 and end at 9; what comes after ``a`` is read when that has ended."""

    _end_place = 9

    def _splits_after(self, places: Any) -> tuple[list[str], dict[str, Any]]:
        splits = ["b"] + (["c"] if places.get("a") == 9 else ["a"])
        return splits, dict.fromkeys(set(splits) - places.keys(), 5)


def test_a_split_that_ends_lets_others_begin_by_its_durable_place(tmp_path: Path) -> None:
    with sharing(tmp_path, Ending(), 2, 2) as (tracker, cluster, _):
        before = begun(cluster, 2)
        assert splits_of(before) == {0: ("b",), 1: ("a",)}
        assert (before[0].place, before[1].place) == ({"b": 5}, {"a": 5})  # type: ignore[attr-defined]
        assert store(before[1], a=9) == Ok()
        # Sooner than it is asked for them by itself, every 30 s.
        before[1].obey()
        (after,) = begun(cluster, 1).values()
        assert after.splits == ("c",)  # type: ignore[attr-defined]
        assert after.place in ({"c": 5}, {"a": 9, "c": 5})  # type: ignore[attr-defined]
        assert is_untold(before[0])
        assert tracker.ledger.split_places([0, 1]) == {"a": 9, "b": 5, "c": 5}


def test_a_split_that_has_ended_and_stays_where_it_is_is_no_reason_to_ask_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ASK_AGAIN_S", HANG_S)
    monkeypatch.setattr(module, "_ROOM_S", 0.01)
    asked: list[Any] = []

    class Down(Ending):
        def _splits_after(self, places: Any) -> tuple[list[str], dict[str, Any]]:
            asked.append(places)
            return super()._splits_after({})

    with sharing(tmp_path, Down(), 2, 2) as (tracker, cluster, _):
        assert store(begun(cluster, 2)[1], a=9) == Ok()
        looks = tracker.ledger.split_places
        turns: list[Any] = []

        def looked(streams: Any) -> Any:
            turns.append(streams)
            return looks(streams)

        monkeypatch.setattr(tracker.ledger, "split_places", looked)
        await_that("turns of its thread", lambda: len(turns) > 20, WAIT_S)
        assert len(asked) == 1


def test_a_call_for_splits_that_found_no_thread_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()
    start = threading.Thread.start

    def no_thread(thread: threading.Thread) -> None:
        if thread.name.endswith("-call") and not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    source = Shared("a")
    with sharing(tmp_path, source, 1, 1, settings=OFTEN) as (_, cluster, _):
        (before,) = begun(cluster, 1).values()
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        assert refused.wait(WAIT_S)
        source.answer = ["a", "b"]
        before.obey()
        assert splits_of(begun(cluster, 1)) == {0: ("a", "b")}


def test_nothing_starts_before_all_that_change_are_at_rest(tmp_path: Path) -> None:
    with sharing(tmp_path, Shared(*"abcd"), 2, 2) as (tracker, cluster, _):
        before = begun(cluster, 2)
        tracker.scale(0, 1)
        assert isinstance(before[1].next_message(), StopReceiver)
        assert isinstance(before[0].next_message(), StopReceiver)
        before[0].deregister()
        before[0].finish()
        # The other one still stores; its splits are its own.
        assert store(before[1], c=9) == Ok()
        assert not cluster.has_more()
        # Its job is over, and its process may still be there.
        before[1].end.set_result(TaskEnd.ENDED)
        await_that("its end", lambda: not tracker.tracking_infos()[1].state.value, WAIT_S)
        assert store(before[1], 1, c=10) == Ok()
        assert not cluster.has_more()
        before[1].close()
        (one,) = begun(cluster, 1).values()
        assert one.splits == ("a", "b", "c", "d")  # type: ignore[attr-defined]
        assert one.place == {"c": 10}  # type: ignore[attr-defined]
        assert tracker.tasks == 1


def test_what_comes_of_an_attempt_after_its_splits_went_is_refused(tmp_path: Path) -> None:
    with sharing(tmp_path, Shared(*"ab"), 2, 2) as (tracker, cluster, _):
        before = begun(cluster, 2)
        tracker.scale(0, 1)
        before[0].obey()
        before[1].obey()
        begun(cluster, 1)
        # A process that Spark had lost sight of comes back.
        before[1].client = None
        assert isinstance(before[1].ask(before[1].registration()), Refused)
        assert isinstance(store(before[1], b=9), Refused)


def test_one_that_starts_goes_on_and_has_its_splits_of_when_it_registers(tmp_path: Path) -> None:
    with sharing(tmp_path, Shared(*"abcd"), 2, 4) as (tracker, cluster, events):
        starting = [cluster.next_attempt() for _ in range(2)]
        before = {stream: splits for stream, splits in tracker.splits(0).items() if splits}
        for count in (4, 3, 2, 4, 3) * 3:
            tracker.scale(0, count)
            await_that(
                "the change",
                lambda count=count: sum(map(bool, tracker.splits(0).values())) == count,
                WAIT_S,
            )
        now = tracker.splits(0)
        assert now != before
        for attempt in starting:
            stream = attempt.launch.stream_id
            assert attempt.register().splits == now[stream]
            assert not attempt.end.done()
            assert is_untold(attempt)
            name, split = attempt.launch.attempt, now[stream][0]  # type: ignore[index]
            made = block(stream, name, attempt.first, position=change(**{split: 7}))
            assert attempt.add(made) == Ok()
        assert "error" not in events.rest()


def test_one_that_registers_while_its_splits_move_is_told_to_stop_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is done at once, not when it is looked again.
    monkeypatch.setattr(module, "_ROOM_S", 10 * HANG_S)
    settings = Settings(graceful_stop_timeout_ms=2000, splits_interval_s=10 * HANG_S)
    with sharing(tmp_path, Shared(*"ab"), 1, 2, settings=settings) as (tracker, cluster, events):
        late = cluster.next_attempt()
        divide = tracker.ledger.divide
        answers: list[Any] = []

        def register_first(event: SplitsEvent, unregistered: Any = ()) -> bool:
            if unregistered and not answers:
                answers.append(late.register())
                assert isinstance(store(late, a=5), Ok)
            return divide(event, unregistered)

        monkeypatch.setattr(tracker.ledger, "divide", register_first)
        tracker.scale(0, 2)
        assert isinstance(late.next_message(), StopReceiver)
        assert answers[0].splits == ("a", "b")
        # What it stores yet is taken, and no one else reads.
        assert store(late, 1, a=6, b=9) == Ok()
        assert not cluster.has_more()
        late.deregister()
        late.finish()
        after = begun(cluster, 2)
        assert splits_of(after) == {0: ("a",), 1: ("b",)}
        assert (after[0].place, after[1].place) == ({"a": 6}, {"b": 9})  # type: ignore[attr-defined]
        assert "error" not in events.rest()


def test_one_that_registers_when_it_is_to_have_nothing_is_told_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sharing(tmp_path, Shared(*"ab"), 2, 2) as (tracker, cluster, _):
        kept, left = sorted(
            (cluster.next_attempt() for _ in range(2)), key=lambda one: one.launch.stream_id
        )
        park, answers = tracker._receivers.park, []

        def register_first(stream_id: int) -> bool:
            # It was seen that it had not registered.
            answers.append(left.register())
            return park(stream_id)

        monkeypatch.setattr(tracker._receivers, "park", register_first)
        tracker.scale(0, 1)
        assert isinstance(left.next_message(), StopReceiver)
        monkeypatch.undo()
        assert [answer.splits for answer in answers] == [("b",)]
        left.deregister("Stopped by driver")
        left.finish()
        await_that("the change", lambda: tracker.splits(0)[1] is None, WAIT_S)
        assert tracker.tracking_infos()[1].last_error_message == "Stopped by driver"
        assert sorted(kept.register().splits) == ["a", "b"]


def test_one_that_is_to_have_nothing_while_it_starts_is_cancelled_and_registers_no_more(
    tmp_path: Path,
) -> None:
    cluster = ThreadCluster()
    cluster.ignores_cancel = True
    with sharing(tmp_path, Shared(*"ab"), 2, 2, cluster=cluster) as (tracker, _, events):
        kept, left = sorted(
            (cluster.next_attempt() for _ in range(2)), key=lambda one: one.launch.stream_id
        )
        tracker.scale(0, 1)
        await_that("the change", lambda: tracker.splits(0)[1] is None, WAIT_S)
        await_that("its end", lambda: cluster.cancelled, WAIT_S)
        assert sorted(kept.register().splits) == ["a", "b"]
        assert isinstance(left.register(), Refused)
        left.finish()
        tracker.scale(0, 2)
        kept.obey()
        assert set(splits_of(begun(cluster, 2))) == {0, 1}
        assert "error" not in events.rest()


def test_one_that_starts_waits_for_a_process_of_before_that_is_still_there(tmp_path: Path) -> None:
    with sharing(tmp_path, Shared(*"ab"), 2, 2) as (tracker, cluster, _):
        before = begun(cluster, 2)
        # Spark has lost sight of it.
        before[1].end.set_exception(RuntimeError("the executor is lost"))
        again = cluster.next_attempt()
        tracker.scale(0, 1)
        before[0].obey()
        assert store(before[1], b=5) == Ok()
        assert not cluster.has_more()
        before[1].close()
        (one,) = begun(cluster, 1).values()
        assert one.place == {"b": 5}  # type: ignore[attr-defined]
        assert again.end.done()


def test_a_receiver_that_dies_keeps_its_splits(tmp_path: Path) -> None:
    with sharing(tmp_path, Shared(*"abcd"), 2, 2) as (_, cluster, events):
        before = begun(cluster, 2)
        assert store(before[1], c=5) == Ok()
        before[1].fail()
        after = begun(cluster, 1)
        assert splits_of(after) == {1: ("c", "d")}
        assert after[1].place == {"c": 5}  # type: ignore[attr-defined]
        assert is_untold(before[0])
        events.until("error")


def test_a_receiver_that_dies_while_it_is_moved_loses_nothing(tmp_path: Path) -> None:
    with sharing(tmp_path, Shared(*"abcd"), 2, 2) as (tracker, cluster, _):
        before = begun(cluster, 2)
        assert store(before[1], c=5) == Ok()
        tracker.scale(0, 1)
        assert isinstance(before[1].next_message(), StopReceiver)
        before[1].fail()
        before[0].obey()
        (one,) = begun(cluster, 1).values()
        assert one.place == {"c": 5}  # type: ignore[attr-defined]


def test_a_receiver_that_is_given_up_leaves_its_splits_to_the_others(tmp_path: Path) -> None:
    with sharing(tmp_path, Shared(*"abcd"), 2, 3) as (_, cluster, events):
        before = begun(cluster, 2)
        assert store(before[1], d=5) == Ok()
        before[1].report("it cannot work", "Traceback", permanent=True)
        events.until("error")
        before[1].fail()
        after = begun(cluster, 1)
        assert splits_of(after) == {2: ("c", "d")}
        assert after[2].place == {"d": 5}  # type: ignore[attr-defined]
        assert is_untold(before[0])


def test_a_receiver_whose_source_has_ended_keeps_its_splits(tmp_path: Path) -> None:
    with sharing(tmp_path, Shared(*"abcd"), 2, 2) as (tracker, cluster, _):
        before = begun(cluster, 2)
        before[1].deregister("Source ended")
        before[1].finish()
        await_that("its end", lambda: tracker.is_over(1), WAIT_S)
        tracker.scale(0, 1)
        await_that("the change", lambda: tracker.splits(0) != {}, WAIT_S)
        assert tracker.splits(0) == {0: ("a", "b"), 1: ("c", "d")}
        assert is_untold(before[0])


def test_one_that_does_not_end_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_UNREACHED_S", 0.1)
    # What can be told to stop has much longer.
    monkeypatch.setattr(module, "_STOP_S", 10 * HANG_S)
    patient = Settings(graceful_stop_timeout_ms=int(10_000 * HANG_S))
    with sharing(tmp_path, Shared(*"ab"), 2, 2, settings=patient) as (tracker, cluster, events):
        (first, second) = (cluster.next_attempt(), cluster.next_attempt())
        # One has never registered, as one that waits for a slot.
        waiting, running = sorted((first, second), key=lambda one: one.launch.stream_id)
        running.register()
        tracker.scale(0, 1)
        running.obey()
        (one,) = begun(cluster, 1).values()
        assert sorted(one.splits) == ["a", "b"]  # type: ignore[attr-defined]
        assert waiting.end.done()
        assert "error" not in events.rest()


def test_one_that_does_not_even_end_when_cancelled_keeps_its_splits_for_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_CANCEL_S", 0.1)
    cluster = ThreadCluster()
    cluster.ignores_cancel = True
    # It is seen when it ends, not when it is looked at again.
    monkeypatch.setattr(module, "_ROOM_S", 10 * HANG_S)
    settings = Settings(graceful_stop_timeout_ms=300, splits_interval_s=10 * HANG_S)
    with sharing(tmp_path, Shared(*"ab"), 2, 3, settings=settings, cluster=cluster) as found:
        tracker = found[0]
        before = begun(cluster, 2)
        tracker.scale(0, 1)
        before[0].obey()
        after = begun(cluster, 1)
        assert splits_of(after) == {0: ("a",)}
        assert "have not ended, and keep their splits for now" in caplog.text
        assert store(before[1], b=3) == Ok()
        assert is_untold(after[0])
        before[1].finish()
        after[0].obey()
        (one,) = begun(cluster, 1).values()
        assert (one.splits, one.place) == (("a", "b"), {"b": 3})  # type: ignore[attr-defined]


def test_a_stop_ends_a_move_and_gives_no_split_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sharing(tmp_path, Shared(*"ab"), 2, 2) as (tracker, cluster, _):
        before = begun(cluster, 2)
        had = tracker.splits(0)
        tracker.scale(0, 1)
        assert isinstance(before[1].next_message(), StopReceiver)
    assert tracker.splits(0) == had
    assert dict(tracker.ledger.splits((0, 1)).streams) == had
    assert "keep their splits for now" not in caplog.text


def test_new_splits_and_those_that_are_gone_are_seen_while_it_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.tracker")
    source = Shared(*"ab")
    with sharing(tmp_path, source, 2, 2, settings=OFTEN) as (_, cluster, _events):
        before = begun(cluster, 2)
        source.answer = ["a", "b", "c"]
        before[0].obey()
        after = begun(cluster, 1)
        assert splits_of(after) == {0: ("a", "c")}
        assert is_untold(before[1])
        assert caplog.text.count("of the stream 's' has 3 splits now") == 1
        wrong: dict[str, Any] = {
            "raised OSError: away": OSError("away"),
            "named 'a' twice": ["a", "a"],
            "returned 'abc'": "abc",
            "named a split b'a'": [b"a"],
            "returned None": None,
        }
        for says, source.answer in wrong.items():

            def is_told(said: str = says) -> bool:
                return said in caplog.text

            await_that(says, is_told, WAIT_S)
        assert "The splits stay as they were" in caplog.text
        assert is_untold(after[0])
        source.answer = ["b"]
        after[0].obey()
        await_that("their end", lambda: cluster.has_more() or True, WAIT_S)
        assert is_untold(before[1])


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (OSError("the source is away"), "raised OSError: the source is away"),
        (["a", "b", "a"], "named 'a' twice"),
        ("abc", "returned 'abc'"),
        (None, "returned None"),
        ([1], "named a split 1, which is no text of"),
        ([""], "named a split '', which is no text of"),
    ],
)
def test_without_a_list_of_splits_nothing_starts(tmp_path: Path, answer: Any, says: str) -> None:
    source = Shared()
    source.answer = answer
    with pytest.raises(SplitsError) as raised, sharing(tmp_path, source, 2, 2):
        pass
    expected = f"splits() of Shared, which is called in the driver, {says}"
    assert str(raised.value).startswith(expected)


def test_splits_that_hang_are_told_and_nothing_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ASK_S", 0.1)
    source = Shared()
    source.answer = threading.Event()
    with pytest.raises(SplitsError, match="has not returned for"), sharing(tmp_path, source, 2, 2):
        pass
    source.answer.set()


def test_splits_that_hang_while_it_runs_hold_up_no_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_ASK_S", 10 * WAIT_S)
    source = Shared(*"ab")
    with sharing(tmp_path, source, 2, 2, settings=OFTEN) as (tracker, cluster, _):
        before = begun(cluster, 2)
        hung = source.answer = threading.Event()
        await_that("a call that hangs", lambda: source.is_asked, WAIT_S)
        tracker.scale(0, 1)
        before[0].obey()
        before[1].obey()
        assert splits_of(begun(cluster, 1)) == {0: ("a", "b")}
        monkeypatch.setattr(module, "_ASK_S", 0.1)
        await_that("a word", lambda: "has not returned for" in caplog.text, WAIT_S)
        # What it returns in the end is heard.
        hung.set()
        await_that("its answer", lambda: tracker.idle_receivers() == {0, 1}, WAIT_S)


def test_a_scale_while_it_starts_is_refused_and_not_forgotten(tmp_path: Path) -> None:
    tried: list[str] = []
    trackers: list[ReceiverTracker] = []
    source = Shared()

    def answer() -> list[str]:
        with pytest.raises(IllegalStateError) as raised:
            trackers[0].scale(0, 2)
        tried.append(str(raised.value))
        return ["a"]

    source.answer = answer
    with sharing(tmp_path, source, 1, 2, made=trackers.append) as (tracker, _, _events):
        assert tried == ["scale() has effect once the streams have started"]
        tracker.scale(0, 2)
        assert tracker.ledger.splits((0, 1)).wanted == 2
    with pytest.raises(IllegalStateError, match="while the context runs; it has stopped"):
        tracker.scale(0, 1)


def test_a_source_without_splits_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = Shared()
    with sharing(tmp_path, source, 2, 2, settings=OFTEN) as (tracker, cluster, _):
        assert "has no splits yet" in caplog.text
        assert tracker.tasks == 0
        source.answer = ["a"]
        attempts = begun(cluster, 1)
        assert splits_of(attempts) == {0: ("a",)}
        source.answer = []
        await_that("a warning", lambda: "'s' has 0 splits now" in caplog.text, WAIT_S)
        attempts[0].obey()


def test_a_driver_that_is_started_again_goes_on_with_the_scale_and_the_splits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sharing(tmp_path, Shared(*"abcd"), 1, 3) as (tracker, cluster, _):
        (one,) = begun(cluster, 1).values()
        assert store(one, a=1, b=2, c=3, d=4) == Ok()
        tracker.scale(0, 3)
        one.obey()
        before = splits_of(begun(cluster, 3))
    away = Shared()
    away.answer = OSError("the source is away")
    with sharing(tmp_path, away, 1, 3) as (_, cluster, _events):
        after = begun(cluster, 3)
        assert splits_of(after) == before
        assert {k: v for one in after.values() for k, v in one.place.items()} == {  # type: ignore[attr-defined]
            "a": 1,
            "b": 2,
            "c": 3,
            "d": 4,
        }
        assert "The splits of the run before are read" in caplog.text
    # A program that asks for another number than before gets it.
    with sharing(tmp_path, Shared(*"abcd"), 2, 3) as (_, cluster, _events):
        assert {len(splits) for splits in splits_of(begun(cluster, 2)).values()} == {2}
        assert not cluster.has_more()


def test_a_scale_is_logged_when_it_returns(tmp_path: Path) -> None:
    with sharing(tmp_path, Shared(*"abcd"), 2, 4) as (tracker, cluster, _):
        begun(cluster, 2)
        tracker.scale(1, 4)
        assert tracker.ledger.splits(range(4)).wanted == 4


def test_scaling_by_a_number_keeps_to_what_the_program_asks_for_and_allows(tmp_path: Path) -> None:
    with sharing(tmp_path, Shared(*"abcd"), 2, 4) as (tracker, _, _events):

        def wanted() -> int:
            return tracker.ledger.splits(range(4)).wanted

        for more, then in ((1, 3), (5, 4), (-1, 3), (-9, 2), (-1, 2)):
            tracker.scale_by(more)
            assert wanted() == then
        # A program that scaled to less than it asked for at first meant that.
        tracker.scale(0, 1)
        for more, then in ((-1, 1), (1, 2)):
            tracker.scale_by(more)
            assert wanted() == then


def test_the_others_take_over_where_too_few_slots_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TAKE_OVER_S", 0.2)
    monkeypatch.setattr(module, "_ROOM_S", 0.05)
    executors = [ExecutorLocation("127.0.0.1", "driver"), ExecutorLocation("127.0.0.1", "2")]
    cluster = ThreadCluster(is_local=False, executors=executors)
    with sharing(tmp_path, Shared(*"abcd"), 3, 3, cluster=cluster) as (tracker, _, _events):
        cluster.task_slots = 4
        before = {}
        for attempt in (cluster.next_attempt() for _ in range(3)):
            attempt.executor_id = attempt.locations[0].executor_id
            assert isinstance(attempt.register(), Registered)
            before[attempt.launch.stream_id] = attempt
        cluster.task_slots = 3
        lost = before.pop(1)
        lost.fail()
        again = cluster.next_attempt()  # It waits for a slot that no one has.
        assert again.launch.stream_id == 1
        before[2].obey()
        await_that("the move", lambda: 1 in tracker.idle_receivers(), WAIT_S)
        assert again.end.done()
        attempt = cluster.next_attempt()
        attempt.executor_id = attempt.locations[0].executor_id
        assert attempt.register().splits == ("d", "c")
        assert is_untold(before[0])
        # There is room again.
        cluster.task_slots = 4
        attempt.obey()
        found = {}
        for attempt in (cluster.next_attempt() for _ in range(2)):
            attempt.executor_id = attempt.locations[0].executor_id
            found[attempt.launch.stream_id] = attempt.register().splits
        assert found == {1: ("c",), 2: ("d",)}
        assert is_untold(before[0])
