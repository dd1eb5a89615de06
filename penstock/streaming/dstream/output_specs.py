"""Whether a thread may save an RDD to a folder that is there already.

Hadoop's output formats refuse that. A batch that runs again must be able to write again, so Spark
switches the check off for the jobs of batches (SPARK-4835), by a variable of each JVM thread. With
pinned threads, PySpark's default, such a thread belongs to one of Python, so that no one else is
concerned; without, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.clientserver import ClientServer
from pyspark import SparkContext


def allow_existing_folders(context: SparkContext) -> None:
    """Let the calling thread save to folders that are there already, from now on."""
    _set_unchecked(context, True)


@contextmanager
def refuse_existing_folders(context: SparkContext) -> Iterator[None]:
    """Let the calling thread not, for a while; it is one that was allowed to."""
    _set_unchecked(context, False)
    try:
        yield
    finally:
        _set_unchecked(context, True)


def _set_unchecked(context: SparkContext, is_unchecked: bool) -> None:
    spark: Any = context
    if isinstance(spark._gateway, ClientServer):
        variable = spark._jvm.org.apache.spark.internal.io.SparkHadoopWriterUtils
        getattr(variable.disableOutputSpecValidation(), "value_$eq")(is_unchecked)
