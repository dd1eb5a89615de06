"""Values of messages as typed columns, with what cannot be read kept apart.

By JSON, Avro, Protocol Buffers, or a function of the user's.

A format reads a whole column at a time. Only when something in it cannot be read, it goes through
the column value by value to find out what.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import pyarrow as pa
from pyarrow import types

from penstock._arguments import refused
from penstock.blockstore.building.kept_values import check_cast, check_kept, check_made
from penstock.errors import MissingPackageError, typed_text
from penstock.receiver.forms.short_forms import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_UNREADABLE = (
    *(ValueError, TypeError, OverflowError, RecursionError, pa.ArrowException),
    *(AttributeError, LookupError),  # of what is of another shape than its type
)

_JSON_TYPES: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (types.is_timestamp, datetime),
    (types.is_date, date),
    (types.is_time, time),
    (types.is_duration, timedelta),
    (types.is_decimal, Decimal),
    (types.is_binary, bytes),
    (types.is_large_binary, bytes),
    (types.is_binary_view, bytes),
    (types.is_fixed_size_binary, bytes),
    (types.is_floating, float),
)
"""What JSON has no values for of its own, and floats, which it may write as whole numbers (1e20 has
21 digits as JavaScript does); the column refuses others that are not its own."""


class _LooseDatetime(ABC):  # noqa: B024 - a name for the decoder, of which each `datetime` is one
    """A time as more write it than RFC 3339 has it.

    Java leaves out seconds that are zero, PostgreSQL the minutes of a zone. Digits beyond the
    microsecond are cut off, as Spark does it; msgspec rounds them: of 23:59:59.9999999 it makes the
    next day, or of a time of day the first.
    """


class _LooseTime(ABC):  # noqa: B024
    """The same of a time of day."""


class _LooseFloat(ABC):  # noqa: B024
    """A float, or the text that Spark writes and reads for one that is no number."""


_LooseDatetime.register(datetime)
_LooseTime.register(time)
_LooseFloat.register(float)
_LOOSE: dict[Any, Any] = {datetime: _LooseDatetime, time: _LooseTime, float: _LooseFloat}
_STRICT = {loose: kind for kind, loose in _LOOSE.items()}
_IS_FINER = re.compile(rb"\.\d{7}(?<=:\d\d\.\d{7})").search
"""The point is looked for, since there are fewer than colons."""
_TIME = re.compile(
    r"((?:\d{4}-\d\d-\d\d[Tt ])?\d\d:\d\d)(?:(:\d\d)(?:(\.\d{1,6})\d*)?)?"
    r"([Zz]|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)
_NO_NUMBERS = {
    "NaN": math.nan,
    **dict.fromkeys(("Infinity", "+Infinity", "INF", "+INF"), math.inf),
    **dict.fromkeys(("-Infinity", "-INF"), -math.inf),
}
_WHOLE_AS_FLOAT = 1 << 53
_LARGEST_WHOLE = 1 << 65

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
    """Makes structs of bytes. Called with bytes it makes a `dict`, so it is also a deserializer."""

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
                check_cast(read.type, self.type, leaves_out=True)
                made = read.cast(self.type)
                check_made(read, made)
                return ReadValues(made, nothing.corrupt, nothing.errors)
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
        check_kept(values, self.type, is_declared=True, leaves_out=True)
        return pa.array(values, self.type)


class JsonFormat(ValueFormat):
    """JSON objects. Fields that a value lacks are null, those that the schema lacks are left out.

    Times, dates and times of day are text by RFC 3339, also without seconds or a zone's minutes; a
    time without a zone is of UTC, and what is beyond the microsecond is cut off. Durations are text
    by ISO 8601, such as ``PT1.5S``. Decimals are numbers, with each of their digits, or text;
    binary is text in Base64. Of several fields of one name the last one counts. What a column would
    change is an error: 1.5 is no whole number. A column of floats has the digits that it can have,
    and takes ``"NaN"`` and ``"Infinity"``.

    Args:
        schema: The fields: Spark's or Arrow's schema, or text such as ``"id bigint, name string"``,
            which needs a SparkContext.

    Raises:
        TypeError: The schema is of another type.
        ValueError: The text cannot be read, the fields have not one name each, or one has a type
            that JSON is not read as, such as a union or Spark's VARIANT.
    """

    def __init__(self, schema: StructType | pa.Schema | str) -> None:
        self._type = _struct(schema)
        try:
            pa.array([], self._type)
        except pa.ArrowNotImplementedError as error:
            raise ValueError(f"JSON is not read as a type of the schema: {error}") from None
        _fields(self._type, {})

    def __getstate__(self) -> dict[str, Any]:
        return {"_type": self._type}

    @property
    def type(self) -> pa.DataType:
        return self._type

    @cached_property
    def _read(self) -> Callable[[bytes], Any]:
        def decode(loose: Mapping[Any, Any]) -> Callable[[bytes], Any]:
            fields = _fields(self._type, loose)
            return msgspec.json.Decoder(fields, float_hook=_number, dec_hook=_loosely).decode

        strict, loosely = decode({}), decode(_LOOSE)

        def read(data: bytes) -> Any:
            if _IS_FINER(data):
                return loosely(data)
            try:
                return strict(data)
            except msgspec.ValidationError:
                return loosely(data)

        return read

    def __call__(self, data: bytes) -> Any:
        return self._read(data)

    def _read_all(self, values: Sequence[bytes]) -> Iterable[Any]:
        # One by one: `decode_lines` takes two on a line for two, and half a one with the next line.
        return list(map(self._read, values))


def _struct(schema: Any) -> pa.DataType:
    found = arrow_schema(schema)
    if found is None:
        raise TypeError("JsonFormat needs a schema: one of Spark's or Arrow's, or DDL as text")
    return pa.struct(list(found))


def _loosely(loose: Any, given: Any) -> Any:
    """Return what a decoder found for one of `_LOOSE`.

    Raises:
        ValueError: It is no such thing.
    """
    kind = _STRICT[loose]
    if kind is float:
        given = _NO_NUMBERS.get(given, given) if isinstance(given, str) else given
    elif isinstance(given, str) and (found := _TIME.fullmatch(given)) is not None:
        minutes, seconds, fraction, zone = (part or "" for part in found.groups())
        zone += ":00" if len(zone) == 3 else ""
        given = f"{minutes}{seconds or ':00'}{fraction}{zone}"
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None  # so that the place is also shown


def _number(text: str) -> Decimal | float:
    """Return a number with a fraction or an exponent where it stands for a whole one, or nowhere.

    Raises:
        ValueError: It is too large for a float.
    """
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text} is too large for a float")
    # There a float has not each whole number.
    return Decimal(text) if _WHOLE_AS_FLOAT <= abs(found) < _LARGEST_WHOLE else found


def _fields(struct: pa.StructType, loose: Mapping[Any, Any]) -> Any:
    fields = {field.name: _json_type(field.type, loose) for field in struct}
    if any(b"variant" in (field.metadata or {}) for field in struct):
        raise ValueError("JSON is not read as Spark's VARIANT; take STRING for its text")
    return TypedDict("object", fields, total=False)  # type: ignore[operator]


def _json_type(kind: pa.DataType, loose: Mapping[Any, Any]) -> Any:
    """Return what msgspec reads for a column's type; null goes everywhere."""
    if types.is_dictionary(kind):
        return _json_type(kind.value_type, loose)
    found: Any = Any
    if types.is_struct(kind):
        found = _fields(kind, loose)
    elif types.is_map(kind):
        key = _scalar_type(kind.key_type)
        if key is Any:
            key = int if types.is_integer(kind.key_type) else str
        # Of a key that is a number it is msgspec that knows the text.
        key = key if key is float else loose.get(key, key)
        found = dict[key, _json_type(kind.item_type, loose)]  # type: ignore[valid-type, misc]
    elif types.is_nested(kind):
        found = list[_json_type(kind.value_type, loose)]  # type: ignore[misc]
    else:
        read = _scalar_type(kind)
        found = loose.get(read, read)
    return found | None


