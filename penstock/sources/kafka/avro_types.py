"""The Arrow type of an Avro schema.

Source: the Avro specification 1.12, "Schema Declaration" and "Logical Types".
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}


def arrow_type(schema: Any, known: dict[str, pa.DataType] | None = None) -> pa.DataType:
    """Return the type.

    Args:
        schema: As parsed from JSON.
        known: Types by the names that the schema has defined so far.

    Raises:
        ValueError: There is none: a union of several types, or a record within itself.
    """
    known = {} if known is None else known
    if isinstance(schema, str):
        if schema in _PRIMITIVES or schema in known:
            return _PRIMITIVES.get(schema) or known[schema]
        raise ValueError(f"the Avro type {schema!r} is not known where it stands")
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise ValueError(f"a union of {len(others)} types has no column: {schema}")
        return arrow_type(others[0], known)
    kind = schema["type"]
    logical = schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    found = _LOGICAL.get(logical)
    if found is None:
        found = _complex(kind, schema, known)
    if "name" in schema:
        known[schema["name"]] = found
    return found


def _complex(kind: Any, schema: dict[str, Any], known: dict[str, pa.DataType]) -> pa.DataType:
    if kind == "record":
        fields = [(each["name"], arrow_type(each["type"], known)) for each in schema["fields"]]
        return pa.struct(fields)
    if kind == "array":
        return pa.list_(arrow_type(schema["items"], known))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(schema["values"], known))
    return arrow_type(kind, known)
