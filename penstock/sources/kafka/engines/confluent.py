"""confluent-kafka (librdkafka) as an engine."""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any

import confluent_kafka
import numpy as np
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from penstock.sources.kafka.columns import arrays
from penstock.sources.kafka.engines.seam import (
    AskAgainError,
    Chunk,
    ClientError,
    DriverConnection,
    Engine,
    GroupMember,
    OffsetsGoneError,
    OffsetsOfMember,
    PartitionState,
    RangeConsumer,
)
from penstock.sources.kafka.records import KafkaRecord, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.sources.kafka.params import KafkaParams

__all__ = ["ENGINE"]

_ASK_S = 5.0
_MOST = 20_000
_CONNECT_SLICE_S = 1.0
_DEFAULTS = {
    # Its default lets a client stay away for ten seconds after a broker is back.
    "reconnect.backoff.max.ms": 1000,
    # Its default of a second is how long it fetches nothing after what it has fetched is enough.
    "fetch.queue.backoff.ms": 20,
    "queued.max.messages.kbytes": 32 << 10,
    "max.partition.fetch.bytes": 4 << 20,
}
# What kafka-python and Kafka itself call the same things.
_OTHER_NAMES = {
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
    "ssl_crlfile": "ssl.crl.location",
    "ssl_ciphers": "ssl.cipher.suites",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "fetch_max_wait_ms": "fetch.wait.max.ms",
    "request_timeout_ms": "socket.timeout.ms",
    "connections_max_idle_ms": "connections.max.idle.ms",
}
_FOR_ADMIN = (
    "bootstrap.",
    "security.",
    "sasl.",
    "ssl.",
    "socket.",
    "reconnect.",
    "client.",
    "broker.",
)
"""It warns of all those that only consumers have."""

_LATER = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._WAIT_CACHE,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._STATE,
    KafkaError._NO_OFFSET,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_INSTANCE_ID,
}
_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}

_log = logging.getLogger("penstock.sources.kafka")
_client_log = logging.getLogger("penstock.sources.kafka.librdkafka")

# Each runs in C for all records of a chunk.
_make = partial(tuple.__new__, KafkaRecord)
_error: Callable[[Any], Any] = Message.error
_offset: Callable[[Any], int] = Message.offset
_value: Callable[[Any], bytes | None] = Message.value
_key: Callable[[Any], bytes | None] = Message.key
_headers: Callable[[Any], Any] = Message.headers
_timestamp: Callable[[Any], tuple[int, int]] = Message.timestamp
_place: Callable[[Any], int] = Message.partition
_topic: Callable[[Any], str] = Message.topic


def _as_ours(error: Any) -> ClientError:
    """Return an error of the client, which is a code and a text, as one of ours."""
    told = f"{error.name()}: {error.str()}"
    if error.code() in _GONE:
        return OffsetsGoneError(told)
    if error.code() in _LATER or error.retriable():
        return AskAgainError(told)
    return ClientError(told)


@contextmanager
def _told_by_ours() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise _as_ours(error.args[0]) from error


class _Chunk:
    def __init__(self, found: list[Any]) -> None:
        self._found = found

    def __len__(self) -> int:
        return len(self._found)

    @property
    def end(self) -> int:
        return _offset(self._found[-1]) + 1

    def before(self, offset: int) -> Chunk:
        if self.end <= offset:
            return self
        return _Chunk(self._found[: bisect_left(self._found, offset, key=_offset)])

    def parts(self, count: int) -> tuple[Chunk, Chunk]:
        return _Chunk(self._found[:count]), _Chunk(self._found[count:])

    def values(self) -> list[bytes | None]:
        return list(map(_value, self._found))

    def records(self) -> list[KafkaRecord]:
        found = self._found
        first = found[0]
        times = list(map(_timestamp, found))
        return list(
            map(
                _make,
                zip(
                    repeat(first.topic()),
                    repeat(first.partition()),
                    map(_offset, found),
                    [at for _, at in times],
                    [kind - 1 for kind, _ in times],
                    map(_key, found),
                    map(_value, found),
                    [each or [] for each in map(_headers, found)],
                    strict=False,
                ),
            )
        )

    def columns(self) -> Mapping[str, pa.Array]:
        found, count = self._found, len(self._found)
        first = found[0]
        times = np.array(list(map(_timestamp, found)), np.int64)
        return arrays(
            (first.topic(), first.partition()),
            np.fromiter(map(_offset, found), np.int64, count),
            np.ascontiguousarray(times[:, 1]),
            (times[:, 0] - 1).astype(np.int32),
            map(_key, found),
            map(_value, found),
            list(map(_headers, found)),
        )


