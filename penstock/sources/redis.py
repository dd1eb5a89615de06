"""Redis and Valkey: entries of streams, elements of lists, messages of channels.

What must hold
--------------

* **Streams.** An entry is acknowledged (``XACK``) when it is durable, and not before. The position
  names every entry that is stored and not known to be acknowledged: one that is given again after
  a kill is acknowledged only, if the position names it, and stored if not. Nothing is concluded
  from the order of entry ids: other consumers, claimed entries, and an older attempt that still
  runs cannot make it wrong.
* What ``XREADGROUP`` gives in one answer is all that the stream has between its first and its last
  id, so the position names it by these two.
* What waits for its block does not become idle: its time is set back, so that no other consumer
  takes it over while this one is alive.
* Where an answer may be lost, with its connection, all that the server has given to this consumer
  is asked for again. So no command is repeated by the client.
* **Lists.** Each element is moved to a list of this stream, and removed from there when it is
  durable, together with a count; the position has the count of those stored. So what a kill left
  there is known to be stored, or not.
* **Channels.** What is published while there is no connection is lost.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import refused
from penstock.errors import PenstockError, text_of
from penstock.receiver import Receiver, RecordTooLargeError
from penstock.sources._common import Messages, Pace, Reconnecting, check_installed
from penstock.sources.formats import ValueFormat
from penstock.threads import OwnedThread

__all__ = ["RedisChannelReceiver", "RedisListReceiver", "RedisStreamReceiver"]

_URL = "an address such as redis://host:6379/0, rediss://…, valkey://… or unix:///path"
_SCHEMES = {"redis", "rediss", "valkey", "valkeys", "unix"}
_BLOCK_S = 0.5
"""How long the server may let one command wait: a stop waits for that."""
_ANSWER_S = 10.0
_CLAIM_S = 60.0
_CONNECT_S = 10.0
_STOP_S = 3.0
_LOOK_EVERY_S = 1.0
_MOST_RANGES = 64
"""Answers whose entries are not acknowledged yet; each is in the position by two ids."""
_MOST_CLAIMED = 500
"""Entries, beside those, that the position names one by one."""
_READ_BYTES = 1 << 19
"""About what one answer should have: the number of entries asked for follows their size."""
_LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999; ids that a program made may be beyond."""
_ACK_AT_ONCE = 1000
_REMOVE = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('LTRIM', KEYS[1], ARGV[2] - ARGV[1], -1)
redis.call('SET', KEYS[2], ARGV[2])
return 1
"""
"""Removes elements from a list together with their count, if it is as it was left."""


_log = logging.getLogger("penstock.sources")

Id = tuple[int, int]


class _RedisReceiver(Receiver):
    """What the three have in common: a thread that receives, and connects again."""

    requires = ("redis",)

    def __init__(
        self,
        url: str,
        messages: Messages,
        options: Mapping[str, Any] | None,
        storageLevel: StorageLevel | str,
    ) -> None:
        super().__init__(storageLevel)
        check_installed("redis", f"a {type(self).__name__}", "redis")
        # Not shown: an address may have a password in it.
        parts = urlsplit(str(url))
        if parts.scheme not in _SCHEMES:
            raise ValueError(f"the url of a {type(self).__name__} is not accepted: {_URL}")
        at = parts.path if parts.scheme == "unix" else parts.netloc.rpartition("@")[2]
        self._url = url
        self._options = dict(options or {})
        self._answer_s: float = self._options.setdefault("socket_timeout", _ANSWER_S) or _ANSWER_S
        self._block_s = min(_BLOCK_S, self._answer_s / 2)
        self._server = f"Redis server at {at}"
        self._messages = messages
        self.schema = messages.schema
        self._reset()

    def _reset(self) -> None:
        self._client: Any = None
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def __getstate__(self) -> dict[str, Any]:
        own = ("_client", "_stopping", "_threads")
        return {name: value for name, value in super().__getstate__().items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def onStart(self) -> None:
        """Start the thread that connects and receives."""
        self._reset()
        self._client = self._make_client()
        self._start_thread(self._run, "redis")

    def onStop(self) -> None:
        """Wait for the threads; all that was stored is durable, and what came of it is told."""
        self._stopping.set()
        end_s = time.monotonic() + _STOP_S
        for thread in self._threads:
            thread.join(max(0.0, end_s - time.monotonic()))
        # One that still waits for an answer wakes from that, with an error.
        self._client.connection_pool.disconnect()
        for thread in self._threads:
            thread.join(1.0)

    def _start_thread(self, function: Callable[[], None], name: str) -> None:
        thread = OwnedThread(function, f"{name}-{self.streamId}")
        self._threads.append(thread)
        thread.start()

    def _make_client(self) -> Any:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        url = self._url.replace("valkey", "redis", 1) if self._url[0] == "v" else self._url
        client = redis.Redis.from_url(  # type: ignore[no-untyped-call, unused-ignore]
            url,
            **{
                "socket_connect_timeout": _CONNECT_S,
                **self._options,
                "retry": Retry(NoBackoff(), 0),  # type: ignore[no-untyped-call, unused-ignore]
                "protocol": 2,
                "decode_responses": False,
            },
        )
        for command in ("XREADGROUP", "XAUTOCLAIM", "XCLAIM", "XINFO GROUPS", "XINFO STREAM"):
            client.set_response_callback(command, _as_it_is)
        return client

    def _command(self, *parts: Any) -> Any:
        return self._client.execute_command(*parts)

    def _run(self) -> None:
        import redis

        reconnecting = Reconnecting(self.reportError, self._server)
        while not self.isStopped():
            try:
                self._receive(reconnecting)
            except (redis.RedisError, OSError) as error:
                if self.isStopped():
                    return
                if _is_gone(error):
                    self.restart(f"{self._what_is_gone()}: {text_of(error)}", error)
                    return
                # Also where it is one of the server: its name may lead to another one by now. A
                # connection that another thread uses is that thread's, which meets its own error.
                self._client.connection_pool.disconnect(inuse_connections=False)
                self._stopping.wait(reconnecting.failed(error))
            except PenstockError as error:
                if not self.isStopped():
                    self.restart(f"Error storing what the {self._server} gave: {error}", error)
                return

    def _receive(self, reconnecting: Reconnecting) -> None:
        """Receive until it is stopped, or the connection ends by an error."""
        raise NotImplementedError

    def _what_is_gone(self) -> str:
        return f"What is read at the {self._server} is gone"


class RedisStreamReceiver(_RedisReceiver):
    """Reads a stream of Redis or Valkey as a consumer of a group, and acknowledges what is durable.

    A new group begins at `start`; one that vanished begins after the last entry that this stream
    of records has. Entries that other consumers have had for longer than `claim_after_s` are taken
    over: these consumers are dead, as a live one of this class keeps its entries from that.

    Each entry is stored once, also after a kill. Only what another consumer of the group had
    stored, and was killed before it acknowledged it, comes twice when it is taken over.

    Args:
        url: The server: ``redis://user:password@host:port/database``, ``rediss://`` with TLS,
            ``valkey://``, ``valkeys://``, ``unix://``; not in any message.
        stream: The key of the stream.
        group: The consumer group; made if it is missing, and the stream with it.
        field: The field whose value is the record. None: the record is a JSON object of all
            fields, which must be text.
        start: What a new group begins after: ``"0"`` is the stream's beginning, ``"$"`` its end.
        claim_after_s: Seconds without a sign of life after which another consumer's entries are
            taken over; None: never.
        max_pending: Entries that may wait for their blocks.
        consumer: The consumer's name; one of its own if None.
        columns: Whether records have columns: ``stream``, ``id``, ``time`` (of the id), ``fields``
            (those beside `field`) and ``value``.
        values: Makes typed values of the records.
        options: Further arguments of `redis.Redis`, such as ``{"password": …}`` or
            ``{"ssl_ca_certs": …}``.
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: The client is not installed.
        TypeError, ValueError: An argument is not accepted.
    """

    def __init__(
        self,
        url: str,
        stream: str,
        group: str,
        *,
        field: str | None = None,
        start: str = "0",
        claim_after_s: float | None = _CLAIM_S,
        max_pending: int = 50_000,
        consumer: str | None = None,
        columns: bool = False,
        values: ValueFormat | None = None,
        options: Mapping[str, Any] | None = None,
        storageLevel: StorageLevel | str = StorageLevel.MEMORY_AND_DISK_2,
    ) -> None:
        _check_names(stream=stream, group=group)
        if claim_after_s is not None and not claim_after_s >= 0.1:
            raise ValueError(refused("claim_after_s", claim_after_s, "0.1 or more, or None"))
        if max_pending < 1:
            raise ValueError(refused("max_pending", max_pending, "1 or more"))
        messages = Messages(_STREAM_ENVELOPE, columns=columns, values=values)
        super().__init__(url, messages, options, storageLevel)
        self.stream = stream
        self.group = group
        self.field = field
        self.start = start
        self.claim_after_s = claim_after_s
        self.max_pending = max_pending
        self.consumer = consumer or f"penstock-{uuid.uuid4().hex}"

    def _reset(self) -> None:
        super()._reset()
        self._taken = _Taken()
        self._joined = threading.Event()
        self._lag: int | None = None
        self._pace = Pace(_READ_BYTES)
        self._next_claim_s = 0.0

    def __getstate__(self) -> dict[str, Any]:
        own = ("_taken", "_joined", "_lag", "_pace", "_next_claim_s")
        return {name: value for name, value in super().__getstate__().items() if name not in own}

    def onStart(self) -> None:
        """Start the thread that connects and receives, and the one that acknowledges."""
        super().onStart()
        self._start_thread(self._keep, "redis-acks")

    def onStop(self) -> None:
        """Wait until what is durable is acknowledged, for a bounded time."""
        self._taken.wake()
        super().onStop()

    def _source_lag(self) -> int | None:
        return self._lag

    def _what_is_gone(self) -> str:
        return (
            f"The group {self.group!r} of the stream {self.stream!r} at the {self._server} is "
            "gone; it is made again"
        )

    # -- receiving -------------------------------------------------------------------------------

    def _receive(self, reconnecting: Reconnecting) -> None:
        if not self._joined.is_set():
            self._join()
            self._joined.set()
        self._take_up()
        reconnecting.connected()
        while not self.isStopped():
            room = self._taken.wait_for_room(_MOST_RANGES, self.max_pending, _BLOCK_S)
            if not room:
                continue
            entries = self._read(">", min(room, self._pace.count), self._block_s)
            if entries:
                self._note(entries)
                self._store(entries, is_whole=True)
            if self.claim_after_s is not None and time.monotonic() >= self._next_claim_s:
                self._claim(self.claim_after_s)
                self._next_claim_s = time.monotonic() + self.claim_after_s / 2

    def _join(self) -> None:
        """Make sure of the group. A new one begins after what this stream of records has."""
        import redis

        try:
            self._read("0", 1)
            return
        except redis.ResponseError as error:
            if not _is_gone(error):
                raise
        position = self.lastPosition or {}
        start = self.start
        if last := position.get("id"):
            start = last if self._last_id() >= _parsed(last) else "0"
        try:
            self._command("XGROUP", "CREATE", self.stream, self.group, start, "MKSTREAM")
        except redis.ResponseError as error:
            # Another consumer was quicker.
            if "BUSYGROUP" not in str(error):
                raise
            return
        if last:
            where = f"after the entry {last}" if start == last else "at its beginning"
            self.reportError(
                f"The group {self.group!r} of the stream {self.stream!r} was gone: it is made "
                f"again, and begins {where}. What other consumers of it had not acknowledged "
                "is known to none"
            )

    def _last_id(self) -> Id:
        import redis

        try:
            found = self._command("XINFO", "STREAM", self.stream)
        except redis.ResponseError as error:
            if not _is_gone(error):
                raise
            return (0, 0)
        return _parsed(dict(zip(found[::2], found[1::2], strict=True))[b"last-generated-id"])

    def _take_up(self) -> None:
        """Go through all that the server gave to this consumer and has no acknowledgement of."""
        position = self.lastPosition or {}
        self.consumer = position.get("consumer", self.consumer)
        self._taken.last_id = max(position.get("id", "0-0"), self._taken.last_id, key=_parsed)
        stored = _Ids(position.get("stored", ""))
        # First all of these: what is stored next has a position without them.
        for entries in self._given_before():
            if known := [each.id for each in entries if each.id in stored]:
                self._command("XACK", self.stream, self.group, *known)
        for entries in self._given_before():
            self._store_others(entries)

    def _given_before(self) -> Iterator[list[_Entry]]:
        after = "0"
        while not self.isStopped() and (entries := self._read(after, self._count())):
            after = entries[-1].id
            self._note(entries)
            if new := [each for each in entries if not self._taken.has(each.id)]:
                yield new

    def _claim(self, after_s: float) -> None:
        """Take over what other consumers have had for long."""
        cursor: Any = "0-0"
        while not self.isStopped():
            cursor, found, *rest = self._command(
                *("XAUTOCLAIM", self.stream, self.group, self.consumer, int(after_s * 1000)),
                *(cursor, "COUNT", self._count()),
            )
            entries = [_Entry.of(each) for each in found if each is not None]
            self._note(entries)
            if rest and rest[0]:
                self._tell_deleted([each.decode() for each in rest[0]])
            self._store_others([each for each in entries if not self._taken.has(each.id)])
            if cursor == b"0-0":
                return

    def _count(self) -> int:
        return min(_MOST_CLAIMED, self._pace.count)

    def _note(self, entries: list[_Entry]) -> None:
        self._pace.note(len(entries), sum(each.size for each in entries), self.max_pending)

    def _store_others(self, entries: list[_Entry]) -> None:
        """Store entries that are not all there is between the first and the last of them."""
        if gone := [each.id for each in entries if each.fields is None]:
            self._command("XACK", self.stream, self.group, *gone)
            self._tell_deleted(gone)
        entries = [each for each in entries if each.fields is not None]
        while entries and not self._taken.wait_for_room(1, self.max_pending, _BLOCK_S):
            if self.isStopped():
                return
        if entries:
            self._store(entries, is_whole=False)

    def _tell_deleted(self, ids: list[str]) -> None:
        self.reportError(
            f"{len(ids)} entries of the stream {self.stream!r} were deleted before they were "
            f"stored, and are lost: {', '.join(ids[:10])}{' …' if len(ids) > 10 else ''}"
        )

    def _read(self, after: str, count: int, block_s: float | None = None) -> list[_Entry]:
        block = () if block_s is None else ("BLOCK", int(block_s * 1000))
        found = self._command(
            *("XREADGROUP", "GROUP", self.group, self.consumer, "COUNT", count),
            *(*block, "STREAMS", self.stream, after),
        )
        return [_Entry.of(each) for each in found[0][1]] if found else []

    # -- storing ---------------------------------------------------------------------------------

    def _store(self, entries: list[_Entry], is_whole: bool) -> None:
        number = self._taken.add([each.id for each in entries], is_whole)
        place = {
            "consumer": self.consumer,
            "id": self._taken.last_id,
            "stored": self._taken.position(),
        }
        records: list[bytes] = []
        letters: list[tuple[Any, str]] = []
        envelope: dict[str, list[Any]] = {name: [] for name in _STREAM_ENVELOPE.names}
        for entry in entries:
            try:
                record, others = entry.record(self.field)
            except ValueError as error:
                letters.append((entry.text(), str(error)))
                continue
            records.append(record)
            if self.schema is not None:
                ms = entry.parsed[0]
                row = (self.stream, entry.id, ms if ms <= _LAST_MS else None, others)
                for column, value in zip(envelope.values(), row, strict=True):
                    column.append(value)
        durable = partial(self._taken.durable, number)
        try:
            self._messages.store(self, records, envelope, place, durable, letters)
        except RecordTooLargeError:
            # They are in one block with their position, or not at all.
            self._taken.forget(number)
            half = len(entries) // 2
            self._store(entries[:half], is_whole)
            self._store(entries[half:], is_whole)

    # -- acknowledging ---------------------------------------------------------------------------

    def _keep(self) -> None:
        """Acknowledge what is durable, and keep from other consumers what waits for that."""
        import redis

        while not self._joined.wait(_BLOCK_S):
            if self._stopping.is_set():
                return
        refresh_every_s = (self.claim_after_s or _CLAIM_S) / 3
        next_refresh_s = next_look_s = time.monotonic()
        refusals = Reconnecting(self.reportError, f"acknowledging to the {self._server}")
        while True:
            due_s = min(next_refresh_s, next_look_s) - time.monotonic()
            self._taken.wait_for_durable(max(0.0, due_s))
            is_last = self._stopping.is_set()
            try:
                for number, ids in self._taken.to_acknowledge():
                    self._send("XACK", (self.stream, self.group), ids)
                    self._taken.forget(number)
                if is_last:
                    return
                if time.monotonic() >= next_refresh_s:
                    ids = self._taken.waiting()
                    # Without the entries, and without a count of deliveries.
                    self._send("XCLAIM", (self.stream, self.group, self.consumer, 0), ids, "JUSTID")
                    next_refresh_s = time.monotonic() + refresh_every_s
                if time.monotonic() >= next_look_s:
                    self._lag = self._ask_for_lag()
                    next_look_s = time.monotonic() + _LOOK_EVERY_S
            except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
                # The thread that reads reports it.
                _log.info("The %s is told later what is durable: %s", self._server, error)
                self._stopping.wait(_BLOCK_S)
            except redis.RedisError as error:
                wait_s = _BLOCK_S if _is_gone(error) else refusals.failed(error)
                self._stopping.wait(wait_s)
            if is_last:
                return

    def _ask_for_lag(self) -> int | None:
        import redis

        try:
            groups = self._command("XINFO", "GROUPS", self.stream)
        except redis.ResponseError:
            # It may not be permitted, and it is not needed.
            return None
        for found in groups:
            facts = dict(zip(found[::2], found[1::2], strict=True))
            if facts[b"name"] == self.group.encode():
                lag: int | None = facts.get(b"lag")
                return lag
        return None

    def _send(self, command: str, before: tuple[Any, ...], ids: Sequence[str], *after: Any) -> None:
        for start in range(0, len(ids), _ACK_AT_ONCE):
            self._command(command, *before, *ids[start : start + _ACK_AT_ONCE], *after)


class RedisListReceiver(_RedisReceiver):
    """Takes the elements of a list of Redis or Valkey, and removes them when they are durable.

    Each element is moved to a list of its own, `processing`, and removed from there when it is
    durable; the key ``<processing>:removed`` counts them. So each is stored once, also after a
    kill, as long as the server keeps what it has confirmed. It is weaker than a stream all the
    same: what is in the list of a receiver that never comes back waits there, and no other one
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
        storageLevel: StorageLevel | str = StorageLevel.MEMORY_AND_DISK_2,
    ) -> None:
        _check_names(key=key)
        if side not in ("left", "right"):
            raise ValueError(refused("side", side, "'left' or 'right'"))
        if max_pending < 1:
            raise ValueError(refused("max_pending", max_pending, "1 or more"))
        messages = Messages(_LIST_ENVELOPE, columns=columns, values=values)
        super().__init__(url, messages, options, storageLevel)
        self.key = key
        self.side = side
        self.processing = processing or f"{key}:penstock:{uuid.uuid4().hex}"
        self.max_pending = max_pending

    def _reset(self) -> None:
        super()._reset()
        self._pace = Pace(_READ_BYTES)
        self._told = threading.Event()
        # Elements are counted from the first one of the stream of records.
        self._stored: int | None = None
        self._durable = self._removed = 0
        self._is_behind = True

    def __getstate__(self) -> dict[str, Any]:
        own = ("_pace", "_told", "_stored", "_durable", "_removed", "_is_behind")
        return {name: value for name, value in super().__getstate__().items() if name not in own}

    def _receive(self, reconnecting: Reconnecting) -> None:
        stored = self._take_up()
        reconnecting.connected()
        while not self.isStopped():
            self._remove()
            held = stored - self._removed
            if held >= self.max_pending:
                if not self._told.wait(_BLOCK_S):
                    self._client.ping()
                self._told.clear()
                continue
            elements = self._move(held, min(self._pace.count, self.max_pending - held))
            if elements:
                self._pace.note(len(elements), sum(map(len, elements)), self.max_pending)
                self._store(elements, stored)
                stored = self._stored = stored + len(elements)
        self._remove()

    def _take_up(self) -> int:
        """Find out which elements of its own list are stored; return how many are, in all."""
        position = self.lastPosition or {}
        self.processing = position.get("processing", self.processing)
        if self._stored is None:
            self._stored = self._durable = position.get("stored", 0)
        counter = f"{self.processing}:removed"
        # Without a count nothing is known of what is there, and it is stored.
        if self._client.set(counter, self._stored, nx=True) and self._stored:
            self.reportError(
                f"The key {counter!r} is gone, so elements of {self.processing!r} may come twice"
            )
        self._removed = int(self._client.get(counter))
        self._is_behind = True
        return self._stored

    def _remove(self) -> None:
        """Remove what is durable."""
        durable, removed = self._durable, self._removed
        if durable > removed:
            names = (self.processing, f"{self.processing}:removed")
            self._check(self._client.eval(_REMOVE, 2, *names, removed, durable))
            self._removed = durable

    def _check(self, is_as_known: object) -> None:
        if not is_as_known:
            raise PenstockError(
                f"the list {self.processing!r} is not as this receiver left it: the server lost "
                "it, or another program changed it"
            )

    def _move(self, held: int, count: int) -> list[bytes]:
        """Return elements that are in its own list now, behind the `held` that are stored.

        The server may have moved some on a connection that is gone. So what the list has is
        compared with what was moved, and read where these differ.
        """
        own = self.processing
        if self._is_behind:
            (found,), length = self._ask(held, ("LRANGE", own, held, held + count - 1))
            self._is_behind = length > held + len(found)
            if found:
                return cast(list[bytes], found)
        move = (self.key, own, self.side.upper(), "RIGHT")
        moved, length = self._ask(held, *[("LMOVE", *move)] * count)
        elements = [each for each in moved if each is not None]
        if length == held:
            self._is_behind = self._command("BLMOVE", *move, self._block_s) is not None
            return []
        self._is_behind = length != held + len(elements)
        return [] if self._is_behind else elements

    def _ask(self, held: int, *commands: tuple[Any, ...]) -> tuple[list[Any], int]:
        """Return what commands answer, and how long its own list is after them."""
        with self._client.pipeline(transaction=False) as asked:
            for command in commands:
                asked.execute_command(*command)
            asked.llen(self.processing)
            asked.get(f"{self.processing}:removed")
            *answers, length, removed = asked.execute()
        self._check(length >= held and removed == b"%d" % self._removed)
        return answers, length

    def _store(self, elements: list[bytes], before: int) -> None:
        end = before + len(elements)
        place = {"processing": self.processing, "stored": end}
        try:
            self._messages.store(
                self,
                elements,
                {"list": [self.key] * len(elements)},
                place,
                partial(self._note, end),
            )
        except RecordTooLargeError:
            half = len(elements) // 2
            self._store(elements[:half], before)
            self._store(elements[half:], before + half)

    def _note(self, durable: int) -> None:
        self._durable = durable
        self._told.set()


