"""What a `StreamingContext` may be made with."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext

from penstock._arguments import refused
from penstock.errors import IllegalStateError


def is_stopped(spark_context: SparkContext) -> bool:
    """Whether a program stopped it from Python; the JVM is not asked."""
    untyped: Any = spark_context
    return untyped._jsc is None


def spark_context_of(given: Any) -> SparkContext:
    """Return the Spark context that a program gave, or that of its session.

    Raises:
        TypeError: It is neither, or a session of Spark Connect.
        IllegalStateError: The Spark context was stopped.
    """
    context = given
    if not isinstance(given, SparkContext):
        if type(given).__module__.startswith("pyspark.sql.connect."):
            raise TypeError(
                refused("sparkContext", given, "a SparkContext of this process")
                + "; a session of Spark Connect has none: its driver is elsewhere, and Penstock "
                "runs in the driver. Submit the program with spark-submit, or use a session that "
                'was made with SparkSession.builder.master("…") and without remote("…")'
            )
        from pyspark.sql import SparkSession

        if not isinstance(given, SparkSession):
            raise TypeError(refused("sparkContext", given, "a SparkContext or a SparkSession"))
        context = given.sparkContext
    untyped: Any = context
    if is_stopped(context) or untyped._jsc.sc().isStopped():
        raise IllegalStateError(
            "The SparkContext was stopped; make a new one (SparkSession.builder.getOrCreate()), "
            "and give that"
        )
    found: SparkContext = context
    return found
