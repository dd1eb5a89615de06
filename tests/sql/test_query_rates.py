"""Receivers' rates follow the queries of their streams, on a real Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.sql import ReceiverHost
from tests.sql.sources import WAIT_S, hosting, started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def spark(sc: Any) -> SparkSession:
    return SparkSession(sc)


def flood(context: Any) -> Any:
    number = 0
    while not context.stopped.is_set():
        yield str(number)
        number += 1


def slow_query(spark: SparkSession, folder: Path, name: str, record_s: float) -> Any:
    """Start a query that takes so long for each record."""
    frame = (
        spark.readStream.format("penstock")
        .option("stream", "numbers")
        .option("startingOffsets", "latest")
        .option("maxRecordsPerTrigger", 2000)
        .load()
    )

    def process(batch: Any, _: int) -> None:
        time.sleep(batch.count() * record_s)

    writer = frame.writeStream.foreachBatch(process).queryName(name)
    return started(writer.option("checkpointLocation", str(folder / name)))


def await_that(holds: Callable[[], bool], host: ReceiverHost) -> None:
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s, (host.rates(), host.receivers())
        time.sleep(0.1)


@pytest.mark.exhaustive  # `test_query_rates_driven` has the rule.
def test_the_slowest_query_that_runs_sets_the_rate_and_with_none_it_is_lifted(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hosting(spark, flood, rateSource="query", retention=0, maxBacklog="64m") as host:
        assert host.rates()["numbers"].source == "unlimited"
        quick = slow_query(spark, tmp_path, "quick", 0.0002)
        await_that(lambda: "quick" in host.rates()["numbers"].estimates, host)
        assert host.rates()["numbers"].query == "quick"
        slow = slow_query(spark, tmp_path, "slow", 0.002)
        # It can do 500 a second at most.
        await_that(lambda: "slow" in host.rates()["numbers"].estimates, host)
        await_that(lambda: 50 <= (host.rates()["numbers"].estimates["slow"]) <= 1000, host)
        await_that(lambda: host.rates()["numbers"].query == "slow", host)
        found = host.rates()["numbers"]
        assert found.source == "query"
        assert found.effective == found.estimates["slow"]
        slow.stop()
        await_that(lambda: set(host.rates()["numbers"].estimates) == {"quick"}, host)
        quick.stop()
        await_that(lambda: host.rates()["numbers"].source == "unlimited", host)
        assert host.rates()["numbers"].effective is None


def test_a_source_of_rates_that_is_none_is_refused(spark: SparkSession) -> None:
    host = ReceiverHost(spark)
    with pytest.raises(ValueError, match="rateSource='batch' is not accepted"):
        host.stream("numbers", flood, rateSource="batch")
    with pytest.raises(TypeError, match="rateSource"):
        host.stream("numbers", flood, rateSource=True)  # type: ignore[arg-type]
    assert host.rates() == {}
