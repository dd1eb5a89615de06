"""What receivers stored is read again: as a DataFrame, as an RDD, and by the command."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock import replay
from penstock.__main__ import main
from penstock.receiver import receiver
from penstock.tracker import ReceivedBlockTracker
from tests.system.running import run_on

COUNT = 3000
STREAMS = ("rows", "texts", "pickles")


@receiver(schema=pa.schema([("n", pa.int64()), ("data", pa.binary())]))
def rows(ctx: Any) -> Iterator[dict[str, Any]]:
    for n in range(COUNT):
        yield {"n": n, "data": b"\xff" * 700}
    ctx.stopped.wait()


@receiver
def texts(ctx: Any) -> Iterator[str]:
    for n in range(COUNT):
        yield f"é{n}"
    ctx.stopped.wait()


@receiver
def pickles(ctx: Any) -> Iterator[Any]:
    for n in range(COUNT):
        yield (n, "pair")
    ctx.stopped.wait()


def number(record: Any) -> int:
    found = record["n"] if isinstance(record, dict) else record[0]
    return int(record[1:]) if isinstance(record, str) else int(found)


@pytest.fixture(scope="module")
def folder(sc: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint directory of a program that has cleaned up its batches and ended."""
    folder = tmp_path_factory.mktemp("program") / "checkpoint"
    settings = {
        "spark.penstock.wal.retention": "1h",
        "spark.penstock.wal.segmentSize": "1m",
        "spark.penstock.block.maxSize": "256k",
        "spark.penstock.receiver.rate": "2000/second",
    }
    with run_on(sc, settings, checkpoint=str(folder)) as run:
        for function in (rows, texts, pickles):
            run.process(function, number)
        run.start()
        run.await_processed(len(STREAMS) * COUNT)
        end_s = time.monotonic() + 60
        while not retained(folder):
            assert time.monotonic() < end_s
            time.sleep(0.2)
        run.stop()
    return folder


def retained(folder: Path) -> int:
    ledger = ReceivedBlockTracker.read(str(folder / "receivedBlockMetadata"))
    return ledger.statistics().segments_retained


def numbers(folder: Path) -> dict[str, int]:
    ledger = ReceivedBlockTracker.read(str(folder / "receivedBlockMetadata"))
    return dict(zip(STREAMS, sorted(ledger.stream_numbers().values()), strict=True))


@pytest.fixture(scope="module")
def stream(folder: Path) -> dict[str, int]:
    return numbers(folder)


def test_a_history_is_a_dataframe_with_the_columns_that_were_stored(
    sc: Any, folder: Path, stream: dict[str, int]
) -> None:
    spark = SparkSession(sc)
    found = replay.read(spark, folder, stream["rows"])
    assert found.columns == ["n", "data"]
    assert found.rdd.getNumPartitions() > 1
    assert [row.n for row in found.select("n").collect()] == list(range(COUNT))
    assert [row.value for row in replay.read(spark, folder, stream["texts"]).collect()] == [
        f"é{n}" for n in range(COUNT)
    ]


def test_records_of_every_kind_are_an_rdd(sc: Any, folder: Path, stream: dict[str, int]) -> None:
    spark = SparkSession(sc)
    for name in STREAMS:
        found = replay.read_rdd(spark, folder, stream[name])
        assert found.map(number).collect() == list(range(COUNT))
    with pytest.raises(replay.HistoryError, match=r"pickled objects.*read_rdd"):
        replay.read(spark, folder, stream["pickles"])


def test_a_copy_of_the_folder_is_read_where_it_lies(
    sc: Any, folder: Path, stream: dict[str, int], tmp_path: Path
) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    away = folder.rename(folder.with_name("away"))
    try:
        found = replay.read(SparkSession(sc), copy, stream["rows"])
        assert found.count() == COUNT
    finally:
        away.rename(folder)


