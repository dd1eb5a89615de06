"""One start of a receiver of Kinesis: shards, their order, and how far each is read."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.receiver import PositionChanges, ReceiverStoppedError, RecordTooLargeError
from penstock.runtime.backoff import Backoff
from penstock.sources._aws import AwsError, Outage, Trouble, meaning_of

if TYPE_CHECKING:
    from penstock.sources.kinesis.receiver import KinesisReceiver

_STREAM, _MADE, _SINCE = "stream", "made", "since"
ENDED = "SHARD_END"
OLDEST = 0.0
"""In the place of a time: at the oldest record that is kept."""
READ_S = 10.0
_LOOK_S = 0.2
_LOOK_AGAIN_S = 60.0
"""How often it is seen which shards there are; also when one ends, and after an outage."""

_PACE_S = 0.2
"""A shard may be read five times a second, by all its readers together."""

_MOST_RECORDS = 2000
"""Of one answer: at that pace ten times what is put into a shard, a thousand a second at most."""

_SLOWEST_S = 10.0
_TELL_THROTTLED_S = 60.0
_MOST_PART_BYTES = 4 << 20
_BEHIND = 0.9
"""Part of the retention at which it is said that records are about to be lost."""


@dataclass(eq=False)
class _Shard:
    """How far a shard was read."""

    id: str
    parents: tuple[str, ...] = ()
    hash_keys: range = field(default=range(1 << 128), repr=False)
    after: str | None = None
    """The last stored record; None: none was."""
    since_s: float = OLDEST
    """Where it begins if none was."""
    is_ended: bool = False
    is_new: bool = False
    """It existed when a new stream began: LATEST is where it ends."""
    is_closed: bool = False
    """It was split or merged: nothing comes after what it has."""
    iterator: str | None = None
    looks_for: str | None = None
    """The record that must come first, as the iterator was made at it."""
    due_s: float = 0.0
    behind_ms: int = 0
    is_told_behind: bool = False
    backoff: Backoff = field(default_factory=lambda: Backoff(_PACE_S, _SLOWEST_S), repr=False)
    throttled_since_s: float | None = None


class Described(NamedTuple):
    """What AWS says of a stream."""

    arn: str
    made_ms: int
    retention_ms: int
    answered_s: float
    """When, by AWS's own clock, as its records are stamped by it."""
    shards: list[Mapping[str, Any]]

    def since_s(self, initial: str | datetime) -> float:
        """Return where a new stream begins."""
        if isinstance(initial, datetime):
            return initial.timestamp()
        return OLDEST if initial == "TRIM_HORIZON" else self.answered_s


def described(client: Any, stream: str) -> Described:
    """Ask which stream it is, and which shards it has.

    Raises:
        AwsError: It is being made or deleted.
        Exception: What `client` raises.
    """
    answer = client.describe_stream_summary(**_named(stream))
    found = answer["StreamDescriptionSummary"]
    if found["StreamStatus"] not in ("ACTIVE", "UPDATING"):
        text = f"the stream {stream!r} is {found['StreamStatus']}"
        raise AwsError(text, found["StreamStatus"], Trouble.AWAY)
    date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    page = client.list_shards(**_named(found["StreamARN"]))
    shards: list[Mapping[str, Any]] = page["Shards"]
    while token := page.get("NextToken"):
        page = client.list_shards(NextToken=token)
        shards += page["Shards"]
    return Described(
        found["StreamARN"],
        int(found["StreamCreationTimestamp"].timestamp() * 1000),
        found["RetentionPeriodHours"] * 3600_000,
        time.time() if date is None else parsedate_to_datetime(date).timestamp(),
        shards,
    )


