"""`ContinuousStreams`: the driver's half of continuous streams (see `penstock.continuous`).

Each of them has its `Epochs`; here their tasks are started, each by a `ReceiverJob`, as receivers
are, and what tasks say is handed on, on ``penstock-continuous``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from penstock.blockstore import BlockAccess
from penstock.continuous import (
    ContinuousLaunch,
    ContinuousOperation,
    ContinuousTaskError,
    StatePlace,
    run_task,
)
from penstock.dead_letters import FunctionLetters
from penstock.errors import SettingError
from penstock.files.addresses import is_shared
from penstock.receiver import BlockLogs
from penstock.runtime.clock import Clock
from penstock.runtime.event_loop import EventLoop
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.settings import IO_ENCRYPTION, Settings
from penstock.tracker.cluster import Cluster, TaskEnd, TaskLocation
from penstock.tracker.consumers.epochs import MOST_BYTES, EpochOwner, Epochs, EpochStatus
from penstock.tracker.ledger.places import Places
from penstock.tracker.receivers.jobs import (
    Launch,
    Next,
    ReceiverJob,
    RestartBackoff,
    headline,
    is_end_of_spark,
    of_python,
    text_of_job,
)
from penstock.tracker.receivers.receiver_tracking_info import Listeners
from penstock.wire import Peer
from penstock.wire.messages import (
    EpochCommitted,
    EpochPrepared,
    Message,
    Ok,
    Refused,
    ShownBlock,
    SubscribeTask,
    TaskFailed,
    TaskWaits,
    TimerDue,
)

CONTINUOUS_MESSAGES = (
    SubscribeTask,
    EpochPrepared,
    EpochCommitted,
    TimerDue,
    TaskWaits,
    TaskFailed,
)

_STOP_S = 10.0

_LEASES = 2
"""After that many leases without a connection a task has ended by itself, or never will."""

_LATE_START_S = 20.0
"""After this long it is logged that a task has not started."""

_MADE_BY = "continuous"
"""In place of a receiver's class in dead letters."""

_NOBODYS_FAULT = "unrelated to the running tasks"
"""In what Spark says of an executor that was taken away; it does not count that either
(``ExecutorLossReason.scala``)."""

_STATE = re.compile(r"([0-9a-f]{32})-\d+-of-\d+\.sqlite(-journal)?$")

_log = logging.getLogger("penstock.tracker")


