"""What a program sees of Kafka: partitions, ranges of offsets, records."""

from __future__ import annotations

import base64
import uuid
from contextlib import suppress
from typing import Any, NamedTuple


def topic_id_of(value: object) -> str:
    """Return a topic's id as Kafka's own tools write it: clients have three ways to write the same.

    Args:
        value: An id in any of them; None or "" where brokers are too old to have any.
    """
    # librdkafka has the other alphabet of base64.
    text = str(value or "").replace("+", "-").replace("/", "_")
    # Where this raises, it is no UUID in hexadecimal digits.
    with suppress(ValueError):
        text = base64.urlsafe_b64encode(uuid.UUID(text).bytes).decode().rstrip("=")
    return text.strip("A") and text


def is_another(known: str, now: str) -> bool:
    """Return whether a topic's name is that of another one now; not where an id is not known."""
    return "" not in (known, now) and known != now


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class _Range(NamedTuple):
    topic: str
    partition: int
    fromOffset: int
    untilOffset: int


class OffsetRange(_Range):
    """The offsets of a partition that a batch takes.

    Attributes:
        topic: The topic.
        partition: The partition.
        fromOffset: The first offset of the range.
        untilOffset: The first offset after the range.
        topic_id: The id of the topic whose offsets they are, or "" where it is not known: another
            topic may come to have the name. A stream's ranges have it; it is not compared.
    """

    topic_id: str = ""

    def of(self, topic_id: str) -> OffsetRange:
        """Return the range as one of the topic with an id."""
        made = OffsetRange(*self)
        made.topic_id = topic_id
        return made

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
