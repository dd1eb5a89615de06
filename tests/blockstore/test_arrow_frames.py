"""Schemas go to Spark and back in the same way with every PySpark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.blockstore.arrow_frames import to_arrow_schema, to_spark_schema


@pytest.mark.parametrize(
    ("column", "name"),
    [
        (pa.timestamp("us"), "timestamp_ntz"),
        (pa.timestamp("us", "UTC"), "timestamp"),
        (pa.string(), "string"),
        (pa.binary(), "binary"),
        (pa.decimal128(10, 2), "decimal(10,2)"),
        (pa.list_(pa.int32()), "array<int>"),
        (pa.map_(pa.string(), pa.int64()), "map<string,bigint>"),
        (pa.struct([("a", pa.date32())]), "struct<a:date>"),
    ],
)
def test_a_schema_is_the_same_when_it_was_sparks(column: pa.DataType, name: str) -> None:
    spark = to_spark_schema(pa.schema([("column", column)]))
    assert spark.simpleString() == f"struct<column:{name}>"
    assert to_spark_schema(to_arrow_schema(spark)) == spark
    [found] = to_arrow_schema(spark).types
    if pa.types.is_timestamp(column):
        assert found == column
