"""Sinks: what is prepared is not seen, and what is committed again changes nothing."""

from __future__ import annotations

import datetime
import decimal
import errno
import json
import math
import os
import pickle
import re
import resource
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.sources.formats import JsonFormat
from penstock.streaming import DatabaseSink, Epoch, FileSink, FunctionSink, Sink, SinkError

SOURCE = "0123456789abcdef" * 2


def epoch(number: int = 0, part: int = 0, attempt: str = "a" * 32, source: str = SOURCE) -> Epoch:
    return Epoch(source, number, part, attempt)


def batches(*numbers: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"n": [n], "text": [f"é{n}"]}) for n in numbers]


def opened(sink: Any, task: int = 0) -> Any:
    """As a task has it: pickled, and opened in its process."""
    copy = pickle.loads(pickle.dumps(sink))
    copy.open(SOURCE, task)
    return copy


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return pq.read_table(str(path)).to_pylist()
    if path.suffix == ".arrow":
        return pa.ipc.open_file(str(path)).read_all().to_pylist()
    return [json.loads(line) for line in path.read_text().splitlines()]


def seen(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl"])
def test_a_file_is_seen_once_it_is_committed_and_never_changes(tmp_path: Path, form: Any) -> None:
    folder = tmp_path / "out" / "deep"
    sink = opened(FileSink(folder, form))
    sink.prepare(epoch(), batches(1, 2))
    assert seen(folder) == []
    sink.commit(epoch(), batches(1, 2))
    (file,) = seen(folder)
    assert file.name == f"part-{SOURCE}-000000000000-0000.{form}"
    assert read(file) == [{"n": 1, "text": "é1"}, {"n": 2, "text": "é2"}]
    # Another attempt does not know that it is there, and has computed something else.
    again = opened(FileSink(folder, form))
    again.prepare(epoch(attempt="b" * 32), batches(3))
    again.commit(epoch(attempt="b" * 32), batches(3))
    assert seen(folder) == [file]
    assert [row["n"] for row in read(file)] == [1, 2]
    assert list(folder.iterdir()) == [file]


def test_files_of_other_epochs_parts_and_ledgers_have_other_names(tmp_path: Path) -> None:
    sink = opened(FileSink(tmp_path))
    for one in (epoch(), epoch(1), epoch(0, 1), epoch(source="f" * 32)):
        sink.prepare(one, batches(1))
        sink.commit(one, batches(1))
    assert len(seen(tmp_path)) == 4


def test_what_a_killed_attempt_left_goes_with_the_next_one_of_its_task(tmp_path: Path) -> None:
    first, other = opened(FileSink(tmp_path)), opened(FileSink(tmp_path), 1)
    first.prepare(epoch(), batches(1))
    other.prepare(epoch(0, 1, "c" * 32), batches(2))
    opened(FileSink(tmp_path))
    # The attempt before, should it live after all, fails in place of writing.
    with pytest.raises(FileNotFoundError):
        first.commit(epoch(), batches(1))
    other.commit(epoch(0, 1, "c" * 32), batches(2))
    assert len(list(tmp_path.iterdir())) == len(seen(tmp_path)) == 1


def test_what_a_task_left_that_is_no_more_goes_once_its_epoch_is_over(tmp_path: Path) -> None:
    opened(FileSink(tmp_path), 2).prepare(epoch(7, 2), batches(1))
    # Now there are fewer tasks. The epoch of that number may still be committed, as far as one
    # of them knows.
    sink = opened(FileSink(tmp_path))
    for number, left in ((7, 1), (8, 0)):
        sink.prepare(epoch(number), batches(2))
        sink.commit(epoch(number), batches(2))
        assert len(list(tmp_path.iterdir())) - len(seen(tmp_path)) == left
    assert len(seen(tmp_path)) == 2


def test_what_another_stream_has_not_finished_in_the_folder_stays(tmp_path: Path) -> None:
    other, theirs = FileSink(tmp_path), Epoch("b" * 32, 0, 0, "c" * 32)
    other.open(theirs.source, 0)
    other.prepare(theirs, batches(2))
    sink = opened(FileSink(tmp_path))
    for number in range(2):
        sink.prepare(epoch(number), batches(1))
        sink.commit(epoch(number), batches(1))
    other.commit(theirs, batches(2))
    assert len(list(tmp_path.iterdir())) == len(seen(tmp_path)) == 3


def test_a_part_without_rows_is_no_file(tmp_path: Path) -> None:
    sink = opened(FileSink(tmp_path))
    sink.prepare(epoch(), [])
    sink.commit(epoch(), [])
    assert list(tmp_path.iterdir()) == []


def test_names_of_json_are_as_spark_writes_the_keys_of_a_map(tmp_path: Path) -> None:
    keys: list[tuple[Any, pa.DataType, str]] = [
        (True, pa.bool_(), "true"),
        (1, pa.int64(), "1"),
        (datetime.date(2024, 1, 2), pa.date32(), "2024-01-02"),
    ]
    for number, (key, kind, name) in enumerate(keys):
        column = pa.array([[(key, 1)]], pa.map_(kind, pa.int64()))
        sink = opened(FileSink(tmp_path / str(number), "jsonl"))
        sink.prepare(epoch(), [pa.record_batch({"a": column})])
        sink.commit(epoch(), [pa.record_batch({"a": column})])
        (file,) = seen(tmp_path / str(number))
        assert json.loads(file.read_text()) == {"a": {name: 1}}


@pytest.mark.slow
def test_spark_finds_nan_and_zeros_in_a_parquet_file(sc: Any, tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    within = pa.array([{"x": math.nan}, {"x": 1.0}], pa.struct([("x", pa.float32())]))
    lists = pa.array([[math.nan], []], pa.list_(pa.float64()))
    given = [pa.record_batch({"x": [1.0, math.nan], "z": [-0.0, 1.0], "s": within, "l": lists})]
    sink = opened(FileSink(tmp_path))
    sink.prepare(epoch(), given)
    sink.commit(epoch(), given)
    found = SparkSession(sc).read.parquet(str(tmp_path))
    for question in ("x > 5", "x = double('NaN')", "z = 0", "s.x > 5"):
        assert found.where(question).count() == 1, question


@pytest.mark.slow
def test_json_lines_say_what_spark_says(sc: Any, tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession(sc)
    schema = (
        "raw binary, n double, list array<double>, map map<string,binary>, "
        "pair struct<text:string,raw:binary>, flag boolean, day date, "
        "moment timestamp, price decimal(10,2), none string"
    )
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 678000, datetime.timezone.utc)
    first = (
        bytearray(b"\xff\x00ab"),
        math.nan,
        [math.inf, -math.inf, 1.5, None],
        {"a": bytearray(b"\xfe")},
        ("é", bytearray(b"")),
        True,
        datetime.date(2024, 1, 2),
        moment,
        decimal.Decimal("1.50"),
        None,
    )
    second = (bytearray(b"plain"), 1.25, [], {}, (None, None), False, None, None, None, "x")
    frame = spark.createDataFrame([first, second], schema)
    sink = opened(FileSink(tmp_path / "ours", "jsonl"))
    given = frame.toArrow().to_batches()
    sink.prepare(epoch(), given)
    sink.commit(epoch(), given)
    (file,) = seen(tmp_path / "ours")
    frame.coalesce(1).write.option("ignoreNullFields", False).json(str(tmp_path / "spark"))
    (written,) = (tmp_path / "spark").glob("part-*.json")
    as_text = {"moment", "price"}  # Spark cuts times to milliseconds, and has decimals as numbers.
    ours, theirs = (
        [{k: v for k, v in row.items() if k not in as_text} for row in found]
        for found in (read(file), [json.loads(line) for line in written.read_text().splitlines()])
    )
    assert ours == theirs
    back = spark.read.schema(schema).json(str(file))
    assert repr(back.collect()) == repr(frame.collect())


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_durations_of_json_lines_are_read_back(tmp_path: Path, unit: Any) -> None:
    sink = opened(FileSink(tmp_path, "jsonl"))
    given = [datetime.timedelta(days=1, milliseconds=1500), datetime.timedelta(-1), None]
    batch = pa.record_batch({"took": pa.array(given, pa.duration(unit))})
    sink.prepare(epoch(), [batch])
    sink.commit(epoch(), [batch])
    (file,) = seen(tmp_path)
    form = JsonFormat(pa.schema([("took", pa.duration("us"))]))
    read_back = form.read(pa.array(file.read_bytes().splitlines()))
    assert read_back.values.field("took").to_pylist() == given


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_batch_with_nulls_alone_has_them_in_the_type_of_the_others(
    tmp_path: Path, form: Any
) -> None:
    """`RecordBatch.from_pylist` knows no type for them."""
    given: list[list[Any]] = [[None], [1, 2], [None, None], [3]]
    made = [
        pa.RecordBatch.from_pydict({"n": numbers, "text": ["x"] * len(numbers)})
        for numbers in given
    ]
    sink = opened(FileSink(tmp_path, form))
    sink.prepare(epoch(), made)
    sink.commit(epoch(), made)
    assert [row["n"] for row in read(*seen(tmp_path))] == [None, 1, 2, None, None, 3]
    tables: list[pa.Table] = []
    FunctionSink(lambda of, table: tables.append(table)).commit(epoch(), made)
    assert tables[0].schema.types == [pa.int64(), pa.string()]
    assert tables[0]["n"].to_pylist() == [None, 1, 2, None, None, 3]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"n": [1.5]}, "incompatible types: int64 vs double"),
        ({"m": [1]}, r"\['n'\], and then \['m'\]"),
        ({"n": [1], "m": [1]}, r"\['n'\], and then \['n', 'm'\]"),
    ],
)
def test_batches_with_different_columns_are_refused_at_once(
    tmp_path: Path, columns: dict[str, list[Any]], says: str
) -> None:
    made = [pa.RecordBatch.from_pydict(each) for each in ({"n": [1]}, columns)]
    sinks = [
        opened(FileSink(tmp_path)).prepare,
        opened(FileSink(tmp_path, "arrow")).prepare,
        FunctionSink(lambda of, table: None).commit,
    ]
    for take in sinks:
        with pytest.raises(SinkError, match=f"in one epoch .*{says}.*same schema"):
            take(epoch(), made)


