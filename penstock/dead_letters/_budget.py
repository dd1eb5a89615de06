"""`BudgetMeter`: whether a receiver has discarded more than it may."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.settings.values import RecordBudget

_PARTS = 60
"""The window advances in steps of this fraction of it."""
_FEW_RECORDS = 1000
"""The fewest records that a percentage is taken of: one of two is no trend."""


class DeadLetterBudgetError(PenstockError):
    """A receiver discarded more records than `spark.penstock.deadLetters.budget` allows.

    Attributes:
        stream_id: The stream.
        discarded: How many, within the window.
        records: Of how many, these among them.
        budget: The setting.
        pauses: Whether the stream is paused for it; else the receiver ends.
    """

    def __init__(
        self, stream_id: int, discarded: int, records: int, budget: str, *, pauses: bool = False
    ) -> None:
        paused = (
            f". The stream is paused, and goes on by `penstock resume {stream_id}` or on the page"
            if pauses
            else ""
        )
        super().__init__(
            f"receiver {stream_id} discarded {discarded} of {records} records, which is more than "
            f"spark.penstock.deadLetters.budget={budget} allows: `penstock dead-letters` shows "
            f"which and why; mend their source or the schema, or raise the budget{paused}"
        )
        self.stream_id = stream_id
        self.discarded = discarded
        self.records = records
        self.budget = budget
        self.pauses = pauses


class BudgetMeter:
    """Counts what is discarded within the window of a budget. For one thread at a time.

    Args:
        stream_id: The stream.
        budget: What is allowed.
        now_s: Monotonic time.
        records: Returns how many records were taken so far, without those that were discarded;
            none yet.
        pauses: Whether the stream is paused when there are too many; it is reported once, until
            `begin`. Else it is reported once for all.
    """

    def __init__(
        self,
        stream_id: int,
        budget: RecordBudget,
        now_s: Callable[[], float],
        records: Callable[[], int],
        *,
        pauses: bool = False,
    ) -> None:
        self._stream_id = stream_id
        self._budget = budget
        self._now_s = now_s
        self._records = records
        self._pauses = pauses
        self._is_exceeded = False
        # Of each part of the window: its number, the records before it, discarded in it. The first
        # one begins here, and not with what is discarded first: what comes before that counts.
        self._parts: deque[list[int]] = deque([[self._number(), 0, 0]])

    def look(self) -> None:
        """Let the window move on; to be called now and then, also while nothing is discarded."""
        number = self._number()
        if not self._parts or self._parts[-1][0] != number:
            self._parts.append([number, self._records(), 0])
            while self._parts[0][0] <= number - _PARTS:
                self._parts.popleft()

    def begin(self) -> None:
        """Count afresh, if there were too many: the stream goes on."""
        if self._is_exceeded:
            self._is_exceeded = False
            self._parts.clear()
            self.look()

    def _number(self) -> int:
        return int(self._now_s() * _PARTS / self._budget.window_s)

    def add(self) -> DeadLetterBudgetError | None:
        """Count one that is discarded; return an error when that is more than allowed."""
        if self._is_exceeded:
            return None
        self.look()
        self._parts[-1][2] += 1
        discarded = sum(part[2] for part in self._parts)
        records = self._records() - self._parts[0][1] + discarded
        allowed = self._budget.limit
        if self._budget.is_percent:
            allowed *= max(records, _FEW_RECORDS) / 100
        if discarded <= allowed:
            return None
        self._is_exceeded = True
        return DeadLetterBudgetError(
            self._stream_id, discarded, records, self._budget.text, pauses=self._pauses
        )
