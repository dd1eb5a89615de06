"""64 receivers on 8 small executors as one source: how its blocks are packed, and what they cost.

Every receiver stores so many blocks of so many records and waits; then a query reads all of it as
one batch, from which each record must come out once. That is done with few blocks, with four times
as many that have as many bytes in all, and with four times the bytes in as few blocks.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from benchmarks.programs._program import LEVEL, tell
from benchmarks.programs.many import EXECUTORS, RECEIVERS, SLOTS, context
from penstock.receiver import Receiver
from penstock.sql import ReceiverHost

RECORD = b"x" * 100
BLOCKS, RECORDS = 10, 1000
"""Of each receiver, and of each block, where there are few."""
TIMES = 4
KINDS = {
    "few": (BLOCKS, RECORDS),
    "more blocks": (BLOCKS * TIMES, RECORDS // TIMES),
    "more bytes": (BLOCKS, RECORDS * TIMES),
}
ROUNDS = 4
"""The first one warms up."""
WAIT_S = 300.0


class Blocks(Receiver):
    """Stores what each file says that the driver makes: how many blocks of how many records."""

    def __init__(self, folder):
        super().__init__(LEVEL)
        self.folder = folder

    def onStart(self):
        self.thread = threading.Thread(target=self.receive, daemon=True)
        self.thread.start()

    def onStop(self):
        self.thread.join(30)

    def receive(self):
        number = 0
        while not self.isStopped():
            asked = Path(self.folder, str(number))
            if not asked.exists():
                time.sleep(0.05)
                continue
            blocks, records = json.loads(asked.read_text())
            for _ in range(blocks):
                self.store([RECORD] * records)
            number += 1

    def __getstate__(self):
        return {**super().__getstate__(), "thread": None}


class Query:
    """Reads all that is there as one batch, each time it is called."""

    def __init__(self, spark, names, folder):
        self.frame = spark.readStream.format("penstock").option("streams", ",".join(names)).load()
        self.folder = folder

    def __call__(self):
        found = []

        def on_batch(batch, _):
            counts = batch.groupBy(spark_partition_id()).count().collect()
            found.extend(row["count"] for row in counts)

        query = (
            self.frame.writeStream.foreachBatch(on_batch)
            .trigger(availableNow=True)
            .option("checkpointLocation", self.folder)
            .start()
        )
        assert query.awaitTermination(WAIT_S), "the batch takes too long"
        (batch,) = [each for each in query.recentProgress if each["numInputRows"]]
        return found, batch["durationMs"]


def main():
    given = json.loads(sys.argv[1])
    asked = Path(given["folder"], "asked")
    asked.mkdir()
    spark = SparkSession(context(given["folder"], given["memory_folder"]))
    spark.conf.set("spark.sql.shuffle.partitions", str(EXECUTORS))
    host = ReceiverHost(spark, given["folder"] + "/host")
    names = [f"blocks-{number}" for number in range(RECEIVERS)]
    for name in names:
        host.stream(name, Blocks(str(asked)), retention=0)
    begun_s = time.monotonic()
    host.start()
    durations = {kind: [] for kind in KINDS}
    partitions = {kind: [] for kind in KINDS}
    number, stored, query = 0, 0, None
    rounds = max(2, round(ROUNDS * given.get("scale", 1)))
    for done in range(rounds):
        for kind, (blocks, records) in KINDS.items():
            unnamed = asked / "next"
            unnamed.write_text(json.dumps([blocks, records]))
            unnamed.rename(asked / str(number))
            number += 1
            stored += RECEIVERS * blocks * records
            end_s = time.monotonic() + WAIT_S
            while (there := sum(each.records for each in host.streams().values())) < stored:
                assert time.monotonic() < end_s, f"{there} of {stored} records"
                time.sleep(0.05)
            if query is None:
                tell({"progress": f"all have stored after {time.monotonic() - begun_s:.0f} s"})
                query = Query(spark, names, given["folder"] + "/query")
            counts, took_ms = query()
            assert sum(counts) == RECEIVERS * blocks * records, "not every record was in the batch"
            tell({"progress": f"{kind}: {len(counts)} partitions, {took_ms}"})
            if done:
                durations[kind].append(took_ms)
                partitions[kind].append(len(counts))
    host.stop()
    spark.stop()
    took_ms = {kind: median(each["triggerExecution"] for each in durations[kind]) for kind in KINDS}
    figures = {
        "blocks_growth": took_ms["more blocks"] / took_ms["few"],
        "bytes_growth": took_ms["more bytes"] / took_ms["few"],
        "most_partitions": max(max(each) for each in partitions.values()),
    }
    notes = {
        f"{kind}: {RECEIVERS * blocks:,} blocks, "
        f"{RECEIVERS * blocks * records * len(RECORD) / 1e6:,.0f} MB": (
            f"{max(partitions[kind])} partitions, {took_ms[kind]:,.0f} ms, of it "
            + ", ".join(
                f"{part} {median(each.get(part, 0) for each in durations[kind]):.0f}"
                for part in ("latestOffset", "queryPlanning", "addBatch")
            )
        )
        for kind, (blocks, records) in KINDS.items()
    }
    tell({"figures": figures, "notes": {**notes, "slots": f"{EXECUTORS * SLOTS - RECEIVERS}"}})
    os._exit(0)


if __name__ == "__main__":
    main()