def _scalar_type(kind: pa.DataType) -> Any:
    return next((read for is_one, read in _JSON_TYPES if is_one(kind)), Any)


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
            latest = self._client.get_latest_version
            self._texts = self._asked(lambda: latest(subject).schema, f"of the subject {subject!r}")
        elif isinstance(schema, str):
            self._texts = [schema]
        else:
            raise TypeError(refused("schema", schema, _AVRO))
        known: dict[str, pa.DataType] = {}
        *_, self._type = (arrow_type(each, known) for each in self._parsed)
        if not pa.types.is_struct(self._type):
            raise ValueError("the values' schema must be a record")
        if not self._type.num_fields:
            raise ValueError("the values' schema has no fields")

    def __repr__(self) -> str:
        return f"AvroFormat({self.schema!r}, …)"

    def __getstate__(self) -> dict[str, Any]:
        # What a process has parsed and connected to is its own.
        own = ("_registry", "_type", "_texts")
        return {name: value for name, value in vars(self).items() if name in own}

    @property
    def schema(self) -> str:
        """The schema, as JSON."""
        return self._texts[-1]

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
    def _parsed(self) -> list[Any]:
        known: dict[str, Any] = {}
        try:
            parsed = _parse(self._texts)
            for each in parsed:
                _read_defaults(each, known)
            return parsed
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

        reader = self._parsed[-1]
        if self._registry is None:
            return [_whole(schemaless_reader, data, 0, reader, reader) for data in values]
        read = []
        for data in values:
            if len(data) < _PREFIX or data[0] != _MAGIC:
                raise ValueError("it is not in the wire format of a schema registry")
            number = int.from_bytes(data[1:_PREFIX], "big")
            writer = self._writers.get(number)
            if writer is None:
                texts = self._asked(partial(self._client.get_schema, number), str(number))
                writer = self._writers[number] = _parse(texts)[-1]
            try:
                read.append(_whole(schemaless_reader, data, _PREFIX, writer, reader))
            except SchemaResolutionError as error:
                raise ValueError(f"its schema {number} does not fit: {error}") from error
        return read

    def _asked(self, ask: Callable[[], Any], which: str) -> list[str]:
        """Return what the registry says: a schema, behind those that it refers to.

        Raises:
            ValueError: There is none, or it is none of Avro's.
        """
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return self._texts_of(ask(), set())
        except SchemaRegistryError as error:
            if error.http_status_code == 404:
                raise ValueError(f"the registry has no schema {which}") from error
            raise

    def _texts_of(self, found: Any, known: set[str]) -> list[str]:
        """Return a schema of the registry as text, behind those that it refers to.

        Args:
            found: The schema.
            known: The names of those that it has already; more are added.

        Raises:
            ValueError: It is none of Avro's.
        """
        if (kind := found.schema_type or "AVRO") != "AVRO":
            raise ValueError(f"the registry has a schema of {kind} there, not of Avro")
        texts: list[str] = []
        for each in found.references or ():
            if each.name not in known:
                known.add(each.name)
                referred = self._client.get_version(each.subject, each.version).schema
                texts += self._texts_of(referred, known)
        return [*texts, found.schema_str]


