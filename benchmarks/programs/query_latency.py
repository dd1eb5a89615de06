"""The age of records in `foreachBatch`, of queries that run their batches one after the other.

10,000 records of 100 bytes a second, each with the time at which it was made: just before `store`
of a receiver whose log is synced, and just before it is sent to Kafka, by a producer that waits for
nobody. The age is taken when the rows of the batch are in the driver's hands. Either side runs in
processes of its own, in turns.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from benchmarks.batches import quantile
from benchmarks.programs._program import LEVEL, tell
from benchmarks.programs._ways import BOUND_S, peer_jars, told_by
from benchmarks.programs.query_reader import context, session
from penstock.receiver import Receiver
from tests.services.kafka import Broker

RECORDS_PER_S = 10_000
RECORD_BYTES = 100
BLOCK_MS = 10
TICK_S = 0.002
CORES = (os.cpu_count() or 1) + 1
ROUNDS = 2
FEWEST = 5
"""Batches that are measured, however long they take."""
WARM_UP_S, SECONDS = 12.0, 12.0


def stamped(until):
    """Yield what is due, every few milliseconds, each record with the time of now."""
    begun_s, count = time.monotonic(), 0
    while not until():
        due = int((time.monotonic() - begun_s) * RECORDS_PER_S)
        now = b"%020d " % time.time_ns()
        yield [(now + b"%012d " % each).ljust(RECORD_BYTES, b"x") for each in range(count, due)]
        count = due
        time.sleep(TICK_S)


class Stamped(Receiver):
    def __init__(self):
        super().__init__(LEVEL)

    def onStart(self):
        self.thread = threading.Thread(target=self.receive, daemon=True)
        self.thread.start()

    def onStop(self):
        self.thread.join(5)

    def receive(self):
        for records in stamped(self.isStopped):
            for record in records:
                self.store(record)

    def __getstate__(self):
        return {**super().__getstate__(), "thread": None}


def send(given):
    """Send to Kafka until the standard input is closed."""
    from confluent_kafka import Producer

    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    producer = Producer({"bootstrap.servers": given["address"], "linger.ms": 0})
    for records in stamped(over.is_set):
        for record in records:
            producer.produce(given["topic"], record)
        producer.poll(0)
    producer.flush(5)


def ages(frame, given):
    """Return the ages of the records that come after the warm-up, in ms, batch by batch."""
    found, first, measuring = [], threading.Event(), threading.Event()

    def on_batch(batch, _):
        rows = batch.selectExpr("CAST(substring(CAST(value AS STRING), 1, 20) AS BIGINT)").collect()
        now = time.time_ns()
        if rows:
            first.set()
        if measuring.is_set():
            found.append([(now - at) / 1e6 for (at,) in rows])

    query = (
        frame.writeStream.foreachBatch(on_batch)
        .option("checkpointLocation", given["folder"] + "/query")
        .start()
    )
    assert first.wait(BOUND_S), query.exception()
    assert not query.awaitTermination(given["warm_up_s"])
    measuring.set()
    assert not query.awaitTermination(given["seconds"])
    end_s = time.monotonic() + BOUND_S
    while len(found) < FEWEST:
        assert not query.awaitTermination(1)
        assert time.monotonic() < end_s, f"{len(found)} batches"
    measuring.clear()
    query.stop()
    return found


def penstock(given):
    from penstock.sql import ReceiverHost

    spark = session(context(given, **{"spark.streaming.blockInterval": f"{BLOCK_MS}ms"}), CORES)
    host = ReceiverHost(spark, given["folder"] + "/host")
    host.stream("stamped", Stamped())
    host.start()
    reader = spark.readStream.format("penstock").option("stream", "stamped")
    found = ages(reader.option("startingOffsets", "latest").load(), given)
    host.stop()
    return found


def kafka(given):
    spark = session(context(given, **{"spark.jars": given["jars"]}), CORES)
    command = [sys.executable, "-m", __spec__.name, json.dumps({**given, "way": "send"})]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as sender:
        reader = spark.readStream.format("kafka").option("subscribe", given["topic"])
        frame = reader.option("kafka.bootstrap.servers", given["address"]).load()
        found = ages(frame, given)
        sender.communicate(timeout=30)
    return found


def taken(way, given, parent):
    return told_by(__spec__.name, {**given, "way": way, "cores": CORES}, parent)


def compare(options):
    scale = options.get("scale", 1)
    folder = tempfile.mkdtemp(prefix="latency-", dir=options["folder"])
    (Path(folder) / "broker").mkdir()
    broker = Broker(Path(folder) / "broker")
    found = {"kafka": [], "penstock": []}
    try:
        broker.start()
        given = {
            "address": broker.address,
            "jars": peer_jars(),
            "warm_up_s": WARM_UP_S * scale,
            "seconds": SECONDS * scale,
        }
        for number in range(max(1, round(ROUNDS * scale))):
            for way in sorted(found, reverse=number % 2 == 1):
                tell({"progress": f"round {number + 1}, {way}"})
                # A partition, as what comes in a batch of ours is packed into one.
                topic = broker.create_topic(1)
                found[way].append(taken(way, {**given, "topic": topic}, folder))
                print(way, found[way][-1], file=sys.stderr)
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    figures, notes = {}, {}
    for name in ("p50_ms", "p99_ms"):
        values = {way: median(each[name] for each in found[way]) for way in found}
        figures |= {name: values["penstock"], f"kafka_{name}": values["kafka"]}
        figures[f"{name[:3]}_of_kafka"] = values["penstock"] / values["kafka"]
    for way, each in found.items():
        notes[f"{way}, p50 of each round, ms"] = ", ".join(f"{one['p50_ms']:.0f}" for one in each)
        notes[f"{way}, p99 of each round, ms"] = ", ".join(f"{one['p99_ms']:.0f}" for one in each)
        notes[f"{way}, batches/s"] = median(one["batches_per_s"] for one in each)
    tell({"figures": figures, "notes": notes})


def main():
    given = json.loads(sys.argv[1])
    if given.get("way") == "send":
        send(given)
    elif "way" in given:
        batches = {"penstock": penstock, "kafka": kafka}[given["way"]](given)
        found = [age for batch in batches for age in batch]
        tell(
            {
                "p50_ms": quantile(found, 0.5),
                "p99_ms": quantile(found, 0.99),
                "records_per_s": len(found) / given["seconds"],
                "batches_per_s": len(batches) / given["seconds"],
            }
        )
        os._exit(0)
    else:
        compare(given)


if __name__ == "__main__":
    main()
