"""Messages of Protocol Buffers as Arrow's types, and as rows for these.

Source: https://protobuf.dev/programming-guides/proto3, "Scalar Value Types".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

_SCALARS = {
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.uint32(),
    FieldDescriptor.CPPTYPE_UINT64: pa.uint64(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}
_WRAPPERS = "google/protobuf/wrappers.proto"
_TIMES = {
    "google.protobuf.Timestamp": pa.timestamp("us", "UTC"),
    "google.protobuf.Duration": pa.duration("us"),
}

Make = Callable[[Any], Any]
"""Makes a value of Python of one of protobuf's."""


def descriptor_set(message: type[Any]) -> bytes:
    """Return a `FileDescriptorSet` with the file of a message's class and all that it imports."""
    found: dict[str, FileDescriptor] = {}

    def add(file: FileDescriptor) -> None:
        if file.name not in found:
            for each in file.dependencies:
                add(each)
            found[file.name] = file

    add(message.DESCRIPTOR.file)
    files = descriptor_pb2.FileDescriptorSet()
    for file in found.values():
        file.CopyToProto(files.file.add())
    return bytes(files.SerializeToString())


def message_of(descriptors: bytes, name: str) -> type[Any]:
    """Return the class of a message that a `FileDescriptorSet` describes.

    Raises:
        ValueError: These are none, or there is no such message.
    """
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        made: type[Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        raise ValueError(f"the descriptors have no message {name}, or lack what it needs") from None
    except Exception as error:
        raise ValueError(
            "the descriptors are not what protoc --include_imports --descriptor_set_out=FILE "
            f"writes: {error}"
        ) from error
    return made


def row_type(message: Descriptor, above: tuple[str, ...] = ()) -> tuple[pa.DataType, Make]:
    """Return the struct of a message, and what makes a row of one.

    A field that says whether it is set is null where it is not; others have their default.

    Raises:
        ValueError: A message is within itself, so that there is none.
    """
    if message.full_name in above:
        raise ValueError(f"{message.full_name} is within itself, and so has no columns")
    above = (*above, message.full_name)
    columns: list[tuple[str, pa.DataType]] = []
    makers: list[tuple[str, bool, Make | None]] = []
    for field in message.fields:
        kind, make = _field_type(field, above)
        columns.append((field.name, kind))
        makers.append((field.name, field.has_presence, make))

    def row(found: Any) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, has_presence, make in makers:
            if has_presence and not found.HasField(name):
                made[name] = None
            else:
                value = getattr(found, name)
                made[name] = value if make is None else make(value)
        return made

    return pa.struct(columns), row


def _field_type(field: FieldDescriptor, above: tuple[str, ...]) -> tuple[pa.DataType, Make | None]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        key, _ = _value_type(entry["key"], above)
        kind, make = _value_type(entry["value"], above)
        if make is None:
            return pa.map_(key, kind), lambda found: list(found.items())
        return pa.map_(key, kind), lambda found: [(at, make(each)) for at, each in found.items()]
    kind, make = _value_type(field, above)
    if not field.is_repeated:
        return kind, make
    return pa.list_(kind), list if make is None else lambda found: list(map(make, found))


def _value_type(field: FieldDescriptor, above: tuple[str, ...]) -> tuple[pa.DataType, Make | None]:
    message = field.message_type
    if field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        # A newer sender may have numbers that have no name here.
        return pa.string(), lambda number: names.get(number, str(number))
    if message is None:
        is_bytes = field.type == FieldDescriptor.TYPE_BYTES
        return pa.binary() if is_bytes else _SCALARS[field.cpp_type], None
    if message.full_name in _TIMES:
        # What is beyond the microsecond is cut off; what no time of protobuf's is, raises.
        return _TIMES[message.full_name], lambda found: found.ToMicroseconds()
    if message.file.name == _WRAPPERS:
        kind, _ = _value_type(message.fields_by_name["value"], above)
        return kind, lambda found: found.value
    return row_type(message, above)
