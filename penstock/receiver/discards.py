"""`Discards`: records that fit nowhere are counted, and told with their reason and their start."""

from __future__ import annotations

import reprlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "Discards",
    "start_of",
]

TOLD_SINGLY = 10
"""Records that are reported one by one within `_SPAN_S`; the others are only counted."""
_SPAN_S = 10.0
_START = 64
"""About how many characters of a record are shown."""

_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = _START
_shortened.maxlevel = 3


def start_of(record: Any) -> str:
    """Show the start of a record, whatever its size."""
    if isinstance(record, (bytes, bytearray, memoryview)):
        is_all = len(record) <= _START
        return repr(bytes(record[:_START])) + ("" if is_all else "...")
    return _shortened.repr(record)


def _shown(start: Callable[[], str]) -> str:
    try:
        return start()
    except Exception as error:  # noqa: BLE001 - unpickling a record may raise what it likes
        return f"nothing that can be shown ({type(error).__name__})"


class Discards:
    """Takes account of the records that one attempt discards. `_lock` guards all of it.

    Args:
        tell: Takes a message and the reason; called by whoever discards, and by `tell_rest`.
        now_s: Monotonic time.
    """

    def __init__(self, tell: Callable[[str, BaseException], None], now_s: Callable[[], float]):
        self._tell = tell
        self._now_s = now_s
        self._lock = threading.Lock()
        self._count = 0
        self._began_s = 0.0
        self._told = 0
        self._untold = 0
        self._last: BaseException | None = None
        self._position: Any = None

    @property
    def count(self) -> int:
        """Records discarded so far."""
        return self._count

    @contextmanager
    def stored_with(self, position: Any) -> Iterator[None]:
        """Within it, what is discarded is told with this position, if it is one.

        For one thread at a time: the one that holds the assembler's lock.
        """
        self._position = position
        try:
            yield
        finally:
            self._position = None

    def add(self, reason: BaseException, start: Callable[[], str]) -> None:
        """Take account of one record, and tell of it unless many were told just now.

        Args:
            reason: Why it fits nowhere.
            start: Shows how it begins; called when it is told.
        """
        with self._lock:
            self._count += 1
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
            place = "" if self._position is None else f" (stored with {start_of(self._position)})"
            begin = _shown(start)
            self._tell(f"1 record was discarded{place}: {reason}; it begins with {begin}", reason)

    def tell_rest(self, *, at_once: bool = False) -> None:
        """Tell how many records were discarded without being told, once in a while.

        Args:
            at_once: For the last time: now.
        """
        with self._lock:
            is_due = at_once or self._now_s() >= self._began_s + _SPAN_S
            if not self._untold or not is_due:
                return
            untold, self._untold = self._untold, 0
            reason = self._last
            self._told = 0
        assert reason is not None
        self._tell(f"{untold} more records were discarded, the last one because: {reason}", reason)
