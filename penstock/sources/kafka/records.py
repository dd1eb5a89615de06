"""What a program sees of Kafka: partitions, ranges of offsets, records."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["KafkaRecord", "OffsetRange", "TopicPartition"]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class OffsetRange(NamedTuple):
    """The offsets of a partition that a batch takes.

    Attributes:
        topic: The topic.
        partition: The partition.
        fromOffset: The first offset of the range.
        untilOffset: The first offset after the range.
    """

    topic: str
    partition: int
    fromOffset: int
    untilOffset: int

    def topicPartition(self) -> TopicPartition:
        """Return the partition without the offsets."""
        return TopicPartition(self.topic, self.partition)

    def count(self) -> int:  # type: ignore[override]  # as Spark names it
        """Return how many offsets it has: the number of records, when none was compacted away."""
        return self.untilOffset - self.fromOffset


class KafkaRecord(NamedTuple):
    """A record, with the attributes that Kafka's `ConsumerRecord` has as methods.

    Attributes:
        topic: The topic.
        partition: The partition.
        offset: Its place in the partition.
        timestamp: Milliseconds since the epoch; -1 when it has none.
        timestampType: 0 when the producer set it, 1 when the broker did.
        key: Bytes or None, or what `key.deserializer` made of them.
        value: Bytes or None, or what `value.deserializer` made of them.
        headers: Pairs of a `str` and bytes or None.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestampType: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]
