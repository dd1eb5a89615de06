"""The rate limiter of a receiver: records and bytes per second, from a token bucket.

What must hold (I8): over any window of a second or longer no more records pass than rate x window
plus one burst. A new rate takes effect at once, also on waiting threads.

Permits are leased in bulk, so that a record costs a countdown and not a call. A leased permit that
is not used yet is still part of the burst: while it is out, the bucket fills only up to the burst
less the permits that are out. So these and a full bucket together never exceed one burst, however
long a lessee keeps them.

Like Spark's limiter (`RateLimiter.scala`, which is Guava's `SmoothBursty`), nothing is saved up at
first, but the first record passes at once, also at "1/hour"; and an idle source saves up to one
burst, by default one second of the rate.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from math import floor, inf
from typing import TYPE_CHECKING, NamedTuple

from penstock.receiver.door import ReceiverStoppedError
from penstock.runtime.clock import Clock, SystemClock, WaitClock
from penstock.settings import Settings

if TYPE_CHECKING:
    from typing_extensions import Self

_PAUSE_S = 0.005
"""How much of the rate a thread waits for, in seconds (at least one permit): a high rate wakes it
200 times a second and not for every record."""

SOON_S = 1.0
"""No one who is to stop waits for a token that is further away than this."""

STOPPED = "the rate limiter was stopped: the receiver is stopping, and not all of this is stored"

_SHORTEST_WAIT_S = 0.0002
_LONGEST_WAIT_S = 0.25

_SHARE = 4
"""One lease takes at most this part of the burst. Permits that are out keep the bucket from
filling, so one lessee must not hold the whole burst while its source is idle."""


class TokenBucket:
    """Lets pass at most rate x time plus one burst, for any time.

    It holds up to one burst of tokens and refills at the rate (Turner, "New directions in
    communications", IEEE Communications Magazine 24(10), 1986); a new one is empty. For one thread
    at a time: its user has a lock.

    `held` is how many tokens were taken before and are not used yet. The bucket fills only up to
    its capacity less these, so that they and a full bucket are still one burst.

    Args:
        rate: Tokens per second.
        burst_s: The capacity, in seconds of the rate; at least one token, or nothing would pass.
        clock: Monotonic time.
        tokens: What is in it at first, up to the capacity less `held`; negative for a debt.
        held: See above.
    """

    def __init__(
        self, rate: float, burst_s: float, clock: Clock, *, tokens: float = 0.0, held: int = 0
    ) -> None:
        self.rate = rate
        self.capacity = max(1.0, rate * burst_s)
        self._clock = clock
        self._tokens = min(self._room(held), tokens)
        self._refilled_s = clock.monotonic_s()

    def take(self, least: int, most: int, *, held: int = 0) -> int:
        """Take as many whole tokens as there are, up to `most`; none if fewer than `least`."""
        if self.count(held=held) < least:
            return 0
        taken = max(0, min(most, floor(self._tokens)))
        self._tokens -= taken
        return taken

    def add(self, amount: float, *, held: int = 0) -> None:
        """Put tokens back, up to the capacity; a negative amount makes a debt."""
        self._tokens = min(self._room(held), self.count(held=held) + amount)

    def count(self, *, held: int = 0) -> float:
        """Return the tokens that are left, negative for a debt."""
        now_s = self._clock.monotonic_s()
        refilled = self._tokens + self.rate * (now_s - self._refilled_s)
        self._tokens = min(self._room(held), refilled)
        self._refilled_s = now_s
        return self._tokens

    def _room(self, held: int) -> float:
        return max(0.0, self.capacity - held)


class _Answer(NamedTuple):
    granted: int
    wait_s: float


class RateLimiter:
    """Gives permits for records, and lets bytes pass, at no more than the rates.

    One lock guards everything; no one waits while holding it. Usable from any thread.

    Args:
        records_per_second: The rate to begin with; None is no limit.
        bytes_per_second: The same for bytes.
        ceiling: The most records per second that `set_rate` can set; None is no limit. The rate to
            begin with is also capped by it.
        burst_s: How much may be saved up while nothing passes, in seconds of the rate; at least
            one record.
        clock: Monotonic time.

    Attributes:
        permits: How many permits were leased, less those given back.
        permits_out: Permits that are leased and not known to be used.
        bytes_charged: Bytes that passed.
        for_rate: How long calls have waited for the rate of records.
        for_byte_rate: The same for the rate of bytes.
    """

    def __init__(
        self,
        records_per_second: float | None = None,
        *,
        bytes_per_second: float | None = None,
        ceiling: float | None = None,
        burst_s: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        if burst_s <= 0:
            raise ValueError(f"burst_s must be above 0, not {burst_s}")
        self._clock: Clock = SystemClock() if clock is None else clock
        self._burst_s = burst_s
        self._ceiling = ceiling
        self._lock = threading.Lock()
        self._waiting: set[threading.Event] = set()
        self._records: TokenBucket | None = None
        self._bytes: TokenBucket | None = None
        self._out: dict[Hashable, int] = {}
        self.permits_out = 0
        self._was_limited = False
        self._stopped = False
        self._is_paused = False
        self._has_leased = False
        self.permits = 0
        self.bytes_charged = 0
        self.for_rate = WaitClock(self._clock.monotonic_s)
        self.for_byte_rate = WaitClock(self._clock.monotonic_s)
        self.set_rate(records_per_second)
        self.set_byte_rate(bytes_per_second)

    @classmethod
    def from_settings(cls, settings: Settings, clock: Clock | None = None) -> Self:
        """Return the limiter that the settings ask for.

        It begins at the smallest of ``receiver.maxRate``, ``backpressure.initialRate`` and our
        ``receiver.rate``; a rate update stays under the first and the third (as in Spark's
        `RateLimiter.scala`).
        """
        ceiling = settings.max_records_per_second
        return cls(
            _smallest(ceiling, settings.backpressure_initial_rate),
            bytes_per_second=settings.max_bytes_per_second,
            ceiling=ceiling,
            burst_s=settings.receiver_burst_s,
            clock=clock,
        )

    @property
    def rate(self) -> float | None:
        """Records per second in force; None without a limit."""
        bucket = self._records
        return None if bucket is None else bucket.rate

    @property
    def byte_rate(self) -> float | None:
        """Bytes per second in force; None without a limit."""
        bucket = self._bytes
        return None if bucket is None else bucket.rate

    @property
    def passes_soon(self) -> bool:
        """Whether anything may pass within a second; not while paused, nor at rates below that."""
        with self._lock:
            return not (
                self._is_paused
                or _is_far_from_one(self._records, self.permits_out)
                or _is_far_from_one(self._bytes, 0)
            )

    @property
    def burst(self) -> float | None:
        """The records of one burst at the rate in force; None without a limit."""
        bucket = self._records
        return None if bucket is None else bucket.capacity

    @property
    def burst_s(self) -> float:
        """How much may be saved up, in seconds of the rate."""
        return self._burst_s

    def lease(
        self,
        wanted: int,
        timeout_s: float | None = None,
        *,
        in_hand: int = 1,
        lessee: Hashable = None,
    ) -> int:
        """Lease permits for records; wait until there are some.

        A lessee that calls again has used, or given back, every permit of its lease before. It
        may keep permits that it has no records for yet, as long as it likes.

        Args:
            wanted: How many permits are of use; at least 1.
            timeout_s: How long to wait; None waits until a permit comes or `stop`.
            in_hand: How many records the lessee will let pass at once; permits for more are
                counted as out until they are used or given back.
            lessee: The asker, where several share the limiter.

        Returns:
            How many permits were granted, from 1 to `wanted`; all of them without a limit, and 0
            when none came in time.

        Raises:
            ReceiverStoppedError: The limiter was stopped, before or while waiting.
        """
        if wanted < 1:
            raise ValueError(f"wanted must be at least 1, not {wanted}")

        def take(is_last_chance: bool) -> _Answer:
            self._set_out(lessee, 0)
            if self._is_paused:
                return _Answer(0, _LONGEST_WAIT_S)
            bucket = self._records
            if bucket is None:
                granted = wanted
            else:
                rate, capacity = bucket.rate, bucket.capacity
                fillable = capacity - self.permits_out
                most = max(1, min(wanted, floor(capacity), max(in_hand, int(capacity) // _SHARE)))
                enough = max(1, min(most, floor(rate * _PAUSE_S), floor(fillable)))
                least = 1 if is_last_chance else enough
                granted = bucket.take(least, most, held=self.permits_out)
                if not granted:
                    missing = enough - bucket.count(held=self.permits_out)
                    # Other lessees' permits that are out may keep the bucket from ever filling.
                    return _Answer(0, _LONGEST_WAIT_S if fillable < enough else missing / rate)
            self._set_out(lessee, max(0, granted - in_hand))
            self._has_leased = True
            self.permits += granted
            return _Answer(granted, 0.0)

        return self._pass(take, timeout_s, self.for_rate)

    def give_back(self, permits: int, *, lessee: Hashable = None) -> None:
        """Return permits that were leased and will not be used.

        Args:
            permits: How many; not more than the lessee has left of its lease.
            lessee: The one that leased them.
        """
        if permits < 0:
            raise ValueError(f"permits must not be negative, but is {permits}")
        with self._lock:
            self._set_out(lessee, max(0, self._out.get(lessee, 0) - permits))
            self.permits -= permits
            if self._records is not None:
                self._records.add(permits, held=self.permits_out)
            self._wake()

    def charge_bytes(self, size: int, timeout_s: float | None = None) -> bool:
        """Wait until the byte rate lets `size` pass, and count them.

        More bytes than one burst pass when the bucket is full, and leave it in debt: what
        follows waits until the debt is paid.

        Returns:
            Whether they passed in time; else they are not counted.

        Raises:
            ReceiverStoppedError: The limiter was stopped, before or while waiting.
        """
        if size < 0:
            raise ValueError(f"size must not be negative, but is {size}")
        if size == 0:
            return True

        def take(_is_last_chance: bool) -> _Answer:
            bucket = self._bytes
            if bucket is not None:
                enough = min(size, floor(bucket.capacity))
                taken = bucket.take(enough, enough)
                if not taken:
                    return _Answer(0, (enough - bucket.count()) / bucket.rate)
                if taken < size:
                    bucket.add(taken - size)
            self.bytes_charged += size
            return _Answer(size, 0.0)

        return self._pass(take, timeout_s, self.for_byte_rate) > 0

    def owe_bytes(self, size: int) -> None:
        """Count bytes that pass without a wait; what follows waits until that debt is paid."""
        with self._lock:
            if self._bytes is not None:
                self._bytes.add(-size)
            self.bytes_charged += size

    def set_rate(self, records_per_second: float | None) -> None:
        """Set the rate of records, also for waiting threads. None lifts the limit to the ceiling.

        What was saved up stays, up to the new burst. Permits that are out stay valid: a lessee
        that lets a new rate take effect on its open block gives them back first.

        Raises:
            ValueError: The rate is not above 0.
        """
        rate = _checked(_smallest(records_per_second, self._ceiling))
        with self._lock:
            self._records = self._at_rate(rate, self._records, self.permits_out)
            if self._records is not None and not self._was_limited:
                self._was_limited = True
                if not self._has_leased:
                    # The first record passes at once, as by Guava's limiter.
                    self._records.add(1.0, held=self.permits_out)
            self._wake()

    def set_paused(self, is_paused: bool) -> None:
        """Give no permits for records, or give them again; also to calls that wait now.

        Permits that are out stay valid: see `set_rate`.
        """
        with self._lock:
            self._is_paused = is_paused
            self._wake()

    def set_byte_rate(self, bytes_per_second: float | None) -> None:
        """Set the rate of bytes, also for waiting threads. None lifts the limit.

        Raises:
            ValueError: The rate is not above 0.
        """
        rate = _checked(bytes_per_second)
        with self._lock:
            self._bytes = self._at_rate(rate, self._bytes, 0)
            self._wake()

    def stop(self) -> None:
        """Let nothing pass any more; calls that wait raise `ReceiverStoppedError`. Idempotent."""
        with self._lock:
            self._stopped = True
            self._wake()

    @property
    def waiting(self) -> int:
        """How many calls wait at this moment."""
        return len(self._waiting)

    @property
    def waited_for_shared_rate_s(self) -> float:
        """Seconds that calls have waited for a rate that is shared with other applications."""
        return 0.0

    def _pass(
        self, take: Callable[[bool], _Answer], timeout_s: float | None, waits: WaitClock
    ) -> int:
        """Call `take` under the lock until it grants something, and wait between the calls.

        Its argument says that there will be no further call.

        Returns:
            What it granted; 0 when the time was over before.
        """
        started_s: float | None = None
        remaining_s = timeout_s
        while True:
            is_last_chance = remaining_s is not None and remaining_s <= 0
            with self._lock:
                if self._stopped:
                    raise ReceiverStoppedError(STOPPED)
                answer = take(is_last_chance)
                if answer.granted or is_last_chance:
                    return answer.granted
                event = threading.Event()
                self._waiting.add(event)
            if started_s is None:
                started_s = self._clock.monotonic_s()
            wait_s = min(max(answer.wait_s, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)
            if remaining_s is not None:
                wait_s = min(wait_s, remaining_s)
            with waits:
                self._clock.wait(event, wait_s)
            with self._lock:
                self._waiting.discard(event)
            if timeout_s is not None:
                remaining_s = timeout_s - (self._clock.monotonic_s() - started_s)

    def _set_out(self, lessee: Hashable, n: int) -> None:
        before = self._out.get(lessee, 0)
        if n == before:
            return
        if n < before and self._records is not None:
            # Until now they were out, so until now the bucket filled only up to the rest.
            self._records.count(held=self.permits_out)
            self._wake()
        self.permits_out += n - before
        if n:
            self._out[lessee] = n
        else:
            self._out.pop(lessee, None)

    def _at_rate(
        self, rate: float | None, before: TokenBucket | None, held: int
    ) -> TokenBucket | None:
        """Return the bucket of a rate, with what the one before has; None without a limit."""
        if rate is None:
            return None
        tokens = 0.0 if before is None else before.count(held=held)
        return TokenBucket(rate, self._burst_s, self._clock, tokens=tokens, held=held)

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()


def _is_far_from_one(bucket: TokenBucket | None, held: int) -> bool:
    return bucket is not None and bucket.count(held=held) + bucket.rate * SOON_S < 1


def _smallest(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _checked(rate: float | None) -> float | None:
    if rate is not None and not 0 < rate < inf:
        raise ValueError(f"a rate must be above 0 (None is no limit), not {rate}")
    return rate
