"""When the generator has checkpoints written, what they say, and what waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from penstock.settings import Settings
from penstock.streaming.checkpoint.checkpointer import Progress
from penstock.streaming.scheduler.job_generator import JobGenerator
from tests.streaming.scheduler.test_job_generator import WAIT_S, Generator, Ledger


class Saved:
    """Keeps what would be written, and says that it is durable when a test lets it."""

    def __init__(self) -> None:
        self.saves: list[tuple[int, tuple[int, ...]]] = []
        self.when_durable: list[Callable[[], None]] = []
        self.flushes: list[int] = []

    def save(
        self,
        last_batch_ms: int,
        pending_ms: Sequence[int],
        when_durable: tuple[Callable[[], None], ...] = (),
    ) -> None:
        self.saves.append((last_batch_ms, tuple(pending_ms)))
        self.when_durable.extend(when_durable)

    def flush(self, timeout_s: float) -> bool:
        self.flushes.append(len(self.saves))
        return True

    def be_durable(self) -> None:
        for done in self.when_durable:
            done()
        self.when_durable.clear()


class RecoverableLedger(Ledger):
    last_ms = -1

    def last_allocated_ms(self) -> int:
        return self.last_ms


class Recoverable(Generator):
    def __init__(self, sc: Any, recovered: Progress | None = None) -> None:
        super().__init__(sc)
        self.saved = Saved()
        ledger = RecoverableLedger()
        ledger.history = self.ledger.history
        self.ledger = self.numbers.ledger = ledger
        runtime = self.generator._runtime
        self.generator = JobGenerator(
            self.graph,
            self.scheduler,
            type(runtime)(sc, ledger, runtime.input_info, self.clock),
            settings=Settings.from_pairs([("spark.penstock.askTimeout", "5s")]),
            on_error=self.errors.append,
            checkpointer=self.saved,  # type: ignore[arg-type]  # stands in for it
            recovered=recovered,
        )


@pytest.fixture
def made(sc: Any) -> Iterator[Callable[..., Recoverable]]:
    runs: list[Recoverable] = []

    def make(recovered: Progress | None = None) -> Recoverable:
        runs.append(Recoverable(sc, recovered))
        return runs[-1]

    yield make
    for run in runs:
        run.generator.stop(WAIT_S)
        run.scheduler.stop(WAIT_S)


def test_the_first_checkpoint_is_durable_before_the_first_batch(
    made: Callable[..., Recoverable],
) -> None:
    run = made()
    run.output()
    run.generator.start()
    assert run.saved.saves == [(0, ())]
    assert run.saved.flushes == [1]


def test_checkpoints_tell_of_batches_that_are_not_complete(
    made: Callable[..., Recoverable],
) -> None:
    run = made()
    release = threading.Event()
    run.output()
    run.graph.outputs[0].func = lambda time, rdd: release.wait(WAIT_S)
    run.generator.start()
    run.clock.advance(2000)
    pause = threading.Event()
    while len(run.saved.saves) < 3:
        assert not pause.wait(0.005)
    assert run.saved.saves[1:] == [(1000, (1000,)), (2000, (1000, 2000))]
    release.set()
    run.settle()
    assert run.saved.saves[-1] == (2000, ())


def test_i4_blocks_go_only_once_a_checkpoint_is_durable(made: Callable[..., Recoverable]) -> None:
    run = made()
    run.output()
    run.generator.start()
    for _ in range(3):
        run.batch()
    assert [what for what, _ in run.ledger.history if what == "cleaned"] == []
    run.saved.be_durable()
    run.settle()
    assert [ms for what, ms in run.ledger.history if what == "cleaned"] == [0, 1000, 2000]


def test_i3_unfinished_batches_are_made_again_with_the_blocks_that_they_had(
    made: Callable[..., Recoverable],
) -> None:
    run = made(Progress("one", 3000, (2000, 3000)))
    run.output()
    run.graph.start(0, run.generator._runtime)
    # The driver died in batch 4, which was allocated, and comes back in the time of batch 6.
    run.ledger.last_ms = 4000  # type: ignore[attr-defined]  # it is a RecoverableLedger
    run.ledger.batches = {2000: [2], 3000: [3], 4000: [4]}
    run.ledger.waiting = [5]
    run.clock.advance(5000)
    run.generator.start()
    run.settle()
    assert run.processed == {2000: [2], 3000: [3], 4000: [4], 5000: [5]}
    assert [ms for what, ms in run.ledger.history if what == "allocated"] == [5000]
    assert run.saved.saves[0] == (3000, (2000, 3000))
    run.batch()
    assert list(run.processed) == [2000, 3000, 4000, 5000, 6000]


def test_a_batch_time_is_not_used_again_when_the_clock_was_set_back(
    made: Callable[..., Recoverable],
) -> None:
    run = made(Progress("one", 8000, ()))
    run.output()
    run.graph.start(0, run.generator._runtime)
    run.ledger.last_ms = 9000  # type: ignore[attr-defined]  # it is a RecoverableLedger
    run.ledger.batches = {9000: [9]}
    run.generator.start()
    run.settle()
    # They are seconds ahead of the clock, so that each comes after two of them and not after one.
    for expected in ({9000: [9]}, {9000: [9], 10_000: []}):
        run.clock.advance(1000)
        run.batch()
        assert run.processed == expected