class ProtobufFormat(ValueFormat):
    """Messages of Protocol Buffers, each a value of its own.

    Fields that say whether they are set are null where they are not. An enumeration's values are
    their names, times and durations are Arrow's. Bytes of another message, or some that were cut
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
        self._type = _struct(schema)

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
        except Exception as error:  # the program's function; the value is shown
            raise ValueError(typed_text(error)) from error
        if not are_rows or len(read) != len(values):
            raise ValueError(f"the function gave no {len(values)} dicts, but {read!r:.80}")
        return read  # type: ignore[no-any-return]  # as the function promised


def _parse(texts: Sequence[str]) -> list[Any]:
    """Return schemas as fastavro takes them, where names are whole and a UUID is text.

    Args:
        texts: The schemas; one may name what those before it define.

    Raises:
        MissingPackageError: fastavro is not installed.
        ValueError: One is none.
    """
    try:
        from fastavro.schema import SchemaParseException, UnknownType, parse_schema
    except ImportError as error:
        raise _missing() from error

    def without_uuid(given: dict[str, Any]) -> dict[str, Any]:
        return {
            name: value for name, value in given.items() if (name, value) != ("logicalType", "uuid")
        }

    named: dict[str, Any] = {}
    whole: dict[Any, Any] = {}
    found: list[Any] = []
    try:
        for text in texts:
            parsed = parse_schema(json.loads(text, object_hook=without_uuid), named)
            if isinstance(parsed, list):
                # What a name in it stands for, fastavro's reader would not find.
                parsed = [whole.get(str(each), each) for each in parsed]
            elif isinstance(parsed, dict):
                whole[parsed.get("name")] = parsed
            found.append(parsed)
    except (SchemaParseException, UnknownType, LookupError, TypeError) as error:
        raise ValueError(typed_text(error)) from None
    return found


def _read_defaults(schema: Any, known: dict[str, Any]) -> None:
    """Make the defaults in a schema what values would be that were read.

    fastavro gives them as they stand in JSON: bytes are text, and records may lack fields.

    Args:
        schema: As `_parse` gives it; changed in place.
        known: Schemas by the names that have been defined so far.

    Raises:
        ValueError: One is not of its field's type.
    """
    if isinstance(schema, list):
        for each in schema:
            _read_defaults(each, known)
    elif isinstance(schema, dict):
        if "name" in schema:
            known[schema["name"]] = schema
        for part in ("items", "values"):
            _read_defaults(schema.get(part), known)
        for field in schema.get("fields", ()):
            _read_defaults(field["type"], known)
            if "default" in field:
                try:
                    field["default"] = _default(field["type"], field["default"], known)
                except (TypeError, AttributeError, ValueError, LookupError, ArithmeticError):
                    name, default = field["name"], field["default"]
                    raise ValueError(f"the default of {name} is none: {default!r:.80}") from None


def _default(schema: Any, value: Any, known: Mapping[str, Any]) -> Any:
    """Return a default as it is read. Avro 1.12, "Complex Types", "Field default values"."""
    if isinstance(schema, list):
        if value is None:
            return None
        # A union of others has no column.
        schema = next(each for each in schema if each != "null")
    if isinstance(schema, str):
        schema = known.get(schema, {"type": schema})
    kind = schema["type"]
    if kind in ("bytes", "fixed"):
        data = value.encode("latin-1")
        if schema.get("logicalType") != "decimal":
            return data
        number = Decimal(int.from_bytes(data, "big", signed=True))
        return number.scaleb(-schema.get("scale", 0), Context(prec=_DIGITS))
    if kind in ("float", "double"):
        return float(value)
    if kind == "array":
        return [_default(schema["items"], each, known) for each in value]
    if kind == "map":
        return {key: _default(schema["values"], each, known) for key, each in value.items()}
    if kind in ("record", "error"):
        return {
            field["name"]: _default(field["type"], value[field["name"]], known)
            if field["name"] in value
            else field["default"]
            for field in schema["fields"]
        }
    return value


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
        digits = schema.get("precision", 0)
        if not 0 < digits <= _DIGITS:
            raise ValueError(f"a decimal of {digits} digits: Spark has 1 to {_DIGITS}")
        found = pa.decimal128(digits, schema.get("scale", 0))
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