class RedisChannelReceiver(_RedisReceiver):
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
        storageLevel: StorageLevel | str = StorageLevel.MEMORY_AND_DISK_2,
    ) -> None:
        self.channels = [channels] if isinstance(channels, str) else list(channels)
        self.patterns = [patterns] if isinstance(patterns, str) else list(patterns)
        for name in (*self.channels, *self.patterns):
            _check_names(channels=name)
        if not (self.channels or self.patterns):
            raise ValueError("a RedisChannelReceiver needs at least one channel or pattern")
        messages = Messages(_CHANNEL_ENVELOPE, columns=columns, values=values)
        super().__init__(url, messages, options, storageLevel)

    def _receive(self, reconnecting: Reconnecting) -> None:
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
                    self._store(messages)

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
            if size > _READ_BYTES or len(messages) >= _ACK_AT_ONCE:
                break
            found = listening.get_message(timeout=0)
        return messages, is_heard

    def _store(self, messages: list[dict[str, Any]]) -> None:
        envelope = {
            name: [each[name] and each[name].decode(errors="replace") for each in messages]
            for name in _CHANNEL_ENVELOPE.names
        }
        # With an acknowledgement, so that it does not wait until they are durable.
        self._messages.store(self, [each["data"] for each in messages], envelope, None, _nothing)


