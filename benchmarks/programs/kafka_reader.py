"""Reads a topic of Kafka to its end in one of several ways, and tells how fast.

Ways: ``bare`` is a consumer without Spark, ``direct`` a direct stream's `rdd.count()`, ``frame``
the same stream's `foreachBatch`, counted in Python, ``receiver`` a receiver with a durable log, and
``structured`` is `foreachBatch` of Structured Streaming's Kafka source, counted in Python, too.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.programs._program import LEVEL, ProgramOptions, spark_context

BATCH_S = 0.1
BATCHES = 8
WARM_UP = 2
BOUND_S = 300.0

given = json.loads(sys.argv[1])
RECORDS, PARTITIONS, TOPIC = given["records"], given["partitions"], given["topic"]
PARAMS = {
    "bootstrap.servers": given["address"],
    "auto.offset.reset": "earliest",
    "group.id": "benchmark",
}


class Batches:
    """Batches that ended, and what is made of them."""

    def __init__(self):
        self.ended = []
        self.counts = []
        self.read = 0
        self.all_read = threading.Event()

    def add(self, records):
        if records:
            self.ended.append(time.monotonic())
            self.counts.append(records)
            self.read += records
            if self.read >= RECORDS:
                self.all_read.set()

    def tell(self):
        assert self.all_read.wait(BOUND_S), f"{self.read} of {RECORDS} records after {BOUND_S} s"
        # The first batches warm up, and the last one may have waited for its end.
        last = len(self.counts) - 1
        seconds = self.ended[last - 1] - self.ended[WARM_UP - 1]
        print(json.dumps({"records_per_s": sum(self.counts[WARM_UP:last]) / seconds}), flush=True)
        os._exit(0)


def bare():
    if given["engine"] == "confluent-kafka":
        from confluent_kafka import Consumer, TopicPartition

        client = Consumer({**PARAMS, "enable.auto.commit": False, "fetch.queue.backoff.ms": 20})
        client.assign([TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])

        def poll():
            return len(client.consume(20_000, 0.1))
    else:
        import kafka

        client = kafka.KafkaConsumer(
            bootstrap_servers=given["address"],
            auto_offset_reset="earliest",
            max_poll_records=20_000,
            max_partition_fetch_bytes=4 << 20,
        )
        client.assign([kafka.TopicPartition(TOPIC, each) for each in range(PARTITIONS)])

        def poll():
            return sum(map(len, client.poll(100).values()))

    warm = 0
    while warm < RECORDS // 10:
        warm += poll()
    begun, read = time.monotonic(), 0
    while warm + read < RECORDS:
        read += poll()
    print(json.dumps({"records_per_s": read / (time.monotonic() - begun)}), flush=True)
    os._exit(0)


def count_rows(batches):
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def rows_of(frame):
    return sum(row.rows for row in frame.mapInArrow(count_rows, "rows long").collect())


def options(**settings):
    pairs = tuple(settings.items())
    return ProgramOptions("penstock", given["folder"], cores=given["cores"], settings=pairs)


def direct(done):
    from penstock.sources.kafka import ConsumerStrategies, KafkaUtils, LocationStrategies
    from penstock.streaming import StreamingContext

    per_partition = RECORDS // BATCHES // PARTITIONS / BATCH_S
    limit = {"spark.streaming.kafka.maxRatePerPartition": str(int(per_partition))}
    ssc = StreamingContext(spark_context(options(**limit)), BATCH_S)
    params = {**PARAMS, "penstock.engine": given["engine"]}
    stream = KafkaUtils.createDirectStream(
        ssc, LocationStrategies.PreferConsistent, ConsumerStrategies.Subscribe([TOPIC], params)
    )
    if given["way"] == "frame":
        stream.foreachBatch(lambda frame, _: done.add(rows_of(frame.select("value"))))
    else:
        stream.foreachRDD(lambda rdd: done.add(rdd.count()))
    ssc.start()


def receiver(done):
    from penstock.sources.kafka import KafkaReceiver
    from penstock.streaming import StreamingContext

    ssc = StreamingContext(spark_context(options()), 0.25)
    ssc.checkpoint(given["folder"] + "/checkpoint")
    params = {**PARAMS, "penstock.engine": given["engine"], "group.id": "r-" + given["engine"]}
    stream = ssc.receiverStream(KafkaReceiver([TOPIC], params, storageLevel=LEVEL))
    stream.foreachRDD(count_into(done))
    ssc.start()


class count_into:  # noqa: N801  # it stands for a function, which a checkpoint can hold
    def __init__(self, done):
        self.add = done.add

    def __call__(self, rdd):
        self.add(rdd.count())

    def __reduce__(self):
        return print, ()


def structured(done):
    jars = {"spark.jars": given["jars"]}
    spark = SparkSession(spark_context(options(**jars)))
    lines = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", given["address"])
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS // BATCHES)
        .load()
    )
    (
        lines.writeStream.trigger(processingTime="0 seconds")
        .option("checkpointLocation", given["folder"] + "/checkpoint")
        .foreachBatch(lambda frame, _: done.add(rows_of(frame.select("value"))))
        .start()
    )


WAYS = {"direct": direct, "frame": direct, "receiver": receiver, "structured": structured}

if given["way"] == "bare":
    bare()
done = Batches()
WAYS[given["way"]](done)
done.tell()
