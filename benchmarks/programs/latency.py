"""Lines that carry the time at which they were sent, and their age in `foreachRDD`.

The age is taken when the records of the batch are in the driver's hands, in the function that was
given to `foreachRDD`.
"""

from __future__ import annotations

import time as clock

from benchmarks.programs._program import LEVEL, options, reporting, run, spark_context

given = options()
if given.side == "penstock":
    from penstock.streaming import StreamingContext
else:
    from pyspark.streaming import StreamingContext


def on_batch(time, rdd):
    with reporting(time) as report:
        sent = rdd.map(lambda line: int(line[:20])).collect()
        now = clock.time_ns()
        report.records = len(sent)
        report.latencies_ms = tuple(round((now - at) / 1e6, 2) for at in sent)


sc = spark_context(given)
ssc = StreamingContext(sc, given.batch_s)
ssc.checkpoint(given.folder + "/checkpoint")
ssc.socketTextStream("127.0.0.1", given.port, LEVEL).foreachRDD(on_batch)
run(ssc)
