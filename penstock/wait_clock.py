"""`WaitClock`: for how long threads have waited for one thing, those that wait now included."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType


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
