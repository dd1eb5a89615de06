"""kafka-python as an engine."""

from __future__ import annotations

import difflib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter, itemgetter
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import kafka
import numpy as np
from kafka import errors
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.structs import MemberState

from penstock.sources.kafka.columns import arrays
from penstock.sources.kafka.engines._kafka_python_client import admin, consumer, translated_errors
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

_POSITION_MS = 50
_ASK_MS = 5000
_PAUSE_S = 0.1
# What librdkafka and Kafka itself call the same things.
_OTHER_NAMES = {
    "sasl_username": "sasl_plain_username",
    "sasl_password": "sasl_plain_password",
    "sasl_mechanisms": "sasl_mechanism",
    "ssl_ca_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
}
# With others the client goes on as if they were not set: it would speak plain text, or give the
# records of aborted transactions.
_CHOICES = {
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "isolation_level": ("read_uncommitted", "read_committed"),
}

_log = logging.getLogger("penstock.sources.kafka")

# A record of the client has more fields than ours; both steps run in C.
_our_fields = itemgetter(0, 1, 3, 4, 5, 6, 7, 8)
_make = partial(tuple.__new__, KafkaRecord)
_value = attrgetter("value")


class _Chunk(Chunk):
    @staticmethod
    def _offset(record: Any) -> int:
        return int(record.offset)

    def values(self) -> list[bytes | None]:
        return list(map(_value, self._found))

    def records(self) -> list[KafkaRecord]:
        return list(map(_make, map(_our_fields, self._found)))

    def columns(self) -> Mapping[str, pa.Array]:
        fields = zip(*map(_our_fields, self._found), strict=True)
        topics, partitions, offsets, times, kinds, keys, values, headers = fields
        return arrays(
            (topics[0], partitions[0]),
            np.fromiter(offsets, np.int64, len(offsets)),
            np.fromiter(times, np.int64, len(times)),
            np.fromiter(kinds, np.int32, len(kinds)),
            keys,
            values,
            headers,
        )


class _RangeConsumer(RangeConsumer):
    def __init__(self, client: Any, partition: TopicPartition) -> None:
        self._client = client
        self._partition = kafka.TopicPartition(*partition)

    def seek(self, offset: int) -> None:
        self._client.seek(self._partition, offset)

    def poll(self, wait_s: float, most: int) -> tuple[Chunk | None, int | None]:
        with translated_errors():
            polled = self._client.poll(round(wait_s * 1000), max_records=most)
            found = polled.get(self._partition)
            position = self._client.position(self._partition, timeout_ms=_POSITION_MS)
        return _Chunk(found) if found else None, position

    def bounds(self, timeout_s: float) -> tuple[int, int]:
        mine, timeout_ms = self._partition, timeout_s * 1000
        with translated_errors():
            first = self._client.beginning_offsets([mine], timeout_ms)[mine]
            return first, self._client.end_offsets([mine], timeout_ms)[mine]

    def close(self) -> None:
        self._client.close(autocommit=False, timeout_ms=0)


class _DriverConnection(DriverConnection):
    def __init__(self, params: ClientParams, timeout_s: float) -> None:
        bootstrap_ms = max(1, round(timeout_s * 1000))
        with translated_errors():
            self._admin = admin(params, bootstrap_timeout_ms=bootstrap_ms)
            try:
                self._consumer = consumer(
                    params, group_id=params.group_id, bootstrap_timeout_ms=bootstrap_ms
                )
            except BaseException:
                self._admin.close()
                raise

    def partitions(
        self, topics: Sequence[str] | None, timeout_s: float, with_leaders: bool
    ) -> dict[TopicPartition, PartitionState]:
        with translated_errors():
            described = self._admin.describe_topics(None if topics is None else list(topics))
            cluster = self._admin.describe_cluster() if with_leaders else {"brokers": ()}
            brokers = {each["broker_id"]: each["host"] for each in cluster["brokers"]}
            found = {}
            for topic in described:
                if topic["error_code"] == errors.UnknownTopicOrPartitionError.errno:
                    continue
                if topic["error_code"] != 0:
                    raise errors.for_code(topic["error_code"])(topic["name"])
                for partition in topic["partitions"]:
                    leader = brokers.get(partition["leader_id"], "")
                    key = TopicPartition(topic["name"], partition["partition_index"])
                    found[key] = PartitionState(topic_id_of(topic.get("topic_id")), leader)
        return found

    def offsets(
        self, partitions: Sequence[TopicPartition], timeout_s: float, latest: bool
    ) -> dict[TopicPartition, int]:
        ask = self._consumer.end_offsets if latest else self._consumer.beginning_offsets
        with translated_errors():
            wanted = [kafka.TopicPartition(*each) for each in partitions]
            found = ask(wanted, timeout_ms=timeout_s * 1000)
        return {TopicPartition(*each): offset for each, offset in found.items()}

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        found = {}
        with translated_errors():
            for each in partitions:
                mine = kafka.TopicPartition(*each)
                offset = self._consumer.committed(mine, timeout_ms=timeout_s * 1000)
                if offset is not None:
                    found[each] = offset
        return found

    def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> None:
        with translated_errors():
            _commit(self._consumer, offsets, timeout_s)

    def close(self) -> None:
        self._consumer.close(autocommit=False, timeout_ms=1000)
        self._admin.close()


