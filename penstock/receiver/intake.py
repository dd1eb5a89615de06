"""The intake: records that wait before the gate, where `store` is not to wait itself.

`store` waits when records come faster than they pass: for the rate, for the queue of blocks, or for
memory. With ``spark.penstock.receiver.whenFull`` another policy than ``block``, a call of `store`
is put here instead, and made by a thread of its own, ``penstock-intake-<streamId>``, which waits in
its place. Behind that, nothing is different.

What must hold
--------------

* Records pass in the order in which they were put (I5), and what has passed is never dropped.
* `store` does not wait, whatever holds the stream: ``dropNew`` drops what finds no room here,
  ``dropOld`` what has waited longest.
* What waits is bounded in bytes, with what Python needs for it (I7): objects wait as pickles. One
  call that is larger than all of it waits alone, and one is out, on its way.
* Each record that was put has passed (it is in a block, or a dead letter), or is counted as
  dropped, or still waits; after a stop, none waits.
* The driver knows of what was dropped before it knows of a block that was stored later, so no
  record that is known to be stored has an uncounted gap before it, also when this process is
  killed. A count belongs to a run of the driver, as those of stored records do.
* Nothing is dropped that is a source's only way to know: what has an acknowledgement or a position,
  or is many records in a call that returns when they are durable, is refused. The acknowledgement
  of a dropped record would never come, and behind a later position it would never be read again.

At a stop what waits passes the gate within the time that there is; what is left then is dropped.
"""

from __future__ import annotations

import enum
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from sys import getsizeof
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from penstock._arguments import refused
from penstock.blockstore.record_pickles import pickle_record
from penstock.errors import PenstockError, SettingError
from penstock.receiver.assembler import RecordPickleError
from penstock.receiver.bulk import BULK, FramesPiece, LinesPiece, Piece, WithLetters, reader_of
from penstock.receiver.door import ReceiverStoppedError, StoreDoor, acknowledge_nothing
from penstock.receiver.framing import Lines
from penstock.receiver.storing import MAY_PASS, Letter, Storing
from penstock.threads import OwnedThread

if TYPE_CHECKING:
    from penstock.receiver.base import Receiver
    from penstock.settings import Settings

WHEN_FULL = "spark.penstock.receiver.whenFull"

_CALL_BYTES = 400
"""What Python needs for a call that waits, beside its records."""
_STEP_S = 1.0
_PAUSE_S = 0.1
_TELL_S = 10.0

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


class WhenFull(enum.Enum):
    """What becomes of records that come faster than they pass."""

    BLOCK = "block"
    DROP_NEW = "dropNew"
    DROP_OLD = "dropOld"

    @property
    def drops(self) -> bool:
        """Whether records may be lost by it."""
        return self in (WhenFull.DROP_NEW, WhenFull.DROP_OLD)


class DroppingRefusedError(SettingError):
    """A receiver would lose, by a policy that drops, what somebody relies on."""

    def __init__(self, policy: WhenFull, why: str) -> None:
        accepted = f"only block for this receiver, because it {why}"
        super().__init__(WHEN_FULL, policy.value, f"{accepted} (whenFull of a receiver wins)")


class RecordsDroppedError(PenstockError):
    """Records were dropped, because they came faster than they passed."""


def check_policy(name: object) -> None:
    """Check the `whenFull` of a receiver.

    Raises:
        ValueError: There is no such policy.
    """
    names = [policy.value for policy in WhenFull]
    if name is not None and name not in names:
        raise ValueError(refused("whenFull", name, f"one of {', '.join(names)}, or None"))


def policy_of(receiver: Receiver, settings: Settings) -> WhenFull:
    """Return a receiver's own policy, or else that of the settings.

    Raises:
        DroppingRefusedError: It drops, and the receiver is known to acknowledge what it stores.
    """
    policy = WhenFull(receiver.whenFull or settings.when_full)
    if policy.drops and (receiver._is_reliable or receiver._position_type is not Any):
        raise DroppingRefusedError(policy, "gives positions or acknowledgements to its source")
    return policy


class Call(NamedTuple):
    """A call of `store`, or the like, that waits.

    Attributes:
        name: The method of `IntakeStoring` that makes it.
        arguments: Of that; nobody else changes them.
        records: How many records it stores.
        size: About how many bytes they take.
    """

    name: str
    arguments: tuple[Any, ...]
    records: int
    size: int


