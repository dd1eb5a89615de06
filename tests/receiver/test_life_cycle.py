"""The life cycle of a receiver: Spark's `ReceiverSuite`, and what the original got wrong."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.blockstore import BlockStore
from penstock.errors import IllegalStateError
from penstock.receiver import (
    ExitKind,
    Receiver,
    ReceiverContext,
    ReceiverFailedError,
    ReceiverLaunch,
    ReceiverStoppedError,
)
from penstock.wal import LogFolderInUseError, remove_log
from penstock.wire.messages import (
    AddBlock,
    BlockTrace,
    DeregisterReceiver,
    Message,
    Refused,
    RegisterReceiver,
    ReportError,
    RestartReceiver,
    SealBlock,
    StopReceiver,
)
from tests.receiver.conftest import SETTINGS
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
    with pytest.raises(IllegalStateError, match="has not been attached to the receiver yet"):
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
    with pytest.raises(IllegalStateError, match="has not been attached"):
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
    assert error.kind is ExitKind.FAILED
    assert isinstance(error.__cause__, ConnectionRefusedError)
    told = tracker.of(DeregisterReceiver)[0]
    assert told.message.startswith("Error starting receiver 3: ConnectionRefusedError: no broker (")
    assert "test_life_cycle.py" in told.message
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
    assert report.message.startswith("Error stopping receiver 3: RuntimeError: cannot close (")
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
    assert "died: KeyError: 'lost'" in report.message
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


def test_the_driver_can_have_it_restarted(run: Run, tracker: Tracker, shared: Shared) -> None:
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    tracker.send(RestartReceiver("it was asked for"))
    shared.wait_for("onStart", 2)
    tracker.send(StopReceiver())
    running.join()
    assert shared.events == ["onStart", "onStop", "onStart", "onStop"]
    assert tracker.of(DeregisterReceiver)[0].message.endswith("it was asked for")


class Single(Quiet):
    """Stores one record."""

    def onStart(self) -> None:
        self.store("one")
        super().onStart()


def test_the_driver_can_have_the_open_block_sealed(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(Single(shared), replace(SETTINGS, block_interval_ms=3_600_000))
    shared.wait_for("onStart")
    assert not tracker.of(AddBlock)
    tracker.send(SealBlock())
    tracker.wait_for_count(AddBlock, 1)
    (added,) = tracker.of(AddBlock)
    assert [block.num_records for block in added.blocks] == [1]
    tracker.send(StopReceiver())
    running.join()
    assert len(tracker.of(AddBlock)) == 1


def test_blocks_are_traced_where_that_is_asked_for(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    traced = replace(SETTINGS, otel_enabled=True, otel_traces_every=3)
    running = run(Feeding(shared), traced)
    shared.wait_for("onStart")

    def traces() -> list[BlockTrace]:
        pipes = [report.pipe for report in tracker.rate_reports]
        return [trace for pipe in pipes if pipe is not None for trace in pipe.traces]

    tracker.wait_for(lambda: len(traces()) >= 3)
    tracker.send(StopReceiver())
    running.join()
    found = traces()
    blocks = {block.block_id: block for added in tracker.of(AddBlock) for block in added.blocks}
    numbers = [int(trace.block_id.rpartition("-")[2]) & 0xFFFF_FFFF for trace in found]
    assert numbers[0] % 3 == 0
    assert numbers == [numbers[0] + 3 * place for place in range(len(found))]
    for trace in found:
        assert blocks[trace.block_id].num_records == trace.num_records
        times_s = (trace.since_s, trace.sealed_s, trace.taken_s, trace.stored_s, trace.known_s)
        assert list(times_s) == sorted(times_s)
        # Wall time, of this host.
        assert abs(trace.known_s - time.time()) < 600


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
    assert error.kind is ExitKind.RECEIVER
    assert tracker.records() == ["kept"]
    told = tracker.of(DeregisterReceiver)[0]
    assert told.message == "enough"
    assert "ValueError: why" in told.error


def test_a_receiver_that_the_driver_refuses_ends_quietly_and_leaves_no_file(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    """A driver that stops has removed what it knows of: no one would remove that of this one."""
    tracker.answer = lambda message: (
        Refused("stopping") if isinstance(message, RegisterReceiver) else None
    )
    assert run(Quiet(shared)).join() is None
    assert shared.events == []
    assert list(tmp_path.iterdir()) == []


def test_a_receiver_that_is_stopped_while_its_block_store_opens_is_not_started(
    run: Run, tracker: Tracker, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may open for a minute, where HDFS is away."""
    open_storage = ReceiverLaunch.open_storage

    def told_meanwhile(launch: ReceiverLaunch, host: str, find: Any, on_error: Any) -> BlockStore:
        tracker.send(StopReceiver())
        find(()).result(WAIT_S)  # Behind it.
        return open_storage(launch, host, find, on_error)

    monkeypatch.setattr(ReceiverLaunch, "open_storage", told_meanwhile)
    assert run(Quiet(shared)).join() is None
    assert shared.events == []
    assert [told.message for told in tracker.of(DeregisterReceiver)] == ["Stopped by driver"]


