"""A token bucket as a rate limiting strategy of the `limits` library.

The library has windows only: a fixed window lets two windows' worth pass around its edge, and a
moving window remembers every entry. A token bucket holds up to one *burst* of tokens and refills
at the rate, so over any time at most rate x time plus one burst pass (Turner, "New directions in
communications", IEEE Communications Magazine 24(10), 1986).

The strategy takes the library's items ("10000/second") and its storages. Where the buckets lie is
the storage's affair, as it is for the library's own strategies: a storage offers
`TokenBucketSupport`. For the library's memory storage, whose counters are not atomic across their
expiry, the buckets lie in this process beside it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import floor
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from limits import RateLimitItem
from limits.storage import MemoryStorage, Storage
from limits.strategies import RateLimiter as RateLimitStrategy
from limits.util import WindowStats

from penstock.clock import Clock, SystemClock
from penstock.errors import PenstockError

__all__ = ["TokenBucket", "TokenBucketSupport", "UnsupportedStorageError"]


class UnsupportedStorageError(PenstockError, TypeError):
    """A storage of the `limits` library cannot hold token buckets.

    Attributes:
        storage: The name of the storage's class.
    """

    def __init__(self, storage: str) -> None:
        super().__init__(
            f"{storage} cannot hold token buckets: it lacks the methods of TokenBucketSupport. "
            "Use limits.storage.MemoryStorage (memory://)"
        )
        self.storage = storage


@runtime_checkable
class TokenBucketSupport(Protocol):
    """What a storage offers so that token buckets can lie in it.

    Each method first refills the bucket of `key`: by `rate` tokens for each second since it was
    last refilled, up to `capacity`. A bucket that is not there yet is made empty. Each method is
    atomic for all users of the storage.
    """

    def take_tokens(
        self, key: str, rate: float, capacity: float, now_s: float, least: int, most: int
    ) -> int:
        """Take as many whole tokens as there are, up to `most`; none if fewer than `least`.

        Returns:
            How many were taken.
        """
        ...

    def add_tokens(
        self, key: str, rate: float, capacity: float, now_s: float, amount: float
    ) -> None:
        """Add tokens, up to `capacity`. A negative amount may leave the bucket in debt."""
        ...

    def count_tokens(self, key: str, rate: float, capacity: float, now_s: float) -> float:
        """Return how many tokens there are, negative for a debt."""
        ...

    def clear_tokens(self, key: str) -> None:
        """Forget the bucket."""
        ...


@dataclass
class _Level:
    tokens: float
    refilled_s: float


class _BucketsInProcess:
    """The buckets of a memory storage. One lock guards them all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._levels: dict[str, _Level] = {}

    def _refilled(self, key: str, rate: float, capacity: float, now_s: float) -> _Level:
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = _Level(0.0, now_s)
        # Several threads read the clock before one after the other has the lock: an older time must
        # not put the bucket's back, or the seconds since then would fill it twice.
        elapsed_s = max(0.0, now_s - level.refilled_s)
        level.tokens = min(capacity, level.tokens + rate * elapsed_s)
        level.refilled_s = max(level.refilled_s, now_s)
        return level

    def take_tokens(
        self, key: str, rate: float, capacity: float, now_s: float, least: int, most: int
    ) -> int:
        with self._lock:
            level = self._refilled(key, rate, capacity, now_s)
            if level.tokens < least:
                return 0
            taken = max(0, min(most, floor(level.tokens)))
            level.tokens -= taken
            return taken

    def add_tokens(
        self, key: str, rate: float, capacity: float, now_s: float, amount: float
    ) -> None:
        with self._lock:
            level = self._refilled(key, rate, capacity, now_s)
            level.tokens = min(capacity, level.tokens + amount)

    def count_tokens(self, key: str, rate: float, capacity: float, now_s: float) -> float:
        with self._lock:
            return self._refilled(key, rate, capacity, now_s).tokens

    def clear_tokens(self, key: str) -> None:
        with self._lock:
            self._levels.pop(key, None)


