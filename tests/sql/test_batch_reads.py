"""`spark.read` over received records, on a real Spark."""

from __future__ import annotations

import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions

from penstock.receiver import Receiver
from penstock.sql import ReceiverHost, connect
from penstock.sql.source._options import METADATA_COLUMNS
from tests.sql.sources import await_records, hosting, numbers, started
from tests.system.spoiling import spoil

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COUNT = 1000


@pytest.fixture
def spark(sc: Any) -> SparkSession:
    session = SparkSession(sc)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


def load(spark: SparkSession, **options: Any) -> Any:
    return spark.read.format("penstock").option("stream", "numbers").options(**options).load()


def values(frame: Any) -> list[int]:
    return sorted(int(row[0]) for row in frame.select("value").collect())


@pytest.mark.long
def test_a_batch_reads_what_is_there_between_places_and_times(
    spark: SparkSession, tmp_path: Path
) -> None:
    share = tmp_path / "share"
    with hosting(spark, numbers(COUNT, block_s=0.1), share=share) as host:
        await_records(host, "numbers", COUNT)
        frame = load(spark, metadataColumns="true", minPartitions=3)
        assert frame.columns == ["value", *METADATA_COLUMNS]
        assert frame.rdd.getNumPartitions() == 3
        assert values(frame) == list(range(COUNT))
        found = host.streams()["numbers"]
        by_place = {
            row["_place"]: row
            for row in frame.groupBy("_place")
            .agg(
                functions.count("*").alias("n"),
                functions.first("_received_at").cast("double").alias("at"),
                functions.max(functions.col("_position").cast("int")).alias("position"),
            )
            .collect()
        }
        assert sorted(by_place) == list(range(found.next))
        assert max(row["position"] for row in by_place.values()) == COUNT
        middle = found.next // 2
        before = sum(row["n"] for place, row in by_place.items() if place < middle)
        assert values(load(spark, endingOffsets=middle)) == list(range(before))
        assert values(load(spark, startingOffsets=middle)) == list(range(before, COUNT))
        at = datetime.fromtimestamp(by_place[middle]["at"], timezone.utc).isoformat()
        assert values(load(spark, startingTimestamp=at)) == list(range(before, COUNT))
        assert values(load(spark, endingTimestamp=at)) == list(range(before))
        assert load(spark, startingOffsets=found.next).count() == 0
        assert host.streams()["numbers"].consumers == ()
        # And so it does in another application of the same user.
        connect(spark, str(share))
        assert values(load(spark)) == list(range(COUNT))


@pytest.mark.long
def test_a_watermark_that_was_stated_with_a_position_is_a_column(spark: SparkSession) -> None:
    class Stating(Receiver):
        def onStart(self) -> None:
            first = self.lastPosition["n"] if self.lastPosition else 0
            for number in range(first, 4):
                position = {"n": number + 1}
                if number % 2:
                    position["watermark"] = 1_700_000_000_000 + number
                # Many records are stored when this returns, in a block of their own.
                self.store([str(number)] * 3, position)

        def onStop(self) -> None:
            pass

    with hosting(spark, Stating()) as host:
        await_records(host, "numbers", 12)
        frame = load(spark, metadataColumns="_watermark")
        assert frame.columns == ["value", "_watermark"]
        found = frame.select("value", functions.unix_millis("_watermark")).distinct().collect()
    assert sorted(map(tuple, found)) == [
        ("0", None),
        ("1", 1_700_000_000_001),
        ("2", None),
        ("3", 1_700_000_000_003),
    ]


