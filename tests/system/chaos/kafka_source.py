"""Numbered records in a topic of a broker that may be killed."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.bounds import HANG_S
from tests.services.kafka import Broker
from tests.system.leftovers import await_that

RUN = 200
"""So many numbers in a row go to one partition."""


class KafkaSource:
    """Writes numbers to a topic as fast as a rate allows; every one is in it exactly once.

    Args:
        broker: The broker.
        partitions: Of the topic.
        rate: Numbers per second.
        marks: Where receivers leave a file for each of their processes; None without receivers.

    Attributes:
        topic: Its name.
        acknowledged: How many numbers the broker has acknowledged.
    """

    def __init__(
        self, broker: Broker, partitions: int, rate: int, marks: Path | None = None
    ) -> None:
        self.broker = broker
        self.topic = broker.create_topic(partitions)
        self.acknowledged = 0
        self.sent = 0
        self._partitions = partitions
        self._rate = rate
        self._marks = marks
        self._failures: list[Any] = []
        self._done = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": broker.address,
                "enable.idempotence": True,
                "message.timeout.ms": 600_000,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._produce, name="kafka-source")

    def __enter__(self) -> KafkaSource:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(HANG_S)

    def __str__(self) -> str:
        return f"{self.topic}: sent {self.sent}, acknowledged {self.acknowledged}"

    @property
    def pids(self) -> list[int]:
        """The processes of its receivers, the newest last."""
        if self._marks is None:
            return []
        marks = sorted(self._marks.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        return [int(path.name) for path in marks]

    def finish(self, timeout_s: float) -> int:
        """Write nothing more and wait until all is acknowledged; return how many there are.

        Raises:
            AssertionError: The topic has not each number once: then it is not the program's fault.
        """
        self._done.set()
        self._thread.join(timeout_s)
        await_that("all numbers are in the topic", self._all_written, timeout_s, lambda: str(self))
        self._check_topic(timeout_s)
        return self.sent

    def _all_written(self) -> bool:
        assert self._failures == [], self._failures[:3]
        return self.acknowledged == self.sent

    def _produce(self) -> None:
        began_s = time.monotonic()
        held_s = 0.0
        while not self._done.wait(0.05):
            due = int((time.monotonic() - began_s - held_s) * self._rate)
            if self.sent - self.acknowledged > 2 * self._rate:
                # The broker is away: go on where it was left, and not in a flood.
                held_s += 0.05
            else:
                for number in range(self.sent, due):
                    partition = number // RUN % self._partitions
                    self._producer.produce(
                        self.topic, b"%d" % number, partition=partition, callback=self._told
                    )
                    self.sent = number + 1
            self._producer.poll(0)
        self._producer.flush(60)

    def _told(self, error: Any, _: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._failures.append(error)

    def _check_topic(self, timeout_s: float) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.address,
                "group.id": f"check-{self.topic}",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.topic, n, 0) for n in range(self._partitions)])
        found: list[int] = []
        try:
            end_s = time.monotonic() + timeout_s
            while len(found) < self.sent and time.monotonic() < end_s:
                found += [int(each.value()) for each in consumer.consume(5000, 1.0)]
        finally:
            consumer.close()
        assert sorted(found) == list(range(self.sent)), f"the topic has other numbers: {self}"