def test_columns_of_one_name_are_refused_by_json(tmp_path: Path) -> None:
    sink = opened(FileSink(tmp_path, "jsonl"))
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    with pytest.raises(SinkError, match="two columns have one name"):
        sink.prepare(epoch(), [twice])


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (
            pa.array([[("a", 1), ("b", 2), ("a", 3)]], pa.map_(pa.string(), pa.int64())),
            "a key twice",
        ),
        (pa.array([1 << 60], pa.timestamp("us")), "out of range"),
    ],
)
def test_what_has_no_form_in_json_is_refused(tmp_path: Path, column: Any, says: str) -> None:
    sink = opened(FileSink(tmp_path, "jsonl"))
    with pytest.raises(SinkError, match=f"the column n cannot be JSON: .*({says})"):
        sink.prepare(epoch(), [pa.record_batch({"n": column})])


def test_short_floats_and_dictionaries_are_written_as_their_values(tmp_path: Path) -> None:
    sink = opened(FileSink(tmp_path, "jsonl"))
    took = pa.array([datetime.timedelta(seconds=1)] * 3, pa.duration("us"))
    batch = pa.record_batch(
        {
            "f": pa.array([0.1, float("nan"), None], pa.float32()),
            "took": took.dictionary_encode(),
        }
    )
    sink.prepare(epoch(), [batch])
    sink.commit(epoch(), [batch])
    (file,) = seen(tmp_path)
    assert read(file) == [{"f": f, "took": "PT1S"} for f in (0.1, "NaN", None)]


