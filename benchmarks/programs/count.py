"""Lines from a socket, counted in every batch.

Variants: ``count`` is `rdd.count()`; ``iterate`` counts Python objects, one by one; ``jvm`` is the
peer's count without Python (`rdd.count()` of the JVM's RDD).
"""

from __future__ import annotations

from benchmarks.programs._program import LEVEL, options, reporting, run, spark_context

given = options()
if given.side == "penstock":
    from penstock.streaming import StreamingContext
else:
    from pyspark.streaming import StreamingContext


def count(rdd):
    return rdd.count()


def iterate(rdd):
    return rdd.mapPartitions(lambda records: [sum(1 for _ in records)]).sum()


def jvm(rdd):
    return rdd._jrdd.count()


counted = {"count": count, "iterate": iterate, "jvm": jvm}[given.variant]


def on_batch(time, rdd):
    with reporting(time) as report:
        report.records = counted(rdd)


sc = spark_context(given)
ssc = StreamingContext(sc, given.batch_s)
ssc.checkpoint(given.checkpoint or given.folder + "/checkpoint")
ssc.socketTextStream("127.0.0.1", given.port, LEVEL).foreachRDD(on_batch)
run(ssc)