class _RangeConsumer(RangeConsumer):
    def __init__(self, params: KafkaParams, partition: TopicPartition) -> None:
        # Only partitions that are assigned are read: the group is never joined.
        self._client = _consumer(
            params,
            {
                "group.id": params.group_id or "penstock",
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
            },
        )
        self._partition = partition

    def seek(self, offset: int) -> None:
        with _told_by_ours():
            self._client.assign([confluent_kafka.TopicPartition(*self._partition, offset)])

    def poll(self, wait_s: float, most: int) -> tuple[Chunk | None, int | None]:
        with _told_by_ours():
            found = self._client.consume(most, wait_s)
        position: int | None = None
        if any(map(_error, found)):
            failures = [each for each in found if each.error() is not None]
            found = [each for each in found if each.error() is None]
            for each in failures:
                error = each.error()
                if error.code() == KafkaError._PARTITION_EOF:
                    # It comes once for each end, also when markers are all that was there.
                    position = each.offset()
                elif not found:
                    raise _as_ours(error)
        if found:
            chunk = _Chunk(found)
            return chunk, max(chunk.end, position or 0)
        return None, position

    def bounds(self, timeout_s: float) -> tuple[int, int]:
        mine = confluent_kafka.TopicPartition(*self._partition)
        with _told_by_ours():
            found = self._client.get_watermark_offsets(mine, timeout=timeout_s)
        if found is None:
            raise AskAgainError("no answer in time")
        return found[0], found[1]

    def close(self) -> None:
        self._client.close()


class _DriverConnection(DriverConnection):
    def __init__(
        self, params: KafkaParams, timeout_s: float, is_closed: Callable[[], bool]
    ) -> None:
        self._params = params
        given = {
            name: value
            for name, value in _settings(params, {}).items()
            if name.startswith(_FOR_ADMIN)
        }
        self._admin = AdminClient(given, logger=_client_log)
        level = params.values.get("isolation.level", "read_uncommitted")
        self._isolation = (
            IsolationLevel.READ_COMMITTED
            if level == "read_committed"
            else IsolationLevel.READ_UNCOMMITTED
        )
        end_s = time.monotonic() + timeout_s
        while True:
            left_s = max(0.05, end_s - time.monotonic())
            try:
                # In slices, so that what it logs is told, and a stop is seen.
                self._topics(min(left_s, _CONNECT_SLICE_S))
                return
            except AskAgainError:
                if is_closed() or time.monotonic() >= end_s:
                    raise

    def _topics(self, timeout_s: float) -> list[str]:
        self._admin.poll(0)
        with _told_by_ours():
            return list(self._admin.list_topics(timeout=timeout_s).topics)

    def partitions(
        self, topics: Sequence[str] | None, timeout_s: float, with_leaders: bool
    ) -> dict[TopicPartition, PartitionState]:
        self._admin.poll(0)
        names = self._topics(timeout_s) if topics is None else list(topics)
        if not names:
            return {}
        asked = self._admin.describe_topics(TopicCollection(names), request_timeout=timeout_s)
        found = {}
        for name, answer in asked.items():
            try:
                described = answer.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise _as_ours(error.args[0]) from error
            for each in described.partitions:
                leader = each.leader.host if with_leaders and each.leader is not None else ""
                key = TopicPartition(name, each.id)
                found[key] = PartitionState(str(described.topic_id), leader)
        return found

    def offsets(
        self, partitions: Sequence[TopicPartition], timeout_s: float, latest: bool
    ) -> dict[TopicPartition, int]:
        spec = OffsetSpec.latest() if latest else OffsetSpec.earliest()
        asked = self._admin.list_offsets(
            {confluent_kafka.TopicPartition(*each): spec for each in partitions},
            isolation_level=self._isolation,
            request_timeout=timeout_s,
        )
        with _told_by_ours():
            return {_ours(each): answer.result().offset for each, answer in asked.items()}

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        asked = self._admin.list_consumer_group_offsets(
            [
                ConsumerGroupTopicPartitions(
                    self._params.group_id,
                    [confluent_kafka.TopicPartition(*each) for each in partitions],
                )
            ],
            request_timeout=timeout_s,
        )
        with _told_by_ours():
            (answer,) = asked.values()
            found = answer.result().topic_partitions
        return {_ours(each): each.offset for each in found if each.offset >= 0}

    def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> None:
        asked = self._admin.alter_consumer_group_offsets(
            [
                ConsumerGroupTopicPartitions(
                    self._params.group_id,
                    [confluent_kafka.TopicPartition(*each, at) for each, at in offsets.items()],
                )
            ],
            request_timeout=timeout_s,
        )
        with _told_by_ours():
            (answer,) = asked.values()
            for each in answer.result().topic_partitions:
                if each.error is not None:
                    raise _as_ours(each.error)

    def close(self) -> None:
        # It has no close: its threads end with the object.
        del self._admin


