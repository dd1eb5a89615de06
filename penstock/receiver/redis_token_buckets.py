"""Token buckets that lie in Redis or Valkey, so that several applications share them.

They extend the `limits` library's own storage, which brings the addresses, TLS and the client. One
script does each operation whole, on the server: so it is atomic for all who share a bucket, and
counts time by the server's clock alone.
"""

from __future__ import annotations

from typing import Any

from limits.storage import RedisStorage

__all__ = ["RedisTokenBuckets"]

_LOWEST_S = 60
"""How long a lower rate holds after an application last asked for it."""
_IDLE_S = 3600
"""Idle time after which a bucket is forgotten; the next one begins empty."""

_SCRIPT = """
local rate, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
local amount, least, most = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local lowest_us, idle_s = tonumber(ARGV[6]) * 1000000, tonumber(ARGV[7])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local found = redis.call('HMGET', KEYS[1], 'tokens', 'at', 'rate', 'rate_at')
local tokens, at = tonumber(found[1]) or 0, tonumber(found[2]) or now
local low, low_at = tonumber(found[3]), tonumber(found[4]) or 0
if low and low < rate and now - low_at < lowest_us then
    capacity = math.max(1, capacity * low / rate)
    rate = low
else
    low_at = now
end
tokens = math.min(capacity, tokens + rate * math.max(0, now - at) / 1000000)
tokens = math.min(capacity, tokens + amount)
local taken = 0
if tokens >= least then
    taken = math.max(0, math.min(most, math.floor(tokens)))
end
tokens = tokens - taken
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens),
    'at', string.format('%.0f', now), 'rate', string.format('%.17g', rate),
    'rate_at', string.format('%.0f', low_at))
redis.call('EXPIRE', KEYS[1], idle_s)
return {taken, string.format('%.6f', tokens)}
"""


class RedisTokenBuckets(RedisStorage):
    """The library's storage, which also holds token buckets. Each call is atomic for all users.

    A call first refills the bucket of `key`: by `rate` tokens for each second since it was last
    refilled, up to `capacity`. A bucket that is not there begins empty, so one that is lost with
    its server lets nothing through twice. When users name different rates for a bucket, the lowest
    holds that somebody asked for in the last minute. The time that callers give is not used. Needs
    Redis 5 or later, or Valkey. What the client raises (`failures`) goes to the caller.

    Args: those of `limits.storage.RedisStorage`.
    """

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What is raised when the server cannot be used."""
        found = self.base_exceptions
        return (*found, OSError) if isinstance(found, tuple) else (found, OSError)

    def initialize_storage(self, _uri: str) -> None:
        """Register the scripts; the library calls this once."""
        super().initialize_storage(_uri)
        self._token_script: Any = self.get_connection().register_script(_SCRIPT.encode())

    def take_tokens(
        self, key: str, rate: float, capacity: float, now_s: float, least: int, most: int
    ) -> int:
        """Take as many whole tokens as there are, up to `most`; none if fewer than `least`."""
        return self._run(key, rate, capacity, 0.0, least, most)[0]

    def add_tokens(
        self, key: str, rate: float, capacity: float, now_s: float, amount: float
    ) -> None:
        """Add tokens, up to `capacity`. A negative amount may leave the bucket in debt."""
        self._run(key, rate, capacity, amount, 0, 0)

    def count_tokens(self, key: str, rate: float, capacity: float, now_s: float) -> float:
        """Return how many tokens there are, negative for a debt."""
        return self._run(key, rate, capacity, 0.0, 0, 0)[1]

    def _run(
        self, key: str, rate: float, capacity: float, amount: float, least: int, most: int
    ) -> tuple[int, float]:
        arguments = [rate, capacity, amount, least, most, _LOWEST_S, _IDLE_S]
        taken, tokens = self._token_script([self.prefixed_key(key)], arguments)
        return int(taken), float(tokens)
