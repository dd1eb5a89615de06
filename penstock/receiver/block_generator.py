"""The block generator: from single records to sealed, stored and reported blocks.

What must hold
--------------

* Every record needs a permit, taken from a lease of the rate limiter, before it enters the open
  block (I8). A new rate drops the lease at once.
* Records of one thread keep their order, and blocks are stored and reported in the order in which
  they were sealed (I5): one thread writes the log, one thread reports, one report at a time.
* What waits is bounded (I7): the pending chunk, the open block, the queue of sealed blocks. When
  the queue or the arena is full, `store` waits.
* A failure to store or to report that may pass never ends the push path. It is told to the driver,
  tried again with back-off, and nothing is acknowledged meanwhile. (In the original the push thread
  dies of its first failure and the buffer grows without end.) One that cannot pass ends the
  attempt.
* A stop ends in time: at its deadline nothing waits any more, neither for room nor for memory.

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

``_lease_lock`` is held by the one storing thread that waits for a lease. The assembler's lock
guards the open block. The pipeline's condition guards its queues. They nest in this order.
``_state_lock`` guards the changes of the state, and the table of doors, and is held for nothing
else.

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
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from penstock.blockstore import BlockKind, BlockStore
from penstock.clock import Clock, SystemClock
from penstock.errors import IllegalStateError, PenstockError, encodable
from penstock.receiver.assembler import LARGE_RECORD, BlockAssembler, RecordTooLargeError
from penstock.receiver.bulk import (
    BULK,
    FramesPiece,
    LinesPiece,
    Piece,
    one_piece,
    pieces_of,
    reader_of,
)
from penstock.receiver.discards import Discards, start_of
from penstock.receiver.door import (
    DoorState,
    ReceiverStoppedError,
    StoreDoor,
    acknowledge_nothing,
    withdraw,
)
from penstock.receiver.framing import CutRecordError, FrameReader, Framing, Lines, frame_reader
from penstock.receiver.pipeline import BlockNotStoredError, BlockPipeline, RefusedError
from penstock.receiver.rate_limiter import (
    RateLimiter,
    RateLimiterStatistics,
    RateLimiterStoppedError,
)
from penstock.wait_clock import WaitClock
from penstock.wire.messages import LogReading, PipeReading, ReceivedBlockInfo

__all__ = [
    "BlockGenerator",
    "BlockGeneratorOptions",
    "BlockGeneratorState",
    "BlockGeneratorStatistics",
    "BlockNotStoredError",
    "PositionTooLargeError",
    "PositionTypeError",
    "RateUsage",
    "RecordTooLargeError",
    "RefusedError",
]

_log = logging.getLogger("penstock.receiver")

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
"""Shorter waits for the queue or for memory between two readings do not count as a full queue."""


class PositionTooLargeError(PenstockError, ValueError):
    """A position is too large to travel with each block, and to be kept with each in the ledger.

    Attributes:
        size: Bytes of the position as MessagePack.
        limit: What is accepted.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"a position of {size} bytes is larger than the {limit} bytes that are accepted: it "
            "goes into the driver's log with every block, so keep to what finds the place again "
            "(an offset, a token), and leave the rest with the source"
        )
        self.size = size
        self.limit = limit


class PositionTypeError(PenstockError, TypeError):
    """A position holds something that would not come back as it was.

    Attributes:
        found: The value, as text.
        kind: The type of what cannot be kept, which may lie within the position.
    """

    def __init__(self, found: str, kind: str) -> None:
        super().__init__(
            f"position={found} is not accepted, because of the {kind}: a position comes back "
            "from the driver's log as it was given, so it is None, bool, int (64 bits), float, "
            "str, bytes, or a list, tuple or dict of these"
        )
        self.found = found
        self.kind = kind


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
class RateUsage:
    """How the rate has been used since the generator began.

    Attributes:
        records: Records that passed.
        waited_s: Seconds that storing threads waited for permits, all together.
        is_waiting: Whether one waits now.
        queue_fill: How full the queue of sealed blocks is, 0 to 1; 1 also when a thread had to
            wait for the queue or for memory since the last reading.
        bytes: Bytes that passed.
        pipe: What the threads waited for, where it was asked for.
    """

    records: int
    waited_s: float
    is_waiting: bool
    queue_fill: float
    bytes: int
    pipe: PipeReading | None = None


