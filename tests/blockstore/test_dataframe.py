"""Columns of every Arrow type come out of a batch as Spark has them, or are refused by name."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from penstock.blockstore.arrow_frames import (
    UnsupportedColumnError,
    map_in_arrow,
    plain_schema,
    to_plain,
    to_spark_schema,
)

WORDS = pa.array(["a", "b", None, "a"])
DAY = datetime.date(2020, 1, 31)
EPOCH = datetime.datetime(1970, 1, 1)
NOON = datetime.time(12, 0, 1)


def of(values: list[Any], arrow_type: pa.DataType) -> pa.Array:
    return pa.array([*values, None], arrow_type)


COLUMNS: dict[str, tuple[pa.Array, str]] = {
    "dictionary": (WORDS.dictionary_encode(), "string"),
    "struct": (
        pa.StructArray.from_arrays([WORDS.dictionary_encode()], ["word"]),
        "struct<word:string>",
    ),
    "list": (
        pa.ListArray.from_arrays(pa.array(range(5), pa.int32()), WORDS.dictionary_encode()),
        "array<string>",
    ),
    "runs": (pc.run_end_encode(pa.array([1, 1, 2, None])), "bigint"),
    "string_view": (WORDS.cast(pa.string_view()), "string"),
    "large_string": (WORDS.cast(pa.large_string()), "string"),
    "binary_view": (of([b"a", b"", b"x"], pa.binary_view()), "binary"),
    "fixed_binary": (of([b"ab", b"cd", b"ef"], pa.binary(2)), "binary"),
    "uint8": (of([255, 0, 1], pa.uint8()), "smallint"),
    "uint16": (of([65535, 0, 1], pa.uint16()), "int"),
    "uint32": (of([2**32 - 1, 0, 1], pa.uint32()), "bigint"),
    "float16": (of(list(map(np.float16, [1.5, 0.0, -2.0])), pa.float16()), "float"),
    "seconds": (of([1, 0, 2**33], pa.timestamp("s")), "timestamp_ntz"),
    "date64": (of([DAY, DAY, DAY], pa.date64()), "date"),
    "duration": (of([1, 0, 5], pa.duration("s")), "interval day to second"),
    "decimal256": (
        of([Decimal("1.25"), Decimal("0.00"), Decimal("5.00")], pa.decimal256(38, 2)),
        "decimal(38,2)",
    ),
    "fixed_list": (of([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)), "array<bigint>"),
    "large_list": (of([[1, 2], [], [5]], pa.large_list(pa.uint8())), "array<smallint>"),
    "map": (
        of([[("k", 1)], [], [("l", 2)]], pa.map_(pa.string(), pa.uint16())),
        "map<string,int>",
    ),
    "null": (pa.nulls(4), "void"),
}
BATCH = pa.RecordBatch.from_pydict({name: column for name, (column, _) in COLUMNS.items()})


def test_columns_have_the_types_that_spark_gives_them() -> None:
    found = to_spark_schema(plain_schema(BATCH.schema))
    assert [field.dataType.simpleString() for field in found] == [
        spark for _, spark in COLUMNS.values()
    ]


def test_columns_keep_their_values() -> None:
    assert to_plain(BATCH, plain_schema(BATCH.schema)).to_pylist() == BATCH.to_pylist()


def test_a_batch_that_needs_nothing_is_not_copied() -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1], "s": ["a"]})
    assert to_plain(batch, plain_schema(batch.schema)) is batch


def test_unsigned_longs_nanoseconds_and_extensions() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "long": pa.array([2**64 - 1], pa.uint64()),
            "nanoseconds": pa.array([1999], pa.timestamp("ns", "UTC")),
            "uuid": pa.ExtensionArray.from_storage(
                pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16))
            ),
        }
    )
    plain = to_plain(batch, plain_schema(batch.schema))
    assert plain.schema.types == [
        pa.decimal128(20, 0),
        pa.timestamp("us", "UTC"),
        pa.binary(),
    ]
    assert plain.column(0).to_pylist() == [Decimal(2**64 - 1)]
    assert plain.column(1).cast(pa.int64()).to_pylist() == [1]
    assert plain.column(2).to_pylist() == [b"0123456789abcdef"]


NANOSECONDS = [-1, 1, -1001, None, 1999, -(2**63), 2**63 - 1]
MICROSECONDS = [value if value is None else value // 1000 for value in NANOSECONDS]
NS, US = pa.timestamp("ns"), pa.timestamp("us")


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (NS, US),
        (pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("us", "Europe/Berlin")),
        (pa.duration("ns"), pa.duration("us")),
    ],
)
def test_nanoseconds_are_rounded_down(found: pa.DataType, wanted: pa.DataType) -> None:
    column = pa.array(NANOSECONDS, pa.int64()).cast(found)
    for start in (0, 2):
        (plain,) = to_plain(
            pa.record_batch([column.slice(start)], ["n"]), pa.schema([("n", wanted)])
        ).columns
        assert plain.type == wanted
        assert plain.cast(pa.int64()).to_pylist() == MICROSECONDS[start:]


NESTED = [
    (pa.list_(NS), [[0, -1], None, [], [None, -1001]], pa.list_(US)),
    (pa.large_list(NS), [[0, -1], None, [], [None, -1001]], pa.list_(US)),
    (pa.list_(NS, 2), [[0, -1], None, [5, None], [1, -1001]], pa.list_(US)),
    (
        pa.struct([("n", NS), ("s", pa.string())]),
        [{"n": 0, "s": "a"}, None, {"n": None, "s": "b"}, {"n": -1001, "s": None}],
        pa.struct([("n", US), ("s", pa.string())]),
    ),
    (
        pa.map_(pa.string(), NS),
        [[("a", 0), ("b", -1)], None, [], [("c", -1001), ("d", None)]],
        pa.map_(pa.string(), US),
    ),
    (pa.dictionary(pa.int8(), NS), [0, None, -1, -1001], US),
    (
        pa.list_(pa.struct([("n", pa.list_(NS))])),
        [[{"n": [-1]}], None, [{"n": None}], [None, {"n": [-1001, 5]}]],
        pa.list_(pa.struct([("n", pa.list_(US))])),
    ),
]


@pytest.mark.parametrize(("found", "given", "wanted"), NESTED, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("start", [0, 1, 3])
def test_nanoseconds_within_other_types_are_rounded_down(
    found: pa.DataType, given: list[Any], wanted: pa.DataType, start: int
) -> None:
    def rounded(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(rounded, value))
        if isinstance(value, dict):
            return {name: rounded(part) for name, part in value.items()}
        return (
            EPOCH + datetime.timedelta(microseconds=value // 1000)
            if isinstance(value, int)
            else value
        )

    is_encoded = pa.types.is_dictionary(found)
    column = pa.array(given, NS).dictionary_encode() if is_encoded else pa.array(given, found)
    batch = pa.record_batch([column], ["n"]).slice(start)
    assert plain_schema(batch.schema).types == [wanted]
    plain = to_plain(batch, plain_schema(batch.schema))
    plain.validate(full=True)
    assert plain.column(0).to_pylist() == rounded(given[start:])


RUNS = pa.run_end_encoded(pa.int32(), pa.int64())


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (pa.month_day_nano_interval(), "month_day_nano_interval"),
        (pa.sparse_union([pa.field("a", pa.int8())]), "sparse_union"),
        (pa.list_(pa.list_view(pa.int8())), "list_view"),
        (pa.struct([("runs", RUNS)]), "run_end_encoded"),
        (pa.map_(pa.string(), pa.decimal256(39, 0)), "decimal256(39, 0)"),
        (pa.dictionary(pa.int8(), pa.month_day_nano_interval()), "month_day_nano_interval"),
    ],
)
def test_what_spark_has_no_type_for_is_refused_by_name(column: pa.DataType, named: str) -> None:
    schema = pa.schema([("fine", pa.int8()), ("odd", column)])
    with pytest.raises(UnsupportedColumnError, match="column 'odd'") as caught:
        plain_schema(schema)
    assert named in caught.value.type


@pytest.mark.slow
def test_spark_reads_all_of_them(sc: Any) -> None:
    spark = SparkSession(sc)
    schema = plain_schema(BATCH.schema)
    batch = BATCH

    def columns(batches: Any) -> Any:
        for _ in batches:
            yield to_plain(batch, schema)

    frame = map_in_arrow(spark.range(0, 1, 1, 1), columns, to_spark_schema(schema))
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    expected = [
        {**row, "map": None if row["map"] is None else dict(row["map"])}
        for row in BATCH.to_pylist()
    ]
    assert rows == expected


@pytest.mark.slow
def test_a_null_where_arrow_says_that_there_is_none_is_null(sc: Any) -> None:
    inner = pa.struct([pa.field("m", pa.int32(), nullable=False)])
    schema = pa.schema([pa.field("n", pa.int32(), nullable=False), ("s", inner)])
    batch = pa.RecordBatch.from_pylist([{"n": 1, "s": {"m": 1}}, {"s": {}}], schema=schema)

    def columns(batches: Any) -> Any:
        for _ in batches:
            yield to_plain(batch, plain_schema(schema))

    spark = SparkSession(sc)
    sql_schema = to_spark_schema(plain_schema(schema))
    frame = map_in_arrow(spark.range(0, 1, 1, 1), columns, sql_schema)
    counts = frame.selectExpr("count(*)", "count(n)", "count(s.m)", "sum(n + s.m)").first()
    assert tuple(counts) == (2, 1, 1, 2)
