"""Kinesis in memory, as AWS documents it where moto's server does otherwise.

Shards end when they are split or merged and name their children; iterators expire; records are
trimmed; there are pages of shards. botocore's Stubber checks each answer against the service's
model.
"""

from __future__ import annotations

import base64
import itertools
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import boto3
from botocore.stub import Stubber

from tests.services.aws_front import Answer, error
from tests.services.moto import KEYS, REGION

_PAGE = 2
_KEYS = 1 << 128
_OPERATIONS = {
    "DescribeStreamSummary": "describe_stream_summary",
    "GetRecords": "get_records",
    "GetShardIterator": "get_shard_iterator",
    "ListShards": "list_shards",
}


@dataclass
class _Shard:
    id: str
    first_key: int
    last_key: int
    parents: list[str]
    first: str
    records: list[dict[str, Any]] = field(default_factory=list)
    last: str | None = None
    children: list[dict[str, Any]] = field(default_factory=list)


class DocumentedKinesis:
    """One stream; give `answer` to an `AwsFront` as its hook.

    Attributes:
        arn: Of the stream.
        limit: How many records an answer has at most.
        refuses_trimmed: Whether a place that was trimmed is an invalid argument.
        behind_ms: What answers say of how far behind they are, if not None.
    """

    def __init__(self, shards: int = 1, name: str = "orders") -> None:
        self.name = name
        self.arn = f"arn:aws:kinesis:{REGION}:123456789012:stream/{name}"
        self.made_s = 1_700_000_000.25
        self.limit = 1000
        self.refuses_trimmed = False
        self.behind_ms: int | None = None
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._iterators = itertools.count()
        self._places: dict[str, tuple[str, int]] = {}
        self._shards: dict[str, _Shard] = {}
        client = boto3.client("kinesis", region_name=REGION, **KEYS)
        self._stubber = Stubber(client)
        width = _KEYS // shards
        for number in range(shards):
            last = _KEYS - 1 if number == shards - 1 else (number + 1) * width - 1
            self._add(number * width, last, [])

    # -- what a test does ------------------------------------------------------------------------

    def put(self, *data: bytes, shard: str | None = None) -> None:
        """Put records into a shard; None: the last one."""
        with self._lock:
            found = self._shards[shard or self.ids()[-1]]
            assert found.last is None, "a shard that was split or merged takes no records"
            for each in data:
                record = {
                    "SequenceNumber": self._number(),
                    "ApproximateArrivalTimestamp": time.time(),
                    "Data": each,
                    "PartitionKey": "key",
                }
                found.records.append(record)

    def ids(self) -> list[str]:
        """The shards, as they were made."""
        with self._lock:
            return list(self._shards)

    def records(self, shard: str) -> list[dict[str, Any]]:
        """What a shard has, as AWS tells it."""
        return self._shards[shard].records

    def split(self, shard: str) -> list[str]:
        """Split a shard, and return its children."""
        with self._lock:
            parent = self._shards[shard]
            middle = (parent.first_key + parent.last_key) // 2
            self._end(parent)
            lower = self._add(parent.first_key, middle, [shard])
            upper = self._add(middle + 1, parent.last_key, [shard])
            return [lower, upper]

    def merge(self, shard: str, adjacent: str) -> str:
        """Merge two shards, and return their child."""
        with self._lock:
            first, second = self._shards[shard], self._shards[adjacent]
            self._end(first)
            self._end(second)
            return self._add(first.first_key, second.last_key, [shard, adjacent])

    def trim(self, shard: str, count: int) -> None:
        """Let a shard's oldest records be gone."""
        with self._lock:
            del self._shards[shard].records[:count]

    def drop(self, shard: str) -> None:
        """Let an ended shard be gone, as after the stream's retention."""
        with self._lock:
            del self._shards[shard]

    def expire_iterators(self) -> None:
        """Let all iterators be too old."""
        with self._lock:
            self._places.clear()

    # -- what AWS does ---------------------------------------------------------------------------

    def answer(self, name: str, members: dict[str, Any]) -> Answer | None:
        """Answer a call."""
        with self._lock:
            found: Answer = getattr(self, f"_{_OPERATIONS[name]}")(members)
            if found.status == 200:
                self._stubber.add_response(_OPERATIONS[name], _as_parsed(found.body))
            return found

    def _describe_stream_summary(self, members: dict[str, Any]) -> Answer:
        if self.name not in (
            members.get("StreamName"),
            members.get("StreamARN", "")[-len(self.name) :],
        ):
            return error("ResourceNotFoundException", "Stream not found")
        summary = {
            "StreamName": self.name,
            "StreamARN": self.arn,
            "StreamStatus": "ACTIVE",
            "RetentionPeriodHours": 24,
            "StreamCreationTimestamp": self.made_s,
            "EnhancedMonitoring": [],
            "OpenShardCount": len(self._shards),
        }
        return Answer({"StreamDescriptionSummary": summary})

    def _list_shards(self, members: dict[str, Any]) -> Answer:
        token = members.get("NextToken")
        assert (token is None) == ("StreamARN" in members or "StreamName" in members)
        start = int(token or 0)
        found = list(self._shards.values())
        body: dict[str, Any] = {"Shards": [self._told(each) for each in found[start:][:_PAGE]]}
        if start + _PAGE < len(found):
            body["NextToken"] = str(start + _PAGE)
        return Answer(body)

    def _get_shard_iterator(self, members: dict[str, Any]) -> Answer:
        shard = self._shards.get(members["ShardId"])
        if shard is None:
            return error("ResourceNotFoundException", f"Shard {members['ShardId']} not found")
        numbers = [each["SequenceNumber"] for each in shard.records]
        match members["ShardIteratorType"]:
            case "TRIM_HORIZON":
                first = ""
            case "LATEST":
                first = self._number()
            case "AT_SEQUENCE_NUMBER":
                first = members["StartingSequenceNumber"]
                if first not in numbers and self.refuses_trimmed:
                    return error("InvalidArgumentException", "It did not come from this stream")
            case "AT_TIMESTAMP":
                late = [
                    each["SequenceNumber"]
                    for each in shard.records
                    # As older versions of botocore ask: for whole seconds.
                    if each["ApproximateArrivalTimestamp"] >= int(members["Timestamp"])
                ]
                first = late[0] if late else self._number()
        return Answer({"ShardIterator": self._iterator(shard.id, first)})

    def _get_records(self, members: dict[str, Any]) -> Answer:
        place = self._places.pop(members["ShardIterator"], None)
        if place is None:
            return error("ExpiredIteratorException", "Iterator expired")
        shard = self._shards[place[0]]
        late = [each for each in shard.records if each["SequenceNumber"] >= place[1]]
        found, left = late[: self.limit], late[self.limit :]
        encoded = [{**each, "Data": base64.b64encode(each["Data"]).decode()} for each in found]
        behind_ms = 1000 * len(left) if self.behind_ms is None else self.behind_ms
        body: dict[str, Any] = {"Records": encoded, "MillisBehindLatest": behind_ms}
        if left or shard.last is None:
            following = left[0]["SequenceNumber"] if left else self._number()
            body["NextShardIterator"] = self._iterator(shard.id, following)
        else:
            body["ChildShards"] = shard.children
        return Answer(body)

    def _iterator(self, shard: str, first: Any) -> str:
        name = f"iterator-{next(self._iterators)}"
        self._places[name] = (shard, first)
        return name

    def _number(self) -> str:
        return f"496{next(self._numbers):053}"

    def _add(self, first_key: int, last_key: int, parents: list[str]) -> str:
        number = max((int(each[-12:]) + 1 for each in self._shards), default=0)
        shard = _Shard(f"shardId-{number:012}", first_key, last_key, parents, self._number())
        self._shards[shard.id] = shard
        for parent in parents:
            told = {"ShardId": shard.id, "ParentShards": parents, "HashKeyRange": _keys(shard)}
            self._shards[parent].children.append(told)
        return shard.id

    def _end(self, shard: _Shard) -> None:
        assert shard.last is None
        shard.last = self._number()

    def _told(self, shard: _Shard) -> dict[str, Any]:
        numbers = {"StartingSequenceNumber": shard.first}
        if shard.last is not None:
            numbers["EndingSequenceNumber"] = shard.last
        told = {
            "ShardId": shard.id,
            "HashKeyRange": _keys(shard),
            "SequenceNumberRange": numbers,
        }
        return told | dict(
            zip(("ParentShardId", "AdjacentParentShardId"), shard.parents, strict=False)
        )


def _keys(shard: _Shard) -> dict[str, str]:
    return {"StartingHashKey": str(shard.first_key), "EndingHashKey": str(shard.last_key)}


def _as_parsed(body: dict[str, Any]) -> dict[str, Any]:
    """An answer as botocore gives it to a program, which is what its Stubber takes."""

    def parsed(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {each: parsed(each, found) for each, found in value.items()}
        if isinstance(value, list):
            return [parsed(name, each) for each in value]
        if name.endswith("Timestamp"):
            return datetime.fromtimestamp(value, timezone.utc)
        return value.encode() if name == "Data" else value

    return {name: parsed(name, value) for name, value in body.items()}
