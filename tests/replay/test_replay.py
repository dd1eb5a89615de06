"""What receivers stored is read again: as a DataFrame, as an RDD, and by the command."""

from __future__ import annotations

import base64
import io
import json
import resource
import shutil
import signal
import subprocess
import sys
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
from penstock.replay import cli
from penstock.replay._history import History, Window, as_time_ms, blocks_of
from penstock.wal import segment_path
from tests.bounds import HANG_S
from tests.replay.history import COUNT, STREAMS, make_history, number, numbers

WAIT_S = HANG_S


@pytest.fixture(scope="module")
def folder(sc: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_history(sc, tmp_path_factory.mktemp("program") / "checkpoint")


@pytest.fixture(scope="module")
def stream(folder: Path) -> dict[str, int]:
    return numbers(folder)


@pytest.mark.long
@pytest.mark.slow
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
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    away = folder.rename(folder.with_name("away"))
    try:
        found = replay.read(SparkSession(sc), copy, stream["rows"])
        assert found.count() == COUNT
    finally:
        away.rename(folder)


def sealed_ms(folder: Path, stream: int) -> list[int]:
    return [
        block.sealed_ms
        for segment in History(str(folder)).segments(stream)
        for _, block in blocks_of(segment, Window(), None)
    ]


def test_a_window_takes_the_blocks_of_its_time(
    sc: Any, folder: Path, stream: dict[str, int]
) -> None:
    spark = SparkSession(sc)
    now = datetime.now(timezone.utc)
    hour = timedelta(hours=1)

    def count(**window: Any) -> int:
        return replay.read_rdd(spark, folder, stream["rows"], **window).count()

    assert count(start=now - hour, end=now + hour) == COUNT
    assert count(end=now - hour) == 0
    assert count(start=(now + hour).isoformat()) == 0
    # Each block is on one side of a time, also where several are in one segment.
    times = sealed_ms(folder, stream["rows"])
    assert len(times) > len(History(str(folder)).segments(stream["rows"]))
    assert times == sorted(times)
    middle = datetime.fromtimestamp(times[len(times) // 2] / 1000, timezone.utc)
    before, behind = count(end=middle), count(start=middle)
    assert before
    assert behind
    assert before + behind == COUNT
    assert replay.read(spark, folder, stream["rows"], end=now - hour).count() == 0
    with pytest.raises(ValueError, match="empty: it ends before it begins"):
        count(start=now, end=now - hour)
    with pytest.raises(ValueError, match=r"start='yesterday' is not accepted"):
        count(start="yesterday")


def test_a_damaged_segment_takes_nothing_from_the_one_before_it(
    folder: Path, stream: dict[str, int], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    window = Window(end_ms=1 << 60)
    first, second, *_ = History(str(copy)).segments(stream["rows"])
    assert first.folder == second.folder
    there = [block.num_records for _, block in blocks_of(first, window, None)]
    with open(segment_path(second.folder, second.number), "r+b") as file:
        file.write(b"\0" * 64)
    assert [block.num_records for _, block in blocks_of(first, window, None)] == there
    with pytest.raises(replay.HistoryError, match=f"segment {second.number}, .* cannot be read"):
        list(blocks_of(second, window, None))


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
    assert f"nothing is overwritten: {output}\n" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [output.name]


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
    code, text = told("--stream", str(stream["pickles"]), "--format", "arrow")
    assert (code, "pickled objects" in text, "--format json writes" in text) == (2, True, True)
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
    code, text = told("--stream", rows, "--format", "raw")
    assert (code, "have the columns n, data: --format raw is for" in text) == (2, True)
    assert not output.exists()


def test_the_command_writes_records_as_they_were(
    folder: Path, stream: dict[str, int], capsysbinary: Any
) -> None:
    texts = ["replay", str(folder), "--stream", str(stream["texts"]), "--format", "raw"]
    assert main(texts) == 0
    found = capsysbinary.readouterr().out
    assert found == b"".join(f"é{n}\n".encode() for n in range(COUNT))


def spawn(folder: Path, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock", "replay", str(folder), *arguments]
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE, **more)


@pytest.mark.long
@pytest.mark.slow
def test_what_is_interrupted_or_has_no_room_leaves_no_file(
    folder: Path, stream: dict[str, int], tmp_path: Path
) -> None:
    rows = str(stream["rows"])

    def a_little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, 256 << 10))

    for form in ("json", "arrow"):
        output = tmp_path / f"full.{form}"
        arguments = ("--stream", rows, "--format", form, "--output", str(output))
        with spawn(folder, *arguments, preexec_fn=a_little_room) as full:
            error = full.communicate(timeout=WAIT_S)[1]
        assert (full.returncode, error.count("\n")) == (2, 1), error
        assert f"File too large: {output}\n" in error
    assert list(tmp_path.iterdir()) == []
    # It waits for who reads what it prints.
    with spawn(folder, "--stream", rows, stdout=subprocess.PIPE) as stuck:
        assert stuck.stdout is not None
        stuck.stdout.read(1)
        stuck.send_signal(signal.SIGINT)
        error = stuck.communicate(timeout=WAIT_S)[1]
    assert (stuck.returncode, error) == (130, "penstock replay: interrupted\n")


def test_who_has_seen_enough_ends_it_without_a_word(folder: Path, stream: dict[str, int]) -> None:
    with spawn(folder, "--stream", str(stream["rows"]), stdout=subprocess.PIPE) as shown:
        assert shown.stdout is not None
        assert json.loads(shown.stdout.readline())["n"] == 0
        shown.stdout.close()
        assert shown.stderr is not None
        assert shown.stderr.read() == ""
        assert shown.wait(WAIT_S) == 0


@pytest.mark.parametrize(
    ("text", "is_time"),
    [
        ("2026-11-22T03:00:00Z", True),
        ("2026-11-22", True),
        ("2026-11-22T03:00:00+05:30", True),
        ("Z", False),
        ("", False),
        ("2026-13-01", False),
    ],
)
def test_times_are_read_or_named(text: str, is_time: bool) -> None:
    if is_time:
        found = as_time_ms(text, "start")
        assert found is not None
        assert datetime.fromtimestamp(found / 1000, timezone.utc).isoformat()[:8] == "2026-11-"
        return
    with pytest.raises(ValueError, match=r"start='.*' is not accepted: a datetime, or text"):
        as_time_ms(text, "start")


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_the_command_calls_a_time_that_is_none_by_its_option(
    option: str, tmp_path: Path, capsys: Any
) -> None:
    assert main(["replay", str(tmp_path), "--stream", "0", option, "yesterday"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"penstock replay: {option}='yesterday' is not accepted: a datetime, or")


def test_what_a_format_cannot_have_is_told(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = pa.RecordBatch.from_pylist([{"n": {}}], schema=pa.schema([("n", pa.struct([]))]))
    monkeypatch.setattr(cli, "find", lambda *_: (Window(), [None]))
    monkeypatch.setattr(cli, "first_schema", lambda *_: batch.schema)
    monkeypatch.setattr(cli, "tables", lambda *_: iter([batch]))
    output = tmp_path / "out"
    written = ["--format", "parquet", "--output", str(output)]
    assert main(["replay", str(tmp_path), "--stream", "0", *written]) == 2
    assert "penstock replay: Cannot write struct type" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_json_has_not_are_told_as_text() -> None:
    inf = float("inf")
    rows = [{"n": float("nan"), "nested": {"list": [inf, -inf, 1.5]}, "at": datetime(2026, 1, 2)}]
    file = io.BytesIO()
    assert cli._write_json(iter([(rows[0], True)]), file) == 1
    # Without those that Python reads alone.
    found = json.loads(file.getvalue(), parse_constant=pytest.fail)
    nested = {"list": ["Infinity", "-Infinity", 1.5]}
    assert found == {"n": "NaN", "nested": nested, "at": "2026-01-02T00:00:00"}


def test_small_blocks_make_large_parts_of_a_parquet_file(
    folder: Path, stream: dict[str, int], tmp_path: Path
) -> None:
    output = tmp_path / "texts"
    command = ["replay", str(folder), "--stream", str(stream["texts"]), "--format", "parquet"]
    assert main([*command, "--output", str(output)]) == 0
    assert pq.ParquetFile(output).num_row_groups == 1
    assert len(sealed_ms(folder, stream["texts"])) > 1
