"""What the driver asks, by confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import confluent_kafka
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from penstock.sources.kafka.engines._confluent_client import (
    Refusals,
    client_log,
    consumer,
    ours,
    settings,
    translated,
    translated_errors,
)
from penstock.sources.kafka.engines.interface import (
    DriverConnection,
    PartitionState,
    RetriableError,
)
from penstock.sources.kafka.records import TopicPartition

if TYPE_CHECKING:
    from penstock.sources.kafka.params import KafkaParams

__all__ = ["ConfluentDriver"]


_SLICE_S = 1.0
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
"""Settings that an administrator takes: it warns of those that only consumers have."""


class ConfluentDriver(DriverConnection):
    """An administrator of the cluster, and for committed offsets a consumer that joins no group."""

    def __init__(
        self, params: KafkaParams, timeout_s: float, is_closed: Callable[[], bool]
    ) -> None:
        self._params = params
        given = {
            name: value
            for name, value in settings(params, {}).items()
            if name.startswith(_FOR_ADMIN)
        }
        self._refusals = Refusals(params)
        self._admin = AdminClient({**given, "error_cb": self._refusals}, logger=client_log)
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
                    found[key] = PartitionState(str(described.topic_id), leader)
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
                    # That is how it tells that the leader did not answer.
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
