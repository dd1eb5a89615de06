"""The tracker over real sockets; the cases of Spark's ReceiverTrackerSuite and what it promises."""

from __future__ import annotations

import logging
import math
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from py4j.protocol import Py4JNetworkError

from penstock.blockstore import BlockAccess, BlockKind, read_block
from penstock.blockstore.reading import reader
from penstock.continuous import ContinuousOperation, FunctionSink
from penstock.errors import IllegalStateError, PenstockError
from penstock.receiver import Receiver
from penstock.settings import Settings
from penstock.tracker import (
    ExecutorLocation,
    KeptStreamSettings,
    ReceiverPickleError,
    ReceiverState,
    Retention,
    TaskEnd,
    TrackerState,
    _control,
)
from penstock.tracker.cluster import SparkCluster
from penstock.tracker.receivers import jobs
from penstock.wal import LogFolderInUseError
from penstock.wire import Client
from penstock.wire.messages import (
    BlockServerRegistered,
    CleanupOldBlocks,
    CommitPlace,
    EnsureBlockServer,
    FindEnd,
    MemoryPlace,
    Ok,
    Refused,
    RegisterBlockServer,
    Registered,
    ReleaseBlocks,
    ReportRateStatus,
    SealBlock,
    SegmentPlace,
    SkippedBlock,
    SlowBlock,
    StopBlockServer,
    StopReceiver,
    UpdateRateLimit,
)
from tests.blockstore.test_blocks import make_store, put
from tests.system.leftovers import await_that
from tests.tracker.ledger_cases import block
from tests.tracker.tracker_cases import (
    WAIT_S,
    Attempt,
    Events,
    Source,
    ThreadCluster,
    make_tracker,
    running_tracker,
)

# -- ReceiverTrackerSuite --------------------------------------------------------------------------


