"""Reads records that wait, to their end, by a query in one of several ways, and tells how fast.

Ways: ``penstock`` is Structured Streaming on the records of a `ReceiverHost`, ``kafka`` the same on
a topic, and ``dstream`` is `foreachBatch` of a stream of ours. Queries: ``count`` counts the rows
and gives the counts to a sink that does nothing; ``words`` is a word count in SQL in
`foreachBatch`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from datetime import datetime

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, explode, split

from benchmarks.feeder import WORDS_PER_LINE, lines_of_words
from benchmarks.programs._program import LEVEL, ProgramOptions, spark_context
from penstock.receiver import Receiver

RECORD_BYTES = 100
ROWS = 10_000
"""Rows of a record batch that the receiver stores."""
DSTREAM_BATCH_S = 0.5
"""In each of them come the records of one batch; they take longer, and so they queue up."""
BOUND_S = 300.0


class Lines(Receiver):
    """Stores so many lines; with a pause after each part of them, if there are parts."""

    def __init__(self, records, part=0):
        super().__init__(LEVEL)
        self.records = records
        self.part = part

    def onStart(self):
        self.thread = threading.Thread(target=self.receive, daemon=True)
        self.thread.start()

    def onStop(self):
        self.thread.join(5)

    def receive(self):
        lines = lines_of_words(RECORD_BYTES + 1, ROWS * (RECORD_BYTES + 1)).decode().splitlines()
        batch = pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], ["value"])
        begun_s = time.monotonic()
        for stored in range(0, self.records, ROWS):
            if self.part:
                due_s = begun_s + stored // self.part * DSTREAM_BATCH_S
                time.sleep(max(0.0, due_s - time.monotonic()))
            if self.isStopped():
                return
            self.store(batch)

    def __getstate__(self):
        return {**super().__getstate__(), "thread": None}


def session(sc, cores):
    spark = SparkSession(sc)
    # As many as there are cores: the default of 200 would be measured and nothing else.
    spark.conf.set("spark.sql.shuffle.partitions", str(cores))
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    return spark


def context(given, **settings):
    return spark_context(
        ProgramOptions(
            "penstock", given["folder"], cores=given["cores"], settings=tuple(settings.items())
        )
    )


def word_count(frame):
    words = frame.select(explode(split(col("value").cast("string"), " ")).alias("word"))
    counts = words.groupBy("word").agg(count("*").alias("count")).collect()
    return sum(row["count"] for row in counts) // WORDS_PER_LINE


def start(frame, given, number=0):
    """Start the query, by its number; it runs its batches one after the other."""
    if given["query"] == "count":
        writer = frame.groupBy().count().writeStream.outputMode("complete").format("noop")
    else:
        writer = frame.writeStream.foreachBatch(lambda batch, _: word_count(batch))
    return (
        writer.trigger(processingTime="0 seconds")
        .option("checkpointLocation", f"{given['folder']}/query-{number}")
        .start()
    )


def batches_of(frame, given):
    """Return when each batch of the last query ended and how many records it had."""
    for number in range(given["passes"]):
        query = start(frame, given, number)
        end_s = time.monotonic() + BOUND_S
        while True:
            found = [each for each in query.recentProgress if each["numInputRows"]]
            read = sum(each["numInputRows"] for each in found)
            if read >= given["records"]:
                break
            assert query.isActive, query.exception()
            assert time.monotonic() < end_s, f"{read} of {given['records']} records"
            time.sleep(0.1)
        query.stop()
    return [(ended_s(each), each["numInputRows"]) for each in found]


def ended_s(progress):
    began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    return began + progress["durationMs"]["triggerExecution"] / 1000


def penstock(given):
    from penstock.sql import ReceiverHost

    spark = session(context(given), given["cores"])
    host = ReceiverHost(spark, given["folder"] + "/host")
    host.stream("lines", Lines(given["records"]))
    host.start()
    end_s = time.monotonic() + BOUND_S
    while host.streams()["lines"].records < given["records"]:
        assert time.monotonic() < end_s, host.streams()
        time.sleep(0.05)
    frame = (
        spark.readStream.format("penstock")
        .option("stream", "lines")
        .option("maxRecordsPerTrigger", given["records"] // given["batches"])
        .option("minPartitions", given["partitions"])
        .load()
    )
    ended = batches_of(frame, given)
    host.stop()
    return ended


def kafka(given):
    spark = session(context(given, **{"spark.jars": given["jars"]}), given["cores"])
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", given["address"])
        .option("subscribe", given["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given["records"] // given["batches"])
        .load()
    )
    return batches_of(frame, given)


class Counted:
    """Counts the words of batches until so many records are read; stands for a function.

    Args:
        wanted: How many.
    """

    def __init__(self, wanted):
        self.wanted = wanted
        self.ended = []
        self.is_over = threading.Event()

    def __call__(self, frame, _):
        records = word_count(frame)
        if records:
            self.ended.append((time.time(), records))
        if sum(records for _, records in self.ended) >= self.wanted:
            self.is_over.set()

    def __reduce__(self):
        # A checkpoint of it is never read.
        return print, ()


def dstream(given):
    from penstock.streaming import StreamingContext

    sc = context(given)
    session(sc, given["cores"])
    ssc = StreamingContext(sc, DSTREAM_BATCH_S)
    ssc.checkpoint(given["folder"] + "/checkpoint")
    # Read once, it is as much as the queries read in all their passes.
    counted = Counted(given["records"] * given["passes"])
    lines = Lines(counted.wanted, given["records"] // given["batches"])
    ssc.receiverStream(lines).foreachBatch(counted)
    ssc.start()
    assert counted.is_over.wait(BOUND_S), f"{counted.ended} of {counted.wanted} records"
    ssc.stop(stopSparkContext=False)
    return counted.ended[-given["batches"] :]


WAYS = {"penstock": penstock, "kafka": kafka, "dstream": dstream}


def main():
    given = json.loads(sys.argv[1])
    ended = WAYS[given["way"]](given)
    # The first batch has the start of the query in it.
    seconds = ended[-1][0] - ended[0][0]
    rate = sum(records for _, records in ended[1:]) / seconds
    print(json.dumps({"records_per_s": rate, "seconds": seconds}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
