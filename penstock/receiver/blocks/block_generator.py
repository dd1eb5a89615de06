"""The block generator: from single records to sealed, stored and reported blocks.

What must hold
--------------

* Every record needs a permit, taken from a lease of the rate limiter, before it enters the open
  block (I8). A new rate drops the lease at once.
* Records of one thread keep their order, and blocks are stored and reported in the order in which
  they were sealed (I5): one thread writes the log, one thread reports, one report at a time.
* What waits is bounded (I7): the pending chunk, the open block, the queue of sealed blocks. When
  the queue or the arena is full, `store` waits, or its `intake` drops.
* A failure to store or to report that may pass never ends the push path. It is reported to the
  driver, tried again with back-off, and nothing is acknowledged meanwhile. (In the original the
  push thread dies of its first failure and the buffer grows without end.) One that cannot pass ends
  the attempt.
* A stop ends in time: at its deadline nothing waits any more, neither for room nor for memory.

The path
--------

`storing` has the ways in; ``store(bytes)`` is a list append and a count-down of leased permits.
Every lease, and at every tick
of the block interval, the pending list is joined in one step into the open block's slot. The tick
seals the open block; so does a full slot, a call that stores a whole block, or a change of the
records' type. ``store_from`` fills the block from a socket without a Python object per record.

Where a function waits for the records (``seals_early``), the tick does not wait for the end of the
interval: it seals as soon as all blocks before are in the driver log, as a group commit does, but
not within `_SHORTEST_S` of the last time. So what comes alone is on its way at once, a block has
what came while the one before was made durable, and under load, or on a slow disk, blocks become
longer by themselves: at most the interval.

Threads and locks
-----------------

=====================  =========================================================================
``penstock-tick-N``    seals the open block every block interval, a moment before batches are cut,
                       or early
``penstock-push-N``    appends sealed blocks to the log
``penstock-report-N``  reports stored blocks to the tracker, then acknowledges
``penstock-move-N``    all three, where many receivers share a process (``one_thread``)
=====================  =========================================================================

The one thread never waits for what only it can bring: for the open block's lock it waits in short
steps and moves blocks between them, for room not at all, and without memory it seals later.

``_lease_lock`` of `storing` is held by the one storing thread that waits for a lease. The
assembler's lock guards the open block. The pipeline's condition guards its queues. They nest in
this order. ``_state_lock`` guards the changes of the state, and is held for nothing else.

States, as in Spark's `BlockGenerator`: ``Initialized → Active → StoppedAddingData →
StoppedGeneratingBlocks → StoppedAll``.
"""

from __future__ import annotations

import enum
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.blockstore import BlockStore, SealedBlock
from penstock.dead_letters import BudgetMeter, DeadLetterWriter
from penstock.errors import IllegalStateError
from penstock.receiver.blocks.assembler import BlockAssembler, RecordTooLargeError
from penstock.receiver.blocks.discards import Discards
from penstock.receiver.blocks.intake import Intake, IntakeStoring
from penstock.receiver.blocks.options import BlockGeneratorOptions, WhenFull
from penstock.receiver.blocks.pipeline import (
    IDLE_S,
    BlockNotStoredError,
    BlockPipeline,
    BlocksRefusedError,
)
from penstock.receiver.blocks.spill import Spill
from penstock.receiver.blocks.storing import MAY_PASS, Storing
from penstock.receiver.door import (
    ReceiverStoppedError,
    StoreDoor,
)
from penstock.receiver.rate_limiter import RateLimiter
from penstock.receiver.user_calls import UserCall
from penstock.receiver.validation import Validation
from penstock.runtime.backoff import Backoff
from penstock.runtime.clock import Clock, SystemClock
from penstock.runtime.threads import OwnedThread
from penstock.wire.messages import LogReading, PipeReading, ReceivedBlockInfo

__all__ = [
    "BlockGenerator",
    "BlockGeneratorState",
    "BlockGeneratorStatistics",
    "BlockNotStoredError",
    "BlocksRefusedError",
    "RateUsage",
    "RecordTooLargeError",
]

_log = logging.getLogger("penstock.receiver")

