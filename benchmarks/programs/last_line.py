"""Tells after each batch which connection its last lines came by, and how many executors are up."""

from __future__ import annotations

import time

from benchmarks.programs._program import LEVEL, options, run, spark_context, tell

given = options()
if given.side == "penstock":
    from penstock.streaming import StreamingContext
else:
    from pyspark.streaming import StreamingContext


def on_batch(_, rdd):
    last = rdd.map(lambda line: int(line[:6])).fold(0, max)
    # The driver is one of those that keep blocks.
    executors = sc._jsc.sc().getExecutorMemoryStatus().size() - 1
    tell({"last": last, "ended": time.monotonic(), "executors": executors})


sc = spark_context(given)
ssc = StreamingContext(sc, given.batch_s)
ssc.checkpoint(given.folder + "/checkpoint")
ssc.socketTextStream("127.0.0.1", given.port, LEVEL).foreachRDD(on_batch)
run(ssc)
