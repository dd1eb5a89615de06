"""Makes a batch at every batch time, and clears up after batches that are done.

One thread does two kinds of work, so nothing of the graph happens twice at a time:

* *generate*: the tracker gives all unallocated blocks to the batch and logs that (I3); then the
  graph makes the jobs; then they are handed to the scheduler;
* *clear*: all batches up to a time are complete; what no one needs any more is forgotten, and the
  tracker logs that their blocks may go (I4).

With a checkpoint directory the graph and the progress are written after both. Blocks then go only
once a checkpoint that does not need them is on the disk.

After a recovery the batches that were not complete come first, then the batches since. Of these,
one that has no records is passed over where nothing needs it.

No batch is made before its time has come (I14), and while too many wait none is made at all: the
times that come meanwhile are remembered, and clearing goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from penstock.errors import text_of, typed_text
from penstock.runtime.event_loop import EventLoop
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.runtime.threads import wait_for
from penstock.settings import Settings
from penstock.streaming.checkpoint.checkpointer import Checkpointer, Progress
from penstock.streaming.checkpoint.errors import CheckpointWriteError
from penstock.streaming.dstream.graph import BatchRuntime, DStreamGraph
from penstock.streaming.dstream.job import JobSet
from penstock.streaming.errors import JobGenerationError
from penstock.streaming.scheduler.job_scheduler import JobScheduler
from penstock.streaming.scheduler.recurring_timer import RecurringTimer
from penstock.tracker.errors import LedgerLostError
from penstock.user_errors import as_user_sees_it, place_of

_RETRY_S = 1.0
"""Pause before a failed allocation is tried again."""

_MANY_MISSED = 30
"""From how many missed batches on a restart says that it makes them; fewer are made in seconds."""

_log = logging.getLogger("penstock.streaming.job_generator")


class JobGenerator:
    """The batches of one streaming context.

    `_changed` (a condition with its lock) guards what is still to be done, and is notified
    whenever a batch was made.

    Args:
        graph: The graph; it is started here.
        scheduler: Runs the jobs.
        runtime: What the graph needs to make RDDs.
        settings: The settings: whether old RDDs and blocks are let go; and how long an allocation
            may fail before `on_error` is called. It is tried again all the time, and the batches
            after it wait.
        on_error: Notified of errors that cost a batch.
        checkpointer: Keeps graph and progress; None without a checkpoint directory.
        recovered: How far an earlier run was, whose batches this one goes on with; None at a first
            start.
        makes_empty: Says whether, of the batches of the time when the program did not run, those
            without records are also made.
        after_ms: The last batch of another version of the program, whose batches this one does not
            go on with; -1 without one.

    Attributes:
        ledger_lost: The driver log was removed or taken over: no batch can be made any more.
    """

    def __init__(
        self,
        graph: DStreamGraph,
        scheduler: JobScheduler,
        runtime: BatchRuntime,
        *,
        settings: Settings,
        on_error: Callable[[BaseException], None],
        checkpointer: Checkpointer | None = None,
        recovered: Progress | None = None,
        makes_empty: Callable[[], bool] = lambda: True,
        after_ms: int = -1,
    ) -> None:
        self._graph = graph
        self._scheduler = scheduler
        self._limited_log = RateLimitedLog(_log)
        self._runtime = runtime
        self._clock = runtime.clock
        self._on_error = on_error
        self._unpersist = settings.unpersist
        self._patience_s = settings.ask_timeout_s
        self._loop = EventLoop("job-generator", on_error, on_start=scheduler.scope.enter_thread)
        self._timer = RecurringTimer(
            self._clock, graph.batch_ms, self._tick, "batch-timer", on_error=on_error
        )
        self._checkpointer = checkpointer
        self._recovered = recovered
        self._makes_empty = makes_empty
        self._after_ms = after_ms
        self._again: set[int] = set()
        self._is_durable = True
        self._failing_since_s: float | None = None
        self._told_of_failure = False
        self.ledger_lost = False
        self._last_ms: int | None = None
        # Of the time when the program did not run: these, and how many of them were passed over.
        self._missed = range(0)
        self._passed_over = 0
        self._released_ms: int | None = None
        self._abandoned = threading.Event()
        self._due = DueTimes(graph.batch_ms)
        self._changed = threading.Condition()
        self._is_posted = False
        self._is_making = False
        self._to_clear_ms: int | None = None

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
        # A batch time is never used twice, also by a run before whose ledger this one goes on with.
        last_ms = max(self._runtime.received_blocks.last_allocated_ms(), self._after_ms)
        first_ms = self._timer.first_time(after_ms=last_ms)
        self._last_ms = first_ms - self._graph.batch_ms
        self._graph.start(self._last_ms, self._runtime)
        if self._checkpointer is not None:
            # From here on a restart knows this program, and gives each batch its own blocks.
            self._save()
            if not self._checkpointer.flush(self._patience_s):
                reason = "the first checkpoint was not written; see the log"
                raise CheckpointWriteError("the checkpoint directory", self._patience_s, reason)
        self._scheduler.start(self._note_complete, self._make_soon)
        self._loop.start()
        self._timer.start(first_ms)
        _log.info("First batch at %d ms, one every %d ms", first_ms, self._graph.batch_ms)

    def _restart(self, recovered: Progress) -> None:
        """Make the batches again that were not complete, then those up to now, then by time."""
        batch_ms = self._graph.batch_ms
        last_ms = recovered.last_batch_ms
        assert self._graph.zero_ms is not None
        # The clock may have been set back: a batch time is never used twice.
        allocated_ms = self._runtime.received_blocks.last_allocated_ms()
        first_ms = self._timer.first_time(self._graph.zero_ms, last_ms)
        if allocated_ms > first_ms:
            first_ms = self._timer.first_time(self._graph.zero_ms, allocated_ms)
        missed = range(last_ms + batch_ms, first_ms, batch_ms)
        times = [*recovered.pending_ms, *missed]
        self._last_ms = last_ms
        self._again = set(recovered.pending_ms)
        self._missed = missed
        self._graph.restart(self._runtime, times[0] if times else first_ms)
        self._scheduler.start(self._note_complete, self._make_soon)
        self._loop.start()
        self._loop.post(self._save)
        self._loop.post(lambda: self._graph.catch_up(times[0] if times else first_ms))
        for time_ms in times:
            self._tick(time_ms)
        self._timer.start(first_ms)
        if len(missed) >= _MANY_MISSED and self._makes_empty():
            _log.warning(
                "Catching up: the program missed %d batches while it did not run; they come first",
                len(missed),
            )
        _log.info(
            "Recovered: %d batches that were not complete are made again, and of %d since the "
            "batch of %d ms those that are needed; the next one comes at %d ms, then one every "
            "%d ms",
            len(recovered.pending_ms),
            len(missed),
            last_ms,
            first_ms,
            batch_ms,
        )

    def stop_timer(self, timeout_s: float) -> None:
        """Make no more batches by time."""
        self._timer.stop(timeout_s)

    def finish(self, timeout_s: float) -> bool:
        """Wait for the batch that takes what no batch has yet, then make no more.

        It comes at its time, as Spark's does: a batch with a time to come would take that time from
        what is received until it. With nothing left to take it returns at once.

        Returns:
            False when the time was over before every batch that had come was made.
        """
        end_s = time.monotonic() + timeout_s

        def left_s() -> float:
            return max(0.0, end_s - time.monotonic())

        blocks = self._runtime.received_blocks
        has_all = self._wait_until(
            lambda: self.ledger_lost or not blocks.has_unallocated_blocks(), left_s()
        )
        self._timer.stop(left_s())
        is_made = self._wait_until(lambda: self.ledger_lost or not self.not_made, left_s())
        if self.ledger_lost:
            return False
        return self._loop.drain(left_s()) and has_all and is_made

    def _wait_until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        with self._changed:
            return wait_for(self._changed, holds, timeout_s)

    def unseen(self) -> bool:
        """Return whether an output with a longer slide has not seen the last batches yet."""
        last_ms = self._last_ms
        return last_ms is not None and self._graph.last_time_needed(last_ms) > last_ms

    @property
    def not_made(self) -> int:
        """How many batch times have come whose batches are not made, or not yet."""
        with self._changed:
            return len(self._due) + self._is_making

    def save_last(self, timeout_s: float) -> None:
        """Write a checkpoint of what is complete now; call once no more batches are made."""
        if self._checkpointer is not None:
            self._loop.post(self._save_last)
            self._loop.drain(timeout_s)
            self._checkpointer.flush(timeout_s)

    def note_complete(self) -> None:
        """Mark batches in the ledger as processed that every output has seen."""
        if self._graph.zero_ms is None:
            return
        blocks = self._runtime.received_blocks
        seen_at = {ms: self._graph.times_that_see(ms) for ms in blocks.incomplete_batches()}
        complete = self._scheduler.complete_among(set().union(*seen_at.values()))
        blocks.complete_batches(ms for ms, times in seen_at.items() if times <= complete)

    def stop(self, timeout_s: float) -> None:
        """Make no more batches, stop the inputs and end the thread.

        Batch times that wait are dropped; what is to be cleared is cleared.
        """
        self._abandoned.set()
        self._timer.stop(timeout_s)
        if not self._loop.is_running:
            self._graph.stop()
            return
        # In the thread of the loop: a function of `transform` has the graph's lock while it runs.
        self._loop.post(self._graph.stop)
        if not self._loop.stop(timeout_s):
            _log.warning("The job generator has not ended after %.1f s", timeout_s)

    def is_current_thread(self) -> bool:
        """Return whether the caller is a function that runs while a batch is made."""
        return self._loop.is_current_thread()

    # -- what is to be done ----------------------------------------------------------------------

    def _tick(self, time_ms: int) -> None:
        self._due.add(time_ms)
        self._make_soon()

    def _make_soon(self) -> None:
        """Have the loop look at what is due; at most one such event waits in it."""
        with self._changed:
            if self._is_posted or not len(self._due):
                return
            self._is_posted = True
        self._loop.post(self._make_due)

    def _note_complete(self, time_ms: int) -> None:
        with self._changed:
            is_posted = self._to_clear_ms is not None
            self._to_clear_ms = time_ms
        if not is_posted:
            self._loop.post(self._clear_due)

    def _make_due(self) -> None:
        """Make the first batch that is due; the scheduler says when there is room for more.

        What else is to be done has its turn before the next one: after a long pause many are due.
        """
        with self._changed:
            self._is_posted = False
        if self._abandoned.is_set() or not self._scheduler.has_room():
            return
        with self._changed:
            time_ms = self._due.pop()
            while time_ms is not None and self._is_needless(time_ms):
                self._last_ms = time_ms
                self._passed_over += 1
                time_ms = self._due.pop()
            self._is_making = time_ms is not None
            self._changed.notify_all()
        if self._passed_over and (time_ms is None or time_ms not in self._missed):
            _log.info(
                "%d batches of the time when the program did not run have no records and are "
                "passed over; spark.penstock.recovery.emptyBatches=all makes them",
                self._passed_over,
            )
            self._passed_over = 0
        if time_ms is None:
            return
        is_made = True
        try:
            is_made = self._generate(time_ms)
        finally:
            with self._changed:
                # First: its time is not forgotten, whatever fails next.
                if not is_made:
                    self._due.put_back(time_ms)
                self._is_making = False
                self._changed.notify_all()
            try:
                self._clear_due()
            finally:
                if is_made or self._is_to_be_tried_again():
                    self._make_soon()

    def _is_needless(self, time_ms: int) -> bool:
        blocks = self._runtime.received_blocks
        return (
            time_ms in self._missed
            # Up to there they may have been given blocks by the run before (I3).
            and time_ms > blocks.last_allocated_ms()
            and not blocks.has_unallocated_blocks()
            and not self._abandoned.is_set()
            and not self._makes_empty()
        )

    def _is_to_be_tried_again(self) -> bool:
        return not self.ledger_lost and not self._clock.wait(self._abandoned, _RETRY_S)

    def _clear_due(self) -> None:
        with self._changed:
            time_ms, self._to_clear_ms = self._to_clear_ms, None
        if time_ms is not None:
            self._clear(time_ms)

    # -- a batch ---------------------------------------------------------------------------------

    def _generate(self, time_ms: int) -> bool:
        """Make a batch; False when it must be tried again, as it could not be given its blocks."""
        self.note_complete()
        if not self._allocate(time_ms):
            return False
        if self._last_ms is None or time_ms > self._last_ms:
            self._last_ms = time_ms
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
        except BaseException as error:  # noqa: BLE001  # travels to the waiter, also SystemExit
            seen = as_user_sees_it(error)
            what = f"{typed_text(seen)}{place_of(seen)}"
            failure = JobGenerationError(time_ms, what)
            failure.__cause__ = seen
            self._limited_log.log(
                str(failure), like=(type(seen), text_of(seen)), level=logging.ERROR, error=seen
            )
            self._on_error(failure)
        self._again.discard(time_ms)
        self._save()
        return True

    def _allocate(self, time_ms: int) -> bool:
        """Give the batch its blocks; False when the driver log cannot be written now."""
        blocks = self._runtime.received_blocks
        if self._recovered is not None and time_ms <= blocks.last_allocated_ms():
            return True  # It has its blocks since before the restart (I3).
        try:
            blocks.allocate_blocks_to_batch(time_ms)
        except LedgerLostError as error:
            with self._changed:
                is_told, self.ledger_lost = self.ledger_lost, True
            if not is_told:
                failure = JobGenerationError(time_ms, str(error))
                failure.__cause__ = error
                _log.error("%s", failure)
                self._on_error(failure)
            return False
        except Exception as error:  # noqa: BLE001  # the disk may have space again
            self._tell_of_failure(time_ms, error)
            return False
        if self._failing_since_s is not None:
            _log.info("Blocks can be allocated again; batches go on with that of %d ms", time_ms)
        self._failing_since_s = None
        self._told_of_failure = False
        return True

    def _tell_of_failure(self, time_ms: int, error: Exception) -> None:
        now_s = self._clock.monotonic_s()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
            _log.error(
                "Blocks could not be allocated to the batch of %d ms, which waits with those "
                "after it; it is tried again",
                time_ms,
                exc_info=error,
            )
        if not self._told_of_failure and now_s - self._failing_since_s >= self._patience_s:
            self._told_of_failure = True
            failure = JobGenerationError(
                time_ms,
                f"its blocks cannot be allocated for {self._patience_s:.0f} s now; it is tried "
                f"again: {error}",
            )
            failure.__cause__ = error
            self._on_error(failure)

    def _clear(self, time_ms: int) -> None:
        self._graph.clear_metadata(time_ms, self._unpersist)
        remember_ms = self._graph.input_remember_ms()
        threshold_ms = time_ms - remember_ms
        # An RDD of the threshold itself may be made once more, by `slice`, and is reported again.
        self._runtime.input_info.cleanup(threshold_ms + 1)
        if self._unpersist and remember_ms <= self._graph.batch_ms:
            # No later batch reads these blocks: their memory is worth more to the next ones.
            self._release_memory(time_ms)
        self._scheduler.let_go_failed(time_ms)
        self.note_complete()
        if self._checkpointer is None:
            self._release(threshold_ms)
            return
        # What this checkpoint refers to decides, not what exists by the time it is written.
        assert self._last_ms is not None
        pending = self._pending_times()
        self._graph.note_checkpoints(min(pending, default=self._last_ms + self._graph.batch_ms))
        needed_ms = self._graph.oldest_needed_ms()
        if needed_ms is not None:
            threshold_ms = min(threshold_ms, needed_ms)
        self._save(lambda: self._loop.post(lambda: self._release(threshold_ms)))

    def _release(self, threshold_ms: int) -> None:
        if self._unpersist:
            self._runtime.received_blocks.cleanup_old_blocks_and_batches(threshold_ms)

    def _save(self, *when_durable: Callable[[], None]) -> None:
        if self._checkpointer is not None:
            assert self._last_ms is not None
            self._checkpointer.save(self._last_ms, self._pending_times(), when_durable)

    def _pending_times(self) -> list[int]:
        """Return the batches up to the last one that a restart makes again, in order."""
        pending = {*self._scheduler.pending_times(), *self._again}
        return sorted(ms for ms in pending if self._last_ms is not None and ms <= self._last_ms)

    def _save_last(self) -> None:
        assert self._checkpointer is not None
        if self._scheduler.pending_times() or self._again or self._last_ms is None:
            # This version or another one processes them first, on the states that were saved.
            self._save()
        else:
            self._checkpointer.save_last(self._last_ms)

    def _release_memory(self, time_ms: int) -> None:
        first_ms = (
            time_ms if self._released_ms is None else self._released_ms + self._graph.batch_ms
        )
        for done_ms in range(first_ms, time_ms + 1, self._graph.batch_ms):
            self._runtime.received_blocks.release_memory(done_ms)
        self._released_ms = time_ms


class DueTimes:
    """Times in order, kept as runs of one a period: hours of them take no room.

    Any thread may call; one lock guards the runs.

    Args:
        period_ms: The time between two that follow each other.
    """

    def __init__(self, period_ms: int) -> None:
        self._period_ms = period_ms
        self._lock = threading.Lock()
        self._runs: deque[range] = deque()

    def add(self, time_ms: int) -> None:
        """Take a time that has come; it is the last one."""
        with self._lock:
            end_ms = time_ms + self._period_ms
            if self._runs and self._runs[-1].stop == time_ms:
                self._runs[-1] = range(self._runs[-1].start, end_ms, self._period_ms)
            else:
                self._runs.append(range(time_ms, end_ms, self._period_ms))

    def pop(self) -> int | None:
        """Return the first time and forget it; None when there is none."""
        with self._lock:
            if not self._runs:
                return None
            run = self._runs.popleft()
            if len(run) > 1:
                self._runs.appendleft(run[1:])
            return run.start

    def put_back(self, time_ms: int) -> None:
        """Let a time be the first again that `pop` returned last."""
        with self._lock:
            self._runs.appendleft(range(time_ms, time_ms + self._period_ms, self._period_ms))

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._runs.clear()

    def __len__(self) -> int:
        with self._lock:
            return sum(len(run) for run in self._runs)
