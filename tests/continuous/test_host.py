"""Continuous functions of a `ReceiverHost`, beside queries of the same streams, in Spark."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.__main__ import main
from penstock.errors import IllegalStateError
from penstock.host.errors import ContinuousStreamError, NotEnoughCoresError
from penstock.receiver import receiver
from penstock.sql import ReceiverHost
from penstock.streaming import FileSink, FunctionSink, StreamingContext
from penstock.tracker import LedgerError, ReceiverTracker
from penstock.tracker.ledger.places import CONTINUOUS
from tests.bounds import HANG_S
from tests.continuous.test_continuous import Counts, await_that, doubled, written
from tests.sql.sources import numbers, started
from tests.system.leftovers import assert_nothing_left, threads

pytestmark = pytest.mark.slow


@pytest.fixture
def spark(sc: Any) -> Iterator[SparkSession]:
    before = threads()
    key = "spark.streaming.blockInterval"
    sc._conf.set(key, "10ms")
    try:
        yield SparkSession(sc)
        host = ReceiverHost.getActive()
        if host is not None:
            host.stop()
        assert_nothing_left(sc.applicationId, before)
    finally:
        sc._conf._jconf.remove(key)


def host_of(
    spark: SparkSession,
    directory: Path | None,
    source: Any,
    function: Any = doubled,
    **options: Any,
) -> ReceiverHost:
    """Return a host, not started, with the stream ``numbers`` and a function of it."""
    host = ReceiverHost(spark, directory)
    host.stream("numbers", source, retention=0)
    host.continuous("numbers", function, **options)
    return host


def place_of(host: ReceiverHost, consumer: str) -> int:
    consumers = host.streams()["numbers"].consumers
    return next(found.place for found in consumers if found.consumer.startswith(consumer))


def test_a_function_and_a_query_each_have_every_record_of_a_stream_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    out, hold = tmp_path / "out", tmp_path / "hold"

    def held(batch: pa.RecordBatch) -> pa.RecordBatch:
        while not hold.exists():
            time.sleep(0.01)
        return doubled(batch)

    host = host_of(spark, None, numbers(3000, block_s=0.01), held, sink=FileSink(out, "jsonl"))
    assert host.epochs() == {}
    host.start()
    reader = spark.readStream.format("penstock").option("maxRecordsPerTrigger", 500)
    frame = reader.options(stream="numbers", consumer="query").load()
    query = frame.writeStream.format("memory").queryName("beside").start()
    await_that(lambda: host.streams()["numbers"].records >= 3000, host.streams)
    query.processAllAvailable()
    # The query has passed what the function has not, and there is no retention.
    await_that(lambda: place_of(host, "query") > 0, host.streams)
    assert host._hosted is not None
    host._hosted.tracker.release_places()
    assert host.streams()["numbers"].first == place_of(host, CONTINUOUS) == 0
    hold.touch()
    await_that(lambda: len(written(out)) >= 3000, host.epochs)
    await_that(lambda: host.streams()["numbers"].first > 0, host.streams)
    query.stop()
    status = host.epochs()["numbers"]
    assert (status.failures, status.records) == (0, 3000)
    host.stop(stopGraceFully=True)
    assert written(out) == [2 * n for n in range(3000)]
    found = spark.table("beside").collect()
    assert sorted(int(row[0]) for row in found) == list(range(3000))


def test_it_goes_on_from_its_epochs_with_another_parallelism(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for parallelism, count in ((1, 1500), (2, 3000)):
        source = numbers(count, block_s=0.05)
        sink = FileSink(out, "jsonl")
        options = {"sink": sink, "epoch": 0.05, "parallelism": parallelism}
        with host_of(spark, tmp_path / "host", source, **options) as host:
            host.start()
            await_that(lambda: len(written(out)) >= count, host.epochs)  # noqa: B023
    assert sorted(written(out)) == [2 * n for n in range(3000)]
    assert {path.stem[-4:] for path in out.glob("part-*.jsonl")} == {"0000", "0001"}


def test_state_by_key_goes_on_over_a_crash_and_a_restart_of_a_host(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def started(count: int, parallelism: int) -> ReceiverHost:
        options = {"sink": FileSink(out, "jsonl"), "epoch": 0.05, "key_by": "key"}
        source = numbers(count, block_s=0.05, keys=7)
        counts = Counts(tmp_path)
        host = host_of(spark, tmp_path / "host", source, counts, parallelism=parallelism, **options)
        host.start()
        return host

    with started(1500, 2):
        await_that(lambda: len(written(out)) >= 1500, lambda: len(written(out)))
    with pytest.raises(LedgerError, match="key_by='key' and parallelism=2 up to epoch"):
        started(3000, 1)
    assert ReceiverHost.getActive() is None
    with started(3000, 2):
        await_that(lambda: len(written(out)) >= 3000, lambda: len(written(out)))
    assert (tmp_path / "died").exists()
    assert sorted(written(out)) == list(range(3000))


def test_a_host_goes_on_with_the_folder_of_a_context_and_a_context_with_that_of_a_host(
    spark: SparkSession, tmp_path: Path
) -> None:
    out, folder = tmp_path / "out", str(tmp_path / "folder")
    (tmp_path / "died").touch()
    options = {"sink": FileSink(out, "jsonl"), "epoch": 0.05, "key_by": "key"}

    def until(count: int) -> None:
        await_that(lambda: len(written(out)) >= count, lambda: len(written(out)))

    def on_context(count: int) -> StreamingContext:
        ssc = StreamingContext(spark.sparkContext, 1)
        ssc.checkpoint(folder)
        stream = ssc.receiverStream(numbers(count, keys=7), "numbers")
        stream.continuous(Counts(tmp_path), **options)
        try:
            ssc.start()
            until(count)
        finally:
            ssc.stop(stopSparkContext=False)
        return ssc

    on_context(300)
    source, counts = numbers(600, keys=7), Counts(tmp_path)
    with host_of(spark, Path(folder), source, counts, **options) as host:
        host.start()
        until(600)
        query = numbers_read_by_a_query(spark, tmp_path)
    with pytest.raises(LedgerError, match=f"queries of a ReceiverHost .* numbers.*{query}.*--drop"):
        on_context(900)
    assert main(["consumers", folder, "--drop", query]) == 0
    on_context(900)
    assert sorted(written(out)) == list(range(900))


def numbers_read_by_a_query(spark: SparkSession, folder: Path) -> str:
    """Return the consumer of a query that has read the stream of the active host."""
    frame = spark.readStream.format("penstock").option("stream", "numbers").load()
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "read"))
    query = started(writer, folder / "query")
    host = ReceiverHost.getActive()
    assert host is not None

    def readers() -> list[str]:
        consumers = host.streams()["numbers"].consumers
        return [found.consumer for found in consumers if found.consumer != CONTINUOUS]

    await_that(readers, lambda: query.status)
    query.stop()
    return readers()[0]


@pytest.mark.parametrize("graceful", [True, False])
def test_a_graceful_stop_of_a_host_commits_what_was_received(
    spark: SparkSession, tmp_path: Path, graceful: bool
) -> None:
    out = tmp_path / "out"
    options = {"sink": FileSink(out, "jsonl"), "epoch": "1h"}
    host = host_of(spark, tmp_path / "host", numbers(500), **options)
    host.start()
    await_that(lambda: host.streams()["numbers"].records >= 500, host.streams)
    host.stop(stopGraceFully=graceful)
    assert written(out) == ([2 * n for n in range(500)] if graceful else [])
    with host_of(spark, tmp_path / "host", numbers(700), **options) as host:
        host.start()
        await_that(lambda: host.streams()["numbers"].records >= 700, host.streams)
        host.stop(stopGraceFully=True)
    assert written(out) == [2 * n for n in range(700)]


def test_run_commits_at_its_end_and_says_how_far_it_has_come(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @receiver
    def many(context: Any) -> Iterator[str]:
        n = 0
        while not context.stopped.wait(0.001):
            yield str(n)
            n += 1

    host = host_of(spark, tmp_path / "host", many, sink=FileSink(tmp_path, "jsonl"), epoch="1h")
    with caplog.at_level(logging.INFO, "penstock"):
        host.run(timeout=3.0, stopSparkContext=False)
    found = written(tmp_path)
    assert found == [2 * n for n in range(len(found))] != []
    said = f"numbers has {len(found):,} records; its continuous function has committed"
    assert f"{said} {len(found):,} of them" in caplog.text


def fails(epoch: Any, table: Any) -> None:
    raise RuntimeError("the database is away")


def test_run_raises_for_a_function_that_is_given_up(spark: SparkSession, tmp_path: Path) -> None:
    sink = FunctionSink(fails)
    host = host_of(spark, tmp_path / "host", numbers(300), sink=sink, attempts=2)
    with pytest.raises(ContinuousStreamError, match="the database is away"):
        host.run(timeout=HANG_S, stopSparkContext=False)
    assert ReceiverHost.getActive() is None
    (error,) = host.errors()
    assert "2 times without an epoch between" in str(error)


def test_one_that_is_given_up_is_told_and_takes_nothing_from_others(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(ReceiverTracker, "fail_places", lambda *found: ended.append(found[-1]))
    host = host_of(spark, None, numbers(300), sink=FunctionSink(fails), attempts=1)
    host.start()
    await_that(host.errors, host.epochs)
    (error,) = host.errors()
    assert isinstance(error, ContinuousStreamError)
    assert "Task 0 of continuous stream numbers" in caplog.text
    await_that(lambda: host.streams()["numbers"].records >= 300, host.streams)
    assert spark.read.format("penstock").option("stream", "numbers").load().count() == 300
    assert ended == []


def test_a_function_that_is_no_part_of_the_program_any_more_is_forgotten_by_its_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = {"sink": FileSink(out, "jsonl"), "key_by": "key"}
    source, counts = numbers(100, keys=3), Counts(tmp_path)
    with host_of(spark, tmp_path / "host", source, counts, **options) as host:
        host.start()
        await_that(lambda: len(written(out)) >= 100, host.epochs)
        with pytest.raises(IllegalStateError, match="continuous is the function of stream 'numb"):
            host.dropConsumer("numbers", CONTINUOUS)
    states = tmp_path / "host" / "keyedState"
    (name,) = {path.name.split("-")[1] for path in out.glob("part-*")}
    left, other = states / f"{'0' * 32}-0-of-1.sqlite", states / "other.sqlite"
    for path in (left, other):  # One of a program that was killed before its first epoch.
        path.touch()
    host = ReceiverHost(spark, tmp_path / "host")
    host.stream("numbers", numbers(200, keys=3), retention=0)
    with host:
        host.start()
        await_that(lambda: host.streams()["numbers"].records >= 200, host.streams)
        there = {path.name.removesuffix("-journal") for path in states.iterdir()}
        assert there == {f"{name}-0-of-1.sqlite", other.name}
        assert [found.consumer for found in host.streams()["numbers"].consumers] == [CONTINUOUS]
        host.dropConsumer("numbers", CONTINUOUS)
        assert host.streams()["numbers"].consumers == ()
        assert host.epochs() == {}
        await_that(lambda: list(states.iterdir()) == [other], lambda: list(states.iterdir()))


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"name": "clicks"}, KeyError, "there is no stream 'clicks'; there are numbers"),
        ({"sink": print}, TypeError, "^sink="),
        ({"epoch": "soon"}, ValueError, "^epoch="),
        ({"deliver": "at once"}, ValueError, "^deliver="),
        ({"key_by": "card"}, TypeError, r"called as function\(batch, state\) with key_by"),
    ],
)
def test_arguments_of_a_host_are_checked_where_they_are_given(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any], kind: Any, says: str
) -> None:
    host = ReceiverHost(spark)
    with pytest.raises(KeyError, match=r"none; call stream\(name, receiver\) first"):
        host.continuous("numbers", doubled, sink=FileSink(tmp_path))
    host.stream("numbers", numbers(10))
    options = {"name": "numbers", "sink": FileSink(tmp_path), **given}
    with pytest.raises(kind, match=says):
        host.continuous(options.pop("name"), doubled, **options)


def test_a_stream_of_a_host_has_one_function_and_none_once_it_was_started(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = FileSink(tmp_path)
    host = host_of(spark, None, numbers(10), sink=sink)
    with pytest.raises(IllegalStateError, match="'numbers' has a continuous function already"):
        host.continuous("numbers", doubled, sink=sink)
    with host:
        host.start()
        with pytest.raises(IllegalStateError, match="too late: the host was started"):
            host.continuous("numbers", doubled, sink=sink)
    with pytest.raises(IllegalStateError, match="too late: the host was stopped"):
        host.continuous("numbers", doubled, sink=sink)


def test_a_column_that_the_receiver_does_not_declare_is_refused_by_a_host(
    spark: SparkSession, tmp_path: Path
) -> None:
    host = ReceiverHost(spark)
    host.stream("numbers", numbers(10, keys=3))
    with pytest.raises(ValueError, match="stream 'numbers': key_by='card'"):
        host.continuous("numbers", Counts(tmp_path), sink=FileSink(tmp_path), key_by="card")


def test_each_task_of_a_function_of_a_host_holds_a_core(
    spark: SparkSession, tmp_path: Path
) -> None:
    host = host_of(spark, None, numbers(10), sink=FileSink(tmp_path), parallelism=3)
    with pytest.raises(NotEnoughCoresError, match=r"tasks of continuous streams \(3 of them\)"):
        host.start()
