"""What a consumer of a topic reads that waits for the end of transactions."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError

from tests.bounds import HANG_S


def committed(address: str, topic: str, partition: int = 0) -> list[Any]:
    """Return the messages of a partition that are committed, in order, as the client has them."""
    client = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "of-tests",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    client.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    found: list[Any] = []
    end_s = time.monotonic() + HANG_S
    try:
        while time.monotonic() < end_s:
            message = client.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
        raise AssertionError(f"no end of {topic} within {HANG_S:g} s")
    finally:
        client.close()


def values(address: str, topic: str) -> list[int]:
    """Return the values of partition 0, which are numbers."""
    return [int(message.value()) for message in committed(address, topic)]
