"""`ReceiverJob`: runs one receiver's Spark job again and again until there is a reason to stop."""

from __future__ import annotations

import enum
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.clock import Clock
from penstock.rate_limited_log import RateLimitedLog
from penstock.tracker._restart_backoff import RestartBackoff
from penstock.tracker.cluster import Cluster, TaskEnd
from penstock.tracker.task_location import TaskLocation

__all__ = ["Launch", "Next", "ReceiverJob", "ReceiverJobOwner"]

_log = logging.getLogger("penstock.tracker")


class Next(enum.Enum):
    """What to do after a receiver's job ended."""

    START_AGAIN = "start again"
    DONE = "done"


@dataclass(frozen=True)
class Launch:
    """One start of a receiver.

    Attributes:
        attempt: The new attempt's name.
        task: What the executor runs.
        locations: Where it should run.
    """

    attempt: str
    task: Callable[[], None]
    locations: Sequence[TaskLocation]


class ReceiverJobOwner(Protocol):
    """Who decides over a receiver's starts; called on the job's thread."""

    def next_launch(self, stream_id: int) -> Launch | None:
        """Prepare a new attempt, or return None when no more are wanted."""

    def job_ended(
        self, stream_id: int, attempt: str, end: TaskEnd | None, error: Exception | None
    ) -> Next:
        """Take note of the end: `end` when the task returned, `error` when the job failed."""

    def job_thread_died(self, stream_id: int, error: BaseException) -> None:
        """The thread dies of a defect; the receiver will not start again."""


class ReceiverJob:
    """One receiver's thread ``penstock-receiver-job-<N>``; one job at a time.

    Its owner calls `stop`, `cancel` and `join`.
    """

    def __init__(
        self,
        stream_id: int,
        cluster: Cluster,
        owner: ReceiverJobOwner,
        backoff: RestartBackoff,
        clock: Clock,
    ) -> None:
        self._stream_id = stream_id
        self._cluster = cluster
        self._owner = owner
        self._backoff = backoff
        self._clock = clock
        self._limited_log = RateLimitedLog(_log, clock)
        self._tag = f"penstock-receiver-{stream_id}-{uuid.uuid4().hex}"
        self._stopping = threading.Event()
        self._thread = cluster.thread(self._run, f"penstock-receiver-job-{stream_id}")

    @property
    def stream_id(self) -> int:
        """The receiver's stream."""
        return self._stream_id

    @property
    def tag(self) -> str:
        """The tag of its Spark jobs; no other jobs have it."""
        return self._tag

    @property
    def is_alive(self) -> bool:
        """Whether a job runs, or another is to come."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Start no other job; the running one goes on."""
        self._stopping.set()

    def cancel(self) -> None:
        """Cancel the running job."""
        self._cluster.cancel(self._tag)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; return whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                launch = self._owner.next_launch(self._stream_id)
                if launch is None:
                    return
                if not self._run_once(launch):
                    return
        except BaseException as error:  # noqa: BLE001 - what a thread dies of goes to its owner
            self._owner.job_thread_died(self._stream_id, error)

    def _run_once(self, launch: Launch) -> bool:
        started_s = self._clock.monotonic_s()
        end: TaskEnd | None = None
        failure: Exception | None = None
        try:
            end = self._cluster.run_task(self._stream_id, self._tag, launch.task, launch.locations)
        except Exception as error:  # noqa: BLE001 - whatever a job dies of goes to the owner
            failure = error
        following = self._owner.job_ended(self._stream_id, launch.attempt, end, failure)
        if following is Next.DONE or self._stopping.is_set():
            return False
        delay_s = self._backoff.next_delay_s(self._clock.monotonic_s() - started_s)
        when = f"in {delay_s:.1f} s" if delay_s else "at once"
        self._limited_log.log(f"Receiver {self._stream_id} is started again {when}", like="")
        return not self._clock.wait(self._stopping, delay_s)
