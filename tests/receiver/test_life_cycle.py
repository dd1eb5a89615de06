"""The life cycle of a receiver: Spark's `ReceiverSuite`, and what the original got wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.receiver import (
    EndingKind,
    Receiver,
    ReceiverFailedError,
    ReceiverNotAttachedError,
)
from penstock.wire.messages import (
    AddBlock,
    DeregisterReceiver,
    Message,
    Refused,
    RegisterReceiver,
    ReportError,
    StopReceiver,
)
from tests.receiver.running import WAIT_S, Running, Shared, Tracker

Run = Callable[..., Running]


class Quiet(Receiver):
    """Does nothing but say what happens to it."""

    def __init__(self, shared: Shared) -> None:
        super().__init__()
        self.shared = shared

    def onStart(self) -> None:
        self.shared.receiver = self
        self.shared.say("onStart")

    def onStop(self) -> None:
        self.shared.say("onStop")


class Feeding(Quiet):
    """Stores numbers from several threads until it is stopped."""

    threads_wanted = 1

    def onStart(self) -> None:
        self.stored = [0] * self.threads_wanted
        self.threads = [
            threading.Thread(target=self.feed, args=(number,))
            for number in range(self.threads_wanted)
        ]
        super().onStart()
        for thread in self.threads:
            thread.start()

    def feed(self, number: int) -> None:
        while not self.isStopped():
            self.store(f"{number}:{self.stored[number]}")
            self.stored[number] += 1

    def onStop(self) -> None:
        for thread in self.threads:
            thread.join(WAIT_S)
        super().onStop()


def test_receiver_life_cycle(run: Run, tracker: Tracker, shared: Shared) -> None:
    """After `ReceiverSuite` "receiver life cycle"."""
    receiver = Quiet(shared)
    assert receiver.streamId == -1
    running = run(receiver)
    shared.wait_for("onStart")
    live = shared.receiver
    assert live.streamId == 3
    assert live.isStarted()
    assert not live.isStopped()
    registered = tracker.of(RegisterReceiver)[0]
    assert registered.receiver_type == "Quiet"

    live.reportError("only told", ValueError("the detail"))
    tracker.wait_for_count(ReportError, 1)
    report = tracker.of(ReportError)[0]
    assert report.message == "only told"
    assert "ValueError: the detail" in report.error
    assert not report.permanent
    assert live.isStarted()

    live.restart("because", ValueError("why"), 1)
    shared.wait_for("onStart", 2)
    assert shared.events == ["onStart", "onStop", "onStart"]
    deregistered = tracker.of(DeregisterReceiver)[0]
    assert deregistered.message == "Restarting receiver with delay 1 ms: because"
    assert "ValueError: why" in deregistered.error

    tracker.send(StopReceiver())
    assert running.join() is None
    assert shared.events == ["onStart", "onStop", "onStart", "onStop"]
    assert live.isStopped()
    assert not live.isStarted()
    assert tracker.of(DeregisterReceiver)[1].message == "Stopped by driver"


def test_a_receiver_is_not_stopped_before_its_first_start() -> None:
    with pytest.raises(ReceiverNotAttachedError, match="has not been attached to the receiver yet"):
        Quiet(Shared()).isStopped()


@pytest.mark.parametrize(
    "use",
    [
        lambda receiver: receiver.store(b"1"),
        lambda receiver: receiver.storeFrom(lambda buffer: 0, "newline"),
        lambda receiver: receiver.restart("x"),
        lambda receiver: receiver.stop("x"),
        lambda receiver: receiver.reportError("x"),
    ],
)
def test_use_before_attachment_says_so(use: Callable[[Receiver], object]) -> None:
    with pytest.raises(ReceiverNotAttachedError, match="has not been attached"):
        use(Quiet(Shared()))


def test_multi_thread_receiver_loses_and_mixes_nothing(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    """After `InputStreamsSuite` "multi-thread receiver"; order holds per thread (I5)."""

    class Many(Feeding):
        threads_wanted = 5

    running = run(Many(shared))
    tracker.wait_for_records(1000)
    tracker.send(StopReceiver())
    assert running.join() is None
    records = tracker.records()
    for number in range(5):
        mine = [int(record[2:]) for record in records if record[0] == str(number)]
        assert mine == list(range(shared.receiver.stored[number]))


def test_i10_a_graceful_stop_loses_not_even_the_last_block(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    """The original closes its log before the generator has drained, and loses the last block."""

    class StoresWhileStopping(Quiet):
        def onStop(self) -> None:
            for number in range(100):
                self.store(f"last {number}")
            super().onStop()

    running = run(StoresWhileStopping(shared))
    shared.wait_for("onStart")
    tracker.send(StopReceiver())
    assert running.join() is None
    assert tracker.records() == [f"last {number}" for number in range(100)]
    # All of it is in the driver's log before the driver is told that no more comes.
    kinds = [type(m) for m in tracker.messages if not isinstance(m, RegisterReceiver)]
    assert kinds == [AddBlock] * (len(kinds) - 1) + [DeregisterReceiver]
    assert not tracker.of(ReportError)


def test_what_on_start_raises_reaches_the_driver_and_ends_the_attempt(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    class Broken(Quiet):
        def onStart(self) -> None:
            raise ConnectionRefusedError("no broker")

    error = run(Broken(shared)).join()
    assert isinstance(error, ReceiverFailedError)
    assert error.kind is EndingKind.FAILED
    assert isinstance(error.__cause__, ConnectionRefusedError)
    told = tracker.of(DeregisterReceiver)[0]
    assert told.message == "Error starting receiver 3: no broker"
    assert "ConnectionRefusedError: no broker" in told.error
    assert shared.events == ["onStop"]


def test_what_on_stop_raises_is_reported_and_loses_nothing(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    class Broken(Quiet):
        def onStop(self) -> None:
            self.store("last")
            raise RuntimeError("cannot close")

    running = run(Broken(shared))
    shared.wait_for("onStart")
    tracker.send(StopReceiver())
    assert running.join() is None
    assert tracker.records() == ["last"]
    report = tracker.of(ReportError)[0]
    assert report.message == "Error stopping receiver 3: cannot close"
    assert "RuntimeError" in report.error


def test_a_thread_that_dies_is_reported_and_the_receiver_restarted(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    """In the original such a receiver looks active and stores nothing."""

    class Dying(Feeding):
        def feed(self, number: int) -> None:
            if self.shared.events.count("onStart") == 1:
                raise KeyError("lost")
            super().feed(number)

    running = run(Dying(shared))
    shared.wait_for("onStart", 2)
    tracker.wait_for_records(1)
    assert shared.events[:3] == ["onStart", "onStop", "onStart"]
    report = tracker.of(ReportError)[0]
    assert "died: 'lost'" in report.message
    assert "KeyError" in report.error
    tracker.send(StopReceiver())
    assert running.join() is None


def test_two_restarts_at_once_are_one(run: Run, tracker: Tracker, shared: Shared) -> None:
    """In the original two calls of `restart` call `onStart` twice."""
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    for number in range(5):
        shared.receiver.restart(f"reason {number}")
    shared.wait_for("onStart", 2)
    tracker.send(StopReceiver())
    running.join()
    assert shared.events == ["onStart", "onStop", "onStart", "onStop"]
    assert len(tracker.of(RegisterReceiver)) == 2
    assert tracker.of(DeregisterReceiver)[0].message.endswith("reason 0")


def test_a_stop_during_the_restart_delay_cancels_the_restart(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    shared.receiver.restart("later", None, 3_600_000)
    tracker.wait_for_count(DeregisterReceiver, 1)
    assert shared.receiver.isStopped()
    tracker.send(StopReceiver())
    assert running.join() is None
    assert shared.events == ["onStart", "onStop"]


def test_blocks_are_stored_while_a_restart_waits(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    shared.receiver.restart("later", None, 3_600_000)
    tracker.wait_for_count(DeregisterReceiver, 1)
    shared.receiver.store("between")
    assert tracker.wait_for_records(1) == ["between"]
    tracker.send(StopReceiver())
    running.join()


def test_a_receiver_that_stops_itself_is_started_again_by_the_driver(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    """For the driver a raised error means: start another attempt (Spark does so too)."""
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    shared.receiver.store("kept")
    shared.receiver.stop("enough", ValueError("why"))
    error = running.join()
    assert isinstance(error, ReceiverFailedError)
    assert error.kind is EndingKind.RECEIVER
    assert tracker.records() == ["kept"]
    told = tracker.of(DeregisterReceiver)[0]
    assert told.message == "enough"
    assert "ValueError: why" in told.error


def test_a_receiver_that_the_driver_refuses_ends_quietly(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    tracker.answer = lambda message: (
        Refused("stopping") if isinstance(message, RegisterReceiver) else None
    )
    assert run(Quiet(shared)).join() is None
    assert shared.events == []


def test_an_attempt_whose_blocks_are_refused_ends(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    """A newer attempt has taken its place; asking again would be for ever."""
    tracker.answer = lambda message: (
        Refused("a newer attempt is registered") if isinstance(message, AddBlock) else None
    )
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    shared.receiver.store("x")
    assert running.join() is None
    assert shared.events == ["onStart", "onStop"]
    assert "a newer attempt is registered" in tracker.of(ReportError)[0].error


def test_an_on_start_that_blocks_is_tolerated(run: Run, tracker: Tracker, shared: Shared) -> None:
    class Blocking(Quiet):
        def onStart(self) -> None:
            super().onStart()
            while not self.isStopped():
                self.store("x")

    running = run(Blocking(shared))
    shared.wait_for("onStart")
    tracker.wait_for_records(1)
    shared.receiver.restart("once")
    shared.wait_for("onStart", 2)
    tracker.send(StopReceiver())
    assert running.join() is None


def test_an_error_raised_in_a_failed_push_does_not_end_the_pushing(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    """In the original the push thread ends with its first failure, and the buffer only grows."""
    failures: list[Message] = []

    def answer(message: Message) -> Message | None:
        from penstock.wire.messages import Failure

        if isinstance(message, AddBlock) and len(failures) < 3:
            failures.append(message)
            return Failure("the driver's disk is full")
        return None

    tracker.answer = answer
    running = run(Feeding(shared))
    tracker.wait_for_records(500)
    assert len(failures) == 3
    assert "the driver's disk is full" in tracker.of(ReportError)[0].error
    tracker.send(StopReceiver())
    assert running.join() is None
    assert tracker.records() == [f"0:{n}" for n in range(shared.receiver.stored[0])]


def test_i1_acknowledgement_comes_after_the_driver_has_the_block(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    may_answer = threading.Event()

    def answer(message: Message) -> Message | None:
        if isinstance(message, AddBlock):
            shared.say("asked")
            assert may_answer.wait(WAIT_S)
        return None

    tracker.answer = answer
    run(Quiet(shared))
    shared.wait_for("onStart")
    shared.receiver.store("single", None, lambda: shared.say("acknowledged"))
    shared.wait_for("asked")
    assert "acknowledged" not in shared.events
    may_answer.set()
    shared.wait_for("acknowledged")
    shared.receiver.store(["many", "records"])
    assert tracker.records() == ["single", "many", "records"]


def test_a_restarted_receiver_is_handed_the_position_after_all_that_it_stored(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    assert shared.receiver.lastPosition is None
    shared.receiver.store("a", {"offset": 7})
    shared.receiver.store("b", {"offset": 8})
    shared.receiver.restart("again")
    shared.wait_for("onStart", 2)
    assert shared.receiver.lastPosition == {"offset": 8}
    tracker.send(StopReceiver())
    running.join()


def test_an_object_that_cannot_be_pickled_fails_only_its_own_store(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    shared.receiver.store("before")
    with pytest.raises(Exception, match="pickle"):
        shared.receiver.store(threading.Lock())
    shared.receiver.store("after")
    assert tracker.wait_for_records(2) == ["before", "after"]
    tracker.send(StopReceiver())
    assert running.join() is None
    assert shared.events == ["onStart", "onStop"]


def test_a_subclass_may_override_store(run: Run, tracker: Tracker, shared: Shared) -> None:
    class Shouting(Quiet):
        def store(self, data: Any, *arguments: Any, **keywords: Any) -> None:
            super().store(data.upper(), *arguments, **keywords)

    run(Shouting(shared))
    shared.wait_for("onStart")
    shared.receiver.store("quiet")
    assert tracker.wait_for_records(1) == ["QUIET"]
