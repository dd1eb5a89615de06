"""Makes a batch at every batch time, and clears up after batches that are done.

One thread handles two kinds of events, so nothing of the graph happens twice at a time:

* *generate*: the tracker gives all unallocated blocks to the batch and logs that (I3); then the
  graph makes the jobs; then they are handed to the scheduler;
* *clear*: all batches up to a time are complete; what nobody needs any more is forgotten, and the
  tracker logs that their blocks may go (I4).

With a checkpoint directory the graph and the progress are written after both. Blocks then go only
once a checkpoint that does not need them is on the disk.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.clock import Clock
from penstock.streaming.checkpoint.checkpointer import Checkpointer, Progress
from penstock.streaming.checkpoint.errors import CheckpointWriteError
from penstock.streaming.dstream.graph import BatchRuntime, DStreamGraph
from penstock.streaming.errors import JobGenerationError
from penstock.streaming.scheduler.event_loop import EventLoop
from penstock.streaming.scheduler.job_scheduler import JobScheduler
from penstock.streaming.scheduler.jobs import JobSet
from penstock.streaming.scheduler.recurring_timer import RecurringTimer

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
        checkpointer: Keeps graph and progress; None without a checkpoint directory.
        recovered: How far an earlier run was, whose graph this is; None at a first start.
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
        checkpointer: Checkpointer | None = None,
        recovered: Progress | None = None,
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
        self._checkpointer = checkpointer
        self._recovered = recovered
        self._again: set[int] = set()
        self._is_durable = True
        self._failing_since_s: float | None = None
        self._last_ms: int | None = None
        self._released_ms: int | None = None
        self._abandoned = threading.Event()

    def start(self) -> None:
        """Start the graph, then the timer; after a recovery, first what the run before left.

        Raises:
            CheckpointWriteError: The first checkpoint was not written in time.
        """
        if self._recovered is None:
            self._start_first()
        else:
            self._restart(self._recovered)

    def _start_first(self) -> None:
        first_ms = self._timer.first_time()
        self._last_ms = first_ms - self._graph.batch_ms
        self._graph.start(self._last_ms, self._runtime)
        if self._checkpointer is not None:
            # From here on a restart knows this program, and gives each batch its own blocks.
            self._save()
            if not self._checkpointer.flush(self._patience_s):
                reason = "the first checkpoint was not written; see the log"
                raise CheckpointWriteError("the checkpoint directory", self._patience_s, reason)
        self._scheduler.start(self._horizon_reached)
        self._loop.start()
        self._timer.start(first_ms)
        _log.info("First batch at %d ms, one every %d ms", first_ms, self._graph.batch_ms)

    def _restart(self, recovered: Progress) -> None:
        """Make the batches again that were not complete, then those up to now, then by time."""
        batch_ms = self._graph.batch_ms
        last_ms = recovered.last_batch_ms
        assert self._graph.zero_ms is not None
        # The clock may have been set back: a batch time is never used twice.
        self._timer.not_before(max(last_ms, self._runtime.received_blocks.last_allocated_ms()))
        first_ms = self._timer.first_time(self._graph.zero_ms)
        missed = range(last_ms + batch_ms, first_ms, batch_ms)
        times = [*recovered.pending_ms, *missed]
        self._last_ms = last_ms
        self._again = set(recovered.pending_ms)
        self._graph.restart(self._runtime)
        self._scheduler.start(self._horizon_reached)
        self._loop.start()
        self._loop.post(self._save)
        self._loop.post(lambda: self._graph.catch_up(times[0] if times else first_ms))
        for time_ms in times:
            self._tick(time_ms)
        self._timer.start(first_ms)
        _log.info(
            "Recovered: %d batches that were not complete are made again, and %d since the batch "
            "of %d ms; the next one comes at %d ms, then one every %d ms",
            len(recovered.pending_ms),
            len(missed),
            last_ms,
            first_ms,
            batch_ms,
        )

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

    def save_last(self, timeout_s: float) -> None:
        """Write a checkpoint of what is complete now; call once no more batches are made."""
        if self._checkpointer is not None:
            self._loop.post(self._save)
            self._loop.drain(timeout_s)
            self._checkpointer.flush(timeout_s)

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
        if self._last_ms is None or time_ms > self._last_ms:
            self._last_ms = time_ms
        self._allocate(time_ms)
        try:
            jobs = tuple(self._graph.generate_jobs(time_ms))
            info = self._runtime.input_info.get_info(time_ms)
            if self._checkpointer is not None and self._graph.must_be_saved_before(time_ms):
                self._again.add(time_ms)
                self._save()
                # While the disk is full, one batch waits, not each of them.
                patience_s = self._patience_s if self._is_durable else 0.0
                self._is_durable = self._checkpointer.flush(patience_s)
            self._scheduler.submit_job_set(JobSet(time_ms, jobs, info))
        except Exception as error:  # noqa: BLE001  # travels to the waiter
            failure = JobGenerationError(time_ms, f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            _log.error("%s", failure, exc_info=error)
            self._on_error(failure)
        self._again.discard(time_ms)
        self._save()

    def _allocate(self, time_ms: int) -> None:
        """Allocate, or leave the blocks for the next batch when the log cannot be written."""
        blocks = self._runtime.received_blocks
        if self._recovered is not None and time_ms <= blocks.last_allocated_ms():
            return  # It has its blocks since before the restart (I3).
        try:
            blocks.allocate_blocks_to_batch(time_ms)
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
        if self._unpersist and remember_ms <= self._graph.batch_ms:
            # No later batch reads these blocks: their memory is worth more to the next ones.
            self._release_memory(time_ms)
        if self._checkpointer is None:
            self._release(threshold_ms)
            return
        self._scheduler.let_go_failed(time_ms)
        # What this checkpoint refers to decides, not what is there by the time it is written.
        self._graph.update_rdd_checkpoints()
        needed_ms = self._graph.oldest_needed_ms()
        if needed_ms is not None:
            threshold_ms = min(threshold_ms, needed_ms + 1)
        self._save(lambda: self._loop.post(lambda: self._release(threshold_ms)))

    def _release(self, threshold_ms: int) -> None:
        if self._unpersist:
            self._runtime.received_blocks.cleanup_old_blocks_and_batches(threshold_ms)

    def _save(self, *when_durable: Callable[[], None]) -> None:
        if self._checkpointer is not None:
            assert self._last_ms is not None
            pending = {*self._scheduler.pending_times(), *self._again}
            self._checkpointer.save(
                self._last_ms, sorted(ms for ms in pending if ms <= self._last_ms), when_durable
            )

    def _release_memory(self, time_ms: int) -> None:
        first_ms = (
            time_ms if self._released_ms is None else self._released_ms + self._graph.batch_ms
        )
        for done_ms in range(first_ms, time_ms + 1, self._graph.batch_ms):
            self._runtime.received_blocks.release_memory(done_ms)
        self._released_ms = time_ms