class _Member(GroupMember):
    def __init__(
        self,
        params: KafkaParams,
        topics: Sequence[str],
        instance: str,
        offsets: OffsetsOfMember,
    ) -> None:
        start = "error" if params.start == "none" else params.start
        self._client = _consumer(
            params,
            {
                "group.id": params.group_id,
                "group.instance.id": instance,
                "auto.offset.reset": start,
            },
        )
        self._offsets = offsets
        self._owned: set[TopicPartition] = set()
        self._moved: set[TopicPartition] = set()
        strategy = str(params.values.get("partition.assignment.strategy", ""))
        self._is_cooperative = "cooperative" in strategy
        with _told_by_ours():
            self._client.subscribe(
                list(topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )

    def poll(self, wait_s: float) -> Iterable[tuple[TopicPartition, Chunk]]:
        self._moved.clear()
        with _told_by_ours():
            # Two steps: many at once would wait until there are many.
            found = self._client.consume(1, wait_s)
            if found:
                found += self._client.consume(_MOST, 0)
        if any(map(_error, found)):
            failures = [each.error() for each in found if each.error() is not None]
            found = [each for each in found if each.error() is None]
            if not found:
                raise _as_ours(failures[0])
            _log.info("Kafka's client told: %s", failures[0].str())
        chunks = []
        for _, run in groupby(found, _place):
            same = list(run)
            for topic in dict.fromkeys(map(_topic, same)):
                mine = TopicPartition(topic, same[0].partition())
                of_topic = [each for each in same if each.topic() == topic]
                if mine in self._moved:
                    self._drop(mine, of_topic)
                elif mine in self._owned:
                    chunks.append((mine, _Chunk(of_topic)))
        return chunks

    def _drop(self, partition: TopicPartition, found: Sequence[Any]) -> None:
        """Read again what came while the partition went and maybe came back."""
        if partition in self._owned:
            stored = self._offsets.stored(partition)
            first = _offset(found[0]) if stored is None else stored
            with _told_by_ours():
                self._client.seek(confluent_kafka.TopicPartition(*partition, first))

    def assignment(self) -> set[TopicPartition]:
        return set(self._owned)

    def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> None:
        wanted = [confluent_kafka.TopicPartition(*each, at) for each, at in offsets.items()]
        with _told_by_ours():
            for each in self._client.commit(offsets=wanted, asynchronous=False) or ():
                if each.error is not None:
                    raise _as_ours(each.error)

    def close(self) -> None:
        self._client.close()

    # The client calls these while it is polled, in the thread that polls.

    def _on_assign(self, client: Any, assigned: Sequence[Any]) -> None:
        try:
            known = client.committed(assigned, timeout=_ASK_S)
        except KafkaException as error:
            _log.warning("What the group has committed is not known: %s", error)
            known = ()
        committed = {_ours(each): each.offset for each in known}
        for each in assigned:
            partition = _ours(each)
            self._offsets.note_assigned(partition)
            stored = self._offsets.stored(partition)
            if stored is not None:
                if committed.get(partition, -1) > stored:
                    stored = committed[partition]
                    self._offsets.go_on_from(partition, stored)
                each.offset = stored
        self._owned.update(map(_ours, assigned))
        if self._is_cooperative:
            client.incremental_assign(assigned)
        else:
            client.assign(assigned)

    def _on_revoke(self, client: Any, revoked: Sequence[Any]) -> None:
        # The next owner starts where the group is: at the end of what is durable here.
        gone = [_ours(each) for each in revoked]
        self._offsets.await_durable(gone)
        offsets = self._offsets.to_commit(gone)
        if offsets:
            try:
                self.commit(offsets, _ASK_S)
                self._offsets.note_committed(offsets)
            except ClientError as error:
                _log.warning("The offsets of partitions that go are not committed: %s", error)
        self._go(gone)

    def _on_lost(self, client: Any, lost: Sequence[Any]) -> None:
        # They are another member's already: nothing may be committed any more.
        self._go([_ours(each) for each in lost])

    def _go(self, gone: Sequence[TopicPartition]) -> None:
        self._owned.difference_update(gone)
        self._moved.update(gone)


class Confluent(Engine):
    """confluent-kafka 2."""

    name = "confluent-kafka"

    def accept(self, given: Mapping[str, Any]) -> dict[str, Any]:
        values = {}
        for name, value in given.items():
            own = _OTHER_NAMES.get(name, name.replace("_", "."))
            if name == "ssl_check_hostname":
                value = "https" if value in (True, "true") else "none"
            values[own] = value
        return values

    def check(self, values: Mapping[str, Any]) -> None:
        try:
            # Without an address it connects to nothing.
            confluent_kafka.Consumer({**_plain(values), "group.id": "penstock"}).close()
        except KafkaException as error:
            told = error.args[0].str()
            for name, value in values.items():
                if name.startswith(("sasl.", "ssl.")) and isinstance(value, str) and value:
                    told = told.replace(str.__str__(value), "***")
            raise ValueError(f"confluent-kafka refuses a setting: {told}") from None
        except (TypeError, ValueError) as error:
            raise ValueError("confluent-kafka refuses the type of a setting") from error

    def range_consumer(
        self, params: KafkaParams, partition: TopicPartition, timeout_s: float
    ) -> RangeConsumer:
        return _RangeConsumer(params, partition)

    def driver_connection(
        self, params: KafkaParams, timeout_s: float, on_close: Callable[[], bool]
    ) -> DriverConnection:
        return _DriverConnection(params, timeout_s, on_close)

    def member(
        self,
        params: KafkaParams,
        topics: Sequence[str],
        instance: str,
        offsets: OffsetsOfMember,
        timeout_s: float,
    ) -> GroupMember:
        # It connects in the background and would try for ever.
        _DriverConnection(params, timeout_s, lambda: False).close()
        return _Member(params, topics, instance, offsets)


ENGINE = Confluent()


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as the client takes them: secrets as plain text."""
    return {
        name: str.__str__(value) if isinstance(value, str) else value
        for name, value in values.items()
    }


def _settings(params: KafkaParams, own: Mapping[str, Any]) -> dict[str, Any]:
    return {"bootstrap.servers": params.servers, **_plain(params.values), **own}


def _consumer(params: KafkaParams, own: Mapping[str, Any]) -> Any:
    """Return a consumer that commits nothing by itself."""
    fixed = {"enable.auto.commit": False, "enable.auto.offset.store": False, **own}
    given = {**_DEFAULTS, **_settings(params, fixed)}
    return confluent_kafka.Consumer(given, logger=_client_log)


def _ours(partition: Any) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)
