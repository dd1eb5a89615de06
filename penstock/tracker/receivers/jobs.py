"""The Spark job of each receiver: preparing a start, running it, and when there is another.

A receiver that died is started again at once the first time, then ever later (`RestartBackoff`).
"""

from __future__ import annotations

import enum
import logging
import random
import threading
import traceback
import uuid
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from py4j.protocol import Py4JNetworkError

from penstock.errors import PenstockError
from penstock.receiver import ReceiverFailedError, ReceiverLaunch, run_receiver
from penstock.runtime.clock import Clock
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.runtime.threads import OwnedThread
from penstock.tracker.cluster import Cluster, TaskEnd, TaskLocation
from penstock.tracker.ledger.received_block_tracker import ReceivedBlockTracker
from penstock.tracker.receivers.receiver_scheduling_policy import ReceiverSchedulingPolicy
from penstock.tracker.receivers.receiver_tracking_info import Listeners
from penstock.tracker.receivers.registry import Receivers
from penstock.tracker.receivers.slots import ReceiverSlot
from penstock.tracker.receivers.splits import SplitStream

BASE_DELAY_S = 0.5
"""The shortest time between two starts after the first restart."""

_log = logging.getLogger("penstock.tracker")
_SPARK_IS_OVER = "SparkContext was shut down"
"""Part of what Spark says of a job that was ended by the stop of its context."""
_JVM_IS_GONE = (Py4JNetworkError, ConnectionError)
"""What a call to a JVM raises that does not answer any more."""
_PROCESS_DIED = "Python worker exited unexpectedly"
"""In what Spark says of a process that is gone; the end of its text is an `EOFException`."""
_OF_DEAD_PROCESS = (
    "its process ended without a word: it was killed (is memory short?), crashed or called os._exit"
)
_CRASHED = "Fatal Python error: "
"""How Python's fault handler begins, where Spark's settings have it on (not by default)."""
_TELLS_NOTHING = ("at ", "... ", "File ", "SQLSTATE: ")
"""Beginnings of lines that say nothing to a user: stack traces, and the end of Spark's message."""

HOPELESS_STARTS = 3
"""Consecutive Python errors before registration after which a receiver is given up."""


class RestartBackoff:
    """The pauses before the restarts of one receiver. Used by one thread.

    The first restart is immediate. After that two starts are a distance apart, which is drawn
    between 0.5 s and three times the one before, up to the maximum: "decorrelated jitter" (M.
    Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015), which about doubles it
    and keeps receivers that died together from coming back together. So one that fails at once
    waits ever longer, and one that ran for longer than that and lost its executor does not wait.
    A good run starts it all over.
    """

    def __init__(
        self, max_delay_s: float, reset_s: float, *, chance: random.Random | None = None
    ) -> None:
        """Make the pauses.

        Args:
            max_delay_s: The longest distance between two starts.
            reset_s: A run of this length counts as good.
            chance: Where the jitter comes from.
        """
        self._max_delay_s = max_delay_s
        self._reset_s = reset_s
        self._chance = chance or random.Random()
        self._last_s: float | None = None

    def next_delay_s(self, ran_s: float) -> float:
        """Return the pause before the next start, after a run of `ran_s` seconds."""
        if ran_s >= self._reset_s:
            self._last_s = None
        if self._last_s is None:
            self._last_s = 0.0
            return 0.0
        high = max(BASE_DELAY_S, 3 * max(self._last_s, BASE_DELAY_S))
        self._last_s = min(self._max_delay_s, self._chance.uniform(BASE_DELAY_S, high))
        return max(0.0, self._last_s - ran_s)


class Next(enum.Enum):
    """What to do after a receiver's job ended."""

    START_AGAIN = "start again"
    MOVE = "start again at once"
    DONE = "done"


@dataclass(frozen=True)
class Launch:
    """One start of a receiver.

    Attributes:
        attempt: The new attempt's name.
        task: What the executor runs; None: its slot knows.
        locations: Where it should run.
    """

    attempt: str
    task: Callable[[], None] | None
    locations: Sequence[TaskLocation]


class Starts(Protocol):
    """Decides over the starts of a job's task; called on the job's thread."""

    def next_launch(self, stream_id: int, *, is_placed: bool) -> Launch | None:
        """Prepare a new attempt; None when there is to be none.

        Args:
            stream_id: The stream.
            is_placed: A slot that receivers share has the place.
        """
        ...

    def job_ended(
        self, stream_id: int, attempt: str, end: TaskEnd | None, error: Exception | None
    ) -> Next:
        """Take note of a job's end and say whether the task starts again."""
        ...

    def job_thread_died(self, stream_id: int, error: BaseException) -> None:
        """Report what the thread died of."""
        ...


