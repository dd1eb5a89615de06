"""`Storing`: the ways into the open block: `store`, its bulk path, and `store_from`.

``store(bytes)`` is a list append and a count-down of leased permits: a closure for each door, which
reads no attribute and takes no lock. What is large, many, or has a position or an acknowledgement
takes the longer ways.
"""

from __future__ import annotations

import copy
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.blockstore import BlockKind
from penstock.blockstore.building.builder import WITHOUT_OFFSETS
from penstock.dead_letters import SentLetter
from penstock.errors import IllegalStateError, PenstockError, encodable
from penstock.position_changes import PositionChanges, encoded_position
from penstock.receiver.blocks.assembler import (
    LARGE_RECORD,
    BlockAssembler,
    RecordTooLargeError,
    row_of,
)
from penstock.receiver.blocks.bulk import (
    BULK,
    FramesPiece,
    LinesPiece,
    Piece,
    RecordsPiece,
    WithLetters,
    one_piece,
    pieces_of,
    reader_of,
)
from penstock.receiver.blocks.discards import Discards
from penstock.receiver.blocks.framing import (
    CutRecordError,
    FrameReader,
    Framing,
    Lines,
    frame_reader,
)
from penstock.receiver.blocks.pipeline import BlockNotStoredError, BlockPipeline
from penstock.receiver.door import (
    DoorState,
    ReceiverStoppedError,
    StoreDoor,
    acknowledge_nothing,
    withdraw,
)
from penstock.receiver.rate_limiter import RateLimiter
from penstock.receiver.splits import PositionError, position_of_splits
from penstock.receiver.validation import InvalidRecordError, Validation
from penstock.runtime.clock import WaitClock

_LEASE_STEP_S = 1.0
MAY_PASS = (PenstockError, OSError, pa.ArrowException, ValueError, MemoryError)
"""What putting records into a block may fail with, for now or for good."""
_LF, _CR = b"\n\r"
_KINDS = {
    Framing.LINES: BlockKind.LINES,
    Framing.NEWLINE: BlockKind.BYTE_LINES,
    Framing.LENGTH_PREFIX: BlockKind.BINARY,
}


_NO_ACKNOWLEDGEMENT: AbstractContextManager[None] = nullcontext()


_PLAIN = frozenset((str, bytes, bool, type(None)))
_NUMBERS = (int, float)
_INTEGERS = range(-(1 << 63), 1 << 64)


def _check_ack(ack: object) -> None:
    if ack is not None and not callable(ack):
        raise TypeError(
            f"ack={ack!r:.200} is not accepted: a function to be called without arguments once the "
            "data is durable, such as ack=lambda: source.acknowledge(message)"
        )


def _of_no_kind(position: object, kind: str) -> PositionError:
    found = encodable(repr(position))
    return PositionError(
        f"position={found:.200} is not accepted, because of the {kind}: a position comes back "
        "from the driver's log, so it is None, bool, int (64 bits), float, str, bytes, or a "
        "list, dict or tuple of these (a tuple comes back as a list)",
        position,
    )


def _check_position(part: Any, position: Any) -> None:
    kind = type(part)
    if kind in _PLAIN or (kind is int and part in _INTEGERS):
        return
    if kind is float:
        if not math.isfinite(part):
            raise _of_no_kind(position, f"float {part}")
        return
    if kind is list or kind is tuple:
        parts = part
    elif kind is dict or kind is PositionChanges:
        parts = (*part, *part.values())
    else:
        raise _of_no_kind(position, kind.__name__)
    for each in parts:
        _check_position(each, position)


def _goes_back(position: Any, last: Any) -> bool:
    """Return whether a number, or a list of numbers, is less than the last one."""
    if type(position) in _NUMBERS and type(last) in _NUMBERS:
        return bool(position < last)
    if type(position) in (list, tuple) and type(last) in (list, tuple):
        is_ordered = all(type(part) in _NUMBERS for part in (*position, *last))
        return is_ordered and list(position) < list(last)
    return False


def _inside(door: StoreDoor, ack: Callable[[], None] | None) -> AbstractContextManager[None]:
    """Enter the door with data; only what has an acknowledgement may have to wait."""
    if ack is None or ack is acknowledge_nothing:
        return _NO_ACKNOWLEDGEMENT
    return door.acknowledged


