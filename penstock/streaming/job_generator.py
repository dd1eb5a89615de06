"""Makes a batch at every batch time, and clears up after batches that are done.

One thread handles two kinds of events, so nothing of the graph happens twice at a time:

* *generate*: the tracker gives all unallocated blocks to the batch and logs that (I3); then the
  graph makes the jobs; then they are handed to the scheduler;
* *clear*: all batches up to a time are complete; what nobody needs any more is forgotten, and the
  tracker logs that their blocks may go (I4).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.clock import Clock
from penstock.streaming.errors import JobGenerationError
from penstock.streaming.event_loop import EventLoop
from penstock.streaming.graph import BatchRuntime, DStreamGraph
from penstock.streaming.job_scheduler import JobScheduler
from penstock.streaming.jobs import JobSet
from penstock.streaming.recurring_timer import RecurringTimer

__all__ = ["JobGenerator"]

_log = logging.getLogger("penstock.streaming.job_generator")


class JobGenerator:
    """The batches of one streaming context.

    Args:
        graph: The graph; it is started here.
        scheduler: Runs the jobs.
        runtime: What the graph needs to make RDDs.
        clock: Tells the batch times.
        enter_thread: Run in the generator's thread first, for Spark's local properties.
        on_error: Told of errors that cost a batch.
        unpersist: Whether old RDDs and blocks are let go.
        allocation_patience_s: How long allocations may fail before `on_error` is told; meanwhile
            the blocks stay for the next batch.
    """

    def __init__(
        self,
        graph: DStreamGraph,
        scheduler: JobScheduler,
        runtime: BatchRuntime,
        *,
        clock: Clock,
        enter_thread: Callable[[], None],
        on_error: Callable[[BaseException], None],
        unpersist: bool,
        allocation_patience_s: float,
    ) -> None:
        self._graph = graph
        self._scheduler = scheduler
        self._runtime = runtime
        self._clock = clock
        self._on_error = on_error
        self._unpersist = unpersist
        self._patience_s = allocation_patience_s
        self._loop = EventLoop("job-generator", enter_thread, on_error)
        self._timer = RecurringTimer(clock, graph.batch_ms, self._tick, "batch-timer")
        self._failing_since_s: float | None = None
        self._last_ms: int | None = None
        self._released_ms: int | None = None
        self._abandoned = threading.Event()

    def start(self) -> None:
        """Start the graph, then the timer."""
        first_ms = self._timer.first_time()
        self._last_ms = first_ms - self._graph.batch_ms
        self._graph.start(self._last_ms, self._runtime)
        self._scheduler.start(self._horizon_reached)
        self._loop.start()
        self._timer.start(first_ms)
        _log.info("First batch at %d ms, one every %d ms", first_ms, self._graph.batch_ms)

    def stop_timer(self, timeout_s: float) -> None:
        """Make no more batches by time."""
        self._timer.stop(timeout_s)

    def generate_last_batches(self, timeout_s: float) -> bool:
        """Make the batches that are left to do, without waiting for their times.

        One batch takes all unallocated blocks. Where an output's slide is longer than the batch
        interval, empty batches follow up to the time at which it is due, so that every output
        sees the last records. When nothing is left, no batch is made. Call after `stop_timer`.

        Returns:
            False when it took longer.
        """
        self._loop.post(self._generate_last)
        return self._loop.drain(timeout_s)

    def stop(self, timeout_s: float) -> None:
        """Make no more batches, stop the inputs and end the thread.

        Batch times that wait are dropped; what is to be cleared is cleared.
        """
        self._abandoned.set()
        self._timer.stop(timeout_s)
        if not self._loop.stop(timeout_s):
            _log.warning("The job generator has not ended after %.1f s", timeout_s)
        self._graph.stop()

    def _tick(self, time_ms: int) -> None:
        self._loop.post(lambda: self._generate(time_ms))

    def _horizon_reached(self, time_ms: int) -> None:
        self._loop.post(lambda: self._clear(time_ms))

    def _generate(self, time_ms: int) -> None:
        self._scheduler.wait_for_room()
        if self._abandoned.is_set():
            return
        self._last_ms = time_ms
        self._allocate(time_ms)
        try:
            jobs = tuple(self._graph.generate_jobs(time_ms))
            info = self._runtime.input_info.get_info(time_ms)
            self._scheduler.submit_job_set(JobSet(time_ms, jobs, info))
        except Exception as error:  # noqa: BLE001  # travels to the waiter
            failure = JobGenerationError(time_ms, f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            _log.error("%s", failure, exc_info=error)
            self._on_error(failure)

    def _allocate(self, time_ms: int) -> None:
        """Allocate, or leave the blocks for the next batch when the log cannot be written."""
        try:
            self._runtime.received_blocks.allocate_blocks_to_batch(time_ms)
        except Exception as error:  # noqa: BLE001  # the disk may have space again
            now_s = self._clock.monotonic_s()
            if self._failing_since_s is None:
                self._failing_since_s = now_s
            _log.error(
                "Blocks could not be allocated to the batch of %d ms and stay for the next",
                time_ms,
                exc_info=error,
            )
            if now_s - self._failing_since_s >= self._patience_s:
                failure = JobGenerationError(time_ms, f"blocks cannot be allocated: {error}")
                failure.__cause__ = error
                self._on_error(failure)
        else:
            self._failing_since_s = None

    def _generate_last(self) -> None:
        assert self._last_ms is not None
        last_ms = self._last_ms
        if self._runtime.received_blocks.has_unallocated_blocks():
            last_ms += self._graph.batch_ms
        assert self._graph.zero_ms is not None
        if last_ms == self._graph.zero_ms:
            return
        for time_ms in range(
            self._last_ms + self._graph.batch_ms,
            self._graph.last_time_needed(last_ms) + 1,
            self._graph.batch_ms,
        ):
            self._generate(time_ms)

    def _clear(self, time_ms: int) -> None:
        self._graph.clear_metadata(time_ms, self._unpersist)
        remember_ms = self._graph.input_remember_ms()
        threshold_ms = time_ms - remember_ms
        # An RDD of the threshold itself may be made once more, by `slice`, and is told of again.
        self._runtime.input_info.cleanup(threshold_ms + 1)
        if self._unpersist:
            if remember_ms <= self._graph.batch_ms:
                # No later batch reads these blocks: their memory is worth more to the next ones.
                self._release_memory(time_ms)
            self._runtime.received_blocks.cleanup_old_blocks_and_batches(threshold_ms)

    def _release_memory(self, time_ms: int) -> None:
        first_ms = (
            time_ms if self._released_ms is None else self._released_ms + self._graph.batch_ms
        )
        for done_ms in range(first_ms, time_ms + 1, self._graph.batch_ms):
            self._runtime.received_blocks.release_memory(done_ms)
        self._released_ms = time_ms
