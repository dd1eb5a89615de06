"""`Company`: those who do something at about the same time, so that one write can serve all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

from penstock.runtime.clock import Clock, SystemClock

_SYSTEM_CLOCK = SystemClock()
_WINDOW = 2.0
"""In intervals: a member that came within it is expected again."""


class Company:
    """Members that each come about once in an interval, for most the same moment of it.

    The member that writes for all first waits, with `wait_for`, for those that are due: they came
    lately, and not within the last half of an interval. That takes no longer than half an interval.
    So one that is alone never waits, one that comes late is written at once, and one that does not
    come any more holds the others up once or twice. `_lock` guards who came when, and who waits.

    Args:
        interval_s: How often each comes, in seconds.
        wait_s: How long to wait for others at most; None: half of the interval.
        clock: Time.

    Attributes:
        wait_s: How long others are waited for at most, in seconds.
    """

    def __init__(
        self, interval_s: float, wait_s: float | None = None, clock: Clock = _SYSTEM_CLOCK
    ) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self.wait_s = interval_s / 2 if wait_s is None else wait_s
        self._lock = threading.Lock()
        self._came_s: dict[Hashable, float] = {}
        self._there: set[Hashable] = set()

    def came(self, member: Hashable) -> None:
        """Note that a member came."""
        with self._lock:
            self._came_s[member] = self._clock.monotonic_s()
            self._there.add(member)

    def served(self, member: Hashable) -> None:
        """Note that a member has what it came for."""
        with self._lock:
            self._there.discard(member)

    def _due(self) -> set[Hashable]:
        now_s = self._clock.monotonic_s()
        oldest_s, newest_s = now_s - _WINDOW * self._interval_s, now_s - self._interval_s / 2
        with self._lock:
            for member in [one for one, came_s in self._came_s.items() if came_s < oldest_s]:
                self._came_s.pop(member)
            return {one for one, came_s in self._came_s.items() if came_s <= newest_s}

    def _are_missing(self, due: set[Hashable]) -> bool:
        with self._lock:
            due -= self._there
            return bool(due)

    def wait_for(self, arrived: threading.Condition, is_enough: Callable[[], bool]) -> None:
        """Wait until all who are due came, or for no longer than is said above.

        Args:
            arrived: Notified of each that comes; held by the caller.
            is_enough: Returns whether no more are wanted.
        """
        end_s = self._clock.monotonic_s() + self.wait_s
        due = self._due()
        while not is_enough() and self._are_missing(due):
            left_s = end_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            arrived.wait(left_s)
