"""PySpark's functions for Arrow data, for every PySpark 4, and where pandas is not installed.

`DataFrame.mapInArrow` checks first that pandas is installed, though neither it nor the worker that
runs the function uses pandas. What it does after that check, `map_in_arrow` does here.

Arrow has types that Spark's JVM does not read. Columns of these come as what a Parquet file of the
same data has when Spark reads it (`plain_schema`): dictionaries and runs as their values, unsigned
integers as the next larger type, times with the unit that Spark has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_MAX_PRECISION = 38
_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (types.is_string_view, pa.string()),
    (types.is_binary_view, pa.binary()),
    (types.is_fixed_size_binary, pa.binary()),
    (types.is_uint8, pa.int16()),
    (types.is_uint16, pa.int32()),
    (types.is_uint32, pa.int64()),
    (types.is_uint64, pa.decimal128(20, 0)),
    (types.is_float16, pa.float32()),
    (types.is_date64, pa.date32()),
    (types.is_time, pa.time64("ns")),
    (types.is_duration, pa.duration("us")),
)


class UnsupportedColumnError(PenstockError):
    """A column has a type that Spark lacks, so that the records make no DataFrame.

    Attributes:
        column: The column's name.
        type: Its Arrow type, as text.
    """

    def __init__(self, column: str, arrow_type: str) -> None:
        super().__init__(
            f"column {column!r} is of the Arrow type {arrow_type}, and no DataFrame can have it: "
            "cast it before it is stored, or use foreachRDD, whose records are plain Python objects"
        )
        self.column = column
        self.type = arrow_type


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


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that columns have in a DataFrame's Arrow data.

    Raises:
        UnsupportedColumnError: Spark has no type for a column.
    """
    for field in schema:
        found = _unsupported(field.type)
        if found is not None:
            raise UnsupportedColumnError(field.name, str(found))
    return pa.schema([_plain_field(field) for field in schema], schema.metadata)


