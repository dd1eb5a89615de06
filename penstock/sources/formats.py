"""Values of messages as typed columns: JSON and Avro, with what cannot be read kept apart.

A format reads a whole column at a time. Only when something in it cannot be read, it goes through
the column value by value to find out what.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from penstock._arguments import refused
from penstock.errors import MissingPackageError
from penstock.receiver.short_forms import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_MAGIC = 0
_AVRO = "a record's schema, as JSON text"
_PREFIX = 5
"""Confluent's wire format: a zero byte, the schema's number in four, then the value."""


@dataclass(frozen=True)
class ReadValues:
    """A column of values that were read.

    Attributes:
        values: A struct for each; null where there was none, or none that can be read.
        corrupt: The bytes that cannot be read; null elsewhere.
        errors: Why; null elsewhere.
    """

    values: pa.Array
    corrupt: pa.Array
    errors: pa.Array


class ValueFormat(ABC):
    """Makes structs of bytes. Called with bytes it makes a `dict`, so it is a deserializer, too."""

    @property
    @abstractmethod
    def type(self) -> pa.DataType:
        """The struct."""

    @abstractmethod
    def __call__(self, data: bytes) -> Any:
        """Return one value as Python's objects.

        Raises:
            ValueError: It cannot be read.
        """

    @abstractmethod
    def _read_all(self, values: Sequence[bytes]) -> Iterable[Any]:
        """Return values as Python's objects, as many as there are, or raise `ValueError`."""

    def read(self, column: pa.Array) -> ReadValues:
        """Return a column of bytes as structs."""
        given = column.to_pylist()
        nothing = ReadValues(
            pa.nulls(len(given), self.type),
            pa.nulls(len(given), pa.binary()),
            pa.nulls(len(given), pa.string()),
        )
        present = [value for value in given if value is not None]
        try:
            read = iter(self._read_all(present))
            if len(present) < len(given):
                read = iter([None if value is None else next(read) for value in given])
            values = pa.array(read, self.type, size=len(given))
        except (ValueError, TypeError, OverflowError, pa.ArrowException):
            return self._read_one_by_one(given)
        return ReadValues(values, nothing.corrupt, nothing.errors)

    def _read_one_by_one(self, given: Sequence[bytes | None]) -> ReadValues:
        values: list[Any] = []
        corrupt: list[bytes | None] = []
        errors: list[str | None] = []
        for data in given:
            value, error = None, None
            if data is not None:
                try:
                    value = self(data)
                    pa.array([value], self.type)
                except (ValueError, TypeError, OverflowError, pa.ArrowException) as found:
                    value, error = None, str(found) or type(found).__name__
            values.append(value)
            corrupt.append(None if error is None else data)
            errors.append(error)
        return ReadValues(
            pa.array(values, self.type),
            pa.array(corrupt, pa.binary()),
            pa.array(errors, pa.string()),
        )


class JsonFormat(ValueFormat):
    """JSON objects. Fields that a value lacks are null, those that the schema lacks are left out.

    Args:
        schema: The fields: Spark's or Arrow's schema, or text such as ``"id bigint, name string"``,
            which needs a SparkContext.

    Raises:
        TypeError: The schema is of another type.
        ValueError: The text cannot be read, or the fields have not one name each.
    """

    def __init__(self, schema: StructType | pa.Schema | str) -> None:
        found = arrow_schema(schema)
        if found is None:
            raise TypeError("JsonFormat needs a schema: one of Spark's or Arrow's, or DDL as text")
        self._type = pa.struct(list(found))

    @property
    def type(self) -> pa.DataType:
        return self._type

    def __call__(self, data: bytes) -> Any:
        value = msgspec.json.decode(data)
        if not isinstance(value, dict):
            raise ValueError(f"a JSON object is needed, and not {type(value).__name__}")
        return value

    def _read_all(self, values: Sequence[bytes]) -> Iterable[Any]:
        lines = b"\n".join(values)
        if values and lines.count(b"\n") != len(values) - 1:
            # There are line ends within values: lines would not be values.
            return [self(value) for value in values]
        read: list[Any] = msgspec.json.Decoder().decode_lines(lines)
        if len(read) != len(values) or set(map(type, read)) - {dict}:
            raise ValueError("some values are no JSON objects")
        return read


