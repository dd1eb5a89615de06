"""The columns of received Arrow batches as Spark has them: as of a Parquet file of the same data.

What Arrow has and Spark lacks becomes what Spark reads from such a file: dictionaries their values,
large and view types the plain ones, unsigned numbers the next larger type, times microseconds.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as is_type

__all__ = ["cast_batch", "plain_schema"]

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema of types that Spark has."""
    return pa.schema([_plain_field(field) for field in schema])


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with exactly this schema; its columns are found by name.

    Raises:
        KeyError: A column is missing.
        pyarrow.ArrowInvalid: A value does not fit its type.
    """
    if batch.schema.equals(schema):
        return batch
    columns = [_cast(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if column.type.equals(wanted):
        return column
    # Nanoseconds lose what Spark does not have.
    is_time = is_type.is_timestamp(column.type) or is_type.is_time(column.type)
    return column.cast(wanted, safe=not is_time)


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain(field.type), field.nullable)


def _plain(kind: pa.DataType) -> pa.DataType:
    if kind in _WIDER:
        return _WIDER[kind]
    if is_type.is_dictionary(kind):
        return _plain(kind.value_type)
    if is_type.is_large_string(kind) or is_type.is_string_view(kind):
        return pa.string()
    if (
        is_type.is_large_binary(kind)
        or is_type.is_fixed_size_binary(kind)
        or is_type.is_binary_view(kind)
    ):
        return pa.binary()
    if is_type.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz is not None else None)
    if is_type.is_time(kind):
        return pa.time64("ns")
    if is_type.is_duration(kind):
        return pa.duration("us")
    if is_type.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if is_type.is_list(kind) or is_type.is_large_list(kind) or is_type.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if is_type.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain_field(kind.item_field))
    if is_type.is_struct(kind):
        return pa.struct([_plain_field(kind.field(at)) for at in range(kind.num_fields)])
    return kind