@dataclass(frozen=True)
class BlockGeneratorOptions:
    """How blocks are made.

    Attributes:
        block_interval_s: Seconds after which the open block is sealed.
        queue_size: Sealed blocks that may wait for the log, and again for the tracker.
        schema: Arrow schema of the records, or None.
        position_bytes: How large a position may be.
        report_bytes: How large the blocks' metadata of one report to the tracker may be.
    """

    block_interval_s: float = 0.2
    queue_size: int = 10
    schema: pa.Schema | None = None
    position_bytes: int = 64 << 10
    report_bytes: int = 1 << 20


_NO_ACKNOWLEDGEMENT: AbstractContextManager[None] = nullcontext()


_PLAIN = frozenset((str, bytes, float, bool, type(None)))
_INTEGERS = range(-(1 << 63), 1 << 64)


def _check_ack(ack: object) -> None:
    if ack is not None and not callable(ack):
        raise TypeError(
            f"ack={ack!r:.200} is not accepted: a function to be called without arguments once the "
            "data is durable, such as ack=lambda: source.acknowledge(message)"
        )


def _check_position(part: Any, position: Any) -> None:
    kind = type(part)
    if kind in _PLAIN or (kind is int and part in _INTEGERS):
        return
    if kind is list or kind is tuple:
        parts = part
    elif kind is dict:
        parts = (*part, *part.values())
    else:
        raise PositionTypeError(f"{position!r:.200}", kind.__name__)
    for each in parts:
        _check_position(each, position)


def _inside(door: StoreDoor, ack: Callable[[], None] | None) -> AbstractContextManager[None]:
    """Enter the door with data; only what has an acknowledgement may have to wait."""
    if ack is None or ack is acknowledge_nothing:
        return _NO_ACKNOWLEDGEMENT
    return door.acknowledged


