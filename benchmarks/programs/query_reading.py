"""How fast queries read what was received, beside Spark's Kafka and socket sources and DStreams.

Each way runs in processes of its own, one after the other, on the same lines. Those of Kafka's
topic and those of the receiver's log, which is synced, all lie in the page cache or in memory when
the query begins. The socket source has no log and takes lines as they come, so it is fed meanwhile.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.feeder import FeederOptions, lines_of_words
from benchmarks.programs._constant_source import RECORD_BYTES
from benchmarks.programs._program import ProgramOptions, tell
from benchmarks.programs._ways import BOUND_S, fast_producer, peer_jars, tell_speeds, told_by
from benchmarks.streaming_run import StreamingRun, Window, run_streaming
from tests.services.kafka import Broker

RECORDS = 12_000_000
BATCH_RECORDS = {"count": 4_000_000, "words": 250_000}
"""Such a batch takes half a second or longer: what a trigger costs by itself is another case."""
WARM_UP_S, SECONDS = 10.0, 6.0
"""Of each way but the socket's: whole batches after the warm-up that take as long, or longer."""
CORES = (os.cpu_count() or 1) + 1
"""A slot for the receiver, and one for each core, as in all other cases; for all ways."""
PARTITIONS = max(4, CORES - 1)
"""Of Kafka's topic; what is read in a batch of ours is packed into as many."""
SOCKET_WINDOW = Window(6.0, 6.0)

WAYS = (
    ("count", "kafka"),
    ("count", "penstock"),
    ("count", "constant"),
    ("count", "socket"),
    ("words", "kafka"),
    ("words", "penstock"),
    ("words", "dstream"),
    ("words", "cached"),
    ("words", "socket"),
)
QUOTIENTS = {
    "count_of_kafka": (("count", "penstock"), ("count", "kafka")),
    "count_of_socket": (("count", "penstock"), ("count", "socket")),
    "count_at_most": (("count", "constant"), ("count", "kafka")),
    "words_of_kafka": (("words", "penstock"), ("words", "kafka")),
    "words_of_socket": (("words", "penstock"), ("words", "socket")),
    "words_at_most": (("words", "cached"), ("words", "kafka")),
    "words_of_dstream": (("words", "penstock"), ("words", "dstream")),
}


def fill(broker, records):
    """Write so many lines of 100 bytes to a new topic; return its name."""
    topic = broker.create_topic(PARTITIONS)
    producer = fast_producer(broker)
    rows = 10_000
    lines = lines_of_words(RECORD_BYTES + 1, rows * (RECORD_BYTES + 1)).splitlines()
    for number in range(records // rows):
        left = [{"value": line} for line in lines]
        while left:
            producer.produce_batch(topic, left, number % PARTITIONS)
            # Those that found no room say so.
            left = [{"value": each["value"]} for each in left if "_error" in each]
            producer.poll(0.05 if left else 0)
    assert producer.flush(BOUND_S) == 0
    return topic


def read(query, way, given, parent):
    options = {
        "way": way,
        "query": query,
        "partitions": PARTITIONS,
        "cores": CORES,
        **given,
    }
    return told_by("benchmarks.programs.query_reader", options, parent)["records_per_s"]


def read_socket(query, folder):
    options = ProgramOptions("pyspark", "", query, cores=CORES)
    # It falls far behind what it is sent.
    feeder = FeederOptions(content="words", least_in_flight_bytes=1 << 20)
    run = StreamingRun("benchmarks.programs.query_socket", options, feeder)
    return run_streaming(run, SOCKET_WINDOW, folder, lambda _: None)["records_per_s"]


def main():
    options = json.loads(sys.argv[1])
    ways = [tuple(way) for way in options.get("ways", WAYS)]
    scale = options.get("scale", 1)
    # Batches are as large in a short run: smaller ones would be another comparison.
    given = {"records": RECORDS, "warm_up_s": WARM_UP_S * scale, "seconds": SECONDS * scale}
    folder = tempfile.mkdtemp(prefix="queries-", dir=options["folder"])
    broker = None
    try:
        if any(way == "kafka" for _, way in ways):
            (Path(folder) / "broker").mkdir()
            broker = Broker(Path(folder) / "broker")
            broker.start()
            tell({"progress": "the topic is filled"})
            given |= {
                "address": broker.address,
                "jars": peer_jars(),
                "topic": fill(broker, RECORDS),
            }
        speeds = {}
        for query, way in ways:
            tell({"progress": f"{query}, {way}"})
            if way == "socket":
                speeds[query, way] = read_socket(query, folder)
            else:
                each = {**given, "batch_records": BATCH_RECORDS[query]}
                speeds[query, way] = read(query, way, each, folder)
            tell({"progress": f"{query}, {way}: {speeds[query, way]:,.0f} rows/s"})
            print(f"{query}, {way}: {speeds[query, way]:,.0f} rows/s", file=sys.stderr)
        tell_speeds(speeds, QUOTIENTS, "{}, {}")
    finally:
        if broker is not None:
            broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