class Intake:
    """Calls that wait, of one receiver attempt. `_changed` guards all of it.

    Args:
        policy: What happens when it is full.
        limit: Bytes that may wait.
        now_s: Monotonic time.

    Attributes:
        dropped: Records that were dropped.
        records: Records that wait.
    """

    def __init__(self, policy: WhenFull, limit: int, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._told = 0
        self._told_s: float | None = None
        self.policy = policy
        self.dropped = 0
        self.records = 0
        self._limit = limit
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[Call] = deque()
        self._bytes = 0
        self._is_closed = False
        self._has_one_out = False

    def put(self, call: Call) -> bool:
        """Let a call wait, or drop it or others; False: it is closed, and the call is not in."""
        with self._changed:
            if self._is_closed:
                return False
            while self._waiting and self._bytes + call.size > self._limit:
                if self.policy is WhenFull.DROP_NEW:
                    self.dropped += call.records
                    return True
                self.dropped += self._pop().records
            self._waiting.append(call)
            self._bytes += call.size
            self.records += call.records
            if len(self._waiting) == 1:
                self._changed.notify_all()
            return True

    def _pop(self) -> Call:
        call = self._waiting.popleft()
        self._bytes -= call.size
        self.records -= call.records
        return call

    def next(self) -> Call | None:
        """Return what has waited longest, when the one before is done; waits for it.

        Returns:
            None: nothing waits, and nothing comes any more.
        """
        with self._changed:
            self._has_one_out = False
            if self._is_closed:
                self._changed.notify_all()
            while not self._waiting:
                if self._is_closed:
                    return None
                self._changed.wait(_STEP_S)
            self._has_one_out = True
            return self._pop()

    def drop(self, records: int) -> None:
        """Count records that did not pass."""
        with self._changed:
            self.dropped += records

    def close(self, may_wait: Callable[[], bool]) -> None:
        """Let nothing more in; return when all has passed, or `may_wait` says no."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            while (self._waiting or self._has_one_out) and may_wait():
                self._changed.wait(_STEP_S / 10)

    @property
    def is_busy(self) -> bool:
        """Whether something waits, or is to be told."""
        return bool(self._waiting) or self.dropped > self._told

    def news(self, *, at_once: bool = False) -> RecordsDroppedError | None:
        """Return how many records were dropped since that was told; None: it is not time for it.

        Args:
            at_once: For the last time: now.
        """
        with self._changed:
            now_s, count = self._now_s(), self.dropped - self._told
            is_due = at_once or self._told_s is None or now_s >= self._told_s + _TELL_S
            if not count or not is_due:
                return None
            self._told, self._told_s = self.dropped, now_s
        return RecordsDroppedError(
            f"{count} {'record was' if count == 1 else 'records were'} dropped: more came than the "
            f"rate, the queue and the disk let pass, and {WHEN_FULL} is {self.policy.value}"
        )

    def drop_rest(self) -> None:
        """Drop all that still waits."""
        with self._changed:
            while self._waiting:
                self.dropped += self._pop().records


class IntakeStoring(Storing):
    """Stores through an intake: no call waits for room or a rate.

    Args:
        intake: The intake.
        tell: Notified of failures to pass something on, once per episode.
        given: As for `Storing`.
    """

    def __init__(
        self, intake: Intake, tell: Callable[[str, BaseException], None], *given: Any
    ) -> None:
        super().__init__(*given)
        self._intake = intake
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
        door.discard = partial(self._put_letter, door)
        return door

    def drain(self, may_wait: Callable[[], bool]) -> None:
        """See `Storing.drain`; what has not passed by then is dropped."""
        for door in self._known_doors():
            if door is not self._own:
                door.close()
        self._intake.close(lambda: may_wait() and self._limiter.passes_soon)
        self._own.close()
        self._thread.join(2 * _STEP_S)
        self._intake.drop_rest()

    # -- putting -------------------------------------------------------------------------------

    def _put(
        self,
        door: StoreDoor,
        data: Any,
        position: Any = None,
        ack: Callable[[], None] | None = None,
        framing: str | None = None,
    ) -> None:
        """As `Receiver.store`."""
        self._check_open(door)
        is_bulk = framing is not None or isinstance(data, BULK)
        self._check_promise(position, ack, _WAITS if is_bulk else None)
        if framing is not None:
            self._put_from(door, reader_of(memoryview(data).cast("B")), framing)
        elif is_bulk:
            self._put_many(door, data)
        else:
            self._put_one(door, data)

    def _check_promise(
        self, position: Any, ack: Callable[[], None] | None, without: str | None = None
    ) -> None:
        """Refuse what somebody relies on; `without` is why not to do without an `ack`."""
        if position is not None:
            without = _HAS_POSITION
        elif ack is acknowledge_nothing:
            return
        elif ack is not None:
            without = _ACKNOWLEDGES
        if without is not None:
            raise DroppingRefusedError(self._intake.policy, without)

    def _put_one(self, door: StoreDoor, record: Any) -> None:
        if type(record) is bytes or type(record) is str:
            self._wait(door, "store", (record,), getsizeof(record))
            return
        try:
            kept = pickle_record(record)
        except MemoryError:
            raise
        except Exception as error:
            if not self._assembler.has_schema:
                raise RecordPickleError(record, error) from error
            self._wait(door, "store", (record,), 0)  # It will fit nowhere.
        else:
            self._wait(door, "pickled", (kept,), len(kept))

    def _put_many(self, door: StoreDoor, data: Any) -> None:
        letters: Any = ()
        if isinstance(data, WithLetters):
            data, letters = data.records, data.letters
        if isinstance(data, (pa.RecordBatch, pa.Table)):
            for part in data.to_batches() if isinstance(data, pa.Table) else [data]:
                # A slice holds all of what it was cut from.
                size = part.get_total_buffer_size()
                self._wait(door, "many", (part,), size, part.num_rows)
        else:
            for record in data:
                self._put_one(door, record)
        for record, reason in letters:
            self._put_letter(door, record, reason)

    def _put_from(
        self, door: StoreDoor, readinto: Callable[[memoryview], int], framing: str
    ) -> None:
        """As `Receiver.storeFrom`."""
        kind, reader = self._reader(framing)
        for found in reader.frames(readinto):
            letters: list[Letter] = []
            self._account_dropped(reader, letters)
            piece: Piece
            if isinstance(found, Lines):
                # A copy: the next ones come into the same buffer.
                piece = LinesPiece(kind, memoryview(bytes(found.data)), found.number)
            else:
                piece = FramesPiece(kind, *found)
            records = len(piece) + len(letters)
            self._wait(door, "framed", (piece, letters), len(found[0]) + 4 * records, records)

    def _put_letter(
        self,
        door: StoreDoor,
        record: Any,
        reason: str | Exception,
        position: Any = None,
        ack: Callable[[], None] | None = None,
    ) -> None:
        """As `Receiver.discard`."""
        self._check_open(door)
        self._check_promise(position, ack)
        kept, size = self._assembler.copy_of_row(record)
        self._wait(door, "letter", (kept, reason), size)

    def _wait(
        self, door: StoreDoor, name: str, arguments: tuple[Any, ...], size: int, records: int = 1
    ) -> None:
        if records and not self._intake.put(Call(name, arguments, records, size + _CALL_BYTES)):
            self._check_open(door)
            door.refuse_waiting()

    # -- passing -------------------------------------------------------------------------------

    def _pass_all(self) -> None:
        is_failing = False
        while (call := self._intake.next()) is not None:
            before = self._passed() if call.records > 1 else 0
            try:
                getattr(self, f"_pass_{call.name}")(*call.arguments)
                is_failing = False
            except MAY_PASS as error:
                passed = self._passed() - before if call.records > 1 else 0
                self._intake.drop(max(0, call.records - passed))
                if isinstance(error, ReceiverStoppedError):
                    return
                if not is_failing:
                    self._tell("Error in putting records into a block", error)
                is_failing = True
                time.sleep(_PAUSE_S)

    def _passed(self) -> int:
        assembler = self._assembler
        with assembler.lock:
            return assembler.records + len(assembler.pending) + self._discards.count

    def _pass_store(self, record: Any) -> None:
        if isinstance(record, BULK):
            self._pass_many([record])  # It came in a list, or could not be pickled.
        else:
            self._own.store(record)

    def _pass_pickled(self, kept: bytes) -> None:
        self._pass_store(pickle.loads(kept))

    def _pass_many(self, data: Any) -> None:
        self._own.store(data, None, acknowledge_nothing)

    def _pass_letter(self, record: Any, reason: str | Exception) -> None:
        self._own.discard(record, reason)

    def _pass_framed(self, piece: Piece, letters: list[Letter]) -> None:
        self._pass_pieces(self._own, iter([piece]), lambda: None, None, letters)