def test_a_folder_without_hard_links_is_refused_at_once(tmp_path: Path, monkeypatch: Any) -> None:
    def refuse(*_: Any) -> None:
        # As FAT and most of FUSE do; neither can be mounted everywhere that tests run.
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(SinkError, match=r"no hard links .*use a folder on another one"):
        opened(FileSink(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl"])
def test_a_disk_that_is_full_within_an_epoch_is_an_error_that_names_the_file(
    tmp_path: Path, form: Any
) -> None:
    sink = FileSink(tmp_path, form)
    sink.open(SOURCE, 0)
    rows = [pa.RecordBatch.from_pydict({"n": range(100_000)})]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match=re.escape(f"large: '{tmp_path}/.part-{SOURCE}")):
            sink.prepare(epoch(0), rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    sink.open(SOURCE, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_full_is_tried_again(tmp_path: Path, monkeypatch: Any) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", refuse)
        with pytest.raises(OSError, match="No space left"):
            opened(FileSink(tmp_path))
    opened(FileSink(tmp_path))


def rows(path: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT n, text FROM numbers ORDER BY n").fetchall()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE numbers (n INTEGER, text TEXT)")
    return path


class Connect:
    """Picklable, as plain pickle has no lambdas."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)


INSERT = "INSERT INTO numbers VALUES (?, ?)"


def insert(cursor: Any, table: pa.Table) -> None:
    cursor.executemany(INSERT, [tuple(row.values()) for row in table.to_pylist()])


@pytest.mark.parametrize("write", [INSERT, insert], ids=["statement", "function"])
def test_rows_and_their_epoch_are_one_transaction(database: Path, write: Any) -> None:
    sink = opened(DatabaseSink(Connect(database), write))
    sink.commit(epoch(), batches(1, 2))
    sink.commit(epoch(), batches(7))
    sink.commit(epoch(0, 1), batches(3))
    sink.commit(epoch(5), batches(4))
    sink.commit(epoch(3), batches(8))
    sink.close()
    again = opened(DatabaseSink(Connect(database), write))
    again.commit(epoch(5), batches(9))
    again.commit(epoch(6), [])
    again.commit(epoch(source="f" * 32), batches(5))
    again.close()
    assert rows(database) == [(n, f"é{n}") for n in (1, 2, 3, 4, 5)]


class ConnectAutocommit(Connect):
    def __call__(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None)


def test_a_connection_that_commits_each_statement_is_refused(database: Path) -> None:
    sink = opened(DatabaseSink(ConnectAutocommit(database), INSERT))
    with pytest.raises(SinkError, match="without autocommit"):
        sink.commit(epoch(), batches(1))
    sink.close()
    assert rows(database) == []


def test_a_write_that_fails_leaves_neither_rows_nor_epoch(database: Path) -> None:
    sink = opened(DatabaseSink(Connect(database), INSERT))
    # The second row is no integer of SQLite.
    wrong = pa.RecordBatch.from_pydict({"n": pa.array([1, 2**63], pa.uint64()), "text": ["x", "y"]})
    with pytest.raises(OverflowError):
        sink.commit(epoch(), [wrong])
    assert rows(database) == []
    sink.commit(epoch(), batches(1))
    assert rows(database) == [(1, "é1")]
    sink.close()


def test_a_function_is_given_the_epoch_and_a_table() -> None:
    given: list[Any] = []
    sink = FunctionSink(lambda *arguments: given.append(arguments))
    sink.prepare(epoch(), batches(1))
    assert given == []
    sink.commit(epoch(4, 1), batches(1, 2))
    sink.commit(epoch(5), [])
    ((of, table),) = given
    assert of.name == f"{SOURCE}-000000000004-0001"
    assert table.column("n").to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: FileSink("s3://bucket/x"), "mounted on all hosts"),
        (lambda: FileSink("out", "csv"), "one of parquet, arrow, jsonl"),  # type: ignore[arg-type]
        (lambda: FunctionSink(3), "takes an Epoch"),  # type: ignore[arg-type]
        (lambda: DatabaseSink("db", INSERT), "returns a connection"),  # type: ignore[arg-type]
        (lambda: DatabaseSink(print, 3), "an INSERT with placeholders"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_sink_is_refused_with_what_would_be_one(make: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        make()


def test_a_sink_without_a_commit_says_so() -> None:
    class Mine(Sink):
        pass

    with pytest.raises(NotImplementedError, match="Mine must define commit"):
        Mine().commit(epoch(), [])
