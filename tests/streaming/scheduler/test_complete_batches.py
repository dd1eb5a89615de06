"""Which batches the ledger is told to be complete: those that every output has seen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.streaming.dstream.arity import with_time
from penstock.streaming.dstream.output import ForEachDStream
from penstock.streaming.dstream.windowed_streams import WindowedDStream
from tests.streaming.scheduler.test_job_generator import WAIT_S, Generator


@pytest.fixture
def run(sc: Any) -> Iterator[Generator]:
    run = Generator(sc)
    yield run
    run.generator.stop(WAIT_S)
    run.scheduler.stop(WAIT_S)


def come(run: Generator) -> None:
    """Let the next batch come, also one that makes no RDD, and wait until all is done."""
    made = len(run.ledger.batches)
    run.clock.advance(1000)
    pause = threading.Event()
    while len(run.ledger.batches) == made:
        assert not pause.wait(0.005)
    run.settle()


def test_a_batch_is_complete_when_its_output_operations_are_done(run: Generator) -> None:
    started = threading.Event()
    go = threading.Event()

    def output(_: Any, rdd: Any) -> None:
        started.set()
        go.wait(WAIT_S)

    ForEachDStream(run.numbers, with_time(output, 1), ("slow", ""))
    run.generator.start()
    run.clock.advance(1000)
    assert started.wait(WAIT_S)
    assert run.ledger.incomplete_batches() == (1000,)
    go.set()
    run.settle()
    assert run.ledger.complete == {1000}
    run.batch()
    assert run.ledger.complete == {1000, 2000}


def test_a_batch_is_not_complete_before_every_window_was_due(run: Generator) -> None:
    run.output(WindowedDStream(run.numbers, 3000, 3000))
    run.output(WindowedDStream(run.numbers, 2000, 2000))
    run.generator.start()
    come(run)
    come(run)
    # The window of two batches was there, that of three comes with the next.
    assert run.ledger.complete == set()
    come(run)
    # The third waits for the second window of two.
    assert run.ledger.complete == {1000, 2000}
    come(run)
    assert run.ledger.complete == {1000, 2000, 3000}


def test_a_failed_batch_is_complete_once_a_later_one_is(run: Generator) -> None:
    fails = [True, False]

    def output(_: Any, rdd: Any) -> None:
        if fails.pop(0):
            raise ValueError("the sink is away")

    ForEachDStream(run.numbers, with_time(output, 1), ("sink", ""))
    run.generator.start()
    run.batch()
    assert run.ledger.complete == set()
    run.batch()
    assert run.ledger.complete == {1000, 2000}


def test_a_batch_that_a_stop_gave_up_is_not_complete(run: Generator) -> None:
    started = threading.Event()
    go = threading.Event()

    def output(_: Any, rdd: Any) -> None:
        started.set()
        go.wait(WAIT_S)

    ForEachDStream(run.numbers, with_time(output, 1), ("slow", ""))
    run.generator.start()
    run.clock.advance(1000)
    assert started.wait(WAIT_S)
    run.clock.advance(1000)
    pause = threading.Event()
    while run.scheduler.statistics().waiting_batches == 0:
        assert not pause.wait(0.005)
    run.generator.stop(WAIT_S)
    threading.Timer(0.2, go.set).start()
    run.scheduler.stop(WAIT_S)
    run.generator.note_complete()
    assert run.ledger.complete == {1000}
    assert run.ledger.incomplete_batches() == (2000,)
