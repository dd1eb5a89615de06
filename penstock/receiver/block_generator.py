"""The block generator: from single records to sealed, stored and reported blocks.

What must hold
--------------

* Every record passes the gate: a permit is taken from a lease of the rate limiter before the record
  enters the open block (I8). A new rate drops the lease at once.
* Records of one thread keep their order, and blocks are stored and reported in the order in which
  they were sealed (I5): one thread writes the log, one thread reports, one report at a time.
* What waits is bounded (I7): the pending chunk, the open block, the queue of sealed blocks. When
  the queue or the arena is full, `store` waits.
* A failure to store or to report never ends the push path. It is told to the driver, tried again
  with back-off, and nothing is acknowledged meanwhile. (In the original the push thread dies of
  its first failure and the buffer grows without end.)

The path
--------

``store(bytes)`` is a list append and a count-down of leased permits. Every lease, and at every tick
of the block interval, the pending list is joined in one step into the open block's slot. The tick
seals the open block; so does a full slot, a call that stores a whole block, or a change of the
records' type. ``store_from`` fills the block from a socket without a Python object per record.

Threads and locks
-----------------

=====================  =========================================================================
``penstock-tick-N``    seals the open block every block interval, a moment before batches are cut
``penstock-push-N``    appends sealed blocks to the log
``penstock-report-N``  reports stored blocks to the tracker, then acknowledges
=====================  =========================================================================

``_gate`` is held by the one storing thread that waits for a lease. The assembler's lock guards the
open block. The pipeline's condition guards its queues. They nest in this order. ``_state_lock``
guards the changes of the state and is held for nothing else.

States, as in Spark's `BlockGenerator`: ``Initialized → Active → StoppedAddingData →
StoppedGeneratingBlocks → StoppedAll``.
"""

from __future__ import annotations

import enum
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from penstock.blockstore import BlockKind, BlockStore
from penstock.clock import Clock, SystemClock
from penstock.errors import IllegalStateError, PenstockError
from penstock.receiver._assembler import LARGE_RECORD, BlockAssembler, RecordTooLargeError
from penstock.receiver._pieces import (
    BULK,
    FramesPiece,
    LinesPiece,
    Piece,
    one_piece,
    pieces_of,
    reader_of,
)
from penstock.receiver._pipeline import BlockPipeline, RefusedError
from penstock.receiver.framing import FrameReader, Framing, Lines, frame_reader
from penstock.receiver.rate_limiter import RateLimiter
from penstock.wire.messages import ReceivedBlockInfo

__all__ = [
    "BlockGenerator",
    "BlockGeneratorOptions",
    "BlockGeneratorState",
    "BlockGeneratorStatistics",
    "BlockNotStoredError",
    "GateReading",
    "RecordTooLargeError",
    "RefusedError",
]

_log = logging.getLogger("penstock.receiver")

_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 5.0
_LEASE_STEP_S = 1.0
_KINDS = {
    Framing.LINES: BlockKind.LINES,
    Framing.NEWLINE: BlockKind.BYTE_LINES,
    Framing.LENGTH_PREFIX: BlockKind.BINARY,
}

_LEAD_MS = 10
"""How long before a multiple of the block interval, in wall time, a block is sealed. Batches are
cut at such multiples, and a block that is durable and known just before waits for none; one that
is sealed at a chance moment waits half a block interval on average."""

_HELD_UP_S = 0.01
"""Shorter waits for the queue or for memory, between two readings, are no sign of a full queue."""


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


@dataclass(frozen=True)
class GateReading:
    """How the gate is used, since the generator began.

    Attributes:
        records: Records that passed.
        waited_s: Seconds that storing threads waited for permits, all together.
        is_waiting: Whether one waits now.
        queue_fill: How full the queue of sealed blocks is, 0 to 1; 1 also when a thread had to
            wait for the queue or for memory since the last reading.
    """

    records: int
    waited_s: float
    is_waiting: bool
    queue_fill: float


@dataclass(frozen=True)
class BlockGeneratorOptions:
    """How blocks are made.

    Attributes:
        block_interval_s: Seconds after which the open block is sealed.
        queue_size: Sealed blocks that may wait for the log, and again for the tracker.
        schema: Arrow schema of the records, or None.
    """

    block_interval_s: float = 0.2
    queue_size: int = 10
    schema: pa.Schema | None = None


