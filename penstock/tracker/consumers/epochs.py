"""`Epochs`: the epochs of one continuous stream, in the driver (see `penstock.continuous`).

They send blocks to the tasks, say when an epoch ends, and log it.

Threads: blocks are sent on the ledger's thread of additions, as soon as the driver log has them, so
that nothing stands between; all else comes on ``penstock-continuous``, which waits for the driver
log. `_changed` guards what both have, and is not held while the disk is waited for.
"""

from __future__ import annotations

import enum
import logging
import math
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from msgspec import structs

from penstock.continuous import ContinuousOperation
from penstock.runtime.clock import Clock
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.tracker.errors import LedgerError, LedgerLostError
from penstock.tracker.ledger.events import block_number
from penstock.tracker.ledger.places import CONTINUOUS, LoggedEpoch, Places
from penstock.wire import Peer
from penstock.wire.messages import (
    CommitEpoch,
    EndEpoch,
    EpochCommitted,
    EpochPrepared,
    Message,
    ReceivedBlockInfo,
    Refused,
    ShownBlock,
    StopReceiver,
    Subscribed,
    SubscribeTask,
    TaskBlocks,
    TaskFailed,
    TaskWaits,
    TimerDue,
)

MOST_BYTES = 64 << 20
MOST_BLOCKS = 4096
"""How many blocks that are in no committed epoch a task is sent, beside a bound of their bytes."""

_MOST_SHOWN = 64
"""How many blocks that are not logged yet the tasks are shown."""

_BLOCKS_PER_MESSAGE = 500
_AGAIN_S = 1.0
"""After this long a driver log that did not take an epoch is asked again; this often blocks are
released; and after this long without an epoch the last one is noted to be where it belongs."""

_LONGEST_WAIT_S = 60.0
"""For a timer, before the clock is looked at again."""

_ABOUT_NOW_S = 0.0005
"""Less than clocks count."""

_log = logging.getLogger("penstock.tracker")


class _State(enum.Enum):
    """Where the newest epoch is."""

    FILLING = "filling"
    ENDED = "ended"  # Tasks prepare it, or the driver log is to take it.
    LOGGED = "logged"  # Tasks commit it.


@dataclass
class _Task:
    """A task, as the driver sees it.

    Attributes:
        attempt: The newest one; empty before the first. Others are fenced.
        peer: Its connection, once it has subscribed.
        prepared: The last epoch that it has ready.
        committed: The last epoch that is where it belongs, as far as it is this task's.
        failures: Its failures since the last epoch.
        has_failed: Whether that of the newest attempt is among them.
        has_job: Whether the job of the newest attempt has not ended.
        has_begun: Whether the newest attempt has subscribed.
        due_ms: When it has something to do without a block, in ms since the epoch; None: never.
        call: Which call of it ran when it looked last; empty: none.
    """

    attempt: str = ""
    peer: Peer | None = None
    prepared: int = -1
    committed: int = -1
    failures: int = 0
    has_failed: bool = False
    has_job: bool = False
    has_begun: bool = False
    due_ms: int | None = None
    call: str = ""


@dataclass(frozen=True)
class EpochStatus:
    """The epochs of a continuous stream at one moment.

    Attributes:
        number: The newest epoch that was logged; -1 before the first.
        committed: The newest epoch that is where it belongs.
        records: Records that the function was given in epochs that were committed in this run.
        failures: Failures of the function or the sink since the last epoch.
        waits: What each task waits for: its start, the source, the function, the file of its state,
            the sink, other tasks or the driver log. Empty: it is over, and there are no tasks.
        age_ms: How long ago the first block was added that is in no committed epoch; None: there is
            none.
        epoch_ms: After how long an epoch ends.
        letters: How many of the records the function raised for, and are dead letters.
        late: Records of these epochs that were earlier than the watermark.
        watermark_ms: Where the watermark was at the end of the last of them, in ms since the epoch;
            None: there is none.
        failed: All failures of this run.
        last_error: What the last of them was, with its traceback; empty: there was none.
    """

    number: int
    committed: int
    records: int
    failures: int
    waits: tuple[str, ...]
    age_ms: int | None
    epoch_ms: int
    letters: int = 0
    late: int = 0
    watermark_ms: int | None = None
    failed: int = 0
    last_error: str = field(default="", repr=False)

    @property
    def waits_for(self) -> str:
        """What its tasks wait for, and how many of them where it is not the same for all."""
        counts = Counter(self.waits)
        if len(counts) < 2:
            return next(iter(counts), "nothing, as it is over")
        return ", ".join(f"{what} ({tasks})" for what, tasks in counts.items())


