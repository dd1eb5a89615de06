"""The supervisor where things take too long, come at the wrong time, or go wrong at the edges."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import StorageLevel

from penstock.blockstore import BlockStore
from penstock.errors import IllegalStateError, SettingError
from penstock.receiver import (
    ExitKind,
    ReceiverContext,
    ReceiverFailedError,
    ReceiverLaunch,
    SupervisorState,
)
from penstock.receiver.attempts import launch as launch_module
from penstock.receiver.attempts import supervisor as supervisor_module
from penstock.receiver.attempts.attempt_state import AttemptState, Bounds, RestartRequest
from penstock.receiver.exit_report import TEXT_LIMIT, ExitReport, error_text
from penstock.receiver.forms.threaded import ThreadedReceiver
from penstock.wal import LogFullError
from penstock.wire import Client, FrameTooLargeError
from penstock.wire.messages import (
    AddBlock,
    CleanupOldBlocks,
    DeregisterReceiver,
    EnsureBlockServer,
    Failure,
    Message,
    RegisterReceiver,
    ReportError,
    ReportFullLog,
    ShownBlock,
    StopReceiver,
    UpdateRateLimit,
)
from tests.receiver.conftest import SETTINGS
from tests.receiver.running import WAIT_S, Running, Shared, Tracker
from tests.receiver.test_life_cycle import Quiet

Run = Callable[..., Running]


@pytest.fixture
def short_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the author's calls be given up soon."""
    monkeypatch.setattr(supervisor_module, "Bounds", lambda **changed: Bounds(0.2, **changed))


