"""What comes of bad messages: the same table for each format of values."""

from __future__ import annotations

import io
import json
import math
import pickle
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import (
    descriptor_pb2,
    duration_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import from_json

from penstock.sources.formats import (
    AvroFormat,
    FunctionFormat,
    JsonFormat,
    ProtobufFormat,
    ValueFormat,
)

ROW = pa.schema(
    [
        ("number", pa.int64()),
        ("text", pa.string()),
        ("ratio", pa.float32()),
        ("items", pa.list_(pa.int32())),
    ]
)
AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "text", "type": "string"},
        {"name": "ratio", "type": "float"},
        {"name": "items", "type": {"type": "array", "items": "int"}},
    ],
}
LABELS = {"number": 3, "text": 9, "ratio": 2, "items": 5}
GOOD = {"number": 7, "text": "seven", "ratio": 0.5, "items": [1, 2]}
DEEP = 100_000


def described() -> bytes:
    """Return what protoc writes of the same row; and of a message within itself."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="row.proto", package="tests", syntax="proto3")
    row = file.message_type.add(name="Row")
    for number, (name, kind) in enumerate(LABELS.items(), 1):
        label = 3 if name == "items" else 1
        row.field.add(name=name, number=number, type=kind, label=label)
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="below", number=1, type=11, label=3, type_name=".tests.Tree")
    return files.SerializeToString()


PROTOBUF = ProtobufFormat("tests.Row", described())


def avro(row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(dict(AVRO)), row)
    return stream.getvalue()


def protobuf(row: dict[str, Any]) -> bytes:
    items = b"".join(b"\x20" + bytes([each]) for each in row["items"])
    text = row["text"].encode()
    return b"".join(
        [
            b"\x08" + bytes([row["number"]]),
            b"\x12" + bytes([len(text)]) + text,
            b"\x1d" + struct.pack("<f", row["ratio"]),
            items,
        ]
    )


def by_function(values: list[bytes]) -> list[Any]:
    return [json.loads(value) for value in values]


def to_json(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode()


FORMATS: dict[str, tuple[ValueFormat, Callable[[dict[str, Any]], bytes]]] = {
    "json": (JsonFormat(ROW), to_json),
    "avro": (AvroFormat(json.dumps(AVRO)), avro),
    "protobuf": (PROTOBUF, protobuf),
    "function": (FunctionFormat(by_function, ROW), to_json),
}
TEXT = {"json", "function"}
ALL = set(FORMATS)

BAD: list[tuple[str, set[str], bytes | Callable[[bytes], bytes]]] = [
    ("cut by a byte", ALL, lambda good: good[:-1]),
    ("cut in the middle", ALL - {"protobuf"}, lambda good: good[: len(good) // 2]),
    ("empty", ALL - {"protobuf"}, b""),
    ("spaces", ALL, b"   "),
    ("zeros", ALL, bytes(40)),
    ("bytes behind it", ALL, lambda good: good + b"\xff\xff\xff"),
    ("twice", ALL - {"protobuf"}, lambda good: good + good),
    ("twice, a line each", ALL - {"protobuf"}, lambda good: good + b"\n" + good),
    ("compressed", ALL, b"\x1f\x8b\x08" + bytes(20)),
    ("UTF-16", {"json"}, lambda good: b"\xff\xfe" + good.decode().encode("utf-16-le")),
    ("a BOM", {"json"}, lambda good: b"\xef\xbb\xbf" + good),
    ("invalid UTF-8", ALL, lambda good: good.replace(b"seven", b"se\xffen")),
    ("half a surrogate", {"json"}, rb'{"text": "\ud800"}'),
    ("lists, deep", TEXT, b"[" * DEEP + b"]" * DEEP),
    ("objects, deep", TEXT, b'{"number":' * DEEP + b"1" + b"}" * DEEP),
    ("groups, deep", {"protobuf"}, b"\x2b" * DEEP + b"\x2c" * DEEP),
    ("a list without end", {"avro"}, b"\x0e\x0aseven\0\0\0\0" + b"\x01" * 20),
    ("a length of terabytes", {"avro"}, b"\x0e" + b"\xff" * 6 + b"\x7f"),
    ("a length below zero", {"avro"}, b"\x0e\x03x"),
    ("a varint without end", {"avro", "protobuf"}, b"\x08" + b"\xff" * 30),
    ("a list", TEXT, b"[1]"),
    ("a null", TEXT, b"null"),
    ("a text", TEXT, b'"seven"'),
    ("NaN", {"json"}, b'{"ratio": NaN}'),
    ("infinity", {"json"}, b'{"ratio": -Infinity}'),
    ("a fraction for a whole number", TEXT, b'{"number": 1.5}'),
    ("a text for a number", TEXT, b'{"number": "7"}'),
    ("a truth for a number", TEXT, b'{"number": true}'),
    ("a number for a text", TEXT, b'{"text": 7}'),
    ("an object for a text", TEXT, b'{"text": {}}'),
    ("a number for a list", TEXT, b'{"items": 7}'),
    ("an object for a list", TEXT, b'{"items": {"0": 1}}'),
    ("a text in a list", TEXT, b'{"items": [1, "2"]}'),
    ("a number that is too large", TEXT, b'{"number": 99999999999999999999}'),
    ("a number too large for the list", TEXT, b'{"items": [4294967296]}'),
    ("a fraction too large for its column", TEXT, b'{"ratio": 1e39}'),
    ("a fraction too large for any", {"json"}, b'{"ratio": 1e999}'),
    ("single quotes", TEXT, b"{'number': 7}"),
    ("a comma too many", TEXT, b'{"number": 7,}'),
    ("a comment", TEXT, b'{"number": 7} // seven'),
]


def read(form: ValueFormat, values: list[bytes | None]) -> tuple[list[Any], list[Any], list[Any]]:
    found = form.read(pa.array(values, pa.binary()))
    assert found.values.type == form.type
    return found.values.to_pylist(), found.corrupt.to_pylist(), found.errors.to_pylist()


CASES = [
    pytest.param(name, bad, id=f"{name}-{what}")
    for what, names, bad in BAD
    for name in sorted(names)
]


@pytest.mark.parametrize(("name", "bad"), CASES)
def test_a_bad_message_is_told_with_its_reason_and_costs_no_other(name: str, bad: Any) -> None:
    form, write = FORMATS[name]
    good = write(GOOD)
    poison = bad(good) if callable(bad) else bad
    values, corrupt, errors = read(form, [good, poison, good])
    assert values == [GOOD, None, GOOD]
    assert corrupt == [None, poison, None]
    assert errors[1]
    assert [errors[0], errors[2]] == [None, None]


@pytest.mark.parametrize("name", sorted(ALL))
def test_good_messages_are_read_in_their_order_by_another_process(name: str) -> None:
    form, write = FORMATS[name]
    rows = [{**GOOD, "number": number} for number in range(100)]
    if name == "function":  # of this module, which is not pickled by value here
        form = FunctionFormat(by_function, ROW)
    sent = pickle.loads(pickle.dumps(form))
    given = [*map(write, rows), None]
    assert read(sent, given) == ([*rows, None], [None] * 101, [None] * 101)


@pytest.mark.parametrize("name", sorted(TEXT))
def test_bad_messages_together_never_look_like_good_ones(name: str) -> None:
    """One that holds two and one that holds none are as many as two; so are two halves and two."""
    form, _ = FORMATS[name]
    two, half, rest = b'{"number": 1}{"number": 2}', b'{"number":', b"3}"
    for given in ([two, b""], [half, rest, two], [two, half, rest], [b"", two]):
        values, corrupt, _ = read(form, given)
        assert values == [None] * len(given)
        assert corrupt == given


def test_of_doubled_keys_the_last_one_counts() -> None:
    values, _, errors = read(JsonFormat(ROW), [b'{"number": 1, "number": 2}'])
    assert values[0]["number"] == 2
    assert errors == [None]


def test_fields_that_the_schema_lacks_are_left_out_wherever_they_are() -> None:
    inner = pa.struct([("kept", pa.int64())])
    form = JsonFormat(pa.schema([("inner", inner), ("many", pa.list_(inner))]))
    given = b'{"inner": {"kept": 1, "b": 2}, "many": [{"b": 3}, {"kept": 4}], "c": [5]}'
    row = {"inner": {"kept": 1}, "many": [{"kept": None}, {"kept": 4}]}
    assert read(form, [given]) == ([row], [None], [None])
    poison = b'{"inner": {"kept": 1.5, "b": 2}}'
    assert read(form, [poison])[1] == [poison]


_SIX = pa.decimal128(6, 2)
_UTC, _ZONE = pa.timestamp("us", "UTC"), timezone.utc


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (_UTC, '"2020-01-01T02:00:00.5+02:00"', datetime(2020, 1, 1, 0, 0, 0, 500_000, _ZONE)),
        (_UTC, '"2020-01-01 00:00:00"', datetime(2020, 1, 1, tzinfo=_ZONE)),
        (pa.timestamp("us"), '"2020-01-01T00:00:00"', datetime(2020, 1, 1)),
        (pa.date32(), '"1969-12-31"', date(1969, 12, 31)),
        (pa.time64("us"), '"10:00:00.25"', time(10, 0, 0, 250_000)),
        (_SIX, "1.10", Decimal("1.10")),
        (_SIX, '"1.10"', Decimal("1.10")),
        (pa.decimal128(38, 0), "9" * 38, Decimal("9" * 38)),
        (pa.binary(), '"AQI="', b"\1\2"),
        (pa.binary(2), '"AQI="', b"\1\2"),
        (pa.binary_view(), '"AQI="', b"\1\2"),
        (pa.duration("us"), '"-PT1.5S"', timedelta(seconds=-1.5)),
        (pa.int64(), "1.0", 1),
        # A float is no whole number of these.
        (pa.int64(), "9007199254740993.0", 9_007_199_254_740_993),
        (pa.int64(), "-9007199254740993.0", -9_007_199_254_740_993),
        (pa.int64(), "9223372036854775807.0", 9_223_372_036_854_775_807),
        # As JavaScript writes 1e20 and 2^63.
        (pa.float64(), "100000000000000000000", 1e20),
        (pa.float64(), "9223372036854776000", 2.0**63),
        # As Java and C write the largest one.
        (pa.float32(), "3.4028235e38", float.fromhex("0x1.fffffep+127")),
        # Spark, too, cuts off what is beyond the microsecond; in .NET there are seven digits.
        (_UTC, '"9999-12-31T23:59:59.9999999Z"', datetime.max.replace(tzinfo=_ZONE)),
        (
            _UTC,
            '"1969-12-31T23:59:59.9999999Z"',
            datetime(1969, 12, 31, 23, 59, 59, 999_999, _ZONE),
        ),
        (pa.time64("us"), '"23:59:59.9999999"', time.max),
        (pa.list_(pa.timestamp("us")), '["2020-01-01T00:00:00.0000009"]', [datetime(2020, 1, 1)]),
        # As OffsetDateTime and LocalTime of Java 17 write what has no seconds.
        (_UTC, '"2020-01-01T02:30Z"', datetime(2020, 1, 1, 2, 30, tzinfo=_ZONE)),
        (_UTC, '"2020-01-01T02:30+05:30"', datetime(2019, 12, 31, 21, tzinfo=_ZONE)),
        (pa.time64("us"), '"10:30"', time(10, 30)),
        # As PostgreSQL 15 writes a `timestamptz` as text.
        (_UTC, '"2020-01-01 02:30:00.5+02"', datetime(2020, 1, 1, 0, 30, 0, 500_000, _ZONE)),
        # As Spark 4.3.0, and a FileSink, write what JSON has no number for.
        (pa.float64(), '"Infinity"', math.inf),
        (pa.list_(pa.float32()), '["-Infinity", 1.5, 2, "INF"]', [-math.inf, 1.5, 2, math.inf]),
        (
            pa.list_(pa.float64()),
            '["INF", 1e17, 12345678901234567890]',
            [math.inf, 1e17, 12345678901234567890.0],
        ),
        (
            pa.map_(pa.float64(), pa.timestamp("us")),
            '{"1.5": "2020-01-01T00:00"}',
            [(1.5, datetime(2020, 1, 1))],
        ),
        (pa.map_(pa.date32(), pa.int64()), '{"2020-01-01": 1}', [(date(2020, 1, 1), 1)]),
        (
            pa.map_(pa.timestamp("us"), pa.int64()),
            '{"2020-01-01T00:00:00.0000009": 1}',
            [(datetime(2020, 1, 1), 1)],
        ),
        (pa.map_(pa.binary(), pa.int64()), '{"AQI=": 1}', [(b"\1\2", 1)]),
        (pa.map_(pa.int32(), pa.string()), '{"1": "a"}', [(1, "a")]),
        (pa.dictionary(pa.int32(), pa.binary()), '"AQI="', b"\1\2"),
        (pa.list_(pa.struct([("at", _UTC)])), '[{"at": null}]', [{"at": None}]),
        (pa.map_(pa.string(), _SIX), '{"a": 1}', [("a", Decimal("1.00"))]),
    ],
    ids=str,
)
def test_text_is_what_the_column_of_json_is_of(kind: pa.DataType, text: str, value: Any) -> None:
    form = pickle.loads(pickle.dumps(JsonFormat(pa.schema([("a", kind)]))))
    values, _, errors = read(form, [f'{{"a": {text}}}'.encode(), b'{"a": null}', b"{}"])
    assert errors == [None] * 3
    assert values == [{"a": value}, {"a": None}, {"a": None}]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        # Whether seconds or milliseconds are meant, nothing says.
        (_UTC, "1577836800"),
        (_UTC, '""'),
        (_UTC, '"10000-01-01T00:00:00Z"'),
        (pa.timestamp("us"), '"2020-01-01T00:00:00+02:00"'),
        (_UTC, '"2020-01-01T00:00:00.1234567"Z'),
        # In a year of UTC that Python has no times of.
        (_UTC, '"0001-01-01T00:00:00+02:00"'),
        (_UTC, '"9999-12-31T23:59:59-02:00"'),
        (pa.timestamp("ns"), "1577836800"),
        (pa.timestamp("ns"), "1.5"),
        (pa.duration("us"), "5"),
        (pa.duration("us"), "1.5"),
        (pa.float64(), "true"),
        (pa.float64(), '"1.5"'),
        (pa.float64(), '"nan"'),
        (_UTC, '"2020-01-01"'),
        (_UTC, '"2020-01-01T10:001"'),
        (_UTC, '"2020-01-01T10:00.5"'),
        (pa.time64("us"), '"10"'),
        (pa.int64(), "9007199254740993.5"),
        (pa.int64(), "9223372036854775808.0"),
        (pa.int64(), "1e999999999"),
        (pa.date32(), "5"),
        (pa.date32(), '"2020-02-30"'),
        (_SIX, "1.105"),
        (_SIX, "12345.0"),
        (_SIX, '"NaN"'),
        (_SIX, "1E+5000000"),
        # Of such numbers Arrow makes 0, and at some it ends the process.
        (_SIX, "1e-77"),
        (_SIX, '"-1e-77"'),
        (pa.list_(_SIX), "[0e-77]"),
        (pa.binary(), '"A"'),
        (pa.int64(), "1.5"),
        (pa.struct([("x", pa.int64())]), "[]"),
        (pa.struct([("x", pa.int64())]), '[["x", 5]]'),
        (pa.map_(pa.string(), pa.int64()), '[["x", 5]]'),
    ],
    ids=str,
)
def test_json_that_is_not_of_its_column_is_poison(kind: pa.DataType, text: str) -> None:
    form = JsonFormat(pa.schema([("a", kind)]))
    poison, good = f'{{"a": {text}}}'.encode(), b'{"a": null}'
    assert read(form, [good, poison, good])[1] == [None, poison, None]


def test_the_error_of_json_names_the_place() -> None:
    form = JsonFormat(pa.schema([("at", pa.list_(_UTC))]))
    (error,) = read(form, [b'{"at": ["2020-01-01T00:00:00Z", "yesterday"]}'])[2]
    assert error == "Invalid RFC3339 encoded datetime - at `$.at[1]`"


@pytest.mark.parametrize(
    "kind",
    [
        pa.uuid(),
        pa.list_(pa.dense_union([pa.field("x", pa.int64())])),
        pa.struct(
            [pa.field("value", pa.binary()), pa.field("m", pa.binary(), metadata={"variant": ""})]
        ),
    ],
    ids=str,
)
def test_types_that_json_is_not_read_as_are_refused_at_once(kind: pa.DataType) -> None:
    """Otherwise each batch would end at them, or each value be null (of Spark's VARIANT)."""
    with pytest.raises(ValueError, match="JSON is not read as"):
        JsonFormat(pa.schema([("a", kind)]))


def test_json_is_read_as_spark_reads_it(sc: SparkContext) -> None:
    """A record that both read is the same; times have Spark's zone, here UTC."""
    ddl = "at timestamp, ntz timestamp_ntz, day date, price decimal(10, 2), data binary, n bigint, "
    ddl += "ratio double, low float"
    texts = [
        '{"at": "2020-06-01T12:00:00.123456Z", "ntz": "2020-06-01T12:00:00", "day": "2020-06-01"}',
        '{"at": "1969-12-31T23:59:59.999999+02:00", "price": 1.10, "data": "AQI=", "n": -5}',
        '{"price": "99999999.99", "n": 9223372036854775807, "other": [1]}',
        '{"at": "9999-12-31T23:59:59.9999999Z", "ntz": "1969-12-31T23:59:59.9999999"}',
        '{"ratio": 100000000000000000000, "low": -3.4028235e38}',
        '{"ratio": "Infinity", "low": "-INF", "ntz": "2020-06-01T12:00"}',
        '{"ratio": "+INF", "low": "-Infinity"}',
    ]
    spark = SparkSession(sc)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    given = spark.createDataFrame([(text,) for text in texts], "text string")
    theirs = given.select(from_json("text", ddl).alias("row")).toArrow()["row"].to_pylist()
    values, _, errors = read(JsonFormat(ddl), [text.encode() for text in texts])
    assert errors == [None] * len(texts)
    assert values == theirs


# -- Protocol Buffers ------------------------------------------------------------------------------


def test_a_class_of_protoc_is_read_with_its_imports_enumerations_and_maps() -> None:
    form = pickle.loads(pickle.dumps(ProtobufFormat(type_pb2.Type)))
    given = type_pb2.Type(name="T", syntax=type_pb2.SYNTAX_PROTO3, oneofs=["a", "b"])
    given.fields.add(kind=type_pb2.Field.TYPE_INT64, number=3)
    (row,), _, _ = read(form, [given.SerializeToString()])
    assert (row["name"], row["oneofs"], row["syntax"]) == ("T", ["a", "b"], "SYNTAX_PROTO3")
    assert (row["fields"][0]["kind"], row["fields"][0]["number"]) == ("TYPE_INT64", 3)
    assert row["source_context"] is None
    # A number of a newer sender.
    (row,), _, _ = read(form, [b"\x30\x63"])
    assert row["syntax"] == "99"


@pytest.mark.parametrize(("seconds", "nanos"), [(0, -1), (0, -1_999), (-1, -1_500), (1, 1_999)])
def test_a_duration_of_protobuf_is_cut_to_the_microsecond_as_protobuf_does(
    seconds: int, nanos: int
) -> None:
    # protobuf 7.36.2, Duration.ToTimedelta: towards zero, also of a negative one.
    sent = duration_pb2.Duration(seconds=seconds, nanos=nanos)
    wrapper = descriptor_pb2.FileDescriptorProto(name="took.proto", syntax="proto3")
    wrapper.dependency.append(duration_pb2.DESCRIPTOR.name)
    message = wrapper.message_type.add(name="M")
    message.field.add(
        name="took", number=1, type=11, label=1, type_name=".google.protobuf.Duration"
    )
    files = descriptor_pb2.FileDescriptorSet()
    duration_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(wrapper)
    made = ProtobufFormat("M", files.SerializeToString())
    data = b"\x0a" + bytes([sent.ByteSize()]) + sent.SerializeToString()
    read = made.read(pa.array([data]))
    assert read.values.to_pylist() == [{"took": sent.ToTimedelta()}]


def test_times_durations_wrappers_and_maps_of_protobuf_are_columns() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, duration_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="all.proto", package="tests", syntax="proto3")
    file.dependency.extend(each.name for each in files.file[:3])
    made = file.message_type.add(name="All")
    well_known = [("at", "Timestamp"), ("took", "Duration"), ("maybe", "Int64Value")]
    for number, (name, kind) in enumerate(well_known, 1):
        made.field.add(
            name=name, number=number, type=11, label=1, type_name=f".google.protobuf.{kind}"
        )
    entry = made.nested_type.add(name="CountsEntry", options={"map_entry": True})
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, label=1, type_name=".google.protobuf.Duration")
    made.field.add(name="counts", number=4, type=11, label=3, type_name=".tests.All.CountsEntry")
    form = ProtobufFormat("tests.All", files.SerializeToString())
    at = datetime(1969, 7, 20, 20, 17, 40, 123456, timezone.utc)
    stamp, minute = timestamp_pb2.Timestamp(), duration_pb2.Duration(seconds=-60)
    stamp.FromDatetime(at)
    parts = [stamp.SerializeToString(), minute.SerializeToString(), b"\x08\x05"]
    data = b"".join(
        bytes([number << 3 | 2, len(part)]) + part for number, part in enumerate(parts, 1)
    )
    pair = b"\x0a\x01a\x12" + bytes([len(parts[1])]) + parts[1]
    data += b"\x22" + bytes([len(pair)]) + pair
    took = timedelta(minutes=-1)
    assert read(form, [data, b""])[0] == [
        {"at": at, "took": took, "maybe": 5, "counts": [("a", took)]},
        {"at": None, "took": None, "maybe": None, "counts": []},
    ]


