"""A receiver that calls `store` in a loop, and a count of every batch.

Variants, by what is stored: ``bytes``, ``str``, ``dict`` (with a schema), ``batch`` (an Arrow
record batch of 10,000 records, acknowledged by a callback).
"""

from __future__ import annotations

import threading

import pyarrow as pa

from benchmarks.programs._program import LEVEL, options, reporting, run, spark_context
from penstock.receiver import Receiver
from penstock.streaming import StreamingContext

given = options()
ROWS = 10_000


class Loop(Receiver):
    """Stores the same thousand records again and again, each by a call of its own."""

    def __init__(self, records, schema=None):
        super().__init__(LEVEL)
        self.records = records
        self.schema = schema

    def onStart(self):
        self.thread = threading.Thread(target=self.receive, daemon=True)
        self.thread.start()

    def onStop(self):
        self.thread.join(5)

    def receive(self):
        store = self.store
        while not self.isStopped():
            for record in self.records:
                store(record)

    def __getstate__(self):
        return {**super().__getstate__(), "thread": None}


class BatchLoop(Loop):
    """Stores Arrow record batches; the acknowledgement is awaited by nobody."""

    def receive(self):
        batch = pa.RecordBatch.from_arrays([pa.array(self.records)], names=["value"])
        while not self.isStopped():
            self.store(batch, ack=acknowledged)


def acknowledged():
    pass


def text(number, size):
    return f"{number:012d} ".ljust(size, "x")


def receiver(variant, size):
    numbers = range(1000)
    if variant == "bytes":
        return Loop([text(number, size).encode() for number in numbers])
    if variant == "str":
        return Loop([text(number, size) for number in numbers])
    if variant == "dict":
        schema = pa.schema([("number", pa.int64()), ("text", pa.string())])
        # 8 bytes of a number, and the rest is text.
        records = [{"number": number, "text": text(number, size - 8)} for number in numbers]
        return Loop(records, schema)
    return BatchLoop([text(number, size).encode() for number in range(ROWS)])


def on_batch(time, rdd):
    with reporting(time) as report:
        report.records = rdd.count()


sc = spark_context(given)
ssc = StreamingContext(sc, given.batch_s)
ssc.checkpoint(given.folder + "/checkpoint")
ssc.receiverStream(receiver(given.variant, given.record_bytes)).foreachRDD(on_batch)
run(ssc)