def _valid_of(
    data: Any,
    validation: Validation,
    discard: Callable[[Exception, Callable[[], Any]], None],
) -> Any:
    """Return what is valid of many records, of the same type; the rest is discarded."""

    def of_records(records: Iterable[Any]) -> Iterator[Any]:
        for record in records:
            error = validation.failure(record)
            if error is None:
                yield record
            else:
                discard(error, partial(_itself, record))

    def of_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
        failures = validation.failures(batch)
        if failures is None or not batch.num_rows:
            return batch
        mask, error = failures if isinstance(failures, tuple) else (None, failures)
        for index in range(batch.num_rows):
            if mask is None or not mask[index].as_py():
                discard(error, partial(row_of, batch.slice(index, 1)))
        return batch.slice(0, 0) if mask is None else batch.filter(mask)

    if isinstance(data, pa.RecordBatch):
        return of_batch(data)
    if isinstance(data, pa.Table):
        return pa.Table.from_batches(map(of_batch, data.to_batches()), data.schema)
    return list(of_records(data)) if isinstance(data, list) else of_records(data)


def _itself(record: Any) -> Any:
    return record


Letter: TypeAlias = tuple[BaseException, Callable[[], Any], "int | None"]
"""As for `Discards.add`."""


def _parts_of(data: Any) -> tuple[Any, list[Letter]]:
    """Return the records of a bulk call, and its letters."""
    if not isinstance(data, WithLetters):
        return data, []
    return data.records, [
        (_as_error(reason), partial(_itself, each), None) for each, reason in data.letters
    ]


def _as_error(reason: str | Exception) -> Exception:
    return InvalidRecordError(reason) if isinstance(reason, str) else reason


