"""Received records as a source of Structured Streaming, on a real Spark."""

from __future__ import annotations

import ast
import base64
import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions
from pyspark.sql.streaming import StatefulProcessor

from penstock.errors import IllegalStateError, SettingError
from penstock.host.errors import NotEnoughCoresError
from penstock.host.receivers import HostedReceivers
from penstock.receiver import receiver
from penstock.sql import ReceiverHost, SourceError, connect
from penstock.sql.source._options import METADATA_COLUMNS
from penstock.sql.source._reader import HAS_LIMITS
from penstock.sql.source.data_source import write_share_file
from penstock.streaming import StreamingContext
from tests.sql.sources import WAIT_S, Sieved, await_records, hosting, numbers, started
from tests.system.leftovers import await_that
from tests.system.running import SMALL, run_on, settings
from tests.system.spoiling import spoil

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COUNT = 3000


@pytest.fixture
def spark(sc: Any) -> SparkSession:
    session = SparkSession(sc)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


def load(spark: SparkSession, **options: Any) -> Any:
    reader = spark.readStream.format("penstock").option("stream", "numbers")
    return reader.options(**options).load()


def to_parquet(frame: Any, folder: Path, **trigger: Any) -> Any:
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    if trigger:
        writer = writer.trigger(**trigger)
    return started(writer.option("checkpointLocation", str(folder / "checkpoint")))


def written(spark: SparkSession, folder: Path) -> list[int]:
    found = spark.read.parquet(str(folder / "out")).select("value").collect()
    return sorted(int(row[0]) for row in found)


def finished(query: Any) -> Any:
    assert query.awaitTermination(WAIT_S)
    return query


def last_offset(query: Any) -> dict[str, Any]:
    # Before PySpark 4.2 it is the text of a dictionary, and not JSON.
    offset: dict[str, Any] = ast.literal_eval(query.lastProgress["sources"][0]["endOffset"])
    return offset


# -- what is unread ------------------------------------------------------------------------------


def flood(context: Any) -> Iterator[str]:
    """Store as much as is taken."""
    while not context.stopped.is_set():
        yield "x" * 1000


@pytest.mark.long
def test_store_waits_while_queries_do_not_keep_up_and_goes_on_when_one_has_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    bound = 4 << 20
    with hosting(spark, flood, tmp_path / "host", retention=0, maxBacklog=bound) as host:
        stopped_at = await_backlog(host)
        # What was in hand is still taken, and then nothing.
        assert await_standstill(host) >= bound
        query = to_parquet(load(spark), tmp_path)
        await_records(host, "numbers", 4 * stopped_at)
        # Spark commits a batch with the next one only.
        await_that("a block is released", lambda: host.streams()["numbers"].first > 0)
        query.stop()
        assert not query.exception()
        await_backlog(host)


def await_backlog(host: ReceiverHost) -> int:
    """Wait until the receiver does nothing but wait for queries; return its records."""
    end_s = time.monotonic() + WAIT_S
    while True:
        (found,) = host.receivers()
        if found.waits is not None and found.waits.limit == "backlog" and found.waits.tokens > 90:
            return found.records
        assert time.monotonic() < end_s, found
        time.sleep(0.1)


def await_standstill(host: ReceiverHost) -> int:
    """Wait until nothing more has come for two seconds; return the bytes of the stream."""
    end_s = time.monotonic() + WAIT_S
    size_bytes, since_s = -1, time.monotonic()
    while time.monotonic() < since_s + 2:
        if (now_bytes := host.streams()["numbers"].size_bytes) != size_bytes:
            size_bytes, since_s = now_bytes, time.monotonic()
        assert time.monotonic() < end_s, f"{size_bytes} bytes have come, and more come"
        time.sleep(0.1)
    return size_bytes


def test_a_backlog_that_is_no_size_is_refused(spark: SparkSession) -> None:
    host = ReceiverHost(spark)
    for wrong in (0, -1, "0", "much"):
        with pytest.raises(ValueError, match="maxBacklog"):
            host.stream("numbers", flood, maxBacklog=wrong)