@pytest.mark.usefixtures("short_bounds")
def test_an_on_stop_that_hangs_is_left_behind_and_named(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    class Hanging(Quiet):
        def onStop(self) -> None:
            super().onStop()
            self.store("last")
            self.shared.go.wait(WAIT_S)

    running = run(Hanging(shared))
    shared.wait_for("onStart")
    tracker.send(StopReceiver(timeout_s=0.1))
    assert running.join() is None
    (report,) = tracker.of(ReportError)
    # 0.2, and more where the time that was left was read later.
    assert re.search(r"onStop of receiver 3 did not return within 0\.\d s", report.message)
    assert "in wait" in report.message
    assert tracker.records() == ["last"]
    shared.go.set()


class Slow(Quiet):
    """Spark's `SlowTestReceiver`: its stop waits until all records were produced."""

    def onStart(self) -> None:
        self.all_stored = threading.Event()
        self.thread = threading.Thread(target=self.produce)
        super().onStart()
        self.thread.start()

    def produce(self) -> None:
        for number in range(15):
            self.shared.go.wait(0.1)
            self.store(number)
        self.all_stored.set()

    def onStop(self) -> None:
        self.all_stored.wait(WAIT_S)
        super().onStop()


@pytest.mark.slow
@pytest.mark.usefixtures("short_bounds")
def test_stop_slow_receiver_gracefully(run: Run, tracker: Tracker, shared: Shared) -> None:
    """After `StreamingContextSuite`: `onStop` has the time that the driver waits for it."""
    running = run(Slow(shared), settings=replace(SETTINGS, graceful_stop_timeout_ms=100))
    shared.wait_for("onStart")
    tracker.send(StopReceiver(timeout_s=WAIT_S))
    assert running.join() is None
    assert tracker.records() == list(range(15))
    assert tracker.of(ReportError) == []


@pytest.mark.usefixtures("short_bounds")
def test_a_run_may_take_as_long_as_the_driver_waits_for_what_it_has_in_hand(
    run: Run, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ThreadedReceiver, "STOP_BOUND_S", 0.1)

    class InHand:
        def run(self, context: ReceiverContext) -> None:
            context.store("first")
            context.stopped.wait(WAIT_S)
            threading.Event().wait(1.0)
            context.store("in hand")

    running = run(InHand)
    tracker.wait_for_records(1)
    tracker.send(StopReceiver(timeout_s=WAIT_S))
    assert running.join() is None
    assert tracker.records() == ["first", "in hand"]
    assert tracker.of(ReportError) == []


@pytest.mark.slow
def test_a_stop_that_has_time_ends_soon_when_the_driver_is_lost_meanwhile(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    tracker.answer = lambda message: (
        Failure("the log is away") if isinstance(message, AddBlock) else None
    )
    placed = replace(SETTINGS, block_server_lease_s=0.3, ask_timeout_s=0.5)
    running = run(Quiet(shared), settings=placed)
    shared.wait_for("onStart")
    shared.receiver.store("x")
    tracker.send(StopReceiver(timeout_s=3600.0))
    shared.wait_for("onStop")
    tracker.server.stop()
    tracker.peer = None
    assert isinstance(running.join(), ReceiverFailedError)


# -- what hangs ------------------------------------------------------------------------------------


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """What hangs waits for this; in the end it is let go."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = Bounds(0.1, 0.3, 0.3, 0.2, 0.3)
    monkeypatch.setattr(supervisor_module, "Bounds", lambda **changed: bounds)


def test_behind_a_stop_there_is_time_for_both_calls_of_the_author() -> None:
    assert Bounds(user_call_s=100.0).overrun_s > 200.0


@pytest.mark.usefixtures("no_patience")
@pytest.mark.parametrize("what", ["put", "close", "release"])
def test_an_attempt_ends_in_time_whatever_of_the_log_hangs(
    run: Run,
    tracker: Tracker,
    shared: Shared,
    monkeypatch: pytest.MonkeyPatch,
    hanging: threading.Event,
    what: str,
) -> None:
    class Storage(launch_module.BlockStore):
        pass

    def hang(self: object, *arguments: object) -> None:
        shared.say("hangs")
        hanging.wait(WAIT_S)
        raise OSError("it hung")

    setattr(Storage, what, hang)
    monkeypatch.setattr(launch_module, "BlockStore", Storage)
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    shared.receiver.store("x")
    if what == "release":
        tracker.send(CleanupOldBlocks((), ()))
        shared.wait_for("hangs")
    tracker.send(StopReceiver())
    error = running.join()
    if what == "put":
        assert isinstance(error, ReceiverFailedError)
        return
    # All is stored and told by then.
    assert error is None
    tracker.wait_for_count(ReportError, 1)
    told = tracker.of(ReportError)[-1].message
    if what == "close":
        assert "did not close within" in told
    else:
        assert "hangs and was left behind; it stands at" in told
        assert "in hang, called from" in told


@pytest.mark.usefixtures("short_bounds")
def test_a_receiver_whose_on_start_cannot_be_ended_is_not_started_twice_in_one_process(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    class Stuck(Quiet):
        def onStart(self) -> None:
            super().onStart()
            self.shared.go.wait(WAIT_S)

    running = run(Stuck(shared))
    shared.wait_for("onStart")
    shared.receiver.restart("please", ValueError("why"))
    error = running.join()
    assert isinstance(error, ReceiverFailedError), "a failed task gets a process of its own"
    assert "its onStart still runs" in str(error)
    assert shared.events == ["onStart", "onStop"]
    shared.go.set()


def test_a_stop_while_the_driver_answers_the_registration_starts_nothing(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    def answer(message: Message) -> Message | None:
        if isinstance(message, RegisterReceiver):
            tracker.send(StopReceiver())
        return None

    tracker.answer = answer
    assert run(Quiet(shared)).join() is None
    assert len(tracker.of(DeregisterReceiver)) == 1, "the driver must not count it as active"
    assert shared.events in ([], ["onStart", "onStop"])


def test_a_registration_that_the_driver_cannot_log_fails_the_attempt(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    tracker.answer = lambda message: (
        Failure("the driver's disk is full") if isinstance(message, RegisterReceiver) else None
    )
    error = run(Quiet(shared)).join()
    assert isinstance(error, ReceiverFailedError)
    assert "the driver's disk is full" in str(error)


def test_a_registration_that_is_not_answered_fails_the_attempt(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    answering = threading.Event()

    def answer(message: Message) -> Message | None:
        if isinstance(message, RegisterReceiver):
            answering.wait(WAIT_S)
        return None

    tracker.answer = answer
    running = run(Quiet(shared), settings=replace(SETTINGS, ask_timeout_s=0.3))
    error = running.join()
    answering.set()
    assert isinstance(error, ReceiverFailedError)
    assert error.kind is ExitKind.FAILED
    assert "not answer" in str(error)
    assert shared.events == []


def test_a_driver_that_cannot_be_reached_at_all_fails_the_attempt(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    tracker.server.stop()
    error = run(Quiet(shared), settings=replace(SETTINGS, ask_timeout_s=0.3)).join()
    assert isinstance(error, ReceiverFailedError)
    assert "no connection to" in str(error)
    assert shared.events == []


def test_a_bad_setting_of_the_parts_is_permanent(
    run: Run, tracker: Tracker, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**options: Any) -> None:
        raise SettingError("spark.penstock.x", "y", "z")

    monkeypatch.setattr(launch_module, "BlockStore", refuse)
    assert run(Quiet(shared)).join() is None
    tracker.wait_for_count(ReportError, 1)  # it is only sent, so it may still be on its way
    (report,) = tracker.of(ReportError)
    assert report.permanent
    assert "spark.penstock.x='y' is not accepted: z" in report.message


def test_a_store_that_waits_for_its_rate_ends_with_the_receiver(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(
        Quiet(shared), settings=replace(SETTINGS, receiver_rate="1/day", receiver_max_rate=None)
    )
    shared.wait_for("onStart")

    def store() -> None:
        with suppress(IllegalStateError):
            shared.receiver.store("x")
            shared.receiver.store("more than the rate allows")

    storing = threading.Thread(target=store, daemon=True)
    storing.start()
    tracker.send(StopReceiver())
    assert running.join() is None
    storing.join(WAIT_S)
    assert not storing.is_alive()


def test_i8_a_rate_update_lets_a_waiting_store_pass(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    run(Quiet(shared), settings=replace(SETTINGS, backpressure_initial_rate=1))
    shared.wait_for("onStart")

    def store() -> None:
        for number in range(1000):
            shared.receiver.store(str(number))
        shared.say("stored")

    threading.Thread(target=store, daemon=True).start()
    tracker.send(UpdateRateLimit(3, 1_000_000.0))
    shared.wait_for("stored")


def test_released_blocks_are_freed_and_a_failure_there_is_only_reported(
    run: Run, tracker: Tracker, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[Any] = []

    class Storage(launch_module.BlockStore):
        def release(self, block_ids: Any, segments: Any) -> None:
            released.append((tuple(block_ids), tuple(segments)))
            if len(released) == 2:
                raise OSError("cannot delete")
            super().release(block_ids, segments)
            shared.say("released")

    monkeypatch.setattr(launch_module, "BlockStore", Storage)
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    shared.receiver.store(["x"])
    (block,) = tracker.blocks
    tracker.send(CleanupOldBlocks((block.block_id,), ()))
    shared.wait_for("released")
    tracker.send(CleanupOldBlocks(("input-3-9",), (("/elsewhere", 1),)))
    tracker.wait_for_count(ReportError, 1)
    assert "cannot delete" in tracker.of(ReportError)[0].error
    assert released == [((block.block_id,), ()), (("input-3-9",), (("/elsewhere", 1),))]
    tracker.send(StopReceiver())
    assert running.join() is None


def test_a_log_that_finds_no_room_is_told_before_the_attempt_ends(
    tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise LogFullError("/log", 4096)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(launch_module, "BlockStore", full)
        running = Running(Quiet(shared), tracker, tmp_path, SETTINGS)
        assert "no space left" in str(running.join())
    (told,) = tracker.of(ReportFullLog)
    assert (told.stream_id, told.free_bytes) == (3, 4096)
    assert told.host


def test_the_block_server_is_ensured_at_the_start_and_when_the_driver_asks(
    tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    ensured: list[str] = []

    def ensure(launch: ReceiverLaunch) -> None:
        ensured.append(launch.attempt)
        shared.say("ensured")
        if len(ensured) == 2:
            raise OSError("no process")

    running = Running(
        Quiet(shared),
        tracker,
        tmp_path,
        replace(SETTINGS, memory_dir=str(tmp_path)),
        ensure_block_server=ensure,
    )
    shared.wait_for("ensured")
    shared.wait_for("onStart")
    tracker.send(EnsureBlockServer())
    shared.wait_for("ensured", 2)
    tracker.wait_for_count(ReportError, 1)
    assert "No block server for other hosts: no process" in tracker.of(ReportError)[0].message
    tracker.send(StopReceiver())
    assert running.join() is None, "without a block server the receiver goes on"


def test_a_block_server_is_started_by_one_thread_however_often_the_driver_asks(
    tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def ensure(launch: ReceiverLaunch) -> None:
        begun.release()
        assert go_on.wait(WAIT_S)

    running = Running(
        Quiet(shared),
        tracker,
        tmp_path,
        replace(SETTINGS, memory_dir=str(tmp_path)),
        ensure_block_server=ensure,
    )
    shared.wait_for("onStart")
    assert begun.acquire(timeout=WAIT_S)
    for _ in range(3):
        tracker.send(EnsureBlockServer())
    tracker.send(StopReceiver())
    tracker.wait_for_count(DeregisterReceiver, 1)
    go_on.set()
    assert running.join() is None
    assert not begun.acquire(blocking=False)


def test_a_full_disk_ends_nothing_and_loses_nothing(
    run: Run, tracker: Tracker, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the original the push thread dies of it while the receiver looks active."""
    full = threading.Event()
    full.set()

    class Storage(launch_module.BlockStore):
        def put(self, block: Any) -> Any:
            if full.is_set():
                shared.say("full")
                raise OSError(28, "No space left on device")
            return super().put(block)

    monkeypatch.setattr(launch_module, "BlockStore", Storage)
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    for number in range(100):
        shared.receiver.store(str(number))
    shared.wait_for("full", 2)
    full.clear()
    assert tracker.wait_for_records(100) == [str(number) for number in range(100)]
    (report,) = tracker.of(ReportError)
    assert "No space left on device" in report.error
    tracker.send(StopReceiver())
    assert running.join() is None


@pytest.mark.slow
def test_last_blocks_that_cannot_be_stored_are_said_and_fail_the_attempt(
    run: Run, tracker: Tracker, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Storage(launch_module.BlockStore):
        def put(self, block: Any) -> Any:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(launch_module, "BlockStore", Storage)
    running = run(Quiet(shared), settings=replace(SETTINGS, graceful_stop_timeout_ms=300))
    shared.wait_for("onStart")
    acknowledged: list[int] = []
    shared.receiver.store("x", None, lambda: acknowledged.append(1))
    tracker.send(StopReceiver())
    error = running.join()
    assert isinstance(error, ReceiverFailedError)
    assert "last blocks of receiver 3 could not be stored" in str(error)
    assert acknowledged == []


# -- the state machine -----------------------------------------------------------------------------


def test_an_illegal_change_of_state_raises() -> None:
    attempt = AttemptState(3)
    assert attempt.state is SupervisorState.INITIALIZED
    with pytest.raises(IllegalStateError):
        attempt.become_stopped()
    attempt.become_started()
    with pytest.raises(IllegalStateError):
        attempt.become_started()
    attempt.become_stopped()
    attempt.become_started()
    exit_report = ExitReport(ExitKind.DRIVER, "x")
    attempt.become_ended(exit_report)
    assert attempt.state is SupervisorState.STOPPED
    with pytest.raises(IllegalStateError):
        attempt.become_ended(exit_report)


def test_a_restart_is_asked_for_once_and_not_after_a_stop() -> None:
    attempt = AttemptState(3)
    request = RestartRequest("x", None, 1)
    assert not attempt.ask_restart(request), "it was never started"
    attempt.become_started()
    assert attempt.ask_restart(request)
    assert not attempt.ask_restart(request)
    attempt.become_stopped()
    assert not attempt.ask_restart(request), "still the same one"
    attempt.become_started()
    assert attempt.restart is None
    attempt.ask_stop(ExitReport(ExitKind.DRIVER, "first"), 1000.0)
    first = attempt.stop_by_s
    attempt.ask_stop(ExitReport(ExitKind.LOST, "second"), 1.0)
    assert first is not None
    assert attempt.stop_by_s is not None
    assert attempt.stop_by_s < first, "the time of a stop can only become shorter"
    attempt.ask_stop(ExitReport(ExitKind.LOST, "third"), 2000.0)
    assert attempt.stop_by_s < first
    assert attempt.stop == ExitReport(ExitKind.DRIVER, "first")
    assert not attempt.ask_restart(request)


def test_a_huge_error_is_cut_to_what_a_message_takes() -> None:
    text = error_text(ValueError("x" * 10_000_000))
    begin, told, end = text.split("\n")[0], text.split("\n")[1], text.split("\n")[2]
    assert begin.startswith("ValueError: xxx")
    assert (len(begin), len(end)) == (TEXT_LIMIT // 2, TEXT_LIMIT // 2 - 1)
    left_out = len("ValueError: \n") + 10_000_000 - TEXT_LIMIT
    assert told == f"… {left_out} characters left out …"
    assert error_text(None) == ""


def test_a_stop_that_waits_for_memory_gets_what_the_driver_releases_meanwhile(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    """Blocks of a level without a disk copy leave memory by release only; the queue has room."""

    class Fast(Quiet):
        def onStart(self) -> None:
            super().onStart()
            threading.Thread(target=self.receive).start()

        def receive(self) -> None:
            with suppress(IllegalStateError):
                while True:
                    self.store(b"x" * 4000)
                    self.shared.say("stored")

    level = ReceiverLaunch.storage_level_tuple(StorageLevel.MEMORY_ONLY)
    # Memory for four blocks of a MiB, which no interval seals before: all are full, and the fifth
    # waits.
    settings = replace(SETTINGS, block_interval_ms=60_000)
    running = run(Fast(shared), settings, storage_level=level)
    tracker.wait_for(lambda: sum(block.num_bytes for block in tracker.blocks) > 3 << 20)
    stored = -1
    while stored != len(shared.events):
        stored = len(shared.events)
        threading.Event().wait(0.3)
    tracker.send(StopReceiver(timeout_s=WAIT_S))
    shared.wait_for("onStop")
    threading.Event().wait(0.3)  # the last block is waited for by now
    full = [block.block_id for block in tracker.blocks]
    tracker.send(CleanupOldBlocks(tuple(full), ()))
    assert running.join() is None
    known = sum(block.num_records for block in tracker.blocks)
    assert known >= shared.events.count("stored"), "all that was taken is stored (I10)"


@pytest.mark.parametrize("shows_blocks", [True, False])
def test_a_block_of_up_to_256_kib_is_shown_before_it_is_logged_where_that_is_asked_for(
    run: Run, tracker: Tracker, shows_blocks: bool
) -> None:
    records = [b"a", b"b" * (256 << 10), b"c" * (250 << 10)]

    class Each:
        def run(self, context: ReceiverContext) -> None:
            for record in records:
                context.store([record])  # Returns when its block is durable.
            context.stopped.wait(WAIT_S)

    run(Each, shows_blocks=shows_blocks)
    assert tracker.wait_for_records(3) == records
    found = [
        found.block_id
        if isinstance(found, ShownBlock)
        else [each.block_id for each in found.blocks]
        for found in tracker.messages
        if isinstance(found, (ShownBlock, AddBlock))
    ]
    first, second, third = (block.block_id for block in tracker.blocks)
    if shows_blocks:
        assert found == [first, [first], [second], third, [third]]
    else:
        assert found == [[first], [second], [third]]


def test_a_block_is_shown_while_those_before_it_are_logged(
    run: Run, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_log = threading.Event()
    put: Any = BlockStore.put

    def held(self: BlockStore, block: Any) -> Any:
        assert may_log.wait(WAIT_S)
        return put(self, block)

    monkeypatch.setattr(BlockStore, "put", held)

    class Two:
        def run(self, context: ReceiverContext) -> None:
            context.store("first")
            context.stopped.wait(0.1)
            context.store("second")
            context.stopped.wait(WAIT_S)

    run(Two, shows_blocks=True)
    try:
        tracker.wait_for_count(ShownBlock, 2)
        assert tracker.of(AddBlock) == []
    finally:
        may_log.set()
    assert tracker.wait_for_records(2) == ["first", "second"]


def test_a_receiver_goes_on_where_its_blocks_cannot_be_shown(
    run: Run, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send: Any = Client.send

    def none_is_shown(self: Client, message: Message) -> None:
        if isinstance(message, ShownBlock):
            raise FrameTooLargeError("the driver", 2, 1)
        send(self, message)

    monkeypatch.setattr(Client, "send", none_is_shown)

    class Two:
        def run(self, context: ReceiverContext) -> None:
            context.store(["first"])
            context.store(["second"])
            context.stopped.wait(WAIT_S)

    run(Two, shows_blocks=True)
    assert tracker.wait_for_records(2) == ["first", "second"]
    assert tracker.of(ReportError) == []
