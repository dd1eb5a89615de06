"""Where partitions are read, which are read, and how fast: the choices of a direct stream."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock._arguments import refused
from penstock.sources.kafka.params import KafkaParams
from penstock.sources.kafka.records import TopicPartition


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
        accepted = "a dict of pairs of topic and number to a host's name"
        if not isinstance(hostMap, Mapping):
            raise TypeError(refused("hostMap", hostMap, accepted))
        hosts = {_as_partition(each, "hostMap", accepted): at for each, at in hostMap.items()}
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
        self.offsets = _as_offsets(offsets)
        self.pattern = pattern
        self.partitions: frozenset[TopicPartition] | None = None
        if partitions is not None:
            accepted = "pairs of topic and number"
            if isinstance(partitions, (str, Mapping)) or not isinstance(partitions, Iterable):
                raise TypeError(refused("topicPartitions", type(partitions), accepted))
            self.partitions = frozenset(
                _as_partition(each, "topicPartitions", accepted) for each in partitions
            )
            topics = {each.topic for each in self.partitions}
        self.topics = None if topics is None else tuple(sorted(set(topics)))
        if pattern is None and not self.topics:
            raise ValueError("a Kafka stream needs at least one topic or partition")

    def wants(self, partition: TopicPartition) -> bool:
        """Return whether a partition of a topic that exists is read."""
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
        return ConsumerStrategy(kafkaParams, offsets, topics=as_topics(topics))

    @staticmethod
    def SubscribePattern(
        pattern: str | re.Pattern[str],
        kafkaParams: Mapping[str, Any],
        offsets: Mapping[tuple[str, int], int] | None = None,
    ) -> ConsumerStrategy:
        """Return the choice of all topics whose whole name matches a pattern of `re`."""
        text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
        accepted = "a pattern of re that matches whole names, such as 'orders-.*'"
        if not isinstance(text, str):
            raise TypeError(refused("pattern", type(text), accepted))
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"{refused('pattern', text, accepted)} ({error})") from None
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

    Raises:
        TypeError, ValueError: One is no number, or below 0.
    """

    def __init__(self, max_rate: int = 0, min_rate: int = 1) -> None:
        for name, rate in (("max_rate", max_rate), ("min_rate", min_rate)):
            if isinstance(rate, bool) or not isinstance(rate, (int, float)):
                raise TypeError(refused(name, rate, "a number of records, 0 or more"))
            if not 0 <= rate < math.inf:
                raise ValueError(refused(name, rate, "a number of records, 0 or more"))
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


def as_topics(topics: Any) -> list[str]:
    """Return the names of topics, which any iterable but text or a mapping may give.

    A mapping is not shown: in place of topics it has the client's settings.

    Raises:
        TypeError: They are something else.
        ValueError: Kafka can have no topic of that name.
    """
    if isinstance(topics, (str, Mapping)) or not isinstance(topics, Iterable):
        raise TypeError(f"topics are a list of names, and not one {type(topics).__name__}")
    names = list(topics)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"topics are a list of names, and {name!r:.100} is none")
        if re.fullmatch(r"(?!\.\.?$)[a-zA-Z0-9._-]{1,249}", name) is None:
            raise ValueError(
                f"{name!r:.100} is no name of a topic: Kafka has up to 249 letters of ASCII, "
                "digits, dots, dashes and underscores, and not . or .. alone"
            )
    return names


def _as_partition(value: Any, name: str, accepted: str) -> TopicPartition:
    if not isinstance(value, str) and isinstance(value, Sequence) and len(value) == 2:
        topic, number = value
        if isinstance(topic, str) and _is_whole(number):
            return TopicPartition(topic, number)
    raise TypeError(refused(name, value, accepted))


def _as_offsets(offsets: Any) -> dict[TopicPartition, int]:
    accepted = 'a dict such as {("topic", 0): 1500}, of pairs of topic and number to an offset'
    if offsets is None:
        return {}
    if not isinstance(offsets, Mapping):
        raise TypeError(refused("offsets", offsets, accepted))
    found = {_as_partition(each, "offsets", accepted): at for each, at in offsets.items()}
    for partition, at in found.items():
        if not _is_whole(at):
            name = f"offsets[{tuple(partition)}]"
            raise ValueError(refused(name, at, "a whole number, 0 or more"))
    return found


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
