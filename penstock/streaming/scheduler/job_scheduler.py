"""Runs the jobs of batches, and reports how they went.

`spark.streaming.concurrentJobs` threads take jobs from one queue, in the order of the batches and
of the output operations. With one thread (the default) batches run one after the other. A failed
job does not stop the others: its error goes to anyone who waits in `awaitTermination`.

A batch is complete when all its jobs have ended, well or not. What may be cleared follows from
`_complete_until_ms`, the last batch before the first that is not complete. So a batch that
overtakes another never clears what that one still needs.

A batch that a stop or the end of Spark cut short is *given up*: it is never complete, listeners do
not hear that it is, and a restarted driver runs it again.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping

from penstock.errors import typed_text
from penstock.host.spark.ending import run_bounded
from penstock.listeners.bus import StreamingListenerBus
from penstock.listeners.events import (
    BatchCompleted,
    BatchStarted,
    BatchSubmitted,
    OutputOperationCompleted,
    OutputOperationStarted,
    SchedulerStatistics,
)
from penstock.runtime.clock import Clock, SystemClock
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.runtime.threads import OwnedThread, wait_for
from penstock.streaming.dstream.job import Job, JobSet
from penstock.streaming.durations import batch_datetime
from penstock.streaming.errors import (
    JobGenerationError,
    OutputOperationError,
    StateSavingError,
)
from penstock.streaming.scheduler.spark_jobs import SparkJobScope
from penstock.user_errors import FailedTaskError, as_user_sees_it, place_of

_WARN_AT = 10
"""Waiting batches at which the first warning comes; the next one comes at twice as many."""

_MAX_WAITING = 1000
"""Waiting batches beyond which no more are made. Later blocks then go to fewer, larger batches."""

_INTERRUPTED_S = 5.0
"""How long jobs may take to end after their Spark jobs were cancelled."""

_log = logging.getLogger("penstock.streaming.job_scheduler")


class JobScheduler:
    """The queue of jobs and the threads that run them.

    `_changed` (a condition with its lock) guards the job sets and the counters, and is notified
    whenever a batch starts or is complete.

    Args:
        scope: Sets what Spark shows of each job.
        batch_ms: The batch interval.
        concurrent_jobs: How many threads run jobs.
        clock: The clock.
        bus: Where events go.
        on_error: Notified of each failed job.
    """

    def __init__(
        self,
        scope: SparkJobScope,
        *,
        batch_ms: int,
        concurrent_jobs: int,
        clock: Clock,
        bus: StreamingListenerBus,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.scope = scope
        self._limited_log = RateLimitedLog(_log)
        self._batch_ms = batch_ms
        self._clock = clock
        self._bus = bus
        self._on_error = on_error
        self._on_complete: Callable[[int], None] = lambda _: None
        self._on_room: Callable[[], None] = lambda: None
        self._changed = threading.Condition()
        self._sets: dict[int, JobSet] = {}
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._stopping = False
        self._cancelled = False
        self._completed = 0
        self._records = 0
        self._failed = 0
        self._last_delay_ms: int | None = None
        self._last_submitted_ms: int | None = None
        self._complete_until_ms: int | None = None
        self._next_warning = _WARN_AT
        # By time, with how many records each stream has in them.
        self._given_up: dict[int, Mapping[int, int]] = {}
        # Complete, with a failed job; a restart tries the last one again.
        self._failed_ms: set[int] = set()
        self._own_batch = threading.local()
        self._threads = [
            OwnedThread(self._run, f"job-{index}", on_error=on_error, again=True)
            for index in range(concurrent_jobs)
        ]

    def start(
        self, on_complete: Callable[[int], None], on_room: Callable[[], None] = lambda: None
    ) -> None:
        """Begin to run jobs.

        Args:
            on_complete: Notified when all batches up to a time are complete; called from job
                threads, and must return at once.
            on_room: Notified when one batch fewer waits; the same.
        """
        self._on_complete = on_complete
        self._on_room = on_room
        for thread in self._threads:
            thread.start()

    # -- batches -------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Return whether fewer than `_MAX_WAITING` batches wait; the backlog is bounded by that."""
        with self._changed:
            return self._waiting() < _MAX_WAITING

    def submit_job_set(self, job_set: JobSet) -> None:
        """Queue the jobs of a batch; after `stop` it is given up.

        A batch without jobs is complete at once, without events.
        """
        with self._changed:
            if self._stopping:
                self._give_up(job_set)
                return
            self._last_submitted_ms = job_set.time_ms
            if self._complete_until_ms is None:
                self._complete_until_ms = job_set.time_ms - self._batch_ms
            if job_set.jobs:
                job_set.submission_ms = self._clock.time_ms()
                self._sets[job_set.time_ms] = job_set
                self._bus.post(BatchSubmitted(job_set.info()))
                for job in job_set.jobs:
                    self._queue.put(job)
            else:
                _log.info("No jobs added for time %d ms", job_set.time_ms)
            self._warn_of_backlog()
            self._advance_complete()

    def statistics(self) -> SchedulerStatistics:
        """Return how many batches wait, run and are done."""
        with self._changed:
            waiting = self._waiting()
            return SchedulerStatistics(
                waiting,
                len(self._sets) - waiting,
                self._completed,
                self._failed,
                self._last_delay_ms,
                given_up_batches=len(self._given_up),
                records=self._records,
            )

    def unfinished(self) -> dict[int, bool]:
        """Return the times of the batches that wait or run, and whether each has begun."""
        with self._changed:
            return {ms: found.start_ms is not None for ms, found in self._sets.items()}

    def given_up(self) -> dict[int, Mapping[int, int]]:
        """Return how many records each stream has in the batches that were given up, by time."""
        with self._changed:
            return dict(sorted(self._given_up.items()))

    def pending_times(self) -> list[int]:
        """Return the batches that a restarted driver must run again, in order.

        These are the ones that are not complete, and a last one with a failed job.
        """
        with self._changed:
            return sorted({*self._sets, *self._given_up, *self._failed_ms})

    def complete_among(self, times_ms: Iterable[int]) -> set[int]:
        """Return the times, up to the last batch submitted, whose batches are complete.

        A batch with a failed job is among them once a later one is also complete.
        """
        with self._changed:
            last_ms = self._last_submitted_ms
            if last_ms is None:
                return set()
            pending = {*self._sets, *self._given_up, *self._failed_ms}
            return {ms for ms in times_ms if ms <= last_ms and ms not in pending}

    def let_go_failed(self, time_ms: int) -> None:
        """Forget failed batches before `time_ms`: what they are made of may be let go."""
        with self._changed:
            self._failed_ms = {ms for ms in self._failed_ms if ms >= time_ms}

    def is_job_thread(self) -> bool:
        """Return whether the caller is an output operation."""
        return threading.current_thread() in self._threads

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Wait until every batch is complete.

        Returns:
            False when the time was over first.
        """
        with self._changed:
            return wait_for(self._changed, lambda: not self._sets, timeout_s)

    def _waiting(self) -> int:
        return sum(job_set.start_ms is None for job_set in self._sets.values())

    def _warn_of_backlog(self) -> None:
        waiting = self._waiting()
        if waiting >= self._next_warning:
            self._next_warning = waiting * 2
            why = (
                f"processing takes longer than the batch interval of {self._batch_ms} ms; use a "
                "longer interval, more cores (receivers may hold all there are) or a rate limit "
                "(spark.streaming.receiver.maxRate)"
                if self._completed
                else "none is complete yet; the first takes longest, for Spark starts what it "
                "needs with it, and needs a core that no receiver holds"
            )
            _log.warning("%d batches wait to be processed: %s", waiting, why)
        elif waiting == 0:
            self._next_warning = _WARN_AT

    def _advance_complete(self) -> None:
        """Report the time up to which all batches are complete, if that is later than before.

        It is called under the lock, so that anyone who sees the scheduler idle may rely on it.
        """
        incomplete = {*self._sets, *self._given_up}
        if incomplete:
            until_ms = min(incomplete) - self._batch_ms
        elif self._last_submitted_ms is not None:
            until_ms = self._last_submitted_ms
        else:
            return
        if self._complete_until_ms is None or until_ms > self._complete_until_ms:
            self._complete_until_ms = until_ms
            self._on_complete(until_ms)

    # -- jobs ------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            job = self._queue.get()
            if job is None:
                return
            if not self._begin(job):
                continue
            self._own_batch.time_ms = job.time_ms
            error: BaseException | None = None
            try:
                with self.scope.job(job):
                    job.run()
            except BaseException as failure:  # noqa: BLE001  # the user's; goes to the waiter
                error = failure
            self._end(job, error)

    def _begin(self, job: Job) -> bool:
        """Note that a job starts; return False when it must not, because of a stop."""
        with self._changed:
            job_set = self._sets.get(job.time_ms)
            if self._stopping or job_set is None:
                return False
            now_ms = self._clock.time_ms()
            result = job_set.results[job.output_op_id]
            if job_set.start_ms is None:
                job_set.start_ms = now_ms
                self._on_room()
                self._bus.post(BatchStarted(job_set.info()))
            result.start_ms = now_ms
            self._bus.post(OutputOperationStarted(result.info()))
            return True

    def _end(self, job: Job, error: BaseException | None) -> None:
        if error is not None:
            try:
                self._report(job, error)
            except Exception:  # noqa: BLE001  # of the log, of listeners, of the waiter
                # It is the program's error, and its batch ends whatever that does.
                _log.exception("An output operation failed, and that could not be told")
        # Asked of the JVM, so not under the lock.
        is_cut_short = error is not None and (
            self._cancelled or _is_given_up(error) or bool(self.scope.why_ended())
        )
        with self._changed:
            job_set = self._sets.get(job.time_ms)
            if job_set is None:
                return
            now_ms = self._clock.time_ms()
            result = job_set.results[job.output_op_id]
            result.end_ms = now_ms
            result.error = error
            if is_cut_short:
                self._give_up(job_set)
            self._bus.post(OutputOperationCompleted(result.info()))
            if job_set.is_complete:
                self._complete(job_set, now_ms)
            self._changed.notify_all()

    def _report(self, job: Job, error: BaseException) -> None:
        """Report a failed job, before its batch is complete."""
        if _is_given_up(error):
            _log.warning("%s", error)
            return
        with self._changed:
            # What a stop interrupted is not an error of the program; its report has the batch.
            interrupted = self._cancelled
        if interrupted:
            _log.info("The stop interrupted the batch of %d ms", job.time_ms, exc_info=error)
            return
        failure = _as_failure(job, error)
        if self.scope.why_ended():
            # With hundreds of lines of Java; `_on_error` says where they come from.
            _log.info("Spark's end interrupted the batch of %d ms", job.time_ms, exc_info=error)
            self._on_error(failure)
            return
        self._limited_log.log(
            str(failure),
            like=(job.output_op_id, type(failure), type(failure.__cause__)),
            level=logging.ERROR,
            error=failure.__cause__,
        )
        self._on_error(failure)

    def _give_up(self, job_set: JobSet) -> None:
        self._given_up[job_set.time_ms] = {
            stream_id: info.num_records for stream_id, info in job_set.input_info.items()
        }

    def _complete(self, job_set: JobSet, now_ms: int) -> None:
        job_set.end_ms = now_ms
        del self._sets[job_set.time_ms]
        if job_set.time_ms in self._given_up:
            return
        self._completed += 1
        if any(result.error is not None for result in job_set.results.values()):
            self._failed += 1
            self._failed_ms.add(job_set.time_ms)
        info = job_set.info()
        self._last_delay_ms = info.totalDelay()
        self._records += info.numRecords()
        _log.info(
            "Batch of %s is complete: %d records, total delay %.3f s (processing %.3f s)",
            batch_datetime(job_set.time_ms),
            info.numRecords(),
            info.totalDelay() / 1000,
            info.processingDelay() / 1000,
        )
        self._bus.post(BatchCompleted(info))
        self._advance_complete()

    # -- stop ------------------------------------------------------------------------------------

    def stop(self, timeout_s: float) -> None:
        """Let no more jobs begin; those that run may take `timeout_s`, then they are cancelled.

        Batches that were not run in full are given up. May be called from an output operation, and
        again.
        """
        with self._changed:
            self._stopping = True
            for job_set in list(self._sets.values()):
                if any(result.start_ms is None for result in job_set.results.values()):
                    self._give_up(job_set)
                if job_set.start_ms is None:
                    del self._sets[job_set.time_ms]
            self._changed.notify_all()
        for _ in self._threads:
            self._queue.put(None)
        if not self._join(timeout_s):
            self._cancel()
        own_ms: int | None = getattr(self._own_batch, "time_ms", None)
        with self._changed:
            # What has not even ended now may do so after `stop` has returned, half-done.
            for job_set in self._sets.values():
                if job_set.time_ms != own_ms:
                    self._give_up(job_set)

    def _cancel(self) -> None:
        _log.warning("Cancelling the Spark jobs of output operations that still run")
        with self._changed:
            self._cancelled = True
        run_bounded("cancel", self.scope.cancel_jobs, _INTERRUPTED_S)
        if not self._join(_INTERRUPTED_S):
            names = [thread.name for thread in self._others() if thread.is_alive()]
            _log.warning(
                "Output operations still run in %s; they end with the process", ", ".join(names)
            )

    def _join(self, timeout_s: float) -> bool:
        end_s = self._real_time_s() + timeout_s
        for thread in self._others():
            if thread.is_alive():
                thread.join(max(0.0, end_s - self._real_time_s()))
        return not any(thread.is_alive() for thread in self._others())

    def _others(self) -> list[threading.Thread]:
        return [thread for thread in self._threads if thread is not threading.current_thread()]

    @staticmethod
    def _real_time_s() -> float:
        # Joining a thread takes real time, whatever the clock of the batches is.
        return SystemClock().monotonic_s()


def _is_given_up(error: BaseException) -> bool:
    """Return whether a job has ended because of a stop, before its operation began."""
    return isinstance(error, StateSavingError) and error.is_given_up


def _as_failure(job: Job, error: BaseException) -> BaseException:
    if isinstance(error, JobGenerationError):
        return error
    seen = as_user_sees_it(error)
    what = seen.what if isinstance(seen, FailedTaskError) else typed_text(seen)
    what = f"{what}{place_of(seen)}"
    failure = OutputOperationError(job.time_ms, job.output_op_id, job.name, what)
    failure.__cause__ = seen
    return failure
