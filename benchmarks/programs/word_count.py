"""Word count of lines from a socket, in Python, through the RDD API.

It has the functions of Spark's own example, which are called for each line and each word. The
variant ``arrow`` asks for operations on columns; ``two`` is told that its lines have two words.
"""

from __future__ import annotations

from benchmarks.feeder import WORDS_PER_LINE
from benchmarks.programs._program import LEVEL, options, reporting, run, spark_context

given = options()
if given.side == "penstock":
    from penstock.streaming import StreamingContext
else:
    from pyspark.streaming import StreamingContext


def on_batch(time, rdd):
    with reporting(time) as report:
        words = sum(count for _, count in rdd.collect())
        report.records = words // (2 if given.variant == "two" else WORDS_PER_LINE)


sc = spark_context(given)
ssc = StreamingContext(sc, given.batch_s)
ssc.checkpoint(given.folder + "/checkpoint")
lines = ssc.socketTextStream("127.0.0.1", given.port, LEVEL)
if given.variant == "arrow":
    counts = lines.arrow.split(" ").value_counts()
else:
    words = lines.flatMap(lambda line: line.split(" "))
    counts = words.map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b)
counts.foreachRDD(on_batch)
run(ssc)