def test_a_time_of_protobuf_is_in_its_years() -> None:
    """A sender may write any number; a row with a later time could not be made."""
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="at.proto", package="tests", syntax="proto3")
    file.dependency.append(files.file[0].name)
    stamp = ".google.protobuf.Timestamp"
    file.message_type.add(name="At").field.add(
        name="at", number=1, type=11, label=1, type_name=stamp
    )
    form = ProtobufFormat("tests.At", files.SerializeToString())
    for seconds in (-62_135_596_800, 253_402_300_799):
        good = timestamp_pb2.Timestamp(seconds=seconds).SerializeToString()
        (row,), _, _ = read(form, [b"\x0a" + bytes([len(good)]) + good])
        assert (row["at"] - datetime(1970, 1, 1, tzinfo=_ZONE)).total_seconds() == seconds
    for seconds in (-62_135_596_801, 253_402_300_800, 1_577_836_800_000):
        bad = timestamp_pb2.Timestamp(seconds=seconds).SerializeToString()
        poison = b"\x0a" + bytes([len(bad)]) + bad
        assert read(form, [poison])[1] == [poison]


def test_a_required_field_that_is_not_set_is_an_error() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    row = files.file.add(name="old.proto", package="tests").message_type.add(name="Old")
    row.field.add(name="id", number=1, type=3, label=2)
    row.field.add(name="text", number=2, type=9, label=1, default_value="none")
    form = ProtobufFormat("tests.Old", files.SerializeToString())
    values, corrupt, _ = read(form, [b"\x08\x01", b"", b"\x08\x02\x12\x01\xff"])
    assert values == [{"id": 1, "text": None}, None, None]
    assert corrupt == [None, b"", b"\x08\x02\x12\x01\xff"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("tests.Row",), "descriptors="),
        ((GOOD,), "message="),
        ((type_pb2.Type, b""), "message="),
        (("tests.Other", described()), "no message tests.Other"),
        (("tests.Row", b"no descriptors"), "protoc --include_imports"),
        (("tests.Tree", described()), "within itself"),
        ((struct_pb2.Struct,), "within itself"),
    ],
)
def test_a_message_that_has_no_columns_is_refused_in_words(arguments: Any, told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        ProtobufFormat(*arguments)


# -- functions -------------------------------------------------------------------------------------


def test_a_function_may_return_arrow_and_is_called_with_many() -> None:
    calls: list[int] = []

    def numbers(values: list[bytes]) -> pa.RecordBatch:
        calls.append(len(values))
        return pa.record_batch({"n": pa.array(map(int, values), pa.int32())})

    form = FunctionFormat(numbers, pa.schema([("n", pa.int64())]))
    assert read(form, [b"1", b"2", b"3"])[0] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert calls == [3]
    assert read(form, [b"1", None])[0] == [{"n": 1}, None]
    values, corrupt, errors = read(form, [b"1", b"x"])
    assert (values, corrupt) == ([{"n": 1}, None], [None, b"x"])
    assert errors[1].startswith("ValueError: invalid literal")


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (pa.array([datetime(2020, 1, 1, 5)], pa.timestamp("us")), pa.date32()),
        (pa.array([1e300]), pa.float32()),
        (pa.array([5]), pa.bool_()),
    ],
    ids=str,
)
def test_arrow_of_a_function_is_not_changed_either(made: pa.Array, kind: pa.DataType) -> None:
    batch = pa.record_batch({"a": made, "left_out": made})
    assert read(FunctionFormat(lambda _: batch, pa.schema([("a", kind)])), [b"x"])[1] == [b"x"]
    good = FunctionFormat(lambda _: batch, pa.schema([("a", made.type)]))
    assert read(good, [b"x"])[0] == [{"a": made[0].as_py()}]


@pytest.mark.parametrize("result", [None, [], [{"n": 1}, {"n": 2}], [1], "a", math.nan, {"n": 1}])
def test_what_no_function_may_return_costs_its_value(result: Any) -> None:
    form = FunctionFormat(lambda values: result, pa.schema([("n", pa.int64())]))
    assert read(form, [b"x"])[1] == [b"x"]
    with pytest.raises(TypeError, match="function="):
        FunctionFormat(5, ROW)  # type: ignore[arg-type]