_beside: WeakKeyDictionary[MemoryStorage, _BucketsInProcess] = WeakKeyDictionary()
_beside_lock = threading.Lock()


class TokenBucket(RateLimitStrategy):
    """Lets pass at most rate x time plus one burst, for any time.

    Two strategies on one storage share their buckets. Safe for use by several threads.

    Args:
        storage: A storage of the `limits` library that offers `TokenBucketSupport`, or its
            `MemoryStorage`.
        burst_s: The capacity of a bucket, in seconds of its item's rate; at least one token.
        clock: Monotonic time for buckets in this process, wall time for shared ones.

    Raises:
        UnsupportedStorageError: The storage cannot hold token buckets.
    """

    def __init__(
        self, storage: Storage, *, burst_s: float = 1.0, clock: Clock | None = None
    ) -> None:
        super().__init__(storage)
        self.burst_s = burst_s
        self._clock: Clock = SystemClock() if clock is None else clock
        self._is_shared = isinstance(storage, TokenBucketSupport)
        self._buckets: TokenBucketSupport
        if isinstance(storage, TokenBucketSupport):
            self._buckets = storage
        elif isinstance(storage, MemoryStorage):
            with _beside_lock:
                self._buckets = _beside.setdefault(storage, _BucketsInProcess())
        else:
            raise UnsupportedStorageError(type(storage).__name__)

    @staticmethod
    def rate(item: RateLimitItem) -> float:
        """Return the tokens per second that the item allows."""
        return float(item.amount / item.get_expiry())

    def capacity(self, item: RateLimitItem) -> float:
        """Return the tokens of one burst: at least one, or nothing would ever pass."""
        return max(1.0, self.rate(item) * self.burst_s)

    def hit(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """Take `cost` tokens if they are all there.

        Returns:
            True when they were taken; False when fewer are there, and none was taken.
        """
        return cost <= 0 or self.take(item, *identifiers, least=cost, most=cost) > 0

    def test(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """Tell whether `hit` would succeed now, and take nothing."""
        return self.count(item, *identifiers) >= cost

    def get_window_stats(self, item: RateLimitItem, *identifiers: str) -> WindowStats:
        """Return when the bucket will be full (seconds since the epoch), and its tokens now."""
        tokens = self.count(item, *identifiers)
        full_in_s = (self.capacity(item) - tokens) / self.rate(item)
        return WindowStats(self._clock.time_ms() / 1000 + full_in_s, max(0, floor(tokens)))

    def clear(self, item: RateLimitItem, *identifiers: str) -> None:
        """Forget the bucket; the next use finds a new, empty one."""
        self._buckets.clear_tokens(item.key_for(*identifiers))

    def take(
        self, item: RateLimitItem, *identifiers: str, least: int, most: int, held: int = 0
    ) -> int:
        """Take tokens in bulk: as many as there are, up to `most`.

        Args:
            item: The rate.
            identifiers: What the bucket is for.
            least: Take none when fewer than this are there.
            most: Take no more than this.
            held: Tokens that were taken before and are not used yet. The bucket fills only up to
                its capacity less these, so that they and a full bucket are still one burst.

        Returns:
            How many were taken.
        """
        return self._buckets.take_tokens(*self._state(item, identifiers, held), least, most)

    def add(self, item: RateLimitItem, *identifiers: str, amount: float, held: int = 0) -> None:
        """Put tokens back, up to the capacity; a negative amount makes a debt."""
        self._buckets.add_tokens(*self._state(item, identifiers, held), amount)

    def count(self, item: RateLimitItem, *identifiers: str, held: int = 0) -> float:
        """Return the tokens that are there, negative for a debt."""
        return self._buckets.count_tokens(*self._state(item, identifiers, held))

    def _state(
        self, item: RateLimitItem, identifiers: tuple[str, ...], held: int
    ) -> tuple[str, float, float, float]:
        now_s = self._clock.time_ms() / 1000 if self._is_shared else self._clock.monotonic_s()
        capacity = max(0.0, self.capacity(item) - held)
        return item.key_for(*identifiers), self.rate(item), capacity, now_s