@dataclass(frozen=True)
class EpochOwner:
    """The owner of a stream's epochs, as these know it.

    Attributes:
        later: Runs something on the thread of epochs after some seconds.
        on_logged: Called on it when an epoch is logged: blocks before it need no one to wait.
        on_released: Called on it, now and then, when blocks may go.
        on_given_up: Notified why nothing of it is called any more.
    """

    later: Callable[[float, Callable[[], None]], None]
    on_logged: Callable[[], None]
    on_released: Callable[[], None]
    on_given_up: Callable[[str, str], None]


class Epochs:
    """The epochs of one stream.

    Args:
        stream_id: The stream.
        name: Its name.
        operation: What is asked for.
        places: The ledger's.
        owner: Is notified of what comes of them.
        lost: Attempts of receivers whose blocks went with an earlier run.
        clock: What time it is for timers.
        most_bytes: How many bytes of blocks that are in no committed epoch a task is sent; at least
            one block.
    """

    def __init__(
        self,
        stream_id: int,
        name: str,
        operation: ContinuousOperation,
        places: Places,
        owner: EpochOwner,
        lost: frozenset[str],
        clock: Clock,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.stream_id = stream_id
        self.name = name
        self.operation = operation
        self._places = places
        self._owner = owner
        self._lost = lost
        self._clock = clock
        self._most_bytes = most_bytes
        self._limited_log = RateLimitedLog(_log)
        self._changed = threading.Condition()
        self._tasks = [_Task() for _ in range(operation.parallelism)]
        self._state = _State.FILLING
        self._start, self._epoch = self._begin()
        self._pushed = self._ended_at = self._epoch.end
        # The attempt, and the number, of the last block before that place: numbers and places go on
        # together. None: it is not known, or no one is shown anything.
        self._last: tuple[str, int] | None = None
        self._clock_ms = self._epoch.clock_ms
        self._ended_s = -math.inf
        self._wakes_s = math.inf
        self._has_timer = False
        self._is_due = False
        self._drains = False
        self._is_over = False
        self._released_s = time.monotonic()
        self._records = 0
        self._letters = 0
        self._late = 0
        self._watermark_ms: int | None = None
        self._failed, self._last_error = 0, ""

    def _begin(self) -> tuple[int, LoggedEpoch]:
        """Return the last epoch; of a stream that has none, one without blocks."""
        known = self._places.epoch(self.stream_id, CONTINUOUS)
        if known is None:
            first = self._places.stream(self.stream_id).first
            return first, self._epoch_of(uuid.uuid4().hex, -1, first, 0)
        start, epoch = known
        self._check_fits(epoch)
        if start < epoch.end or epoch.is_open:
            # No one knows whether all of it is where it belongs.
            self._state = _State.LOGGED
            again = "Continuous stream %s: epoch %d was logged, and is committed once more"
            _log.info(again, self.name, epoch.number)
        return start, epoch

    def _check_fits(self, epoch: LoggedEpoch) -> None:
        """Refuse another column of keys, or number of parts: keys would be with other tasks' state.

        Raises:
            LedgerError: The last epoch does not fit.
        """
        key_by, parts = self.operation.key_by, self.operation.parallelism
        if epoch.key_by != key_by or (key_by is not None and epoch.parts != parts):
            raise LedgerError(
                f"continuous stream {self.name} had key_by={epoch.key_by!r} and "
                f"parallelism={epoch.parts} up to epoch {epoch.number}, and has key_by={key_by!r} "
                f"and parallelism={parts} now: with another column, or number, the state of a key "
                "would be elsewhere. Set them as they were, or give the stream another name"
            )

    def _epoch_of(self, source: str, number: int, end: int, clock_ms: int) -> LoggedEpoch:
        operation = self.operation
        return LoggedEpoch(source, number, end, operation.parallelism, operation.key_by, clock_ms)

    @property
    def source(self) -> str:
        """Names its epochs, also in later runs."""
        return self._epoch.source

    # -- blocks, from any thread -----------------------------------------------------------------

    def push(self) -> None:
        """Send tasks what they may be sent and were not; never waits for the disk."""
        with self._changed:
            if not self._is_over:
                self._push()

    def show(self, message: ShownBlock) -> None:
        """Show a block that is not logged yet to the task that should be sent it; from any thread.

        It is no more than a hint: what the function makes of it is used when the task is sent the
        block with its place, and forgotten when that is another task, or does not happen. So it
        need not be known whose it is, nor whether all of it arrives.
        """
        number = block_number(self.stream_id, message.block_id)
        with self._changed:
            if self._is_over or self._last is None or self._last[0] != message.attempt:
                return
            ahead = number - self._last[1] - 1
            logged = self._places.next(self.stream_id) - self._pushed
            if not logged <= ahead < _MOST_SHOWN:
                return  # The tasks are behind: it comes soon enough with its place.
            peer = self._tasks[(self._pushed + ahead) % len(self._tasks)].peer
            if peer is not None:
                # A call that lets no other thread run would leave all of them unread.
                peer.offer(message)

    def _push(self) -> None:
        start, places, stream_id = self._epoch.end, self._places, self.stream_id
        end = places.end_of(stream_id, start, None, None, self._most_bytes)
        limit = min(end, start + MOST_BLOCKS)
        if limit > self._pushed:
            for task, _ in enumerate(self._tasks):
                self._send(task, self._pushed, limit, len(self._tasks))
            self._pushed = limit
            if self.operation.deliver == "stored":
                _, (last, *_), _ = places.between(stream_id, limit - 1, limit)
                self._last = last.attempt, block_number(stream_id, last.block_id)
        if self._pushed <= self._ended_at:
            return
        is_full = places.next(stream_id) > limit
        if self._state is _State.FILLING and (is_full or self._is_due or self._drains):
            self._end()
        elif not (self._has_timer or self._is_due):
            # From its first block on, also while the one before is committed.
            self._has_timer = True
            self._owner.later(self.operation.epoch_ms / 1000, self._time_is_over)

    def _send(self, number: int, start: int, end: int, parts: int) -> None:
        """Send a task its blocks from one place up to another; needs `_changed`."""
        peer = self._tasks[number].peer
        if peer is None or start >= end:
            return
        first, blocks, times = self._places.between(self.stream_id, start, end)
        tasks, by_key = len(self._tasks), self.operation.key_by is not None
        own: list[tuple[int, ReceivedBlockInfo, int]] = [
            (place, block, added_ms)
            for place, (block, added_ms) in enumerate(zip(blocks, times, strict=True), first)
            if (by_key or place % parts % tasks == number) and block.attempt not in self._lost
        ]
        for at in range(0, len(own), _BLOCKS_PER_MESSAGE):
            peer.send(TaskBlocks(tuple(own[at : at + _BLOCKS_PER_MESSAGE])))

    # -- epochs; needs `_changed` ------------------------------------------------------------------

    def _time_is_over(self) -> None:
        with self._changed:
            self._has_timer = False
            if self._is_over or self._pushed <= self._ended_at:
                return
            self._is_due = True
            if self._state is _State.FILLING:
                self._end()

    def _end(self) -> None:
        """End the epoch that is filled: it has all that was sent so far."""
        self._state = _State.ENDED
        self._is_due = False
        self._ended_at = self._pushed
        self._ended_s = self._clock.monotonic_s()
        # What waits for a later epoch came at its own time.
        _, _, waiting = self._places.between(self.stream_id, self._pushed, self._pushed + 1)
        self._clock_ms = max(self._clock_ms, min([self._clock.time_ms(), *waiting]))
        for task in self._tasks:
            if task.peer is not None:
                task.peer.send(self._end_message())

    def _end_message(self) -> EndEpoch:
        number, tasks = self._epoch.number + 1, len(self._tasks)
        return EndEpoch(number, self._ended_at, tasks, is_logged=False, clock_ms=self._clock_ms)

    def _timers_left_s(self) -> float:
        """Return after how long an epoch of timers alone may end; infinite without timers.

        That is when the first has expired, and the time of an epoch is over since the last one.
        """
        due = [task.due_ms for task in self._tasks if task.due_ms is not None]
        if not due:
            return math.inf
        since_s = self._clock.monotonic_s() - self._ended_s
        to_due_s = (min(due) - self._clock.time_ms()) / 1000
        return max(to_due_s, self.operation.epoch_ms / 1000 - since_s, 0.0)

    def _await_timers(self) -> None:
        """See to it that an epoch of timers alone ends, if no block comes before."""
        left_s = self._timers_left_s()
        if left_s == math.inf or self._state is not _State.FILLING or self._is_over or self._drains:
            return
        # A clock that is set meanwhile is noticed.
        left_s = min(left_s, _LONGEST_WAIT_S)
        wakes_s = self._clock.monotonic_s() + left_s
        if wakes_s < self._wakes_s:
            self._wakes_s = wakes_s
            self._owner.later(left_s, partial(self._look_at_timers, wakes_s))

    def _look_at_timers(self, wakes_s: float) -> None:
        with self._changed:
            if wakes_s != self._wakes_s:
                return  # Another was sooner, and the one after it looks.
            self._wakes_s = math.inf
            if self._is_over or self._drains or self._state is not _State.FILLING:
                return
            if self._pushed > self._ended_at:
                return  # The epoch of these blocks ends soon.
            if self._timers_left_s() < _ABOUT_NOW_S:
                self._end()
            else:
                self._await_timers()

    # -- what tasks say; on the thread of epochs ---------------------------------------------------

    def launched(self, number: int, attempt: str) -> None:
        """Fence the attempts of a task before this one; from any thread."""
        with self._changed:
            task = self._tasks[number]
            task.attempt, task.peer, task.has_failed = attempt, None, False
            task.has_job, task.has_begun, task.due_ms, task.call = True, False, None, ""
            # What it had prepared was in its memory.
            task.prepared = min(task.prepared, self._epoch.number)

    def subscribe(
        self, peer: Peer, message: SubscribeTask, answer: Callable[[Message], None]
    ) -> None:
        """Take a task's attempt, answer, and send it all that is not committed."""
        with self._changed:
            task = self._task_of(message)
            if task is None or self._is_over:
                answer(Refused(f"attempt {message.attempt} of task {message.task} was replaced"))
                return
            task.peer, task.has_begun = peer, True
            _log.info(
                "Task %d of continuous stream %s runs on %s (process %d)",
                message.task,
                self.name,
                message.host,
                message.pid,
            )
            number, epoch, tasks = message.task, self._epoch, len(self._tasks)
            is_again = self._state is _State.LOGGED and task.committed < epoch.number
            last = (epoch.number - 1, self._start) if is_again else (epoch.number, epoch.end)
            answer(Subscribed(self.source, *last))
            if is_again:
                self._send(number, self._start, epoch.end, epoch.parts)
                end = EndEpoch(epoch.number, epoch.end, epoch.parts, True, epoch.clock_ms)
                peer.send(end)
            begin = epoch.end
            if self._state is _State.ENDED:
                self._send(number, begin, self._ended_at, tasks)
                peer.send(self._end_message())
                begin = self._ended_at
            self._send(number, begin, self._pushed, tasks)
            self._push()

    def prepared(self, message: EpochPrepared) -> None:
        """Take note that a task has an epoch ready; log it when all have."""
        with self._changed:
            task = self._task_of(message)
            if task is None or message.number != self._epoch.number + 1:
                return
            task.prepared = message.number
        self._log_if_prepared()

    def _log_if_prepared(self) -> None:
        with self._changed:
            number = self._epoch.number + 1
            if self._state is not _State.ENDED or self._is_over:
                return
            if any(task.prepared != number for task in self._tasks):
                return
            start = self._epoch.end
            epoch = self._epoch_of(self.source, number, self._ended_at, self._clock_ms)
            epoch = structs.replace(epoch, is_open=start == epoch.end)
        # Nothing but this changes the epoch, and this is one thread.
        try:
            self._places.log_epoch(self.stream_id, CONTINUOUS, start, epoch)
        except LedgerLostError as error:
            self.give_up(f"The epochs of {self.name} cannot be logged: {error}", "")
            return
        except LedgerError as error:
            self._limited_log.log(f"{error}; it is tried again", like="epoch not logged")
            self._owner.later(_AGAIN_S, self._log_if_prepared)
            return
        with self._changed:
            self._start, self._epoch = start, epoch
            self._state = _State.LOGGED
            for task in self._tasks:
                task.failures = 0
                # One that died meanwhile has another attempt, which is sent the epoch as logged.
                if task.peer is not None:
                    task.peer.send(CommitEpoch(number))
            self._push()
            is_due = time.monotonic() - self._released_s >= _AGAIN_S
            if is_due:
                self._released_s = time.monotonic()
        self._owner.on_logged()
        if is_due:
            self._owner.on_released()

    def committed(self, message: EpochCommitted) -> None:
        """Take note that a task's part of an epoch is where it belongs."""
        with self._changed:
            task = self._task_of(message)
            if task is None or message.number != self._epoch.number:
                return
            if task.committed < message.number:
                task.committed = message.number
                self._records += message.records
                self._letters += message.letters
                self._late += message.late
                self._watermark_ms = message.watermark_ms
                if message.late:
                    self._tell_late()
            if self._state is not _State.LOGGED:
                return
            if any(task.committed != message.number for task in self._tasks):
                return
        self._go_on(message.number)

    def _tell_late(self) -> None:
        watermark = self.operation.watermark
        became = "dropped" if watermark is None or watermark.late == "drop" else "kept"
        self._limited_log.log(
            f"{self._late} records of continuous stream {self.name} were earlier than its "
            f"watermark, and were {became}: a larger delay waits for more of them",
            like="late",
        )

    def timer_due(self, message: TimerDue) -> None:
        """Take note when a task has something to do without a block."""
        with self._changed:
            if (task := self._task_of(message)) is not None:
                task.due_ms = message.due_ms
                self._await_timers()

    def task_waits(self, message: TaskWaits) -> None:
        """Take note which call of a task runs."""
        with self._changed:
            if (task := self._task_of(message)) is not None:
                task.call = message.what

    def _go_on(self, number: int) -> None:
        """Fill the next epoch, as all of the last one is where it belongs."""
        # A task could not undo two epochs of its state: a driver that comes back must know.
        if self.operation.key_by is not None and not self._note_committed():
            self._owner.later(_AGAIN_S, partial(self._go_on, number))
            return
        with self._changed:
            if self._state is not _State.LOGGED or self._epoch.number != number:
                return
            self._state = _State.FILLING
            self._push()
            is_idle = self._pushed <= self._epoch.end
            if is_idle:
                self._await_timers()
            self._changed.notify_all()
        if is_idle:
            self._owner.later(_AGAIN_S, partial(self._note_idle, number))

    def _note_idle(self, number: int) -> None:
        """Note that the last epoch is where it belongs, if no other has come: its blocks may go."""
        with self._changed:
            is_last = self._epoch.number == number and self._state is _State.FILLING
        if is_last and self._note_committed():
            self._owner.on_released()

    def _note_committed(self) -> bool:
        epoch = structs.replace(self._epoch, is_open=False)
        try:
            if self._epoch.is_open:
                self._places.log_epoch(self.stream_id, CONTINUOUS, epoch.end, epoch)
            else:
                self._places.commit(self.stream_id, CONTINUOUS, epoch.end)
        except LedgerError as error:
            _log.info("%s; the last epoch is committed once more after a restart", error)
            return False
        with self._changed:
            if self._epoch.number == epoch.number:
                self._start, self._epoch = epoch.end, epoch
        return True

    def failed(self, message: TaskFailed) -> None:
        """Count a failure of the function or the sink, and give up after too many."""
        if self._task_of(message) is not None:
            self._count(message.task, message.message, message.error, message.permanent)

    def died(self, number: int, why: str, error: str) -> bool:
        """Count an attempt that ended without a word; whether it had something to do.

        An executor that is taken away while nothing comes is no one's failure. Called on the thread
        of the task's job, between two attempts.
        """
        with self._changed:
            newest, task = self._epoch, self._tasks[number]
            has_newest = self._state is not _State.LOGGED or task.committed == newest.number
            start = newest.end if has_newest else self._start
            has_blocks = start < self._pushed
            if not has_blocks and has_newest and self._state is not _State.ENDED:
                return False
            blocks = f"blocks have the places from {start} to {self._pushed - 1}"
            which = f"whose {blocks}" if has_blocks else "of timers alone"
            why = f"{why} (in epoch {newest.number + has_newest}, {which})"
        self._count(number, why, error, permanent=False)
        return True

    def _count(self, number: int, what: str, error: str, permanent: bool) -> None:
        text = f"Task {number} of continuous stream {self.name}: {what}"
        with self._changed:
            task, most = self._tasks[number], self.operation.attempts
            if task.has_failed or self._is_over:
                return
            task.has_failed = True
            task.failures += 1
            failures = task.failures
            self._failed, self._last_error = self._failed + 1, f"{text}\n{error}".rstrip()
        counted = "" if permanent else f" (failure {failures} of {most} since the last epoch)"
        self._limited_log.log(text + counted, about=number, trace=error)
        if permanent or failures >= most:
            times = "" if permanent else f"{failures} times without an epoch between; "
            self.give_up(
                f"{text}; {times}what was received stays in the log: a program whose function gets "
                "past it, or leaves it out, goes on there",
                error,
            )

    def give_up(self, message: str, error: str) -> None:
        """End the tasks for good, and say why."""
        with self._changed:
            if self._is_over:
                return
            self._stop_tasks()
        self._owner.on_given_up(message, error)

    def gone(self, peer: Peer) -> list[tuple[int, str]]:
        """Take note that a connection is gone; what its task had prepared went with it.

        Returns:
            The tasks and attempts whose connection it was.
        """
        found = []
        with self._changed:
            for number, task in enumerate(self._tasks):
                if task.peer is peer:
                    task.peer = None
                    task.prepared = min(task.prepared, self._epoch.number)
                    found.append((number, task.attempt))
        return found

    def job_ended(self, number: int) -> None:
        """Take note that the job of a task's newest attempt has ended; from any thread."""
        with self._changed:
            self._tasks[number].has_job = False

    def has_job(self, number: int, attempt: str) -> bool:
        """Whether an attempt is the newest one, and its job has not ended."""
        with self._changed:
            task = self._tasks[number]
            return task.attempt == attempt and task.has_job and not self._is_over

    def not_begun(self) -> list[tuple[int, str]]:
        """Return the tasks, and their attempts, that are to run and have not subscribed."""
        with self._changed:
            if self._is_over:
                return []
            tasks = enumerate(self._tasks)
            return [(at, each.attempt) for at, each in tasks if each.has_job and not each.has_begun]

    def _task_of(
        self,
        message: SubscribeTask | EpochPrepared | EpochCommitted | TimerDue | TaskWaits | TaskFailed,
    ) -> _Task | None:
        if not 0 <= message.task < len(self._tasks):
            return None
        task = self._tasks[message.task]
        return task if task.attempt == message.attempt else None

    # -- the end -----------------------------------------------------------------------------------

    def is_over(self) -> bool:
        """Return whether no task is to run any more."""
        with self._changed:
            return self._is_over

    def drain(self, end_s: float) -> bool:
        """Wait until all that is in the ledger is in committed epochs, and note that.

        Args:
            end_s: Until when, of the monotonic clock.

        Returns:
            Whether it is.
        """
        tell_s = time.monotonic() + _AGAIN_S
        with self._changed:
            self._drains = True
            while not self._is_over:
                if self._state is _State.FILLING:
                    if self._places.next(self.stream_id) <= self._epoch.end:
                        break
                    self._push()
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    return False
                if end_s - left_s >= tell_s:
                    self._tell_drain()
                self._changed.wait(min(left_s, 0.2))
            else:
                return False
        return self._epoch.number < 0 or self._note_committed()

    def _tell_drain(self) -> None:
        waits = self.status().waits_for
        core = ": each needs a free core of Spark" if "its start" in waits else ""
        self._limited_log.log(
            f"The graceful stop waits for continuous stream {self.name}, of which some is in no "
            f"committed epoch: its tasks wait for {waits}{core}",
            like="drain",
        )

    def stop(self) -> None:
        """Have the tasks end, whatever they have; what is not logged is computed again."""
        with self._changed:
            self._stop_tasks()

    def _stop_tasks(self) -> None:
        self._is_over = True
        for task in self._tasks:
            if task.peer is not None:
                task.peer.send(StopReceiver())
        self._changed.notify_all()

    def status(self) -> EpochStatus:
        """Return where its epochs are."""
        with self._changed:
            number, is_logged = self._epoch.number, self._state is _State.LOGGED
            start = self._start if is_logged else self._epoch.end
            _, _, added_ms = self._places.between(self.stream_id, start, start + 1)
            failures = sum(task.failures for task in self._tasks)
            return EpochStatus(
                number,
                number - is_logged,
                self._records,
                failures,
                () if self._is_over else self._waits(),
                max(0, self._clock.time_ms() - added_ms[0]) if added_ms else None,
                self.operation.epoch_ms,
                self._letters,
                self._late,
                self._watermark_ms,
                self._failed,
                self._last_error,
            )

    def _waits(self) -> tuple[str, ...]:
        """Return what each task waits for; needs `_changed`."""
        number, tasks = self._epoch.number, self._tasks
        if self._state is _State.LOGGED:
            left, call = [task for task in tasks if task.committed < number], "the sink"
        elif self._state is _State.ENDED:
            left, call = [task for task in tasks if task.prepared <= number], "the function"
        elif self._pushed > self._epoch.end:
            left, call = tasks, "the source"
        else:
            return tuple("the source" if task.peer else "its start" for task in tasks)
        others = "other tasks" if left else "the driver log"
        return tuple(
            "its start" if task.peer is None else (task.call or call) if task in left else others
            for task in tasks
        )