def parents_of(shard: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a shard came from by a split or merge."""
    parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
    return tuple(parent for parent in parents if parent)


def is_closed(shard: Mapping[str, Any]) -> bool:
    """Return whether a shard was split or merged."""
    return "EndingSequenceNumber" in shard["SequenceNumberRange"]


class Reading:
    """One start of the receiver. All but `_fetch` runs in its own thread."""

    def __init__(self, receiver: KinesisReceiver, stopped: threading.Event) -> None:
        self._receiver = receiver
        self._what = f"stream {receiver.stream!r}"
        self._stopped = stopped
        self._outage = Outage(receiver.reportError, f"Kinesis {self._what}")
        self._client: Any = None
        self._arn = ""
        self._made_ms = 0
        self._retention_ms = 0
        self._untold: dict[str, Any] = {}
        """What the position begins with, until it has been stored with records."""
        self._since_s = OLDEST
        """`_Shard.since_s` of new ones."""
        self._shards: dict[str, _Shard] = {}
        self._look_due_s = 0.0

    # -- what there is ---------------------------------------------------------------------------

    def run(self) -> None:
        """Read until the receiver stops."""
        name = f"penstock-kinesis-{self._receiver.streamId}-calls"
        with (
            suppress(ReceiverStoppedError),
            ThreadPoolExecutor(self._receiver.threads, name) as pool,
        ):
            self._read(pool)

    def _look(self) -> None:
        """See which stream it is, and which shards it has."""
        receiver = self._receiver
        if self._client is None:
            self._client = receiver.account.client("kinesis", receiver.threads + 1, READ_S)
        found = described(self._client, receiver.stream)
        self._retention_ms, made_ms, listed = found.retention_ms, found.made_ms, found.shards
        is_first, place = not self._arn, receiver.lastPosition
        if not is_first:
            place = {_STREAM: self._arn, _MADE: self._made_ms}
        is_seen = made_ms == self._made_ms
        self._arn, self._made_ms = found.arn, made_ms
        self._look_due_s = time.monotonic() + _LOOK_AGAIN_S
        if receiver.assignedSplits:
            if not is_seen:
                self._take_splits()
            self._compare([each for each in listed if each["ShardId"] in self._shards])
            return
        if place is not None and (place[_STREAM], place[_MADE]) != (self._arn, made_ms):
            was = datetime.fromtimestamp(place[_MADE] / 1000, timezone.utc).isoformat()
            receiver.reportError(made_again(self._what, f" ({place[_STREAM]}, made at {was})"))
            is_first, place = True, {}
        if is_first:
            since_s = found.since_s(receiver.initial)
            self._since_s = since_s if place is None else place.get(_SINCE, OLDEST)
            self._shards = {
                name: _shard_at(name, after)
                for name, after in (place or {}).items()
                if name not in (_STREAM, _MADE, _SINCE)
            }
        self._compare(listed)
        if place is None and receiver.initial == "LATEST":
            for shard in self._shards.values():
                shard.is_new, shard.is_ended = True, shard.is_closed
        if is_first and not place:
            self._untold = self._place()
            if place is not None or receiver.initial == "LATEST":
                # A start before the first record must not begin where the stream then ends.
                self._note(self._untold)

    def _take_splits(self) -> None:
        """Take the shards that are this receiver's; the driver says which, and what is new."""
        receiver = self._receiver
        own = {shard_of(split, self._made_ms): split for split in receiver.assignedSplits}
        if own.pop(None, None) is not None:
            receiver.reportError(made_again(self._what))
        self._shards = {
            name: _shard_at(name, receiver.lastPosition.get(split))
            for name, split in own.items()
            if name is not None
        }

    def _compare(self, listed: Sequence[Mapping[str, Any]]) -> None:
        """Take note of shards that are new, and of those that are gone for good."""
        for each in listed:
            name = each["ShardId"]
            shard = self._shards.setdefault(name, _Shard(name, since_s=self._since_s))
            shard.parents = parents_of(each)
            keys = each["HashKeyRange"]
            shard.hash_keys = range(int(keys["StartingHashKey"]), int(keys["EndingHashKey"]) + 1)
            shard.is_closed = is_closed(each)
        for name in self._shards.keys() - {each["ShardId"] for each in listed}:
            shard = self._shards.pop(name)
            self._note(self._changed(name, None))
            if not shard.is_ended:
                self._receiver.reportError(
                    f"Shard {name} of the Kinesis {self._what} is gone before it was read to its "
                    f"end: its records after {shard.after or 'its beginning'} are lost"
                )

    # -- reading ---------------------------------------------------------------------------------

    def _read(self, pool: ThreadPoolExecutor) -> None:
        fetches: dict[Future[Mapping[str, Any]], _Shard] = {}
        while not self._stopped.is_set():
            now_s = time.monotonic()
            if now_s >= self._look_due_s and not self._outage.left_s:
                self._try(self._look)
            if not self._outage.left_s:
                for shard in self._due(now_s, set(fetches.values())):
                    if len(fetches) >= self._receiver.threads:
                        break
                    fetches[pool.submit(self._fetch, shard)] = shard
            if not fetches:
                self._stopped.wait(_LOOK_S)
                continue
            done, _ = wait_for(fetches, _LOOK_S, FIRST_COMPLETED)
            for future in done:
                shard = fetches.pop(future)
                self._try(partial(self._take_fetched, shard, future), shard)

    def _due(self, now_s: float, fetched: set[_Shard]) -> list[_Shard]:
        """Return the shards to be read now, those that waited longest first."""
        due = [
            shard
            for shard in self._shards.values()
            if shard.due_s <= now_s
            and not shard.is_ended
            and shard not in fetched
            # A parent that is not listed any more was trimmed as a whole.
            and all(self._is_done(parent) for parent in shard.parents)
        ]
        return sorted(due, key=lambda shard: shard.due_s)

    def _is_done(self, name: str) -> bool:
        shard = self._shards.get(name)
        return shard is None or shard.is_ended

    def _fetch(self, shard: _Shard) -> Mapping[str, Any]:
        """Ask for a shard's next records; in a thread of the pool."""
        if shard.iterator is None:
            shard.looks_for = shard.after
            place: dict[str, Any]
            if shard.after is not None:
                place = {
                    "ShardIteratorType": "AT_SEQUENCE_NUMBER",
                    "StartingSequenceNumber": shard.after,
                }
            elif shard.is_new:
                place = {"ShardIteratorType": "LATEST"}
            elif shard.since_s != OLDEST:
                place = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": shard.since_s}
            else:
                place = {"ShardIteratorType": "TRIM_HORIZON"}
            answer = self._client.get_shard_iterator(**_named(self._arn), ShardId=shard.id, **place)
            # From here on, the place where it ended is known.
            shard.iterator, shard.is_new = answer["ShardIterator"], False
        found: Mapping[str, Any] = self._client.get_records(
            **_named(self._arn), ShardIterator=shard.iterator, Limit=_MOST_RECORDS
        )
        return found

    def _take_fetched(self, shard: _Shard, future: Future[Mapping[str, Any]]) -> None:
        self._take(shard, future.result())

    def _take(self, shard: _Shard, answer: Mapping[str, Any]) -> None:
        """Store an answer's records, and note where the shard goes on."""
        if self._shards.get(shard.id) is not shard:
            return  # Of a stream that is gone.
        self._outage.passed()
        shard.backoff.reset()
        shard.throttled_since_s = None
        records = answer["Records"]
        following = answer.get("NextShardIterator")
        if shard.looks_for is not None and (records or following is None):
            if records and records[0]["SequenceNumber"] == shard.looks_for:
                records = records[1:]
            else:
                self._tell_trimmed(shard, records)
            shard.looks_for = None
        if shard.after is None and shard.since_s != OLDEST:
            # Older versions of botocore ask for whole seconds.
            records = [
                each
                for each in records
                if each["ApproximateArrivalTimestamp"].timestamp() >= shard.since_s
            ]
        for part in _parts(records):
            self._store(shard, part)
        shard.iterator = following
        shard.behind_ms = answer.get("MillisBehindLatest", 0)
        self._tell_behind(shard)
        if following is None:
            shard.is_ended, shard.behind_ms = True, 0
            self._note(self._changed(shard.id, ENDED))
            self._look_due_s = 0.0
        is_idle = not records and not shard.behind_ms
        pause_s = self._receiver.read_interval_s if is_idle else _PACE_S
        shard.due_s = time.monotonic() + pause_s

    def _store(self, shard: _Shard, records: Sequence[Mapping[str, Any]]) -> None:
        """Store records with the position after them; halve what does not fit into a block."""
        payloads, envelope = self._unpacked(shard, records)
        place = self._changed(shard.id, records[-1]["SequenceNumber"])
        store = partial(self._receiver.messages.store, self._receiver)
        try:
            if payloads:
                store(payloads, envelope, place, _take_note)
                self._untold = {}
            else:
                self._note(place)
        except RecordTooLargeError:
            half = len(records) // 2
            if half:
                self._store(shard, records[:half])
                self._store(shard, records[half:])
                return
            # What was packed into one record is more than a block: only its end has a place.
            for at, payload in enumerate(payloads):
                row = {name: [column[at]] for name, column in envelope.items()}
                store([payload], row, ack=_take_note)
            self._note(place)
        shard.after = records[-1]["SequenceNumber"]

    def _unpacked(
        self, shard: _Shard, records: Sequence[Mapping[str, Any]]
    ) -> tuple[list[bytes], dict[str, list[Any]]]:
        payloads: list[bytes] = []
        rows: list[tuple[Any, ...]] = []
        for record in records:
            number, arrived = record["SequenceNumber"], record["ApproximateArrivalTimestamp"]
            packed = unpack(record["Data"])
            if packed is None:
                payloads.append(record["Data"])
                rows.append((record["PartitionKey"], number, None, arrived))
                continue
            for index, each in enumerate(packed):
                # The producer sends those again that belong to another shard since a split.
                if each.hash_key in shard.hash_keys:
                    payloads.append(each.data)
                    rows.append((each.partition_key, number, index, arrived))
        keys, numbers, indices, times = (
            (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 4
        )
        return payloads, {
            "partitionKey": keys,
            "stream": [self._arn.rpartition("/")[2]] * len(rows),
            "shardId": [shard.id] * len(rows),
            "sequenceNumber": numbers,
            "subSequenceNumber": indices,
            "approximateArrivalTimestamp": times,
        }

    def _place(self) -> dict[str, Any]:
        """The whole position; later only changes go with records."""
        place = {_STREAM: self._arn, _MADE: self._made_ms}
        if self._since_s != OLDEST:
            place[_SINCE] = self._since_s
        return place | {
            shard.id: ENDED if shard.is_ended else shard.after
            for shard in self._shards.values()
            if shard.is_ended or shard.after is not None
        }

    def _note(self, place: dict[str, Any]) -> None:
        """Store a place without records."""
        self._receiver.store([], place, _take_note)
        self._untold = {}

    def _changed(self, shard: str, place: str | None) -> PositionChanges:
        is_split = bool(self._receiver.assignedSplits)
        key = split_name(shard, self._made_ms) if is_split else shard
        return PositionChanges({**self._untold, key: place})

    def lag_ms(self) -> int | None:
        """How far behind the farthest shard is."""
        return max((shard.behind_ms for shard in list(self._shards.values())), default=None)

    # -- what goes wrong -------------------------------------------------------------------------

    def _try(self, step: Callable[[], None], shard: _Shard | None = None) -> None:
        try:
            step()
        except ReceiverStoppedError:
            raise
        except Exception as error:  # noqa: BLE001  # what is none of botocore's is raised again
            told = meaning_of(error, self._what)
            if self._stopped.is_set():
                return
            if shard is None or not self._is_of_shard(shard, told):
                self._outage.failed(told)
                self._look_due_s = 0.0

    def _is_of_shard(self, shard: _Shard, error: AwsError) -> bool:
        """Deal with what concerns one shard only; False: it concerns the stream."""
        now_s = time.monotonic()
        if error.code == "ExpiredIteratorException":
            shard.iterator = None
            return True
        if error.code == "InvalidArgumentException" and shard.iterator is None and shard.after:
            self._receiver.reportError(
                f"Kinesis does not know record {shard.after} of shard {shard.id} of the "
                f"{self._what} any more ({error}): it goes on at the oldest record that is there, "
                "and those before are lost"
            )
            shard.after = None
            return True
        if error.trouble is Trouble.THROTTLED:
            shard.due_s = now_s + shard.backoff.next_s()
            if shard.throttled_since_s is None:
                shard.throttled_since_s = now_s
            elif now_s - shard.throttled_since_s > _TELL_THROTTLED_S:
                shard.throttled_since_s = now_s
                self._receiver.reportError(
                    f"Shard {shard.id} of the Kinesis {self._what} could not be read for "
                    f"{_TELL_THROTTLED_S:g} s, as it has too many readers: {error}",
                    error,
                )
            return True
        return False

    def _tell_trimmed(self, shard: _Shard, records: Sequence[Mapping[str, Any]]) -> None:
        first = records[0]["SequenceNumber"] if records else "its end"
        self._receiver.reportError(
            f"Records of shard {shard.id} of the Kinesis {self._what} are lost: what came after "
            f"{shard.looks_for} and before {first} was trimmed before it was read (how much, "
            "Kinesis does not say). Let the stream keep records longer than the receiver is away"
        )

    def _tell_behind(self, shard: _Shard) -> None:
        is_behind = 0 < self._retention_ms * _BEHIND < shard.behind_ms
        if is_behind and not shard.is_told_behind:
            behind_h, kept_h = shard.behind_ms / 3600_000, self._retention_ms // 3600_000
            self._receiver.reportError(
                f"Shard {shard.id} of the Kinesis {self._what} is read {behind_h:.1f} hours behind "
                f"its end, and records are kept for {kept_h}: "
                "they are about to be lost. Raise the rate, or let the stream keep them longer"
            )
        shard.is_told_behind = is_behind


def _shard_at(name: str, place: str | float | None) -> _Shard:
    if isinstance(place, (int, float)):
        return _Shard(name, since_s=place)
    return _Shard(name, after=None if place == ENDED else place, is_ended=place == ENDED)


def made_again(what: str, which: str = "") -> str:
    """Return what is reported of a stream that is another one by the same name.

    Args:
        what: The stream.
        which: The one before.
    """
    return (
        f"The Kinesis {what} is another than the one that was read{which}: what was not read of "
        "that is lost, and this one is read from its oldest record"
    )


def split_name(shard: str, made_ms: int) -> str:
    """Return the name of a shard's split: a stream that is made again has others."""
    return f"{shard}@{made_ms}"


def shard_of(split: str, made_ms: int) -> str | None:
    """Return a split's shard; None: it is of another stream of the same name."""
    name, _, made = split.partition("@")
    return name if made == str(made_ms) else None


def _named(stream: str) -> dict[str, str]:
    return {"StreamARN" if stream.startswith("arn:") else "StreamName": stream}


def _take_note() -> None:
    """With an acknowledgement a call need not wait until its records are durable."""


def _parts(records: Sequence[Mapping[str, Any]]) -> list[Sequence[Mapping[str, Any]]]:
    """Cut records into parts that are smaller than a block."""
    parts, start, size = [], 0, 0
    for at, record in enumerate(records):
        size += len(record["Data"])
        if size >= _MOST_PART_BYTES:
            parts.append(records[start : at + 1])
            start, size = at + 1, 0
    if start < len(records):
        parts.append(records[start:])
    return parts


_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST = 16


class Packed(NamedTuple):
    """One of the records within a record."""

    partition_key: str
    hash_key: int
    """The explicit one, or the MD5 of the partition key: it says which shard it belongs to."""
    data: bytes


def unpack(data: bytes) -> list[Packed] | None:
    """Return the records that a producer packed (KPL aggregation); None: it is one of its own.

    Source: awslabs/amazon-kinesis-producer, "aggregation-format.md": four magic bytes, a message of
    Protocol Buffers, and the MD5 of that. The message has a table of partition keys (1), a table of
    explicit hash keys (2), and records (3) of: index of the partition key (1), index of the
    explicit hash key (2), data (3).

    What begins as if it were packed and is not, by its digest or its form, is also a record of its
    own: that is how Amazon's client takes it.
    """
    if not data.startswith(_MAGIC) or len(data) < len(_MAGIC) + _DIGEST:
        return None
    message, digest = data[len(_MAGIC) : -_DIGEST], data[-_DIGEST:]
    if hashlib.md5(message, usedforsecurity=False).digest() != digest:
        return None
    try:
        return _records(message)
    except (IndexError, ValueError):
        return None


def _records(message: bytes) -> list[Packed]:
    keys: list[str] = []
    hashes: list[int] = []
    found: list[tuple[int, int | None, bytes]] = []
    for number, value in _fields(message):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            keys.append(value.decode())
        elif number == 2:
            hashes.append(int(value))
        elif number == 3:
            record = dict(_fields(value))
            key, explicit, data = record.get(1, 0), record.get(2), record.get(3, b"")
            if not isinstance(key, int) or isinstance(explicit, bytes) or isinstance(data, int):
                raise ValueError("a field is of another type")
            found.append((key, explicit, data))
    return [
        Packed(keys[key], hash_of(keys[key]) if explicit is None else hashes[explicit], data)
        for key, explicit, data in found
    ]


def hash_of(partition_key: str) -> int:
    """Return the hash key by which Kinesis chooses a shard."""
    digest = hashlib.md5(partition_key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message of Protocol Buffers: numbers and bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint(message, at)
        if size is None or at + size > len(message):
            raise ValueError("it ends too early, or is of another form")
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
