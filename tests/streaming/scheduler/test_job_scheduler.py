"""What a stop lets begin, what it gives up, and what listeners are told of that."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.listeners.events import BatchCompleted, OutputOperationCompleted
from penstock.listeners.input_info import BatchInput
from penstock.runtime.clock import ManualClock
from penstock.streaming.dstream.job import Job, JobSet
from penstock.streaming.errors import OutputOperationError
from penstock.streaming.scheduler import job_scheduler
from penstock.streaming.scheduler.job_scheduler import JobScheduler
from tests.bounds import HANG_S
from tests.doubles import UntoldError

WAIT_S = HANG_S


class Scope:
    """Stands in for Spark: its jobs are functions that end when they are cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.ended = ""

    @contextmanager
    def job(self, job: Job) -> Iterator[None]:
        yield

    def why_ended(self) -> str:
        return self.ended

    def cancel_jobs(self) -> None:
        self.cancelled.set()


class Posted:
    def __init__(self) -> None:
        self.events: list[Any] = []

    def post(self, event: Any) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class Run:
    def __init__(self, threads: int = 1) -> None:
        self.scope, self.bus = Scope(), Posted()
        self.errors: list[BaseException] = []
        self.began: list[tuple[int, int]] = []
        self.scheduler = JobScheduler(
            self.scope,  # type: ignore[arg-type]  # stands in for it
            batch_ms=1000,
            concurrent_jobs=threads,
            clock=ManualClock(),
            bus=self.bus,  # type: ignore[arg-type]  # stands in for it
            on_error=self.errors.append,
        )

    def submit(self, time_ms: int, *functions: Callable[[], None], records: int = 0) -> None:
        def job(number: int, function: Callable[[], None]) -> Job:
            def run() -> None:
                self.began.append((time_ms, number))
                function()

            return Job(time_ms, number, "", "", run)

        jobs = tuple(job(number, function) for number, function in enumerate(functions))
        self.scheduler.submit_job_set(JobSet(time_ms, jobs, {0: BatchInput(0, records)}))

    def until_began(self, count: int) -> None:
        pause = threading.Event()
        while len(self.began) < count:
            assert not pause.wait(0.002)


def nothing() -> None:
    pass


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(job_scheduler, "_INTERRUPTED_S", 0.1)
    made = Run()
    yield made
    made.scheduler.stop(WAIT_S)


def test_no_output_operation_begins_after_a_stop(run: Run) -> None:
    release = threading.Event()
    run.scheduler.start(lambda _: None)
    run.submit(1000, lambda: release.wait(WAIT_S) and None, nothing, records=3)
    run.submit(2000, nothing, records=4)
    run.until_began(1)
    run.scheduler.stop(0.0)
    release.set()
    run.scheduler._threads[0].join(WAIT_S)
    assert run.began == [(1000, 0)]
    assert run.scheduler.given_up() == {1000: {0: 3}, 2000: {0: 4}}
    assert run.scheduler.pending_times() == [1000, 2000]
    assert run.bus.of(BatchCompleted) == []


def test_a_batch_that_comes_after_a_stop_is_given_up_and_not_forgotten(run: Run) -> None:
    run.scheduler.start(lambda _: None)
    run.scheduler.stop(WAIT_S)
    run.submit(1000, nothing, records=3)
    assert run.scheduler.given_up() == {1000: {0: 3}}
    assert run.scheduler.pending_times() == [1000]


def test_a_cancelled_batch_is_not_told_as_completed(run: Run) -> None:
    def cancelled() -> None:
        assert run.scope.cancelled.wait(WAIT_S)
        raise RuntimeError("the job was cancelled")

    run.scheduler.start(lambda _: None)
    run.submit(1000, cancelled)
    run.until_began(1)
    run.scheduler.stop(0.0)
    run.scheduler._threads[0].join(WAIT_S)
    (operation,) = run.bus.of(OutputOperationCompleted)
    assert "the job was cancelled" in operation.outputOperationInfo().failureReason()
    assert run.bus.of(BatchCompleted) == []
    assert run.scheduler.statistics().completed_batches == 0
    assert run.scheduler.statistics().given_up_batches == 1
    assert run.errors == []


@pytest.mark.parametrize("said", [UntoldError("404"), ValueError("\ud800")])
def test_a_failure_that_cannot_be_shown_ends_its_batch_like_any_other(
    run: Run, said: Exception
) -> None:
    def fail() -> None:
        raise said

    run.scheduler.start(lambda _: None)
    run.submit(1000, fail)
    run.submit(2000, nothing)
    assert run.scheduler.wait_until_idle(WAIT_S)
    assert len(run.bus.of(BatchCompleted)) == 2
    [failure] = run.errors
    assert type(said).__name__ in str(failure)
    str(failure).encode()


def test_a_failure_that_nobody_can_be_told_of_ends_its_batch(run: Run, caplog: Any) -> None:
    def fail() -> None:
        raise ValueError("the program's")

    def refuse(error: BaseException) -> None:
        raise RuntimeError("nobody listens")

    run.scheduler._on_error = refuse
    run.scheduler.start(lambda _: None)
    run.submit(1000, fail)
    run.submit(2000, nothing)
    assert run.scheduler.wait_until_idle(WAIT_S)
    assert len(run.bus.of(BatchCompleted)) == 2
    assert "nobody listens" in caplog.text


def test_a_batch_that_ends_in_time_is_complete(run: Run) -> None:
    release = threading.Event()
    run.scheduler.start(lambda _: None)
    run.submit(1000, lambda: release.wait(WAIT_S) and None)
    run.until_began(1)
    threading.Timer(0.05, release.set).start()
    run.scheduler.stop(WAIT_S)
    assert len(run.bus.of(BatchCompleted)) == 1
    assert run.scheduler.given_up() == {}


def test_a_batch_that_spark_did_not_live_to_end_is_given_up(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        run.scope.ended = "its JVM does not answer"
        raise OSError("connection refused")

    run.scheduler.start(lambda _: None)
    run.submit(1000, fail)
    assert run.scheduler.wait_until_idle(WAIT_S)
    assert run.bus.of(BatchCompleted) == []
    assert run.scheduler.pending_times() == [1000]
    assert [type(error) for error in run.errors] == [OutputOperationError]
    assert [line for line in caplog.records if line.levelno > logging.INFO] == []


def test_the_generator_is_told_when_there_is_room_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_scheduler, "_MAX_WAITING", 1)
    release, room = threading.Event(), threading.Event()
    run.submit(1000, lambda: release.wait(WAIT_S) and None)
    assert not run.scheduler.has_room()
    run.scheduler.start(lambda _: None, room.set)
    assert room.wait(WAIT_S)
    assert run.scheduler.has_room()
    release.set()
