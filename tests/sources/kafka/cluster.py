"""Three brokers, of which tests kill some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.services.kafka import START_S, Broker, Node


class Cluster:
    """Three brokers with three copies of everything, and numbered records in it."""

    def __init__(self, folder: Path) -> None:
        self.brokers = []
        for node in Node.of_cluster(3):
            own = folder / str(node.number)
            own.mkdir()
            self.brokers.append(Broker(own, node))
        self.address = self.brokers[0].address
        self.sent = 0

    def start(self) -> None:
        for each in self.brokers:
            each.begin()
        for each in self.brokers:
            each.await_start()

    def stop(self) -> None:
        for each in self.brokers:
            each.stop()

    def leader(self, topic: str, partition: int) -> Broker:
        """Return the broker that leads a partition."""
        admin = AdminClient({"bootstrap.servers": self.address})
        found = admin.list_topics(topic, timeout=START_S).topics[topic].partitions[partition].leader
        return self.brokers[found - 1]

    def send(self, topic: str, partition: int, count: int) -> None:
        """Write the next numbers, and wait until all copies have them."""
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "acks": "all",
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        for number in range(self.sent, self.sent + count):
            producer.produce(topic, b"%d" % number, partition=partition)
        assert producer.flush(START_S) == 0
        self.sent += count


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    made = Cluster(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
