"""PySpark's functions for Arrow data, for every PySpark 4, and where pandas is not installed.

`DataFrame.mapInArrow` checks first that pandas is installed, though neither it nor the worker that
runs the function uses pandas. What it does after that check, `map_in_arrow` does here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["map_in_arrow", "to_arrow_schema", "to_spark_schema"]


def map_in_arrow(
    frame: DataFrame,
    function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType,
) -> DataFrame:
    """Return what `frame.mapInArrow(function, schema)` returns, without need of pandas."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    untyped: Any = frame
    udf = UserDefinedFunction(function, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = udf(*(frame[name] for name in frame.columns))
    return DataFrame(untyped._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def to_spark_schema(schema: pa.Schema) -> StructType:
    """Return Spark's schema of Arrow columns; a timestamp without a zone is a `TIMESTAMP_NTZ`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # The default of `prefer_timestamp_ntz` was False before PySpark 4.2.
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of Spark's columns; a `TIMESTAMP` has the zone UTC."""
    from pyspark.sql.pandas import types

    convert: Any = types.to_arrow_schema
    if "timezone" in inspect.signature(convert).parameters:
        return convert(schema, timezone="UTC")
    return convert(schema)  # Before PySpark 4.2 the zone is UTC.