class _Member(GroupMember):
    def __init__(self, client: Any, topics: Sequence[str], offsets: OffsetLedger) -> None:
        self._client = client
        self._offsets = offsets
        self._unchecked: set[TopicPartition] = set()
        self._is_new = True
        client.subscribe(list(topics), listener=_Listener(client, offsets, self._unchecked))

    def poll(self, wait_s: float) -> Iterable[tuple[TopicPartition, Chunk]]:
        with translated_errors():
            self._check_offsets()
            self._end_half_joined()
            self._learn_whether_it_leads()
            polled = self._client.poll(round(wait_s * 1000))
        chunks = {TopicPartition(*each): _Chunk(found) for each, found in polled.items()}
        # What came of those that are to be checked is read again, from the right offset.
        return [(each, chunk) for each, chunk in chunks.items() if each not in self._unchecked]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        try:
            self._client.seek(kafka.TopicPartition(*partition), offset)
        except ValueError as error:
            # In the client's own thread partitions go at any moment.
            raise RetriableError(f"{partition} is not this member's any more") from error

    def position(self, partition: TopicPartition) -> int | None:
        if partition in self._unchecked:
            return None
        try:
            with translated_errors():
                mine = kafka.TopicPartition(*partition)
                position: int | None = self._client.position(mine, timeout_ms=_POSITION_MS)
        except ClientError:
            # Also where it went in the client's own thread, as it may at any moment.
            return None
        return position

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition(*each) for each in self._client.assignment()}

    def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> None:
        with translated_errors():
            _commit(self._client, offsets, timeout_s)

    def close(self) -> None:
        with translated_errors():
            self._client.close(autocommit=False, timeout_ms=1000)

    def _end_half_joined(self) -> None:
        """Join again where the client has forgotten that it was joining.

        It joins because a topic's partitions became known or more. When a poll ends before it has
        joined, and it has divided the partitions itself, the next poll finds nothing that changed,
        and never takes the assignment that came: it stays a member that reads nothing
        (kafka-python 3.0).
        """
        coordinator = self._client._coordinator
        if coordinator.rejoining and not coordinator.need_rejoin():
            coordinator.request_rejoin()

    def _learn_whether_it_leads(self) -> None:
        """Join once more where it is not known who leads the group.

        Brokers give a static member that comes back what it had before, and do not say that it
        leads: the client then never looks for partitions that the group lacks, such as those of a
        topic that was made meanwhile (kafka-python 3.0). They take a leader's second join for the
        wish to divide the partitions again; another member's changes nothing.
        """
        coordinator = self._client._coordinator
        if self._is_new and coordinator.state is MemberState.STABLE:
            self._is_new = False
            if not coordinator._is_leader:
                coordinator.request_rejoin()

    def _check_offsets(self) -> None:
        """Let partitions that came back go on where another member may have got to meanwhile."""
        for each in sorted(self._unchecked):
            # First: it may go and come back meanwhile, and is then to be looked at again.
            self._unchecked.discard(each)
            mine = kafka.TopicPartition(*each)
            if mine not in self._client.assignment():
                continue
            try:
                committed = self._client.committed(mine, timeout_ms=_ASK_MS)
            except BaseException:
                self._unchecked.add(each)
                raise
            if each in self._unchecked:
                continue
            stored = self._offsets.note_group(each, committed)
            # The client would never again read one that was paused while some of its records waited
            # inside (kafka-python 3.0): so it reads on, and is set back here.
            if stored is not None:
                with suppress(RetriableError):
                    self.seek(each, stored)