@dataclass(frozen=True)
class ContinuousStream:
    """A stream that has a continuous function.

    Attributes:
        name: Its name.
        operation: What is asked for.
        pickled: That, pickled.
        max_backlog_bytes: With that many bytes in no logged epoch its receiver waits; None:
            it does not.
    """

    name: str
    operation: ContinuousOperation
    pickled: bytes
    max_backlog_bytes: int | None = None

    @property
    def most_bytes(self) -> int:
        """How many bytes of no committed epoch a task is sent, so that one ends before it waits."""
        wanted = self.max_backlog_bytes
        return MOST_BYTES if wanted is None else min(MOST_BYTES, wanted // 4)


@dataclass(frozen=True)
class TaskSurroundings:
    """Where the tasks of continuous streams run.

    Attributes:
        cluster: Where.
        settings: The application's settings.
        access: Returns what reaching blocks needs, as of now.
        logs: Where blocks are logged; beside them states are kept.
        locations: Returns where tasks of a stream should run.
    """

    cluster: Cluster
    settings: Settings
    access: Callable[[], BlockAccess]
    logs: BlockLogs
    locations: Callable[[int], tuple[TaskLocation, ...]]


class ContinuousStreams:
    """All continuous streams of a tracker. Its owner calls `start`, `drain` and `stop`.

    Args:
        streams: What they are, by stream.
        places: The ledger's.
        around: Where their tasks run.
        clock: Time, for pauses between attempts.
        listeners: Are notified of streams that are given up.
        later: Runs something on a loop after some seconds.
        on_logged: Notified of a stream when an epoch of it was logged.
        release: Lets go of blocks that no one needs.
        lost: Attempts of receivers whose blocks went with an earlier run.

    Raises:
        SettingError: There is a state by key, and the settings forbid its files.
        LedgerError: A stream's epochs do not fit the ledger's.
    """

    def __init__(
        self,
        streams: Mapping[int, ContinuousStream],
        places: Places,
        *,
        around: TaskSurroundings,
        clock: Clock,
        listeners: Listeners,
        later: Callable[[float, Callable[[], None], EventLoop], None],
        on_logged: Callable[[int], None],
        release: Callable[[], None],
        lost: frozenset[str],
    ) -> None:
        self._around = around
        self._settings = settings = around.settings
        self._listeners = listeners
        self._logs = around.logs
        self._letters = (
            self._logs.letters_place(settings) if settings.dead_letters_enabled else None
        )
        if any(stream.operation.key_by is not None for stream in streams.values()):
            self._check_states()
        self._limited_log = RateLimitedLog(_log, clock)
        self._later = later
        self._loop = EventLoop("continuous", _failed)
        self._pickled = {stream_id: stream.pickled for stream_id, stream in streams.items()}
        self._streams = {
            stream_id: Epochs(
                stream_id,
                stream.name,
                stream.operation,
                places,
                EpochOwner(
                    lambda delay_s, function: later(delay_s, function, self._loop),
                    partial(on_logged, stream_id),
                    release,
                    partial(listeners.continuous_error, stream_id),
                ),
                lost,
                clock,
                stream.most_bytes,
            )
            for stream_id, stream in streams.items()
        }
        self._jobs = {
            (stream_id, number): ReceiverJob(
                stream_id,
                around.cluster,
                _TaskStarts(self, epochs, number),
                RestartBackoff(settings.restart_max_delay_s, settings.restart_reset_s),
                clock,
                task=number,
            )
            for stream_id, epochs in self._streams.items()
            for number in range(epochs.operation.parallelism)
        }

    def _check_states(self) -> None:
        """Refuse states that would not be where, or as, the blocks are.

        Raises:
            SettingError: The settings forbid them.
        """
        if self._logs.are_removed and self._settings.receiver_wal_enable is False:
            # The driver log may outlive them, and say of an epoch whose state went with them.
            raise SettingError(
                "spark.streaming.receiver.writeAheadLog.enable",
                "false",
                "true, or not set, for a continuous stream with key_by: its state would go with "
                "the application",
            )
        accepted = "for a continuous stream with key_by, whose state is kept in files that are"
        if is_shared(self._logs.root):
            raise SettingError(
                "spark.penstock.wal.dir",
                self._logs.root,
                f"a folder that hosts have, {accepted} beside the logs",
            )
        if self._logs.encryption is not None:
            raise SettingError(IO_ENCRYPTION, "true", f"false {accepted} not encrypted")

    def _state_of(self, epochs: Epochs, number: int) -> StatePlace | None:
        operation = epochs.operation
        if operation.key_by is None:
            return None
        name = f"{epochs.source}-{number}-of-{operation.parallelism}.sqlite"
        path = os.path.join(_states_folder(self._logs), name)
        return StatePlace(path, operation.key_by, self._logs.sync)

    def sources(self) -> frozenset[str]:
        """Return what names the epochs of its streams."""
        return frozenset(epochs.source for epochs in self._streams.values())

    def start(self) -> None:
        """Start the tasks."""
        self._loop.start()
        for job in self._jobs.values():
            job.start()
        self._watch_starts()

    def _watch_starts(self, before: frozenset[tuple[str, int, str]] = frozenset()) -> None:
        """Log tasks that do not start: their stream stands still."""
        streams = self._streams.values()
        waiting = frozenset(
            (epochs.name, *found) for epochs in streams for found in epochs.not_begun()
        )
        if late := sorted(waiting & before):
            shown = ", ".join(f"task {number} of {name}" for name, number, _ in late)
            self._limited_log.log(
                f"{len(late)} of {len(self._jobs)} tasks of continuous streams have waited for "
                f"more than {_LATE_START_S:g} s to start ({shown}): each needs a free core of "
                "Spark, and a Python that has imported what it needs",
                like="late starts",
            )
        if not all(epochs.is_over() for epochs in streams):
            self._later(_LATE_START_S, partial(self._watch_starts, waiting), self._loop)

    def jobs_left(self) -> int:
        """Return how many tasks run, or are about to."""
        return sum(job.is_alive for job in self._jobs.values())

    def status(self) -> dict[int, EpochStatus]:
        """Return where the epochs of each stream are."""
        return {stream_id: epochs.status() for stream_id, epochs in self._streams.items()}

    def drain(self, timeout_s: float) -> bool:
        """Wait until all that was received is in committed epochs; whether it is."""
        end_s = time.monotonic() + timeout_s
        for epochs in self._streams.values():
            epochs.drain(0.0)  # All begin, also behind one that takes long.
        done = [epochs.drain(end_s) for epochs in self._streams.values()]
        return all(done)

    def stop(self, timeout_s: float) -> None:
        """Stop the tasks; what has not ended in time is cancelled. May be called again."""
        for epochs in self._streams.values():
            epochs.stop()
        for job in self._jobs.values():
            job.stop()
        end_s = time.monotonic() + timeout_s
        left = [job for job in self._jobs.values() if not job.join(end_s - time.monotonic())]
        for job in left:
            job.cancel()
        for job in left:
            if not job.join(_STOP_S):
                _log.error("the job %s did not end after it was cancelled", job.tag)
        if not self._loop.stop(_STOP_S):
            _log.error("%s has not ended after %g s", self._loop.thread.name, _STOP_S)

    # -- for the endpoint --------------------------------------------------------------------------

    def blocks_added(self) -> None:
        """Send tasks what is new; on the thread of additions."""
        for epochs in self._streams.values():
            epochs.push()

    def show(self, message: ShownBlock) -> None:
        """Show a task a block that is not logged yet; from any thread."""
        if (epochs := self._streams.get(message.stream_id)) is not None:
            epochs.show(message)

    def take(self, peer: Peer, message: Message, answer: Callable[[Message], None]) -> None:
        """Queue a message for the thread of epochs; does not wait."""
        self._loop.post(lambda: self._take(peer, message, answer))

    def disconnected(self, peer: Peer) -> None:
        """Queue the end of a connection behind the messages that came from it."""

        def tell() -> None:
            for epochs in self._streams.values():
                for number, attempt in epochs.gone(peer):
                    end = partial(self._end_silent, epochs, number, attempt)
                    self._later(_LEASES * self._settings.block_server_lease_s, end, self._loop)

        self._loop.post(tell)

    def _end_silent(self, epochs: Epochs, number: int, attempt: str) -> None:
        """End an attempt whose connection was lost, and that has not ended by itself since."""
        if epochs.has_job(number, attempt):
            _log.warning(
                "Task %d of continuous stream %s lost its connection, and has not ended since, as "
                "it does when it runs: is its process stopped, or its host? Its job is cancelled, "
                "and another started",
                number,
                epochs.name,
            )
            self._jobs[epochs.stream_id, number].cancel()

    def _take(self, peer: Peer, message: Message, answer: Callable[[Message], None]) -> None:
        assert isinstance(message, CONTINUOUS_MESSAGES)
        epochs = self._streams.get(message.stream_id)
        if epochs is None:
            answer(Refused(f"stream {message.stream_id} is not continuous"))
        elif isinstance(message, SubscribeTask):
            epochs.subscribe(peer, message, answer)
        else:
            if isinstance(message, EpochPrepared):
                epochs.prepared(message)
            elif isinstance(message, EpochCommitted):
                epochs.committed(message)
            elif isinstance(message, TimerDue):
                epochs.timer_due(message)
            elif isinstance(message, TaskWaits):
                epochs.task_waits(message)
            else:
                epochs.failed(message)
            answer(Ok())

    # -- for the jobs ------------------------------------------------------------------------------

    def launch(self, epochs: Epochs, number: int) -> Launch | None:
        """Prepare a new attempt of a task; None when none is to run."""
        if epochs.is_over():
            return None
        settings = self._settings
        attempt = uuid.uuid4().hex
        launch = ContinuousLaunch(
            epochs.stream_id,
            number,
            epochs.operation.parallelism,
            attempt,
            self._pickled[epochs.stream_id],
            self._around.access(),
            epochs.operation.timeout_s,
            settings.ask_timeout_s,
            settings.block_server_lease_s,
            settings.max_frame_bytes,
            {found.executor_id: found.host for found in self._around.cluster.executors()},
            self._letters_of(epochs) if epochs.operation.dead_letters else None,
            self._state_of(epochs, number),
            epochs.operation.watermark,
        )
        epochs.launched(number, attempt)
        return Launch(attempt, partial(run_task, launch), self._around.locations(epochs.stream_id))

    def _letters_of(self, epochs: Epochs) -> FunctionLetters:
        number, name, place = epochs.stream_id, epochs.name, self._letters
        if place is not None:
            place = replace(place, stream=number, stream_name=name, receiver=_MADE_BY)
        return FunctionLetters(
            place,
            name=f"{_MADE_BY}:{epochs.source}",
            stream=name,
            function="its continuous function",
        )

    def ended(self, epochs: Epochs, number: int, error: Exception | None) -> Next:
        """Take note of a job's end and say whether the task starts again."""
        epochs.job_ended(number)
        if epochs.is_over():
            return Next.DONE
        trace = text_of_job(error) if error is not None else ""
        if is_end_of_spark(error, trace, self._around.cluster):
            epochs.stop()
            self._listeners.ended_with_spark(epochs.stream_id, trace)
            return Next.DONE
        if ContinuousTaskError.__name__ not in trace:
            # Else the task reported it itself. On a cluster Spark tries again, and says nothing.
            why = headline(trace) if trace else "its process or its executor ended without a word"
            if _NOBODYS_FAULT in trace or not epochs.died(number, why, of_python(trace)):
                self._limited_log.log(
                    f"The job of task {number} of continuous stream {epochs.name} failed: {why}",
                    about=(epochs.stream_id, number),
                )
        return Next.DONE if epochs.is_over() else Next.START_AGAIN

    def thread_died(self, epochs: Epochs, error: BaseException) -> None:
        """Report a defect, or the end of Spark that came between two jobs."""
        trace = text_of_job(error)
        if is_end_of_spark(error, trace, self._around.cluster):
            epochs.stop()
            self._listeners.ended_with_spark(epochs.stream_id, trace)
        else:
            epochs.give_up(f"A thread of continuous stream {epochs.name} died", trace)


def _states_folder(logs: BlockLogs) -> str:
    return os.path.join(os.path.dirname(logs.root), "keyedState")


def remove_states(logs: BlockLogs, sources: Collection[str]) -> None:
    """Remove the states of functions that were forgotten.

    Args:
        logs: Where blocks are logged.
        sources: What names the epochs of all others.
    """
    if is_shared(logs.root):
        return  # There are none.
    folder = _states_folder(logs)
    try:
        names = os.listdir(folder) if os.path.isdir(folder) else []
        for name in names:
            found = _STATE.match(name)
            if found and found[1] not in sources:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(folder, name))
                    _log.info("The state %s is removed: its function was forgotten", name)
    except OSError as error:
        _log.warning("States of functions that were forgotten cannot be removed: %s", error)


@dataclass(frozen=True)
class _TaskStarts:
    """Decides over the starts of one task (`penstock.tracker.receivers.jobs.Starts`)."""

    streams: ContinuousStreams
    epochs: Epochs
    number: int

    def next_launch(self, stream_id: int, *, is_placed: bool) -> Launch | None:
        return self.streams.launch(self.epochs, self.number)

    def job_ended(
        self, stream_id: int, attempt: str, end: TaskEnd | None, error: Exception | None
    ) -> Next:
        return self.streams.ended(self.epochs, self.number, error)

    def job_thread_died(self, stream_id: int, error: BaseException) -> None:
        self.streams.thread_died(self.epochs, error)


def _failed(error: BaseException) -> None:
    # A defect must not end the thread; it is logged.
    _log.error("the tracker failed to deal with epochs", exc_info=error)
