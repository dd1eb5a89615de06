"""Redis and Valkey: entries of streams, elements of lists, messages of channels.

What must hold
--------------

* **Streams**: see `_stream`.
* **Lists.** Each element is moved to a list of this stream, and removed from that when it is
  durable, together with a count; the position has the count of those stored. So what a kill left in
  it is known to be stored, or not.
* **Channels.** What is published while there is no connection is lost.

=============  ===================================================================================
`_stream`      `RedisStreamReceiver`
`_receiver`    what all receivers have in common: a thread, and asking again
=============  ===================================================================================
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypedDict

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import as_count, refused
from penstock.receiver.door import acknowledge_nothing
from penstock.sources._common import Messages, Pace, Reconnecting, in_halves
from penstock.sources.formats import ValueFormat
from penstock.sources.redis._receiver import (
    BLOCK_S,
    MOST_AT_ONCE,
    READ_BYTES,
    RedisReceiver,
    check_names,
)
from penstock.sources.redis._stream import RedisStreamReceiver

__all__ = ["RedisChannelReceiver", "RedisListReceiver", "RedisStreamReceiver"]

_TAKE = """
local source, own, counter = unpack(KEYS)
local removed, durable, held, count, side = unpack(ARGV)
if redis.call('GET', counter) ~= removed then return false end
if durable ~= removed then
  redis.call('LTRIM', own, durable - removed, -1)
  redis.call('SET', counter, durable)
end
if redis.call('LLEN', own) < tonumber(held) then return false end
local found = {}
if tonumber(count) > 0 then
  found = redis.call('LRANGE', own, held, held + count - 1)