_LIST_ENVELOPE = pa.schema([("list", pa.string())])
_CHANNEL_ENVELOPE = pa.schema([("channel", pa.string()), ("pattern", pa.string())])
_STREAM_ENVELOPE = pa.schema(
    [
        ("stream", pa.string()),
        ("id", pa.string()),
        ("time", pa.timestamp("ms", "UTC")),
        ("fields", pa.map_(pa.string(), pa.binary())),
    ]
)


class _Entry(NamedTuple):
    """An entry of a stream; `fields` are names and values in turn, None for a deleted one."""

    id: str
    fields: list[bytes] | None

    @classmethod
    def of(cls, found: Any) -> _Entry:
        return cls(found[0].decode(), found[1])

    @property
    def parsed(self) -> Id:
        return _parsed(self.id)

    @property
    def size(self) -> int:
        return sum(map(len, self.fields or ()))

    def record(self, field: str | None) -> tuple[bytes, list[tuple[str, bytes]]]:
        """Return the record, and the other fields.

        Raises:
            ValueError: There is no record in it; it says why.
        """
        if self.fields and len(self.fields) == 2 and field and self.fields[0] == field.encode():
            return self.fields[1], []
        names = _text(self.fields[::2] if self.fields else [], "the name of a field")
        values = self.fields[1::2] if self.fields else []
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"the entry {self.id} has the field {twice!r} twice")
        if field is None:
            texts = _text(values, "a value")
            return msgspec.json.encode(dict(zip(names, texts, strict=True))), []
        others = dict(zip(names, values, strict=True))
        if field not in others:
            raise ValueError(f"the entry {self.id} has no field {field!r}")
        return others.pop(field), list(others.items())

    def text(self) -> bytes:
        """Return all of it, as JSON; bytes that are not UTF-8 as lone surrogates."""
        parts = [each.decode("utf-8", "surrogateescape") for each in self.fields or ()]
        return json.dumps([self.id, *parts]).encode()


