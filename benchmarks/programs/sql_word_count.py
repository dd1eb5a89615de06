"""Word count of lines from a socket, in SQL on a DataFrame of every batch.

Variant ``penstock`` is `foreachBatch` of a stream of ours, ``structured`` is `foreachBatch` of
Structured Streaming's socket source. The query is the same.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from datetime import datetime

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, explode, split

from benchmarks.feeder import WORDS_PER_LINE
from benchmarks.programs._program import LEVEL, options, reporting, run, spark_context, tell

given = options()


def word_count(frame):
    words = frame.select(explode(split(col("value"), " ")).alias("word"))
    return words.groupBy("word").agg(count("*").alias("count"))


def on_batch(frame, batch_time):
    with reporting(batch_time) as report:
        words = sum(row["count"] for row in word_count(frame).collect())
        report.records = words // WORDS_PER_LINE


def run_penstock():
    from penstock.streaming import StreamingContext

    sc = spark_context(given)
    session(sc)
    ssc = StreamingContext(sc, given.batch_s)
    ssc.checkpoint(given.folder + "/checkpoint")
    ssc.socketTextStream("127.0.0.1", given.port, LEVEL).foreachBatch(on_batch)
    run(ssc)


def run_structured():
    spark = session(spark_context(given))
    lines = (
        spark.readStream.format("socket")
        .option("host", "127.0.0.1")
        .option("port", given.port)
        .load()
    )
    query = (
        lines.writeStream.trigger(processingTime=f"{round(given.batch_s * 1000)} milliseconds")
        .option("checkpointLocation", given.folder + "/checkpoint")
        # Structured Streaming numbers its batches; the time is that of the call.
        .foreachBatch(lambda frame, _: on_batch(frame, datetime.now()))
        .start()
    )
    tell({"started": time.monotonic()})
    sys.stdin.read()
    threading.Timer(10, os._exit, (1,)).start()
    query.stop()
    os._exit(0)


def session(sc):
    spark = SparkSession(sc)
    # As many as there are cores: the default of 200 would be measured and nothing else.
    spark.conf.set("spark.sql.shuffle.partitions", str(given.cores))
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    return spark


if given.variant == "structured":
    run_structured()
else:
    run_penstock()