_LEAD_MS = 10
"""How long before a multiple of the block interval, in wall time, a block is sealed. Batches are
cut at such multiples, and a block that is durable and known just before waits for none; one that
is sealed at a chance moment waits half a block interval on average."""

_SHORTEST_S = 0.003
"""Between two blocks that are sealed early: what a block costs all processes together, about 2 ms
of a core, is then less than the machine has."""

_SHORTEST_SHOWN_S = 0.0015
"""The same where a function sees each block as soon as it is sealed, and waits for nothing else."""

_HELD_UP_S = 0.01
"""Shorter waits for the queue or for memory between two readings do not count as a full queue."""


_LAST_BLOCKS_S = 5.0
"""What is kept of a stop's time for the last blocks, or half of it."""

_LOCK_S = 0.05
"""How long the one thread waits for the open block before it moves blocks again."""

_REST_S = 1.0
"""How often it is looked for records where none seem to come."""


def _nothing() -> None:
    """Be called."""


class BlockGeneratorState(enum.Enum):
    """As in Spark's `BlockGenerator`."""

    INITIALIZED = "Initialized"
    ACTIVE = "Active"
    STOPPED_ADDING_DATA = "StoppedAddingData"
    STOPPED_GENERATING_BLOCKS = "StoppedGeneratingBlocks"
    STOPPED_ALL = "StoppedAll"


@dataclass(frozen=True)
class BlockGeneratorStatistics:
    """Counters since the start; seconds are summed over threads."""

    records: int
    bytes: int
    blocks_sealed: int
    blocks_stored: int
    blocks_reported: int
    records_reported: int
    queue_length: int
    """Blocks that are sealed and not yet reported."""
    waited_for_rate_s: float
    waited_for_queue_s: float
    waited_for_memory_s: float
    records_discarded: int
    records_dropped: int


@dataclass(frozen=True)
class RateUsage:
    """How the rate has been used since the generator began.

    Attributes:
        records: Records that passed.
        waited_s: Seconds that storing threads waited for the rate of records, all together.
        is_waiting: Whether one waits now, for whatever rate.
        queue_fill: How full the queue of sealed blocks is, 0 to 1; 1 also when a thread had to
            wait for the queue or for memory since the last reading.
        bytes: Bytes that passed.
        pipe: What the threads waited for, where it was asked for.
        byte_waited_s: As `waited_s`, for the rate of bytes.
        dropped: Records that were dropped, since they came faster than they passed.
    """

    records: int
    waited_s: float
    is_waiting: bool
    queue_fill: float
    bytes: int
    pipe: PipeReading | None = None
    byte_waited_s: float = 0.0
    dropped: int = 0


