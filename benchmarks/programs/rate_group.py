"""One total over eight receivers with unequal sources: how near to it, while they run and change.

The sources send 0 to 12,000 records/s, two of them as many as they are let; half-way one of these
falls silent and an idle one wakes up. Counted is what the batches have, without the first seconds.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from benchmarks.programs._program import LEVEL, ProgramOptions, spark_context, tell
from penstock.receiver import Receiver
from penstock.streaming import StreamingContext, StreamingListener

TOTAL = 60_000
SPEEDS = (0, 100, 1_000, 2_000, 5_000, 12_000, None, None)
"""Records per second; None for as many as pass."""
SECONDS = 30.0
SETTLING_S = 10.0
_TICK_S = 0.01


class Source(Receiver):
    """Stores at a speed; at another once the file `changed` is there."""

    def __init__(self, speed, later, changed):
        super().__init__(LEVEL)
        self.speed, self.later, self.changed = speed, later, changed

    def onStart(self):
        self.thread = threading.Thread(target=self.receive, daemon=True)
        self.thread.start()

    def onStop(self):
        self.thread.join(5)

    def receive(self):
        record = b"x" * 100
        last = time.monotonic()
        owed = 0.0
        while not self.isStopped():
            now = time.monotonic()
            speed = self.later if os.path.exists(self.changed) else self.speed
            if speed is None:
                for _ in range(1000):
                    self.store(record)
                last = now
                continue
            owed += speed * (now - last)
            last = now
            for _ in range(int(owed)):
                self.store(record)
            owed -= int(owed)
            time.sleep(_TICK_S)

    def __getstate__(self):
        return {**super().__getstate__(), "thread": None}


class Counting(StreamingListener):
    def __init__(self):
        self.lock = threading.Lock()
        self.records = {}

    def onBatchSubmitted(self, batchSubmitted):
        info = batchSubmitted.batchInfo()
        with self.lock:
            self.records[info.batchTime().milliseconds()] = info.numRecords()

    def rate(self, seconds):
        """Return the records per second of the last batches."""
        with self.lock:
            found = [self.records[at] for at in sorted(self.records)[-int(seconds) :]]
        return sum(found) / len(found)


def main():
    given = json.loads(sys.argv[1])
    sc = spark_context(
        ProgramOptions(
            side="penstock",
            folder=given["folder"],
            cores=len(SPEEDS) + 2,
            settings=(
                ("spark.penstock.memory.dir", given["memory_folder"]),
                ("spark.penstock.memory.size", "16m"),
                ("spark.penstock.block.maxSize", "4m"),
            ),
        )
    )
    ssc = StreamingContext(sc, 1)
    counting = Counting()
    ssc.addStreamingListener(counting)
    changed = os.path.join(given["folder"], "changed")
    streams = []
    for number, speed in enumerate(SPEEDS):
        later = {0: None, len(SPEEDS) - 1: 0}.get(number, speed)
        streams.append(ssc.receiverStream(Source(speed, later, changed)))
    group = ssc.rateGroup(TOTAL, streams)
    ssc.union(*streams).foreachRDD(lambda rdd: None)
    ssc.start()
    while len(group.rate.used) < len(SPEEDS):
        tell({"progress": f"{len(group.rate.used)} receivers run"})
        time.sleep(0.5)
    shares = [0.0]
    found = []
    for _ in range(2):
        tell({"progress": "settling"})
        time.sleep(SETTLING_S)
        end_s = time.monotonic() + SECONDS
        while time.monotonic() < end_s:
            shares.append(sum(group.rate.shares.values()))
            time.sleep(0.1)
        found.append(counting.rate(SECONDS) / TOTAL)
        with open(changed, "w"):
            pass
    figures = {
        "used_share": min(found),
        "largest_used_share": max(found),
        "largest_sum_of_shares": max(shares) / TOTAL,
    }
    tell({"figures": figures, "notes": {"shares": group.rate.shares}})
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
