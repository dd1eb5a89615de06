"""Token buckets in this process, by rates in the syntax of the `limits` library.

The library has windows only: a fixed window lets two windows' worth pass around its edge, and a
moving window remembers every entry. A token bucket holds up to one *burst* of tokens and refills
at the rate, so over any time at most rate x time plus one burst pass (Turner, "New directions in
communications", IEEE Communications Magazine 24(10), 1986).

A bucket that applications share lies in a server: see `penstock.receiver.shared_rate`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import floor

from limits import RateLimitItem

from penstock.clock import Clock, SystemClock

__all__ = ["TokenBucket"]


@dataclass
class _Level:
    tokens: float
    refilled_s: float


class TokenBucket:
    """Lets pass at most rate x time plus one burst, for any time.

    It has a bucket for each rate (`RateLimitItem`) and name; a new one is empty. Each call first
    refills the bucket by the seconds since it was last refilled. Safe for use by several threads:
    `_lock` guards all.

    Args:
        burst_s: The capacity of a bucket, in seconds of its rate; at least one token.
        clock: Monotonic time.
    """

    def __init__(self, *, burst_s: float = 1.0, clock: Clock | None = None) -> None:
        self.burst_s = burst_s
        self._clock: Clock = SystemClock() if clock is None else clock
        self._lock = threading.Lock()
        self._levels: dict[str, _Level] = {}

    @staticmethod
    def rate(item: RateLimitItem) -> float:
        """Return the tokens per second that the item allows."""
        return float(item.amount / item.get_expiry())

    def capacity(self, item: RateLimitItem) -> float:
        """Return the tokens of one burst: at least one, or nothing would ever pass."""
        return max(1.0, self.rate(item) * self.burst_s)

    def clear(self, item: RateLimitItem, name: str) -> None:
        """Forget the bucket; the next use finds a new, empty one."""
        with self._lock:
            self._levels.pop(item.key_for(name), None)

    def take(self, item: RateLimitItem, name: str, *, least: int, most: int, held: int = 0) -> int:
        """Take tokens in bulk: as many as there are, up to `most`.

        Args:
            item: The rate.
            name: What the bucket is for.
            least: Take none when fewer than this are there.
            most: Take no more than this.
            held: Tokens that were taken before and are not used yet. The bucket fills only up to
                its capacity less these, so that they and a full bucket are still one burst.

        Returns:
            How many were taken.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            level = self._refilled(item, name, held, now_s)
            if level.tokens < least:
                return 0
            taken = max(0, min(most, floor(level.tokens)))
            level.tokens -= taken
            return taken

    def add(self, item: RateLimitItem, name: str, *, amount: float, held: int = 0) -> None:
        """Put tokens back, up to the capacity; a negative amount makes a debt."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            level = self._refilled(item, name, held, now_s)
            level.tokens = min(self._room(item, held), level.tokens + amount)

    def count(self, item: RateLimitItem, name: str, *, held: int = 0) -> float:
        """Return the tokens that are there, negative for a debt."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            return self._refilled(item, name, held, now_s).tokens

    def _room(self, item: RateLimitItem, held: int) -> float:
        return max(0.0, self.capacity(item) - held)

    def _refilled(self, item: RateLimitItem, name: str, held: int, now_s: float) -> _Level:
        key = item.key_for(name)
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = _Level(0.0, now_s)
        # Several threads read the clock before one after the other has the lock: an older time must
        # not put the bucket's back, or the seconds since then would fill it twice.
        elapsed_s = max(0.0, now_s - level.refilled_s)
        level.tokens = min(self._room(item, held), level.tokens + self.rate(item) * elapsed_s)
        level.refilled_s = max(level.refilled_s, now_s)
        return level
