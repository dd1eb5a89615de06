"""What the generator asks of the ledger, and when: allocations, clean-ups, the last batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.blockstore import BlockAccess
from penstock.listeners.bus import StreamingListenerBus
from penstock.listeners.input_info import InputInfoTracker
from penstock.runtime.clock import ManualClock
from penstock.settings import Settings
from penstock.streaming import JobGenerationError
from penstock.streaming.dstream.arity import with_time
from penstock.streaming.dstream.derived_streams import TransformedDStream
from penstock.streaming.dstream.graph import BatchRuntime, DStreamGraph
from penstock.streaming.dstream.inputs.input_streams import InputDStream
from penstock.streaming.dstream.output import ForEachDStream
from penstock.streaming.dstream.windowed_streams import WindowedDStream
from penstock.streaming.scheduler.job_generator import JobGenerator
from penstock.streaming.scheduler.job_scheduler import JobScheduler
from penstock.streaming.scheduler.spark_jobs import SparkJobScope
from penstock.tracker.errors import LedgerLostError
from tests.bounds import HANG_S

WAIT_S = HANG_S


class Ledger:
    """A ledger of numbers in place of blocks; its disk can be full."""

    def __init__(self) -> None:
        self.history: list[tuple[str, int]] = []
        self.waiting: list[int] = []
        self.batches: dict[int, list[int]] = {}
        self.disk_full = False
        self.is_removed = False
        self.refused = 0
        self.complete: set[int] = set()

    def incomplete_batches(self) -> tuple[int, ...]:
        return tuple(time_ms for time_ms in self.batches if time_ms not in self.complete)

    def complete_batches(self, times_ms: Iterable[int], /) -> None:
        self.complete.update(times_ms)

    def allocate_blocks_to_batch(self, time_ms: int, /) -> None:
        if self.disk_full:
            self.refused += 1
            raise OSError("no space left on device")
        if self.is_removed:
            raise LedgerLostError("the allocation", "it was removed")
        self.history.append(("allocated", time_ms))
        self.batches[time_ms], self.waiting = self.waiting, []

    def get_blocks_of_batch_and_stream(self, time_ms: int, stream_id: int, /) -> list[Any]:
        return self.batches.get(time_ms, [])

    def has_unallocated_blocks(self) -> bool:
        return bool(self.waiting)

    def last_allocated_ms(self) -> int:
        return max(self.batches, default=-1)

    def release_memory(self, time_ms: int, /) -> None:
        self.history.append(("memory released", time_ms))

    def cleanup_old_blocks_and_batches(self, threshold_ms: int, /) -> None:
        self.history.append(("cleaned", threshold_ms))

    @property
    def block_access(self) -> BlockAccess:
        return BlockAccess()


class Numbers(InputDStream):
    """The numbers that the ledger gave to a batch."""

    def __init__(self, graph: DStreamGraph, ledger: Ledger) -> None:
        super().__init__(graph)
        self.ledger = ledger

    def compute(self, time_ms: int) -> Any:
        self.ledger.history.append(("made", time_ms))
        numbers = self.ledger.get_blocks_of_batch_and_stream(time_ms, self.stream_id)
        return self.graph.spark_context.parallelize(numbers, 1)


class Generator:
    """A generator and a scheduler on a clock and a ledger that the test moves."""

    def __init__(self, sc: Any, concurrent_jobs: int = 1) -> None:
        self.clock = ManualClock(500)
        self.ledger = Ledger()
        self.graph = DStreamGraph(sc, 1000)
        self.numbers = Numbers(self.graph, self.ledger)
        self.errors: list[BaseException] = []
        self.bus = StreamingListenerBus()
        self.scheduler = JobScheduler(
            SparkJobScope(sc),
            batch_ms=1000,
            concurrent_jobs=concurrent_jobs,
            clock=self.clock,
            bus=self.bus,
            on_error=self.errors.append,
        )
        self.generator = JobGenerator(
            self.graph,
            self.scheduler,
            BatchRuntime(sc, self.ledger, InputInfoTracker(), self.clock),
            settings=Settings.from_pairs([("spark.penstock.askTimeout", "5s")]),
            on_error=self.errors.append,
        )
        self.processed: dict[int, list[int]] = {}

    def output(self, stream: Any = None) -> None:
        def keep(time: Any, rdd: Any) -> None:
            time_ms = round(time.timestamp() * 1000)
            self.ledger.history.append(("ran", time_ms))
            self.processed[time_ms] = rdd.collect()

        ForEachDStream(stream or self.numbers, with_time(keep, 1), ("output", ""))

    def batch(self) -> None:
        """Let the next batch come and wait until it is complete and cleared."""
        count = sum(1 for what, _ in self.ledger.history if what == "made")
        self.clock.advance(1000)
        self.until_made(count + 1)

    def until(self, holds: Callable[[], bool]) -> None:
        """Let time pass until something holds."""
        pause = threading.Event()
        while not holds():
            self.clock.advance(250)
            assert not pause.wait(0.01)

    def until_made(self, count: int) -> None:
        """Wait until that many batches were made, in all, and are complete."""
        pause = threading.Event()
        while sum(1 for what, _ in self.ledger.history if what == "made") < count:
            assert not pause.wait(0.005)
        self.settle()

    def settle(self) -> None:
        assert self.generator._loop.drain(WAIT_S)
        assert self.scheduler.wait_until_idle(WAIT_S)
        assert self.generator._loop.drain(WAIT_S)


@pytest.fixture
def made(sc: Any) -> Iterator[list[Generator]]:
    generators: list[Generator] = []
    yield generators
    for generator in generators:
        generator.generator.stop(WAIT_S)
        generator.scheduler.stop(WAIT_S)


@pytest.fixture
def run(sc: Any, made: list[Generator]) -> Generator:
    made.append(Generator(sc))
    return made[0]


def test_i3_the_allocation_is_logged_before_anything_of_the_batch_is_made(run: Generator) -> None:
    run.output()
    run.generator.start()
    run.ledger.waiting = [1, 2]
    run.batch()
    assert run.ledger.history[:3] == [("allocated", 1000), ("made", 1000), ("ran", 1000)]
    assert run.processed == {1000: [1, 2]}


def test_i4_a_batch_is_cleaned_up_after_it_and_all_before_are_complete(
    sc: Any, made: list[Generator]
) -> None:
    run = Generator(sc, concurrent_jobs=2)
    made.append(run)
    release = threading.Event()

    def slow_first(time: Any, rdd: Any) -> None:
        if round(time.timestamp()) == 1:
            release.wait(WAIT_S)

    ForEachDStream(run.numbers, slow_first, ("slow", ""))
    run.generator.start()
    run.clock.advance(3000)
    pause = threading.Event()
    while run.scheduler.statistics().completed_batches < 2:
        assert not pause.wait(0.005)
    assert run.generator._loop.drain(WAIT_S)
    # Batches 2 and 3 are complete, but batch 1 still needs what it has.
    assert all(threshold < 1000 for what, threshold in run.ledger.history if what == "cleaned")
    assert 1000 in run.numbers.generated
    release.set()
    run.settle()
    assert run.ledger.history[-1] == ("cleaned", 2000)
    assert list(run.numbers.generated) == [3000]


def test_memory_of_a_batch_is_released_when_it_is_done_and_no_window_needs_it(
    run: Generator,
) -> None:
    run.output()
    run.generator.start()
    run.batch()
    run.batch()
    assert run.ledger.history[-3:] == [
        ("ran", 2000),
        ("memory released", 2000),
        ("cleaned", 1000),
    ]


def test_memory_stays_for_the_batches_of_a_window(run: Generator) -> None:
    run.output(WindowedDStream(run.numbers, 2000, 1000))
    run.generator.start()
    run.batch()
    run.batch()
    run.batch()
    assert ("ran", 3000) in run.ledger.history
    assert "memory released" not in {what for what, _ in run.ledger.history}


def test_batches_wait_while_a_full_disk_takes_no_allocation(run: Generator, caplog: Any) -> None:
    run.output()
    run.generator.start()
    run.ledger.waiting = [1]
    run.ledger.disk_full = True
    run.until(lambda: run.ledger.refused >= 3)
    run.ledger.disk_full = False
    run.ledger.waiting.append(2)
    run.until(lambda: len(run.processed) >= 4)
    assert list(run.processed)[:4] == [1000, 2000, 3000, 4000]
    assert list(run.processed.values())[:4] == [[1, 2], [], [], []]
    assert caplog.text.count("Blocks could not be allocated") == 1


def test_a_disk_that_stays_full_is_told(run: Generator) -> None:
    run.output()
    run.generator.start()
    run.ledger.disk_full = True
    run.until(lambda: bool(run.errors))
    refused = run.ledger.refused
    run.until(lambda: run.ledger.refused > refused + 3)
    (error,) = run.errors
    assert isinstance(error, JobGenerationError)
    assert isinstance(error.__cause__, OSError)
    assert error.batch_time_ms == 1000


def test_a_ledger_that_was_removed_is_told_at_once_and_nothing_waits_for_it(
    run: Generator, caplog: Any
) -> None:
    run.output()
    run.generator.start()
    run.ledger.waiting = [1]
    run.ledger.is_removed = True
    run.until(lambda: bool(run.errors))
    (error,) = run.errors
    assert isinstance(error.__cause__, LedgerLostError)
    assert not run.generator.finish(WAIT_S)
    run.clock.advance(5000)
    run.settle()
    assert run.errors == [error]
    assert caplog.text.count("it was removed") == 1
    assert "Traceback" not in caplog.text


class TestLastBatches:
    def drain(self, run: Generator, wait_ms: int = 0) -> list[int]:
        """Return the times of the batches that are made for what is left in `wait_ms`."""
        before = len(run.ledger.history)
        with ThreadPoolExecutor(1) as pool:
            finished = pool.submit(run.generator.finish, WAIT_S)
            run.clock.advance(wait_ms)
            assert finished.result(WAIT_S)
        run.clock.advance(5000)
        run.settle()
        return [time for what, time in run.ledger.history[before:] if what == "allocated"]

    def test_i10_unallocated_blocks_get_the_next_batch(self, run: Generator) -> None:
        run.output()
        run.generator.start()
        run.batch()
        run.ledger.waiting = [7]
        assert self.drain(run, 1000) == [2000]
        assert run.processed[2000] == [7]

    def test_without_anything_left_no_batch_is_made(self, run: Generator) -> None:
        run.output()
        run.generator.start()
        run.batch()
        assert self.drain(run) == []

    def test_before_the_first_batch_nothing_is_made_for_nothing(self, run: Generator) -> None:
        run.output()
        run.generator.start()
        assert self.drain(run) == []

    def test_before_the_first_batch_blocks_are_not_lost(self, run: Generator) -> None:
        run.output()
        run.generator.start()
        run.ledger.waiting = [7]
        assert self.drain(run, 500) == [1000]
        assert run.processed == {1000: [7]}

    def test_i14_no_batch_comes_before_its_time_for_an_output_with_a_longer_slide(
        self, run: Generator
    ) -> None:
        run.output()
        run.output(WindowedDStream(run.numbers, 120_000, 120_000))
        run.generator.start()
        run.ledger.waiting = [1]
        run.batch()
        assert self.drain(run) == []
        assert run.generator.unseen()

    def test_what_cannot_be_allocated_is_waited_for_until_the_time_is_over(
        self, run: Generator
    ) -> None:
        run.output()
        run.generator.start()
        run.ledger.waiting = [1]
        run.ledger.disk_full = True
        run.until(lambda: run.ledger.refused > 0)
        assert not run.generator.finish(0.05)
        assert run.generator.not_made > 0

    def test_a_batch_that_is_being_made_is_waited_for_too(self, run: Generator) -> None:
        reached, go_on = threading.Event(), threading.Event()
        allocate = run.ledger.allocate_blocks_to_batch

        def slow(time_ms: int) -> None:
            reached.set()
            assert go_on.wait(WAIT_S)
            allocate(time_ms)

        run.ledger.allocate_blocks_to_batch = slow  # type: ignore[method-assign]
        run.ledger.disk_full = True
        run.output()
        run.generator.start()
        run.clock.advance(1000)
        assert reached.wait(WAIT_S)
        assert run.generator.not_made == 1
        with ThreadPoolExecutor(1) as pool:
            finished = pool.submit(run.generator.finish, WAIT_S)
            go_on.set()
            run.until(lambda: run.ledger.refused >= 3 or finished.done())
            assert not finished.done()
            run.ledger.disk_full = False
            run.until(finished.done)
            assert finished.result()
        assert ("made", 1000) in run.ledger.history
        assert run.generator.not_made == 0


def test_what_else_is_to_be_done_has_its_turn_between_batches_that_are_due(run: Generator) -> None:
    run.output()
    run.generator.start()
    go_on = threading.Event()
    run.generator._loop.post(lambda: go_on.wait(WAIT_S))
    run.clock.advance(5000)
    run.until(lambda: run.generator.not_made >= 5)
    run.generator._loop.post(lambda: run.ledger.history.append(("released", 0)))
    go_on.set()
    run.until_made(5)
    history = run.ledger.history
    assert history.index(("released", 0)) < history.index(("made", 2000))


def test_diamonds_of_streams_are_cleared_once(run: Generator) -> None:
    stream: Any = run.numbers
    for _ in range(40):  # 2 to the power of 40 paths
        stream = TransformedDStream([stream, stream], lambda time, a, b: a)
    run.output(stream)
    run.generator.start()
    run.ledger.waiting = [1]
    run.batch()
    assert run.processed == {1000: [1]}
