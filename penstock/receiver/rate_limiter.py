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
from dataclasses import dataclass
from math import floor, inf
from typing import TYPE_CHECKING, NamedTuple

from limits import (
    RateLimitItem,
    RateLimitItemPerDay,
    RateLimitItemPerHour,
    RateLimitItemPerMinute,
    RateLimitItemPerSecond,
)

from penstock._setting_values import rate_per_second
from penstock.clock import Clock, SystemClock
from penstock.errors import IllegalStateError, PenstockError
from penstock.receiver.token_bucket import TokenBucket
from penstock.settings import Settings
from penstock.wait_clock import WaitClock

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "RateLimiter",
    "RateLimiterStatistics",
    "RateLimiterStoppedError",
    "RateLimiterTimeoutError",
]

_RECORDS = "records"
_BYTES = "bytes"

_PAUSE_S = 0.005
"""How much of the rate a thread waits for, in seconds (at least one permit): a high rate wakes it
200 times a second and not for every record."""

_SHORTEST_WAIT_S = 0.0002
_LONGEST_WAIT_S = 0.25

_SHARE = 4
"""One lease takes at most this part of the burst. Permits that are out keep the bucket from
filling, so one lessee must not hold the whole burst while its source is idle."""

_UNITS: tuple[type[RateLimitItem], ...] = (
    RateLimitItemPerSecond,
    RateLimitItemPerMinute,
    RateLimitItemPerHour,
    RateLimitItemPerDay,
)


class RateLimiterStoppedError(IllegalStateError):
    """The limiter was stopped; nothing passes any more."""

    def __init__(self) -> None:
        super().__init__("the rate limiter was stopped: the receiver is stopping")


class RateLimiterTimeoutError(PenstockError, TimeoutError):
    """The bytes could not pass in time.

    Attributes:
        timeout_s: How long was waited.
        size: The bytes that were to pass.
        byte_rate: The bytes per second in force at the end.
    """

    def __init__(self, timeout_s: float, size: int, byte_rate: float) -> None:
        super().__init__(
            f"{size} bytes did not pass in {timeout_s:g} s at {byte_rate:g} bytes per second; "
            "wait longer or raise spark.penstock.receiver.byteRate"
        )
        self.timeout_s = timeout_s
        self.size = size
        self.byte_rate = byte_rate


@dataclass(frozen=True)
class RateLimiterStatistics:
    """What a limiter did so far.

    Attributes:
        rate: Records per second in force; None without a limit.
        byte_rate: Bytes per second in force; None without a limit.
        leases: How many leases were given.
        permits: How many permits were leased, less those given back.
        permits_out: Permits that are leased and not known to be used.
        bytes_charged: Bytes that passed.
        waits: How many calls had to wait.
        waited_s: How long they waited, in seconds, all together.
        waiting: How many calls wait at this moment.
        waited_for_rate_s: Seconds that calls have waited for the rate of records, all together,
            those that wait now included.
        waited_for_byte_rate_s: The same for the rate of bytes.
        waited_for_shared_rate_s: The same for a rate that is shared with other applications.
    """

    rate: float | None
    byte_rate: float | None
    leases: int
    permits: int
    permits_out: int
    bytes_charged: int
    waits: int
    waited_s: float
    waiting: int
    waited_for_rate_s: float
    waited_for_byte_rate_s: float
    waited_for_shared_rate_s: float = 0.0


class _Answer(NamedTuple):
    granted: int
    wait_s: float


