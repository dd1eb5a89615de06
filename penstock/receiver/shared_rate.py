"""`SharedRate`: records per second that the receivers of several applications share.

The bucket is in a Redis or Valkey server (`RedisTokenBuckets`), which the `limits` library's
storage reaches. Permits are taken from it in leases, so that a round trip serves many records, and
a lease is good for a short time only: what is not used by then is lost. So no one has to learn what
a killed process had left, and over any window of a second or longer all together let pass no more
than rate x window plus one burst: the capacity of the bucket is smaller than the burst by what may
be out.

A server that does not answer lets nothing through. That is the safe choice: what the total
protects is protected, nothing is lost, `store` waits as it does for a full queue, and everything
goes on when the server answers again. Each call of the server is bounded, and `stop` ends the wait.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from importlib import import_module
from math import floor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.errors import PenstockError
from penstock.receiver.door import ReceiverStoppedError
from penstock.receiver.rate_limiter import (
    SOON_S,
    STOPPED,
    RateLimiter,
)
from penstock.runtime.clock import Clock, SystemClock, WaitClock
from penstock.settings import Settings
from penstock.settings.values import rate_per_second

if TYPE_CHECKING:
    from limits.storage import RedisStorage

_LOWEST_S = 60
"""How long a lower rate holds after an application last asked for it."""
_IDLE_S = 3600
"""Idle time after which a bucket is forgotten; the next one begins empty."""

_SCRIPT = """
local rate, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
local least, most = tonumber(ARGV[3]), tonumber(ARGV[4])
local lowest_us, idle_s = tonumber(ARGV[5]) * 1000000, tonumber(ARGV[6])
local least_s, bulk_s = tonumber(ARGV[7]), tonumber(ARGV[8])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local found = redis.call('HMGET', KEYS[1], 'tokens', 'at', 'rate', 'rate_at')
local tokens, at = tonumber(found[1]) or 0, tonumber(found[2]) or now
local low, low_at = tonumber(found[3]), tonumber(found[4]) or 0
if low and low < rate and now - low_at < lowest_us then
    capacity = math.max(1, capacity * low / rate)
    rate = low
    least = math.min(least, math.max(1, math.floor(rate * least_s)))
    most = math.min(most, math.max(1, math.floor(rate * bulk_s)))
else
    low_at = now
end
tokens = math.min(capacity, tokens + rate * math.max(0, now - at) / 1000000)
local taken = 0
-- With a short burst the bucket never holds a whole lease.
least = math.min(least, math.floor(capacity))
if tokens >= least then
    taken = math.max(0, math.min(most, math.floor(tokens)))
end
tokens = tokens - taken
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens),
    'at', string.format('%.0f', now), 'rate', string.format('%.17g', rate),
    'rate_at', string.format('%.0f', low_at))