def to_plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns of its `plain_schema`; microseconds at most."""
    if batch.schema.types == schema.types:
        return batch
    columns = [
        plain_column(column, field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def plain_column(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return a column as one of a type that Spark has; nanoseconds become whole microseconds.

    They are rounded down, as Spark does, and not towards zero, as Arrow's cast does.

    Raises:
        pyarrow.ArrowException: A value does not fit the type, or the types do not.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    if column.type == wanted:
        return column
    if _has_nanoseconds(column.type):
        column = _in_microseconds(column)
    return pc.cast(column, options=pc.CastOptions(wanted, allow_time_truncate=True))


def _has_nanoseconds(found: pa.DataType) -> bool:
    """Return whether it, or a type in it, counts nanoseconds since a moment, or of a duration."""
    if types.is_dictionary(found) or types.is_run_end_encoded(found):
        return _has_nanoseconds(found.value_type)
    if types.is_nested(found):
        return any(_has_nanoseconds(found.field(at).type) for at in range(found.num_fields))
    return bool((types.is_timestamp(found) or types.is_duration(found)) and found.unit == "ns")


def _in_microseconds(column: pa.Array) -> pa.Array:
    """Return a column that `_has_nanoseconds` with microseconds instead, rounded down."""
    kind = column.type
    if not _has_nanoseconds(kind):
        return column
    if types.is_dictionary(kind):
        return _in_microseconds(column.dictionary_decode())
    buffers = column.buffers()
    length, offset = len(column), column.offset
    if types.is_struct(kind):
        parts = [_in_microseconds(column.field(at)) for at in range(kind.num_fields)]
        fields = [kind.field(at).with_type(part.type) for at, part in enumerate(parts)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=column.is_null())
    if types.is_nested(kind):
        if types.is_map(kind):
            parts = [_in_microseconds(column.keys), _in_microseconds(column.items)]
            made = pa.map_(
                kind.key_field.with_type(parts[0].type), kind.item_field.with_type(parts[1].type)
            )
            child = pa.StructArray.from_arrays(parts, fields=[made.key_field, made.item_field])
        else:
            child = _in_microseconds(column.values)
            field = kind.value_field.with_type(child.type)
            made = (
                pa.list_(field, kind.list_size)
                if types.is_fixed_size_list(kind)
                else (pa.large_list if types.is_large_list(kind) else pa.list_)(field)
            )
        own = buffers[: 1 if types.is_fixed_size_list(kind) else 2]
        return pa.Array.from_buffers(made, length, own, offset=offset, children=[child])
    made = pa.timestamp("us", kind.tz) if types.is_timestamp(kind) else pa.duration("us")
    counted = np.frombuffer(buffers[1], np.int64)[: offset + length]
    rounded = pa.py_buffer(np.floor_divide(counted, 1000))
    return pa.Array.from_buffers(made, length, [buffers[0], rounded], offset=offset)


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain_type(field.type))


def _plain_type(found: pa.DataType) -> pa.DataType:
    if isinstance(found, pa.BaseExtensionType):
        return _plain_type(found.storage_type)
    if types.is_dictionary(found) or types.is_run_end_encoded(found):
        return _plain_type(found.value_type)
    if types.is_timestamp(found):
        return pa.timestamp("us", found.tz)
    if types.is_decimal(found):
        return pa.decimal128(found.precision, found.scale)
    if types.is_list(found) or types.is_large_list(found) or types.is_fixed_size_list(found):
        return pa.list_(_plain_field(found.value_field))
    if types.is_map(found):
        return pa.map_(_plain_field(found.key_field), _plain_field(found.item_field))
    if types.is_struct(found):
        return pa.struct([_plain_field(field) for field in found])
    return next((plain for fits, plain in _PLAIN if fits(found)), found)


def _unsupported(found: pa.DataType, *, nested: bool = False) -> pa.DataType | None:
    """Return the type itself, or one in it, that Spark lacks; None when it has all."""
    if isinstance(found, pa.BaseExtensionType):
        # Arrow casts these two at the top only.
        return found if nested else _unsupported(found.storage_type)
    if types.is_run_end_encoded(found):
        return found if nested else _unsupported(found.value_type, nested=True)
    if types.is_dictionary(found):
        return _unsupported(found.value_type, nested=True)
    if types.is_decimal(found):
        return found if found.precision > _MAX_PRECISION else None
    if types.is_nested(found) and not types.is_union(found) and not _is_view(found):
        parts = [found.field(number).type for number in range(found.num_fields)]
        return next(filter(None, (_unsupported(part, nested=True) for part in parts)), None)
    return None if _has_spark_type(_plain_type(found)) else found


def _is_view(found: pa.DataType) -> bool:
    return bool(types.is_list_view(found) or types.is_large_list_view(found))


def _has_spark_type(found: pa.DataType) -> bool:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        from_arrow_type(found)
    except PySparkException:
        return False
    return True


def to_spark_schema(schema: pa.Schema) -> StructType:
    """Return Spark's schema of Arrow columns; a timestamp without a zone is a `TIMESTAMP_NTZ`.

    All may be null, as when Spark reads files: Arrow does not look whether a column that is
    declared without nulls has some, and Spark fails on them, or takes them for 0.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    # The default of `prefer_timestamp_ntz` was False before PySpark 4.2.
    return from_arrow_schema(schema, prefer_timestamp_ntz=True).toNullable()


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of Spark's columns; a `TIMESTAMP` has the zone UTC."""
    from pyspark.sql.pandas import types

    convert: Any = types.to_arrow_schema
    if "timezone" in inspect.signature(convert).parameters:
        return convert(schema, timezone="UTC")
    return convert(schema)  # Before PySpark 4.2 the zone is UTC.


def stream_size(batches: Iterable[pa.RecordBatch]) -> int:
    """Return the exact bytes of a stream of these batches, from schema to end; 0 for none."""
    sink = pa.MockOutputStream()
    writer = None
    for batch in batches:
        if writer is None:
            writer = pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()
    return int(sink.size())


def compacted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with what its rows need only.

    A slice of a column of views or of a dictionary keeps all the values of the column that it was
    cut from, and they are written with it.
    """
    columns = [
        _compacted_column(column) if _keeps_more(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema) if columns else batch


def _keeps_more(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _keeps_more(kind.storage_type)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return True
    return pa.types.is_dictionary(kind) or any(map(_keeps_more, _children(kind)))


def _children(kind: pa.DataType) -> Iterator[pa.DataType]:
    for number in range(kind.num_fields):
        yield kind.field(number).type


def _compacted_column(column: Any) -> Any:
    if isinstance(column.type, pa.BaseExtensionType):
        storage = _compacted_column(column.storage)
        return pa.ExtensionArray.from_storage(column.type, storage)
    try:
        found = pa.array(column.to_pylist(), column.type)
        # Of nulls alone in a struct it makes indices into an empty dictionary.
        found.validate(full=True)
    except (pa.ArrowException, TypeError, ValueError):
        # Arrow makes no such columns of Python values (unions): it stays as it is.
        return column
    return found