def test_an_attempt_that_has_ended_lets_its_log_go(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    (folder,) = (tmp_path / "blocks").iterdir()
    with pytest.raises(LogFolderInUseError):
        remove_log(str(folder))
    tracker.send(StopReceiver())
    assert running.join() is None
    remove_log(str(folder))


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


class Locking(Quiet):
    """Holds a lock around `store` that its acknowledgements take."""

    def onStart(self) -> None:
        self.lock = threading.Lock()
        self.given = self.acknowledged = 0
        self.closed = False
        self.late = 0  # the source is closed, and gives these again
        self.is_asked_to_stop = threading.Event()
        self.thread = threading.Thread(target=self.give)
        super().onStart()
        self.thread.start()

    def give(self) -> None:
        with self.lock, contextlib.suppress(ReceiverStoppedError):
            while True:
                self.store("record", ack=self.count)
                self.given += 1
                if self.given == 100:  # few enough that they all have room
                    self.is_asked_to_stop.wait(WAIT_S)

    def count(self) -> None:
        with self.lock:
            self.late += self.closed
            self.acknowledged += 1

    def onStop(self) -> None:
        self.closed = True
        self.thread.join(WAIT_S)
        super().onStop()


@pytest.mark.slow
def test_a_stop_sees_that_an_acknowledgement_waits_for_store(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(Locking(shared))
    shared.wait_for("onStart")
    tracker.wait_for_records(1)
    tracker.send(StopReceiver(timeout_s=10 * WAIT_S))
    shared.receiver.is_asked_to_stop.set()
    assert running.join() is None
    assert complaints_of_locks(tracker) != []
    receiver = shared.receiver
    assert receiver.given == receiver.acknowledged > 0
    assert receiver.late == 0
    assert len(tracker.records()) == receiver.given


def complaints_of_locks(tracker: Tracker) -> list[str]:
    told = [error.message for error in tracker.of(ReportError)]
    return [message for message in told if "let no lock be held around store" in message]


class Greedy(Locking):
    """Stores for ever with its lock held."""

    def give(self) -> None:
        with self.lock, contextlib.suppress(ReceiverStoppedError):
            while True:
                self.store(b"x" * 1000, ack=self.count)


@pytest.mark.long
@pytest.mark.slow
def test_a_full_queue_that_waits_for_a_callback_which_waits_for_store_is_told_once(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(
        Greedy(shared), replace(SETTINGS, block_queue_size=2, graceful_stop_timeout_ms=500)
    )
    shared.wait_for("onStart")
    tracker.wait_for(lambda: complaints_of_locks(tracker))
    assert "the queue of blocks is full" in complaints_of_locks(tracker)[0]
    time.sleep(2.5)
    assert len(complaints_of_locks(tracker)) == 1
    tracker.send(StopReceiver())
    running.join()


class Slow(Quiet):
    """Its acknowledgements take time; it holds no lock."""

    callback_s = 2.5

    def onStart(self) -> None:
        self.acknowledged: list[int] = []
        super().onStart()
        for number in range(2):
            self.store(str(number), ack=partial(self.note, number))

    def note(self, number: int) -> None:
        if not number:
            self.shared.say("acknowledging")
            time.sleep(self.callback_s)
        self.acknowledged.append(number)

    def onStop(self) -> None:
        self.shared.say(f"onStop after {self.acknowledged}")


@pytest.mark.slow
def test_a_slow_callback_is_waited_for_while_nobody_waits_in_store(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(Slow(shared))
    shared.wait_for("acknowledging")
    tracker.send(StopReceiver(timeout_s=WAIT_S))
    running.join()
    assert shared.events[-1] == "onStop after [0, 1]"
    assert complaints_of_locks(tracker) == []


class Waiting(Slow):
    """A thread of its waits in `store` while it is stopped."""

    callback_s = 1.6

    def onStart(self) -> None:
        super().onStart()
        self.thread = threading.Thread(target=self.give)
        self.thread.start()

    def give(self) -> None:
        self.shared.wait_for("acknowledging")
        with contextlib.suppress(ReceiverStoppedError):
            while True:
                self.store("more", ack=lambda: None)
                time.sleep(0.01)

    def onStop(self) -> None:
        super().onStop()
        self.thread.join(WAIT_S)


@pytest.mark.long
@pytest.mark.parametrize("report_s", [0.0, pytest.param(2.5, marks=pytest.mark.slow)])
def test_who_waits_in_store_is_no_reason_to_hurry_a_callback_or_a_report(
    run: Run, tracker: Tracker, shared: Shared, report_s: float
) -> None:
    def answer_late(message: Message) -> None:
        if isinstance(message, AddBlock) and "acknowledging" in shared.events:
            time.sleep(report_s)

    tracker.answer = answer_late
    running = run(Waiting(shared))
    shared.wait_for("acknowledging")
    tracker.send(StopReceiver(timeout_s=WAIT_S))
    running.join()
    assert shared.events[-1].startswith("onStop after [0, 1]")
    assert complaints_of_locks(tracker) == []


# -- a start and the one after it ------------------------------------------------------------------


class Stubborn(Quiet):
    """Its threads do not heed `onStop`: they go on when they are told to."""

    def onStart(self) -> None:
        threading.Thread(target=self.go_on, args=(len(self.shared.events),)).start()
        super().onStart()

    def go_on(self, number: int) -> None:
        store = self.store
        self.shared.wait_for(f"go on {number}")
        for use in (store, self.store):
            try:
                use(f"of start {number}", number)
                self.shared.say(f"{number} stored")
            except ReceiverStoppedError:
                self.shared.say(f"{number} refused")
        if number == 0:  # The one that is over; of the one that runs it would be obeyed.
            self.restart("of no concern")
        self.shared.say((number, self.isStopped(), self.isStarted()))


def test_a_thread_from_before_a_restart_stores_nothing_and_knows_that_it_is_stopped(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(Stubborn(shared))
    shared.wait_for("onStart")
    shared.receiver.restart("once")
    shared.wait_for("onStart", 2)
    shared.say("go on 0")
    shared.wait_for((0, True, False))
    assert shared.events.count("0 refused") == 2
    shared.say("go on 2")
    shared.wait_for("2 stored", 2)
    tracker.wait_for_records(2)
    assert tracker.last_position() == 2, "positions never run backwards"
    tracker.send(StopReceiver())
    assert running.join() is None
    assert shared.events.count("onStart") == 2, "an older start cannot ask for a restart"


def test_a_thread_from_before_a_restart_may_die_of_it(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    class Careless(Stubborn):
        def go_on(self, number: int) -> None:
            self.shared.wait_for(f"go on {number}")
            self.shared.say(threading.current_thread())
            if number:
                self.store("new")
            else:
                raise OSError("the connection was closed by onStop")

    running = run(Careless(shared))
    shared.wait_for("onStart")
    shared.receiver.restart("once")
    shared.wait_for("onStart", 2)
    shared.say("go on 0")
    shared.say("go on 2")
    tracker.wait_for_records(1)
    for thread in list(shared.events):
        if isinstance(thread, threading.Thread):
            thread.join(WAIT_S)
    tracker.send(StopReceiver())
    assert running.join() is None
    assert tracker.of(ReportError) == []
    assert shared.events.count("onStart") == 2


def test_what_a_receiver_counts_in_itself_outlives_a_restart(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    class Counting(Quiet):
        starts = 0

        def onStart(self) -> None:
            self.starts += 1
            super().onStart()

    running = run(Counting(shared))
    shared.wait_for("onStart")
    shared.receiver.restart("once")
    shared.wait_for("onStart", 2)
    assert shared.receiver.starts == 2
    tracker.send(StopReceiver())
    running.join()


class Client:
    """Calls back what it was given when it was made; is started and stopped again."""

    def __init__(self, on_record: Callable[[str], None], is_over: Callable[[], bool]) -> None:
        self.on_record = on_record
        self.is_over = is_over

    def start(self) -> None:
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.give, args=(self.stopped,))
        self.thread.start()

    def give(self, stopped: threading.Event) -> None:
        # As many libraries do, it survives what a callback raises.
        while not stopped.wait(0.01) and not self.is_over():
            with contextlib.suppress(Exception):
                self.on_record("record")

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join(WAIT_S)


class Calling(Quiet):
    """Its client was made in `__init__`, and calls back this object."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self.client = Client(self.on_record, self.isStopped)

    def on_record(self, record: str) -> None:
        self.store(f"{record} of start {self.shared.events.count('onStart')}")

    def onStart(self) -> None:
        self.client.start()
        super().onStart()

    def onStop(self) -> None:
        self.client.stop()
        super().onStop()


def test_callbacks_that_were_made_in_init_store_after_a_restart(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(Calling(shared))
    shared.wait_for("onStart")
    shared.receiver.restart("once")
    shared.wait_for("onStart", 2)
    tracker.wait_for(lambda: "record of start 2" in tracker.records())
    tracker.send(StopReceiver())
    assert running.join() is None
    assert tracker.of(ReportError) == []


def test_a_copy_whose_callbacks_go_to_the_object_before_it_is_given_up_and_says_so(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    class Leaving(Calling):
        def onStart(self) -> None:
            threading.Thread(target=self.shared.go.wait, args=(WAIT_S,)).start()
            super().onStart()

    running = run(Leaving(shared))
    shared.wait_for("onStart")
    shared.receiver.restart("once")
    error = running.join()
    shared.go.set()
    assert isinstance(error, ReceiverFailedError), error
    assert "onStart" in error.detail
    assert any("before the last restart" in told.message for told in tracker.of(ReportError))


def test_a_client_that_keeps_its_thread_over_a_restart_gets_errors_and_is_told_of_once(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    class Keeping(Calling):
        """Its onStop leaves the client as it is, and a new start makes a new one."""

        def on_record(self, record: str) -> None:
            try:
                self.store(record)
            except ReceiverStoppedError:
                self.shared.say("refused")
                raise

        def onStart(self) -> None:
            self.client = Client(self.on_record, self.shared.go.is_set)
            super().onStart()

        def onStop(self) -> None:
            self.shared.say("onStop")

    running = run(Keeping(shared))
    shared.wait_for("onStart")
    try:
        shared.receiver.restart("once")
        shared.wait_for("refused", 10)
        records = len(tracker.records())
        tracker.wait_for(lambda: len(tracker.records()) > records)
    finally:
        shared.go.set()
    tracker.send(StopReceiver())
    assert running.join() is None
    (told,) = tracker.of(ReportError)
    assert "goes on storing" in told.message
    assert "Let onStop close the client" in told.message


class Reduced(Quiet):
    """Says itself what a copy is made of."""

    def __reduce__(self) -> tuple[type[Reduced], tuple[Shared]]:
        return Reduced, (self.shared,)

    def onStart(self) -> None:
        threading.Thread(target=self.shared.go.wait, args=(WAIT_S,)).start()
        super().onStart()


def test_a_copy_that_its_author_makes_knows_its_stream(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(Reduced(shared))
    shared.wait_for("onStart")
    first = shared.receiver
    first.restart("once")
    shared.wait_for("onStart", 2)
    assert shared.receiver is not first
    assert shared.receiver.streamId == first.streamId == 3
    shared.go.set()
    tracker.send(StopReceiver())
    assert running.join() is None


# -- sources that take acknowledgements ------------------------------------------------------------


class Broker:
    """Gives again what was not acknowledged over the connection that it was given on."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.given = itertools.count()
        self.again: list[int] = []
        self.unacknowledged: dict[int, None] = {}
        self.connection = 0

    def connect(self) -> int:
        with self.changed:
            self.connection += 1
            self.again = sorted([*self.again, *self.unacknowledged], reverse=True)
            self.unacknowledged = {}
            return self.connection

    def close(self) -> None:
        with self.changed:
            self.connection += 1

    def take(self, connection: int) -> int | None:
        with self.changed:
            if connection != self.connection:
                return None
            number = self.again.pop() if self.again else next(self.given)
            self.unacknowledged[number] = None
            return number

    def acknowledge(self, connection: int, number: int) -> None:
        with self.changed:
            if connection == self.connection:
                del self.unacknowledged[number]


class FromBroker(Quiet):
    """As an author of Spark writes it: `onStop` closes the connection."""

    def onStart(self) -> None:
        self.broker: Broker = self.shared.broker  # type: ignore[attr-defined]
        self.connection = self.broker.connect()
        self.thread = threading.Thread(target=self.receive)
        super().onStart()
        self.thread.start()

    def receive(self) -> None:
        while not self.isStopped():
            number = self.broker.take(self.connection)
            if number is None:
                return
            self.store(number, ack=partial(self.broker.acknowledge, self.connection, number))

    def onStop(self) -> None:
        self.broker.close()
        self.thread.join(WAIT_S)
        super().onStop()


def from_broker(context: ReceiverContext, shared: Shared) -> Iterator[int]:
    broker: Broker = shared.broker  # type: ignore[attr-defined]
    connection = broker.connect()
    try:
        while not context.stopped.is_set():
            number = broker.take(connection)
            if number is None:
                return
            context.store(number, ack=partial(broker.acknowledge, connection, number))
            if number < 0:
                yield number
    finally:
        broker.close()


class RunsFromBroker:
    def __init__(self, shared: Shared) -> None:
        self.shared = shared

    def run(self, context: ReceiverContext) -> None:
        for _ in from_broker(context, self.shared):
            pass


@pytest.mark.parametrize(
    ("form", "how"),
    [("class", "stop"), ("class", "restart"), ("generator", "stop"), ("run", "stop")],
)
def test_a_source_that_takes_acknowledgements_doubles_nothing_at_stops(
    run: Run, tracker: Tracker, shared: Shared, form: str, how: str
) -> None:
    broker = Broker()
    shared.broker = broker  # type: ignore[attr-defined]
    forms = {
        "class": FromBroker(shared),
        "generator": partial(from_broker, shared=shared),
        "run": RunsFromBroker(shared),
    }

    def wait_for_more() -> None:
        known = sum(block.num_records for block in tracker.blocks)
        tracker.wait_for(lambda: sum(block.num_records for block in tracker.blocks) > known + 50)

    for count in range(1, 6):
        running = run(forms[form])
        wait_for_more()
        if how == "restart":
            shared.receiver.restart("again")
            shared.wait_for("onStart", 2 * count)
            wait_for_more()
        tracker.send(StopReceiver())
        assert running.join() is None
    records = tracker.records()
    assert records == list(range(len(records))), "nothing twice, nothing left out"
    assert tracker.of(ReportError) == []
