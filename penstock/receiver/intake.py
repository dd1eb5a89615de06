"""The intake: records that wait before the gate, where `store` is not to wait itself.

`store` waits when records come faster than they pass: for the rate, for the queue of blocks, or for
memory. With ``spark.penstock.receiver.whenFull`` another policy than ``block``, what is stored is
put here instead, and a thread of its own, ``penstock-intake-<streamId>``, passes it through the
gate into blocks as `store` would have done. Behind that, nothing is different.

What must hold
--------------

* Records pass in the order in which they were put (I5), and what has passed is never dropped.
* `store` does not wait, whatever holds the stream: ``dropNew`` drops what finds no room here,
  ``dropOld`` what has waited longest.
* What waits is bounded in bytes, with what Python needs for it (I7). One call that is larger than
  all of it waits alone.
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
import threading
from collections import deque
from collections.abc import Callable
from sys import getsizeof
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock._arguments import refused
from penstock.errors import PenstockError, SettingError
from penstock.receiver.bulk import Piece, RecordsPiece

if TYPE_CHECKING:
    from penstock.receiver.assembler import BlockAssembler
    from penstock.receiver.base import Receiver
    from penstock.settings import Settings

WHEN_FULL = "spark.penstock.receiver.whenFull"

_ENTRY_BYTES = 120
"""What Python needs for an entry beside its record."""
_TAKEN_BYTES = 128 << 10
"""Single records that are taken at once: what has been taken is not dropped any more."""
_STEP_S = 1.0
_TELL_S = 10.0


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
    """A receiver would lose by a policy that drops what its source was promised.

    Attributes:
        why: What it does that does not go together with it.
    """

    def __init__(self, policy: WhenFull, why: str) -> None:
        super().__init__(
            WHEN_FULL,
            policy.value,
            f"only block for this receiver, because it {why} (whenFull of a receiver wins over "
            "the setting)",
        )
        self.why = why

    def __reduce__(self) -> tuple[Any, ...]:
        return DroppingRefusedError, (WhenFull(self.value), self.why)


class RecordsDroppedError(PenstockError):
    """Records were dropped, because they came faster than they passed.

    Attributes:
        records: How many, since the error before.
        policy: The policy by which they were.
    """

    def __init__(self, records: int, policy: WhenFull) -> None:
        what = "1 record was" if records == 1 else f"{records} records were"
        super().__init__(
            f"{what} dropped: more came than the stream's rate, queue and batches let pass, and "
            f"{WHEN_FULL} is {policy.value}"
        )
        self.records = records
        self.policy = policy


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


class Singles(RecordsPiece):
    """Records as `BlockAssembler.prepare` keeps them, for which there are permits."""

    def add(self, assembler: BlockAssembler, start: int, end: int) -> None:
        # Whatever fails here, they are pending then, and the next flush goes on with them.
        assembler.pending.extend(self.records[start:end])
        assembler.flush_pending()


Taken: TypeAlias = "tuple[Piece, int, int]"
"""A piece, and the range of it that is to pass."""


def size_of(record: Any) -> int:
    """Return about how many bytes a record takes, as `BlockAssembler.prepare` keeps it."""
    if type(record) is tuple and record:
        record = record[0]
    if type(record) is dict:
        return getsizeof(record) + sum(map(getsizeof, record.values()))
    return getsizeof(record)


class Intake:
    """Records that wait, of one receiver attempt.

    `_changed` guards all of it; `_reporting` is held while the driver is told, and may be taken
    first.

    Args:
        policy: What happens when it is full.
        limit: Bytes that may wait.
        tell: Notified of what was dropped, once in a while.
        report: Takes how many records were dropped since the attempt began, when it changed.
        now_s: Monotonic time.

    Attributes:
        dropped: Records that were dropped.
        records: Records that wait.
    """

    def __init__(
        self,
        policy: WhenFull,
        limit: int,
        tell: Callable[[str, BaseException], None],
        report: Callable[[int], None],
        now_s: Callable[[], float],
    ) -> None:
        self._now_s = now_s
        self.policy = policy
        self.dropped = 0
        self.records = 0
        self._limit = limit
        self._tell = tell
        self._report = report
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[tuple[Piece | None, Any, int, int]] = deque()
        """A piece, or None and a record; how many records that is; its bytes."""
        self._taken = 0
        """How many of the first one are taken."""
        self._bytes = 0
        self._is_closed = False
        self._is_passing = False
        self._reporting = threading.Lock()
        self._reported = 0
        self._told = 0
        self._told_s: float | None = None

    def put(self, size: int, record: Any = None, piece: Piece | None = None) -> bool:
        """Let a record wait, or a piece, or drop some.

        Args:
            size: Its bytes.
            record: As `BlockAssembler.prepare` keeps it.
            piece: If it is one; not empty.

        Returns:
            False: it was closed before; it is not in, and not counted.
        """
        records = 1 if piece is None else len(piece)
        size += _ENTRY_BYTES
        with self._changed:
            if self._is_closed:
                return False
            while self._waiting and self._bytes + size > self._limit:
                if self.policy is WhenFull.DROP_NEW:
                    self.dropped += records
                    return True
                self.dropped += self._pop_first()
            self._waiting.append((piece, record, records, size))
            self._bytes += size
            self.records += records
            if len(self._waiting) == 1:
                self._changed.notify_all()
        return True

    def _pop_first(self) -> int:
        """Take the first one out; returns how many records of it had not been taken."""
        _, _, records, size = self._waiting.popleft()
        left, self._taken = records - self._taken, 0
        self._bytes -= size
        self.records -= left
        return left

    def wait(self, most: int) -> int:
        """Wait until something waits, and return how many records to take at once.

        Args:
            most: Of records that were put one by one.

        Returns:
            0: nothing waits, and nothing comes any more.
        """
        with self._changed:
            self._is_passing = False
            self._changed.notify_all()
            while not self._waiting and not self._is_closed:
                self._changed.wait(_STEP_S)
            if not self._waiting:
                return 0
            self._is_passing = True
            piece, _, records, _ = self._waiting[0]
            return min(self.records, most) if piece is None else records - self._taken

    def take(self, most: int) -> Taken | None:
        """Take the first ones, up to `most`; None: they were dropped meanwhile."""
        with self._changed:
            if not self._waiting:
                return None
            piece, _, records, _ = self._waiting[0]
            if piece is not None:
                start = self._taken
                end = self._taken = min(records, start + most)
                self.records -= end - start
                if end == records:
                    self._pop_first()
                return piece, start, end
            singles: list[Any] = []
            size = 0
            while self._waiting and len(singles) < most and size < _TAKEN_BYTES:
                piece, record, _, of_one = self._waiting[0]
                if piece is not None:
                    break
                singles.append(record)
                size += of_one
                self._pop_first()
            return Singles(singles), 0, len(singles)

    def drop(self, records: int) -> None:
        """Count records that were taken and did not pass."""
        with self._changed:
            self.dropped += records

    def close(self, may_wait: Callable[[], bool]) -> None:
        """Let nothing more in; return when nothing waits any more, or `may_wait` says no."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            while (self._waiting or self._is_passing) and may_wait():
                self._changed.wait(_STEP_S / 10)

    def drop_rest(self) -> None:
        """Drop what still waits, once nobody takes anything any more."""
        with self._changed:
            while self._waiting:
                self.dropped += self._pop_first()

    @property
    def is_busy(self) -> bool:
        """Whether `report` and `tell` are to be called soon."""
        return bool(self._waiting) or self.dropped > self._told

    def report(self) -> None:
        """Let the driver know how many records were dropped, if it does not."""
        # Held meanwhile: who comes second may rely on it that it was told.
        with self._reporting:
            if self.dropped > self._reported:
                self._reported = self.dropped
                self._report(self._reported)

    def tell(self, *, at_once: bool = False) -> None:
        """Report what was dropped, and say it where people look, once in a while.

        Args:
            at_once: For the last time: now.
        """
        self.report()
        now_s = self._now_s()
        with self._changed:
            untold = self.dropped - self._told
            is_due = at_once or self._told_s is None or now_s >= self._told_s + _TELL_S
            if not untold or not is_due:
                return
            self._told, self._told_s = self.dropped, now_s
        error = RecordsDroppedError(untold, self.policy)
        self._tell(str(error), error)