# -- rows ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_queries_are_exact_over_restarts_of_query_and_host(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hosting(spark, numbers(COUNT, block_s=0.02), tmp_path / "host") as host:
        query = to_parquet(load(spark, maxRecordsPerTrigger=500), tmp_path)
        await_records(host, "numbers", COUNT // 3)
        query.processAllAvailable()
        query.stop()
        before = host.streams()["numbers"]
    with hosting(spark, numbers(COUNT, block_s=0.02), tmp_path / "host") as host:
        query = to_parquet(load(spark, maxRecordsPerTrigger=500), tmp_path)
        await_records(host, "numbers", COUNT)
        query.processAllAvailable()
        query.stop()
        after = host.streams()["numbers"]
    assert written(spark, tmp_path) == list(range(COUNT))
    assert after.epoch == before.epoch
    assert [found.consumer for found in after.consumers] == [
        found.consumer for found in before.consumers
    ]


@pytest.mark.long
def test_available_now_reads_what_was_there_at_its_start_within_the_limits(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hosting(spark, numbers(COUNT, block_s=0.05)) as host:
        await_records(host, "numbers", COUNT)
        frame = load(spark, maxRecordsPerTrigger=1000)
        query = finished(to_parquet(frame, tmp_path, availableNow=True))
        if not HAS_LIMITS:
            # Spark runs one batch of such a source, and the next run goes on.
            assert 0 < len(written(spark, tmp_path)) < COUNT
            frame = load(spark)
            query = finished(to_parquet(frame, tmp_path, availableNow=True))
            assert written(spark, tmp_path) == list(range(COUNT))
            return
        assert written(spark, tmp_path) == list(range(COUNT))
        batches = [found["numInputRows"] for found in query.recentProgress]
        assert sum(batches) == COUNT
        assert len([rows for rows in batches if rows]) > 1
        again = finished(to_parquet(frame, tmp_path, availableNow=True))
        assert sum(found["numInputRows"] for found in again.recentProgress) == 0


@pytest.mark.exhaustive
def test_several_queries_read_a_stream_each_at_its_own_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hosting(spark, numbers(COUNT)) as host:
        first = to_parquet(load(spark, consumer="first"), tmp_path / "a")
        await_records(host, "numbers", COUNT)
        first.processAllAvailable()
        first.stop()
        finished(to_parquet(load(spark, consumer="second"), tmp_path / "b", availableNow=True))
        assert written(spark, tmp_path / "a") == list(range(COUNT))
        assert written(spark, tmp_path / "b") == list(range(COUNT))
        names = {found.consumer.rpartition("-")[0] for found in host.streams()["numbers"].consumers}
        assert names == {"first", "second"}


@pytest.mark.long
def test_a_query_goes_on_over_what_was_discarded(spark: SparkSession, tmp_path: Path) -> None:
    """What nothing is left of is a block without records, and without columns."""
    with hosting(spark, Sieved(5)) as host:
        await_records(host, "numbers", 5)
        finished(to_parquet(load(spark), tmp_path, availableNow=True))
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row.number for row in found) == list(range(5))


@pytest.mark.long
def test_a_query_from_latest_sees_only_what_comes_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hosting(spark, numbers(COUNT)) as host:
        await_records(host, "numbers", COUNT)
        query = to_parquet(load(spark, startingOffsets="latest"), tmp_path)
        query.processAllAvailable()
        query.stop()
        assert not (tmp_path / "out").exists() or written(spark, tmp_path) == []
        place = host.streams()["numbers"].next - 1
        some = load(spark, startingOffsets=place, metadataColumns="_place")
        finished(to_parquet(some, tmp_path / "last", availableNow=True))
        found = spark.read.parquet(str(tmp_path / "last" / "out")).select("_place").distinct()
        assert [row[0] for row in found.collect()] == [place]


@pytest.mark.exhaustive
def test_metadata_tells_where_and_when_each_record_was_received(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = datetime.now(timezone.utc)
    with hosting(spark, numbers(COUNT)) as host:
        await_records(host, "numbers", COUNT)
        frame = load(spark, metadataColumns="true")
        assert frame.columns == ["value", *METADATA_COLUMNS]
        finished(to_parquet(frame, tmp_path, availableNow=True))
    found = spark.read.parquet(str(tmp_path / "out"))
    assert [row[0] for row in found.select("_stream").distinct().collect()] == ["numbers"]
    # A position stands for the whole block: that after its last record.
    last = found.groupBy("_place").agg(
        functions.max(functions.col("value").cast("int")).alias("last"),
        functions.max("_position").alias("position"),
    )
    assert all(row["last"] + 1 == int(row["position"]) for row in last.collect())
    times = [row[0] for row in found.select(functions.col("_received_at").cast("double")).collect()]
    assert before.timestamp() - 1 <= min(times) <= max(times) <= time.time() + 1


@pytest.mark.exhaustive
def test_a_starting_timestamp_is_that_of_receipt(spark: SparkSession, tmp_path: Path) -> None:
    with hosting(spark, numbers(COUNT)) as host:
        await_records(host, "numbers", COUNT)
        later = int(time.time() * 1000) + 3_600_000
        query = to_parquet(load(spark, startingTimestamp=later), tmp_path / "later")
        query.processAllAvailable()
        query.stop()
        assert (
            query.recentProgress == []
            or sum(found["numInputRows"] for found in query.recentProgress) == 0
        )
        finished(to_parquet(load(spark, startingTimestamp=0), tmp_path, availableNow=True))
        assert written(spark, tmp_path) == list(range(COUNT))


TYPES = pa.table(
    {
        "whole": pa.array([1, None, 3], pa.int64()),
        "unsigned": pa.array([1, 2, 3], pa.uint32()),
        "price": pa.array([Decimal("1.50"), None, Decimal("3.25")], pa.decimal128(10, 2)),
        "at": pa.array(
            [datetime(2026, 1, 1, tzinfo=timezone.utc)] * 3, pa.timestamp("us", tz="Europe/Berlin")
        ),
        "local": pa.array([datetime(2026, 1, 1, 12)] * 3, pa.timestamp("us")),
        "word": pa.array(["a", "b", "a"]).dictionary_encode(),
        "large": pa.array(["x", None, "z"], pa.large_string()),
        "raw": pa.array([b"\x00", b"\xff", None], pa.binary()),
        "large_raw": pa.array([b"\x00", b"\xff", None], pa.large_binary()),
        "list": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
        "large_list": pa.array([[1, 2], None, []], pa.large_list(pa.int32())),
        "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "nested": pa.array(
            [{"a": 1, "b": {"c": "x"}}] * 3,
            pa.struct([("a", pa.int16()), ("b", pa.struct([("c", pa.string())]))]),
        ),
    }
)


@pytest.mark.long
def test_columns_come_out_as_of_a_parquet_file_of_the_same_data(
    spark: SparkSession, tmp_path: Path
) -> None:
    serialized = pa.BufferOutputStream()
    with pa.ipc.new_stream(serialized, TYPES.schema) as stream:
        stream.write_table(TYPES)
    data = serialized.getvalue().to_pybytes()

    def tables() -> Iterator[Any]:
        import pyarrow

        yield pyarrow.ipc.open_stream(data).read_all()

    pq.write_table(TYPES, str(tmp_path / "file.parquet"))
    with hosting(spark, receiver(tables)) as host:
        await_records(host, "numbers", 3)
        frame = load(spark)
        expected = spark.read.parquet(str(tmp_path / "file.parquet"))
        assert [(f.name, f.dataType) for f in frame.schema] == [
            (f.name, f.dataType) for f in expected.schema
        ]
        query = started(frame.writeStream.format("memory").queryName("types"))
        query.processAllAvailable()
        query.stop()
    assert spark.table("types").collect() == expected.collect()


# -- what is told --------------------------------------------------------------------------------


def test_an_unknown_stream_or_option_is_an_error_at_load(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hosting(spark, numbers(10)):
        with pytest.raises(PySparkException, match="there is no stream 'orders'"):
            spark.readStream.format("penstock").option("stream", "orders").load()
        with pytest.raises(PySparkException, match="it is not known"):
            load(spark, maxOffsetsPerTrigger=5)


@pytest.mark.long
def test_pickled_objects_have_no_columns(spark: SparkSession) -> None:
    @receiver
    def pairs() -> Iterator[Any]:
        yield from [("a", 1)] * 10

    with hosting(spark, pairs) as host:
        await_records(host, "numbers", 10)
        with pytest.raises(PySparkException, match="declare a schema"):
            load(spark)


@pytest.mark.long
def test_a_query_says_when_its_host_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    with hosting(spark, numbers(100)) as host:
        query = to_parquet(load(spark), tmp_path)
        await_records(host, "numbers", 100)
        query.processAllAvailable()
    with pytest.raises(PySparkException, match=r"the receiver host at .* does not answer"):
        query.awaitTermination(WAIT_S)


@pytest.mark.long
def test_places_of_another_ledger_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        with hosting(spark, numbers(100), tmp_path / folder) as host:
            await_records(host, "numbers", 100)
            query = to_parquet(load(spark), tmp_path, availableNow=True)
            if folder == "one":
                finished(query)
                continue
            with pytest.raises(PySparkException, match="of another ledger"):
                query.awaitTermination(WAIT_S)


@pytest.mark.long
def test_released_places_are_an_error_unless_that_is_wanted(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hosting(spark, numbers(COUNT, block_s=0.01), retention=0) as host:
        await_records(host, "numbers", COUNT)
        query = to_parquet(load(spark, maxRecordsPerTrigger=500), tmp_path)
        query.processAllAvailable()
        offset = last_offset(query)
        await_release(host)
        query.stop()
        (consumer,) = host.streams()["numbers"].consumers
        with pytest.raises(KeyError, match=f"no consumer 'me'; there are {consumer.consumer}"):
            host.dropConsumer("numbers", "me")
        with pytest.raises(KeyError, match="no stream 'orders'; there are numbers"):
            host.dropConsumer("orders", consumer.consumer)
        host.dropConsumer("numbers", consumer.consumer)
        assert host._hosted is not None
        first = host.streams()["numbers"].first
        released = host._hosted.tracker.ledger.places.records_before(0, first)
        edit_last_offset(tmp_path / "checkpoint", offset)
        query = to_parquet(load(spark), tmp_path)
        with pytest.raises(PySparkException, match="was released"):
            query.processAllAvailable()
        query = to_parquet(load(spark, failOnDataLoss=False), tmp_path)
        query.processAllAvailable()
        query.stop()
        assert last_offset(query)["skipped"] == released > 0


@pytest.mark.long
@pytest.mark.parametrize("fails", [True, False])
def test_a_lost_block_is_an_error_unless_that_is_wanted(
    spark: SparkSession, tmp_path: Path, fails: bool
) -> None:
    with hosting(spark, numbers(COUNT, block_s=0.01)) as host:
        await_records(host, "numbers", COUNT)
        assert host._hosted is not None
        tracker = host._hosted.tracker
        _, (lost, *_), _ = tracker.ledger.places.between(0, 1, 2)
        spoil(lost)
        query = to_parquet(load(spark, failOnDataLoss=fails), tmp_path)
        if fails:
            with pytest.raises(PySparkException, match="place 1 of stream 'numbers' is lost"):
                query.processAllAvailable()
            assert tracker.skipped_blocks == 0
            return
        query.processAllAvailable()
        query.stop()
        found = written(spark, tmp_path)
        assert len(found) == len(set(found)) == COUNT - lost.num_records
        assert tracker.skipped_blocks == 1


def await_release(host: ReceiverHost) -> None:
    end_s = time.monotonic() + WAIT_S
    while True:
        found = host.streams()["numbers"]
        places = [consumer.place for consumer in found.consumers]
        if found.first > 0 and found.first == min(places, default=found.first):
            return
        assert time.monotonic() < end_s
        time.sleep(0.1)


def edit_last_offset(checkpoint: Path, offset: dict[str, Any]) -> None:
    """Put a checkpoint back to the beginning of the stream."""
    offsets = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    lines = offsets[-1].read_text().splitlines()
    lines[-1] = json.dumps({**offset, "block": 0, "records": 0})
    for path in (offsets[-1], checkpoint / "offsets" / f".{offsets[-1].name}.crc"):
        path.unlink(missing_ok=True)
    offsets[-1].write_text("\n".join(lines))


@pytest.mark.long
def test_a_receiver_that_failed_for_good_fails_its_queries(
    spark: SparkSession, tmp_path: Path
) -> None:
    @receiver(schema="value string")
    def broken(context: Any) -> Iterator[Any]:
        raise AttributeError("there is no such thing")
        yield ""

    with hosting(spark, broken) as host:
        query = to_parquet(load(spark), tmp_path)
        with pytest.raises(PySparkException, match="failed for good"):
            query.awaitTermination(WAIT_S)
        assert host.errors()


@pytest.mark.long
def test_load_does_not_wait_for_the_first_record_of_a_receiver_that_failed_for_good(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[Any] = []

    def end_progress_bar(spark_context: Any) -> None:
        bars.append(spark_context)
        handlers.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    handlers: list[Any] = []
    monkeypatch.setattr("penstock.sql.host.end_progress_bar", end_progress_bar)

    def broken(context: Any) -> Iterator[Any]:
        raise AttributeError("there is no such thing")
        yield ""

    with (
        hosting(spark, broken),
        pytest.raises(PySparkException, match=r"will come: .*there is no such thing"),
    ):
        load(spark)
    assert bars == [spark.sparkContext]  # Or the line of the receiver would stand for ever.
    # PySpark's own cancels all jobs, and breaks into what the start is asking of the JVM.
    assert handlers == [signal.default_int_handler]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.long
def test_a_receiver_that_is_refused_because_the_directory_was_removed_is_an_error_of_the_host(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hosting(spark, numbers(10**9, block_s=0.05), tmp_path / "host") as host:
        query = to_parquet(load(spark), tmp_path)
        await_records(host, "numbers", 100)
        shutil.rmtree(tmp_path / "host")
        await_that("the receiver is refused", host.errors)
        (error,) = host.errors()
        assert "the driver log did not take" in str(error)
        assert "stop the program" in str(error)
        with pytest.raises(PySparkException, match=r"did not take .* stop the program"):
            query.awaitTermination(WAIT_S)


@pytest.mark.long
def test_a_directory_that_was_removed_is_an_error_of_the_host_also_while_nothing_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    # What is there is to go after ten seconds; then its driver log is found to be gone.
    with hosting(spark, numbers(100), tmp_path / "host", retention=10) as host:
        await_records(host, "numbers", 100)
        shutil.rmtree(tmp_path / "host")
        await_that("the removal is found", host.errors)
        (error,) = host.errors()
        assert "it was removed" in str(error)


def test_a_stream_in_memory_alone_is_refused_where_it_would_stand_still(
    spark: SparkSession,
) -> None:
    source = receiver(storageLevel="MEMORY_ONLY")(flood)
    with (
        pytest.raises(SettingError, match="stream 'numbers' one with a copy on disk"),
        hosting(spark, source),
    ):
        pass
    with hosting(spark, source, retention=0) as host:
        await_records(host, "numbers", 1)


def test_a_host_whose_stop_was_interrupted_is_stopped_by_the_next_call(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = tmp_path / "share"
    with hosting(spark, numbers(10), share=str(share)) as host:
        await_records(host, "numbers", 10)
        handlers: list[Any] = []

        def interrupted(*_: Any) -> None:
            handlers.append(signal.getsignal(signal.SIGINT))
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("penstock.sql.host.stop_bounded", interrupted)
            with pytest.raises(KeyboardInterrupt):
                host.stopReceiving()
            patch.setattr(host, "stopReceiving", lambda: None)
            with pytest.raises(KeyboardInterrupt):
                host.stop()
        # PySpark's own would have cancelled the jobs of the receivers that are waited for.
        assert handlers == [signal.default_int_handler] * 2
        assert share.exists()
        # Nor does another one begin beside what is left of it.
        assert ReceiverHost.getActive() is host
        host.stop()
        assert not share.exists()
        assert HostedReceivers.running_in(spark.sparkContext) == 0
    assert ReceiverHost.getActive() is None


def test_a_host_whose_start_was_interrupted_and_then_its_end_is_stopped_at_the_exit(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    at_exit: list[Any] = []
    monkeypatch.setattr("penstock.sql.host.atexit.register", at_exit.append)
    monkeypatch.setattr("penstock.sql.host.atexit.unregister", at_exit.remove)
    host = ReceiverHost(spark)
    host.stream("numbers", numbers(10))
    with monkeypatch.context() as patch:
        patch.setattr("penstock.sql.host.end_progress_bar", interrupted)
        patch.setattr("penstock.sql.host.stop_bounded", interrupted)
        with pytest.raises(KeyboardInterrupt):
            host.start()
    assert ReceiverHost.getActive() is host
    (stop,) = at_exit
    stop()
    assert at_exit == []
    assert ReceiverHost.getActive() is None


def test_a_host_that_is_stopped_while_it_starts_or_before_does_not_run(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = ReceiverHost(spark)
    host.stream("numbers", numbers(10))
    # As the handler of a signal does, in the thread that it breaks into.
    monkeypatch.setattr("penstock.sql.host.register", lambda *_: host.stop())
    with pytest.raises(IllegalStateError, match="stopped while it started"):
        host.start()
    assert HostedReceivers.running_in(spark.sparkContext) == 0
    assert ReceiverHost.getActive() is None
    another = ReceiverHost(spark)
    another.stream("numbers", numbers(10))
    another.stop()
    with pytest.raises(IllegalStateError, match="not again after it was stopped"):
        another.start()


@pytest.mark.parametrize("name", ["", "a,b", " a", "a\n", 1])
def test_a_name_by_which_no_query_could_have_the_stream_is_refused(
    spark: SparkSession, name: Any
) -> None:
    with pytest.raises((ValueError, TypeError), match="a stream's name is printable text"):
        ReceiverHost(spark).stream(name, numbers(10))


@pytest.mark.long
def test_a_query_that_starts_adds_nothing_to_what_all_queries_share(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Queries that start together would break the map of it.
    with hosting(spark, numbers(1)):
        state: Any = spark._jsparkSession.sessionState()  # type: ignore[attr-defined]
        registered = state.dataSourceManager().lookupDataSource("penstock")
        environment = registered.dataSourceCls().envVars()
        before = set(environment)
        query = to_parquet(load(spark), tmp_path)
        query.processAllAvailable()
        query.stop()
    assert set(environment) == before
    assert environment["SPARK_LOCAL_DIRS"]
    assert "SPARK_LOCAL_DIRS" not in spark.sparkContext.environment


@pytest.mark.long
def test_receivers_of_a_streaming_context_hold_cores_too(spark: SparkSession) -> None:
    def with_three_receivers() -> StreamingContext:
        made = StreamingContext(spark.sparkContext, 1)
        for _ in range(3):
            made.receiverStream(numbers(10)).foreachRDD(lambda rdd: None)
        return made

    ssc = with_three_receivers()
    with hosting(spark, numbers(10)), pytest.raises(NotEnoughCoresError, match="has 4 receiver"):
        ssc.start()
    ssc.stop(stopSparkContext=False)
    ssc = with_three_receivers()
    ssc.start()
    try:
        with (
            pytest.raises(NotEnoughCoresError, match="has 4 receiver"),
            hosting(spark, numbers(10)),
        ):
            pass
    finally:
        ssc.stop(stopSparkContext=False)


@pytest.mark.long
def test_batches_and_queries_run_side_by_side_each_with_its_receivers(
    spark: SparkSession, tmp_path: Path
) -> None:
    counts: list[int] = []

    def count_other(rdd: Any) -> None:
        counts.append(spark.read.format("penstock").option("stream", "numbers").load().count())

    with (
        run_on(spark.sparkContext) as run,
        hosting(spark, numbers(COUNT, block_s=0.01), tmp_path / "host") as host,
    ):
        run.process(numbers(COUNT, block_s=0.01))
        run.streams[0].foreachRDD(count_other)
        query = to_parquet(load(spark), tmp_path)
        run.start()
        run.await_processed(COUNT)
        await_records(host, "numbers", COUNT)
        # What ends with the one has no hold on the other.
        run.stop()
        query.processAllAvailable()
        query.stop()
        assert spark.read.format("penstock").option("stream", "numbers").load().count() == COUNT
    assert sorted(run.processed) == written(spark, tmp_path) == list(range(COUNT))
    assert counts == sorted(counts)


def test_one_host_is_active_and_takes_no_stream_when_it_runs(spark: SparkSession) -> None:
    with hosting(spark, numbers(10)) as host:
        assert ReceiverHost.getActive() is host
        other = ReceiverHost(spark)
        other.stream("more", numbers(10))
        with pytest.raises(IllegalStateError, match="another ReceiverHost"):
            other.start()
        with pytest.raises(IllegalStateError, match="too late"):
            host.stream("more", numbers(10))
    # What was refused had not begun.
    with other:
        other.start()
        assert ReceiverHost.getActive() is other
    assert ReceiverHost.getActive() is None


# -- retention -----------------------------------------------------------------------------------


@pytest.mark.long
def test_a_queue_lets_go_what_all_queries_have_passed(spark: SparkSession, tmp_path: Path) -> None:
    with hosting(spark, numbers(COUNT, block_s=0.01), tmp_path / "host", retention=0) as host:
        await_records(host, "numbers", COUNT)
        assert host.streams()["numbers"].first == 0
        query = to_parquet(load(spark, maxRecordsPerTrigger=500), tmp_path)
        query.processAllAvailable()
        last = last_offset(query)
        # The last batch is committed with the next one.
        held = last["block"]
        await_release(host)
        query.stop()
        found = host.streams()["numbers"]
        assert 0 < found.first < held
        (consumer,) = found.consumers
        assert consumer.place == found.first
    assert written(spark, tmp_path) == list(range(COUNT))


@pytest.mark.long
def test_a_queue_keeps_what_a_query_comes_back_to_whose_progress_is_logged_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"

    def rows_of_a_run() -> int:
        writer = load(spark, maxRecordsPerTrigger=500).writeStream.format("noop")
        writer = writer.option("asyncProgressTrackingEnabled", True)
        writer = writer.option("asyncProgressTrackingCheckpointIntervalMs", 3_600_000)
        query = started(writer.option("checkpointLocation", str(checkpoint)))
        query.processAllAvailable()
        query.stop()
        return sum(found["numInputRows"] for found in query.recentProgress)

    with hosting(spark, numbers(COUNT, block_s=0.01), retention=0) as host:
        await_records(host, "numbers", COUNT)
        assert rows_of_a_run() == COUNT
        assert host._hosted is not None
        host._hosted.tracker.release_places()
        # The first batch is all that Spark has logged.
        (offsets,) = (checkpoint / "offsets").glob("[0-9]*")
        logged = json.loads(offsets.read_text().splitlines()[-1])["records"]
        assert rows_of_a_run() == COUNT - logged > 0


@pytest.mark.exhaustive
def test_what_two_queries_have_passed_of_a_queue_takes_no_room(
    spark: SparkSession, sc: Any, tmp_path: Path
) -> None:
    # 100 MB pass, 10 a second, in segments of 4.
    small = {**SMALL, "spark.penstock.wal.segmentSize": "4m", "spark.penstock.block.maxSize": "1m"}
    small["spark.streaming.receiver.maxRate"] = "10000"
    queue = {"retention": 0, "maxBacklog": 8 << 20}
    sizes = []
    with settings(sc, small), hosting(spark, flood, tmp_path / "host", **queue) as host:
        queries = [
            load(spark, maxBytesPerTrigger="8m")
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / name))
            .start()
            for name in ("a", "b")
        ]
        for records in range(20_000, 100_001, 20_000):
            await_records(host, "numbers", records)
            files = (tmp_path / "host").rglob("*")
            sizes.append(sum(on_disk(path) for path in files))
        for query in queries:
            query.stop()
            assert not query.exception()
        assert host.streams()["numbers"].first > 0
    assert max(sizes) < 64 << 20, sizes


def on_disk(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


# -- secrets -------------------------------------------------------------------------------------


def event_log(spark: SparkSession, folder: Path) -> contextlib.ExitStack:
    """Begin a log of Spark's events, from which its page is made, too; closing it writes all."""
    context = spark.sparkContext._jsc.sc()  # type: ignore[attr-defined]
    java: Any = spark.sparkContext._jvm
    conf = context.conf().clone().set("spark.eventLog.compress", "false")
    conf.set("spark.eventLog.rolling.enabled", "false")
    listener = java.org.apache.spark.scheduler.EventLoggingListener(
        context.applicationId(),
        java.scala.Option.apply(None),
        java.java.net.URI(folder.as_uri()),
        conf,
        context.hadoopConfiguration(),
    )
    listener.start()
    context.addSparkListener(listener)
    end = contextlib.ExitStack()
    end.callback(listener.stop)
    end.callback(context.removeSparkListener, listener)
    end.callback(context.listenerBus().waitUntilEmpty)
    return end


@pytest.mark.long
def test_no_secret_is_shown_or_written_and_a_share_file_is_its_owners(
    spark: SparkSession, tmp_path: Path, caplog: Any
) -> None:
    share = tmp_path / "share"
    events = event_log(spark, tmp_path)
    with events, hosting(spark, numbers(100), tmp_path / "host", share=share) as host:
        query = to_parquet(load(spark), tmp_path)
        await_records(host, "numbers", 100)
        query.processAllAvailable()
        assert host._hosted is not None
        secret = host._hosted.tracker.block_access.link.secret
        forms = [secret, secret.hex().encode(), base64.b64encode(secret)]
        shown = [caplog.text.encode(), json.dumps(query.lastProgress, default=str).encode()]
        shown.append(load(spark)._jdf.queryExecution().toString().encode())
        shown.append(query._jsq.explainInternal(True).encode())
        query.stop()
        events.close()
        (events_file,) = tmp_path.glob("local-*")
        told = events_file.read_bytes()
        assert b"StreamingQueryListener$QueryProgressEvent" in told
        assert b"SparkListenerSQLExecutionStart" in told
        shown += [
            path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != share
        ]
        assert not [data for data in shown for form in forms if form in data]
        assert share.stat().st_mode & 0o777 == 0o600
        # Another application of the same user reads by it.
        connect(spark, str(share))
        finished(to_parquet(load(spark), tmp_path / "shared", availableNow=True))
        assert written(spark, tmp_path / "shared") == list(range(100))
        os.chmod(share, 0o644)
        with pytest.raises(SourceError, match="can be read by others"):
            connect(spark, str(share))
    assert not share.exists()


def test_a_session_with_the_secret_of_an_earlier_start_is_told_how_to_get_the_present_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    share, earlier = tmp_path / "share", tmp_path / "earlier"
    with hosting(spark, numbers(10), share=share):
        found = json.loads(share.read_text())
        found["secret"] = base64.b64encode(os.urandom(32)).decode()
        earlier.write_text(json.dumps(found))
        earlier.chmod(0o600)
        connect(spark, str(earlier))
        with pytest.raises(PySparkException, match=r"not the receiver host that .* knows") as told:
            load(spark)
        assert "connect(spark, share)" in str(told.value)
        assert "does not answer" not in str(told.value)


# -- what Spark does with it -----------------------------------------------------------------------


EVENTS = 2000

ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture
def rocks_db(spark: SparkSession) -> Iterator[None]:
    """Have what `transformWithStateInPandas` needs of Spark's stores of states."""
    key = "spark.sql.streaming.stateStore.providerClass"
    spark.conf.set(key, ROCKS_DB)
    yield
    spark.conf.unset(key)


class Collecting(StatefulProcessor):
    """Keeps the ids of each user, and gives them when all are there."""

    def init(self, handle: Any) -> None:
        self.ids = handle.getListState("ids", "id bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        import pandas

        for frame in rows:
            self.ids.appendList([(int(number),) for number in frame["id"]])
        found = sorted(row[0] for row in self.ids.get())
        if len(found) == len(range(int(key[0][1:]), EVENTS, 7)):
            yield pandas.DataFrame({"user": [key[0]], "ids": [found]})

    def close(self) -> None:
        """There is nothing to close."""


@pytest.mark.long
@pytest.mark.parametrize(
    "names",
    [
        "windows",
        pytest.param("by_state", marks=pytest.mark.exhaustive),
        pytest.param("unique joined by_python", marks=pytest.mark.exhaustive),
    ],
)
def test_windows_joins_states_and_functions_are_as_over_files(
    spark: SparkSession, tmp_path: Path, rocks_db: None, names: str
) -> None:
    @receiver(positions=True, schema="id long, at timestamp, user string")
    def events(context: Any) -> Iterator[Any]:
        first = context.last_position or 0
        for n in range(first, EVENTS):
            at = datetime.fromtimestamp(1_700_000_000 + n // 2, timezone.utc)
            yield {"id": n // 2, "at": at, "user": f"u{n % 7}"}, n + 1
            if n % 500 == 499:
                context.stopped.wait(0.3)  # In a block of their own.
        context.stopped.wait()

    def windows(frame: Any) -> Any:
        return (
            frame.withWatermark("at", "10 seconds")
            .groupBy(functions.window("at", "1 minute"), "user")
            .agg(functions.count("*").alias("n"))
            .select(functions.col("window.start").alias("start"), "user", "n")
        )

    def unique(frame: Any) -> Any:
        kept = frame.withWatermark("at", "10 seconds").dropDuplicatesWithinWatermark(["id"])
        return kept.select("id")

    def joined(frame: Any) -> Any:
        left = frame.withWatermark("at", "10 seconds").alias("l")
        right = frame.withWatermark("at", "10 seconds").alias("r")
        same = (functions.col("l.id") == functions.col("r.id")) & (
            functions.col("l.at") == functions.col("r.at")
        )
        return left.join(right, same).select(functions.col("l.id").alias("id"))

    def by_python(frame: Any) -> Any:
        later = functions.udf(lambda number: number + 1, "long")
        same = frame.mapInArrow(lambda batches: batches, frame.schema)
        return same.select(later("id").alias("id"), "user")

    def by_state(frame: Any) -> Any:
        return frame.groupBy("user").transformWithStateInPandas(
            Collecting(), "user string, ids array<bigint>", "append", "None"
        )

    programs = {
        "by_state": by_state,
        "windows": windows,
        "unique": unique,
        "joined": joined,
        "by_python": by_python,
    }
    with hosting(spark, events) as host:
        await_records(host, "numbers", EVENTS)
        writer = load(spark).writeStream.trigger(availableNow=True).format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "cp"))
        finished(started(writer, tmp_path / "files"))
        files = spark.readStream.schema(load(spark).schema).parquet(str(tmp_path / "files"))
        for name in names.split():
            make = programs[name]
            found = []
            # A state that goes from batch to batch.
            limit = {"maxRecordsPerTrigger": 500} if make is by_state and HAS_LIMITS else {}
            for source, frame in (("penstock", load(spark, **limit)), ("files", files)):
                table = f"{name}_{source}"
                writer = make(frame).writeStream.format("memory").queryName(table)
                if HAS_LIMITS:
                    query = finished(started(writer.trigger(availableNow=True)))
                else:  # Spark runs one batch then, and nothing that its watermark lets go.
                    query = started(writer)
                    query.processAllAvailable()
                    query.stop()
                batches = [run for run in query.recentProgress if run["numInputRows"]]
                assert len(batches) > 1 or not limit or source == "files"
                found.append(sorted(map(tuple, spark.table(table).collect())))
            assert found[0] == found[1], name
            assert found[0], name


@pytest.mark.long
def test_encrypted_blocks_are_read(spark: SparkSession, sc: Any, tmp_path: Path) -> None:
    encrypted = settings(sc, {"spark.io.encryption.enabled": "true"})
    with encrypted, hosting(spark, numbers(100)) as host:
        await_records(host, "numbers", 100)
        finished(to_parquet(load(spark), tmp_path, availableNow=True))
        assert host._hosted is not None
        with pytest.raises(SourceError, match="encrypted"):
            write_share_file(str(tmp_path / "share"), host._hosted.tracker.block_access)
    assert written(spark, tmp_path) == list(range(100))
