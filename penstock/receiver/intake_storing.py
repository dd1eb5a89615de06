"""`IntakeStoring`: `store` into the intake, and from there on into blocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from penstock.receiver.assembler import BlockAssembler
from penstock.receiver.bulk import (
    BULK,
    BatchesPiece,
    FramesPiece,
    LinesPiece,
    Piece,
    RecordsPiece,
    RowsPiece,
    pieces_of,
)
from penstock.receiver.discards import Discards
from penstock.receiver.door import ReceiverStoppedError, StoreDoor, acknowledge_nothing
from penstock.receiver.framing import Lines
from penstock.receiver.intake import DroppingRefusedError, Intake, Singles, size_of
from penstock.receiver.storing import (
    MAY_PASS,
    Letter,
    Storing,
    as_error,
    itself,
    parts_of,
    valid_of,
)
from penstock.threads import OwnedThread

_ACKNOWLEDGES = (
    "gives store an acknowledgement (so does `await ctx.store(...)`): that of a dropped record "
    "would never be called. Leave ack out, or yield the records"
)
_HAS_POSITION = (
    "gives store a position: a dropped record is behind a later one, and is never read again"
)
_WAITS = (
    "stores many records by a call that returns when they are durable: store them one by one, or "
    "yield them"
)
_LETTER_BYTES = 1 << 10
"""What a dead letter takes that waits, beside its record."""
_PAUSE_S = 0.1


class LetterPiece:
    """A record that is to be discarded when its turn comes."""

    def __init__(self, discards: Discards, letter: Letter) -> None:
        self._discards = discards
        self._letter = letter

    def __len__(self) -> int:
        return 1

    def add(self, assembler: BlockAssembler, start: int, end: int) -> None:
        """See `Piece`."""
        self._discards.add(*self._letter)


def _size_of(piece: Piece) -> int:
    if isinstance(piece, FramesPiece):
        return piece.joined.nbytes + piece.lengths.nbytes
    if isinstance(piece, LinesPiece):
        return piece.data.nbytes
    if isinstance(piece, BatchesPiece):
        # A slice holds all of what it was cut from.
        return sum(batch.get_total_buffer_size() for batch in piece.batches)
    if isinstance(piece, RecordsPiece):
        return sum(map(size_of, piece.records))
    return _LETTER_BYTES


class IntakeStoring(Storing):
    """Stores through an intake (`penstock.receiver.intake`): no call waits for room or a rate.

    ``penstock-intake-<streamId>`` passes on what waits there, through a door of its own.

    Args:
        intake: The intake.
        tell: Notified of each failure to pass something on, once per episode.
        given: As for `Storing`.
    """

    def __init__(
        self, intake: Intake, tell: Callable[[str, BaseException], None], *given: Any
    ) -> None:
        super().__init__(*given)
        self.intake = intake
        self._tell = tell
        self._own = super().open_door()
        self._thread = OwnedThread(self._pass_all, f"intake-{self._stream_id}")

    def start(self) -> None:
        """Begin to pass on what waits."""
        self._thread.start()

    def open_door(self, last_position: Any = None) -> StoreDoor:
        """As `Storing.open_door`; what is stored through it waits in the intake."""
        door = super().open_door(last_position)
        door.store = partial(self._put, door)
        door.store_from = partial(self._put_from, door)
        door.discard = partial(self._put_discarded, door)
        return door

    def drain(self, may_wait: Callable[[], bool]) -> None:
        """As `Storing.drain`; at a rate that lets nothing pass soon it does not wait."""
        for door in self._known_doors():
            if door is not self._own:
                door.close()
        self.intake.close(lambda: may_wait() and self._limiter.passes_soon)

    def end(self, timeout_s: float) -> None:
        """As `Storing.end`; what still waits then is dropped."""
        self._thread.join(timeout_s)
        self.intake.drop_rest()

    # -- putting -------------------------------------------------------------------------------

    def _put(
        self,
        door: StoreDoor,
        data: Any,
        position: Any = None,
        ack: Callable[[], None] | None = None,
        framing: str | None = None,
    ) -> None:
        self._check_open(door)
        is_bulk = framing is not None or isinstance(data, BULK)
        self._check_unpromised(position, ack, waits=is_bulk)
        if is_bulk:
            self._put_many(door, data, framing)
            return
        if self._validation is not None:
            error = self._validation.failure(data)
            if error is not None:
                self._put_letter(door, (error, partial(itself, self._copied(data)), None))
                return
        _, kept, is_small = self._assembler.prepare(data)
        if self._assembler.has_schema and not is_small and type(kept) is not tuple:
            # It was not pickled, and waits as it is.
            self._put_piece(door, RowsPiece([self._copied(data)]))
        else:
            self._check(door, self.intake.put(size_of(kept), kept))

    def _check_unpromised(
        self, position: Any, ack: Callable[[], None] | None, *, waits: bool
    ) -> None:
        """Refuse what somebody relies on.

        Raises:
            DroppingRefusedError: There is a position, an acknowledgement, or somebody who waits.
        """
        why = None
        if position is not None:
            why = _HAS_POSITION
        elif ack is None:
            why = _WAITS if waits else None
        elif ack is not acknowledge_nothing:
            why = _ACKNOWLEDGES
        if why is not None:
            raise DroppingRefusedError(self.intake.policy, why)

    def _put_many(self, door: StoreDoor, data: Any, framing: str | None) -> None:
        letters: list[Letter] = []
        if framing is not None:
            pieces = self._framed(data, framing, letters)
        else:
            data, letters = parts_of(data)
            if self._validation is not None:

                def discard(error: Exception, record: Callable[[], Any]) -> None:
                    self._put_letter(door, (error, partial(itself, self._copied(record())), None))

                data = valid_of(data, self._validation, discard)
            if isinstance(data, list) and self._assembler.has_schema:
                data = iter(data)  # Then rows are copied: their author may change them.
            pieces = pieces_of(data, self._assembler)
        for piece in pieces:
            self._put_piece(door, piece)
        for letter in letters:
            self._put_letter(door, letter)

    def _put_from(
        self, door: StoreDoor, readinto: Callable[[memoryview], int], framing: str
    ) -> None:
        """As `_store_from`."""
        kind, reader = self._reader(framing)
        for found in reader.frames(readinto):
            self._check_open(door)
            for letter in self._letters_of(reader):
                self._put_letter(door, letter)
            piece = (LinesPiece if isinstance(found, Lines) else FramesPiece)(kind, *found)
            self._put_piece(door, piece)

    def _put_discarded(
        self,
        door: StoreDoor,
        record: Any,
        reason: str | Exception,
        position: Any = None,
        ack: Callable[[], None] | None = None,
    ) -> None:
        """As `_discard`."""
        self._check_open(door)
        self._check_unpromised(position, ack, waits=False)
        self._put_letter(door, (as_error(reason), partial(itself, self._copied(record)), None))

    def _put_letter(self, door: StoreDoor, letter: Letter) -> None:
        self._put_piece(door, LetterPiece(self._discards, letter))

    def _put_piece(self, door: StoreDoor, piece: Piece) -> None:
        if isinstance(piece, LinesPiece):
            # A copy: its buffer is filled again.
            piece.data = memoryview(bytes(piece.data))
        if len(piece):
            self._check(door, self.intake.put(_size_of(piece), piece=piece))

    def _check(self, door: StoreDoor, is_in: bool) -> None:
        if not is_in:
            self._check_open(door)
            door.refuse_waiting()

    def _copied(self, record: Any) -> Any:
        return self._assembler.copy_of_row(record)[0]

    # -- passing -------------------------------------------------------------------------------

    def _pass_all(self) -> None:
        is_failing = False
        # When the generator stops, it raises as `store` does.
        with suppress(ReceiverStoppedError):
            while (wanted := self.intake.wait(self._assembler.lease_size)) > 0:
                if self._pipeline.is_over():
                    return
                try:
                    self._pass_some(wanted)
                    is_failing = False
                except ReceiverStoppedError:
                    raise
                except MAY_PASS as error:
                    if not is_failing:
                        self._tell("Error in putting records into a block", error)
                    is_failing = True
                    time.sleep(_PAUSE_S)

    def _pass_some(self, wanted: int) -> None:
        """Pass some of what waits longest through the gate; waits as `store` does."""
        assembler = self._assembler
        granted = self._lease(self._own, wanted)
        used = 0
        try:
            with assembler.lock:
                # First: what fails here fails before anything is taken.
                assembler.flush_pending()
                taken = self.intake.take(granted)
                if taken is None:
                    return
                piece, start, end = taken
                used = end - start
                before = assembler.records + self._discards.count
                try:
                    piece.add(assembler, start, end)
                except BaseException:
                    if not isinstance(piece, Singles):
                        used = assembler.records + self._discards.count - before
                        self.intake.drop(end - start - used)
                    raise
                assembler.bound_letters()
        finally:
            if used < granted:
                self._limiter.give_back(granted - used, lessee="bulk")
        self._charge(self._own)
