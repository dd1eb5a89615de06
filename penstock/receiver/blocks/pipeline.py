"""The way of sealed blocks: to the log, to the tracker, to the acknowledgement, in order.

One thread appends to the log, one reports, one report at a time: so the ledger has the blocks in
the order in which they were sealed (I5). Where many receivers share a process, one thread of each
does both, and seals (`move`): what it gains by two would be less than what threads cost that wait
for one lock of the interpreter. Both queues are bounded (I7). A failure that may pass is
reported once and tried again with back-off; nothing is acknowledged meanwhile. One that can never
pass ends the way: `refused` or `failed` says why, and waiters are notified.

No wait outlives `give_up_at`: from then on a full queue holds no one up, for an ending that can be
reported to no one must end all the same.

One lock guards the queues and counters; no I/O happens under it. Its conditions are ``_moving``,
for those who wait for room or for the end, and one for each thread, so that a block wakes the one
thread that is to move it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import Any

import msgspec

from penstock.blockstore import BlockStore, SealedBlock
from penstock.dead_letters import DeadLetterWriter
from penstock.errors import IllegalStateError, PenstockError, SettingError
from penstock.receiver.blocks.options import BlockGeneratorOptions
from penstock.receiver.exit_report import described
from penstock.runtime.backoff import Backoff
from penstock.runtime.clock import WaitClock
from penstock.runtime.threads import OwnedThread
from penstock.wal import AppendTooLargeError, LogClosedError, LogLostError
from penstock.wire import FrameTooLargeError
from penstock.wire.messages import BlockTrace, ReceivedBlockInfo

_log = logging.getLogger("penstock.receiver")

_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 5.0
_STEP_S = 1.0
IDLE_S = 60.0
"""The longest wait for a block; a bound in case a wake-up is missed."""

CALLBACK_S = 2.0
"""A callback that takes longer while `store` waits may itself wait for a lock around `store`."""

_TRACES = 64
"""Traced blocks that may wait to be reported; beyond that, the oldest are not."""

_LATENCIES = 256
"""Number of last blocks from which the time from sealed to acknowledged is computed."""

_MAY_PASS = (PenstockError, OSError, TimeoutError, FutureTimeoutError, MemoryError)
"""What trying again may mend: a full disk or memory, a driver or another host out of reach."""
_NEVER_PASSES = (
    IllegalStateError,
    SettingError,
    FrameTooLargeError,
    AppendTooLargeError,
    LogClosedError,
    LogLostError,
)
"""Of these, the errors that come again the next time. All else is a defect, and also does."""


class BlockNotStoredError(PenstockError):
    """Records were not stored durably and will not be: their source must send them again.

    Attributes:
        stream_id: The stream.
        reason: Why.
    """

    def __init__(self, stream_id: int, reason: str) -> None:
        super().__init__(f"a block of stream {stream_id} was not stored: {reason}")
        self.stream_id = stream_id
        self.reason = reason


class BlocksRefusedError(PenstockError):
    """The tracker refuses this attempt's blocks for good (a newer attempt took over)."""