class _Listener(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # the client is untyped
    """Notified of partitions that come and go, in a thread of the client's own."""

    def __init__(self, client: Any, offsets: OffsetLedger, unchecked: set[TopicPartition]) -> None:
        self._client = client
        self._offsets = offsets
        self._unchecked = unchecked

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        # The next owner starts where the group is: at the end of what is durable here.
        gone = [TopicPartition(*each) for each in revoked]
        self._offsets.await_durable(gone)
        offsets = self._offsets.to_commit(gone)
        if offsets:
            try:
                await self._client.commit_async(_as_commit(offsets))
            except errors.KafkaError as error:
                # Their next owner begins at the commit before.
                _log.info("Offsets of partitions that go were not committed: %s", error)
            else:
                self._offsets.note_committed(offsets)

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        for each in assigned:
            partition = TopicPartition(*each)
            self._offsets.note_assigned(partition)
            offset = self._offsets.stored(partition)
            if offset is not None:
                # Not before the next poll may the client be asked what the group has.
                self._client.seek(each, offset)
                self._unchecked.add(partition)


class KafkaPython(Engine):
    """kafka-python 3."""

    name = "kafka-python"

    def accept(self, given: Mapping[str, Any]) -> dict[str, Any]:
        known = kafka.KafkaConsumer.DEFAULT_CONFIG
        values = {}
        for name, value in given.items():
            own = name if name in known else _OTHER_NAMES.get(name, name)
            if own not in known:
                closest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
                raise ValueError(
                    f"kafka-python has no setting {name.replace('_', '.')!r}; the closest is "
                    f"{closest!r}. Those of Kafka's Java client that name files or classes have "
                    "other names there"
                )
            # librdkafka takes either case.
            values[own] = str(value).upper() if own == "security_protocol" else value
        for name, choices in _CHOICES.items():
            if values.get(name, choices[0]) not in choices:
                raise ValueError(
                    f"{name.replace('_', '.')} is one of {', '.join(choices)}, and not "
                    f"{values[name]!r:.100}"
                )
        return values

    def check(self, values: Mapping[str, Any]) -> None:
        pass  # It looks at values when it connects.

    def range_consumer(
        self, params: ClientParams, partition: TopicPartition, timeout_s: float
    ) -> RangeConsumer:
        with translated_errors():
            client = consumer(params, bootstrap_timeout_ms=max(1, round(timeout_s * 1000)))
        client.assign([kafka.TopicPartition(*partition)])
        return _RangeConsumer(client, partition)

    def driver_connection(
        self, params: ClientParams, timeout_s: float, on_close: Callable[[], bool]
    ) -> DriverConnection:
        return _DriverConnection(params, timeout_s)

    def member(
        self,
        params: ClientParams,
        topics: Sequence[str],
        instance: str,
        offsets: OffsetLedger,
        timeout_s: float,
    ) -> GroupMember:
        with translated_errors():
            client = consumer(
                params,
                group_id=params.group_id,
                auto_offset_reset=params.start,
                group_instance_id=instance,
                bootstrap_timeout_ms=max(1, round(timeout_s * 1000)),
            )
        return _Member(client, topics, offsets)


ENGINE = KafkaPython()


def _commit(client: Any, offsets: Mapping[TopicPartition, int], timeout_s: float) -> None:
    """Commit, and try again as the client's own `commit` does, but not while a topic is missing.

    Offsets of one that was deleted would at last be committed for the next one of its name, whose
    records before them no member would read.
    """
    end_s = time.monotonic() + timeout_s
    while True:
        try:
            _commit_once(client, offsets, end_s)
        except errors.UnknownTopicOrPartitionError:
            raise
        except errors.RetriableError:
            if time.monotonic() + _PAUSE_S > end_s:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def _commit_once(client: Any, offsets: Mapping[TopicPartition, int], end_s: float) -> None:
    answered: SimpleQueue[object] = SimpleQueue()
    left_s = max(0.0, end_s - time.monotonic())
    find = client._coordinator.ensure_coordinator_ready
    # Otherwise the answer would be that of looking for it.
    if client.config["group_id"] is not None and not find(timeout_ms=left_s * 1000):
        raise errors.KafkaTimeoutError("no coordinator of the group is found")
    future = client.commit_async(_as_commit(offsets))
    future.add_both(answered.put)
    try:
        answered.get(timeout=max(0.0, end_s - time.monotonic()))
    except Empty:
        raise errors.KafkaTimeoutError("no answer to a commit") from None
    if future.failed():
        raise future.exception


def _as_commit(offsets: Mapping[TopicPartition, int]) -> dict[Any, Any]:
    return {
        kafka.TopicPartition(*each): kafka.OffsetAndMetadata(offset, "", -1)
        for each, offset in offsets.items()
    }