class _Ids:
    """Ids of entries as text: single ones, and ``first/last`` of all between."""

    def __init__(self, text: str) -> None:
        self._single = {each for each in text.split() if "/" not in each}
        pairs = [each.split("/") for each in text.split() if "/" in each]
        self._ranges = [(_parsed(first), _parsed(last)) for first, last in pairs]

    def __contains__(self, one: str) -> bool:
        at = _parsed(one)
        return one in self._single or any(first <= at <= last for first, last in self._ranges)


@dataclass
class _Answer:
    """Entries that came together."""

    ids: list[str]
    text: str
    is_durable: bool = False


class _Taken:
    """What was taken from the server, and is not acknowledged yet. `_changed` guards all of it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._answers: dict[int, _Answer] = {}
        self._number = 0
        self._woken = False
        self.last_id = "0-0"
        """The greatest id of all; of the thread that reads."""

    def add(self, ids: list[str], is_whole: bool) -> int:
        """Take entries, and return the number by which they are known."""
        text = f"{ids[0]}/{ids[-1]}" if is_whole and len(ids) > 1 else " ".join(ids)
        self.last_id = max(self.last_id, ids[-1], key=_parsed)
        with self._changed:
            self._number += 1
            self._answers[self._number] = _Answer(ids, text)
            return self._number

    def position(self) -> str:
        """Return the ids of all, for `_Ids`."""
        with self._changed:
            return " ".join(each.text for each in self._answers.values())

    def has(self, one: str) -> bool:
        """Tell whether an entry is among them."""
        return one in _Ids(self.position())

    def durable(self, number: int) -> None:
        """Take note that entries can be acknowledged."""
        with self._changed:
            self._answers[number].is_durable = True
            self._woken = True
            self._changed.notify_all()

    def to_acknowledge(self) -> list[tuple[int, list[str]]]:
        """Return the ids of those that are durable."""
        with self._changed:
            found = self._answers.items()
            return [(number, each.ids) for number, each in found if each.is_durable]

    def waiting(self) -> list[str]:
        """Return the ids of those that are not."""
        with self._changed:
            found = self._answers.values()
            return [one for each in found if not each.is_durable for one in each.ids]

    def forget(self, number: int) -> None:
        """They are acknowledged, or were not stored."""
        with self._changed:
            del self._answers[number]
            self._changed.notify_all()

    def wait_for_room(self, answers: int, entries: int, timeout_s: float) -> int:
        """Wait until there are fewer of both; return how many entries there is room for."""

        def room() -> int:
            held = self._answers.values()
            return entries - sum(len(each.ids) for each in held) if len(held) < answers else 0

        with self._changed:
            self._changed.wait_for(lambda: room() > 0, timeout_s)
            return max(0, room())

    def wait_for_durable(self, timeout_s: float) -> None:
        """Wait until some can be acknowledged, or it is woken."""
        with self._changed:
            self._changed.wait_for(lambda: self._woken, timeout_s)
            self._woken = False

    def wake(self) -> None:
        """End a wait for durable ones."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()


def _nothing() -> None:
    pass


def _check_names(**names: object) -> None:
    for name, value in names.items():
        if not isinstance(value, str) or not value:
            raise ValueError(refused(name, value, "a name"))


def _as_it_is(answer: Any, **_: Any) -> Any:
    return answer


def _is_gone(error: BaseException) -> bool:
    return str(error).startswith(("NOGROUP", "UNBLOCKED", "no such key"))


def _parsed(one: str | bytes) -> Id:
    ms, _, number = (one.decode() if isinstance(one, bytes) else one).partition("-")
    return int(ms), int(number or 0)


def _text(parts: Sequence[bytes], what: str) -> list[str]:
    try:
        return [each.decode() for each in parts]
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{what} is not UTF-8 ({error.reason}); field= names the one that is the record"
        ) from None