class BlockGenerator:
    """Makes blocks of one receiver attempt. Made and stopped by its supervisor.

    Args:
        block_store: Where blocks are built and kept.
        report: Sends metadata to the tracker; returns when it is in the driver log (I1). Raises
            `BlocksRefusedError` when asking again cannot help.
        limiter: The receiver's own.
        options: How blocks are made.
        on_error: Notified of each failure once per episode, from this object's threads.
        clock: For the block interval.
        letters: Keeps the records that are discarded, and is closed at the end; None: they are
            lost.
        spill: Where records wait, by the policy ``spill``; closed at the end.
        show: Is given each sealed block before the log has it; must not wait. None: no one is.

    Attributes:
        is_resting: Nothing has come for an interval: what `read_rate_usage` says stays the same.
        woken: Called when that is over.
    """

    def __init__(
        self,
        *,
        block_store: BlockStore,
        report: Callable[[tuple[ReceivedBlockInfo, ...]], None],
        limiter: RateLimiter,
        options: BlockGeneratorOptions,
        on_error: Callable[[str, BaseException], None],
        clock: Clock | None = None,
        letters: DeadLetterWriter | None = None,
        spill: Spill | None = None,
        show: Callable[[SealedBlock], None] | None = None,
    ) -> None:
        self.stream_id = stream_id = block_store.stream_id
        self._limiter = limiter
        self._options = options
        self._on_error = on_error
        self._clock = clock or SystemClock()
        self._letters = letters
        meter = None
        if options.dead_letter_budget is not None:
            meter = BudgetMeter(
                stream_id,
                options.dead_letter_budget,
                self._clock.monotonic_s,
                lambda: self._assembler.records,
                pauses=options.pauses_over_budget,
            )
        self._discards = Discards(on_error, self._clock.monotonic_s, letters, meter)
        self._intake = Intake(
            options.when_full, options.waiting_bytes, self._clock.monotonic_s, spill
        )
        self._shortest_s = _SHORTEST_S if show is None else _SHORTEST_SHOWN_S
        self._stopping = threading.Event()
        self._seal_now = threading.Event()
        self._is_seal_wanted = options.seals_early
        numbers = itertools.count(options.first_block_number)
        self._pipeline = BlockPipeline(
            block_store,
            report,
            options,
            on_error,
            self._clock.monotonic_s,
            letters,
            self._seal_if_wanted,
            show,
            self._wake if options.one_thread else None,
        )
        self._assembler = BlockAssembler(
            block_store,
            options.schema,
            block_id=lambda: f"input-{stream_id}-{next(numbers)}",
            clock=self._clock,
            sealed=self._pipeline.put,
            discard=self._discards.add,
            tell=on_error,
            give_up=self._pipeline.waits_for_nothing,
            letters=letters,
        )
        self._state_lock = threading.Lock()
        self._state = BlockGeneratorState.INITIALIZED
        self._is_asked = False
        self._ticker = (
            OwnedThread(partial(self._pipeline.run, self._move_loop), f"move-{stream_id}")
            if options.one_thread
            else OwnedThread(self._tick_loop, f"tick-{stream_id}")
        )
        self.is_resting = False
        self.woken: Callable[[], None] = _nothing
        self._held_up_s = 0.0
        self._block_store = block_store
        self._wake_store = block_store.wake

        given = (
            stream_id,
            self._assembler,
            self._pipeline,
            limiter,
            self._discards,
            options.position_bytes,
            self._check_active,
            None if options.validate is None else Validation(options.validate),
            options.splits,
        )
        self._storing = (
            Storing(*given)
            if options.when_full is WhenFull.BLOCK
            else IntakeStoring(self._intake, on_error, *given)
        )
        own = self.open_door()
        self.store, self.store_from = own.store, own.store_from

    # -- life ----------------------------------------------------------------------------------

    @property
    def state(self) -> BlockGeneratorState:
        """The state at this moment."""
        return self._state

    def _move(self, expected: BlockGeneratorState, to: BlockGeneratorState) -> bool:
        with self._state_lock:
            if self._state is not expected:
                return False
            self._state = to
            return True

    def start(self) -> None:
        """Begin to take records.

        Raises:
            IllegalStateError: It was started before.
        """
        if not self._move(BlockGeneratorState.INITIALIZED, BlockGeneratorState.ACTIVE):
            raise IllegalStateError(
                "Cannot start BlockGenerator as its not in the Initialized state "
                f"[state = {self._state.value}]"
            )
        self._pipeline.start()
        self._storing.start()
        self._ticker.start()

    def stop(self, timeout_s: float) -> bool:
        """Take no more records, then seal, store, report and acknowledge what was taken (I10).

        Args:
            timeout_s: Bound of the whole. When it ends, the blocks that are left are abandoned:
                they were acknowledged to no one.

        Returns:
            True when every block was reported.
        """
        deadline = time.monotonic() + timeout_s
        if self._state is BlockGeneratorState.ACTIVE:
            # The last blocks also take some of the time.
            by_s = deadline - min(_LAST_BLOCKS_S, timeout_s / 2)
            self._storing.drain(lambda: time.monotonic() < by_s and not self.is_over())
        if not self._move(BlockGeneratorState.ACTIVE, BlockGeneratorState.STOPPED_ADDING_DATA):
            _log.warning(
                "cannot stop the block generator of stream %d: it is %s",
                self.stream_id,
                self._state.value,
            )
            return self._state is BlockGeneratorState.STOPPED_ALL
        self._storing.close()
        self._limiter.stop()
        self._stopping.set()
        self.seal_soon()
        self.give_up_within(timeout_s)
        sealed = self._seal_last(deadline)
        self._state = BlockGeneratorState.STOPPED_GENERATING_BLOCKS
        drained = self._pipeline.drain() and sealed
        if not drained:
            _log.error(
                "stream %d stopped with %d blocks not reported; they were not acknowledged",
                self.stream_id,
                self._pipeline.waiting() + (not sealed),
            )
        left_s = max(0.5, deadline - time.monotonic())
        self._pipeline.abandon(left_s)
        self._ticker.join(left_s)
        self._close_letters(max(0.5, deadline - time.monotonic()))
        self._state = BlockGeneratorState.STOPPED_ALL
        return drained

    def _close_letters(self, timeout_s: float) -> None:
        letters = self._letters
        if letters is None or not letters.added:
            return

        def failed(error: BaseException) -> None:
            self._on_error("Error in closing the log of dead letters", error)

        closing = UserCall(f"letters-{self.stream_id}", letters.close, failed)
        closing.start()
        if not closing.join(timeout_s):
            told = (
                f"The log of dead letters of receiver {self.stream_id} did not close within "
                f"{timeout_s:.1f} s and was left behind; it stands at {closing.blocked_at()}"
            )
            self._on_error(told, TimeoutError(told))

    def give_up_within(self, timeout_s: float) -> None:
        """Wait no longer than this for room, for memory or for the tracker; from any thread."""
        self._pipeline.give_up_at(time.monotonic() + timeout_s)
        self._wake_store()

    def _seal_last(self, deadline: float) -> bool:
        # A storing thread may hold the lock while it waits for memory or for the queue.
        lock = self._assembler.lock
        if not lock.acquire(timeout=max(0.1, deadline - time.monotonic())):
            return False
        try:
            self._assembler.flush_pending()
            self._assembler.seal()
        except Exception as error:  # noqa: BLE001 - the stop goes on, and says what is lost
            self._on_error("Error in sealing the last block", error)
            return False
        finally:
            lock.release()
            self._discards.tell_rest(at_once=True)
            self._tell_dropped(at_once=True)
        return True

    def _tell_dropped(self, *, at_once: bool = False) -> None:
        if (news := self._intake.news(at_once=at_once)) is not None:
            self._on_error(str(news), news)

    def flush(self, stored: Callable[[], None]) -> None:
        """Seal what was taken; `stored` is called when it is durable and acknowledged, in order.

        It may wait for room, as `store` does.
        """
        with self._assembler.lock:
            self._assembler.flush_pending()
            self._assembler.mark(None, stored)
            self._assembler.seal()

    @property
    def dropped(self) -> int:
        """How many records were dropped, since they came faster than they passed."""
        return self._intake.dropped

    def is_over(self) -> bool:
        """Return whether nothing that waits will become durable any more."""
        return self._pipeline.is_over()

    def acknowledging_s(self) -> float:
        """Return for how long an acknowledgement callback has been running; 0 while none does."""
        return self._pipeline.acknowledging_s()

    # -- storing -------------------------------------------------------------------------------

    def open_door(self, last_position: Any = None) -> StoreDoor:
        """Return a new way in, for one start of the receiver, which begins after a position."""
        return self._storing.open_door(last_position)

    def refused(self) -> AbstractContextManager[list[BaseException]]:
        """See `Discards.refused`."""
        return self._discards.refused()

    def _check_active(self) -> None:
        if self._state is not BlockGeneratorState.ACTIVE:
            is_new = self._state is BlockGeneratorState.INITIALIZED
            raise (IllegalStateError if is_new else ReceiverStoppedError)(
                "Cannot add data as BlockGenerator has not been started or has been stopped"
            )

    # -- rates ---------------------------------------------------------------------------------

    def update_rate(self, records_per_second: float | None, *, is_paused: bool = False) -> None:
        """Use a new rate, also for the open block: the lease at the old one is dropped (I8).

        What is left of it goes back, or a rate that changes often would lose a lease each time.

        Args:
            records_per_second: None is no limit.
            is_paused: Whether nothing passes until the next call.
        """
        self._storing.give_leases_back()
        self._limiter.set_rate(records_per_second)
        if not is_paused:
            self._discards.begin_budget()
        self._limiter.set_paused(is_paused)
        # A thread may just have leased at the old rate.
        self._storing.give_leases_back()

    @property
    def passes_soon(self) -> bool:
        """Whether waits in `store` may end within a second, as far as the rates go."""
        return self._limiter.passes_soon

    def pause(self) -> None:
        """Let nothing pass until `update_rate`; may be called while a record is discarded."""
        self._limiter.set_paused(True)
        self._storing.give_leases_back()

    def update_byte_rate(self, bytes_per_second: float | None) -> None:
        """Use a new rate of bytes, also for threads that wait for the old one."""
        self._limiter.set_byte_rate(bytes_per_second)

    def read_rate_usage(self, *, with_pipe: bool = False) -> RateUsage:
        """Return how the rate is used; for one caller, as each reading begins where one ended.

        Args:
            with_pipe: Whether to also read what threads waited for.
        """
        found = self.statistics()
        held_up_s = found.waited_for_queue_s + found.waited_for_memory_s
        was_held_up = held_up_s > self._held_up_s + _HELD_UP_S
        self._held_up_s = held_up_s
        fill = 1.0 if was_held_up else min(1.0, found.queue_length / self._options.queue_size)
        limiter = self._limiter
        return RateUsage(
            found.records,
            limiter.for_rate.read(),
            limiter.waiting > 0,
            fill,
            limiter.bytes_charged,
            self._read_pipe(found) if with_pipe else None,
            limiter.for_byte_rate.read(),
            found.records_dropped,
        )

    def _read_pipe(self, found: BlockGeneratorStatistics) -> PipeReading:
        pipeline, store, limiter = self._pipeline, self._block_store, self._limiter
        queued, stored = pipeline.depths()
        latency_s = pipeline.latency_s()
        replica_s = store.replica_waits.read()
        log = store.log_statistics()
        return PipeReading(
            rate_s=limiter.for_rate.read(),
            byte_rate_s=limiter.for_byte_rate.read(),
            shared_rate_s=limiter.waited_for_shared_rate_s,
            queue_s=found.waited_for_queue_s,
            durable_s=self._storing.durable_waits.read(),
            memory_s=found.waited_for_memory_s,
            log_s=max(0.0, pipeline.log_waits.read() - replica_s),
            replica_s=replica_s,
            room_s=pipeline.told_waits.read(),
            driver_s=pipeline.driver_waits.read(),
            busy_s=time.process_time(),
            open_records=self._assembler.open_records() + self._intake.records,
            queued_blocks=queued,
            stored_blocks=stored,
            blocks=found.blocks_reported,
            latency_ms=None if latency_s is None else (latency_s[0] * 1e3, latency_s[1] * 1e3),
            log=(
                None
                if log is None
                else LogReading(
                    log.segments_created - log.segments_removed,
                    log.bytes_appended,
                    log.syncs,
                    log.sync_seconds_total,
                    log.sync_seconds_max,
                    log.free_bytes,
                )
            ),
            traces=pipeline.take_traces(self._clock.time_ms() / 1000),
            discarded=found.records_discarded,
        )

    def seal_soon(self) -> None:
        """Have the open block sealed now, and not at the end of its interval; never waits."""
        self._is_asked = True
        self._wake()

    def _wake(self) -> None:
        self._seal_now.set()
        self._storing.came.set()

    def seal_when_free(self) -> None:
        """Have the open block sealed once all before are reported; never waits."""
        self._is_seal_wanted = True
        if not self._pipeline.waiting():
            self.seal_soon()

    def _seal_if_wanted(self) -> None:
        if self._is_seal_wanted:
            self._is_asked = True
            self._seal_now.set()

    def _move_loop(self) -> None:
        self._tick_loop()
        while not self._pipeline.is_abandoned():
            self._seal_now.clear()
            self._pipeline.move()
            self._seal_now.wait(IDLE_S)

    def _move_until_due(self, *, soon: bool) -> None:
        """Move blocks until the open one is to be sealed."""
        due_s = self._clock.monotonic_s() + self._until_seal_s(soon=soon)
        while True:
            self._seal_now.clear()
            self._pipeline.move()
            left_s = due_s - self._clock.monotonic_s()
            if left_s <= 0 or self._is_asked:
                return
            self._clock.wait(self._seal_now, left_s)

    def _lock_open_block(self) -> bool:
        """Take the lock of the open block; False: the generator stops, and the stop seals."""
        lock = self._assembler.lock
        if not self._options.one_thread:
            return lock.acquire()
        while not lock.acquire(timeout=_LOCK_S):
            if self._stopping.is_set():
                return False
            # Its holder may wait for room or memory.
            self._pipeline.move()
        return True

    def _tick_loop(self) -> None:
        fails = False
        # The first block follows none that is reported.
        rested = early = self._options.seals_early
        while True:
            if self._options.one_thread:
                self._move_until_due(soon=rested)
            elif not (early and rested):
                if early:
                    self._clock.wait(self._stopping, self._shortest_s)
                self._clock.wait(self._seal_now, self._until_seal_s(soon=rested))
            rested = self._is_asked = False
            self._seal_now.clear()
            if self._stopping.is_set():
                return
            self._discards.tell_rest()
            self._tell_dropped()
            if self._pipeline.is_full():
                continue  # the open block goes on filling up to its cap, then `store` waits
            self._is_seal_wanted = early
            sealed = self._pipeline.blocks_sealed
            if not self._lock_open_block():
                continue
            try:
                self._assembler.flush_pending()
                self._assembler.seal()
                fails = False
                rested = self._pipeline.blocks_sealed == sealed
            except MAY_PASS as error:
                # That there is no memory yet is no failure where it is not waited for.
                is_early = self._options.one_thread and isinstance(error, IllegalStateError)
                if not fails and not is_early:
                    self._on_error("Error in sealing a block", error)
                fails = fails or not is_early
            finally:
                self._assembler.lock.release()
            if rested:
                is_busy = self._discards.is_busy or self._intake.is_busy
                self._rest(self._options.block_interval_s if is_busy else math.inf)

    def _rest(self, most_s: float) -> None:
        """Wait until something comes, after an interval in which nothing came, but not longer."""
        came = self._storing.came
        # The next store asks for a lease, and so sets it. A thread that has a permit in hand just
        # now does not, so this loop looks for it.
        self._storing.give_leases_back()
        looks = Backoff(_SHORTEST_S, _REST_S)
        begun_s = self._clock.monotonic_s()
        while not self._clock.wait(came, looks.next_s()) and not self._assembler.open_records():
            rested_s = self._clock.monotonic_s() - begun_s
            if rested_s >= most_s:
                break
            self.is_resting = rested_s >= self._options.block_interval_s
        came.clear()
        if self.is_resting:
            self.is_resting = False
            self.woken()

    def _until_seal_s(self, *, soon: bool = False) -> float:
        """Return how long to wait: about a block interval, not less than half of one.

        Args:
            soon: No block was sealed just now: until the end of this interval.
        """
        interval_ms = self._options.block_interval_s * 1000
        lead_ms = min(_LEAD_MS, interval_ms / 5)
        left_ms = interval_ms - (self._clock.time_ms() + lead_ms) % interval_ms
        if left_ms < interval_ms / 2 and not soon:
            left_ms += interval_ms
        return left_ms / 1000

    def statistics(self) -> BlockGeneratorStatistics:
        """Return the counters."""
        assembler, pipeline = self._assembler, self._pipeline
        return BlockGeneratorStatistics(
            records=assembler.records + len(assembler.pending),
            bytes=assembler.bytes,
            blocks_sealed=pipeline.blocks_sealed,
            blocks_stored=pipeline.blocks_stored,
            blocks_reported=pipeline.blocks_reported,
            records_reported=pipeline.records_reported,
            queue_length=pipeline.waiting(),
            waited_for_rate_s=self._storing.waited_for_rate_s,
            waited_for_queue_s=pipeline.room_waits.read(),
            waited_for_memory_s=assembler.memory_waits.read(),
            records_discarded=self._discards.count,
            records_dropped=self._intake.dropped,
        )
