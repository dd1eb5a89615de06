"""What a trigger of a query costs whose batch is nearly empty, beside `rate-micro-batch`.

Both in one process, in turns: a query of Spark's own source, which makes a row a batch in the JVM,
and one of a receiver that stores a few rows between two triggers. The sink does nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from statistics import median

from benchmarks.programs._program import LEVEL, tell
from benchmarks.programs.query_reader import context, session
from penstock.receiver import Receiver
from penstock.sql import ReceiverHost

TRIGGER_MS = 250
STORE_S = 0.1
ROUNDS = 3
"""The first one warms up."""
TRIGGERS = 40
FIRST = 10
"""Triggers of each round that are left out: the query has just begun."""
CORES = (os.cpu_count() or 1) + 1
WAIT_S = 120.0
PARTS = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")


class Few(Receiver):
    def __init__(self):
        super().__init__(LEVEL)

    def onStart(self):
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.receive, daemon=True)
        self.thread.start()

    def onStop(self):
        self.stopping.set()
        self.thread.join(5)

    def receive(self):
        while not self.stopping.wait(STORE_S):
            self.store("a line")

    def __getstate__(self):
        return {**super().__getstate__(), "thread": None, "stopping": None}


def triggers(frame, checkpoint, wanted):
    """Run a query for so many batches with rows; return what Spark tells of each."""
    query = (
        frame.writeStream.format("noop")
        .trigger(processingTime=f"{TRIGGER_MS} milliseconds")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    end_s = time.monotonic() + WAIT_S
    while True:
        found = [each["durationMs"] for each in query.recentProgress if each["numInputRows"]]
        if len(found) >= FIRST + wanted:
            query.stop()
            return found[FIRST : FIRST + wanted]
        assert query.isActive, query.exception()
        assert time.monotonic() < end_s, found
        time.sleep(TRIGGER_MS / 1000)


def main():
    given = json.loads(sys.argv[1])
    wanted = max(5, int(TRIGGERS * given.get("scale", 1)))
    folder = tempfile.mkdtemp(prefix="trigger-", dir=given["folder"])
    spark = session(context({"folder": folder, "cores": CORES}), CORES)
    host = ReceiverHost(spark, folder + "/host")
    host.stream("few", Few())
    host.start()
    rate = {"rowsPerBatch": 1, "numPartitions": 1}
    frames = {
        "rate-micro-batch": spark.readStream.format("rate-micro-batch").options(**rate).load(),
        "penstock": spark.readStream.format("penstock").option("stream", "few").load(),
    }
    found = {name: [] for name in frames}
    for number in range(ROUNDS):
        for name in sorted(frames, reverse=number % 2 == 1):
            tell({"progress": f"round {number} of {ROUNDS - 1}, {name}"})
            told = triggers(frames[name], f"{folder}/{name}", wanted)
            if number:
                found[name].append(told)
    host.stop()
    spark.stop()

    def of_rounds(name, part):
        return [median(each.get(part, 0) for each in told) for told in found[name]]

    ours, theirs = (
        of_rounds(name, "triggerExecution") for name in ("penstock", "rate-micro-batch")
    )
    figures = {
        "extra_ms": median(one - other for one, other in zip(ours, theirs, strict=True)),
        "penstock_ms": median(ours),
        "rate_ms": median(theirs),
    }
    notes = {
        f"{name}, trigger, ms": ", ".join(
            f"{each:.0f}" for each in of_rounds(name, "triggerExecution")
        )
        for name in frames
    }
    notes |= {
        f"{name}, {part}, ms": float(median(of_rounds(name, part)))
        for part in PARTS
        for name in frames
    }
    tell({"figures": figures, "notes": notes})
    os._exit(0)


if __name__ == "__main__":
    main()