class BlockPipeline:
    """Stores, reports and acknowledges the sealed blocks of one receiver attempt.

    Args:
        block_store: Where blocks are kept.
        report: Sends metadata to the tracker; returns when it is in the driver log (I1). Raises
            `BlocksRefusedError` when asking again cannot help.
        options: How many blocks may wait, how large a report may be, which blocks are traced.
        on_error: Notified of each failure once per episode.
        now_s: Monotonic time, the one of `SealedBlock.sealed_at_s`.
        letters: Dead letters, which are logged before a block behind them is reported; or None.
        on_empty: Called when all blocks that came in are reported, by the thread that reports.
        show: Is given each block before the log has it; must not wait. None: no one is to see it.
        wake: Wakes the thread that calls `move`; None: this object has threads of its own.

    Attributes:
        blocks_sealed: Blocks that came in.
        blocks_stored: Blocks that the log took.
        blocks_reported: Blocks that are in the driver log.
        records_reported: Their records.
        room_waits: How long `put` waited.
        log_waits: How long the pushing thread was storing blocks, copies on other hosts included.
        told_waits: How long it waited for room among those that the driver is to be notified of.
        driver_waits: How long the reporting thread waited for the driver.
        refused: Why the tracker takes no more blocks of this attempt, or None.
        failed: What a thread of this object died of, or None. No block moves any more.
    """

    def __init__(
        self,
        block_store: BlockStore,
        report: Callable[[tuple[ReceivedBlockInfo, ...]], None],
        options: BlockGeneratorOptions,
        on_error: Callable[[str, BaseException], None],
        now_s: Callable[[], float] = time.monotonic,
        letters: DeadLetterWriter | None = None,
        on_empty: Callable[[], None] = lambda: None,
        show: Callable[[SealedBlock], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        self.stream_id = block_store.stream_id
        self.blocks_sealed = 0
        self.blocks_stored = 0
        self.blocks_reported = 0
        self.records_reported = 0
        self.room_waits = WaitClock()
        self.log_waits = WaitClock()
        self.told_waits = WaitClock()
        self.driver_waits = WaitClock()
        self.refused: BlocksRefusedError | None = None
        self.failed: BaseException | None = None
        self._block_store = block_store
        self._report = report
        self._queue_size = options.queue_size
        self._on_error = on_error
        self._report_bytes = options.report_bytes
        self._now_s = now_s
        self._letters = letters
        self._trace_every = options.trace_every
        self._on_empty = on_empty
        self._show = show
        self._wake = wake
        self._on_way_s: dict[str, tuple[float, float]] = {}
        self._traces: deque[BlockTrace] = deque(maxlen=_TRACES)
        self._latencies_s: deque[float] = deque(maxlen=_LATENCIES)
        lock = threading.RLock()
        self._moving = threading.Condition(lock)
        self._is_sealed = threading.Condition(lock)
        self._is_stored = threading.Condition(lock)
        self._sealed: deque[SealedBlock] = deque()
        self._stored: deque[tuple[SealedBlock, ReceivedBlockInfo]] = deque()
        self._in_hand = 0  # blocks that a thread has taken from a queue and not yet passed on
        self._abandoned = threading.Event()
        self._give_up_s: float | None = None
        self._acknowledging_since_s: float | None = None
        self._told_of_callback = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start both threads; `abandon` ends and joins them. There may be none, see `wake`."""
        if self._wake is not None:
            return
        for name, loop in (("push", self._push_loop), ("report", self._report_loop)):
            thread = OwnedThread(partial(self._run, loop), f"{name}-{self.stream_id}")
            self._threads.append(thread)
            thread.start()

    def put(self, block: SealedBlock) -> None:
        """Queue a block; waits while the queue is full and there is hope that it moves.

        Raises:
            BlockNotStoredError: The thread that would store it died.
        """
        with self._moving:
            if len(self._sealed) >= self._queue_size:
                with self.room_waits:
                    while len(self._sealed) >= self._queue_size and not self.waits_for_nothing():
                        self._moving.wait(self._step_s())
                        if self._wake is not None:
                            self._tell_of_callback()
            if self.failed is not None:
                raise BlockNotStoredError(self.stream_id, self.why_over())
            # First of all: whatever fails from here on, its records are in no one else's hands.
            self._sealed.append(block)
            self.blocks_sealed += 1
            self._is_sealed.notify()
            self._block_store.begin(block)
            if self._show is not None:
                # Not only when those before it are logged, which an object store takes long for.
                self._show(block)
        if self._wake is not None:
            self._wake()

    def is_full(self) -> bool:
        """Return whether `put` would wait."""
        with self._moving:
            return len(self._sealed) >= self._queue_size

    def waiting(self) -> int:
        """Return how many blocks are not yet reported."""
        with self._moving:
            return len(self._sealed) + len(self._stored) + self._in_hand

    def drain(self) -> bool:
        """Wait until every block is reported; False when it is given up."""
        with self._moving:
            while self.waiting() and not self.is_given_up():
                self._moving.wait(self._step_s())
            return not self.is_over() and not self.waiting()

    def is_over(self) -> bool:
        """Return whether no block will be reported any more."""
        return self.refused is not None or self.failed is not None or self.is_abandoned()

    def why_over(self) -> str:
        """Say why."""
        error = self.refused or self.failed
        return str(error) if error else "the receiver stopped before the block was reported"

    def give_up_at(self, monotonic_s: float) -> None:
        """From this moment on wait for nothing: not for room here, nor for memory.

        Said again it can only be sooner.
        """
        with self._moving:
            if self._give_up_s is None or monotonic_s < self._give_up_s:
                self._give_up_s = monotonic_s
            self._moving.notify_all()

    def is_given_up(self) -> bool:
        """Return whether there is nothing to wait for any more."""
        if self._give_up_s is not None and time.monotonic() >= self._give_up_s:
            return True
        return self.is_over()

    def waits_for_nothing(self) -> bool:
        """Return whether the caller is to wait neither for room here nor for memory.

        The thread that makes room and memory by moving blocks would wait for itself.
        """
        return self.is_given_up() or (self._wake is not None and self.is_own_thread())

    def _step_s(self) -> float:
        if self._give_up_s is None:
            return _STEP_S
        return max(0.0, min(_STEP_S, self._give_up_s - time.monotonic()))

    def is_own_thread(self) -> bool:
        """Return whether the caller is one of the threads that make blocks durable."""
        return threading.current_thread() in self._threads

    def is_abandoned(self) -> bool:
        """Return whether `abandon` was called."""
        return self._abandoned.is_set()

    def abandon(self, timeout_s: float) -> None:
        """End both threads; blocks that are left are neither reported nor acknowledged."""
        self._abandoned.set()
        with self._moving:
            for condition in (self._moving, self._is_sealed, self._is_stored):
                condition.notify_all()
        if self._wake is not None:
            self._wake()
        for thread in self._threads:
            thread.join(timeout_s)

    def run(self, loop: Callable[[], None]) -> None:
        """Run the loop that calls `move`, until `abandon` is called."""
        self._threads.append(threading.current_thread())
        self._run(loop)

    def move(self) -> None:
        """Store, report and acknowledge what is sealed, in the caller's thread."""
        while (self._sealed or self._stored) and not self._abandoned.is_set():
            while len(self._stored) < self._queue_size:
                if (block := self._next(self._sealed)) is None:
                    break
                self._push(block)
            self._report_stored()

    def _report_stored(self) -> None:
        while (first := self._next(self._stored)) is not None:
            self._report_with_next(first)

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:
            # Anyone who waits learns of it here, and the attempt's owner by the thread's end.
            with self._moving:
                self.failed = error
                self._moving.notify_all()
            raise

    def _push_loop(self) -> None:
        while (block := self._take(self._sealed, self._is_sealed)) is not None:
            self._push(block)

    def _push(self, block: SealedBlock) -> None:
        def put() -> ReceivedBlockInfo:
            try:
                return self._block_store.put(block)
            except _MAY_PASS:
                if self._wake is not None:
                    # What would make room in the log, its release, may wait for these.
                    self._report_stored()
                raise

        taken_s = self._now_s()
        with self.log_waits:
            info = self._retry("Error in block pushing thread", put)
            letters = self._letters
            if letters is not None and letters.has_waiting and info is not None:
                # What was discarded before this block's end is durable before its position is.
                told = "Dead letters cannot be written; nothing is acknowledged until they are"
                info = info if self._retry(told, letters.write) else None
        with self._moving:
            if info is not None:
                if BlockTrace.is_due(block.block_id, self._trace_every):
                    self._on_way_s[block.block_id] = taken_s, self._now_s()
                if len(self._stored) >= self._queue_size:
                    with self.told_waits:
                        self._wait_for_reports()
                self._stored.append((block, info))
                self._is_stored.notify()
                self.blocks_stored += 1
            # Only now: `drain` would not wait for a block that waits for room itself.
            self._in_hand -= 1
            self._moving.notify_all()

    def _wait_for_reports(self) -> None:
        while len(self._stored) >= self._queue_size and not self._abandoned.is_set():
            self._moving.wait(_STEP_S)
            self._tell_of_callback()

    def _report_loop(self) -> None:
        while (first := self._take(self._stored, self._is_stored)) is not None:
            self._report_with_next(first)

    def _report_with_next(self, first: tuple[SealedBlock, ReceivedBlockInfo]) -> None:
        """Report a block, with those behind it, and acknowledge them."""
        batch = [first]
        with self._moving:
            size = _size_of(first[1])
            while self._stored:
                size += _size_of(self._stored[0][1])
                if size > self._report_bytes:
                    break
                batch.append(self._stored.popleft())
                self._in_hand += 1
            self._moving.notify_all()
        infos = tuple(info for _, info in batch)
        with self.driver_waits:
            answered = self._retry(
                "Failed to add block to receiver tracker.",
                partial(self._report_and_wait, infos),
            )
        if answered:
            self._trace(batch)
            self._acknowledge([block for block, _ in batch])
        with self._moving:
            self._in_hand -= len(batch)
            self._moving.notify_all()
            if not self.waiting():
                self._on_empty()

    def _trace(self, batch: list[tuple[SealedBlock, ReceivedBlockInfo]]) -> None:
        known_s = self._now_s()
        with self._moving:
            for block, info in batch:
                if (times_s := self._on_way_s.pop(block.block_id, None)) is not None:
                    self._traces.append(
                        BlockTrace(
                            *(block.block_id, info.num_records, info.num_bytes),
                            *(block.since_s, block.sealed_at_s, *times_s, known_s),
                        )
                    )

    def take_traces(self, wall_s: float) -> tuple[BlockTrace, ...]:
        """Return the traces of the blocks that became known since the call before.

        Args:
            wall_s: Wall time now, in seconds since the epoch.
        """
        with self._moving:
            found = tuple(self._traces)
            self._traces.clear()
        later_s = wall_s - self._now_s()
        return tuple(
            BlockTrace(
                *(trace.block_id, trace.num_records, trace.num_bytes, trace.since_s + later_s),
                *(trace.sealed_s + later_s, trace.taken_s + later_s),
                *(trace.stored_s + later_s, trace.known_s + later_s),
            )
            for trace in found
        )

    def _report_and_wait(self, infos: tuple[ReceivedBlockInfo, ...]) -> bool:
        self._report(infos)
        return True

    def _take(self, queue: deque[Any], came: threading.Condition) -> Any:
        """Take the next item; None when the generator is done with the queue."""
        with self._moving:
            while not queue and not self._abandoned.is_set():
                came.wait(IDLE_S)
            return self._next(queue)

    def _next(self, queue: deque[Any]) -> Any:
        """Take the next item, if there is one; None also when the generator is done with it."""
        with self._moving:
            if not queue or self._abandoned.is_set():
                return None
            self._in_hand += 1
            item = queue.popleft()
            self._moving.notify_all()
            return item

    def _retry(self, message: str, action: Callable[[], Any]) -> Any:
        """Repeat an action until it works, the tracker refuses, or the generator is abandoned.

        Raises:
            BaseException: What trying again cannot mend.
        """
        backoff = Backoff(_RETRY_FIRST_S, _RETRY_MAX_S)
        told = False
        while not self._abandoned.is_set():
            try:
                result = action()
            except BlocksRefusedError as error:
                with self._moving:
                    self.refused = error
                    self._moving.notify_all()
                self._on_error(message, error)
                return None
            except _MAY_PASS as error:
                if isinstance(error, _NEVER_PASSES):
                    if self._abandoned.is_set():
                        return None  # what it needs was closed
                    raise
                if not told:
                    told = True
                    self._on_error(message, error)
                self._abandoned.wait(backoff.next_s())
            else:
                if told:
                    _log.info("stream %d: blocks are stored again", self.stream_id)
                return result
        return None

    def _acknowledge(self, blocks: Iterable[SealedBlock]) -> None:
        for block in blocks:
            self.blocks_reported += 1
            self.records_reported += block.num_records
            for acknowledge in block.acknowledge:
                self._told_of_callback = False
                self._acknowledging_since_s = time.monotonic()
                try:
                    acknowledge()
                except BaseException as error:  # noqa: BLE001 - the author's callback
                    told = f"Error in an acknowledgement callback: {described(error)}"
                    self._on_error(told, error)
                self._acknowledging_since_s = None
            with self._moving:
                self._latencies_s.append(self._now_s() - block.sealed_at_s)

    def depths(self) -> tuple[int, int]:
        """Return how many blocks are sealed and not in the log, and in it and not reported."""
        with self._moving:
            queued = self.blocks_sealed - self.blocks_stored
            return queued, self.blocks_stored - self.blocks_reported

    def latency_s(self) -> tuple[float, float] | None:
        """Return the median, and what 99 % stay under, from sealed to acknowledged; None: none."""
        with self._moving:
            found = sorted(self._latencies_s)
        if not found:
            return None
        return found[len(found) // 2], found[len(found) * 99 // 100]

    def _tell_of_callback(self) -> None:
        """Say once of each callback that hangs that blocks wait for it, and `store` for them."""
        if self._told_of_callback or self.acknowledging_s() < CALLBACK_S:
            return
        self._told_of_callback = True
        told = (
            f"An acknowledgement callback of receiver {self.stream_id} has not returned for "
            f"{CALLBACK_S:g} s, and store waits, since the queue of blocks is full: let no lock be "
            "held around store that the callback takes"
        )
        self._on_error(told, TimeoutError(told))

    def acknowledging_s(self) -> float:
        """Return for how long an acknowledgement callback has been running; 0 while none does."""
        since_s = self._acknowledging_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s


def _size_of(info: ReceivedBlockInfo) -> int:
    return len(msgspec.msgpack.encode(info))
