"""Several streams of a host as one source of a query, on a real Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.receiver import receiver
from penstock.sql import ReceiverHost
from penstock.sql.source._reader import HAS_LIMITS
from tests.sql.sources import WAIT_S, await_records, numbers, started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COUNT = 1000


@pytest.fixture
def spark(sc: Any) -> SparkSession:
    return SparkSession(sc)


@receiver(schema="number bigint")
def rows(context: Any) -> Any:
    yield {"number": 1}
    context.stopped.wait()


def load(spark: SparkSession, streams: str, **options: Any) -> Any:
    reader = spark.readStream.format("penstock").options(**options)
    return reader.option("streams", streams).option("metadataColumns", "_stream").load()


def run_to_end(frame: Any, folder: Path) -> Any:
    """Let a query read what is there, into Parquet files."""
    writer = frame.writeStream.format("parquet").trigger(availableNow=True)
    query = started(writer.option("checkpointLocation", str(folder / "checkpoint")), folder / "out")
    assert query.awaitTermination(WAIT_S)
    return query


def counts(spark: SparkSession, folder: Path) -> dict[str, int]:
    """Check that each number of a stream was written once; return how many of each."""
    found = spark.read.parquet(str(folder / "out")).collect()
    by_stream: dict[str, Counter[str]] = {}
    for value, stream in found:
        by_stream.setdefault(stream, Counter())[value] += 1
    for values in by_stream.values():
        assert values == Counter(map(str, range(len(values))))
    return {stream: len(values) for stream, values in by_stream.items()}


@pytest.mark.long
def test_streams_are_one_source_and_one_is_added_to_a_query_that_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    host = ReceiverHost(spark, tmp_path / "host")
    names = ("one", "two", "three")
    for place, name in enumerate(names):
        # In several blocks: a batch takes a whole one at the least.
        host.stream(name, numbers(COUNT + place, block_s=0.25), retention=0)
    host.start()
    with host:
        for place, name in enumerate(names):
            await_records(host, name, COUNT + place)
        query = run_to_end(load(spark, "one, two", maxRecordsPerTrigger=1000), tmp_path)
        if not HAS_LIMITS:
            # Spark runs one batch of such a source, and the next run goes on.
            assert sum(counts(spark, tmp_path).values()) < 2 * COUNT
            run_to_end(load(spark, "one, two"), tmp_path)
        assert counts(spark, tmp_path) == {"one": COUNT, "two": COUNT + 1}
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        # Each stream has its share of the limit.
        assert len(batches) > 1 or not HAS_LIMITS
        # What is small is packed together, whichever stream it is of.
        assert run_to_end(load(spark, "one,two,three"), tmp_path).exception() is None
        assert counts(spark, tmp_path) == {name: COUNT + place for place, name in enumerate(names)}
        consumers = {name: len(host.streams()[name].consumers) for name in names}
        assert consumers == dict.fromkeys(names, 1)
        query = run_to_end_with_error(load(spark, "one,two"), tmp_path)
        assert "the option streams does not name" in str(query.exception())
        query = run_to_end_with_error(load_one(spark), tmp_path)
        assert "It is of a query of several streams" in str(query.exception())


def load_one(spark: SparkSession) -> Any:
    return spark.readStream.format("penstock").option("stream", "one").load()


def run_to_end_with_error(frame: Any, folder: Path) -> Any:
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    query = started(writer.option("checkpointLocation", str(folder / "checkpoint")))
    with pytest.raises(PySparkException):
        query.awaitTermination(WAIT_S)
    return query


@pytest.mark.long
def test_streams_of_other_columns_and_options_that_do_not_fit_are_errors_at_load(
    spark: SparkSession,
) -> None:
    host = ReceiverHost(spark)
    host.stream("one", numbers(1))
    host.stream("rows", rows)
    host.start()
    with host:
        with pytest.raises(PySparkException, match="they have not the same columns: one has value"):
            load(spark, "one,rows")
        with pytest.raises(PySparkException, match="names with commas between, each once"):
            load(spark, "one,one")
        with pytest.raises(PySparkException, match="stream is set, too; set one"):
            load(spark, "one", stream="one")
        frame = spark.read.format("penstock").option("streams", "one").load()
        with pytest.raises(PySparkException, match=r"it is for spark\.readStream"):
            frame.collect()