class ReceiverJob:
    """One receiver's thread ``penstock-receiver-job-<N>``; one job at a time.

    Its owner calls `stop`, `cancel` and `join`. Also the thread of a task of a continuous stream,
    which is no receiver, and lives the same way.
    """

    def __init__(
        self,
        stream_id: int,
        cluster: Cluster,
        owner: Starts,
        backoff: RestartBackoff,
        clock: Clock,
        slot: ReceiverSlot | None = None,
        task: int | None = None,
    ) -> None:
        """Make it; nothing runs before `start`.

        Args:
            stream_id: The stream.
            cluster: Where it runs.
            owner: Decides over its starts.
            backoff: The pauses between them.
            clock: Time.
            slot: What the receiver shares with others; None: a job of its own.
            task: The number of a task of a continuous stream; None: it is the receiver.
        """
        self._stream_id = stream_id
        self._cluster = cluster
        self._slot = slot
        self._owner = owner
        self._backoff = backoff
        self._clock = clock
        self._limited_log = RateLimitedLog(_log, clock)
        number = f"{stream_id}" if task is None else f"{stream_id}-function-{task}"
        self._tag = f"penstock-receiver-{number}-{uuid.uuid4().hex}"
        self._name = (
            f"Receiver {stream_id}" if task is None else f"Task {task} of stream {stream_id}"
        )
        self._number = number
        self._stopping = threading.Event()
        name = f"penstock-receiver-job-{number}"
        # What runs no Spark job needs no thread of the JVM.
        self._thread: threading.Thread = (
            cluster.thread(self._run, name)
            if slot is None
            else OwnedThread(self._run, name.removeprefix("penstock-"))
        )

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

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or is to end: no other job is to come."""
        begun = self._thread.ident is not None
        return self._stopping.is_set() or (begun and not self._thread.is_alive())

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Start no other job; the running one goes on."""
        self._stopping.set()

    def cancel(self) -> None:
        """Cancel the running job, or its part of one that receivers share."""
        if self._slot is None:
            self._cluster.cancel(self._tag)
        else:
            self._slot.cancel_attempt(self._stream_id)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; return whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                launch = self._owner.next_launch(self._stream_id, is_placed=self._slot is not None)
                if launch is None:
                    return
                if not self._run_once(launch):
                    return
        except BaseException as error:  # noqa: BLE001 - what a thread dies of goes to its owner
            self._owner.job_thread_died(self._stream_id, error)
        finally:
            if self._slot is not None:
                self._slot.leave(self._stream_id)

    def _run_once(self, launch: Launch) -> bool:
        started_s = self._clock.monotonic_s()
        end: TaskEnd | None = None
        failure: Exception | None = None
        try:
            if launch.task is not None:
                end = self._cluster.run_task(self._number, self._tag, launch.task, launch.locations)
            elif self._slot is not None:
                end = self._slot.run(self._stream_id, launch.attempt)
        except Exception as error:  # noqa: BLE001 - whatever a job dies of goes to the owner
            failure = error
        following = self._owner.job_ended(self._stream_id, launch.attempt, end, failure)
        if following is Next.DONE or self._stopping.is_set():
            return False
        if following is Next.MOVE:
            return True
        delay_s = self._backoff.next_delay_s(self._clock.monotonic_s() - started_s)
        when = f"in {delay_s:.1f} s" if delay_s else "at once"
        # A hundred that share a slot come back together; what they died of is logged.
        level = logging.INFO if self._slot is not None and not delay_s else logging.WARNING
        self._limited_log.log(f"{self._name} is started again {when}", like=level, level=level)
        return not self._clock.wait(self._stopping, delay_s)


MakeLaunch = Callable[[str, Mapping[str, str]], ReceiverLaunch]