class RateLimiter:
    """Gives permits for records, and lets bytes pass, at no more than the rates.

    One lock guards everything; nobody waits while holding it. Usable from any thread.

    Args:
        records_per_second: The rate to begin with; None is no limit.
        bytes_per_second: The same for bytes.
        ceiling: The most records per second that `set_rate` can set; None is no limit. The rate
            to begin with is capped by it too.
        burst_s: How much may be saved up while nothing passes, in seconds of the rate; at least
            one record.
        clock: Monotonic time.
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
        self._bucket = TokenBucket(burst_s=burst_s, clock=self._clock)
        self._ceiling = ceiling
        self._lock = threading.Lock()
        self._waiting: set[threading.Event] = set()
        self._records: RateLimitItem | None = None
        self._bytes: RateLimitItem | None = None
        self._out: dict[Hashable, int] = {}
        self._out_sum = 0
        self._was_limited = False
        self._stopped = False
        self._is_paused = False
        self._leases = 0
        self._permits = 0
        self._bytes_charged = 0
        self._waits = 0
        self._waited_s = 0.0
        self._for_rate = WaitClock(self._clock.monotonic_s)
        self._for_byte_rate = WaitClock(self._clock.monotonic_s)
        self.set_rate(records_per_second)
        self.set_byte_rate(bytes_per_second)

    @classmethod
    def from_settings(cls, settings: Settings, clock: Clock | None = None) -> Self:
        """Return the limiter that the settings ask for.

        It begins at the smallest of ``receiver.maxRate``, ``backpressure.initialRate`` and our
        ``receiver.rate``; a rate update stays under the first and the third (as in Spark's
        `RateLimiter.scala`).
        """
        rate = None if settings.receiver_rate is None else rate_per_second(settings.receiver_rate)
        ceiling = _smallest(settings.receiver_max_rate, rate)
        byte_rate = settings.receiver_byte_rate
        return cls(
            _smallest(ceiling, settings.backpressure_initial_rate),
            bytes_per_second=None if byte_rate is None else rate_per_second(byte_rate),
            ceiling=ceiling,
            burst_s=settings.receiver_burst_s,
            clock=clock,
        )

    @property
    def rate(self) -> float | None:
        """Records per second in force; None without a limit."""
        item = self._records
        return None if item is None else self._bucket.rate(item)

    @property
    def byte_rate(self) -> float | None:
        """Bytes per second in force; None without a limit."""
        item = self._bytes
        return None if item is None else self._bucket.rate(item)

    @property
    def burst(self) -> float | None:
        """The records of one burst at the rate in force; None without a limit."""
        item = self._records
        return None if item is None else self._bucket.capacity(item)

    @property
    def burst_s(self) -> float:
        """How much may be saved up, in seconds of the rate."""
        return self._bucket.burst_s

    def lease(
        self,
        wanted: int,
        timeout_s: float | None = None,
        *,
        in_hand: int = 1,
        lessee: Hashable = None,
    ) -> int:
        """Lease permits for records; wait until some are there.

        A lessee that calls again has used, or given back, every permit of its lease before. It
        may keep permits that it has no records for yet, as long as it likes.

        Args:
            wanted: How many permits are of use; at least 1.
            timeout_s: How long to wait; None waits until a permit comes or `stop`.
            in_hand: How many records the lessee will let pass at once; permits for more are
                counted as out until they are used or given back.
            lessee: Who asks, where several share the limiter.

        Returns:
            How many permits were granted, from 1 to `wanted`; all of them without a limit, and 0
            when none came in time.

        Raises:
            RateLimiterStoppedError: The limiter was stopped, before or while waiting.
        """
        if wanted < 1:
            raise ValueError(f"wanted must be at least 1, not {wanted}")

        def take(is_last_chance: bool) -> _Answer:
            self._set_out(lessee, 0)
            if self._is_paused:
                return _Answer(0, _LONGEST_WAIT_S)
            item = self._records
            if item is None:
                granted = wanted
            else:
                rate, capacity = self._bucket.rate(item), self._bucket.capacity(item)
                fillable = capacity - self._out_sum
                most = max(1, min(wanted, floor(capacity), max(in_hand, int(capacity) // _SHARE)))
                enough = max(1, min(most, floor(rate * _PAUSE_S), floor(fillable)))
                granted = self._bucket.take(
                    item,
                    _RECORDS,
                    least=1 if is_last_chance else enough,
                    most=most,
                    held=self._out_sum,
                )
                if not granted:
                    missing = enough - self._bucket.count(item, _RECORDS, held=self._out_sum)
                    # Other lessees' permits that are out may keep the bucket from ever filling.
                    return _Answer(0, _LONGEST_WAIT_S if fillable < enough else missing / rate)
            self._set_out(lessee, max(0, granted - in_hand))
            self._leases += 1
            self._permits += granted
            return _Answer(granted, 0.0)

        return self._pass(take, timeout_s, self._for_rate)

    def give_back(self, permits: int, *, lessee: Hashable = None) -> None:
        """Return permits that were leased and will not be used.

        Args:
            permits: How many; not more than the lessee has left of its lease.
            lessee: Who leased them.
        """
        if permits < 0:
            raise ValueError(f"permits must not be negative, but is {permits}")
        with self._lock:
            self._set_out(lessee, max(0, self._out.get(lessee, 0) - permits))
            self._permits -= permits
            if self._records is not None:
                self._bucket.add(self._records, _RECORDS, amount=permits, held=self._out_sum)
            self._wake()

    def charge_bytes(self, size: int, timeout_s: float | None = None) -> None:
        """Wait until the byte rate lets `size` pass, and count them.

        More bytes than one burst pass when the bucket is full, and leave it in debt: what
        follows waits until the debt is paid.

        Raises:
            RateLimiterTimeoutError: They could not pass in time, and were not counted.
            RateLimiterStoppedError: The limiter was stopped, before or while waiting.
        """
        if size < 0:
            raise ValueError(f"size must not be negative, but is {size}")
        if size == 0:
            return

        def take(_is_last_chance: bool) -> _Answer:
            item = self._bytes
            if item is not None:
                enough = min(size, floor(self._bucket.capacity(item)))
                taken = self._bucket.take(item, _BYTES, least=enough, most=enough)
                if not taken:
                    missing = enough - self._bucket.count(item, _BYTES)
                    return _Answer(0, missing / self._bucket.rate(item))
                if taken < size:
                    self._bucket.add(item, _BYTES, amount=taken - size)
            self._bytes_charged += size
            return _Answer(size, 0.0)

        if not self._pass(take, timeout_s, self._for_byte_rate):
            raise RateLimiterTimeoutError(timeout_s or 0.0, size, self.byte_rate or inf)

    def set_rate(self, records_per_second: float | None) -> None:
        """Set the rate of records, also for waiting threads. None lifts the limit to the ceiling.

        What was saved up stays, up to the new burst. Permits that are out stay valid: a lessee
        that lets a new rate take effect on its open block gives them back first.

        Raises:
            ValueError: The rate is not above 0.
        """
        item = _item_of(_smallest(records_per_second, self._ceiling))
        with self._lock:
            self._replace_item(self._records, item, _RECORDS, held=self._out_sum)
            self._records = item
            if item is not None and not self._was_limited:
                self._was_limited = True
                if not self._leases:
                    # The first record passes at once, as by Guava's limiter.
                    self._bucket.add(item, _RECORDS, amount=1.0, held=self._out_sum)
            self._wake()

    def set_paused(self, is_paused: bool) -> None:
        """Give no permits for records, or give them again; also to who waits now.

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
        item = _item_of(bytes_per_second)
        with self._lock:
            self._replace_item(self._bytes, item, _BYTES, held=0)
            self._bytes = item
            self._wake()

    def stop(self) -> None:
        """Let nothing pass any more; whoever waits gets `RateLimiterStoppedError`. Idempotent."""
        with self._lock:
            self._stopped = True
            self._wake()

    def statistics(self) -> RateLimiterStatistics:
        """Return what the limiter did so far."""
        with self._lock:
            return RateLimiterStatistics(
                rate=self.rate,
                byte_rate=self.byte_rate,
                leases=self._leases,
                permits=self._permits,
                permits_out=self._out_sum,
                bytes_charged=self._bytes_charged,
                waits=self._waits,
                waited_s=self._waited_s,
                waiting=len(self._waiting),
                waited_for_rate_s=self._for_rate.read(),
                waited_for_byte_rate_s=self._for_byte_rate.read(),
            )

    def _pass(
        self, take: Callable[[bool], _Answer], timeout_s: float | None, waits: WaitClock
    ) -> int:
        """Call `take` under the lock until it grants something, and wait between the calls.

        Its argument tells it that there will be no further call.

        Returns:
            What it granted; 0 when the time was over before.
        """
        started_s: float | None = None
        remaining_s = timeout_s
        try:
            while True:
                is_last_chance = remaining_s is not None and remaining_s <= 0
                with self._lock:
                    if self._stopped:
                        raise RateLimiterStoppedError
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
        finally:
            if started_s is not None:
                with self._lock:
                    self._waits += 1
                    self._waited_s += self._clock.monotonic_s() - started_s

    def _set_out(self, lessee: Hashable, n: int) -> None:
        before = self._out.get(lessee, 0)
        if n == before:
            return
        if n < before and self._records is not None:
            # Until now they were out, so until now the bucket filled only up to the rest.
            self._bucket.count(self._records, _RECORDS, held=self._out_sum)
            self._wake()
        self._out_sum += n - before
        if n:
            self._out[lessee] = n
        else:
            self._out.pop(lessee, None)

    def _replace_item(
        self, old: RateLimitItem | None, new: RateLimitItem | None, unit: str, held: int
    ) -> None:
        tokens = 0.0
        if old is not None:
            tokens = self._bucket.count(old, unit, held=held)
            self._bucket.clear(old, unit)
        if new is not None:
            self._bucket.add(new, unit, amount=tokens, held=held)

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()


def _smallest(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _item_of(rate: float | None) -> RateLimitItem | None:
    """Return the rate as the library has it: whole amounts per second, minute, hour or day."""
    if rate is None:
        return None
    if not 0 < rate < inf:
        raise ValueError(f"a rate must be above 0 (None is no limit), not {rate}")
    for unit in _UNITS:
        amount = rate * unit.GRANULARITY.seconds
        if abs(amount - round(amount)) <= 1e-9 * amount:
            return unit(round(amount))
    # Rounded down, so that never more passes than was asked for.
    return RateLimitItemPerDay(max(1, floor(rate * RateLimitItemPerDay.GRANULARITY.seconds)))
