"""How long a record takes from `send` to Kafka to where others have it; see `low_latency`.

``python -m benchmarks.low_latency_peers WAY`` starts a broker and a process that sends records at a
fixed rate, each with the time of now, without waiting for others, and tells the milliseconds that
they took, but for those of the first twenty seconds, in which Java warms up. The ways:

- ``loop``: a consumer in Python, which does nothing else
- ``realtime``: Spark's real-time mode, Kafka to Kafka, and a consumer in Python of what comes out,
  as the mode takes no Python itself
- ``batches``: Structured Streaming's micro-batches, one after the other, Kafka to committed files
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer
from pyspark.sql import DataFrame, SparkSession

from benchmarks.programs._ways import peer_jars
from tests.services.kafka import Broker

_WARM_UP_S = 20.0
_AFTER_S = 5.0


def send(address: str, topic: str, rate: int, seconds: float) -> None:
    """Send the times at which it is sent, in ns since the epoch."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    begun_s, sent = time.monotonic(), 0
    while (since_s := time.monotonic() - begun_s) < seconds:
        due = int(since_s * rate)
        for _ in range(due - sent):
            producer.produce(topic, b"%d" % time.time_ns())
        sent = due
        producer.poll(0)
        time.sleep(0.0005)
    producer.flush(60)


def read(address: str, topic: str, until_s: float) -> Iterator[tuple[int, float]]:
    """Give each record's time, and how many milliseconds ago that is when it is read."""
    settings = {"bootstrap.servers": address, "group.id": uuid.uuid4().hex}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while time.monotonic() < until_s:
        if (message := consumer.poll(0.1)) is not None and message.error() is None:
            sent = int(message.value())
            yield sent, (time.time_ns() - sent) / 1e6
    consumer.close()


def frame(spark: SparkSession, address: str, topic: str) -> DataFrame:
    """Return the topic."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
    return reader.option("subscribe", topic).load().select("value")


def session(folder: Path) -> SparkSession:
    """Return a session that can read Kafka."""
    builder = SparkSession.builder.master("local[5]").config("spark.jars", peer_jars())
    builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    builder = builder.config("spark.sql.streaming.fileSink.log.compactInterval", "1000000")
    builder = builder.config("spark.sql.shuffle.partitions", "1")
    return builder.config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()


def run(way: str, broker: Broker, rate: int, seconds: float, folder: Path) -> list[float]:
    """Return how many milliseconds records took."""
    topic = broker.create_topic()
    copied = broker.create_topic()
    query: Any = None
    if way != "loop":
        rows = frame(session(folder), broker.address, topic)
        writer = rows.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        if way == "realtime":
            writer = writer.format("kafka").option("kafka.bootstrap.servers", broker.address)
            writer = writer.option("topic", copied).outputMode("update")
            query = writer.trigger(realTime="5 minutes").start()
        else:
            writer = writer.format("parquet").option("path", str(folder / "out"))
            query = writer.trigger(processingTime="0 seconds").start()
        time.sleep(15)
    command = [sys.executable, "-m", "benchmarks.low_latency_peers", "send", broker.address]
    sender = subprocess.Popen([*command, topic, str(rate), str(seconds)])
    begun_ns = time.time_ns()
    until_s = time.monotonic() + seconds + _AFTER_S
    took: list[tuple[int, float]] = []
    if way == "batches":
        time.sleep(seconds + _AFTER_S)
    else:
        took = list(read(broker.address, topic if way == "loop" else copied, until_s))
    if query is not None and query.exception() is not None:
        sys.exit(str(query.exception()))
    sender.wait(60)
    if way == "batches":
        for batch in (folder / "out" / "_spark_metadata").iterdir():
            committed_ns = batch.stat().st_mtime_ns
            for line in batch.read_text().splitlines()[1:] if batch.name.isdigit() else ():
                path = json.loads(line)["path"].removeprefix("file://")
                values = pq.ParquetFile(path).read()["value"].to_pylist()
                took += [(int(sent), (committed_ns - int(sent)) / 1e6) for sent in values]
    if query is not None:
        query.stop()
    # Java warms up.
    return [took_ms for sent, took_ms in took if sent - begun_ns > _WARM_UP_S * 1e9]


def main() -> None:
    """Run one way, and print what it told."""
    if sys.argv[1] == "send":
        send(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=["loop", "realtime", "batches"])
    parser.add_argument("--rate", type=int, default=10_000, help="records per second")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kafka").mkdir()
        broker = Broker.started(folder / "kafka")
        try:
            took = run(options.way, broker, options.rate, options.seconds, folder)
        finally:
            broker.stop()
    at = [float(np.percentile(took, part)) for part in (50, 90, 99, 100)]
    print(json.dumps({"records": len(took), "milliseconds": at}))


if __name__ == "__main__":
    main()