def test_send_rate_update_to_receivers(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        first = cluster.next_attempt()
        assert first.register() == Registered(1 << 32, None, None)
        tracker.send_rate_update(0, 100.5)
        assert first.next_message() == UpdateRateLimit(0, 100.5)
        first.fail()
        # A receiver that starts again gets the rate in force at once, unlike in the original.
        assert cluster.next_attempt().register().records_per_second == 100.5
        assert tracker.send_rate_update(99, 1.0) == 0


def test_rates_have_versions_and_may_be_lifted(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        assert tracker.send_rate_update(0, 5.0, 100.0) == 1
        attempt = cluster.next_attempt()
        assert attempt.register() == Registered(1 << 32, None, 5.0, 100.0, 1)
        assert tracker.send_rate_update(0, None) == 2
        assert attempt.next_message() == UpdateRateLimit(0, None, None, 2)
        attempt.fail()
        assert cluster.next_attempt().register() == Registered(2 << 32, None, None, None, 2)


def test_a_stream_with_too_much_unread_is_paused_until_it_is_read(tmp_path: Path) -> None:
    kept = {0: KeptStreamSettings("s", Retention(None), max_backlog_bytes=2000)}
    settings = Settings(receiver_byte_rate="500/second")
    with running_tracker(tmp_path, kept=kept, settings=settings) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        first = attempt.register().first_block_number
        blocks = [block(0, attempt.launch.attempt, first + number) for number in range(2)]
        assert attempt.add(blocks[0]) == Ok()
        assert attempt.add(blocks[1]) == Ok()
        # The rate that the receiver has from its settings stays.
        assert attempt.next_message() == UpdateRateLimit(0, None, 500.0, 1, is_paused=True)
        assert tracker.waits_for_consumers(0)
        # Rates may come meanwhile, and it is started again: it is still paused.
        tracker.send_rate_update(0, 5.0, 500.0)
        assert attempt.next_message() == UpdateRateLimit(0, 5.0, 500.0, 2, is_paused=True)
        attempt.fail()
        attempt = cluster.next_attempt()
        assert attempt.register().is_paused
        epoch = tracker.ledger.places.stream(0).epoch
        assert attempt.ask(FindEnd(0, epoch, "c", 1)).place == 2
        assert attempt.next_message() == UpdateRateLimit(0, 5.0, 500.0, 3)
        assert not tracker.waits_for_consumers(0)
        # Nothing of it has gone.
        assert tracker.ledger.places.stream(0).first == 0


def test_blocks_are_as_short_as_a_function_likes_where_they_cost_nothing_later(
    tmp_path: Path,
) -> None:
    operation = ContinuousOperation(str, FunctionSink(print))
    at_once, stays = Retention(0), Retention(1000)
    for retention, continuous, root, is_early in (
        (at_once, operation, "", True),
        (at_once, None, "", False),
        (stays, operation, "", False),
        (at_once, operation, "s3://bucket/logs", False),
    ):
        kept = {0: KeptStreamSettings("s", retention, continuous=continuous)}
        tracker = make_tracker(tmp_path, ThreadCluster(), Events(), kept=kept)
        if root:
            tracker._logs = replace(tracker._logs, root=root)
        assert tracker._seals_early(0) is is_early
        tracker.ledger.close()


def test_blocks_are_shown_before_they_are_logged_where_that_is_asked_for_only(
    tmp_path: Path,
) -> None:
    durable = ContinuousOperation(str, FunctionSink(print))
    stored = replace(durable, deliver="stored")
    for continuous, are_shown in ((stored, True), (durable, False), (None, False)):
        kept = {0: KeptStreamSettings("s", Retention(0), continuous=continuous)}
        tracker = make_tracker(tmp_path, ThreadCluster(), Events(), kept=kept)
        assert tracker._shows_blocks(0) is are_shown
        tracker.ledger.close()


def test_a_receiver_hears_what_was_taken_over_and_was_over_before_it_came_back(
    tmp_path: Path,
) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        attempt.register()
        tracker.send_rate_update(0, 5.0, None, is_paused=True)
        assert attempt.next_message() == UpdateRateLimit(0, 5.0, None, 1, is_paused=True)
        tracker.send_rate_update(0, 5.0, None, is_paused=True, takes_over=True)
        paused = UpdateRateLimit(0, 5.0, None, 2, is_paused=True, taken_over_version=2)
        assert attempt.next_message() == paused
        tracker.send_rate_update(0, 5.0, None)
        assert attempt.next_message() == UpdateRateLimit(0, 5.0, None, 3, taken_over_version=2)
        answer = attempt.register()
        told = answer.rate_version, answer.is_paused, answer.taken_over_version
        assert told == (3, False, 2)


def test_what_an_earlier_run_left_unread_holds_the_receiver_from_its_start(tmp_path: Path) -> None:
    kept = {0: KeptStreamSettings("s", Retention(None), max_backlog_bytes=1000)}
    with running_tracker(tmp_path, kept=kept) as (_, cluster, _):
        attempt = cluster.next_attempt()
        first = attempt.register().first_block_number
        assert attempt.add(block(0, attempt.launch.attempt, first)) == Ok()
    with running_tracker(tmp_path, kept=kept) as (_, cluster, _):
        assert cluster.next_attempt().register().is_paused


@pytest.mark.slow
def test_a_receiver_that_does_not_start_is_told_ever_more_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_control, "_LATE_START_S", 0.05)
    told = "1 of 1 receivers have waited for more than {} s to start (streams 0)"

    def await_told(after_s: str) -> None:
        end_s = time.monotonic() + WAIT_S
        while told.format(after_s) not in caplog.text:
            assert time.monotonic() < end_s, caplog.text
            time.sleep(0.01)

    with (
        caplog.at_level("WARNING", logger="penstock.tracker"),
        running_tracker(tmp_path) as (_, cluster, _),
    ):
        attempt = cluster.next_attempt()
        await_told("0.05")
        await_told("0.1")
        attempt.register()
        count = caplog.text.count("have waited")
        time.sleep(1.0)
        assert caplog.text.count("have waited") <= count + 1  # One may have been on its way.


def test_only_the_latest_attempt_is_heard_of_its_rate(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (_, cluster, events):
        first = cluster.next_attempt()
        first.register()
        first.fail()
        second = cluster.next_attempt()
        second.register()
        for name in (first.launch.attempt, "another", second.launch.attempt):
            report = ReportRateStatus(0, name, 1, 7, 0.5, True, 0.0, 1.0)
            assert second.ask(report) == Ok()
        assert events.rates.get(timeout=WAIT_S) == report
        assert events.rates.empty()


def test_should_restart_receiver_after_stopping_it(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (_, cluster, events):
        first = cluster.next_attempt()
        first.register()
        assert events.next("started").active
        first.deregister("test")
        assert not events.next("stopped").active
        # `Receiver.stop` ends the attempt, not the receiver.
        first.fail()
        second = cluster.next_attempt()
        assert second.launch.attempt != first.launch.attempt
        second.register()
        events.next("started")


def test_get_allocated_executors(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        assert tracker.tracking_infos()[0].executor_id == ""
        attempt.register()
        (info,) = tracker.tracking_infos().values()
        assert (info.stream_id, info.name, info.active) == (0, "Source-0", True)
        assert (info.location, info.executor_id) == ("127.0.0.1", "driver")
        assert tracker.tracking_infos()[0].active
        attempt.deregister()
        assert not tracker.tracking_infos()[0].active


@pytest.mark.parametrize(("stream", "name"), [("orders", "orders-0"), ("", "Source-0")])
def test_a_receiver_is_called_as_its_stream_where_that_has_a_name(
    tmp_path: Path, stream: str, name: str
) -> None:
    with running_tracker(tmp_path, receivers={0: (Source(), stream)}) as (_, cluster, events):
        cluster.next_attempt().register()
        assert events.next("started").name == name


# -- life ------------------------------------------------------------------------------------------


def test_a_tracker_is_started_once_and_may_be_stopped_at_any_time(tmp_path: Path) -> None:
    unstarted = make_tracker(tmp_path / "a", ThreadCluster(), Events())
    assert unstarted.state is TrackerState.INITIALIZED
    unstarted.stop()
    unstarted.stop()
    with pytest.raises(IllegalStateError, match="already started"):
        unstarted.start()
    with (
        running_tracker(tmp_path / "b") as (tracker, _, _),
        pytest.raises(IllegalStateError, match="ReceiverTracker already started"),
    ):
        tracker.start()
    assert tracker.state is TrackerState.STOPPED


def test_i10_a_graceful_stop_lets_receivers_report_their_last_blocks(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, events):
        attempt = cluster.next_attempt()
        attempt.register()
        stopping = threading.Thread(target=tracker.stop_receiving, args=(True, WAIT_S))
        stopping.start()
        assert attempt.next_message() == StopReceiver(timeout_s=WAIT_S)
        assert attempt.add(block(0, attempt.launch.attempt, attempt.first)) == Ok()
        attempt.deregister("Stopped by driver")
        # Also after it deregistered: the answer to the first try may have been lost.
        assert attempt.add(block(0, attempt.launch.attempt, attempt.first + 1)) == Ok()
        attempt.finish()
        stopping.join(WAIT_S)
        assert not stopping.is_alive()
        assert cluster.ended_for_good()
        assert cluster.cancelled == []
        # The last batches are still to come.
        tracker.allocate_blocks_to_batch(5)
        assert len(tracker.get_blocks_of_batch_and_stream(5, 0)) == 2
        assert events.until("stopped").last_error_message == "Stopped by driver"


def test_the_log_tells_of_each_receiver_and_of_an_error_without_a_stack_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receivers: dict[int, tuple[Receiver, str]] = {n: (Source(), f"Source [{n}]") for n in (0, 1)}
    with (
        running_tracker(tmp_path, receivers=receivers) as (_, cluster, events),
        caplog.at_level(logging.WARNING, "penstock.tracker"),
    ):
        for _ in receivers:
            attempt = cluster.next_attempt()
            attempt.register()
            for _ in range(2):
                attempt.report("discarded: it is too large", "ValueError: it is too large\n")
            attempt.report("odd line", "ValueError: it is too large\n")
            for _ in range(3):
                assert "too large" in events.until("error").last_error
    for number in receivers:
        told = [line for line in caplog.messages if line.startswith(f"Receiver {number}: ")]
        assert told == [
            f"Receiver {number}: discarded: it is too large",
            f"Receiver {number}: odd line\nValueError: it is too large",
        ]


def test_the_log_says_why_a_job_failed_in_spite_of_what_spark_ends_its_text_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "Traceback (most recent call last):\nLostError: no connection\n SQLSTATE: 38000\n\tat x"
    with (
        running_tracker(tmp_path) as (_, cluster, events),
        caplog.at_level(logging.WARNING, "penstock.tracker"),
    ):
        cluster.next_attempt().fail(RuntimeError(text))
        events.until("error")
    assert "The job of receiver 0 failed: LostError: no connection" in caplog.messages


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Job 3 cancelled because SparkContext was shut down\n\tat x"),
        ConnectionRefusedError(111, "Connection refused"),
        Py4JNetworkError("Answer from Java side is empty"),
    ],
    ids=["shut down", "refused", "no answer"],
)
def test_a_job_that_ends_with_spark_is_neither_told_nor_run_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    with (
        running_tracker(tmp_path) as (_, cluster, events),
        caplog.at_level(logging.WARNING, "penstock.tracker"),
    ):
        attempt = cluster.next_attempt()
        attempt.register()
        attempt.fail(error)
        # By which the program is told that Spark is over.
        assert events.until("permanent")[:2] == (0, "Receiver 0 ended with its SparkContext")
        assert cluster.ended_for_good()
    assert caplog.messages == []


def test_a_receiver_that_misses_the_stop_is_cancelled_and_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, events):
        cluster.next_attempt().register()
        with caplog.at_level(logging.WARNING, "penstock.tracker"):
            tracker.stop_receiving(True, 0.1)
        assert len(cluster.cancelled) == 1
        assert "Receiver 0 exited but didn't deregister" in caplog.text
        assert not events.until("stopped").active
        assert cluster.ended_for_good()


def test_a_receiver_that_registers_while_the_tracker_stops_is_refused(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        attempt.connect()
        # Spark kills a task only after a while.
        cluster.ignores_cancel = True
        stopping = threading.Thread(target=tracker.stop_receiving, args=(True, WAIT_S))
        stopping.start()
        while tracker.state is TrackerState.STARTED:
            stopping.join(0.01)
        answer = attempt.register()
        assert isinstance(answer, Refused)
        assert "stops" in answer.reason
        attempt.finish()
        stopping.join(WAIT_S)
        assert not stopping.is_alive()


def test_a_second_application_on_the_same_log_folder_gets_a_clear_error(tmp_path: Path) -> None:
    with (
        running_tracker(tmp_path),
        pytest.raises(LogFolderInUseError, match="give each application its own folder"),
    ):
        make_tracker(tmp_path, ThreadCluster(), Events())


def test_blocks_of_the_run_before_are_there_after_a_restart(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        attempt.register()
        name = attempt.launch.attempt
        attempt.add(block(0, name, attempt.first), block(0, name, attempt.first + 1, position=b"2"))
        tracker.allocate_blocks_to_batch(7)
        attempt.add(block(0, name, attempt.first + 2, position=b"3"))
    with running_tracker(tmp_path) as (tracker, cluster, _):
        # Batch 7 was never finished: its blocks come before the one that no batch had taken.
        assert tracker.get_blocks_of_batch(7) == {}
        assert [info.position for info in tracker.ledger.unallocated_blocks(0)] == [
            None,
            b"2",
            b"3",
        ]
        again = cluster.next_attempt().register()
        assert again.last_position == b"3"
        assert again.first_block_number == 2 << 32


# -- errors at the start ---------------------------------------------------------------------------


def test_no_executor_is_an_error(tmp_path: Path) -> None:
    tracker = make_tracker(tmp_path, ThreadCluster(executors=()), Events())
    with pytest.raises(PenstockError, match="no executor is up"):
        tracker.start()


def test_a_receiver_that_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    source = Source()
    source.lock = threading.Lock()  # type: ignore[attr-defined]  # the mistake
    tracker = make_tracker(tmp_path, ThreadCluster(), Events(), receivers={4: (source, "S [4]")})
    with pytest.raises(ReceiverPickleError, match=r"Source of stream 4.*onStart") as error:
        tracker.start()
    assert error.value.stream_id == 4


# -- restarts --------------------------------------------------------------------------------------


def test_a_receiver_is_started_again_until_it_ends_for_good(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (_, cluster, events):
        attempts = []
        for _ in range(3):
            attempts.append(cluster.next_attempt())
            attempts[-1].register()
            attempts[-1].fail()
        # Spark had started the task a second time: it ended at once, and that says nothing.
        cluster.next_attempt().finish(TaskEnd.RETRY)
        last = cluster.next_attempt()
        last.register()
        last.deregister("the source has ended")
        last.finish(TaskEnd.ENDED)
        assert len({attempt.launch.attempt for attempt in attempts}) == 3
        for _ in range(3):
            events.next("started")
            events.next("error")
            events.next("stopped")
        events.next("started")
        assert events.next("stopped").last_error_message == "the source has ended"
        assert cluster.ended_for_good()


def test_an_attempt_that_is_replaced_while_it_registers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        old = cluster.next_attempt()
        register = tracker.ledger.register_attempts
        later: list[Attempt] = []

        def replaced_meanwhile(attempts: Any) -> Any:
            if not later:
                old.end.set_exception(RuntimeError("executor lost"))
                later.append(cluster.next_attempt())
            return register(attempts)

        monkeypatch.setattr(tracker.ledger, "register_attempts", replaced_meanwhile)
        assert isinstance(old.register(), Refused)
        assert not tracker.tracking_infos()[0].active
        assert isinstance(later[0].register(), Registered)
        assert tracker.tracking_infos()[0].active


def test_an_older_attempt_is_fenced_by_a_newer(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        old = cluster.next_attempt()
        old.register()
        # Its task is lost to Spark, but its process and its connection live on.
        old.end.set_exception(RuntimeError("executor lost"))
        new = cluster.next_attempt()
        assert old.add(block(0, old.launch.attempt, old.first)) == Ok()
        new.register()
        answer = old.add(block(0, old.launch.attempt, old.first + 1))
        assert isinstance(answer, Refused)
        assert isinstance(old.register(), Refused)
        old.report("too late", "")
        assert new.add(block(0, new.launch.attempt, new.first)) == Ok()
        assert tracker.tracking_infos()[0].last_error_message != "too late"
        old.close()


def test_what_an_attempt_of_long_ago_reports_is_no_error_of_its_stream(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, events):
        old = cluster.next_attempt()
        old.register()
        old.fail()
        assert events.until("error").last_error_message == "The job of receiver 0 failed"
        new = cluster.next_attempt()
        new.register()
        late = Attempt(old.launch, ())
        late.report("late", "Traceback of long ago")
        late.report("later", "Traceback of long ago", permanent=True)
        assert late.listen("tcp://host:1") == Ok()
        new.report("of now", "Traceback of now")
        assert events.until("error").last_error_message == "of now"
        info = tracker.tracking_infos()[0]
        assert (info.attempt, info.addresses) == (new.launch.attempt, ())
        late.close()


def test_the_addresses_of_a_receiver_are_those_of_the_attempt_that_runs(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):

        def addresses() -> tuple[str, ...]:
            return tracker.tracking_infos()[0].addresses

        old = cluster.next_attempt()
        old.register()
        old.listen("http://h1:8080/")
        assert addresses() == ("http://h1:8080/",)
        old.listen("http://h1:8080/", "http://h1:8081/")
        old.register()  # A mere reconnect.
        assert addresses() == ("http://h1:8080/", "http://h1:8081/")
        old.end.set_exception(RuntimeError("executor lost"))
        new = cluster.next_attempt()
        assert addresses() == ()
        new.register()
        old.listen("http://h1:8080/")
        assert addresses() == ()
        new.listen("http://h2:8080/")
        assert addresses() == ("http://h2:8080/",)
        new.deregister()
        assert addresses() == ()
        old.close()


def test_a_permanent_error_is_told_and_not_tried_again(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (_, cluster, events):
        attempt = cluster.next_attempt()
        attempt.report("cannot be made", "Traceback: no such setting", permanent=True)
        assert events.next("error").last_error == "Traceback: no such setting"
        assert events.next("permanent") == (0, "cannot be made", "Traceback: no such setting")
        attempt.finish(TaskEnd.ENDED)
        assert cluster.ended_for_good()


def test_a_task_that_raises_in_python_at_each_start_is_given_up(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (_, cluster, events):
        for _ in range(3):
            error = RuntimeError("Traceback (most recent call last):\nModuleNotFoundError: mine")
            cluster.next_attempt().fail(error)
            assert events.next("error").last_error_time_ms > 0
        stream, message, text = events.next("permanent")
        assert (stream, "3 times" in message, "ModuleNotFoundError" in text) == (0, True, True)
        assert cluster.ended_for_good()


def test_what_attempts_dropped_adds_up_and_never_shrinks(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        first = cluster.next_attempt()
        first.register()
        for told, known in ((3, 3), (5, 5), (4, 5)):
            first.drop(told)
            assert tracker.tracking_infos()[0].dropped == known
        first.deregister("restarting")
        first.register()
        first.drop(6)
        first.fail()
        second = cluster.next_attempt()
        second.register()
        assert tracker.tracking_infos()[0].dropped == 6
        second.drop(2)
        assert tracker.tracking_infos()[0].dropped == 8


def test_reported_errors_reach_listeners_with_text_and_time(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (_, cluster, events):
        attempt = cluster.next_attempt()
        attempt.register()
        events.next("started")
        attempt.report("odd line", "Traceback …")
        info = events.next("error")
        assert (info.last_error_message, info.last_error) == ("odd line", "Traceback …")
        assert info.active
        assert info.last_error_time_ms > 0


def test_a_receiver_that_restarts_itself_registers_again_under_its_numbers(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (_, cluster, events):
        attempt = cluster.next_attempt()
        first = attempt.register()
        attempt.add(block(0, attempt.launch.attempt, attempt.first, position=b"p"))
        attempt.deregister("restarting")
        again = attempt.register()
        assert again.first_block_number == first.first_block_number
        assert again.last_position == b"p"
        assert [events.next(kind).active for kind in ("started", "stopped", "started")] == [
            True,
            False,
            True,
        ]


def test_a_reconnect_is_not_a_new_start(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, events):
        attempt = cluster.next_attempt()
        attempt.register()
        attempt.close()
        attempt.connect()
        assert attempt.register().first_block_number == 1 << 32
        # No block server of its host is connected: that may have been forgotten meanwhile.
        assert attempt.next_message() == EnsureBlockServer()
        tracker.send_rate_update(0, 5.0)
        assert attempt.next_message() == UpdateRateLimit(0, 5.0)
        events.next("started")
        assert events.rest() == []


def test_a_listener_that_raises_harms_nobody(tmp_path: Path) -> None:
    class Broken(Events):
        def receiver_started(self, info: object) -> None:
            raise ValueError("mine")

    cluster = ThreadCluster()
    tracker = make_tracker(tmp_path, cluster, Broken())
    tracker.start()
    try:
        attempt = cluster.next_attempt()
        assert isinstance(attempt.register(), Registered)
    finally:
        tracker.stop(timeout_s=0)
        cluster.close()


# -- placement -------------------------------------------------------------------------------------


def test_receivers_are_spread_and_a_misplaced_one_is_refused_but_not_for_ever(
    tmp_path: Path,
) -> None:
    executors = [ExecutorLocation("hostA", "0"), ExecutorLocation("hostB", "1")]
    cluster = ThreadCluster(is_local=False, executors=executors)
    receivers = {0: (Source("hostA"), "S [0]"), 1: (Source("hostB"), "S [1]")}
    with running_tracker(tmp_path, cluster=cluster, receivers=receivers) as (tracker, _, _):
        found = {
            attempt.launch.stream_id: attempt
            for attempt in (cluster.next_attempt(), cluster.next_attempt())
        }
        assert [found[n].locations for n in (0, 1)] == [(executors[0],), (executors[1],)]
        assert found[0].launch.executor_hosts == {"0": "hostA", "1": "hostB"}
        found[1].host, found[1].executor_id = "hostB", "1"
        assert isinstance(found[1].register(), Registered)
        attempt = found[0]
        for _ in range(3):
            attempt.host, attempt.executor_id = "hostC", "7"
            answer = attempt.register()
            assert isinstance(answer, Refused)
            assert "executor_hostA_0" in answer.reason
            attempt.finish()
            attempt = cluster.next_attempt()
        attempt.host, attempt.executor_id = "hostC", "7"
        assert isinstance(attempt.register(), Registered)
        assert tracker.tracking_infos()[0].location == "hostC"


# -- clean-up and block servers --------------------------------------------------------------------


def register_block_server(attempt: Attempt, host: str) -> tuple[Client, Attempt]:
    server = Attempt(attempt.launch, ())
    client = server.connect()
    answer = client.ask(RegisterBlockServer(host, ("127.0.0.1", 4711), 1), WAIT_S)
    assert answer == BlockServerRegistered(60.0)
    return client, server


def test_i4_released_blocks_are_deleted_by_the_living_attempt_that_wrote_them(
    tmp_path: Path,
) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        attempt.register()
        name, first = attempt.launch.attempt, attempt.first
        attempt.add(block(0, name, first, segment=1), block(0, name, first + 1, segment=2))
        tracker.allocate_blocks_to_batch(10)
        tracker.cleanup_old_blocks_and_batches(10)
        assert attempt.messages.empty()
        tracker.cleanup_old_blocks_and_batches(11)
        expected = [
            CleanupOldBlocks((f"input-0-{first}", f"input-0-{first + 1}"), ()),
            CleanupOldBlocks((), ((f"/log/0-{name}", 1),)),
        ]
        assert [attempt.next_message() for _ in expected] == expected
        # What was lost on its way when the connection broke is sent again.
        attempt.close()
        attempt.connect()
        attempt.register()
        assert [attempt.next_message() for _ in expected] == expected


def test_i4_what_an_ended_attempt_had_in_a_log_of_several_is_let_go_by_who_writes_it(
    tmp_path: Path,
) -> None:
    receivers = {n: (Source(), "Source") for n in range(2)}
    log = "s3://bucket/receivedData/process-1"
    with running_tracker(tmp_path, receivers=receivers) as (tracker, cluster, _):
        attempts = [cluster.next_attempt() for _ in receivers]
        ended, living = sorted(attempts, key=lambda attempt: attempt.launch.stream_id)
        for attempt in attempts:
            attempt.log = log
            assert isinstance(attempt.register(), Registered)
        name = ended.launch.attempt
        of_it = [
            msgspec.structs.replace(
                block(0, name, ended.first + n, segment=1),
                segment=SegmentPlace(f"{log}/0-{name}", 1 + n, 0, 100),
            )
            for n in range(2)
        ]
        for n in range(2):
            ended.add(of_it[n])
            tracker.allocate_blocks_to_batch(10 + n)
        ended.fail()
        assert cluster.next_attempt().launch.stream_id == 0
        # Its connection may be seen to end after its job; until then it is not over.
        attempt_of = tracker.ledger._state.attempts
        await_that("the attempt is over", lambda: attempt_of[name].ended, WAIT_S)
        tracker.cleanup_old_blocks_and_batches(11)
        assert living.next_message() == CleanupOldBlocks((), ((f"{log}/0-{name}", 1),))
        tracker.cleanup_old_blocks_and_batches(12)
        rest = ((f"{log}/0-{name}", 2), (f"{log}/0-{name}", -1))
        assert living.next_message() == CleanupOldBlocks((), rest)


def test_i4_a_log_of_several_on_a_disk_goes_whole_by_the_block_server_of_its_host(
    tmp_path: Path,
) -> None:
    receivers = {n: (Source(), "Source") for n in range(2)}
    log = "/receivedData/process-1"
    with running_tracker(tmp_path, receivers=receivers) as (tracker, cluster, _):
        attempts = sorted(
            (cluster.next_attempt() for _ in receivers), key=lambda one: one.launch.stream_id
        )
        for attempt in attempts:
            attempt.log = log
            attempt.register()
        client, server = register_block_server(attempts[0], "127.0.0.1")
        first = attempts[0].launch.attempt
        attempts[0].add(
            msgspec.structs.replace(
                block(0, first, attempts[0].first, segment=1),
                segment=SegmentPlace(f"{log}/0-{first}", 1, 0, 100),
            )
        )
        tracker.allocate_blocks_to_batch(10)
        for attempt in attempts:
            attempt.fail()
            cluster.next_attempt()
        ended = tracker.ledger._state.attempts
        names = [attempt.launch.attempt for attempt in attempts]
        await_that("they are over", lambda: all(ended[name].ended for name in names), WAIT_S)
        tracker.cleanup_old_blocks_and_batches(11)
        gone = server.next_message()
        assert isinstance(gone, ReleaseBlocks)
        assert (set(gone.attempts), gone.segments) == (set(names), ((log, -1),))
        client.close()


def test_memory_is_released_only_of_blocks_that_the_log_has(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        attempt.register()
        name, first = attempt.launch.attempt, attempt.first
        memory = MemoryPlace("/memory", 0, 100)
        logged = msgspec.structs.replace(block(0, name, first, segment=1), memory=memory)
        only_there = msgspec.structs.replace(logged, block_id=f"input-0-{first + 1}", segment=None)
        attempt.add(logged, only_there)
        tracker.allocate_blocks_to_batch(10)
        tracker.release_memory(10)
        assert attempt.next_message() == CleanupOldBlocks((f"input-0-{first}",), ())
        assert tracker.get_blocks_of_batch_and_stream(10, 0) == (logged, only_there)


def test_a_receiver_is_refused_for_good_once_the_ledger_was_removed(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (_, cluster, _):
        attempt = cluster.next_attempt()
        attempt.register()
        shutil.rmtree(tmp_path)
        refused = attempt.add(block(0, attempt.launch.attempt, attempt.first))
        attempt.fail()
        for answer in (refused, cluster.next_attempt().register()):
            assert isinstance(answer, Refused)
            assert "stop the program" in answer.reason


def test_memory_is_released_of_what_all_queries_that_are_there_have_read(tmp_path: Path) -> None:
    """The retention keeps the log; memory is for what is read next."""
    kept = {0: KeptStreamSettings("s", Retention(None))}
    with running_tracker(tmp_path, kept=kept) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        attempt.register()
        name, first = attempt.launch.attempt, attempt.first
        memory = MemoryPlace("/memory", 0, 100)
        blocks = [
            msgspec.structs.replace(block(0, name, first + n, segment=1), memory=memory)
            for n in range(6)
        ]
        attempt.add(*blocks)
        epoch = tracker.ledger.places.stream(0).epoch
        # One that is not there reads the log when it comes.
        tracker.ledger.places.commit(0, "asleep", 1)
        tracker.release_places()
        for consumer in ("quick", "slow"):
            attempt.ask(FindEnd(0, epoch, consumer, 0))
        for quick, slow in ((3, 2), (6, 2), (6, 4)):
            attempt.ask(CommitPlace(0, epoch, "quick", quick))
            attempt.ask(CommitPlace(0, epoch, "slow", slow))
            tracker.release_places()
        tracker.release_places()
        attempt.add(msgspec.structs.replace(block(0, name, first + 6, segment=1), memory=memory))
        assert tracker.seal_block(0)
        released = (blocks[:2], blocks[2:4])
        assert [attempt.next_message() for _ in range(3)] == [
            *(CleanupOldBlocks(tuple(found.block_id for found in some), ()) for some in released),
            SealBlock(),
        ]
        assert tracker.ledger.places.stream(0).first == 0


def test_i4_what_an_ended_attempt_left_is_deleted_by_the_block_server_of_its_host(
    tmp_path: Path,
) -> None:
    with running_tracker(tmp_path, remove_files=True) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        attempt.register()
        name, first = attempt.launch.attempt, attempt.first
        attempt.add(block(0, name, first, segment=1))
        tracker.allocate_blocks_to_batch(10)
        attempt.add(block(0, name, first + 1, segment=2))
        tracker.allocate_blocks_to_batch(20)
        attempt.fail()
        second = cluster.next_attempt()
        second.register()
        # Nobody is there to delete segment 1 yet: it is told when a server comes.
        tracker.cleanup_old_blocks_and_batches(11)
        client, server = register_block_server(second, "127.0.0.1")
        assert server.next_message() == ReleaseBlocks((), ((f"/log/0-{name}", 1),))
        assert tracker.block_access.servers == {"127.0.0.1": ("127.0.0.1", 4711)}
        tracker.cleanup_old_blocks_and_batches(21)
        assert server.next_message() == ReleaseBlocks((name,), ((f"/log/0-{name}", 2),))
        assert len(tracker.ledger.attempts) == 1
        second.fail()
        tracker.stop(timeout_s=0)
        assert server.next_message() == StopBlockServer(remove_files=True)
        client.close()


def test_a_receiver_that_still_waits_for_a_slot_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        cluster.next_attempt()
        tracker.stop_receiving(True, WAIT_S)
        assert cluster.cancelled
        assert cluster.ended_all()


class GoneCluster(ThreadCluster):
    """Answers once, at the start."""

    asked = 0

    def executors(self) -> list[ExecutorLocation]:
        self.asked += 1
        if self.asked > 1:
            raise ConnectionRefusedError(111, "Connection refused")
        return super().executors()


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("no answer")]
)
def test_a_job_of_a_jvm_that_is_gone_needs_not_be_cancelled(error: Exception) -> None:
    class GoneContext:
        def cancelJobsWithTag(self, tag: str) -> None:
            raise error

    context: Any = GoneContext()
    SparkCluster(context).cancel("tag")


def test_a_jvm_that_is_gone_between_two_jobs_is_told_as_the_end_of_spark(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_tracker(tmp_path, cluster=GoneCluster()) as (_, _, events):
        assert events.until("permanent")[:2] == (0, "Receiver 0 ended with its SparkContext")
    assert caplog.messages == []


class StoppedCluster(ThreadCluster):
    """Ends its job with its context, as PySpark does: what it needs for another is not there."""

    def run_task(self, *_: Any) -> TaskEnd:
        self.is_stopped = True
        raise AttributeError("'NoneType' object has no attribute 'removeJobTag'")


def test_a_job_of_a_context_that_was_stopped_is_told_as_the_end_of_spark(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_tracker(tmp_path, cluster=StoppedCluster()) as (_, _, events):
        assert events.until("permanent")[:2] == (0, "Receiver 0 ended with its SparkContext")
    assert caplog.messages == []


class LateCluster(ThreadCluster):
    """Submits a job only when it was cancelled once, too early."""

    def run_task(self, *job: Any) -> TaskEnd:
        await_that("the stop cancelled it", lambda: self.cancelled)
        return super().run_task(*job)


def test_a_job_that_is_submitted_just_after_the_stop_cancelled_it_is_cancelled_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_tracker(tmp_path, cluster=LateCluster()) as (tracker, cluster, _):
        await_that(
            "its job was made",
            lambda: tracker.tracking_infos()[0].state is ReceiverState.SCHEDULED,
        )
        tracker.stop_receiving(True, WAIT_S)
        assert cluster.ended_all()
    assert "have not ended in time" not in caplog.text


def test_a_stop_that_was_interrupted_can_be_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        attempt.register()

        def interrupt(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(tracker, "_await_jobs", interrupt)
            with pytest.raises(KeyboardInterrupt):
                tracker.stop_receiving(True, WAIT_S)
        stopping = threading.Thread(target=tracker.stop, args=(True, WAIT_S))
        stopping.start()
        attempt.obey()
        stopping.join(WAIT_S)
        assert tracker.state is TrackerState.STOPPED
        assert cluster.cancelled == []


def test_a_lost_block_server_is_replaced_by_a_receiver_of_its_host(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        attempt.register()
        client, _ = register_block_server(attempt, "127.0.0.1")
        client.close()
        assert attempt.next_message() == EnsureBlockServer()
        # It may live on for its lease; who reads meanwhile may still try.
        assert "127.0.0.1" in tracker.block_access.servers


def test_a_receiver_is_asked_for_a_block_server_until_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One whose process is only stopped keeps others from starting, and may be killed later."""
    monkeypatch.setattr(_control, "_SERVER_LOOK_S", 0.05)
    with running_tracker(tmp_path) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        attempt.register()
        client, _ = register_block_server(attempt, "127.0.0.1")
        client.close()
        for _ in range(4):
            assert attempt.next_message() == EnsureBlockServer()
        register_block_server(attempt, "127.0.0.1")
        while tracker._block_servers.is_lost("127.0.0.1"):
            threading.Event().wait(0.01)
        told = [each for each in caplog.messages if "the block server of 127.0.0.1" in each]
        assert [each.partition(" 127.0.0.1 ")[2][:21] for each in told[:2]] == [
            "is gone; a receiver t",
            "has not come back for",
        ]
        assert len(told) == 2


def test_a_block_server_that_died_while_no_receiver_ran_is_replaced_by_the_next(
    tmp_path: Path,
) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, events):
        attempt = cluster.next_attempt()
        attempt.register()
        client, _ = register_block_server(attempt, "127.0.0.1")
        attempt.deregister("restarting")
        events.until("stopped")
        client.close()
        while tracker._block_servers.is_served("127.0.0.1"):
            threading.Event().wait(0.01)
        attempt.register()
        assert attempt.next_message() == EnsureBlockServer()


def test_a_message_that_is_not_for_the_tracker_is_refused(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (_, cluster, _):
        attempt = cluster.next_attempt()
        assert isinstance(attempt.ask(StopReceiver()), Refused)
        assert isinstance(attempt.register(), Registered)


def test_i9_the_secret_is_in_no_repr(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        launch = cluster.next_attempt().launch
        shown = repr(launch) + repr(tracker.block_access) + repr(tracker)
        assert repr(launch.link.secret) not in shown
        assert launch.link.secret.hex() not in shown
        assert len(launch.link.secret) == 32


def test_settings_reach_the_receiver(tmp_path: Path) -> None:
    settings = Settings(block_interval_ms=77, tracker_bind_address="127.0.0.2")
    with running_tracker(tmp_path, settings=settings) as (_, cluster, _):
        launch = cluster.next_attempt().launch
        assert launch.settings == settings
        assert launch.link.tracker_address[0] == "127.0.0.2"
        assert launch.logs.application_id == "app-1"


def test_a_block_that_batches_skip_is_counted_and_told_once(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, events):
        attempt = cluster.next_attempt()
        attempt.register()
        events.next("started")
        for block_id in ("input-0-1", "input-0-1", "input-0-2"):
            assert attempt.ask(SkippedBlock(0, block_id, "no host has it")) == Ok()
        assert tracker.skipped_blocks == 2
        assert isinstance(attempt.ask(SkippedBlock(9, "input-9-1", "")), Refused)
        assert tracker.skipped_blocks == 2
        texts = [events.next("error").last_error_message for _ in range(2)]
        assert ["input-0-1" in texts[0], "input-0-2" in texts[1]] == [True, True]
        assert events.rest() == []


def test_a_task_tells_of_a_block_that_was_slow_to_read_and_of_many_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path)
    stored = put(store, BlockKind.BINARY, [b"one"])
    with running_tracker(tmp_path) as (tracker, cluster, _):
        cluster.next_attempt().register()
        info = msgspec.structs.replace(stored, stream_id=0, memory=MemoryPlace("/gone", 0, 10))

        def read() -> list[SlowBlock]:
            with read_block(info, tracker.block_access) as found:
                assert list(found.records()) == [b"one"]
            return tracker.take_slow_blocks()

        assert read() == []
        monkeypatch.setattr(reader, "_SLOW_S", 0.0)
        (told,) = read()
        assert (told.stream_id, told.block_id, told.batch_ms) == (0, stored.block_id, -1)
        assert told.tried.startswith("memory /gone: ")
        assert f"read block {stored.block_id}" in caplog.text
        assert read() == []
    # A tracker that is gone, as in a test of blocks alone, is not waited for.
    monkeypatch.setattr(reader, "_slow_told_s", -math.inf)
    with read_block(stored, BlockAccess()) as found:
        assert list(found.records()) == [b"one"]
    store.close()


def test_each_error_that_is_reported_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_tracker(tmp_path) as (_, cluster, events):
        attempt = cluster.next_attempt()
        attempt.register()
        attempt.report("odd line", "Traceback of it")
        events.until("error")
        attempt.report("bad setting", "Traceback of that", permanent=True)
        assert events.until("permanent") == (0, "bad setting", "Traceback of that")
        assert "Receiver 0: odd line" in caplog.text
        assert "Traceback of it" in caplog.text
        assert caplog.text.count("bad setting") == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "Job aborted\n\tat org.apache.X\nCaused by: java.io.IOException: disk\n\t... 9 more\n",
            "Caused by: java.io.IOException: disk",
        ),
        ("first\nJob 3 cancelled\n\tat org.apache.X(X.scala:1)\n\t... 9 more\n", "Job 3 cancelled"),
        (
            "Python worker exited unexpectedly (crashed)\nCaused by: java.io.EOFException\n",
            jobs._OF_DEAD_PROCESS,
        ),
        (
            "Python worker exited unexpectedly (crashed): Fatal Python error: Aborted\n\nThread 1",
            "its process crashed: Aborted",
        ),
        (
            'Traceback (most recent call last):\n  File "x.py", line 1, in f\nValueError: bad\n\n',
            "ValueError: bad",
        ),
    ],
    ids=["cause", "java", "process", "crash", "python"],
)
def test_a_failed_job_is_told_by_the_line_that_says_most(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, line: str
) -> None:
    with running_tracker(tmp_path) as (_, cluster, events):
        attempt = cluster.next_attempt()
        attempt.register()
        attempt.fail(RuntimeError(text))
        assert events.until("error").last_error == f"RuntimeError: {text}"
        assert f"The job of receiver 0 failed: {line}" in caplog.messages
        # So that what is shown of the end needs not say that it does not know why.
        assert events.until("stopped").last_error_message == "The job of receiver 0 failed"


def test_receivers_that_register_at_one_time_share_a_record_of_the_driver_log(
    tmp_path: Path,
) -> None:
    streams = range(20)
    receivers: dict[int, tuple[Receiver, str]] = {one: (Source(), f"s{one}") for one in streams}
    with running_tracker(tmp_path, receivers=receivers) as (tracker, cluster, _):
        attempts = [cluster.next_attempt() for _ in streams]
        clients = [attempt.connect() for attempt in attempts]
        free = threading.Event()
        tracker._endpoint._control.post(lambda: free.wait(WAIT_S))
        before = tracker.ledger._driver_log.records
        asked = [
            client.ask_async(attempt.registration())
            for client, attempt in zip(clients, attempts, strict=True)
        ]
        while len(tracker._endpoint._registering) < len(streams):
            assert not any(answer.done() for answer in asked)
            free.wait(0.001)
        free.set()
        answers = [answer.result(WAIT_S) for answer in asked]
        assert all(isinstance(answer, Registered) for answer in answers)
        assert tracker.ledger._driver_log.records == before + 1
        for attempt, answer in zip(attempts, answers, strict=True):
            stream, first = attempt.launch.stream_id, answer.first_block_number
            assert attempt.add(block(stream, attempt.launch.attempt, first)) == Ok()