redis.call('EXPIRE', KEYS[1], idle_s)
return taken
"""


class RedisTokenBuckets:
    """Token buckets in a server that the library's storage reaches. Each call is atomic for all.

    A call first refills the bucket of `key`: by `rate` tokens for each second since it was last
    refilled, up to `capacity`. A missing bucket begins empty, so one that is lost with its server
    lets nothing through twice. When users name different rates for a bucket, the lowest that was
    asked for in the last minute holds. Needs Redis 5 or later, or Valkey. What the client raises
    (`failures`) goes to the caller.

    Args:
        storage: The library's.
    """

    def __init__(self, storage: RedisStorage) -> None:
        self._storage = storage
        found = storage.base_exceptions
        self.failures: tuple[type[Exception], ...] = (
            (*found, OSError) if isinstance(found, tuple) else (found, OSError)
        )
        """What is raised when the server cannot be used."""
        self._token_script: Any = self.get_connection().register_script(_SCRIPT.encode())

    def get_connection(self) -> Any:
        """Return the client."""
        return self._storage.get_connection()

    def reconnect(self) -> None:
        """Make the next call on a connection of its own, also where the one there is answers.

        After a fail-over the address leads to another server, and the one before, a replica now,
        refuses anyone who stays with it.
        """
        self.get_connection().connection_pool.disconnect()

    def take_tokens(self, key: str, rate: float, capacity: float, least: int, most: int) -> int:
        """Take as many whole tokens as there are, up to `most`; none if fewer than `least`.

        Where a lower rate holds, both are at most what leases are at that one.
        """
        arguments = [rate, capacity, least, most, _LOWEST_S, _IDLE_S, _LEAST_S, _BULK_S]
        return int(self._token_script([self._storage.prefixed_key(key)], arguments))

    def close(self) -> None:
        """Let go of the connections."""
        self.get_connection().close()


CALL_S = 1.0
"""How long the server may take to accept a connection, and again to answer."""

_LEASE_S = 0.2
"""How long a lease is valid (at most a quarter of the burst), counted from before the request."""
_LATE = 1.25
"""The factor by which leased permits may be used late. A process can be held up between permit and
record, and a receiver may keep `_IN_HAND_S` of the rate for longer; fifty may do so at once."""
_BULK_S = 0.05
"""The largest lease, in seconds of the rate: no receiver may empty the bucket of the others."""
_LEAST_S = 0.005
"""The smallest lease that is worth a round trip, in seconds of the rate; at least one permit."""
_IN_HAND_S = 0.001
"""What one thread may hold beyond the record that it stores, in seconds of the rate."""
_LONGEST_WAIT_S = 0.25
_MOST_MISSES = 10
_LATE_ANSWERS = 3
_RETRY_S = 0.5

_log = logging.getLogger("penstock.receiver")


class SharedRateError(PenstockError):
    """The server that holds the shared rate cannot be used.

    Attributes:
        storage: Its address, without a password.
        reason: Why.
    """

    def __init__(self, storage: str, reason: str) -> None:
        super().__init__(
            f"the shared rate in {storage} cannot be used: {reason.rstrip('.')}. Nothing passes "
            "without it; see spark.penstock.sharedRate.storage and passwordFile"
        )
        self.storage = storage
        self.reason = reason


@dataclass(frozen=True)
class SharedRatePlace:
    """Which rate, and where it is kept; picklable, for the closures of receivers.

    Attributes:
        storage: The server's address in the `limits` library's form, without a password.
        key: Names the rate in that server.
        records_per_second: Of all who share it.
        burst_s: How much may be saved up, in seconds of the rate.
        password: The server's, or None; not in the repr.
    """

    storage: str
    key: str
    records_per_second: float
    burst_s: float
    password: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, settings: Settings) -> SharedRatePlace | None:
        """Return what the settings ask for; None when they ask for none. Called on the driver.

        Raises:
            SharedRateError: The file with the password cannot be read.
        """
        storage, rate = settings.shared_rate_storage, settings.shared_rate
        if storage is None or rate is None:
            return None
        password = None
        if settings.shared_rate_password_file is not None:
            try:
                with open(settings.shared_rate_password_file, encoding="utf-8") as file:
                    password = file.read().strip()
            except (OSError, UnicodeDecodeError) as error:
                kind = type(error).__name__
                reason = f"{settings.shared_rate_password_file} cannot be read ({kind})"
                raise SharedRateError(storage, reason) from None
        return cls(
            storage,
            settings.shared_rate_key,
            rate_per_second(rate),
            settings.receiver_burst_s,
            password,
        )

    def connect(self) -> RedisTokenBuckets:
        """Return the storage; nothing is sent yet.

        Raises:
            SharedRateError: The client is not installed.
        """
        # Few programs share a rate, and the library takes a tenth of a second to import.
        from limits.errors import ConfigurationError
        from limits.storage import RedisStorage

        client = "valkey" if urlsplit(self.storage).scheme.startswith("valkey") else "redis"
        try:
            # A call that is tried again by the client would take longer than it may.
            no_retry = import_module(f"{client}.retry").Retry(
                import_module(f"{client}.backoff").NoBackoff(), 0
            )
            options: dict[str, Any] = {} if self.password is None else {"password": self.password}
            storage = RedisStorage(
                self.storage,
                key_prefix="penstock",
                socket_timeout=CALL_S,
                socket_connect_timeout=CALL_S,
                retry=no_retry,
                **options,
            )
        except (ImportError, ConfigurationError):
            way_out = f"pip install 'penstock[{client}]' on the driver and the executors"
            raise SharedRateError(self.storage, f"its client is missing; {way_out}") from None
        return RedisTokenBuckets(storage)

    def check(self) -> None:
        """Use the server once, so that a mistake shows before anything runs.

        Raises:
            SharedRateError: It cannot be used.
        """
        buckets = self.connect()
        try:
            # To more than that the server does not say that a password is missing.
            buckets.get_connection().ping()
            buckets.take_tokens(self.key, self.records_per_second, self.capacity, 0, 0)
        except buckets.failures as error:
            raise SharedRateError(self.storage, str(error)) from error
        finally:
            buckets.close()

    @property
    def lease_s(self) -> float:
        """How long a lease is good for."""
        return min(_LEASE_S, self.burst_s / 4)

    @property
    def capacity(self) -> float:
        """What the bucket holds at most: a burst, less what may be out."""
        return max(1.0, self.records_per_second * (self.burst_s - _LATE * self.lease_s))


class SharedRate:
    """One receiver's way to the bucket; usable from any thread.

    `_lock` guards the lease. `_asking` is held by the one thread that waits for the server, and
    guards what is counted of its answers.

    Args:
        place: Which rate.
        buckets: Where it is; by default what `place` names.
        on_error: Notified once when the server cannot be used, and again only after it could.
        clock: Monotonic time.
    """

    def __init__(
        self,
        place: SharedRatePlace,
        *,
        on_error: Callable[[str, BaseException], None],
        buckets: RedisTokenBuckets | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._place = place
        self._buckets = place.connect() if buckets is None else buckets
        self._on_error = on_error
        self._clock: Clock = SystemClock() if clock is None else clock
        rate = place.records_per_second
        self._least = max(1, floor(rate * _LEAST_S))
        self._bulk = max(1, floor(rate * _BULK_S))
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._stopped = threading.Event()
        self._left = 0
        self._good_until_s = 0.0
        self._lease = 1
        self._is_down = False
        self._late = 0
        self._misses = 0
        self.most_in_hand = max(1, floor(rate * _IN_HAND_S))
        """The permits that a thread may have in hand for records that it does not have yet."""
        self.waiting = 0
        """How many threads wait at this moment."""
        self.waits = WaitClock(self._clock.monotonic_s)
        """How long they have waited, all together."""

    def take(self, wanted: int, timeout_s: float | None) -> int:
        """Take 1 to `wanted` permits for records that pass at once; wait until there are some.

        Args:
            wanted: At least 1.
            timeout_s: How long to wait, and at most one call of the server longer; None for ever.

        Returns:
            How many; 0 when none came in time.

        Raises:
            ReceiverStoppedError: It was stopped, before or while waiting.
        """
        granted = self._take_left(wanted)
        if granted:
            return granted
        with self._lock:
            self.waiting += 1
        try:
            with self.waits:
                return self._wait_for(wanted, timeout_s)
        finally:
            with self._lock:
                self.waiting -= 1

    def _wait_for(self, wanted: int, timeout_s: float | None) -> int:
        began_s = self._clock.monotonic_s()
        while True:
            with self._asking:
                # Another thread may have fetched a lease meanwhile.
                granted = self._take_left(wanted)
                pause_s = 0.0 if granted else self._ask(wanted)
            granted = granted or self._take_left(wanted)
            if granted:
                return granted
            if timeout_s is not None:
                left_s = timeout_s - (self._clock.monotonic_s() - began_s)
                if left_s <= 0:
                    return 0
                pause_s = min(pause_s, left_s)
            self._clock.wait(self._stopped, pause_s)

    @property
    def passes_soon(self) -> bool:
        """Whether anything may pass within a second, as far as it can be known from here."""
        return not self._is_down and self._place.records_per_second * SOON_S >= 1

    def stop(self) -> None:
        """Let nothing pass any more, and close the connection; idempotent."""
        self._stopped.set()
        self._buckets.close()

    def _take_left(self, wanted: int) -> int:
        if self._stopped.is_set():
            raise ReceiverStoppedError(STOPPED)
        with self._lock:
            if self._clock.monotonic_s() >= self._good_until_s:
                return 0
            granted = min(wanted, self._left)
            self._left -= granted
            return granted

    def _ask(self, wanted: int) -> float:
        """Ask for a lease; returns how long to wait before the next try, if there is none."""
        place = self._place
        began_s = self._clock.monotonic_s()
        with self._lock:
            # One that is used up while it is good was too small; one that is not, too large.
            is_used_up = self._left == 0 and began_s < self._good_until_s
            self._lease = min(self._bulk, max(wanted, 2 * self._lease if is_used_up else 1))
            lease = self._lease
        least = min(lease, self._least)
        rate = place.records_per_second
        try:
            taken = self._buckets.take_tokens(place.key, rate, place.capacity, least, lease)
        except self._buckets.failures as error:
            self._buckets.reconnect()
            self._fail(str(error), error)
            return _RETRY_S
        took_s = self._clock.monotonic_s() - began_s
        if taken and took_s >= place.lease_s:
            # What was taken is lost. Once may be this machine's fault.
            self._late += 1
            if self._late >= _LATE_ANSWERS:
                reason = f"it takes {took_s:.2f} s to answer; {place.lease_s:g} s is the most"
                self._fail(reason, None)
            return _RETRY_S
        self._late = 0
        if self._is_down:
            self._is_down = False
            _log.info("the shared rate in %s can be used again", place.storage)
        if taken:
            self._misses = 0
            with self._lock:
                self._left, self._good_until_s = taken, began_s + place.lease_s
            return 0.0
        # The more wait, the longer each; and not all until the same moment, or the same one would
        # find the tokens each time.
        soonest_s = least / rate
        pause_s = max(soonest_s, min(_BULK_S, soonest_s * (1 << self._misses)))
        self._misses = min(self._misses + 1, _MOST_MISSES)
        return min(_LONGEST_WAIT_S, random.uniform(0.5, 1.5) * pause_s)

    def _fail(self, reason: str, cause: BaseException | None) -> None:
        if self._is_down or self._stopped.is_set():
            return
        self._is_down = True
        error = SharedRateError(self._place.storage, reason)
        error.__cause__ = cause
        self._on_error("Nothing passes until the shared rate can be used again", error)


class SharedRateLimiter(RateLimiter):
    """A `RateLimiter` whose permits are also taken from a `SharedRate`, the last.

    Attributes:
        shared: The shared rate; None until it is set, which is before the first lease.
    """

    shared: SharedRate | None = None

    def lease(
        self,
        wanted: int,
        timeout_s: float | None = None,
        *,
        in_hand: int = 1,
        lessee: Hashable = None,
    ) -> int:
        """See `RateLimiter.lease`; leases in advance are small, as shared permits do not keep."""
        shared = self.shared
        if shared is None:
            return super().lease(wanted, timeout_s, in_hand=in_hand, lessee=lessee)
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        most = min(wanted, max(in_hand, shared.most_in_hand))
        granted = super().lease(most, timeout_s, in_hand=in_hand, lessee=lessee)
        if not granted:
            return 0
        passed = 0
        try:
            left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
            passed = shared.take(granted, left_s)
        finally:
            if passed < granted:
                self.give_back(granted - passed, lessee=lessee)
        return passed

    @property
    def passes_soon(self) -> bool:
        """See `RateLimiter.passes_soon`."""
        return super().passes_soon and (self.shared is None or self.shared.passes_soon)

    def stop(self) -> None:
        """See `RateLimiter.stop`."""
        super().stop()
        if self.shared is not None:
            self.shared.stop()

    @property
    def waiting(self) -> int:
        """See `RateLimiter.waiting`; threads that wait for the shared rate are also counted."""
        return super().waiting + (0 if self.shared is None else self.shared.waiting)

    @property
    def waited_for_shared_rate_s(self) -> float:
        """See `RateLimiter.waited_for_shared_rate_s`."""
        return 0.0 if self.shared is None else self.shared.waits.read()
