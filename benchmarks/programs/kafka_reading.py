"""How fast a topic is read: by direct streams and receivers, beside the bare client and the peer.

Each way runs in processes of its own, one after the other, on the same topic of the same broker:
100-byte values in four partitions. All of it lies in the page cache.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.programs._program import tell
from benchmarks.programs._ways import BOUND_S, fast_producer, peer_jars, tell_speeds, told_by
from tests.services.kafka import Broker

RECORDS = {"confluent-kafka": 6_000_000, "kafka-python": 2_000_000}
PARTITIONS = 4
RECORD_BYTES = 100
CORES = PARTITIONS + 1
"""A slot for each partition, and one for the receiver; for all ways."""

WAYS = (
    ("bare", "confluent-kafka"),
    ("direct", "confluent-kafka"),
    ("frame", "confluent-kafka"),
    ("receiver", "confluent-kafka"),
    ("structured", "confluent-kafka"),
    ("bare", "kafka-python"),
    ("direct", "kafka-python"),
    ("receiver", "kafka-python"),
)
QUOTIENTS = {
    "direct_of_peer": (("direct", "confluent-kafka"), ("structured", "confluent-kafka")),
    "frame_of_peer": (("frame", "confluent-kafka"), ("structured", "confluent-kafka")),
    "receiver_of_bare": (("receiver", "confluent-kafka"), ("bare", "confluent-kafka")),
    "direct_of_bare_python": (("direct", "kafka-python"), ("bare", "kafka-python")),
    "receiver_of_bare_python": (("receiver", "kafka-python"), ("bare", "kafka-python")),
}


def fill(broker, records):
    topic = broker.create_topic(PARTITIONS)
    producer = fast_producer(broker)
    value = b"x" * RECORD_BYTES
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(BOUND_S) == 0
    return topic


def read(way, engine, records, broker, topics, parent):
    given = {
        "way": way,
        "engine": engine,
        "records": records,
        "partitions": PARTITIONS,
        "topic": topics[records],
        "address": broker.address,
        "cores": CORES,
    }
    if way == "structured":
        given["jars"] = peer_jars()
    return told_by("benchmarks.programs.kafka_reader", given, parent)["records_per_s"]


def main():
    options = json.loads(sys.argv[1])
    ways = [tuple(way) for way in options.get("ways", WAYS)]
    folder = tempfile.mkdtemp(prefix="kafka-", dir=options["folder"])
    (Path(folder) / "broker").mkdir()
    broker = Broker(Path(folder) / "broker")
    try:
        broker.start()
        tell({"progress": "the topics are filled"})
        scale = options.get("scale", 1)
        sizes = {engine: int(RECORDS[engine] * scale) for _, engine in ways}
        topics = {size: fill(broker, size) for size in set(sizes.values())}
        speeds = {}
        for way in ways:
            tell({"progress": f"{way[0]} with {way[1]}"})
            speeds[way] = read(*way, sizes[way[1]], broker, topics, folder)
            tell({"progress": f"{way[0]} with {way[1]}: {speeds[way]:,.0f} records/s"})
        tell_speeds(speeds, QUOTIENTS, "{} with {}")
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
