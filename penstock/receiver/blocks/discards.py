"""`Discards`: records that fit nowhere are counted, reported, and kept as dead letters."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from penstock.dead_letters import (
    BudgetMeter,
    DeadLetterWriter,
    Unreadable,
    start_of,
    start_shown,
)
from penstock.errors import text_of

TOLD_SINGLY = 10
"""Records that are reported one by one within `_SPAN_S`; the others are only counted."""
_SPAN_S = 10.0

_COUNT = re.compile(r"1 record was discarded|[0-9]+ more records were discarded")
"""How each message of `Discards` begins."""


def count_of_discards(message: str) -> str | None:
    """Return a message of `Discards` without what is in records, errors and positions.

    Returns:
        How many were discarded, in words; None: it is another message.
    """
    found = _COUNT.match(message)
    return None if found is None else found[0]


def _made(record: Callable[[], Any]) -> Any:
    try:
        return record()
    except MemoryError:
        # It says nothing of the record, which stays where it is.
        raise
    except Exception as error:  # noqa: BLE001 - unpickling a record may raise what it likes
        return Unreadable(error)


class Discards:
    """Takes account of the records that one attempt discards. `_lock` guards all of it.

    Args:
        tell: Takes a message and the reason; called by each discard, and by `tell_rest`.
        now_s: Monotonic time.
        letters: Keeps the records themselves; None: they are lost.
        budget: Says when there are too many; None: there never are.
    """

    def __init__(
        self,
        tell: Callable[[str, BaseException], None],
        now_s: Callable[[], float],
        letters: DeadLetterWriter | None = None,
        budget: BudgetMeter | None = None,
    ) -> None:
        self._tell = tell
        self._now_s = now_s
        self._letters = letters
        self._budget = budget
        self._lock = threading.Lock()
        self._count = 0
        self._began_s = 0.0
        self._told = 0
        self._untold = 0
        self._last: BaseException | None = None
        self._position: Any = None
        self._is_of_call = False
        self._held: list[tuple[BaseException, Callable[[], Any], int | None]] | None = None
        self._asked = threading.local()

    @property
    def count(self) -> int:
        """Records discarded so far."""
        return self._count

    @contextmanager
    def stored_with(self, position: Any, *, whole: bool = False) -> Iterator[None]:
        """Within it, what is discarded is of one call, and reported with its position, if any.

        For one thread at a time: the one that holds the assembler's lock.

        Args:
            position: The position.
            whole: Nothing was discarded if it ends by an error: the call can be made again.
        """
        self._position, self._is_of_call = position, True
        self._held = [] if whole else None
        try:
            yield
            held, self._held = self._held, None
            for each in held or ():
                self.add(*each)
        finally:
            self._position, self._is_of_call, self._held = None, False, None

    @contextmanager
    def refused(self) -> Iterator[list[BaseException]]:
        """Yield why records are discarded that this thread stores within it.

        They are neither counted nor kept: they are letters already.
        """
        reasons: list[BaseException] = []
        self._asked.reasons = reasons
        try:
            yield reasons
        finally:
            self._asked.reasons = None

    def add(
        self, reason: BaseException, record: Callable[[], Any], size: int | None = None
    ) -> None:
        """Take account of one record, keep it, and report it unless many were reported just now.

        Args:
            reason: Why it fits nowhere.
            record: Returns it, or how it begins; called when it is kept or reported.
            size: Its bytes, where only the first of them are at hand.

        Raises:
            MemoryError: There is none to keep it now; no account was taken of it.
        """
        if self._held is not None:
            self._held.append((reason, record, size))
            return
        refused: list[BaseException] | None = getattr(self._asked, "reasons", None)
        if refused is not None and self._is_of_call:
            refused.append(reason)
            return
        position = self._position
        made = None
        if self._letters is not None:
            made = _made(record)
            encoded = None if position is None else msgspec.msgpack.encode(position)
            shown = start_shown(lambda: made)
            self._letters.add(made, reason, shown, size=size, position=encoded)
        exceeded = None
        with self._lock:
            self._count += 1
            if self._budget is not None:
                exceeded = self._budget.add()
            now_s = self._now_s()
            if not self._told or now_s >= self._began_s + _SPAN_S:
                self._began_s, self._told = now_s, 0
            is_told = self._told < TOLD_SINGLY and not self._untold
            if is_told:
                self._told += 1
            else:
                self._untold += 1
                self._last = reason
        if is_told:
            place = "" if position is None else f" (stored with {start_of(position)})"
            begin = start_shown(record if self._letters is None else lambda: made)
            what = f"1 record was discarded{place}: {text_of(reason)}"
            self._tell(f"{what}; it begins with {begin}", reason)
        if exceeded is not None:
            self._tell(str(exceeded), exceeded)

    def begin_budget(self) -> None:
        """Count afresh what is discarded, if there was too much of it: the stream goes on."""
        with self._lock:
            if self._budget is not None:
                self._budget.begin()

    @property
    def is_busy(self) -> bool:
        """Whether `tell_rest` is to be called soon: there is something to report, or to look at."""
        return bool(self._untold) or self._budget is not None

    def tell_rest(self, *, at_once: bool = False) -> None:
        """Report how many records were discarded without being reported, once in a while.

        Args:
            at_once: For the last time: now.
        """
        with self._lock:
            if self._budget is not None:
                self._budget.look()
            is_due = at_once or self._now_s() >= self._began_s + _SPAN_S
            if not self._untold or not is_due:
                return
            untold, self._untold = self._untold, 0
            reason = self._last
            self._told = 0
        assert reason is not None
        why = text_of(reason)
        self._tell(f"{untold} more records were discarded, the last one because: {why}", reason)
