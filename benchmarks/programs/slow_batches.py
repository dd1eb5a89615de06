"""A receiver that is fed faster than the batches run: each batch takes many times its interval."""

from __future__ import annotations

import time as clock

from benchmarks.programs._program import LEVEL, options, reporting, run, spark_context

given = options()
if given.side == "penstock":
    from penstock.streaming import StreamingContext
else:
    from pyspark.streaming import StreamingContext

BATCHES_LATE = 10


def on_batch(time, rdd):
    with reporting(time) as report:
        report.records = rdd.count()
        clock.sleep(BATCHES_LATE * given.batch_s)


sc = spark_context(given)
ssc = StreamingContext(sc, given.batch_s)
ssc.checkpoint(given.folder + "/checkpoint")
ssc.socketTextStream("127.0.0.1", given.port, LEVEL).foreachRDD(on_batch)
run(ssc)
