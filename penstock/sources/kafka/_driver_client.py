"""What the driver asks the brokers: partitions, offsets, commits; every question is bounded."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.sources.kafka.errors import KafkaUnavailableError
from penstock.sources.kafka.params import KafkaParams, kafka_client
from penstock.sources.kafka.records import TopicPartition

__all__ = ["CommitCallback", "DriverClient", "PartitionState"]

T = TypeVar("T")

CommitCallback = Callable[[Mapping[TopicPartition, int], BaseException | None], None]

_PAUSE_S = 0.1

_log = logging.getLogger("penstock.sources.kafka")


@dataclass(frozen=True)
class PartitionState:
    """What the brokers tell of a partition.

    Attributes:
        topic_id: Another one for each topic, also for one of the same name; "" on old brokers.
        leader: The host of its leader, or "" when it is not known or was not asked for.
    """

    topic_id: str
    leader: str


class DriverClient:
    """The driver's connections to the brokers. Not safe for use by several threads at a time.

    Args:
        params: The client's settings.
        timeout_s: How long the first connection may take.

    Raises:
        KafkaUnavailableError: No broker answered within `timeout_s`.
    """

    def __init__(self, params: KafkaParams, timeout_s: float) -> None:
        self._params = params
        self._errors = kafka_client().errors
        self._partition = kafka_client().TopicPartition
        self._offset = kafka_client().OffsetAndMetadata
        self._closed = threading.Event()
        self._admin: Any = None
        bootstrap_ms = max(1, round(timeout_s * 1000))
        begin_s = time.monotonic()
        try:
            self._admin = params.admin(bootstrap_timeout_ms=bootstrap_ms)
            self._consumer = params.consumer(
                group_id=params.group_id, bootstrap_timeout_ms=bootstrap_ms
            )
        except self._errors.KafkaError as error:
            if self._admin is not None:
                self._admin.close()
            waited_s = time.monotonic() - begin_s
            raise KafkaUnavailableError(params.servers, waited_s, str(error)) from error

    def partitions(
        self, topics: Iterable[str] | None, timeout_s: float, with_leaders: bool
    ) -> dict[TopicPartition, PartitionState]:
        """Return the partitions of topics, or of all; topics that do not exist have none."""
        wanted = None if topics is None else list(topics)

        def ask(_: float) -> dict[TopicPartition, PartitionState]:
            described = self._admin.describe_topics(wanted)
            cluster = self._admin.describe_cluster() if with_leaders else {"brokers": ()}
            brokers = {each["broker_id"]: each["host"] for each in cluster["brokers"]}
            found = {}
            for topic in described:
                if topic["error_code"] == self._errors.UnknownTopicOrPartitionError.errno:
                    continue
                if topic["error_code"] != 0:
                    raise self._errors.for_code(topic["error_code"])(topic["name"])
                for partition in topic["partitions"]:
                    leader = brokers.get(partition["leader_id"], "")
                    key = TopicPartition(topic["name"], partition["partition_index"])
                    found[key] = PartitionState(str(topic.get("topic_id") or ""), leader)
            return found

        return self._ask(ask, timeout_s)

    def earliest(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Return the first offset that each partition still has."""
        return self._offsets(self._consumer.beginning_offsets, partitions, timeout_s)

    def latest(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last that can be read, by the isolation level."""
        return self._offsets(self._consumer.end_offsets, partitions, timeout_s)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Return the offsets that the group has committed; none without a group."""
        if self._params.group_id is None:
            return {}

        def ask(left_s: float) -> dict[TopicPartition, int]:
            found = {}
            for each in partitions:
                offset = self._consumer.committed(self._partition(*each), timeout_ms=left_s * 1000)
                if offset is not None:
                    found[each] = offset
            return found

        return self._ask(ask, timeout_s)

    def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> None:
        """Commit offsets to the group and wait for the answer.

        The client's own asynchronous commit would tell of its outcome at a poll of the consumer,
        which never comes here.
        """
        as_client = {
            self._partition(*each): self._offset(at, "", -1) for each, at in offsets.items()
        }
        self._consumer.commit(as_client, timeout_ms=timeout_s * 1000)

    def close(self) -> None:
        """Close the connections."""
        self._closed.set()
        self._consumer.close(autocommit=False, timeout_ms=1000)
        self._admin.close()

    def _offsets(
        self,
        ask: Callable[..., dict[Any, int]],
        partitions: Iterable[TopicPartition],
        timeout_s: float,
    ) -> dict[TopicPartition, int]:
        wanted = [self._partition(*each) for each in partitions]
        if not wanted:
            return {}
        found = self._ask(lambda left_s: ask(wanted, timeout_ms=left_s * 1000), timeout_s)
        return {TopicPartition(*each): offset for each, offset in found.items()}

    def _ask(self, ask: Callable[[float], T], timeout_s: float) -> T:
        """Ask until there is an answer; `ask` gets the seconds that are left."""
        begin_s = time.monotonic()
        while True:
            left_s = max(0.001, begin_s + timeout_s - time.monotonic())
            try:
                return ask(left_s)
            except self._errors.RetriableError as error:
                _log.debug("asking the brokers again after %s", error)
                waited_s = time.monotonic() - begin_s
                if waited_s + _PAUSE_S >= timeout_s or self._closed.wait(_PAUSE_S):
                    raise KafkaUnavailableError(
                        self._params.servers, waited_s, str(error)
                    ) from error