class BlockGenerator:
    """Makes blocks of one receiver attempt. Made and stopped by its supervisor.

    Args:
        stream_id: The stream.
        first_block_number: Block ids count up from here.
        block_store: Where blocks are built and kept.
        report: Sends metadata to the tracker; the future ends when it is in the driver log (I1).
            It fails with `RefusedError` when asking again cannot help.
        limiter: The receiver's own.
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
        self._discards = Discards(on_error, self._clock.monotonic_s)
        numbers = itertools.count(first_block_number)
        self._pipeline = BlockPipeline(
            stream_id,
            block_store,
            report,
            options.queue_size,
            on_error,
            options.report_bytes,
            self._clock.monotonic_s,
        )
        self._assembler = BlockAssembler(
            block_store,
            options.schema,
            block_id=lambda: f"input-{stream_id}-{next(numbers)}",
            now_s=self._clock.monotonic_s,
            sealed=self._pipeline.put,
            discard=self._discards.add,
            tell=on_error,
            give_up=self._pipeline.is_given_up,
        )
        self._lease_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._state = BlockGeneratorState.INITIALIZED
        self._stopping = threading.Event()
        self._ticker = threading.Thread(
            target=self._tick_loop, name=f"penstock-tick-{stream_id}", daemon=True
        )
        self._waited_for_rate_s = 0.0
        self._held_up_s = 0.0
        self._block_store = block_store
        self._durable_waits = WaitClock()
        self._wake_store = block_store.wake

        self._doors: list[StoreDoor] = []
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
        with self._state_lock:
            doors = tuple(self._doors)
        for door in doors:
            door.close()
        self._limiter.stop()
        self._stopping.set()
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
        self._state = BlockGeneratorState.STOPPED_ALL
        return drained

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
        return True

    def flush(self, stored: Callable[[], None]) -> None:
        """Seal what was taken; `stored` is called when it is durable and acknowledged, in order.

        It may wait for room, as `store` does.
        """
        with self._assembler.lock:
            self._assembler.flush_pending()
            self._assembler.mark(None, stored)
            self._assembler.seal()

    def is_over(self) -> bool:
        """Tell whether nothing that waits will become durable any more."""
        return self._pipeline.is_over()

    def acknowledging_s(self) -> float:
        """Return for how long an acknowledgement callback has been running; 0 while none does."""
        return self._pipeline.acknowledging_s()

    # -- storing -------------------------------------------------------------------------------

    def open_door(self) -> StoreDoor:
        """Return a new way in, for one start of the receiver."""
        door = StoreDoor(self.stream_id)
        door.store_from = partial(self._store_from, door)
        self._make_store(door)
        with self._state_lock:
            self._doors = [known for known in self._doors if known.state is not DoorState.CLOSED]
            self._doors.append(door)
        return door

    def _make_store(self, door: StoreDoor) -> None:
        """Build `store` as a closure: its fast path reads no attribute and takes no lock.

        A thread may be anywhere in it when the door is shut. So it looks after it appended: what
        came too late for the last flush of the pending list is taken back, and that is an error.
        """
        closed = False
        append = self._assembler.pending.append
        permits: Iterator[bool] = iter(())
        expected: type[Any] = bytes
        single: type[Any] = bytes  # a type that is no bulk: to find out takes longer than the rest
        refill = self._refill
        store_bulk = partial(self._store_bulk, door)
        prepare = self._assembler.prepare
        add_record = partial(self._add_record, door)
        settle = partial(self._settle, door)

        def take_permit() -> None:
            nonlocal permits
            while next(permits, None) is None:
                self._check_thread()
                with self._lease_lock:
                    if next(permits, None) is not None:
                        return
                    granted = refill(door)
                    permits = itertools.repeat(True, granted - 1)
                    return

        def store(
            data: Any,
            position: Any = None,
            ack: Callable[[], None] | None = None,
            framing: str | None = None,
        ) -> None:
            nonlocal expected, single
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
                if closed:
                    settle(data)
            elif framing is not None or (type(data) is not single and isinstance(data, BULK)):
                store_bulk(data, position, ack, framing)
            else:
                single = type(data)
                expected, kept, small = prepare(data)
                take_permit()
                if small and position is None and ack is None:
                    append(kept)
                    if closed:
                        settle(kept)
                else:
                    add_record(data, kept, position, ack)

        def drop_lease() -> int:
            nonlocal permits
            dropped, permits = permits, iter(())
            # Counted by using them up: a thread that is about to take one takes it or finds none.
            return sum(1 for _ in dropped)

        def shut() -> None:
            nonlocal closed
            closed = True
            self._give_lease_back(door)

        door.store, door.drop_lease, door.shut = store, drop_lease, shut

    def _settle(self, door: StoreDoor, record: Any) -> None:
        """The door was shut while `record` was put to the pending ones: is it in, or not?"""
        with self._assembler.lock:
            if not withdraw(self._assembler.pending, record):
                return
        self._check_open(door)

    def _check_open(self, door: StoreDoor) -> None:
        self._check_active()
        door.check()

    def _refill(self, door: StoreDoor) -> int:
        """Join the pending chunk and lease permits; returns how many. `_lease_lock` is held."""
        self._check_open(door)
        if self._assembler.pending:
            with self._assembler.lock:
                self._assembler.flush_pending()
            self._charge()
        return self._lease(door, self._assembler.lease_size, in_hand=False)

    def _lease(self, door: StoreDoor, wanted: int, *, in_hand: bool = True) -> int:
        """Take 1 to `wanted` permits; waits in bounded steps.

        Args:
            door: Ends the wait when it is closed.
            wanted: Permits of use.
            in_hand: True when the records are there and pass at once; False for a lease in
                advance, of records that may come later.
        """
        began = time.monotonic()
        while True:
            self._check_open(door)
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

        What was added is charged afterwards, so the byte rate can be exceeded by one chunk. A stop
        ends the wait and is no error of the call: what was added will be durable, and a source that
        were told otherwise would give it again.
        """
        size = self._assembler.take_uncharged()
        if size:
            with suppress(RateLimiterStoppedError):
                self._limiter.charge_bytes(size)

    def _check_active(self) -> None:
        if self._state is not BlockGeneratorState.ACTIVE:
            is_new = self._state is BlockGeneratorState.INITIALIZED
            raise (IllegalStateError if is_new else ReceiverStoppedError)(
                "Cannot add data as BlockGenerator has not been started or has been stopped"
            )
        self._check_thread()

    def _check_thread(self) -> None:
        # It would wait for room, a lock or its own report, and nobody but it could bring them.
        if self._pipeline.is_own_thread():
            raise IllegalStateError(
                "store was called by an acknowledgement callback, on the thread that makes blocks "
                "durable, and would wait for itself; hand the records to a thread of the receiver"
            )

    def _encoded(self, position: Any) -> bytes | None:
        if position is None:
            return None
        _check_position(position, position)
        try:
            encoded = msgspec.msgpack.encode(position)
        except UnicodeEncodeError:
            found = f"{encodable(repr(position)):.200}"
            raise PositionTypeError(found, "str with a lone surrogate") from None
        if len(encoded) > self._options.position_bytes:
            raise PositionTooLargeError(len(encoded), self._options.position_bytes)
        return encoded

    def _add_record(
        self,
        door: StoreDoor,
        record: Any,
        kept: Any,
        position: Any,
        ack: Callable[[], None] | None,
    ) -> None:
        encoded = self._encoded(position)
        _check_ack(ack)
        self._check_thread()
        with _inside(door, ack), self._assembler.lock:
            self._check_open(door)
            self._assembler.flush_pending()
            with self._discards.stored_with(position):
                self._assembler.add_record(record, kept)
            self._assembler.mark(encoded, ack)
        self._charge()

    def _store_bulk(
        self,
        door: StoreDoor,
        data: Any,
        position: Any,
        ack: Callable[[], None] | None,
        framing: str | None,
    ) -> None:
        """Store many records; without `ack` return only after they are durable (I1)."""
        self._check_open(door)
        encoded = self._encoded(position)
        _check_ack(ack)
        pieces = (
            pieces_of(data, self._assembler) if framing is None else self._framed(data, framing)
        )
        if encoded is not None:
            # All of it in one block: the position must not be durable without its records, nor
            # they without it.
            pieces = iter([one_piece(list(pieces))])
        if ack is not None:
            with _inside(door, ack):
                self._pass_pieces(
                    door, pieces, lambda: self._assembler.mark(encoded, ack), position
                )
            return
        done: Future[None] = Future()

        def finish() -> None:
            self._assembler.mark(encoded, lambda: done.set_result(None))
            self._assembler.seal()

        with self._assembler.lock:
            self._assembler.flush_pending()
            self._assembler.seal()
        self._pass_pieces(door, pieces, finish, position)
        self._wait_for_storing(done)

    def _framed(self, data: Any, framing: str) -> Iterator[Piece]:
        kind, reader = self._reader(framing)
        try:
            framed = memoryview(data).cast("B")
        except TypeError:
            raise TypeError(
                f"store(data, framing={framing!r}) takes bytes, not {type(data).__name__}"
            ) from None
        for found in reader.frames(reader_of(framed)):
            if isinstance(found, Lines):
                # A copy: the next piece is asked for before this one enters a block.
                yield LinesPiece(kind, memoryview(bytes(found.data)), found.number)
            else:
                yield FramesPiece(kind, *found)
            self._account_dropped(reader)

    def _pass_pieces(
        self, door: StoreDoor, pieces: Iterator[Piece], finish: Callable[[], None], position: Any
    ) -> None:
        """Lead pieces through the rate limiter into blocks; `finish` runs with the last of them."""
        whole = position is not None
        piece = next(pieces, None)
        if piece is None:
            with self._assembler.lock:
                self._check_open(door)
                self._assembler.flush_pending()
                finish()
            return
        while piece is not None:
            following = next(pieces, None)
            start = 0
            while True:
                count = len(piece) - start
                lease = self._lease_all if whole else self._lease
                granted = lease(door, count) if count else 0
                with self._assembler.lock:
                    self._check_open(door)
                    self._assembler.flush_pending()
                    with (
                        self._assembler.undivided(whole),
                        self._discards.stored_with(position),
                        self._used(granted),
                    ):
                        piece.add(self._assembler, start, start + granted)
                    if following is None and granted == count:
                        finish()
                self._charge()
                start += granted
                if granted == count:
                    break
            piece = following

    @contextmanager
    def _used(self, permits: int) -> Iterator[None]:
        """Give back, of permits for records that are being added, those of what entered no block.

        The assembler's lock is held.
        """
        before = self._assembler.records + self._discards.count
        try:
            yield
        except BaseException:
            passed = self._assembler.records + self._discards.count - before
            self._limiter.give_back(max(0, permits - passed), lessee="bulk")
            raise

    def _lease_all(self, door: StoreDoor, count: int) -> int:
        left = count
        while left:
            left -= self._lease(door, left)
        return count

    def _wait_for_storing(self, done: Future[None]) -> None:
        with self._durable_waits:
            while True:
                try:
                    return done.result(timeout=_LEASE_STEP_S)
                except FutureTimeoutError:
                    if self._pipeline.is_over():
                        why = self._pipeline.why_over()
                        raise BlockNotStoredError(self.stream_id, why) from None

    def _store_from(
        self, door: StoreDoor, readinto: Callable[[memoryview], int], framing: str
    ) -> None:
        """See `penstock.receiver.Receiver.storeFrom`."""
        kind, reader = self._reader(framing)
        for found in reader.frames(readinto):
            piece = (LinesPiece if isinstance(found, Lines) else FramesPiece)(kind, *found)
            start = 0
            while start < len(piece):
                granted = self._lease(door, len(piece) - start)
                with self._assembler.lock:
                    self._check_open(door)
                    self._assembler.flush_pending()
                    with self._used(granted):
                        piece.add(self._assembler, start, start + granted)
                self._charge()
                start += granted
            self._account_dropped(reader)

    def _reader(self, framing: str) -> tuple[BlockKind, FrameReader]:
        if self._assembler.has_schema:
            raise TypeError(
                f"framing={framing!r} is not accepted where a schema is declared: framed bytes are "
                "records as they are; parse them, and store what fits the schema"
            )
        try:
            how = Framing(framing)
        except ValueError:
            accepted = ", ".join(repr(one.value) for one in Framing)
            raise ValueError(f"framing={framing!r} is not accepted: one of {accepted}") from None
        return _KINDS[how], frame_reader(how, self._assembler.max_record_bytes)

    def _account_dropped(self, reader: FrameReader) -> None:
        for found in reader.take_dropped():
            reason: PenstockError = RecordTooLargeError(
                found.size, self._assembler.max_record_bytes
            )
            if found.is_cut:
                reason = CutRecordError(found.size)
            self._discards.add(reason, partial(start_of, found.start))

    def update_rate(self, records_per_second: float | None, *, is_paused: bool = False) -> None:
        """Use a new rate, also for the open block: the lease at the old one is dropped (I8).

        What is left of it goes back, or a rate that changes often would lose a lease each time.

        Args:
            records_per_second: None is no limit.
            is_paused: Whether nothing passes until the next call.
        """
        with self._state_lock:
            doors = tuple(self._doors)
        for door in doors:
            self._give_lease_back(door)
        self._limiter.set_rate(records_per_second)
        self._limiter.set_paused(is_paused)
        for door in doors:
            # A thread may just have leased at the old rate.
            self._give_lease_back(door)

    def _give_lease_back(self, door: StoreDoor) -> None:
        left = door.drop_lease()
        if left:
            self._limiter.give_back(left, lessee="single")

    def update_byte_rate(self, bytes_per_second: float | None) -> None:
        """Use a new rate of bytes, also for threads that wait for the old one."""
        self._limiter.set_byte_rate(bytes_per_second)

    def read_rate_usage(self, *, with_pipe: bool = False) -> RateUsage:
        """Return how the rate is used; for one caller, as each reading begins where one ended.

        Args:
            with_pipe: Whether to read what threads waited for, too.
        """
        found = self.statistics()
        held_up_s = found.waited_for_queue_s + found.waited_for_memory_s
        was_held_up = held_up_s > self._held_up_s + _HELD_UP_S
        self._held_up_s = held_up_s
        fill = 1.0 if was_held_up else min(1.0, found.queue_length / self._options.queue_size)
        rates = self._limiter.statistics()
        return RateUsage(
            found.records,
            found.waited_for_rate_s,
            rates.waiting > 0,
            fill,
            rates.bytes_charged,
            self._read_pipe(found, rates) if with_pipe else None,
        )

    def _read_pipe(
        self, found: BlockGeneratorStatistics, rates: RateLimiterStatistics
    ) -> PipeReading:
        pipeline, store = self._pipeline, self._block_store
        queued, stored = pipeline.depths()
        latency_s = pipeline.latency_s()
        replica_s = store.replica_waits.read()
        log = store.log_statistics()
        return PipeReading(
            rate_s=rates.waited_for_rate_s,
            byte_rate_s=rates.waited_for_byte_rate_s,
            shared_rate_s=rates.waited_for_shared_rate_s,
            queue_s=found.waited_for_queue_s,
            durable_s=self._durable_waits.read(),
            memory_s=found.waited_for_memory_s,
            log_s=max(0.0, pipeline.log_waits.read() - replica_s),
            replica_s=replica_s,
            room_s=pipeline.told_waits.read(),
            driver_s=pipeline.driver_waits.read(),
            busy_s=time.process_time(),
            open_records=self._assembler.open_records(),
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
        )

    def _tick_loop(self) -> None:
        fails = False
        while not self._clock.wait(self._stopping, self._until_seal_s()):
            self._discards.tell_rest()
            if self._pipeline.is_full():
                continue  # the open block goes on filling up to its cap, then `store` waits
            try:
                with self._assembler.lock:
                    self._assembler.flush_pending()
                    self._assembler.seal()
                fails = False
            except (PenstockError, OSError, pa.ArrowException, ValueError, MemoryError) as error:
                if not fails:
                    self._on_error("Error in sealing a block", error)
                fails = True

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
            waited_for_queue_s=pipeline.room_waits.read(),
            waited_for_memory_s=assembler.memory_waits.read(),
            records_discarded=self._discards.count,
        )