class ReceiverStarts:
    """Decides over the starts of all receivers; called on their jobs' threads.

    `_lock` guards the first places and the counts of hopeless starts.
    """

    def __init__(
        self,
        launches: Mapping[int, tuple[MakeLaunch, tuple[TaskLocation, ...] | None]],
        tasks: int,
        *,
        cluster: Cluster,
        ledger: ReceivedBlockTracker,
        receivers: Receivers,
        listeners: Listeners,
        is_started: Callable[[], bool],
        splits: Mapping[int, SplitStream],
        sharing: Container[int],
    ) -> None:
        """Make it.

        Args:
            launches: By stream, what makes a launch of an attempt, given its name and the hosts
                of the executors by id, and where the receiver runs at first; None: with others.
            tasks: How many Spark tasks they are.
            cluster: Where they run.
            ledger: The ledger.
            receivers: The table of receivers.
            listeners: Are notified of receivers.
            is_started: Whether the tracker runs and does not stop yet.
            splits: Those whose receivers have splits, by stream.
            sharing: The streams whose receivers share a slot with others.
        """
        self._splits = splits
        self._sharing = sharing
        self._launches = {stream: make for stream, (make, _) in launches.items()}
        self._tasks = tasks
        self._cluster = cluster
        self._ledger = ledger
        self._receivers = receivers
        self._listeners = listeners
        self._is_started = is_started
        self._limited_log = RateLimitedLog(_log)
        self._policy = ReceiverSchedulingPolicy()
        self._lock = threading.Lock()
        self._first_places = {stream: at for stream, (_, at) in launches.items() if at is not None}
        self._hopeless = dict.fromkeys(launches, 0)

    def next_launch(self, stream_id: int, *, is_placed: bool) -> Launch | None:
        """Prepare a new attempt, once it has something to read; None when the tracker stops."""
        if stream_id in self._splits and not self._splits[stream_id].await_turn(stream_id):
            return None
        if not self._is_started():
            return None
        attempt = uuid.uuid4().hex
        if is_placed:
            self._receivers.schedule(stream_id, attempt, ())
            return Launch(attempt, None, ())
        executors = self._cluster.executors()
        with self._lock:
            places = self._first_places.pop(stream_id, None)
        if places is None:
            places = self._policy.reschedule_receiver(
                stream_id, self._receivers.preferred(stream_id), self._receivers.infos(), executors
            )
            self.warn_of_few_slots()
        hosts = {executor.executor_id: executor.host for executor in executors}
        launch = self._launches[stream_id](attempt, hosts)
        self._receivers.schedule(stream_id, attempt, places)
        return Launch(attempt, partial(run_receiver, launch), places)

    def warn_of_few_slots(self) -> None:
        """Warn when the executors that are left have no room for batches beside the receivers."""
        slots = self._cluster.slots()
        if slots <= self._tasks:
            self._limited_log.log(
                f"the executors that are up run {slots} tasks at a time, and receivers hold "
                f"{self._tasks} of them for good: no batch can run until there are more executors"
            )

    def job_ended(
        self, stream_id: int, attempt: str, end: TaskEnd | None, error: Exception | None
    ) -> Next:
        """Take note of a job's end and say whether the receiver starts again.

        It does unless the tracker stops, the receiver ended for good, or it is hopeless.
        """
        following = self._after_job(stream_id, attempt, end, error)
        if (splits := self._splits.get(stream_id)) is not None:
            splits.job_ended(stream_id)
            if following is Next.DONE:
                splits.is_over(stream_id, gave_up=error is not None)
        return following

    def _after_job(
        self, stream_id: int, attempt: str, end: TaskEnd | None, error: Exception | None
    ) -> Next:
        trace = text_of_job(error) if error is not None else ""
        stopping = not self._is_started()
        is_spark_over = not stopping and is_end_of_spark(error, trace, self._cluster)
        ended = self._receivers.job_ended(stream_id, attempt)
        # A receiver that deregistered has reported its error itself.
        told = (
            bool(trace)
            and not (stopping or is_spark_over or ended.moves)
            and (ended.was_active or not ended.registered)
        )
        info = ended.info
        if told:
            text = f"The job of receiver {stream_id} failed"
            cause = headline(trace)
            # What a shared process dies of is reported once, and names those that were in it.
            about = cause if stream_id in self._sharing else stream_id
            self._limited_log.log(f"{text}: {cause}", about=about)
            info = self._receivers.keep_error(stream_id, text, trace)
            self._listeners.error(info)
        if ended.was_active:
            level = logging.INFO if told or is_spark_over or ended.moves else logging.WARNING
            _log.log(level, "Receiver %d exited but didn't deregister", stream_id)
            self._listeners.stopped(info)
        # One that has not registered has no files either.
        if ended.disconnected:
            self._ledger.end_attempt(attempt)
        if is_spark_over:
            self._listeners.ended_with_spark(stream_id, trace)
            return Next.DONE
        if stopping or ended.permanent:
            return Next.DONE
        if ended.moves:
            return Next.MOVE
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
        """Report a defect, or the end of Spark that came between two jobs."""
        trace = "".join(traceback.format_exception(error))
        if is_end_of_spark(error, "", self._cluster):
            self._listeners.ended_with_spark(stream_id, trace)
            return
        self._listeners.gave_up(stream_id, f"The thread of receiver {stream_id} died", trace)


def is_end_of_spark(error: BaseException | None, trace: str, cluster: Cluster) -> bool:
    """Return whether a job ended because its SparkContext or the JVM has."""
    return (
        _SPARK_IS_OVER in trace
        or isinstance(error, _JVM_IS_GONE)
        or (error is not None and cluster.is_stopped)
    )


def text_of_job(error: BaseException) -> str:
    """Return what there is to know of a failed job: Spark puts the task's traceback into it."""
    return str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"


def of_python(text: str) -> str:
    """Return a failed job's text without Java's stacks, which say nothing to a user."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if not line.strip().startswith(("at ", "... ")))


def headline(text: str) -> str:
    """Return the line of a failed job's text that says most: Java's text ends with its stack."""
    if _PROCESS_DIED in text:
        _, crashed, words = text.partition(_CRASHED)
        return f"its process crashed: {words.splitlines()[0]}" if crashed else _OF_DEAD_PROCESS
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    telling = [line for line in lines if not line.startswith(_TELLS_NOTHING)]
    return (causes or telling or lines or ["no reason given"])[-1]
