"""`ReceiverStarts`: prepares each start of a receiver, and decides whether there is another."""

from __future__ import annotations

import logging
import threading
import traceback
import uuid
from collections.abc import Callable, Mapping
from functools import partial

from penstock.errors import PenstockError
from penstock.rate_limited_log import RateLimitedLog
from penstock.receiver import ReceiverFailedError, ReceiverLaunch, run_receiver
from penstock.tracker._block_servers import BlockServers
from penstock.tracker._listeners import Listeners
from penstock.tracker._receiver_jobs import Launch, Next
from penstock.tracker._receivers import Receivers
from penstock.tracker._shared_logs import SharedLogs
from penstock.tracker.cluster import Cluster, TaskEnd
from penstock.tracker.received_block_tracker import ReceivedBlockTracker
from penstock.tracker.receiver_scheduling_policy import ReceiverSchedulingPolicy
from penstock.tracker.task_location import TaskLocation

__all__ = ["HOPELESS_STARTS", "ReceiverStarts"]

_log = logging.getLogger("penstock.tracker")

_TELLS_NOTHING = ("at ", "... ", "File ", "SQLSTATE: ")
"""How lines of a JVM stack trace begin, and the line with which Spark ends Python's text."""

HOPELESS_STARTS = 3
"""Consecutive Python errors before registration after which a receiver is given up."""


class ReceiverStarts:
    """The `ReceiverJobOwner` of all receivers; called on their jobs' threads.

    `_lock` guards the first places and the counts of hopeless starts.
    """

    def __init__(
        self,
        launches: Mapping[int, Callable[[str, Mapping[str, str]], ReceiverLaunch]],
        first_places: Mapping[int, tuple[TaskLocation, ...]],
        *,
        cluster: Cluster,
        ledger: ReceivedBlockTracker,
        receivers: Receivers,
        block_servers: BlockServers,
        shared_logs: SharedLogs,
        listeners: Listeners,
        is_started: Callable[[], bool],
    ) -> None:
        """Make it.

        Args:
            launches: By stream, what makes a launch of an attempt, given its name and the hosts
                of the executors by id.
            first_places: Where the receivers run at first.
            cluster: Where they run.
            ledger: The ledger.
            receivers: The table of receivers.
            block_servers: The block servers.
            shared_logs: The logs on HDFS, if they are there.
            listeners: Are told of receivers.
            is_started: Whether the tracker runs and does not stop yet.
        """
        self._launches = launches
        self._cluster = cluster
        self._ledger = ledger
        self._receivers = receivers
        self._block_servers = block_servers
        self._shared_logs = shared_logs
        self._listeners = listeners
        self._is_started = is_started
        self._limited_log = RateLimitedLog(_log)
        self._policy = ReceiverSchedulingPolicy()
        self._lock = threading.Lock()
        self._first_places = dict(first_places)
        self._hopeless = dict.fromkeys(launches, 0)

    def next_launch(self, stream_id: int) -> Launch | None:
        """Prepare a new attempt; None when the tracker stops."""
        if not self._is_started():
            return None
        executors = self._cluster.executors()
        with self._lock:
            places = self._first_places.pop(stream_id, None)
        if places is None:
            places = self._policy.reschedule_receiver(
                stream_id, self._receivers.preferred(stream_id), self._receivers.infos(), executors
            )
            self._warn_of_few_slots()
        attempt = uuid.uuid4().hex
        hosts = {executor.executor_id: executor.host for executor in executors}
        launch = self._launches[stream_id](attempt, hosts)
        self._receivers.schedule(stream_id, attempt, places)
        return Launch(attempt, partial(run_receiver, launch), places)

    def _warn_of_few_slots(self) -> None:
        """Tell when the executors that are left have no room for batches beside the receivers."""
        slots, receivers = self._cluster.slots(), len(self._launches)
        if slots <= receivers:
            self._limited_log.log(
                f"the executors that are up run {slots} tasks at a time, and each of {receivers} "
                "receivers holds one for good: no batch can run until there are more executors"
            )

    def job_ended(
        self, stream_id: int, attempt: str, end: TaskEnd | None, error: Exception | None
    ) -> Next:
        """Take note of a job's end and say whether the receiver starts again.

        It does unless the tracker stops, the receiver ended for good, or it is hopeless.
        """
        stopping = not self._is_started()
        trace = _text_of(error) if error is not None else ""
        ended = self._receivers.job_ended(stream_id, attempt)
        # A receiver that deregistered has told of its error itself.
        told = bool(trace) and not stopping and (ended.was_active or not ended.registered)
        if told:
            text = f"The job of receiver {stream_id} failed"
            self._limited_log.log(f"{text}: {_headline(trace)}", about=stream_id)
            self._listeners.error(self._receivers.keep_error(stream_id, text, trace))
        if ended.was_active:
            level = logging.INFO if told else logging.WARNING
            _log.log(level, "Receiver %d exited but didn't deregister", stream_id)
            self._listeners.stopped(ended.info)
        if ended.disconnected:
            self._ledger.end_attempt(attempt)
        if not ended.registered:
            # It may have made its files, on whichever host it was.
            self._block_servers.release_everywhere((attempt,))
            self._shared_logs.remove_attempt(stream_id, attempt)
        if stopping or ended.permanent:
            return Next.DONE
        if end is TaskEnd.ENDED and not ended.bounced:
            return Next.DONE
        if self._is_hopeless(stream_id, ended.registered, end, trace):
            message = f"Receiver {stream_id} failed {HOPELESS_STARTS} times at its start"
            self._listeners.gave_up(stream_id, message, trace)
            return Next.DONE
        return Next.START_AGAIN

    def _is_hopeless(
        self, stream_id: int, registered: bool, end: TaskEnd | None, trace: str
    ) -> bool:
        if end is TaskEnd.RETRY:
            return False  # that says nothing of why the first try failed
        raised = "Traceback (most recent call last)" in trace
        told_by_itself = ReceiverFailedError.__name__ in trace
        with self._lock:
            count = 0
            if raised and not registered and not told_by_itself:
                count = self._hopeless[stream_id] + 1
            self._hopeless[stream_id] = count
        return count >= HOPELESS_STARTS

    def job_thread_died(self, stream_id: int, error: BaseException) -> None:
        """Tell the user of a defect."""
        trace = "".join(traceback.format_exception(error))
        self._listeners.gave_up(stream_id, f"The thread of receiver {stream_id} died", trace)


def _text_of(error: BaseException) -> str:
    """Return what there is to know of a failed job: Spark puts the task's traceback there."""
    return str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"


def _headline(text: str) -> str:
    """Return the line of a failed job's text that says most: Java's text ends with its stack."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    telling = [line for line in lines if not line.startswith(_TELLS_NOTHING)]
    return (causes or telling or lines or ["no reason given"])[-1]
