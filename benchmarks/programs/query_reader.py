"""Reads records that wait by a query in one of several ways, for a while, and tells how fast.

Ways: ``penstock`` is Structured Streaming on the records of a `ReceiverHost`, ``kafka`` the same on
a topic, and ``dstream`` is `foreachBatch` of a stream of ours. Two have no stream, and so show what
a stream can reach at most: ``constant`` reads a Python data source that gives the same Arrow batch
again and again, and ``cached`` a DataFrame that Spark has in memory. Queries: ``count`` counts the
rows and gives the counts to a sink that does nothing; ``words`` is a word count in SQL, which is in
`foreachBatch` where there is a stream.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from datetime import datetime

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, explode, split

from benchmarks.feeder import WORDS_PER_LINE
from benchmarks.programs._constant_source import ROWS, ConstantSource, record_batch
from benchmarks.programs._program import LEVEL, ProgramOptions, spark_context
from penstock.receiver import Receiver

DSTREAM_BATCH_S = 0.25
"""In each of them come the records of one batch; they take longer, and so they queue up."""
DSTREAM_RECORDS = 20_000_000
"""More than are read meanwhile; it stores them by and by."""
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
        batch = record_batch()
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
    settings["spark.python.unix.domain.socket.enabled"] = "true"
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


class Measured:
    """Batches after the warm-up, which begins with the end of the first one that has records.

    Args:
        given: How long the warm-up is, and how long is measured, in seconds.
    """

    def __init__(self, given):
        self.warm_up_s = given["warm_up_s"]
        self.seconds = given["seconds"]
        self.begun_s = None
        self.records = 0
        self.took_s = 0.0

    def add(self, ended_s, took_s, records):
        if self.begun_s is None:
            self.begun_s = ended_s if records else None
        elif ended_s - took_s >= self.begun_s + self.warm_up_s:
            self.records += records
            self.took_s += took_s

    def is_over(self):
        return self.took_s >= self.seconds


def measured(frame, given):
    """Run queries, each to the end of the records, until enough is measured; return that.

    The first batch of each has its start in it.
    """
    measured, number = Measured(given), 0
    while not measured.is_over():
        query = start(frame, given, number)
        number += 1
        end_s = time.monotonic() + BOUND_S
        read, last = 0, None
        # What is left then is a small batch, which comes where no block is divided.
        while read < given["records"] - given["batch_records"] // 2 and not measured.is_over():
            assert query.isActive, query.exception()
            assert time.monotonic() < end_s, f"{read} of {given['records']} records"
            time.sleep(0.1)
            for each in query.recentProgress:
                records, ended = each["numInputRows"], ended_s(each)
                if records and (last is None or ended > last):
                    if last is not None:
                        measured.add(ended, ended - last, records)
                    read, last = read + records, ended
        query.stop()
    return measured


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
        .option("maxRecordsPerTrigger", given["batch_records"])
        .option("minPartitions", given["partitions"])
        .load()
    )
    found = measured(frame, given)
    host.stop()
    return found


def kafka(given):
    spark = session(context(given, **{"spark.jars": given["jars"]}), given["cores"])
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", given["address"])
        .option("subscribe", given["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given["batch_records"])
        .load()
    )
    return measured(frame, given)


class Counted:
    """Counts the words of batches until enough is measured; stands for a function.

    Args:
        given: The options.
    """

    def __init__(self, given):
        self.measured = Measured(given)
        self.last_s = None
        self.is_over = threading.Event()

    def __call__(self, frame, _):
        records = word_count(frame)
        ended_s = time.time()
        if self.last_s is not None:
            self.measured.add(ended_s, ended_s - self.last_s, records)
        self.last_s = ended_s
        if self.measured.is_over():
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
    lines = Lines(DSTREAM_RECORDS, given["batch_records"])
    counted = Counted(given)
    ssc.receiverStream(lines).foreachBatch(counted)
    ssc.start()
    assert counted.is_over.wait(BOUND_S), f"{counted.measured.records} records"
    ssc.stop(stopSparkContext=False)
    return counted.measured


def without_stream(given, frame):
    """Run the query on the frame again and again until enough is measured; return that."""
    found = Measured(given)
    while not found.is_over():
        begun_s = time.time()
        if given["query"] == "count":
            frame.groupBy().count().write.format("noop").mode("append").save()
        else:
            word_count(frame)
        found.add(time.time(), time.time() - begun_s, given["batch_records"])
    return found


def constant_frame(given):
    spark = session(context(given), given["cores"])
    spark.dataSource.register(ConstantSource)
    source = spark.read.format("constant")
    return source.options(records=given["batch_records"], partitions=given["partitions"]).load()


def constant(given):
    return without_stream(given, constant_frame(given))


def cached(given):
    return without_stream(given, constant_frame(given).cache())


WAYS = {
    "penstock": penstock,
    "kafka": kafka,
    "dstream": dstream,
    "constant": constant,
    "cached": cached,
}


def main():
    given = json.loads(sys.argv[1])
    found = WAYS[given["way"]](given)
    print(json.dumps({"records_per_s": found.records / found.took_s}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