end
while #found < tonumber(count) do
  local moved = redis.call('LMOVE', source, own, side, 'RIGHT')
  if not moved then break end
  found[#found + 1] = moved
end
return found
"""
"""Removes what is durable from a receiver's own list, together with its count, and gives elements
behind those that it has stored: what it has by now, and what is moved to it. False if the list is
not as it was left."""
_LIST_ENVELOPE = pa.schema([("list", pa.string())])
_CHANNEL_ENVELOPE = pa.schema([("channel", pa.string()), ("pattern", pa.string())])


class _Position(TypedDict):
    processing: str
    stored: int


class RedisListReceiver(RedisReceiver):
    """Takes the elements of a list of Redis or Valkey, and removes them when they are durable.

    Each element is moved to a list of its own, `processing`, and removed from that when it is
    durable; the key ``<processing>:removed`` counts them. So each is stored once, also after a
    kill, as long as the server keeps what it has confirmed. It is weaker than a stream all the
    same: what is in the list of a receiver that never comes back waits in it, and no other one
    takes it over.

    Args:
        url: As for `RedisStreamReceiver`.
        key: The list.
        side: Which end is taken from: ``"left"`` where programs use ``RPUSH``, ``"right"`` where
            they use ``LPUSH``.
        processing: The key of its own list, which no other one may have; one is made up if None.
        max_pending: Elements that may wait for their blocks.
        columns: Whether records have columns: ``list`` and ``value``.
        values: Makes typed values of the elements.
        options: Further arguments of `redis.Redis`.
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: The client is not installed.
        TypeError, ValueError: An argument is not accepted.
    """

    _position_type = _Position

    def __init__(
        self,
        url: str,
        key: str,
        *,
        side: str = "left",
        processing: str | None = None,
        max_pending: int = 50_000,
        columns: bool = False,
        values: ValueFormat | None = None,
        options: Mapping[str, Any] | None = None,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        check_names(key=key)
        if side not in ("left", "right"):
            raise ValueError(refused("side", side, "'left' or 'right'"))
        messages = Messages(_LIST_ENVELOPE, columns=columns, values=values)
        super().__init__(url, messages, options, storageLevel)
        self.key = key
        self.side = side
        self.processing = processing or f"{key}:penstock:{uuid.uuid4().hex}"
        self.max_pending = as_count(max_pending, "max_pending", "elements", 1)

    def onStart(self) -> None:
        """Start the thread that connects and receives."""
        self._pace = Pace(READ_BYTES)
        self._told = threading.Event()
        # Elements are counted from the first one of the stream of records.
        position = self.lastPosition or {}
        self.processing = position.get("processing", self.processing)
        self._stored = self._durable = position.get("stored", 0)
        self._is_as_left = True
        super().onStart()

    def _serve(self, reconnecting: Reconnecting) -> None:
        self._take_up()
        reconnecting.connected()
        while not self.isStopped():
            found, room = self._take(self._pace.count)
            if found:
                self._pace.note(len(found), sum(map(len, found)), self.max_pending)
                in_halves(self._store, found)
            elif room:
                move = (self.key, self.processing, self.side.upper(), "RIGHT")
                self._command("BLMOVE", *move, self._block_s)
            else:
                self._told.wait(BLOCK_S)
                self._told.clear()
        self._take(0)

    def _take_up(self) -> None:
        """Find out which elements of its own list are stored, and have the count say so."""
        with self._client.pipeline(transaction=True) as asked:
            asked.get(f"{self.processing}:removed").llen(self.processing)
            counted, length = asked.execute()
        is_known = self._is_as_left and counted is not None
        known = self._stored - int(counted) if is_known else 0
        if known > length or (self._stored and not is_known):
            self.reportError(
                f"The list {self.processing!r} or its count is not as this receiver left it, so "
                "elements may come twice: the server lost a part, or another program changed it"
            )
        # Where the count does not fit nothing is known of the contents, and they are stored.
        held = known if 0 <= known <= length else 0
        self._removed = self._stored - held
        if not is_known or held != known:
            self._command("SET", f"{self.processing}:removed", self._removed)
        self._is_as_left = True

    def _take(self, most: int) -> tuple[list[bytes], int]:
        """Remove what is durable; return elements to store, and for how many there was room."""
        durable = max(self._durable, self._removed)
        held = self._stored - durable
        room = max(0, self.max_pending - held)
        keys = (self.key, self.processing, f"{self.processing}:removed")
        values = (self._removed, durable, held, min(most, room), self.side.upper())
        found = self._command("EVAL", _TAKE, len(keys), *keys, *values)
        if found is None:
            self._is_as_left = False
            raise OSError(f"the list {self.processing!r} is not as this receiver left it")
        self._removed = durable
        return found, room

    def _store(self, elements: Sequence[bytes]) -> None:
        end = self._stored + len(elements)
        place = {"processing": self.processing, "stored": end}
        lists = {"list": [self.key] * len(elements)}
        self._messages.store(self, elements, lists, place, partial(self._note, end))
        self._stored = end

    def _note(self, durable: int) -> None:
        self._durable = durable
        self._told.set()


class RedisChannelReceiver(RedisReceiver):
    """Stores what is published to channels of Redis or Valkey: what arrives while it listens.

    The server keeps nothing. What is published while there is no connection is lost, also around
    a restart, and so is what this process had taken and not stored when it was killed. When the
    batches cannot keep up, the server ends the connection once its buffer for it is full
    (``client-output-buffer-limit pubsub``). Use a stream to have more.

    Args:
        url: As for `RedisStreamReceiver`.
        channels: Their names; or one name.
        patterns: Patterns of names, as for ``PSUBSCRIBE``; or one. What several of them match comes
            once for each.
        columns: Whether records have columns: ``channel``, ``pattern`` and ``value``.
        values: Makes typed values of the messages.
        options: Further arguments of `redis.Redis`.
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: The client is not installed.
        TypeError, ValueError: An argument is not accepted.
    """

    def __init__(
        self,
        url: str,
        channels: Sequence[str] | str = (),
        *,
        patterns: Sequence[str] | str = (),
        columns: bool = False,
        values: ValueFormat | None = None,
        options: Mapping[str, Any] | None = None,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        self.channels = [channels] if isinstance(channels, str) else list(channels)
        self.patterns = [patterns] if isinstance(patterns, str) else list(patterns)
        for name in (*self.channels, *self.patterns):
            check_names(channels=name)
        if not (self.channels or self.patterns):
            raise ValueError("a RedisChannelReceiver needs at least one channel or pattern")
        messages = Messages(_CHANNEL_ENVELOPE, columns=columns, values=values)
        super().__init__(url, messages, options, storageLevel)

    def _serve(self, reconnecting: Reconnecting) -> None:
        import redis

        patience_s = self._answer_s
        with self._client.pubsub() as listening:
            if self.channels:
                listening.subscribe(*self.channels)
            if self.patterns:
                listening.psubscribe(*self.patterns)
            heard_s = asked_s = time.monotonic()
            while not self.isStopped():
                messages, is_heard = self._next(listening)
                now_s = time.monotonic()
                if is_heard:
                    heard_s = asked_s = now_s
                    reconnecting.connected()
                elif now_s > heard_s + patience_s:
                    raise redis.TimeoutError("it does not answer a PING")
                elif now_s > asked_s + patience_s / 3:
                    listening.ping()
                    asked_s = now_s
                if messages:
                    in_halves(self._store, messages)

    def _next(self, listening: Any) -> tuple[list[dict[str, Any]], bool]:
        """Return messages that have arrived, and whether anything has."""
        messages: list[dict[str, Any]] = []
        size = 0
        found = listening.get_message(timeout=self._block_s)
        is_heard = found is not None
        while found is not None:
            if found["type"] in ("message", "pmessage"):
                messages.append(found)
                size += len(found["data"])
            if size > READ_BYTES or len(messages) >= MOST_AT_ONCE:
                break
            found = listening.get_message(timeout=0)
        return messages, is_heard

    def _store(self, messages: Sequence[dict[str, Any]]) -> None:
        envelope = {
            name: [each[name] and each[name].decode(errors="replace") for each in messages]
            for name in _CHANNEL_ENVELOPE.names
        }
        payloads = [each["data"] for each in messages]
        self._messages.store(self, payloads, envelope, ack=acknowledge_nothing)
