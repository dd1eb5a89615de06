"""confluent-kafka (librdkafka) as an engine: for tasks, the driver, and members of a group."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, groupby, repeat
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
from penstock.sources.kafka.engines._confluent_client import (
    Failures,
    Refusals,
    bounds_of,
    client_log,
    consumer,
    masked,
    ours,
    plain,
    shared_settings,
    translated,
    translated_errors,
)
from penstock.sources.kafka.engines.interface import (
    Chunk,
    ClientError,
    DriverConnection,
    Engine,
    GroupMember,
    PartitionState,
    RangeConsumer,
    RetriableError,
)
from penstock.sources.kafka.records import KafkaRecord, TopicPartition, topic_id_of

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.sources.kafka._ledger import OffsetLedger
    from penstock.sources.kafka.engines.interface import ClientParams

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

_SLICE_S = 1.0
_ASK_S = 5.0
_MOST = 20_000
_log = logging.getLogger("penstock.sources.kafka")
# Each runs in C for all records of a chunk.
_make = partial(tuple.__new__, KafkaRecord)
_error_of: Callable[[Any], Any] = Message.error
_offset_of: Callable[[Any], int] = Message.offset
_value: Callable[[Any], bytes | None] = Message.value
_key: Callable[[Any], bytes | None] = Message.key
_headers: Callable[[Any], Any] = Message.headers
_timestamp: Callable[[Any], tuple[int, int]] = Message.timestamp
_partition_of: Callable[[Any], int] = Message.partition
_topic_of: Callable[[Any], str] = Message.topic


class _RangeConsumer(RangeConsumer):
    def __init__(self, params: ClientParams, partition: TopicPartition) -> None:
        # Only partitions that are assigned are read: the group is never joined.
        self._client = consumer(
            params,
            {
                "group.id": params.group_id or "penstock",
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
            },
        )
        self._partition = partition
        self._failures = Failures()

    def seek(self, offset: int) -> None:
        self._failures = Failures()
        with translated_errors():
            self._client.assign([confluent_kafka.TopicPartition(*self._partition, offset)])

    def poll(self, wait_s: float, most: int) -> tuple[Chunk | None, int | None]:
        self._failures.check()
        with translated_errors():
            found = self._client.consume(most, wait_s)
        position: int | None = None
        if any(map(_error_of, found)):
            others = [each for each in found if each.error() is not None]
            found = [each for each in found if each.error() is None]
            for each in others:
                if each.error().code() == KafkaError._PARTITION_EOF:
                    # It comes once for each end, also when there were only markers.
                    position = each.offset()
                else:
                    self._failures.take([each.error()])
            if not found:
                self._failures.check()
        if found:
            chunk = _MessageChunk(found)
            return chunk, max(chunk.end, position or 0)
        return None, position

    def bounds(self, timeout_s: float) -> tuple[int, int]:
        return bounds_of(self._client, self._partition, timeout_s)

    def close(self) -> None:
        self._client.close()


class _Driver(DriverConnection):
    """An administrator of the cluster, and for committed offsets a consumer that joins no group."""

    def __init__(
        self, params: ClientParams, timeout_s: float, is_closed: Callable[[], bool]
    ) -> None:
        self._params = params
        self._refusals = Refusals(params)
        given = {**shared_settings(params), "error_cb": self._refusals}
        self._admin = AdminClient(given, logger=client_log)
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
                # In slices, so that what it logs is reported, and a stop is seen.
                self._topics(min(left_s, _SLICE_S))
                return
            except RetriableError as error:
                if is_closed() or time.monotonic() >= end_s:
                    told = [str(error), self._refusals.told]
                    raise RetriableError("; ".join(filter(None, told))) from error

    def _topics(self, timeout_s: float) -> list[str]:
        """Ask for all that the cluster has; the client then knows who leads and who controls."""
        try:
            with translated_errors():
                return list(self._admin.list_topics(timeout=timeout_s).topics)
        except RetriableError:
            # Its callback is called now.
            self._admin.poll(0)
            self._refusals.check()
            raise

    @contextmanager
    def _asking(self, timeout_s: float) -> Iterator[float]:
        """Give the seconds that a question may take; when it fails, look for who can answer."""
        try:
            yield min(timeout_s, _SLICE_S)
        except RetriableError:
            # By itself the client would go on asking a broker that is gone, for minutes.
            self._topics(min(timeout_s, _SLICE_S))
            raise

    def partitions(
        self, topics: Sequence[str] | None, timeout_s: float, with_leaders: bool
    ) -> dict[TopicPartition, PartitionState]:
        names = self._topics(timeout_s) if topics is None else list(topics)
        if not names:
            return {}
        with self._asking(timeout_s) as slice_s:
            asked = self._admin.describe_topics(TopicCollection(names), request_timeout=slice_s)
            found = {}
            for name, answer in asked.items():
                try:
                    described = answer.result()
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        continue
                    raise translated(error.args[0]) from error
                for each in described.partitions:
                    leader = each.leader.host if with_leaders and each.leader is not None else ""
                    key = TopicPartition(name, each.id)
                    found[key] = PartitionState(topic_id_of(described.topic_id), leader)
        return found

    def offsets(
        self, partitions: Sequence[TopicPartition], timeout_s: float, latest: bool
    ) -> dict[TopicPartition, int]:
        spec = OffsetSpec.latest() if latest else OffsetSpec.earliest()
        with self._asking(timeout_s) as slice_s, translated_errors():
            asked = self._admin.list_offsets(
                {confluent_kafka.TopicPartition(*each): spec for each in partitions},
                isolation_level=self._isolation,
                request_timeout=slice_s,
            )
            found = {ours(each): answer.result().offset for each, answer in asked.items()}
            for each, offset in found.items():
                if offset < 0:
                    # That is how it says that the leader did not answer.
                    raise RetriableError(f"the leader of {each.topic} {each.partition} is away")
        return found

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        # An administrator ends the process (a null pointer in librdkafka, up to 2.16) where the
        # group's coordinator has moved. A consumer that subscribes to nothing joins no group.
        client = consumer(
            self._params, {"group.id": self._params.group_id, "error_cb": self._refusals}
        )
        try:
            with translated_errors():
                mine = [confluent_kafka.TopicPartition(*each) for each in partitions]
                found = client.committed(mine, timeout=timeout_s)
                for each in found:
                    if each.error is not None:
                        raise translated(each.error)
        finally:
            client.close()
        return {ours(each): each.offset for each in found if each.offset >= 0}

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
        with translated_errors():
            (answer,) = asked.values()
            for each in answer.result().topic_partitions:
                if each.error is not None:
                    raise translated(each.error)

    def close(self) -> None:
        # It has no close: its threads end with the object.
        del self._admin


class _Member(GroupMember):
    """A member whose client calls it, while it is polled, when partitions come and go."""

    def __init__(
        self,
        params: ClientParams,
        topics: Sequence[str],
        instance: str,
        offsets: OffsetLedger,
    ) -> None:
        start = "error" if params.start == "none" else params.start
        self._refusals = Refusals(params)
        self._failures = Failures()
        self._client = consumer(
            params,
            {
                "group.id": params.group_id,
                "group.instance.id": instance,
                "auto.offset.reset": start,
                "enable.partition.eof": True,
                "error_cb": self._refusals,
            },
        )
        # Where they end, as far as it was read; and where they were begun.
        self._positions: dict[TopicPartition, int] = {}
        self._topics = tuple(topics)
        self._offsets = offsets
        self._owned: set[TopicPartition] = set()
        self._moved: set[TopicPartition] = set()
        self._unknown: ClientError | None = None
        strategy = str(params.values.get("partition.assignment.strategy", ""))
        self._is_cooperative = "cooperative" in strategy
        with translated_errors():
            self._client.subscribe(
                list(topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )

    def poll(self, wait_s: float) -> Iterable[tuple[TopicPartition, Chunk]]:
        self._moved.clear()
        self._refusals.check()
        self._failures.check()
        with translated_errors():
            # Two steps: many at once would wait until there are many.
            found = self._client.consume(1, wait_s)
            if found:
                found += self._client.consume(_MOST, 0)
        if self._unknown is not None:
            error, self._unknown = self._unknown, None
            raise error
        if any(map(_error_of, found)):
            for each in found:
                error = each.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    # Also where there were only markers.
                    ended = TopicPartition(each.topic(), each.partition())
                    if ended not in self._moved:
                        self._positions[ended] = each.offset()
                elif error is not None:
                    self._failures.take([error])
            found = [each for each in found if each.error() is None]
            if not found:
                self._failures.check()
        chunks = []
        for _, run in groupby(found, _partition_of):
            same = list(run)
            topics = self._topics if len(self._topics) == 1 else dict.fromkeys(map(_topic_of, same))
            for topic in topics:
                mine = TopicPartition(topic, same[0].partition())
                of_topic = same
                if len(topics) > 1:
                    of_topic = [each for each in same if each.topic() == topic]
                if mine in self._moved:
                    self._drop(mine, of_topic)
                elif mine in self._owned:
                    chunks.append((mine, _MessageChunk(of_topic)))
        return chunks

    def _drop(self, partition: TopicPartition, found: Sequence[Any]) -> None:
        """Read again what came while the partition went and maybe came back."""
        if partition in self._owned:
            stored = self._offsets.stored(partition)
            self.seek(partition, _offset_of(found[0]) if stored is None else stored)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._positions.pop(partition, None)
        with translated_errors():
            self._client.seek(confluent_kafka.TopicPartition(*partition, offset))

    def position(self, partition: TopicPartition) -> int | None:
        position = self._positions.get(partition, -1)
        return position if position >= 0 else None

    def assignment(self) -> set[TopicPartition]:
        return set(self._owned)

    def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> None:
        wanted = [confluent_kafka.TopicPartition(*each, at) for each, at in offsets.items()]
        with translated_errors():
            for each in self._client.commit(offsets=wanted, asynchronous=False) or ():
                if each.error is not None:
                    raise translated(each.error)

    def close(self) -> None:
        self._client.close()

    # The client calls these while it is polled, in the thread that polls.

    def _on_assign(self, client: Any, assigned: Sequence[Any]) -> None:
        try:
            known = client.committed(assigned, timeout=_ASK_S)
            for each in known:
                if each.error is not None:
                    raise KafkaException(each.error)
        except KafkaException as error:
            if any(self._offsets.stored(ours(each)) is not None for each in assigned):
                # Others may have got further: nothing is read or committed before that is known.
                self._unknown = ClientError(f"what the group has committed is not known: {error}")
                self._unknown.__cause__ = error
            known = ()
        committed = {ours(each): each.offset for each in known}
        for each in assigned:
            partition = ours(each)
            self._offsets.note_assigned(partition)
            if partition in committed:
                stored = self._offsets.note_group(partition, committed[partition])
                if stored is not None:
                    each.offset = stored
            self._positions[partition] = max(each.offset, committed.get(partition, -1))
        self._owned.update(map(ours, assigned))
        if self._is_cooperative:
            client.incremental_assign(assigned)
        else:
            client.assign(assigned)

    def _on_revoke(self, client: Any, revoked: Sequence[Any]) -> None:
        # The next owner starts where the group is: at the end of what is durable here.
        gone = [ours(each) for each in revoked]
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
        self._go([ours(each) for each in lost])

    def _go(self, gone: Sequence[TopicPartition]) -> None:
        self._owned.difference_update(gone)
        for each in gone:
            self._positions.pop(each, None)
        self._moved.update(gone)


class _MessageChunk(Chunk):
    """Messages without errors, of one partition, in their order."""

    @staticmethod
    def _offset(record: Any) -> int:
        return _offset_of(record)

    def values(self) -> list[bytes | None]:
        return list(map(_value, self._found))

    def records(self) -> list[KafkaRecord]:
        found = self._found
        first = found[0]
        times = self._times()
        return list(
            map(
                _make,
                zip(
                    repeat(first.topic()),
                    repeat(first.partition()),
                    map(_offset_of, found),
                    times[:, 1].tolist(),
                    (times[:, 0] - 1).tolist(),
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
        times = self._times()
        return arrays(
            (first.topic(), first.partition()),
            np.fromiter(map(_offset_of, found), np.int64, count),
            np.ascontiguousarray(times[:, 1]),
            (times[:, 0] - 1).astype(np.int32),
            map(_key, found),
            map(_value, found),
            list(map(_headers, found)),
        )

    def _times(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return a row of kind and milliseconds for each."""
        pairs = chain.from_iterable(map(_timestamp, self._found))
        return np.fromiter(pairs, np.int64, 2 * len(self._found)).reshape(-1, 2)


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
            given = {**plain(values), "group.id": "penstock", "log_level": 0}
            confluent_kafka.Consumer(given).close()
        except KafkaException as error:
            raise ValueError(masked(error, values)) from None
        except (TypeError, ValueError) as error:
            raise ValueError("confluent-kafka refuses the type of a setting") from error

    def range_consumer(
        self, params: ClientParams, partition: TopicPartition, timeout_s: float
    ) -> RangeConsumer:
        return _RangeConsumer(params, partition)

    def driver_connection(
        self, params: ClientParams, timeout_s: float, on_close: Callable[[], bool]
    ) -> DriverConnection:
        return _Driver(params, timeout_s, on_close)

    def member(
        self,
        params: ClientParams,
        topics: Sequence[str],
        instance: str,
        offsets: OffsetLedger,
        timeout_s: float,
    ) -> GroupMember:
        return _Member(params, topics, instance, offsets)


ENGINE = Confluent()
