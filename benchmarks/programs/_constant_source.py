"""A Python data source of Spark that does nothing but give the same record batch again and again.

It is a module of its own so that a Python worker, which serves many tasks, makes the batch once.
"""

from __future__ import annotations

import functools

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks.feeder import lines_of_words

RECORD_BYTES = 100
ROWS = 10_000


@functools.cache
def record_batch():
    lines = lines_of_words(RECORD_BYTES + 1, ROWS * (RECORD_BYTES + 1)).decode().splitlines()
    return pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], ["value"])


class ConstantSource(DataSource, DataSourceReader):
    """Gives ``records`` of 100 bytes in ``partitions``."""

    @classmethod
    def name(cls):
        return "constant"

    def schema(self):
        return "value string"

    def reader(self, schema):
        return self

    def partitions(self):
        return [InputPartition(number) for number in range(int(self.options["partitions"]))]

    def read(self, partition):
        batches = int(self.options["records"]) // int(self.options["partitions"]) // ROWS
        for _ in range(batches):
            yield record_batch()
