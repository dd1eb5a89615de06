"""The table of types, which the documentation leads to, says what Spark does."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.blockstore.arrow_frames import (
    UnsupportedColumnError,
    map_in_arrow,
    plain_schema,
    to_plain,
    to_spark_schema,
)

_TABLE = Path(__file__).parent / "spark_types.md"


def _counts(kind: pa.DataType, *values: int) -> pa.Array:
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.array([*values, None], width).cast(kind)


_NS = (-1, 1, -1001)
COLUMNS: dict[str, Callable[[], pa.Array]] = {
    "bool": lambda: pa.array([True, None]),
    **{
        str(kind): lambda kind=kind: pa.array([1, 127, None], kind)
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    },
    "uint8": lambda: pa.array([255, None], pa.uint8()),
    "uint16": lambda: pa.array([65535, None], pa.uint16()),
    "uint32": lambda: pa.array([2**32 - 1, None], pa.uint32()),
    "uint64": lambda: pa.array([2**64 - 1, None], pa.uint64()),
    "float16": lambda: pa.array([1.5, None], pa.float16()),
    "float32": lambda: pa.array([1.5, None], pa.float32()),
    "float64": lambda: pa.array([1.5, None], pa.float64()),
    "decimal128(38, 2)": lambda: pa.array([Decimal("1.50"), None], pa.decimal128(38, 2)),
    "decimal256(38, 2)": lambda: pa.array([Decimal("1.50"), None], pa.decimal256(38, 2)),
    "decimal256(50, 2)": lambda: pa.array([Decimal("1.50"), None], pa.decimal256(50, 2)),
    "string": lambda: pa.array(["a", None]),
    "large_string": lambda: pa.array(["a", None], pa.large_string()),
    "string_view": lambda: pa.array(["a", None], pa.string_view()),
    "binary": lambda: pa.array([b"ab", None]),
    "large_binary": lambda: pa.array([b"ab", None], pa.large_binary()),
    "binary(2)": lambda: pa.array([b"ab", None], pa.binary(2)),
    "binary_view": lambda: pa.array([b"ab", None], pa.binary_view()),
    "date32": lambda: _counts(pa.date32(), 1, -1),
    "date64": lambda: _counts(pa.date64(), 86_400_000, -86_400_000),
    "timestamp[s]": lambda: _counts(pa.timestamp("s"), 1, -1),
    "timestamp[ms]": lambda: _counts(pa.timestamp("ms"), 1, -1),
    "timestamp[us]": lambda: _counts(pa.timestamp("us"), 1, -1),
    "timestamp[ns]": lambda: _counts(pa.timestamp("ns"), *_NS),
    "timestamp[us, UTC]": lambda: _counts(pa.timestamp("us", "UTC"), 1, -1),
    "timestamp[ns, UTC]": lambda: _counts(pa.timestamp("ns", "UTC"), *_NS),
    "time32[s]": lambda: _counts(pa.time32("s"), 1),
    "time32[ms]": lambda: _counts(pa.time32("ms"), 1),
    "time64[us]": lambda: _counts(pa.time64("us"), 1),
    "time64[ns]": lambda: _counts(pa.time64("ns"), 1, 1001),
    "duration[s]": lambda: _counts(pa.duration("s"), 1, -1),
    "duration[ms]": lambda: _counts(pa.duration("ms"), 1, -1),
    "duration[us]": lambda: _counts(pa.duration("us"), 1, -1),
    "duration[ns]": lambda: _counts(pa.duration("ns"), *_NS),
    "dictionary": lambda: pa.array(["a", None, "a"]).dictionary_encode(),
    "run_end_encoded": lambda: pc.run_end_encode(pa.array([1, 1, None])),
    "uuid": lambda: pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16))
    ),
    "list(int8)": lambda: pa.array([[1], None, []], pa.list_(pa.int8())),
    "large_list(int8)": lambda: pa.array([[1], None, []], pa.large_list(pa.int8())),
    "list(int8, 1)": lambda: pa.array([[1], None], pa.list_(pa.int8(), 1)),
    "list_view(int8)": lambda: pa.array([[1], None], pa.list_view(pa.int8())),
    "map(string, int8)": lambda: pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
    "struct(a: int8)": lambda: pa.array([{"a": 1}, None], pa.struct([("a", pa.int8())])),
    "null": lambda: pa.nulls(2),
    "month_day_nano_interval": lambda: pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "sparse_union": lambda: pa.UnionArray.from_sparse(
        pa.array([0], pa.int8()), [pa.array([1], pa.int8())]
    ),
}


def _rows() -> dict[str, tuple[str, str, str]]:
    """Return what the documentation says of each Arrow type."""
    found: dict[str, tuple[str, str, str]] = {}
    text = _TABLE.read_text("utf-8")
    table = text[text.index("| Arrow type |") :].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        names, ours, frame, parquet = (
            html.unescape(part).strip() for part in line.strip("|").split("|")
        )
        for name in re.findall(r"`([^`]+)`", names):
            found[name] = (ours, frame, parquet)
    return found


@pytest.fixture
def spark(sc: Any) -> SparkSession:
    session = SparkSession(sc).newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def _ours(spark: SparkSession, table: pa.Table) -> DataFrame:
    schema = plain_schema(table.schema)
    [batch] = table.to_batches()

    def columns(batches: Any) -> Any:
        for _ in batches:
            yield to_plain(batch, schema)

    return map_in_arrow(spark.range(0, 1, 1, 1), columns, to_spark_schema(schema))


def _shown(make: Callable[[], DataFrame]) -> tuple[str, list[str | None]]:
    """Return a frame's type and its values as Spark's text, or that it is refused."""
    try:
        frame = make()
        kind = frame.schema["value"].dataType.simpleString()
        if kind == "void":
            return kind, []
        return kind, [row[0] for row in frame.selectExpr("cast(value as string)").collect()]
    except (UnsupportedColumnError, pyspark.errors.PySparkException, pa.ArrowException, ValueError):
        return "refused", []


def test_the_table_has_each_type_that_is_tried() -> None:
    assert set(_rows()) == set(COLUMNS)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "step", [pytest.param(3, marks=pytest.mark.long), pytest.param(1, marks=pytest.mark.exhaustive)]
)
def test_each_row_of_the_table_is_what_spark_does(
    spark: SparkSession, tmp_path: Path, step: int
) -> None:
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 3):
        pytest.skip("platform: the table is of Spark 4.3")
    wrong = []
    for name, (ours, frame, parquet) in list(_rows().items())[::step]:
        table = pa.table({"value": COLUMNS[name]()})
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"

        def read(table: pa.Table = table, path: Path = path) -> DataFrame:
            pq.write_table(table, path)
            return spark.read.parquet(str(path))

        found = [
            _shown(lambda table=table: _ours(spark, table)),
            _shown(lambda table=table: spark.createDataFrame(table)),
            _shown(read),
        ]
        if [kind for kind, _ in found] != [ours, frame, parquet]:
            wrong.append((name, [kind for kind, _ in found]))
        for kind, values in found[1:]:
            # A type of the same name, but for the zone that Spark takes a time without one to have.
            if kind.removesuffix("_ntz") == ours.removesuffix("_ntz") and values != found[0][1]:
                wrong.append((name, kind, values, found[0][1]))
    assert wrong == []


@pytest.mark.slow
def test_nanoseconds_are_those_of_spark_and_of_int96(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"value": COLUMNS["timestamp[ns]"]()})
    path = str(tmp_path / "int96.parquet")
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    _, ours = _shown(lambda: _ours(spark, table))
    assert ours[0] == "1969-12-31 23:59:59.999999"
    assert _shown(lambda: spark.read.parquet(path))[1] == ours
    assert _shown(lambda: spark.createDataFrame(table))[1] == ours
