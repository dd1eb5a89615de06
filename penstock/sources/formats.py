"""Values of messages as typed columns, with what cannot be read kept apart.

By JSON, Avro, Protocol Buffers, or a function of the user's.

A format reads a whole column at a time. Only when something in it cannot be read, it goes through
the column value by value to find out what.
"""

from __future__ import annotations

import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import pyarrow as pa
from pyarrow import types

from penstock._arguments import refused
from penstock.blockstore.kept_values import check_kept
from penstock.errors import MissingPackageError, typed_text
from penstock.receiver.short_forms import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError, pa.ArrowException)

_JSON_TYPES: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (lambda kind: types.is_timestamp(kind) and kind.unit != "ns", datetime),
    (types.is_date, date),
    (types.is_time, time),
    (types.is_decimal, Decimal),
    (lambda kind: types.is_binary(kind) or types.is_large_binary(kind), bytes),
)
"""What JSON has no values for of its own; the column refuses others that are not its own."""

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
        """Return values as Python's objects, or as an array of structs; as many as there are.

        Raises:
            ValueError: One cannot be read.
        """

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
            read = self._read_all(present)
            if isinstance(read, pa.Array) and len(present) == len(given):
                return ReadValues(read.cast(self.type), nothing.corrupt, nothing.errors)
            each = iter(read.to_pylist() if isinstance(read, pa.Array) else read)
            values = self._column([None if value is None else next(each) for value in given])
        except _UNREADABLE:
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
                    self._column([value])
                except _UNREADABLE as found:
                    value, error = None, str(found) or type(found).__name__
            values.append(value)
            corrupt.append(None if error is None else data)
            errors.append(error)
        return ReadValues(
            pa.array(values, self.type),
            pa.array(corrupt, pa.binary()),
            pa.array(errors, pa.string()),
        )

    def _column(self, values: list[Any]) -> pa.Array:
        """Return values as a column, which keeps them as they are, or raise."""
        column = pa.array(values, self.type)
        check_kept(values, self.type, is_declared=True, leaves_out=True)
        return column


class JsonFormat(ValueFormat):
    """JSON objects. Fields that a value lacks are null, those that the schema lacks are left out.

    Times, dates and times of day are text by ISO 8601, to the microsecond; a time without a zone is
    of UTC. Decimals are numbers, with each of their digits, or text; binary is text in Base64. Of
    several fields of one name the last one counts. What a column would change is an error: 1.5 is
    no whole number.

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

    def __getstate__(self) -> dict[str, Any]:
        return {"_type": self._type}

    @property
    def type(self) -> pa.DataType:
        return self._type

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[dict[str, Any]]:
        return msgspec.json.Decoder(_fields(self._type))

    def __call__(self, data: bytes) -> Any:
        return self._decoder.decode(data)

    def _read_all(self, values: Sequence[bytes]) -> Iterable[Any]:
        # One by one: `decode_lines` takes two on a line for two, and half a one with the next line.
        return list(map(self._decoder.decode, values))


def _fields(struct: pa.StructType) -> Any:
    fields = {field.name: _json_type(field.type) for field in struct}
    return TypedDict("object", fields, total=False)  # type: ignore[operator]


def _json_type(kind: pa.DataType) -> Any:
    """Return what msgspec reads for a column's type; null goes everywhere."""
    if types.is_dictionary(kind):
        return _json_type(kind.value_type)
    found: Any = Any
    if types.is_struct(kind):
        found = _fields(kind)
    elif types.is_map(kind):
        is_number = types.is_integer(kind.key_type)
        found = dict[int if is_number else str, _json_type(kind.item_type)]  # type: ignore[misc]
    elif types.is_nested(kind) and not types.is_union(kind):
        found = list[_json_type(kind.value_type)]  # type: ignore[misc]
    else:
        for is_one, read in _JSON_TYPES:
            if is_one(kind):
                found = read
    return found | None


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
        self.schema = schema
        self._type = arrow_type(self._parsed)
        if not pa.types.is_struct(self._type):
            raise ValueError("the values' schema must be a record")

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
            return _parse(self.schema)
        except ValueError as error:
            raise ValueError(f"{refused('schema', self.schema, _AVRO)} ({error})") from None

    @cached_property
    def _writers(self) -> dict[int, Any]:
        return {}

    def __call__(self, data: bytes) -> Any:
        (value,) = self._read_all([data])
        return value

    def _read_all(self, values: Sequence[bytes]) -> Iterable[Any]:
        from fastavro import schemaless_reader
        from fastavro.read import SchemaResolutionError

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
            try:
                read.append(_whole(schemaless_reader, data, _PREFIX, writer, reader))
            except SchemaResolutionError as error:
                raise ValueError(f"its schema {number} does not fit: {error}") from error
        return read

    def _fetch(self, number: int) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            found = self._client.get_schema(number)
        except SchemaRegistryError as error:
            if error.http_status_code == 404:
                raise ValueError(f"the registry has no schema {number}") from error
            raise
        return _parse(found.schema_str)


