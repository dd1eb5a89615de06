"""Recovery of a program by the size of what it saved: keys of state, and bytes in its functions.

The time is that of `getOrCreate`, and then from `start` to the end of the first batch, which needs
the whole state. The SparkContext is there already.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time

from pyspark import SparkConf, SparkContext

from benchmarks.programs._program import tell
from penstock.runtime.clock import ManualClock
from penstock.streaming import StreamingContext, StreamingListener
from penstock.streaming.dstream.inputs.input_streams import InputDStream
from penstock.streaming.recovery import recover_context

CASES = ((1_000, 0), (100_000, 0), (1_000_000, 0), (1_000, 64))
"""Keys, and MiB that a function closes over."""
WAIT_S = 300.0


class Keys(InputDStream):
    def __init__(self, graph, keys):
        super().__init__(graph)
        self.keys = keys

    def compute(self, time_ms):
        return self.graph.spark_context.range(self.keys, numSlices=2).map(lambda key: (key, 1))


class Done(StreamingListener):
    def __init__(self):
        self.batches = threading.Semaphore(0)

    def onBatchCompleted(self, batchCompleted):
        self.batches.release()

    def wait(self):
        assert self.batches.acquire(timeout=WAIT_S)


def start(ssc):
    done = Done()
    ssc.addStreamingListener(done)
    ssc.start()
    return done


def measure(sc, folder, keys, mib):
    clock = ManualClock(1_700_000_000_500)
    ballast = os.urandom(mib << 20)

    def count(rdd):
        assert rdd.count() == keys
        return len(ballast)

    ssc = StreamingContext(sc, 1, clock=clock)
    ssc.checkpoint(folder)
    pairs = ssc._stream(Keys(ssc._graph, keys))
    states = pairs.updateStateByKey(lambda values, state: sum(values) + (state or 0), 2)
    states.checkpoint(1).foreachRDD(count)
    done = start(ssc)
    for _ in range(2):
        clock.advance(1000)
        done.wait()
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    begun = time.monotonic()
    ssc = recover_context(StreamingContext, folder, clock)
    made = time.monotonic()
    done = start(ssc)
    clock.advance(1000)
    done.wait()
    ended = time.monotonic()
    ssc.stop(stopSparkContext=False)
    return made - begun, ended - made


def main():
    root = tempfile.mkdtemp(prefix="recovery-of-state-", dir=json.loads(sys.argv[1])["folder"])
    conf = SparkConf().setMaster("local[2]").setAppName("recovery of state")
    conf.set("spark.ui.enabled", "false").set("spark.log.level", "ERROR")
    sc = SparkContext(conf=conf)
    figures = {}
    try:
        measure(sc, os.path.join(root, "first"), 10, 0)  # Starts Spark's Python workers.
        for keys, mib in CASES:
            tell({"progress": f"{keys} keys, {mib} MiB in functions"})
            name = f"{keys}_keys" + (f"_{mib}_mib" if mib else "")
            made_s, batch_s = measure(sc, os.path.join(root, name), keys, mib)
            figures[f"{name}_made_s"] = made_s
            figures[f"{name}_first_batch_s"] = batch_s
        tell({"figures": figures})
    finally:
        sc.stop()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