class AvroFormat(ValueFormat):
    """Avro records, with a schema registry or without.

    With a registry, values are in its wire format: each says by number which schema it was written
    with. They are read as the given schema, by Avro's rules of resolution. Without one, all are
    written with the given schema.

    Args:
        schema: The schema as JSON; None for the latest of `subject`.
        registry: Settings of confluent-kafka's `SchemaRegistryClient`, such as ``{"url": ...}``;
            in no `repr`.
        subject: Whose latest schema is read, where none is given: often the topic's name followed
            by ``-value``.

    Raises:
        MissingPackageError: fastavro, or the registry's client, is not installed.
        TypeError: The schema is no text, or the registry's settings are no mapping.
        ValueError: The schema is no JSON, has no columns, or there is none.
    """

    def __init__(
        self,
        schema: str | None = None,
        *,
        registry: Mapping[str, Any] | None = None,
        subject: str | None = None,
    ) -> None:
        if registry is not None and not isinstance(registry, Mapping):
            # Not shown: an address may have a password in it.
            raise TypeError(
                f"registry of type {type(registry).__name__} is not accepted: a dict of the "
                'client\'s settings, such as {"url": "http://registry:8081"}'
            )
        self._registry = None if registry is None else dict(registry)
        if schema is None:
            if registry is None or subject is None:
                raise ValueError("a schema is needed, or a registry and a subject")
            schema = self._client.get_latest_version(subject).schema.schema_str
        if not isinstance(schema, str):
            raise TypeError(refused("schema", schema, _AVRO))
        try:
            parsed = json.loads(schema)
        except json.JSONDecodeError as error:
            raise ValueError(f"{refused('schema', schema, _AVRO)} ({error})") from None
        self.schema = schema
        self._type = arrow_type(parsed)
        if not pa.types.is_struct(self._type):
            raise ValueError("the values' schema must be a record")
        _ = self._parsed

    def __repr__(self) -> str:
        return f"AvroFormat({self.schema!r}, …)"

    def __getstate__(self) -> dict[str, Any]:
        # What a process has parsed and connected to is its own.
        own = ("_registry", "_type", "schema")
        return {name: value for name, value in vars(self).items() if name in own}

    @property
    def type(self) -> pa.DataType:
        return self._type

    @cached_property
    def _client(self) -> Any:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise _missing() from error
        return SchemaRegistryClient(dict(self._registry or {}))

    @cached_property
    def _parsed(self) -> Any:
        try:
            import fastavro
        except ImportError as error:
            raise _missing() from error
        return fastavro.parse_schema(json.loads(self.schema))

    @cached_property
    def _writers(self) -> dict[int, Any]:
        return {}

    def __call__(self, data: bytes) -> Any:
        (value,) = self._read_all([data])
        return value

    def _read_all(self, values: Sequence[bytes]) -> Iterable[Any]:
        from fastavro import schemaless_reader

        reader = self._parsed
        if self._registry is None:
            return [_whole(schemaless_reader, data, 0, reader, reader) for data in values]
        read = []
        for data in values:
            if len(data) < _PREFIX or data[0] != _MAGIC:
                raise ValueError("it is not in the wire format of a schema registry")
            number = int.from_bytes(data[1:_PREFIX], "big")
            writer = self._writers.get(number)
            if writer is None:
                writer = self._writers[number] = self._fetch(number)
            read.append(_whole(schemaless_reader, data, _PREFIX, writer, reader))
        return read

    def _fetch(self, number: int) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError
        from fastavro import parse_schema

        try:
            found = self._client.get_schema(number)
        except SchemaRegistryError as error:
            if error.http_status_code == 404:
                raise ValueError(f"the registry has no schema {number}") from error
            raise
        return parse_schema(json.loads(found.schema_str))


def _whole(read: Any, data: bytes, start: int, writer: Any, reader: Any) -> Any:
    # Where the last bytes are missing, the reader would take what it finds. It finds one more.
    stream = io.BytesIO(data + b"\0")
    stream.seek(start)
    try:
        value = read(stream, writer, reader)
    except (EOFError, IndexError, KeyError, StopIteration) as error:
        raise ValueError(f"it ends too early or is no Avro: {error!r}") from error
    left = len(data) - stream.tell()
    if left < 0:
        raise ValueError("it ends too early")
    if left > 0:
        raise ValueError(f"{left} bytes are left over")
    return value


def _missing() -> MissingPackageError:
    packages = (
        "the packages fastavro and confluent-kafka[schemaregistry] on the driver and on every "
        "executor"
    )
    return MissingPackageError("a value in Avro", packages, "avro")


# The Arrow type of an Avro schema.
#
# Source: the Avro specification 1.12, "Schema Declaration" and "Logical Types".

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