class ProtobufFormat(ValueFormat):
    """Messages of Protocol Buffers, each a value of its own.

    Fields that say whether they are set are null where they are not. An enumeration's values are
    their names, times and durations those of Arrow. Bytes of another message, or some that were cut
    between two fields, may be read without an error: protobuf says neither type nor length.

    Args:
        message: The class that protoc made, or the message's full name in `descriptors`.
        descriptors: What ``protoc --include_imports --descriptor_set_out=FILE`` wrote: its path, or
            the bytes. It travels to the executors, as does what describes a class.

    Raises:
        MissingPackageError: protobuf is not installed.
        TypeError: `message` is neither, or a name comes without descriptors.
        ValueError: There is no such message, or it has no columns, as it is within itself.
        OSError: The file cannot be read.
    """

    def __init__(
        self, message: type[Any] | str, descriptors: bytes | str | os.PathLike[str] | None = None
    ) -> None:
        given: object = getattr(message, "DESCRIPTOR", None)
        if isinstance(message, str) and descriptors is not None:
            self._name = message
        elif isinstance(message, type) and given is not None and descriptors is None:
            self._name = message.DESCRIPTOR.full_name
            descriptors = _protobuf_rows().descriptor_set(message)
        else:
            accepted = "a class that protoc made, or a message's name with descriptors="
            raise TypeError(refused("message", message, accepted))
        if not isinstance(descriptors, bytes):
            descriptors = Path(descriptors).read_bytes()
        self._descriptors = descriptors
        _ = self._made

    def __repr__(self) -> str:
        return f"ProtobufFormat({self._name!r}, …)"

    def __getstate__(self) -> dict[str, Any]:
        return {"_name": self._name, "_descriptors": self._descriptors}

    @cached_property
    def _made(self) -> tuple[Callable[[bytes], Any], pa.DataType, Callable[[Any], Any]]:
        rows = _protobuf_rows()
        message = rows.message_of(self._descriptors, self._name)
        return message.FromString, *rows.row_type(message.DESCRIPTOR)

    @property
    def type(self) -> pa.DataType:
        return self._made[1]

    def __call__(self, data: bytes) -> Any:
        (value,) = self._read_all([data])
        return value

    def _read_all(self, values: Sequence[bytes]) -> Iterable[Any]:
        from google.protobuf.message import Error

        read, _, row = self._made
        try:
            messages = list(map(read, values))
        except Error as error:
            raise ValueError(f"it is no whole {self._name}: {error}") from error
        for message in messages:
            if not message.IsInitialized():
                missing = ", ".join(message.FindInitializationErrors())
                raise ValueError(f"it is no whole {self._name}: it lacks {missing}")
        return list(map(row, messages))


def _protobuf_rows() -> Any:
    try:
        from penstock.sources import _protobuf
    except ImportError as error:
        packages = "the package protobuf on the driver and on every executor"
        raise MissingPackageError("a value in protobuf", packages, "protobuf") from error
    return _protobuf


class FunctionFormat(ValueFormat):
    """Values that a function of the program reads, many with a call.

    It is called with a `list` of `bytes` and returns as many values, each a `dict` with the fields
    of the schema: a `list`, or a `pyarrow` struct array or record batch. Where it raises, or
    returns another number, it is called again with each one, to find out which cannot be read. It
    runs in the receiver's thread that stores.

    Args:
        function: The function; pickled with the receiver.
        schema: As for `JsonFormat`.

    Raises:
        TypeError: It is no function, or the schema of another type.
        ValueError: As for `JsonFormat`.
    """

    def __init__(
        self,
        function: Callable[[list[bytes]], Any],
        schema: StructType | pa.Schema | str,
    ) -> None:
        if not callable(function):
            raise TypeError(refused("function", function, "a function of a list of bytes"))
        self._function = function
        self._type = JsonFormat(schema).type

    @property
    def type(self) -> pa.DataType:
        return self._type

    def __call__(self, data: bytes) -> Any:
        read = self._read_all([data])
        return read[0].as_py() if isinstance(read, pa.Array) else next(iter(read))

    def _read_all(self, values: Sequence[bytes]) -> Iterable[Any]:
        try:
            read = self._function(list(values))
            read = read.to_struct_array() if isinstance(read, pa.RecordBatch) else read
            are_rows = isinstance(read, pa.StructArray) or set(map(type, read)) <= {dict}
        except Exception as error:  # the program's function; the value is told
            raise ValueError(typed_text(error)) from error
        if not are_rows or len(read) != len(values):
            raise ValueError(f"the function gave no {len(values)} dicts, but {read!r:.80}")
        return read  # type: ignore[no-any-return]  # as the function promised


def _parse(text: str) -> Any:
    """Return a schema as fastavro takes it, where names are whole and a UUID is text.

    Raises:
        MissingPackageError: fastavro is not installed.
        ValueError: It is none.
    """
    try:
        from fastavro.schema import SchemaParseException, UnknownType, parse_schema
    except ImportError as error:
        raise _missing() from error

    def without_uuid(given: dict[str, Any]) -> dict[str, Any]:
        return {
            name: value for name, value in given.items() if (name, value) != ("logicalType", "uuid")
        }

    try:
        return parse_schema(json.loads(text, object_hook=without_uuid))
    except (SchemaParseException, UnknownType, LookupError, TypeError) as error:
        raise ValueError(typed_text(error)) from None


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
# Units are Avro's own: a value that was written as a plain number counts in them.
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_DIGITS = 38
"""Of Spark's decimals."""


def arrow_type(schema: Any, known: dict[str, pa.DataType] | None = None) -> pa.DataType:
    """Return the type.

    Args:
        schema: As `_parse` gives it.
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
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        if schema["precision"] > _DIGITS:
            raise ValueError(f"a decimal of {schema['precision']} digits: Spark has {_DIGITS}")
        found = pa.decimal128(schema["precision"], schema.get("scale", 0))
    else:
        # A logical type of another type than its own is none.
        found = _LOGICAL.get((kind, logical)) or _complex(kind, schema, known)
    if "name" in schema:
        known[schema["name"]] = found
    return found


def _complex(kind: Any, schema: dict[str, Any], known: dict[str, pa.DataType]) -> pa.DataType:
    if kind in ("record", "error"):
        fields = [(each["name"], arrow_type(each["type"], known)) for each in schema["fields"]]
        return pa.struct(fields)
    if kind == "array":
        return pa.list_(arrow_type(schema["items"], known))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(schema["values"], known))
    return arrow_type(kind, known)
