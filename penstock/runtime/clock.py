"""Clocks: every part that looks at the time is given one, so that tests drive time by hand.

Two kinds of time are kept apart. *Wall time* (`Clock.time_ms`) names batches and is shown to
people; it can be set back by an administrator. *Monotonic time* (`Clock.monotonic_s`) measures
how long something took and when a wait ends; it never goes back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

YEARS_S = range(-62_135_596_800, 253_402_300_800)
"""Seconds since 1970 in the years 1 to 9999, as in Python and Spark."""


class Clock(Protocol):
    """What a part may ask of time."""

    def time_ms(self) -> int:
        """Return wall time in milliseconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never goes back."""
        ...

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until `event` is set or `timeout_s` seconds of this clock have passed.

        Returns:
            True when the event was set.
        """
        ...


class SystemClock:
    """The machine's own clocks."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(max(0.0, timeout_s))


class ManualClock:
    """A clock that stands still until a test moves it.

    One lock guards both times; `wait` returns as soon as `advance` has carried the clock past
    its end, so a test sees exactly the waits that are due.
    """

    def __init__(self, time_ms: int = 0) -> None:
        self._changed = threading.Condition()
        self._time_ms = time_ms
        self._monotonic_s = 0.0

    def time_ms(self) -> int:
        with self._changed:
            return self._time_ms

    def monotonic_s(self) -> float:
        with self._changed:
            return self._monotonic_s

    def advance(self, milliseconds: int) -> None:
        """Move both times forward and wake those who wait for them."""
        with self._changed:
            self._time_ms += milliseconds
            self._monotonic_s += milliseconds / 1000
            self._changed.notify_all()

    def set_wall_time(self, time_ms: int) -> None:
        """Set wall time alone, also backwards, as an administrator can."""
        with self._changed:
            self._time_ms = time_ms
            self._changed.notify_all()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        end = self.monotonic_s() + timeout_s
        while not event.is_set():
            with self._changed:
                if self._monotonic_s >= end:
                    break
                # The event may be set by a thread that does not know this clock: look again soon.
                self._changed.wait(0.01)
        return event.is_set()


class WaitClock:
    """Sums the seconds that threads wait for one thing; a context manager around each wait.

    A wait counts while it lasts, not only when it is over, so that one that does not end is seen.
    A thread that waits twice at once counts twice. One lock guards the sum; entering and leaving
    cost about a microsecond, so the clock belongs around what may wait, not around each record.

    Args:
        now_s: Monotonic time.
    """

    __slots__ = ("_lock", "_now_s", "_since_s", "_sum_s", "_waiting")

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._waiting = 0
        self._since_s = 0.0
        self._sum_s = 0.0

    def __enter__(self) -> None:
        with self._lock:
            self._count()
            self._waiting += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._count()
            self._waiting -= 1

    def read(self) -> float:
        """Return the seconds of all threads together, up to now."""
        with self._lock:
            self._count()
            return self._sum_s

    def _count(self) -> None:
        now_s = self._now_s()
        self._sum_s += self._waiting * (now_s - self._since_s)
        self._since_s = now_s
