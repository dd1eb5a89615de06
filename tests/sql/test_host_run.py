"""`ReceiverHost.run` on a real Spark: what of the records is read when it ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from penstock.host.spark.logs import has_large_stacks
from penstock.sql import ReceiverHost

pytestmark = pytest.mark.timeout(900)

STACKS = "spark.driver.extraJavaOptions=-Xss8m"


def many(context: Any) -> Iterator[str]:
    while not context.stopped.wait(0.001):
        yield "a record"


@pytest.mark.exhaustive  # `test_run` has what `run` does.
def test_without_a_directory_queries_read_all_that_is_there_before_they_are_stopped(
    sc: Any, caplog: pytest.LogCaptureFixture
) -> None:
    spark = SparkSession(sc)
    read: list[int] = []
    host = ReceiverHost(spark)
    host.stream("numbers", many)
    with caplog.at_level(logging.INFO, "penstock"):
        host.start()
        frame = spark.readStream.format("penstock").option("stream", "numbers").load()
        writer = frame.writeStream.queryName("counted").foreachBatch(
            lambda batch, _: read.append(batch.count())
        )
        host.run(writer, timeout=8.0, stopSparkContext=False)
    assert sum(read) > 0
    of_all = f"numbers has {sum(read):,} records; query counted has read {sum(read):,} of numbers"
    assert of_all in caplog.text
    # Which stacks this JVM has depends on how it was started.
    assert (STACKS in caplog.text) == (not has_large_stacks(sc))


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["-Xmx1g"], False),
        ([], False),
        (["-Xmx1g", "-Xss8m"], True),
        (["-XX:ThreadStackSize=8192"], True),
        (Py4JError("gone"), True),
    ],
)
def test_only_stacks_that_nobody_chose_are_told_of(arguments: Any, found: bool) -> None:
    def asked() -> Any:
        if isinstance(arguments, Exception):
            raise arguments
        return arguments

    bean = SimpleNamespace(getInputArguments=asked)
    factory = SimpleNamespace(getRuntimeMXBean=lambda: bean)
    management = SimpleNamespace(ManagementFactory=factory)
    java = SimpleNamespace(lang=SimpleNamespace(management=management))
    context: Any = SimpleNamespace(_jvm=SimpleNamespace(java=java))
    assert has_large_stacks(context) == found
