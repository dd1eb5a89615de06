"""A listener that is too slow: the real bus drops events, and what is shown stays true."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.listeners.bus import StreamingListenerBus
from penstock.listeners.events import BatchSubmitted, StreamingStarted
from penstock.listeners.input_info import BatchInput
from penstock.monitor import Model
from penstock.monitor.records import EventKind
from penstock.monitor.tables import top_lines
from penstock.monitor.web.exchange import as_json
from penstock.monitor.web.routes import Metrics, ready
from penstock.monitor.web.status import Status
from penstock.runtime.clock import ManualClock
from penstock.streaming import StreamingListener
from penstock.streaming.dstream.job import Job, JobSet
from penstock.streaming.scheduler.job_scheduler import JobScheduler
from tests.bounds import HANG_S
from tests.monitor.asking import get, text, until
from tests.monitor.feeding import START_MS, Program

WAIT_S = HANG_S
ROOM = 2
"""A batch has five events: of the first one some fit, and its end is dropped."""


class Scope:
    """Stands in for Spark: a job is its function."""

    @contextmanager
    def job(self, job: Job) -> Iterator[None]:
        yield

    def why_ended(self) -> str:
        return ""

    def cancel_jobs(self) -> None:
        raise AssertionError("nothing runs when it is stopped")


class Slow(StreamingListener):
    """A listener of the program that waits where the test says."""

    def __init__(self) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()

    def onBatchSubmitted(self, batchSubmitted: BatchSubmitted) -> None:
        self.entered.set()
        assert self.go_on.wait(WAIT_S)


class Run:
    """A real scheduler, a real bus with little room, and a model of them."""

    def __init__(self, room: int) -> None:
        self.clock = ManualClock(START_MS)
        self.bus = StreamingListenerBus(room)
        self.scheduler = JobScheduler(
            Scope(),  # type: ignore[arg-type]  # stands in for it
            batch_ms=1000,
            concurrent_jobs=1,
            clock=self.clock,
            bus=self.bus,
            on_error=lambda error: None,
        )
        application = replace(
            Program().application(),
            statistics=self.scheduler.statistics,
            unfinished=self.scheduler.unfinished,
            dropped_events=lambda: self.bus.dropped,
        )
        self.model = Model(application, clock=self.clock)
        self.slow = Slow()
        # The model is told first, as it is added before the listeners' calls begin.
        self.bus.add(self.model)
        self.bus.add(self.slow)
        self.bus.start()
        self.scheduler.start(lambda _: None)

    def submit(self, number: int, function: Callable[[], None] = lambda: None) -> None:
        time_ms = START_MS + number * 1000
        job = Job(time_ms, 0, "pprint at program.py:1", "", function)
        self.scheduler.submit_job_set(JobSet(time_ms, (job,), {0: BatchInput(0, 5)}))

    def tick(self) -> None:
        self.clock.advance(1000)
        self.model.tick()

    def stop(self) -> None:
        self.slow.go_on.set()
        self.scheduler.stop(WAIT_S)
        self.bus.stop(WAIT_S)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    made = Run(getattr(request, "param", ROOM))
    yield made
    made.stop()


def fail() -> None:
    raise ValueError("no such table")


def dropping(run: Run) -> None:
    """Have ten batches of which one fails, while the slow listener has the bus stand still."""
    run.bus.post(StreamingStarted(START_MS))
    run.bus.wait_until_empty(WAIT_S)
    # Its end is told when the listener is where the bus stands still.
    run.submit(1, lambda: run.slow.entered.wait(WAIT_S) and None)
    for number in range(2, 11):
        run.submit(number, fail if number == 5 else lambda: None)
    assert run.scheduler.wait_until_idle(WAIT_S)
    assert run.bus.dropped > 0


def test_batches_whose_ends_were_dropped_do_not_wait_for_ever(run: Run) -> None:
    dropping(run)
    run.slow.go_on.set()
    run.bus.wait_until_empty(WAIT_S)
    assert run.model.totals().waiting + run.model.totals().running > 0
    run.tick()
    run.tick()
    totals = run.model.totals()
    assert (totals.waiting, totals.running) == (0, 0)
    assert (totals.completed_batches, totals.failed_batches) == (10, 1)
    assert {batch.status.value for batch in run.model.batches()} <= {"COMPLETED"}
    answer = ready(run.model)
    assert (answer.status, text(answer)) == (200, "ok")


def test_what_waits_is_counted_although_nobody_was_told_of_it(run: Run) -> None:
    dropping(run)
    held = threading.Event()
    try:
        for number in range(11, 14):
            run.submit(number, lambda: held.wait(WAIT_S) and None)
        until(lambda: run.scheduler.statistics().running_batches == 1)
        run.tick()
        totals = run.model.totals()
        assert (totals.waiting, totals.running) == (2, 1)
        assert text(ready(run.model)).startswith("2 batches wait")
    finally:
        held.set()
    assert run.scheduler.wait_until_idle(WAIT_S)
    run.slow.go_on.set()
    run.bus.wait_until_empty(WAIT_S)
    run.tick()
    run.tick()
    assert ready(run.model).status == 200
    assert run.model.totals().completed_batches == 13


def test_what_was_dropped_is_told_once_and_shown_everywhere(run: Run) -> None:
    dropping(run)
    dropped = run.bus.dropped
    run.tick()
    assert "listener of the program is too slow" in run.model.sentence()
    run.tick()
    assert "too slow" not in run.model.sentence()
    (told,) = [event for event in run.model.errors() if event.kind is EventKind.EVENTS_DROPPED]
    assert told.text.startswith(f"{dropped} events were dropped")
    assert run.model.totals().dropped_events == dropped
    status = json.loads(as_json(Status(run.model).snapshot()))
    assert status["totals"]["droppedEvents"] == dropped
    assert any(f"{dropped} events dropped" in line for line in top_lines(status, 200))
    scraped = text(Metrics(run.model).answer(get("/metrics"))) + "\n"
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(scraped)
        for sample in family.samples
    }
    assert samples["penstock_events_dropped_total"] == dropped


@pytest.mark.parametrize("run", [5], indirect=True)
def test_events_that_were_late_but_came_are_not_counted_twice(run: Run) -> None:
    dropping(run)
    run.tick()  # The scheduler's count has the batches whose events wait in the queue.
    run.slow.go_on.set()
    run.bus.wait_until_empty(WAIT_S)
    run.tick()
    assert run.model.totals().completed_batches == 10