class BlockGenerator:
    """Makes blocks of one receiver attempt. Made and stopped by its supervisor.

    Args:
        stream_id: The stream.
        first_block_number: Block ids count up from here.
        block_store: Where blocks are built and kept.
        report: Sends metadata to the tracker; the future ends when it is in the driver log (I1).
            It fails with `RefusedError` when asking again cannot help.
        limiter: The gate.
        options: How blocks are made.
        on_error: Told of each failure once per episode, from this object's threads.
        clock: For the block interval.
    """

    def __init__(
        self,
        *,
        stream_id: int,
        first_block_number: int,
        block_store: BlockStore,
        report: Callable[[tuple[ReceivedBlockInfo, ...]], Future[None]],
        limiter: RateLimiter,
        options: BlockGeneratorOptions,
        on_error: Callable[[str, BaseException], None],
        clock: Clock | None = None,
    ) -> None:
        self.stream_id = stream_id
        self._limiter = limiter
        self._options = options
        self._on_error = on_error
        self._clock = clock or SystemClock()
        numbers = itertools.count(first_block_number)
        self._pipeline = BlockPipeline(stream_id, block_store, report, options.queue_size, on_error)
        self._assembler = BlockAssembler(
            block_store,
            options.schema,
            block_id=lambda: f"input-{stream_id}-{next(numbers)}",
            now_s=self._clock.monotonic_s,
            sealed=self._pipeline.put,
            discard=self._discard,
            give_up=self._pipeline.is_abandoned,
        )
        self._gate = threading.Lock()
        self._state_lock = threading.Lock()
        self._state = BlockGeneratorState.INITIALIZED
        self._stopping = threading.Event()
        self._ticker = threading.Thread(
            target=self._tick_loop, name=f"penstock-tick-{stream_id}", daemon=True
        )
        self._records_discarded = 0
        self._waited_for_rate_s = 0.0
        self._held_up_s = 0.0
        self._wake_store = block_store.wake

        self._drop_lease: Callable[[], int]
        self.store: Callable[..., None]
        """See `penstock.receiver.Receiver.store`; an attribute, so that a receiver can bind it."""
        self.store, self._drop_lease = self._make_store()

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
        self._ticker.start()

    def stop(self, timeout_s: float) -> bool:
        """Take no more records, then seal, store, report and acknowledge what was taken (I10).

        Args:
            timeout_s: Bound of the whole. When it ends, the blocks that are left are abandoned:
                nobody was told that they are stored.

        Returns:
            True when every block was reported.
        """
        deadline = time.monotonic() + timeout_s
        if not self._move(BlockGeneratorState.ACTIVE, BlockGeneratorState.STOPPED_ADDING_DATA):
            _log.warning(
                "cannot stop the block generator of stream %d: it is %s",
                self.stream_id,
                self._state.value,
            )
            return self._state is BlockGeneratorState.STOPPED_ALL
        self._drop_lease()
        self._limiter.stop()
        self._stopping.set()
        self._wake_store()
        sealed = self._seal_last(deadline)
        self._state = BlockGeneratorState.STOPPED_GENERATING_BLOCKS
        drained = self._pipeline.drain(max(0.0, deadline - time.monotonic())) and sealed
        if not drained:
            _log.error(
                "stream %d stopped with %d blocks not reported; they were not acknowledged",
                self.stream_id,
                self._pipeline.waiting() + (not sealed),
            )
        left_s = max(0.5, deadline - time.monotonic())
        self._pipeline.abandon(left_s)
        self._ticker.join(left_s)
        self._state = BlockGeneratorState.STOPPED_ALL
        return drained

    def _seal_last(self, deadline: float) -> bool:
        # A storing thread may hold the lock while it waits for memory or for the queue.
        lock = self._assembler.lock
        if not lock.acquire(timeout=max(0.1, deadline - time.monotonic())):
            return False
        try:
            self._assembler.flush_pending()
            self._assembler.seal()
        except (PenstockError, OSError) as error:
            self._on_error("Error in sealing the last block", error)
            return False
        finally:
            lock.release()
        return True

    # -- storing -------------------------------------------------------------------------------

    def _make_store(self) -> tuple[Callable[..., None], Callable[[], int]]:
        """Build `store` as a closure: its fast path reads no attribute and takes no lock."""
        append = self._assembler.pending.append
        permits: Iterator[bool] = iter(())
        expected: type[Any] = bytes
        refill = self._refill
        store_bulk = self._store_bulk
        prepare = self._assembler.prepare
        add_record = self._add_record

        def take_permit() -> None:
            nonlocal permits
            while next(permits, None) is None:
                with self._gate:
                    if next(permits, None) is not None:
                        return
                    granted = refill()
                    permits = itertools.repeat(True, granted - 1)
                    return

        def store(
            data: Any,
            position: Any = None,
            ack: Callable[[], None] | None = None,
            framing: str | None = None,
        ) -> None:
            nonlocal expected
            if (
                type(data) is expected
                and position is None
                and ack is None
                and framing is None
                and len(data) < LARGE_RECORD
            ):
                if next(permits, None) is None:
                    take_permit()
                append(data)
            elif framing is not None or isinstance(data, BULK):
                store_bulk(data, position, ack, framing)
            else:
                expected, data, small = prepare(data)
                take_permit()
                if small and position is None and ack is None:
                    append(data)
                else:
                    add_record(data, position, ack)

        def drop_lease() -> int:
            nonlocal permits
            dropped, permits = permits, iter(())
            # Counted by using them up: a thread that is about to take one takes it or finds none.
            return sum(1 for _ in dropped)

        return store, drop_lease

    def _refill(self) -> int:
        """Join the pending chunk and lease permits; returns how many. The gate is held."""
        self._check_active()
        if self._assembler.pending:
            with self._assembler.lock:
                self._assembler.flush_pending()
            self._charge()
        return self._lease(self._assembler.lease_size, in_hand=False)

    def _lease(self, wanted: int, *, in_hand: bool = True) -> int:
        """Take 1 to `wanted` permits; waits in bounded steps.

        Args:
            wanted: Permits of use.
            in_hand: True when the records are there and pass at once; False for a lease in
                advance, of records that may come later.
        """
        began = time.monotonic()
        while True:
            self._check_active()
            granted = self._limiter.lease(
                wanted,
                _LEASE_STEP_S,
                in_hand=wanted if in_hand else 1,
                lessee="bulk" if in_hand else "single",
            )
            if granted:
                self._waited_for_rate_s += time.monotonic() - began
                return granted

    def _charge(self) -> None:
        """Wait until the bytes that were added may have passed; no lock is held.

        What was added is charged afterwards, so the byte rate can be exceeded by one chunk.
        """
        size = self._assembler.take_uncharged()
        if size:
            self._limiter.charge_bytes(size)

    def _check_active(self) -> None:
        if self._state is not BlockGeneratorState.ACTIVE:
            raise IllegalStateError(
                "Cannot add data as BlockGenerator has not been started or has been stopped"
            )

    def _add_record(self, record: Any, position: Any, ack: Callable[[], None] | None) -> None:
        encoded = None if position is None else msgspec.msgpack.encode(position)
        with self._assembler.lock:
            self._assembler.flush_pending()
            self._assembler.add_chunk([record])
            self._assembler.mark(encoded, ack)
        self._charge()

    def _store_bulk(
        self,
        data: Any,
        position: Any,
        ack: Callable[[], None] | None,
        framing: str | None,
    ) -> None:
        """Store many records; without `ack` return only after they are durable (I1)."""
        self._check_active()
        encoded = None if position is None else msgspec.msgpack.encode(position)
        pieces = (
            pieces_of(data, self._assembler) if framing is None else self._framed(data, framing)
        )
        if encoded is not None:
            # All of it in one block: the position must not be durable without its records, nor
            # they without it.
            pieces = iter([one_piece(list(pieces))])
        if ack is not None:
            self._pass_pieces(
                pieces, lambda: self._assembler.mark(encoded, ack), whole=encoded is not None
            )
            return
        done: Future[None] = Future()

        def finish() -> None:
            self._assembler.mark(encoded, lambda: done.set_result(None))
            self._assembler.seal()

        with self._assembler.lock:
            self._assembler.flush_pending()
            self._assembler.seal()
        self._pass_pieces(pieces, finish, whole=encoded is not None)
        self._wait_for_storing(done)

    def _framed(self, data: Any, framing: str) -> Iterator[Piece]:
        kind, reader = self._reader(framing)
        for found in reader.frames(reader_of(memoryview(data).cast("B"))):
            if isinstance(found, Lines):
                # A copy: the next piece is asked for before this one enters a block.
                yield LinesPiece(kind, memoryview(bytes(found.data)), found.number)
            else:
                yield FramesPiece(kind, *found)
            self._account_discarded(reader)

    def _pass_pieces(
        self, pieces: Iterator[Piece], finish: Callable[[], None], *, whole: bool = False
    ) -> None:
        """Lead pieces through the gate into blocks; `finish` runs with the last of them."""
        piece = next(pieces, None)
        if piece is None:
            with self._assembler.lock:
                self._assembler.flush_pending()
                finish()
            return
        while piece is not None:
            following = next(pieces, None)
            start = 0
            while True:
                count = len(piece) - start
                granted = self._lease_all(count) if whole else self._lease(count) if count else 0
                with self._assembler.lock:
                    self._assembler.flush_pending()
                    with self._assembler.undivided(whole):
                        piece.add(self._assembler, start, start + granted)
                    if following is None and granted == count:
                        finish()
                self._charge()
                start += granted
                if granted == count:
                    break
            piece = following

    def _lease_all(self, count: int) -> int:
        left = count
        while left:
            left -= self._lease(left)
        return count

    def _wait_for_storing(self, done: Future[None]) -> None:
        while True:
            try:
                return done.result(timeout=_LEASE_STEP_S)
            except FutureTimeoutError:
                if self._pipeline.refused is not None:
                    raise BlockNotStoredError(self.stream_id, str(self._pipeline.refused)) from None
                if self._pipeline.is_abandoned():
                    raise BlockNotStoredError(
                        self.stream_id, "the receiver stopped before the block was reported"
                    ) from None

    def store_from(self, readinto: Callable[[memoryview], int], framing: str) -> None:
        """See `penstock.receiver.Receiver.storeFrom`."""
        kind, reader = self._reader(framing)
        for found in reader.frames(readinto):
            piece = (LinesPiece if isinstance(found, Lines) else FramesPiece)(kind, *found)
            start = 0
            while start < len(piece):
                granted = self._lease(len(piece) - start)
                with self._assembler.lock:
                    self._assembler.flush_pending()
                    piece.add(self._assembler, start, start + granted)
                self._charge()
                start += granted
            self._account_discarded(reader)

    def _reader(self, framing: str) -> tuple[BlockKind, FrameReader]:
        how = Framing(framing)
        return _KINDS[how], frame_reader(how, self._assembler.max_record_bytes)

    def _account_discarded(self, reader: FrameReader) -> None:
        if reader.discarded:
            count, size = reader.take_discarded()
            self._discard(count, size, RecordTooLargeError(size, self._assembler.max_record_bytes))

    def _discard(self, count: int, size: int, error: BaseException) -> None:
        with self._state_lock:
            self._records_discarded += count
        self._on_error(
            f"{count} record(s) of {size} bytes or more were discarded",
            error,
        )

    def update_rate(self, records_per_second: float | None) -> None:
        """Use a new rate, also for the open block: the lease at the old one is dropped (I8).

        What is left of it goes back, or a rate that changes often would lose a lease each time.
        """
        self._give_lease_back()
        self._limiter.set_rate(records_per_second)
        # A thread may just have leased at the old rate.
        self._give_lease_back()

    def _give_lease_back(self) -> None:
        left = self._drop_lease()
        if left:
            self._limiter.give_back(left, lessee="single")

    def update_byte_rate(self, bytes_per_second: float | None) -> None:
        """Use a new rate of bytes, also for who waits for the old one."""
        self._limiter.set_byte_rate(bytes_per_second)

    def read_gate(self) -> GateReading:
        """Return how the gate is used; for one caller, as each reading begins where one ended."""
        found = self.statistics()
        held_up_s = found.waited_for_queue_s + found.waited_for_memory_s
        was_held_up = held_up_s > self._held_up_s + _HELD_UP_S
        self._held_up_s = held_up_s
        fill = 1.0 if was_held_up else min(1.0, found.queue_length / self._options.queue_size)
        return GateReading(
            found.records,
            found.waited_for_rate_s,
            self._limiter.statistics().waiting > 0,
            fill,
        )

    def _tick_loop(self) -> None:
        while not self._clock.wait(self._stopping, self._until_seal_s()):
            if self._pipeline.is_full():
                continue  # the open block goes on filling up to its cap, then `store` waits
            try:
                with self._assembler.lock:
                    self._assembler.flush_pending()
                    self._assembler.seal()
            except (PenstockError, OSError, pa.ArrowException, ValueError) as error:
                self._on_error("Error in sealing a block", error)

    def _until_seal_s(self) -> float:
        """Return how long to wait: about a block interval, not less than half of one."""
        interval_ms = self._options.block_interval_s * 1000
        lead_ms = min(_LEAD_MS, interval_ms / 5)
        left_ms = interval_ms - (self._clock.time_ms() + lead_ms) % interval_ms
        if left_ms < interval_ms / 2:
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
            waited_for_rate_s=self._waited_for_rate_s,
            waited_for_queue_s=pipeline.waited_s,
            waited_for_memory_s=assembler.waited_for_memory_s,
            records_discarded=self._records_discarded,
        )