class Storing:
    """Stores through doors, one for each start of the receiver.

    ``_lease_lock`` is held by the one storing thread that waits for a lease; ``_doors_lock`` guards
    the table of doors, and is held for nothing else.

    Args:
        stream_id: The stream.
        assembler: Has the open block.
        pipeline: Takes the sealed ones.
        limiter: Gives permits.
        discards: Takes account of records that fit nowhere.
        position_bytes: How large a position may be.
        check_active: Raises when nothing is taken now.
        validation: Says which records are discarded; None: each one is stored.
        splits: Those whose places positions are; None: they are not of splits.

    Attributes:
        came: Set where something is about to be stored for which there was no lease, and by each
            position and acknowledgement; others clear it.
    """

    def __init__(
        self,
        stream_id: int,
        assembler: BlockAssembler,
        pipeline: BlockPipeline,
        limiter: RateLimiter,
        discards: Discards,
        position_bytes: int,
        check_active: Callable[[], None],
        validation: Validation | None = None,
        splits: frozenset[str] | None = None,
    ) -> None:
        self._validation = validation
        self._splits = splits
        self._stream_id = stream_id
        self._assembler = assembler
        self._pipeline = pipeline
        self._limiter = limiter
        self._discards = discards
        self._position_bytes = position_bytes
        self._check_active = check_active
        self.came = threading.Event()
        self._lease_lock = threading.Lock()
        self._doors_lock = threading.Lock()
        self._doors: list[StoreDoor] = []
        self._last_position: Any = None
        """The one that was stored last; guarded by the assembler's lock."""
        self.waited_for_rate_s = 0.0
        """How long storing threads waited for permits, all together."""
        self.durable_waits = WaitClock()
        """How long they waited until what they stored was durable."""

    def start(self) -> None:
        """Begin, if it has a thread of its own."""

    def drain(self, may_wait: Callable[[], bool]) -> None:
        """Where records wait in an intake, let nothing more in, and wait until nothing waits.

        Args:
            may_wait: No ends it.
        """

    def close(self) -> None:
        """Close every door."""
        for door in self._known_doors():
            door.close()

    def give_leases_back(self) -> None:
        """Return the permits that are leased and not used."""
        for door in self._known_doors():
            self._give_lease_back(door)

    def _known_doors(self) -> tuple[StoreDoor, ...]:
        with self._doors_lock:
            return tuple(self._doors)

    def open_door(self, last_position: Any = None) -> StoreDoor:
        """Return a new way in, for one start of the receiver, which begins after a position."""
        with self._assembler.lock:
            self._last_position = last_position
        door = StoreDoor(self._stream_id)
        door.store_from = partial(self._store_from, door)
        door.discard = partial(self._discard, door)
        self._make_store(door)
        if self._validation is not None:
            door.store = partial(self._store_valid, door, door.store, self._validation)
        door.store_at_once = door.store
        with self._doors_lock:
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
                if next(permits, None) is None:
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

    def _store_valid(
        self,
        door: StoreDoor,
        store: Callable[..., None],
        validation: Validation,
        data: Any,
        position: Any = None,
        ack: Callable[[], None] | None = None,
        framing: str | None = None,
    ) -> None:
        """Store what is valid of `data`, and discard the rest."""
        if framing is not None:
            self._reader(framing)
        if not isinstance(data, BULK):
            error = validation.failure(data)
            if error is None:
                store(data, position, ack)
            else:
                self._discard(door, data, error, position, ack)
            return
        # Before anything of it is discarded.
        self._check_open(door)
        self._encoded(position)
        _check_ack(ack)

        records, letters = _parts_of(data)
        # What gives them may use one object again and again.
        kept = copy.deepcopy if isinstance(records, Iterator) else _itself

        def discard(error: Exception, record: Callable[[], Any]) -> None:
            if position is not None:
                letters.append((error, partial(_itself, kept(record())), None))
                return
            self._lease(door, 1)
            with self._assembler.lock:
                self._check_open(door)
                with self._discards.stored_with(None):
                    self._discards.add(error, record)
                self._assembler.bound_letters()

        valid = _valid_of(records, validation, discard)
        self._store_bulk(door, valid, position, ack, None, letters)

    def _discard(
        self,
        door: StoreDoor,
        record: Any,
        reason: str | Exception,
        position: Any = None,
        ack: Callable[[], None] | None = None,
    ) -> None:
        """See `penstock.receiver.Receiver.discard`."""
        error = _as_error(reason)
        encoded = self._encoded(position)
        _check_ack(ack)
        self._check_thread()
        self._lease(door, 1)
        with _inside(door, ack), self._assembler.lock:
            self._check_open(door)
            self._check_order(position)
            self._assembler.flush_pending()
            with self._discards.stored_with(position):
                self._discards.add(error, lambda: record)
            self._assembler.bound_letters()
            if encoded is not None or ack is not None:
                self._mark(position, encoded, ack)

    def _settle(self, door: StoreDoor, record: Any) -> None:
        """The door was shut while `record` was put to the pending ones: is it in, or not?"""
        with self._assembler.lock:
            if not withdraw(self._assembler.pending, record):
                return
        self._check_open(door)

    def _check_open(self, door: StoreDoor) -> None:
        self._check_active()
        self._check_thread()
        door.check()

    def _refill(self, door: StoreDoor) -> int:
        """Join the pending chunk and lease permits; returns how many. `_lease_lock` is held."""
        self._check_open(door)
        if self._assembler.pending:
            with self._assembler.lock:
                self._assembler.flush_pending()
            self._charge(door)
        return self._lease(door, self._assembler.lease_size, in_hand=False)

    def _lease(self, door: StoreDoor, wanted: int, *, in_hand: bool = True) -> int:
        """Take 1 to `wanted` permits; waits in bounded steps.

        Args:
            door: Ends the wait when it is closed, or drained while nothing passes soon.
            wanted: Permits of use.
            in_hand: True when the records are there and pass at once; False for a lease in
                advance, of records that may come later.
        """
        began = time.monotonic()
        self.came.set()
        while True:
            self._check_open(door)
            if door.is_stopping and not self._limiter.passes_soon:
                door.refuse_waiting()
            granted = self._limiter.lease(
                wanted,
                _LEASE_STEP_S,
                in_hand=wanted if in_hand else 1,
                lessee="bulk" if in_hand else "single",
            )
            if granted:
                # It may have been cleared while this waited.
                self.came.set()
                self.waited_for_rate_s += time.monotonic() - began
                return granted

    def _charge(self, door: StoreDoor) -> None:
        """Wait until the bytes that were added may have passed; no lock is held.

        What was added is charged afterwards, so the byte rate can be exceeded by one chunk. A stop
        ends the wait and is no error of the call: what was added will be durable, and a source that
        heard otherwise would give it again.
        """
        size = self._assembler.take_uncharged()
        if not size:
            return
        with suppress(ReceiverStoppedError):
            while not self._limiter.charge_bytes(size, _LEASE_STEP_S):
                if door.is_stopping and not self._limiter.passes_soon:
                    self._limiter.owe_bytes(size)
                    return

    def _check_thread(self) -> None:
        # It would wait for room, a lock or its own report, and no one but it could bring them.
        if self._pipeline.is_own_thread():
            raise IllegalStateError(
                "store was called by an acknowledgement callback, on the thread that makes blocks "
                "durable, and would wait for itself; hand the records to a thread of the receiver"
            )

    def _encoded(self, position: Any) -> bytes | None:
        if position is None:
            return None
        _check_position(position, position)
        if self._splits is not None:
            position = position_of_splits(position, self._splits)
        try:
            encoded = encoded_position(position)
        except UnicodeEncodeError:
            raise _of_no_kind(position, "str with a lone surrogate") from None
        if len(encoded) > self._position_bytes:
            raise PositionError(
                f"a position of {len(encoded)} bytes is larger than the {self._position_bytes} "
                "bytes that are accepted: it goes into the driver's log with every block, so keep "
                "to what finds the place again (an offset, a token), and leave the rest with the "
                "source",
                position,
            )
        # Before anything is discarded; another thread may store one before this is stored.
        self._check_order(position)
        return encoded

    def _check_order(self, position: Any) -> None:
        """Refuse a position that goes back; for good with the assembler's lock."""
        if _goes_back(position, self._last_position):
            raise PositionError(
                f"position={position!r:.200} goes back behind the last one, "
                f"{self._last_position!r:.200}: it is the place after these records, and a source "
                "begins after the last one (lastPosition, or ctx.last_position). Where the count "
                "begins again, as in another file, let a position say in what it counts, such as "
                '{"file": name, "offset": offset}',
                position,
            )

    def _mark(self, position: Any, encoded: bytes | None, ack: Callable[[], None] | None) -> None:
        """Attach a position and an acknowledgement. The assembler's lock is held."""
        self.came.set()
        self._assembler.mark(encoded, ack)
        if position is not None:
            self._last_position = position

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
            self._check_order(position)
            self._assembler.flush_pending()
            with self._discards.stored_with(position):
                self._assembler.add_record(record, kept)
            self._mark(position, encoded, ack)
        self._charge(door)

    def _store_bulk(
        self,
        door: StoreDoor,
        data: Any,
        position: Any,
        ack: Callable[[], None] | None,
        framing: str | None,
        letters: list[Letter] | None = None,
    ) -> None:
        """Store many records; without `ack` return only after they are durable (I1).

        `letters` are discarded with the last of them, or not at all; it may grow as they are taken.
        """
        self._check_open(door)
        encoded = self._encoded(position)
        _check_ack(ack)
        if letters is None:
            data, letters = _parts_of(data)
        pieces = (
            pieces_of(data, self._assembler)
            if framing is None
            else self._framed(data, framing, None if position is None else letters)
        )
        if encoded is not None:
            # All of it in one block: the position must not be durable without its records, nor
            # they without it.
            pieces = iter([one_piece(list(pieces))])
        if ack is not None:

            def mark() -> None:
                self._mark(position, encoded, ack)
                if isinstance(ack, SentLetter):
                    ack.is_in_block = True

            with _inside(door, ack):
                # The key of a letter that was sent is with its record, as a position is.
                whole = encoded is not None or isinstance(ack, SentLetter)
                self._pass_pieces(door, pieces, mark, position, letters, whole=whole)
            return
        done: Future[None] = Future()

        def finish() -> None:
            self._mark(position, encoded, lambda: done.set_result(None))
            self._assembler.seal()

        with self._assembler.lock:
            self._assembler.flush_pending()
            self._assembler.seal()
        self._pass_pieces(door, pieces, finish, position, letters, whole=encoded is not None)
        self._wait_for_storing(done)

    def _framed(self, data: Any, framing: str, letters: list[Letter] | None) -> Iterator[Piece]:
        kind, reader = self._reader(framing)
        try:
            framed = memoryview(data).cast("B")
        except TypeError:
            raise TypeError(
                f"store(data, framing={framing!r}) takes bytes, not {type(data).__name__}"
            ) from None
        if kind in WITHOUT_OFFSETS and (lines := self._whole_lines(kind, framed)):
            yield LinesPiece(kind, framed, lines)
            return
        for found in reader.frames(reader_of(framed)):
            self._account_dropped(reader, letters)
            if isinstance(found, Lines):
                # A copy: the next piece is asked for before this one enters a block.
                yield LinesPiece(kind, memoryview(bytes(found.data)), found.number)
            else:
                yield FramesPiece(kind, *found)

    def _whole_lines(self, kind: BlockKind, data: memoryview) -> int:
        """Return how many lines data are that can enter a block as they are; 0: they cannot."""
        if not 0 < len(data) <= self._assembler.max_record_bytes or data[-1] != _LF:
            return 0
        found = np.frombuffer(data, np.uint8)
        if kind is BlockKind.LINES and (found == _CR).any():
            return 0
        return int(np.count_nonzero(found == _LF))

    def _pass_pieces(
        self,
        door: StoreDoor,
        pieces: Iterator[Piece],
        finish: Callable[[], None],
        position: Any,
        letters: list[Letter],
        *,
        whole: bool = False,
    ) -> None:
        """Lead pieces through the rate limiter into blocks; `whole`: into one, or none.

        With the last of them `letters` are discarded, and `finish` runs.
        """
        piece: Piece | None = next(pieces, None) or RecordsPiece([])
        self._lease_all(door, len(letters))
        while piece is not None:
            following = next(pieces, None)
            start = 0
            while True:
                count = len(piece) - start
                lease = self._lease_all if whole else self._lease
                granted = lease(door, count) if count else 0
                is_last = following is None and granted == count
                with self._assembler.lock:
                    self._check_open(door)
                    self._assembler.flush_pending()
                    with (
                        self._assembler.undivided(whole),
                        self._discards.stored_with(position, whole=whole),
                        self._used(granted + (len(letters) if is_last else 0)),
                    ):
                        self._check_order(position)
                        piece.add(self._assembler, start, start + granted)
                        for letter in letters if is_last else ():
                            self._discards.add(*letter)
                    if is_last:
                        finish()
                    self._assembler.bound_letters()
                self._charge(door)
                start += granted
                if granted == count:
                    break
            piece = following

    @contextmanager
    def _used(self, permits: int) -> Iterator[None]:
        """Give back permits of records that are being added and entered no block.

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
        with self.durable_waits:
            while True:
                try:
                    return done.result(timeout=_LEASE_STEP_S)
                except FutureTimeoutError:
                    if self._pipeline.is_over():
                        why = self._pipeline.why_over()
                        raise BlockNotStoredError(self._stream_id, why) from None

    def _store_from(
        self, door: StoreDoor, readinto: Callable[[memoryview], int], framing: str
    ) -> None:
        """See `penstock.receiver.Receiver.storeFrom`."""
        kind, reader = self._reader(framing)
        for found in reader.frames(readinto):
            self._check_open(door)
            # First: what follows them may be acknowledged from here on.
            self._account_dropped(reader)
            piece = (LinesPiece if isinstance(found, Lines) else FramesPiece)(kind, *found)
            start = 0
            while start < len(piece):
                granted = self._lease(door, len(piece) - start)
                with self._assembler.lock:
                    self._check_open(door)
                    self._assembler.flush_pending()
                    with self._used(granted):
                        piece.add(self._assembler, start, start + granted)
                self._charge(door)
                start += granted

    def _reader(self, framing: str) -> tuple[BlockKind, FrameReader]:
        if self._validation is not None:
            raise TypeError(
                f"framing={framing!r} is not accepted where validate is declared: framed bytes are "
                "not looked at record by record; store records, or leave validate out and use "
                "stream.mapOrDeadLetter"
            )
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

    def _account_dropped(self, reader: FrameReader, letters: list[Letter] | None = None) -> None:
        """Discard what the reader dropped; put it to `letters` instead, if there are some."""
        dropped: list[Letter] = [
            (
                CutRecordError(found.size)
                if found.is_cut
                else RecordTooLargeError(found.size, self._assembler.max_record_bytes),
                partial(bytes, found.start),
                found.size,
            )
            for found in reader.take_dropped()
        ]
        if letters is not None:
            letters += dropped
        elif dropped:
            self.came.set()
            with self._assembler.lock:
                with self._discards.stored_with(None):
                    for letter in dropped:
                        self._discards.add(*letter)
                self._assembler.bound_letters()

    def _give_lease_back(self, door: StoreDoor) -> None:
        left = door.drop_lease()
        if left:
            self._limiter.give_back(left, lessee="single")
