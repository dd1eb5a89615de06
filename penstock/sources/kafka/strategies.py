"""Where partitions are read, which are read, and how fast: the choices of a direct stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.sources.kafka.params import KafkaParams
from penstock.sources.kafka.records import TopicPartition

__all__ = [
    "ConsumerStrategies",
    "ConsumerStrategy",
    "LocationStrategies",
    "LocationStrategy",
    "PerPartitionConfig",
]


class LocationStrategy:
    """Where a partition's tasks run; made by `LocationStrategies`."""

    def __init__(self, kind: str, hosts: Mapping[TopicPartition, str] | None = None) -> None:
        self.kind = kind
        self.hosts = dict(hosts or {})

    def __repr__(self) -> str:
        return f"LocationStrategies.{self.kind}"


class LocationStrategies:
    """The choices of where a partition's tasks run. They are wishes, as all of Spark's are."""

    PreferConsistent = LocationStrategy("PreferConsistent")
    """The same executor for the same partition, evenly over all of them."""

    PreferBrokers = LocationStrategy("PreferBrokers")
    """The host of the partition's leader; for executors that run beside the brokers."""

    @staticmethod
    def PreferFixed(hostMap: Mapping[tuple[str, int], str]) -> LocationStrategy:
        """Return the choice of a host for each partition; those not in it are as consistent."""
        hosts = {TopicPartition(*partition): host for partition, host in hostMap.items()}
        return LocationStrategy("PreferFixed", hosts)


class ConsumerStrategy:
    """Which partitions a stream reads, and from where; made by `ConsumerStrategies`.

    Attributes:
        params: The client's settings.
        offsets: Offsets to start from, by partition; others start where the group is, or else by
            `auto.offset.reset`.
        topics: The topics, or None.
        pattern: What topics' names match as a whole, or None.
        partitions: The partitions, or None for all of the topics.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        offsets: Mapping[tuple[str, int], int] | None,
        *,
        topics: Iterable[str] | None = None,
        pattern: str | None = None,
        partitions: Iterable[tuple[str, int]] | None = None,
    ) -> None:
        self.params = KafkaParams(params)
        self.offsets = {TopicPartition(*each): at for each, at in (offsets or {}).items()}
        self.pattern = pattern
        self.partitions: frozenset[TopicPartition] | None = None
        if partitions is not None:
            self.partitions = frozenset(TopicPartition(*each) for each in partitions)
            topics = {each.topic for each in self.partitions}
        self.topics = None if topics is None else tuple(sorted(set(topics)))
        if pattern is None and not self.topics:
            raise ValueError("a Kafka stream needs at least one topic or partition")

    def wants(self, partition: TopicPartition) -> bool:
        """Tell whether a partition of a topic that exists is read."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, partition.topic) is not None
        return self.partitions is None or partition in self.partitions


class ConsumerStrategies:
    """The choices of what is read. Topics and partitions that come later are adopted."""

    @staticmethod
    def Subscribe(
        topics: Iterable[str],
        kafkaParams: Mapping[str, Any],
        offsets: Mapping[tuple[str, int], int] | None = None,
    ) -> ConsumerStrategy:
        """Return the choice of all partitions of some topics."""
        if isinstance(topics, str):
            raise TypeError("topics are a list of names, and not one str")
        return ConsumerStrategy(kafkaParams, offsets, topics=topics)

    @staticmethod
    def SubscribePattern(
        pattern: str | re.Pattern[str],
        kafkaParams: Mapping[str, Any],
        offsets: Mapping[tuple[str, int], int] | None = None,
    ) -> ConsumerStrategy:
        """Return the choice of all topics whose whole name matches a pattern of `re`."""
        text = pattern if isinstance(pattern, str) else pattern.pattern
        re.compile(text)
        return ConsumerStrategy(kafkaParams, offsets, pattern=text)

    @staticmethod
    def Assign(
        topicPartitions: Iterable[tuple[str, int]],
        kafkaParams: Mapping[str, Any],
        offsets: Mapping[tuple[str, int], int] | None = None,
    ) -> ConsumerStrategy:
        """Return the choice of some partitions and no others."""
        return ConsumerStrategy(kafkaParams, offsets, partitions=topicPartitions)


class PerPartitionConfig:
    """Limits per partition, in records per second; subclass it to have others than the settings.

    Args:
        max_rate: `spark.streaming.kafka.maxRatePerPartition`; 0 for no limit.
        min_rate: `spark.streaming.kafka.minRatePerPartition`, in records per batch.
    """

    def __init__(self, max_rate: int = 0, min_rate: int = 1) -> None:
        self._max_rate = max_rate
        self._min_rate = min_rate

    @property
    def is_bounded(self) -> bool:
        """Whether it bounds batches; a subclass does."""
        return self._max_rate > 0 or type(self) is not PerPartitionConfig

    def maxRatePerPartition(self, topicPartition: TopicPartition) -> int:
        """Return the most records per second of a partition; 0 for no limit."""
        return self._max_rate

    def minRatePerPartition(self, topicPartition: TopicPartition) -> int:
        """Return how many records of a partition a batch takes in any case, if it has them."""
        return self._min_rate