@pytest.mark.long
@pytest.mark.skipif(
    pyspark.__version__.startswith("4.0."), reason="PySpark 4.0 plans a DataFrame for each action"
)
def test_a_loaded_frame_stays_the_same_and_another_one_has_what_came(
    spark: SparkSession, tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    with hosting(spark, numbers(COUNT, go_on=str(go_on))) as host:
        await_records(host, "numbers", 1)
        frame = load(spark)
        first = frame.count()
        go_on.touch()
        await_records(host, "numbers", COUNT)
        assert 0 < first == frame.count() < load(spark).count() == COUNT


@pytest.mark.long
def test_what_was_released_fails_a_batch_read_unless_that_is_wanted(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hosting(spark, numbers(COUNT, block_s=0.05), retention=0, retentionSize=0) as host:
        await_records(host, "numbers", COUNT)
        assert load(spark, startingOffsets=0).count() == COUNT
        released = pass_half(host)
        with pytest.raises(PySparkException, match="the batch read needs the places 0 to"):
            load(spark, startingOffsets=0).count()
        assert values(load(spark, startingOffsets=0, failOnDataLoss=False)) == list(
            range(released, COUNT)
        )
        assert values(load(spark)) == list(range(released, COUNT))


def pass_half(host: ReceiverHost) -> int:
    """Let a consumer pass half of the places; return how many records are released."""
    assert host._hosted is not None
    tracker = host._hosted.tracker
    middle = host.streams()["numbers"].next // 2
    tracker.ledger.places.commit(0, "someone", middle)
    tracker.release_places()
    assert host.streams()["numbers"].first == middle
    return tracker.ledger.places.records_before(0, middle)


@pytest.mark.parametrize("fails", [True, False])
def test_a_lost_block_fails_a_batch_read_unless_that_is_wanted(
    spark: SparkSession, fails: bool
) -> None:
    with hosting(spark, numbers(COUNT, block_s=0.05)) as host:
        await_records(host, "numbers", COUNT)
        assert host._hosted is not None
        tracker = host._hosted.tracker
        _, (lost, *_), _ = tracker.ledger.places.between(0, 1, 2)
        spoil(lost)
        frame = load(spark, failOnDataLoss=fails)
        if fails:
            with pytest.raises(PySparkException, match="place 1 of stream 'numbers' is lost"):
                frame.count()
            return
        assert frame.count() == COUNT - lost.num_records
        assert tracker.skipped_blocks == 1


@pytest.mark.long
def test_what_a_batch_read_cannot_do_is_an_error(spark: SparkSession) -> None:
    with hosting(spark, numbers(10)) as host:
        await_records(host, "numbers", 10)
        with pytest.raises(PySparkException, match="there is no stream 'orders'"):
            spark.read.format("penstock").option("stream", "orders").load()
        with pytest.raises(PySparkException, match=r"it is for spark\.readStream"):
            load(spark, maxRecordsPerTrigger=5).count()
        with pytest.raises(PySparkException, match="place 100 of stream 'numbers' is not there"):
            load(spark, endingOffsets=100).count()
    with pytest.raises(PySparkException, match=r"the receiver host at .* does not answer"):
        load(spark)


@pytest.mark.exhaustive  # `test_ended_host` opens such folders.
def test_the_directory_of_a_host_that_has_ended_is_read_also_as_a_copy(
    spark: SparkSession, tmp_path: Path
) -> None:
    connect(spark)
    directory = tmp_path / "host"
    for count in (COUNT // 2, COUNT):
        with hosting(spark, numbers(count, block_s=0.02), directory) as host:
            await_records(host, "numbers", count)
            middle = host.streams()["numbers"].next // 2
            before = host._hosted.tracker.ledger.places.records_before(0, middle)  # type: ignore[union-attr]
    connect(spark)
    assert values(load(spark, path=directory)) == list(range(COUNT))
    shutil.copytree(directory, tmp_path / "copy")
    shutil.rmtree(directory)
    copy = str(tmp_path / "copy")
    frame = spark.read.format("penstock").option("stream", "numbers").load(copy)
    assert values(frame) == list(range(COUNT))
    some = load(spark, path=copy, startingOffsets=middle, metadataColumns="_place,_position")
    assert values(some) == list(range(before, COUNT))
    assert some.agg(functions.max(functions.col("_position").cast("int"))).first()[0] == COUNT
    with pytest.raises(PySparkException, match=f"{directory} cannot be read"):
        load(spark, path=directory)
    with pytest.raises(PySparkException, match="no ReceiverHost was started"):
        load(spark)
    query = spark.readStream.format("penstock").option("stream", "numbers").load(copy)
    with pytest.raises(PySparkException, match=r"'path' .* for spark"):
        started(query.writeStream.format("noop")).processAllAvailable()
    # A block that is not there any more.
    for segment in sorted(Path(copy).glob("receivedData/*/segment-*.log"))[:1]:
        segment.unlink()
    with pytest.raises(PySparkException, match="of stream 'numbers' is lost"):
        load(spark, path=copy).count()
    assert 0 < load(spark, path=copy, failOnDataLoss=False).count() < COUNT
