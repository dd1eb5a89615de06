"""A stream of Redis or Valkey, as a consumer of a group.

What must hold
--------------

* An entry is acknowledged (``XACK``) when it is durable, and not before. The position names every
  entry that is stored and not known to be acknowledged: one that is given again after a kill is
  acknowledged only, if the position names it, and stored if not. Nothing is concluded from the
  order of entry ids: other consumers, claimed entries, and an older attempt that still runs cannot
  make it wrong.
* What ``XREADGROUP`` gives in one answer is all that the stream has between its first and its last
  id, so the position names it by these two.
* What waits for its block does not become idle: its time is set back, so that no other consumer
  takes it over while this one is alive.
* Where an answer may be lost, with its connection, all that the server has given to this consumer
  is asked for again. So no command is repeated by the client.
* Which entries are in hand is looked at before the server is asked for those that it has no
  acknowledgement of: one that is acknowledged meanwhile is in the answer, and in hand no more.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypedDict

import msgspec
import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import as_count, refused
from penstock.receiver import ReceiverContext, RecordTooLargeError
from penstock.runtime.clock import YEARS_S
from penstock.runtime.threads import OwnedThread
from penstock.sources._common import Messages, Pace, Reconnecting, in_halves
from penstock.sources.formats import ValueFormat
from penstock.sources.redis._receiver import (
    BLOCK_S,
    MOST_AT_ONCE,
    READ_BYTES,
    RedisReceiver,
    check_names,
    is_gone,
)

_CLAIM_S = 60.0
_LOOK_EVERY_S = 1.0
_MOST_RANGES = 64
"""Answers whose entries are not acknowledged yet; each is in the position by two ids."""
_MOST_CLAIMED = 500
"""Entries, beside those, that the position names one by one."""
_ENVELOPE = pa.schema(
    [
        ("stream", pa.string()),
        ("id", pa.string()),
        ("time", pa.timestamp("ms", "UTC")),
        ("fields", pa.map_(pa.string(), pa.binary())),
    ]
)

Id = tuple[int, int]


class _Position(TypedDict):
    consumer: str
    id: str
    stored: str


class RedisStreamReceiver(RedisReceiver):
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

    _position_type = _Position
    _lag: int | None = None

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
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        check_names(stream=stream, group=group)
        if claim_after_s is not None and not claim_after_s >= 0.1:
            raise ValueError(refused("claim_after_s", claim_after_s, "0.1 or more, or None"))
        messages = Messages(_ENVELOPE, columns=columns, values=values)
        super().__init__(url, messages, options, storageLevel)
        self.stream = stream
        self.group = group
        self.field = field
        self.start = start
        self.claim_after_s = claim_after_s
        self.max_pending = as_count(max_pending, "max_pending", "entries", 1)
        self.consumer = consumer or f"penstock-{uuid.uuid4().hex}"

    def onStart(self) -> None:
        """Start the thread that connects and receives; once joined, the one that acknowledges."""
        self._taken = _Taken()
        self._keeping: OwnedThread | None = None
        self._pace = Pace(READ_BYTES)
        self._next_claim_s = 0.0
        super().onStart()

    def _receive(self, context: ReceiverContext) -> bool:
        self._interrupt_with(self._taken.end)
        try:
            return super()._receive(context)
        finally:
            self._taken.end()
            if self._keeping is not None:
                # What is durable is acknowledged.
                self._keeping.join(self.STOP_BOUND_S)

    def _source_lag(self) -> int | None:
        return self._lag

    def _what_is_gone(self) -> str:
        return (
            f"The group {self.group!r} of the stream {self.stream!r} at the {self._server} is "
            "gone; it is made again"
        )

    # -- receiving -------------------------------------------------------------------------------

    def _serve(self, reconnecting: Reconnecting) -> None:
        if self._keeping is None:
            self._join()
            self._keeping = OwnedThread(self._keep, f"redis-acks-{self.streamId}")
            self._keeping.start()
        self._take_up()
        reconnecting.connected()
        while not self.isStopped():
            room = self._taken.wait_for_room(_MOST_RANGES, self.max_pending, BLOCK_S)
            if not room:
                continue
            entries = self._read(">", min(room, self._pace.count), self._block_s)
            if entries:
                self._note(entries)
                in_halves(partial(self._store, is_whole=True), entries)
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
            if not is_gone(error):
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
            if not is_gone(error):
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
        while not self.isStopped():
            taken = _Ids(self._taken.position())
            entries = self._read(after, self._count())
            if not entries:
                return
            after = entries[-1].id
            self._note(entries)
            if new := [each for each in entries if each.id not in taken]:
                yield new

    def _claim(self, after_s: float) -> None:
        """Take over what other consumers have had for long."""
        cursor: Any = "0-0"
        while not self.isStopped():
            taken = _Ids(self._taken.position())
            cursor, found, *rest = self._command(
                *("XAUTOCLAIM", self.stream, self.group, self.consumer, int(after_s * 1000)),
                *(cursor, "COUNT", self._count()),
            )
            entries = [_Entry.of(each) for each in found if each is not None]
            self._note(entries)
            if rest and rest[0]:
                self._tell_deleted([each.decode() for each in rest[0]])
            self._store_others([each for each in entries if each.id not in taken])
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
        while entries and not self._taken.wait_for_room(1, self.max_pending, BLOCK_S):
            if self.isStopped():
                return
        if entries:
            in_halves(partial(self._store, is_whole=False), entries)

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

    def _store(self, entries: Sequence[_Entry], is_whole: bool) -> None:
        answer = self._taken.add([each.id for each in entries], is_whole)
        place = {
            "consumer": self.consumer,
            "id": self._taken.last_id,
            "stored": self._taken.position(),
        }
        records: list[bytes] = []
        letters: list[tuple[Any, str]] = []
        envelope: dict[str, list[Any]] = {name: [] for name in _ENVELOPE.names}
        for entry in entries:
            try:
                record, others = entry.record(self.field)
            except ValueError as error:
                letters.append((entry.text(), str(error)))
                continue
            records.append(record)
            if self.schema is not None:
                ms = _parsed(entry.id)[0]  # A program may have made up the id.
                row = (self.stream, entry.id, ms if ms // 1000 in YEARS_S else None, others)
                for column, value in zip(envelope.values(), row, strict=True):
                    column.append(value)
        durable = partial(self._taken.durable, answer)
        try:
            self._messages.store(self, records, envelope, place, durable, letters)
        except RecordTooLargeError:
            # They are in one block with their position, or not at all.
            self._taken.forget(answer)
            raise

    # -- acknowledging ---------------------------------------------------------------------------

    def _keep(self) -> None:
        """Acknowledge what is durable, and keep from other consumers what waits for that."""
        import redis

        refresh_every_s = (self.claim_after_s or _CLAIM_S) / 3
        next_refresh_s = next_look_s = time.monotonic()
        refusals = Reconnecting(self.reportError, f"acknowledging to the {self._server}")
        is_last = False
        while not is_last:
            due_s = min(next_refresh_s, next_look_s) - time.monotonic()
            self._taken.wait_for_durable(max(0.0, due_s))
            is_last = self._taken.is_over
            try:
                for answer in self._taken.answers():
                    if answer.is_durable:
                        self._send("XACK", (self.stream, self.group), answer.ids)
                        self._taken.forget(answer)
                if is_last:
                    return
                if time.monotonic() >= next_refresh_s:
                    ids = [one for each in self._taken.answers() for one in each.ids]
                    # Without the entries, and without a count of deliveries.
                    self._send("XCLAIM", (self.stream, self.group, self.consumer, 0), ids, "JUSTID")
                    next_refresh_s = time.monotonic() + refresh_every_s
                if time.monotonic() >= next_look_s:
                    self._lag = self._ask_for_lag()
                    next_look_s = time.monotonic() + _LOOK_EVERY_S
            except (redis.RedisError, OSError) as error:
                # The thread that reads also meets an error when a connection or group is gone.
                is_refused = isinstance(error, redis.ResponseError) and not is_gone(error)
                self._stopped.wait(refusals.failed(error) if is_refused else BLOCK_S)

    def _ask_for_lag(self) -> int | None:
        import redis

        try:
            return self._lag_of_group()
        except redis.ResponseError:
            # It may not be permitted, and it is not needed.
            return None

    def _lag_of_group(self) -> int | None:
        for found in self._command("XINFO", "GROUPS", self.stream):
            facts = dict(zip(found[::2], found[1::2], strict=True))
            if facts[b"name"] == self.group.encode():
                lag: int | None = facts.get(b"lag")
                return self._of_what_is_there(lag, facts[b"last-delivered-id"]) if lag else lag
        return None

    def _of_what_is_there(self, lag: int, delivered: bytes) -> int:
        """Return a lag without what was trimmed, which Redis 7.0 counts and never forgets."""
        found = self._command("XINFO", "STREAM", self.stream)
        facts = dict(zip(found[::2], found[1::2], strict=True))
        if _parsed(delivered) >= _parsed(facts[b"last-generated-id"]):
            return 0
        length: int = facts[b"length"]
        return min(lag, length)

    def _send(self, command: str, before: tuple[Any, ...], ids: Sequence[str], *after: Any) -> None:
        for start in range(0, len(ids), MOST_AT_ONCE):
            self._command(command, *before, *ids[start : start + MOST_AT_ONCE], *after)


class _Entry(NamedTuple):
    """An entry of a stream; `fields` are names and values in turn, None for a deleted one."""

    id: str
    fields: list[bytes] | None

    @classmethod
    def of(cls, found: Any) -> _Entry:
        return cls(found[0].decode(), found[1])

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


@dataclass(eq=False)
class _Answer:
    """Entries that came together; `text` names them in a position."""

    ids: list[str]
    text: str
    is_durable: bool = False


class _Taken:
    """What was taken from the server, and is not acknowledged yet. `_changed` guards all of it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._answers: list[_Answer] = []
        self.is_over = False
        """Nothing more is taken."""
        self.last_id = "0-0"
        """The greatest id of all; of the thread that reads."""

    def add(self, ids: list[str], is_whole: bool) -> _Answer:
        """Take entries; `is_whole` if they are all that the stream has between first and last."""
        text = f"{ids[0]}/{ids[-1]}" if is_whole and len(ids) > 1 else " ".join(ids)
        answer = _Answer(ids, text)
        self.last_id = max(self.last_id, ids[-1], key=_parsed)
        with self._changed:
            self._answers.append(answer)
        return answer

    def position(self) -> str:
        """Return the ids of all, for `_Ids`."""
        with self._changed:
            return " ".join(each.text for each in self._answers)

    def durable(self, answer: _Answer) -> None:
        """Take note that entries can be acknowledged."""
        with self._changed:
            answer.is_durable = True
            self._changed.notify_all()

    def answers(self) -> list[_Answer]:
        """Return all."""
        with self._changed:
            return list(self._answers)

    def forget(self, answer: _Answer) -> None:
        """They are acknowledged, or were not stored."""
        with self._changed:
            self._answers.remove(answer)
            self._changed.notify_all()

    def wait_for_room(self, answers: int, entries: int, timeout_s: float) -> int:
        """Wait until there are fewer of both; return how many entries there is room for."""

        def room() -> int:
            held = sum(len(each.ids) for each in self._answers)
            return max(0, entries - held) if len(self._answers) < answers else 0

        with self._changed:
            self._changed.wait_for(room, timeout_s)
            return room()

    def wait_for_durable(self, timeout_s: float) -> None:
        """Wait until some can be acknowledged, or it is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.is_over or any(each.is_durable for each in self._answers), timeout_s
            )

    def end(self) -> None:
        """End a wait for durable ones."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()


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