def test_a_window_takes_the_segments_of_its_time(
    sc: Any, folder: Path, stream: dict[str, int]
) -> None:
    spark = SparkSession(sc)
    now = datetime.now(timezone.utc)
    hour = timedelta(hours=1)

    def count(**window: Any) -> int:
        return replay.read_rdd(spark, folder, stream["rows"], **window).count()

    assert count(start=now - hour, end=now + hour) == COUNT
    assert count(end=now - hour) == 0
    # Of the last segment nobody knows when it ended.
    assert 0 < count(start=(now + hour).isoformat()) < COUNT
    assert replay.read(spark, folder, stream["rows"], end=now - hour).count() == 0
    with pytest.raises(ValueError, match="empty: it ends before it begins"):
        count(start=now, end=now - hour)
    with pytest.raises(ValueError, match=r"start='yesterday' is not accepted"):
        count(start="yesterday")


def test_what_is_not_there_is_named(
    sc: Any, folder: Path, stream: dict[str, int], tmp_path: Path
) -> None:
    spark = SparkSession(sc)
    with pytest.raises(replay.HistoryError, match="there is no ledger receivedBlockMetadata in it"):
        replay.read(spark, tmp_path, 0)
    with pytest.raises(replay.HistoryError, match="no stream 'clicks'; it has these: "):
        replay.read(spark, folder, "clicks")
    found = replay.read(spark, folder, stream["rows"])
    lost = sorted(folder.glob(f"receivedData/{stream['rows']}-*/segment-*.log"))[1]
    away = lost.rename(lost.with_suffix(".away"))
    try:
        with pytest.raises(PySparkException, match="cannot be read here: no segment at"):
            found.count()
    finally:
        away.rename(lost)


@pytest.mark.parametrize("form", ["json", "parquet", "arrow"])
def test_the_command_writes_a_file(
    folder: Path, stream: dict[str, int], form: str, tmp_path: Path, capsys: Any
) -> None:
    output = tmp_path / f"rows.{form}"
    command = ["replay", str(folder), "--stream", str(stream["rows"]), "--format", form]
    command += ["--output", str(output)]
    assert main(command) == 0
    assert f"{COUNT} records written to {output}" in capsys.readouterr().err
    assert output.stat().st_mode & 0o777 == 0o600
    if form == "json":
        lines = [json.loads(line) for line in output.read_text().splitlines()]
        assert base64.b64decode(lines[0]["data"]["base64"]) == b"\xff" * 700
        found = [line["n"] for line in lines]
    elif form == "parquet":
        found = pq.read_table(output)["n"].to_pylist()
    else:
        with pa.ipc.open_stream(output) as table:
            found = table.read_all()["n"].to_pylist()
    assert found == list(range(COUNT))
    assert main(command) == 2
    assert "File exists" in capsys.readouterr().err


def test_the_command_says_what_is_wrong_and_leaves_no_file(
    folder: Path, stream: dict[str, int], tmp_path: Path, capsys: Any
) -> None:
    output = tmp_path / "out"
    program = ["replay", str(folder), "--output", str(output)]

    def told(*arguments: str) -> tuple[int, str]:
        return main([*program, *arguments]), capsys.readouterr().err

    rows = str(stream["rows"])
    assert told("--stream", rows, "--to", "2000-01-01T00:00:00") == (
        1,
        f"penstock replay: no record of stream {rows} is there\n",
    )
    assert told("--stream", rows, "--from", "soon")[0] == 2
    code, text = told("--stream", str(stream["pickles"]))
    assert (code, "pickled objects" in text) == (2, True)
    assert told("--stream", "clicks")[0] == 2
    lost = sorted(folder.glob(f"receivedData/{rows}-*/segment-*.log"))[1]
    away = lost.rename(lost.with_suffix(".away"))
    try:
        code, text = told("--stream", rows)
        assert (code, "cannot be read here" in text) == (2, True)
    finally:
        away.rename(lost)
    assert not output.exists()
    assert main(["replay", str(tmp_path), "--stream", "0"]) == 2
    assert main(["replay", str(folder), "--stream", "0", "--format", "arrow"]) == 2
    assert "needs --output" in capsys.readouterr().err
    assert main(["replay", str(folder), "--stream", str(stream["texts"])]) == 0
    assert '{"value": "é0"}' in capsys.readouterr().out
