"""The intake: records that wait before the gate, where `store` is not to wait itself.

`store` waits when records come faster than they pass: for the rate, for the queue of blocks, or for
memory. With ``spark.penstock.receiver.whenFull`` another policy than ``block``, a call of `store`
is put here instead, and made by a thread of its own, ``penstock-intake-<streamId>``, which waits in
its place. Behind that, nothing is different.

What must hold
--------------

* Records pass in the order in which they were put (I5), and what has passed is never dropped.
* `store` does not wait, whatever holds the stream: ``dropNew`` drops what finds no room here,
  ``dropOld`` what has waited longest. ``spill`` puts what came last on this host's disk (`spill`),
  and `store` waits only when that is also full.
* What waits is bounded in bytes, with what Python needs for it (I7): objects wait as pickles. One
  call that is larger than all of it waits alone; a few are out, on their way.
* Each record that was put has passed (it is in a block, or a dead letter), or is counted as
  dropped, or still waits; after a stop, none waits.
* The driver knows of what was dropped before it knows of a block that was stored later, so no
  record that is known to be stored has an uncounted gap before it, also when this process is
  killed. A count belongs to a run of the driver, as counts of stored records do.
* Nothing is dropped that is a source's only way to know: what has an acknowledgement or a position,
  or is many records in a call that returns when they are durable, is refused. The acknowledgement
  of a dropped record would never come, and behind a later position it would never be read again.

At a stop what waits passes the gate within the time that there is; what is left then is dropped.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from sys import getsizeof
from typing import Any, NamedTuple

import pyarrow as pa

from penstock._arguments import refused
from penstock.blockstore import BlockKind
from penstock.blockstore.building.record_pickles import pickle_record
from penstock.dead_letters import PickledRecord
from penstock.errors import PenstockError, SettingError
from penstock.receiver.blocks.assembler import RecordPickleError
from penstock.receiver.blocks.bulk import (
    BULK,
    FramesPiece,
    LinesPiece,
    Piece,
    WithLetters,
    reader_of,
)
from penstock.receiver.blocks.options import WhenFull
from penstock.receiver.blocks.spill import Spill
from penstock.receiver.blocks.storing import MAY_PASS, Letter, Storing
from penstock.receiver.door import ReceiverStoppedError, StoreDoor, acknowledge_nothing
from penstock.runtime.threads import OwnedThread

WHEN_FULL = "spark.penstock.receiver.whenFull"

_PLAIN = (bytes, str)
_SPILLED = "spilled"
_CALL_BYTES = 400
"""What Python needs for a call that waits, beside its records."""
_STEP_S = 1.0
_PAUSE_S = 0.1
_GATHER_S = 0.002
_OUT_BYTES = 32 << 10
"""About how much is taken at once."""
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


def dropping_refused(policy: WhenFull, why: str, receiver: str = "this receiver") -> SettingError:
    """Return the error of a receiver that would lose, by its policy, what its source relies on."""
    accepted = f"only block or spill for {receiver}, because it {why}"
    return SettingError(WHEN_FULL, policy.value, f"{accepted} (whenFull of a receiver wins)")


def check_policy(name: object) -> None:
    """Check the `whenFull` of a receiver.

    Raises:
        ValueError: There is no such policy.
    """
    if name is None:
        return
    try:
        WhenFull(name)
    except ValueError:
        names = ", ".join(policy.value for policy in WhenFull)
        raise ValueError(refused("whenFull", name, f"one of {names}, or None")) from None


class Call(NamedTuple):
    """A call of `store`, or the like, that waits.

    Attributes:
        name: The method of `IntakeStoring` that makes it.
        arguments: Of that; no one else changes them.
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
        spill: Where calls wait that find no room, if they are to be spilled.

    Attributes:
        dropped: Records that were dropped.
        records: Records that wait.
    """

    def __init__(
        self, policy: WhenFull, limit: int, now_s: Callable[[], float], spill: Spill | None = None
    ) -> None:
        self._spill = spill
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
        self._is_out = False

    def put(self, call: Call, check: Callable[[], None] = lambda: None) -> bool:
        """Let a call wait, or drop it or others.

        Args:
            call: The call.
            check: Raises when it is not to wait for room any more, where it is to be spilled.

        Returns:
            False: it is closed, and the call is not in.
        """
        with self._changed:
            while self._waiting and self._bytes + call.size > self._limit and not self._is_closed:
                if self.policy is WhenFull.DROP_NEW:
                    self.dropped += call.records
                    return True
                if self._spill is None:
                    self.dropped += self._pop().records
                elif not (spilled := self._spill_last(self._spill, call)):
                    self._changed.wait(_STEP_S)
                    check()
                elif spilled[-1] is call:
                    self.records += call.records
                    return True
            if self._is_closed:
                return False
            self._waiting.append(call)
            self._bytes += call.size
            self.records += call.records
            if len(self._waiting) == 1:
                self._changed.notify_all()
            return True

    def _spill_last(self, spill: Spill, call: Call) -> list[Call]:
        """Put on the disk what came last, or a call if all that did is on it; return what."""
        calls: list[Call] = []
        size = 0
        while self._waiting and size < self._limit // 8 and self._waiting[-1].name != _SPILLED:
            calls.insert(0, self._waiting.pop())
            size += calls[0].size
        spilled = calls or [call]
        place = spill.push(spilled)
        if place is None:
            self._waiting.extend(calls)
            return []
        self._bytes -= size
        self._waiting.append(Call(_SPILLED, place, sum(one.records for one in spilled), 0))
        return spilled

    def _bring_back(self, spilled: Call, spill: Spill) -> None:
        try:
            calls: list[Call] = spill.pull(spilled.arguments)
        except Exception:  # noqa: BLE001 - what cannot be read is lost, and counted
            self.dropped += spilled.records
            return
        self._waiting.extendleft(reversed(calls))
        self._bytes += sum(call.size for call in calls)
        self.records += spilled.records

    def _pop(self) -> Call:
        call = self._waiting.popleft()
        self._bytes -= call.size
        self.records -= call.records
        return call

    def take(self) -> list[Call]:
        """Return some that have waited longest, once those before are made; waits for them.

        Returns:
            None of them: nothing waits, and nothing comes any more.
        """
        with self._changed:
            self._is_out = False
            self._changed.notify_all()
            calls: list[Call] = []
            while not calls:
                while not self._waiting:
                    if self._is_closed:
                        return []
                    if self._changed.wait(_STEP_S):
                        # Others come behind the first one: a change of threads for each costs more.
                        self._changed.wait(_GATHER_S)
                size = 0
                while self._waiting and size < _OUT_BYTES:
                    call = self._pop()
                    if call.name == _SPILLED and self._spill is not None:
                        self._bring_back(call, self._spill)
                    else:
                        calls.append(call)
                        size += call.size
            self._is_out = True
            return calls

    def is_idle(self) -> bool:
        """Return whether nothing waits and nothing is out; waits for that a while."""
        with self._changed:
            if self._waiting or self._is_out:
                self._changed.wait(_STEP_S)
            return not (self._waiting or self._is_out)

    def drop(self, records: int) -> None:
        """Count records that did not pass."""
        with self._changed:
            self.dropped += records

    def close(self, may_wait: Callable[[], bool]) -> None:
        """Let nothing more in; return when all has passed, or `may_wait` says no."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            while (self._waiting or self._is_out) and may_wait():
                self._changed.wait(_STEP_S / 10)

    @property
    def is_busy(self) -> bool:
        """Whether something waits, or is to be reported."""
        return bool(self._waiting) or self.dropped > self._told

    def news(self, *, at_once: bool = False) -> PenstockError | None:
        """Return how many records were dropped since the last report; None: it is not time for one.

        Args:
            at_once: For the last time: now.
        """
        with self._changed:
            now_s, count = self._now_s(), self.dropped - self._told
            is_due = at_once or self._told_s is None or now_s >= self._told_s + _TELL_S
            if not count or not is_due:
                return None
            self._told, self._told_s = self.dropped, now_s
        why = "more came than the rate, the queue and the disk let pass"
        if self.policy is WhenFull.SPILL:
            why = "they waited when the receiver stopped, or could not be read again"
        return PenstockError(
            f"{count} {'record was' if count == 1 else 'records were'} dropped: {why}, and "
            f"{WHEN_FULL} is {self.policy.value}"
        )

    def drop_rest(self) -> None:
        """Drop all that still waits."""
        with self._changed:
            while self._waiting:
                self.dropped += self._pop().records
            if self._spill is not None:
                self._spill.close()


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
        self._intake.close(
            lambda: self._thread.is_alive() and may_wait() and self._limiter.passes_soon
        )
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
        door.check()
        if type(data) in _PLAIN and position is None and ack is None and framing is None:
            self._wait(door, "store", (data,), getsizeof(data))
            return
        is_bulk = framing is not None or isinstance(data, BULK)
        if self._is_relied_on(position, ack, _WAITS if is_bulk else None):
            self._wait_turn(door)
            door.store_at_once(data, position, ack, framing)
        elif framing is not None:
            self._put_from(door, reader_of(memoryview(data).cast("B")), framing)
        elif is_bulk:
            self._put_many(door, data)
        else:
            self._put_one(door, data)

    def _is_relied_on(
        self, position: Any, ack: Callable[[], None] | None, without: str | None = None
    ) -> bool:
        """Return whether a source relies on what is stored; `without` says why without an `ack`.

        Raises:
            SettingError: One does, and it might be dropped.
        """
        if position is not None:
            without = _HAS_POSITION
        elif ack is not None:
            without = None if ack is acknowledge_nothing else _ACKNOWLEDGES
        if without is not None and self._intake.policy.drops:
            raise dropping_refused(self._intake.policy, without)
        return without is not None

    def _wait_turn(self, door: StoreDoor) -> None:
        """Wait until all has passed that waits."""
        while not self._intake.is_idle():
            self._check_waiting(door)

    def _check_waiting(self, door: StoreDoor) -> None:
        self._check_open(door)
        if door.is_stopping and not self._limiter.passes_soon:
            door.refuse_waiting()

    def _put_one(self, door: StoreDoor, record: Any) -> None:
        if type(record) in _PLAIN:
            self._wait(door, "store", (record,), getsizeof(record))
            return
        try:
            kept = pickle_record(record)
        except MemoryError:
            raise
        except Exception as error:
            if not self._assembler.has_schema:
                raise RecordPickleError(record, error) from error
            # It will fit nowhere, and cannot be spilled.
            if not self._intake.policy.drops:
                door.store_at_once([record], None, acknowledge_nothing)
            else:
                self._wait(door, "store", (record,), 0)
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
            self._account_dropped(reader, letters if self._intake.policy.drops else None)
            # A copy: the next ones come into the same buffer.
            data, ends = bytes(found[0]), found[1]
            records = len(letters) + (ends if isinstance(ends, int) else len(ends))
            size = len(data) + 4 * records
            self._wait(door, "framed", (kind, data, ends, letters), size, records)

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
        if self._is_relied_on(position, ack):
            self._wait_turn(door)
        if not self._intake.policy.drops:
            # Letters are few, and their errors may be no pickles: they are not spilled.
            self._discard(door, record, reason, position, ack)
            return
        kept, size = self._assembler.copy_of_row(record)
        self._wait(door, "letter", (kept, reason), size)

    def _wait(
        self, door: StoreDoor, name: str, arguments: tuple[Any, ...], size: int, records: int = 1
    ) -> None:
        call = Call(name, arguments, records, size + _CALL_BYTES)
        if records and not self._intake.put(call, partial(self._check_waiting, door)):
            self._check_open(door)
            door.refuse_waiting()

    # -- passing -------------------------------------------------------------------------------

    def _pass_all(self) -> None:
        is_failing = False
        while calls := deque(self._intake.take()):
            try:
                while calls:
                    error = self._pass(calls[0])
                    calls.popleft()
                    if error is not None and not is_failing:
                        self._tell("Error in putting records into a block", error)
                    if is_failing := error is not None:
                        time.sleep(_PAUSE_S)
            except ReceiverStoppedError:
                return
            finally:
                self._intake.drop(sum(call.records for call in calls))

    def _pass(self, call: Call) -> Exception | None:
        """Make a call; what it fails with for now is returned, and what did not pass is counted.

        Raises:
            ReceiverStoppedError: Nothing passes any more.
        """
        before = self._passed() if call.records > 1 else 0
        try:
            getattr(self, f"_pass_{call.name}")(*call.arguments)
        except MAY_PASS as error:
            passed = self._passed() - before if call.records > 1 else 0
            if isinstance(error, ReceiverStoppedError):
                # The caller counts all of it.
                self._intake.drop(-passed)
                raise
            self._intake.drop(max(0, call.records - passed))
            return error
        return None

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
        try:
            record = pickle.loads(kept)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - the program's class may raise what it likes
            self._own.discard(PickledRecord(kept, error), error)
        else:
            self._pass_store(record)

    def _pass_many(self, data: Any) -> None:
        self._own.store(data, None, acknowledge_nothing)

    def _pass_letter(self, record: Any, reason: str | Exception) -> None:
        self._own.discard(record, reason)

    def _pass_framed(self, kind: BlockKind, data: bytes, ends: Any, letters: list[Letter]) -> None:
        piece: Piece
        if isinstance(ends, int):
            piece = LinesPiece(kind, memoryview(data), ends)
        else:
            piece = FramesPiece(kind, data, ends)
        self._pass_pieces(self._own, iter([piece]), lambda: None, None, letters)
