"""Slots that receivers share, as the driver sees them; a test plays the processes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from penstock.receiver import as_receiver, receiver
from penstock.receiver.attempts.slot import SlotLaunch
from penstock.settings import Settings
from penstock.tracker import ReceiverTracker, TrackerState
from penstock.tracker.cluster import ExecutorLocation, TaskEnd
from penstock.tracker.receivers.slots import share_of, slots_of
from penstock.wire import Client
from penstock.wire.messages import (
    AttemptEnded,
    Message,
    Ok,
    Refused,
    RegisterSlot,
    StartAttempt,
    StopReceiver,
)
from tests.system.leftovers import await_that
from tests.tracker.tracker_cases import WAIT_S, Events, Source, ThreadCluster, running_tracker

SHARED = Settings(restart_max_delay_s=0.01, graceful_stop_timeout_ms=2000, receivers_per_slot=4)


def test_receivers_share_a_slot_in_order_with_those_that_wish_for_the_same_place() -> None:
    wishes = [None, "a", None, "b", "a", None, "a"]
    assert slots_of([1 / 2] * 7, wishes) == [(0, 2), (1, 4), (3,), (5,), (6,)]
    assert slots_of([1 / 100] * 20) == [tuple(range(20))]


def test_a_slot_is_full_when_its_shares_are_one() -> None:
    assert slots_of([0.5, 1, 0.3, 0.2, 0.1, 1.0]) == [(0, 2, 3), (4,)]
    assert slots_of([1, 1]) == []
    for count in range(1, 200):
        assert slots_of([1 / count] * 2 * count) == (
            [] if count == 1 else [tuple(range(count)), tuple(range(count, 2 * count))]
        )


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan"), "0.1", True])
def test_a_share_is_a_part_of_a_slot(share: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"slots=.* above 0, and at most 1"):
        receiver(slots=share)


def test_so_is_the_share_of_an_object() -> None:
    class Whole(Source):
        slots = 2

        def onStart(self) -> None: ...

        def onStop(self) -> None: ...

    with pytest.raises(ValueError, match="slots=2"):
        as_receiver(Whole())


def test_a_function_declares_its_share() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    assert as_receiver(receiver(slots=0.1)(numbers)).slots == 0.1
    assert share_of(as_receiver(receiver(slots=1)(numbers)), 20) == 1
    assert share_of(as_receiver(numbers), 20) == 1 / 20


def test_some_receivers_share_a_slot_and_others_have_a_task_of_their_own(tmp_path: Path) -> None:
    receivers = {number: (Source(), "Source") for number in range(5)}
    for number in (0, 1, 3):
        receivers[number][0].slots = 0.3
    with running_tracker(
        tmp_path,
        receivers=receivers,  # type: ignore[arg-type]
        settings=Settings(restart_max_delay_s=0.01),
    ) as (tracker, cluster, _):
        assert tracker.tasks == 3
        found = [cluster.next_attempt().launch for _ in range(3)]
        (slot,) = [one for one in found if isinstance(one, SlotLaunch)]
        assert list(slot.launches) == [0, 1, 3]
        assert {one.stream_id for one in found if not isinstance(one, SlotLaunch)} == {2, 4}


def test_slots_begin_on_different_executors(tmp_path: Path) -> None:
    executors = [ExecutorLocation("a", str(number)) for number in range(4)]
    cluster = ThreadCluster(is_local=False, executors=executors)
    receivers = {number: (Source(), "Source") for number in range(16)}
    with running_tracker(
        tmp_path,
        cluster=cluster,
        receivers=receivers,  # type: ignore[arg-type]
        settings=SHARED,
    ) as (tracker, _, _):
        assert tracker.tasks == len(executors)
        places = [cluster.next_attempt().locations for _ in executors]
        assert sorted(places) == [(one,) for one in executors]


class Process:
    """A process of a slot, as the tracker sees it."""

    def __init__(self, launch: SlotLaunch, number: int, *streams: int, ended: str = "") -> None:
        self.launch = launch
        self.number = number
        self.registration = RegisterSlot(launch.number, launch.task, number, streams, ended)
        self.messages: queue.Queue[Message] = queue.Queue()
        link = launch.launches[streams[0]].link
        self.client = Client(link, on_message=self.messages.put)
        self.client.connect()

    def register(self) -> Message:
        return self.client.ask(self.registration, WAIT_S)

    def started(self, *streams: int) -> dict[int, str]:
        """Return the attempts that are started next, which must be those of these streams."""
        found = [self.messages.get(timeout=WAIT_S) for _ in streams]
        assert {one.stream_id for one in found if isinstance(one, StartAttempt)} == set(streams)
        return {one.stream_id: one.attempt for one in found if isinstance(one, StartAttempt)}

    def end(self, stream_id: int, attempt: str, error: str = "") -> None:
        message = AttemptEnded(self.launch.number, stream_id, attempt, error)
        assert self.client.ask(message, WAIT_S) == Ok()


@contextmanager
def shared_tracker(folder: Path) -> Iterator[tuple[ReceiverTracker, ThreadCluster, Events]]:
    receivers = {number: (Source(), "Source") for number in range(3)}
    with running_tracker(folder, receivers=receivers, settings=SHARED) as found:  # type: ignore[arg-type]
        yield found


def test_an_attempt_that_fails_alone_is_started_again_beside_its_mates(tmp_path: Path) -> None:
    with shared_tracker(tmp_path) as (tracker, cluster, events):
        assert tracker.tasks == tracker.jobs_left() == 1
        launch = slot_launch(cluster)
        process = Process(launch, 1, 0, 1, 2)
        assert process.register() == Ok()
        attempts = process.started(0, 1, 2)
        process.end(1, attempts[1], "Traceback (most recent call last):\nValueError: no")
        again = process.started(1)
        assert again[1] != attempts[1]
        assert "ValueError: no" in events.until("error").last_error
        # Sent again after a reconnect: the process knows what it runs.
        assert process.register() == Ok()
        assert process.started(0, 1, 2) == {**attempts, **again}
        # An answer that was lost, or an attempt of long ago.
        process.end(1, attempts[1])
        assert process.messages.empty()
        assert not cluster.has_more()
        # Which has not ended the one that runs.
        process.end(1, again[1], "Traceback (most recent call last):\nValueError: no")
        process.started(1)


def test_a_process_that_died_takes_its_attempts_along_and_no_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "penstock.tracker")
    with shared_tracker(tmp_path) as (_, cluster, events):
        launch = slot_launch(cluster)
        process = Process(launch, 1, 0, 1, 2)
        process.register()
        attempts = process.started(0, 1, 2)
        process.client.close()
        alone = Process(launch, 2, 1, ended="Receiver 1 called os._exit(7)")
        alone.register()
        again = alone.started(1)
        assert again[1] != attempts[1]
        error = events.until("error")
        assert error.stream_id == 1
        assert error.last_error.endswith("Receiver 1 called os._exit(7)")
        others = Process(launch, 3, 0, 2, ended="Receiver 1 called os._exit(7)")
        others.register()
        assert not {again[1], *attempts.values()} & set(others.started(0, 2).values())
        assert alone.messages.empty()
        told = [line for line in caplog.messages if line.endswith("called os._exit(7)")]
        assert len(told) == 1, "told once, however many were in that process"
        assert "is started again" not in caplog.text
        # The whole task dies: who was alone is alone in the next one.
        for one in (alone, others):
            one.client.close()
        assert launch.groups == [(0, 1, 2)]
        fail_task(cluster)
        assert sorted(slot_launch(cluster).groups) == [(0, 2), (1,)]
        # What is left of the old task is of no use.
        assert isinstance(Process(launch, 4, 0, 1).register(), Refused)


def test_no_attempt_is_given_to_two_processes(tmp_path: Path) -> None:
    with shared_tracker(tmp_path) as (_, cluster, _):
        launch = slot_launch(cluster)
        first = Process(launch, 1, 0, 1, 2)
        first.register()
        attempts = first.started(0, 1, 2)
        first.end(1, attempts[1], "Traceback (most recent call last):\nValueError: no")
        # Sent at once, not in answer to a registration.
        again = first.started(1)
        first.client.close()
        second = Process(launch, 2, 0, 1, 2, ended="it was killed")
        second.register()
        third = second.started(0, 1, 2)
        assert not {*attempts.values(), *again.values()} & set(third.values())


def test_a_slot_ends_when_none_of_its_receivers_has_another_start(tmp_path: Path) -> None:
    with shared_tracker(tmp_path) as (tracker, cluster, _):
        launch = slot_launch(cluster)
        process = Process(launch, 1, 0, 1, 2)
        process.register()
        attempts = process.started(0, 1, 2)
        for stream_id in (2, 0):
            process.end(stream_id, attempts[stream_id])
            assert process.messages.empty()
        assert tracker.jobs_left() == 1
        process.end(1, attempts[1])
        assert process.messages.get(timeout=WAIT_S) == StopReceiver()
        assert all(tracker.is_over(stream_id) for stream_id in range(3))
        # One that connects only now would wait for ever.
        assert isinstance(process.register(), Refused)


def test_a_process_of_a_task_that_is_over_runs_nothing_more(tmp_path: Path) -> None:
    with shared_tracker(tmp_path) as (tracker, cluster, _):
        old = Process(slot_launch(cluster), 1, 0, 1, 2)
        old.register()
        attempts = old.started(0, 1, 2)
        old.end(2, attempts[2])
        (slot,) = tracker._slots.values()
        await_that("its job has learnt that it ended", lambda: 2 in slot._left)
        # Its host is cut off from Spark, not from the driver's server.
        fail_task(cluster)
        launch = slot_launch(cluster)
        assert launch.groups == [(0, 1)]
        new = Process(launch, 1, 0, 1)
        new.register()
        new.started(0, 1)
        assert isinstance(old.register(), Refused)
        assert old.messages.empty()


def test_a_slot_moves_from_an_executor_that_is_about_to_go_when_all_its_receivers_have_ended(
    tmp_path: Path,
) -> None:
    with shared_tracker(tmp_path) as (tracker, cluster, _):
        process = Process(slot_launch(cluster), 1, 0, 1, 2)
        process.register()
        attempts = process.started(0, 1, 2)
        (slot,) = tracker._slots.values()
        slot.move()
        # One that starts again meanwhile waits for the next task.
        process.end(1, attempts[1], "ValueError: no")
        await_that("its next start", lambda: 1 in slot._runs)
        waits = slot._runs[1].attempt
        process.end(0, attempts[0], "ValueError: no")
        assert process.messages.empty()
        process.end(2, attempts[2], "ValueError: no")
        assert process.messages.get(timeout=WAIT_S) == StopReceiver()
        assert process.register() == Ok()
        assert process.messages.get(timeout=WAIT_S) == StopReceiver()
        (running,) = cluster._running.values()
        running.end.set_result(TaskEnd.ENDED)
        launch = slot_launch(cluster)
        again = Process(launch, 1, 0, 1, 2)
        again.register()
        started = again.started(0, 1, 2)
        assert not set(started.values()) & set(attempts.values())
        assert started[1] == waits
        # What is told late moves nothing.
        assert isinstance(process.register(), Refused)


def test_a_slot_moves_also_when_the_last_that_it_runs_is_cancelled(tmp_path: Path) -> None:
    with shared_tracker(tmp_path) as (tracker, cluster, _):
        process = Process(slot_launch(cluster), 1, 0, 1, 2)
        process.register()
        attempts = process.started(0, 1, 2)
        (slot,) = tracker._slots.values()
        slot.move()
        process.end(1, attempts[1], "ValueError: no")
        await_that("its next start", lambda: 1 in slot._runs)
        process.end(0, attempts[0], "ValueError: no")
        assert process.messages.empty()
        # It hangs.
        slot.cancel_attempt(2)
        assert process.messages.get(timeout=WAIT_S) == StopReceiver()


def test_a_slot_that_runs_nothing_yet_does_not_move(tmp_path: Path) -> None:
    with shared_tracker(tmp_path) as (tracker, cluster, _):
        (slot,) = tracker._slots.values()
        launch = slot_launch(cluster)
        slot.move()
        process = Process(launch, 1, 0, 1, 2)
        process.register()
        process.started(0, 1, 2)


def test_what_spark_says_of_a_failed_task_is_asked_once_and_not_by_each_receiver(
    tmp_path: Path,
) -> None:
    """A thread that asks the JVM has a thread there, and a connection, for as long as it lives."""
    asked: list[str] = []

    class AsksError(Py4JJavaError):
        def __init__(self) -> None: ...

        def __str__(self) -> str:
            asked.append(threading.current_thread().name)
            return "Job aborted due to stage failure: no memory"

    with shared_tracker(tmp_path) as (_, cluster, events):
        process = Process(slot_launch(cluster), 1, 0, 1, 2)
        process.register()
        process.started(0, 1, 2)
        (running,) = cluster._running.values()
        running.end.set_exception(AsksError())
        errors = [events.until("error") for _ in range(3)]
        assert {one.stream_id for one in errors} == {0, 1, 2}
        assert {one.last_error for one in errors} == {
            "AsksError: Job aborted due to stage failure: no memory"
        }
        assert asked == ["penstock-receiver-slot-0"]


@pytest.mark.parametrize("end", list(TaskEnd))
def test_receivers_whose_task_ended_before_them_start_again(tmp_path: Path, end: TaskEnd) -> None:
    with shared_tracker(tmp_path) as (_, cluster, events):
        first = slot_launch(cluster)
        (running,) = cluster._running.values()
        running.end.set_result(end)
        if end is TaskEnd.ENDED:
            assert events.until("error").last_error.endswith("the task of its slot has ended")
        assert slot_launch(cluster).task != first.task


@pytest.mark.parametrize("is_up", [False, True])
def test_what_does_not_end_is_cancelled_at_the_stop(tmp_path: Path, is_up: bool) -> None:
    with shared_tracker(tmp_path) as (tracker, cluster, _):
        launch = slot_launch(cluster)
        if is_up:
            process = Process(launch, 1, 0, 1, 2)
            process.register()
            process.started(0, 1, 2)
        tracker.stop(graceful=False, timeout_s=0.0)
        assert tracker.state is TrackerState.STOPPED
        assert cluster.cancelled
        assert tracker.jobs_left() == 0


def slot_launch(cluster: ThreadCluster) -> SlotLaunch:
    found = cluster.next_attempt().launch
    assert isinstance(found, SlotLaunch)
    return found


def fail_task(cluster: ThreadCluster) -> None:
    (running,) = [one for one in cluster._running.values() if not one.end.done()]
    running.fail()
