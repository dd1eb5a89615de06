"""Values in JSON and Avro as typed columns, without brokers."""

from __future__ import annotations

import io
import json
import math
import pickle
import threading
from collections.abc import Iterator
from datetime import date, datetime, time, timezone
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError

from penstock.sources.formats import _parse
from penstock.sources.kafka import AvroFormat, JsonFormat, ValueFormat
from penstock.sources.kafka.columns import arrays

WRITER = {
    "type": "record",
    "name": "Trade",
    "fields": [{"name": "id", "type": "long"}, {"name": "old", "type": "string"}],
}
READER = {
    "type": "record",
    "name": "Trade",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "venue", "type": "string", "default": "none"},
    ],
}
CURRENCY = {"type": "enum", "name": "n.Currency", "symbols": ["EUR", "USD"]}
MONEY = {
    "type": "record",
    "name": "n.Money",
    "fields": [{"name": "cents", "type": "long"}, {"name": "of", "type": "Currency"}],
}
ORDER = {
    "type": "record",
    "name": "n.Order",
    "fields": [
        {"name": "total", "type": "n.Money"},
        {"name": "paid", "type": ["null", "Money"]},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
REFERENCES = {
    json.dumps(ORDER): [{"name": "n.Money", "subject": "money", "version": 4}],
    json.dumps(MONEY): [{"name": "n.Currency", "subject": "currency", "version": 5}],
}
# Events of several types are in one topic so.
PAID = {"type": "record", "name": "n.Paid", "fields": [{"name": "total", "type": "n.Money"}]}
PLACE = {"type": "record", "name": "Place", "fields": [{"name": "code", "type": "string"}]}
SENT = {
    "type": "record",
    "name": "Sent",
    "namespace": "n",
    "fields": [
        {"name": "cost", "type": {"type": "array", "items": "Money"}},
        {"name": "of", "type": ["null", "Currency"], "default": None},
    ],
}
EVENTS = ["n.Sent", "n.Paid", "Place"]
REFERENCES[json.dumps(PAID)] = REFERENCES[json.dumps(ORDER)]
REFERENCES[json.dumps(SENT)] = [
    *REFERENCES[json.dumps(ORDER)],
    *REFERENCES[json.dumps(MONEY)],
]
REFERENCES[json.dumps(EVENTS)] = [
    {"name": "n.Sent", "subject": "sent", "version": 1},
    {"name": "n.Paid", "subject": "paid", "version": 1},
    {"name": "Place", "subject": "place", "version": 1},
]
ID = pa.schema([("id", pa.int64())])


def read(form: ValueFormat, values: list[bytes | None]) -> tuple[list[Any], list[Any], list[Any]]:
    found = form.read(pa.array(values, pa.binary()))
    assert found.values.type == form.type
    return found.values.to_pylist(), found.corrupt.to_pylist(), found.errors.to_pylist()


@pytest.mark.parametrize("schema", [None, {"id": "bigint"}, pa.schema([]), 5])
def test_json_of_another_schema_is_refused_in_words(schema: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"schema.*DDL"):
        JsonFormat(schema)


def test_avro_of_another_schema_or_registry_is_refused_and_shows_no_secret() -> None:
    for schema in ("record", READER, 5):
        with pytest.raises((TypeError, ValueError), match=r"schema=.*is not accepted: a record's"):
            AvroFormat(schema)  # type: ignore[arg-type]
    registry: Any = "http://me:word-of-mine@registry"
    with pytest.raises(TypeError, match="registry of type str is not accepted") as raised:
        AvroFormat(registry=registry, subject="trades-value")
    assert "of-mine" not in str(raised.value)


def test_json_is_read_with_nulls_between_and_no_errors() -> None:
    form = JsonFormat(pa.schema([("id", pa.int32()), ("at", pa.struct([("x", pa.float64())]))]))
    given = [None if each % 3 == 0 else b'{"id":%d,"at":{"x":0.5}}' % each for each in range(9)]
    values, corrupt, errors = read(form, given)
    assert values == [
        None if each % 3 == 0 else {"id": each, "at": {"x": 0.5}} for each in range(9)
    ]
    assert corrupt == errors == [None] * 9
    assert read(form, []) == ([], [], [])
    assert read(form, [None]) == ([None], [None], [None])


@pytest.mark.parametrize(
    "poison",
    [
        b"{",
        b"",
        b" ",
        b"[1]",
        b"null",
        b'{"id": 1}{"id": 2}',
        b'{"id": 1}\n{"id": 2}',
        b'{"id": "text"}',
        b'{"id": 99999999999999999999}',
        b'{"id": 1',
        b"\xff\xfe",
    ],
)
def test_one_json_value_that_cannot_be_read_costs_no_other(poison: bytes) -> None:
    values, corrupt, errors = read(JsonFormat(ID), [b'{"id": 1}', poison, b'{\n"id": 3}', b"{}"])
    assert values == [{"id": 1}, None, {"id": 3}, {"id": None}]
    assert corrupt == [None, poison, None, None]
    assert [bool(error) for error in errors] == [False, True, False, False]


def test_poison_never_moves_values_to_other_records() -> None:
    """Two that are one too few and one too many together must not look right."""
    values, corrupt, _ = read(JsonFormat(ID), [b"", b'{"id": 1}\n{"id": 2}', b'{"id": 3}'])
    assert values == [None, None, {"id": 3}]
    assert corrupt == [b"", b'{"id": 1}\n{"id": 2}', None]


@pytest.fixture
def registry() -> Iterator[str]:
    """A stand-in for a schema registry: its jars are not with Maven Central."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            schemas = {
                "/schemas/ids/1": WRITER,
                "/subjects/trades-value/versions/latest": READER,
                "/schemas/ids/3": ORDER,
                "/subjects/orders-value/versions/latest": ORDER,
                "/subjects/money/versions/4": MONEY,
                "/subjects/currency/versions/5": CURRENCY,
                "/schemas/ids/4": "message Order {}",
                "/schemas/ids/5": EVENTS,
                "/subjects/sent/versions/1": SENT,
                "/subjects/sent-value/versions/latest": SENT,
                "/subjects/paid/versions/1": PAID,
                "/subjects/paid-value/versions/latest": PAID,
                "/subjects/place/versions/1": PLACE,
            }
            path = self.path.split("?")[0]
            schema = schemas.get(path)
            told: dict[str, Any] = {"error_code": 40403, "message": "not found"}
            if schema is not None:
                told = {"subject": "trades-value", "version": 1, "id": 2}
                told["schema"] = json.dumps(schema)
                told["references"] = REFERENCES.get(json.dumps(schema), [])
            if path == "/schemas/ids/4":
                told["schemaType"] = "PROTOBUF"
            body = json.dumps(told).encode()
            failing = 503 if path == "/schemas/ids/6" else 404
            self.send_response(failing if schema is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def avro(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(dict(schema)), value)
    return stream.getvalue()


def test_avro_of_a_registry_is_read_as_the_latest_schema(registry: str) -> None:
    good = [b"\0\0\0\0\1" + avro(WRITER, {"id": each, "old": "x"}) for each in range(50)]
    made = AvroFormat(registry={"url": registry}, subject="trades-value")
    form = pickle.loads(pickle.dumps(made))
    assert read(form, good)[0] == [{"id": each, "venue": "none"} for each in range(50)]
    poison = [b"plain", b"", b"\0\0\0", b"\0\0\0\0\7x", good[0] + b"r", good[0][:-1], good[0][:6]]
    values, corrupt, errors = read(form, [good[7], *poison])
    assert values == [{"id": 7, "venue": "none"}, *[None] * 7]
    assert corrupt == [None, *poison]
    assert errors[1:] == [
        *["it is not in the wire format of a schema registry"] * 3,
        "the registry has no schema 7",
        "1 bytes are left over",
        "it ends too early",
        errors[7],
    ]
    assert "url" not in repr(form)


def test_what_a_registry_that_fails_was_asked_for_is_no_poison(registry: str) -> None:
    """Its values can be read later."""
    settings = {"url": registry, "max.retries": 0}
    form = AvroFormat(json.dumps(READER), registry=settings)
    with pytest.raises(SchemaRegistryError, match="503"):
        read(form, [b"\0\0\0\0\6x"])


def test_avro_whose_schema_refers_to_others_of_the_registry_is_read(registry: str) -> None:
    form = pickle.loads(
        pickle.dumps(AvroFormat(registry={"url": registry}, subject="orders-value"))
    )
    total = b"\x0a\x02"  # five cents, USD
    data = b"\0\0\0\0\3" + total + b"\x02" + total + b"\x02x"
    five = {"cents": 5, "of": "USD"}
    values, _, errors = read(form, [data, b"\0\0\0\0\4x"])
    assert values == [{"total": five, "paid": five, "id": "x"}, None]
    assert errors == [None, "the registry has a schema of PROTOBUF there, not of Avro"]
    with pytest.raises(ValueError, match="no schema of the subject 'other'"):
        AvroFormat(registry={"url": registry}, subject="other")


def test_avro_of_one_of_several_types_that_share_another_is_read(registry: str) -> None:
    """The schema is a union of references, two of which refer to the same type."""
    paid = AvroFormat(registry={"url": registry}, subject="paid-value")
    sent = AvroFormat(registry={"url": registry}, subject="sent-value")
    begin, five = b"\0\0\0\0\5", b"\x0a\x02"  # five cents, USD
    both = [begin + b"\0\2" + five + b"\0\2\2", begin + b"\2" + five, begin + b"\4\2x"]
    value = {"cents": 5, "of": "USD"}
    assert read(sent, both[:1])[0] == [{"cost": [value], "of": "USD"}]
    values, corrupt, errors = read(paid, both)
    assert values == [None, {"total": value}, None]
    assert corrupt == [both[0], None, both[2]]
    assert "its schema 5 does not fit" in errors[2]


def test_avro_without_a_registry_has_logical_types() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "maybe", "type": ["null", "int"]},
            {"name": "counts", "type": {"type": "map", "values": "long"}},
            {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
        ],
    }
    at = datetime(2026, 5, 4, 3, 2, 1, tzinfo=timezone.utc)
    value = {"at": at, "tags": ["a"], "maybe": None, "counts": {"b": 2}, "kind": "B"}
    values, _, errors = read(AvroFormat(json.dumps(schema)), [avro(schema, value), None])
    assert errors == [None, None]
    assert values == [{**value, "counts": [("b", 2)]}, None]


def test_avro_of_each_logical_type_is_read_as_what_it_means() -> None:
    """A logical type of another type than its own is none (Avro 1.12, "Logical Types")."""
    given: dict[str, tuple[Any, Any, Any]] = {
        "time": ({"type": "int", "logicalType": "time-millis"}, time(1, 2, 3, 4000), None),
        "micros": ({"type": "long", "logicalType": "time-micros"}, time(1, 2, 3, 4567), None),
        "day": ({"type": "int", "logicalType": "date"}, date(1969, 12, 31), None),
        "here": (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            datetime(1, 1, 1),
            None,
        ),
        "exactly_here": (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            datetime(1, 1, 1),
            None,
        ),
        "id": ({"type": "string", "logicalType": "uuid"}, UUID(int=5), str(UUID(int=5))),
        "name": ({"type": "string", "logicalType": "timestamp-millis"}, "x", None),
        "price": (
            {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2},
            Decimal("-1.20"),
            None,
        ),
    }
    fields = [{"name": name, "type": kind} for name, (kind, _, _) in given.items()]
    schema = {"type": "record", "name": "R", "fields": fields}
    data = avro(schema, {name: value for name, (_, value, _) in given.items()})
    form = AvroFormat(json.dumps(schema))
    values, _, errors = read(form, [data])
    shown = {name: other or value for name, (_, value, other) in given.items()}
    assert (values, errors) == ([shown], [None])


def test_avro_defaults_are_what_values_would_be(registry: str) -> None:
    """In a schema bytes are text, each character a byte, and records may lack fields."""
    price = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    inner = {
        "type": "record",
        "name": "Q",
        "fields": [
            {"name": "z", "type": "int", "default": 3},
            {"name": "b", "type": {"type": "fixed", "name": "F", "size": 1}, "default": "\u00fe"},
        ],
    }
    fields_of_part = [{"name": "b", "type": "bytes", "default": "\u00fe"}]
    part = {"type": "record", "name": "P", "fields": fields_of_part}
    given: list[tuple[Any, Any, Any]] = [
        ("bytes", "\u00ff\u0001", b"\xff\x01"),
        (["bytes", "null"], "\u00ff", b"\xff"),
        (["null", "bytes"], None, None),
        (price, "\u00ff", Decimal("-0.01")),
        (price, "\u0000" + "\u00ff" * 15, Decimal("13292279957849158729038070602803445.75")),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
        ("double", "Infinity", math.inf),
        ("double", 1, 1.0),
        ("string", "\u00ff", "\u00ff"),
        (inner, {}, {"z": 3, "b": b"\xfe"}),
        ("Q", {"b": "\u00fd"}, {"z": 3, "b": b"\xfd"}),
        ({"type": "array", "items": part}, [{}], [{"b": b"\xfe"}]),
        ({"type": "long", "logicalType": "timestamp-micros"}, 1, datetime(1970, 1, 1, 0, 0, 0, 1)),
    ]
    fields = [
        {"name": f"f{at}", "type": kind, "default": default}
        for at, (kind, default, _) in enumerate(given)
    ]
    written = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}
    schema = {**written, "fields": fields}
    form = AvroFormat(json.dumps(schema), registry={"url": registry})
    form._writers[7] = _parse([json.dumps(written)])[-1]
    values, _, errors = read(form, [b"\0\0\0\0\7" + avro(written, {"x": 1})])
    assert errors == [None]
    shown = [
        each.replace(tzinfo=None) if isinstance(each, datetime) else each
        for each in values[0].values()
    ]
    assert shown == [value for _, _, value in given]


def test_avro_finds_types_by_their_whole_names() -> None:
    """Schemas that Java writes refer to a type of another namespace so."""
    schema = {
        "type": "record",
        "name": "R",
        "namespace": "a.b",
        "fields": [
            {"name": "one", "type": {"type": "enum", "name": "K", "symbols": ["A"]}},
            {"name": "two", "type": "a.b.K"},
            {"name": "three", "type": {"type": "fixed", "name": "c.F", "size": 2}},
            {"name": "four", "type": ["null", "c.F"]},
        ],
    }
    value = {"one": "A", "two": "A", "three": b"xy", "four": b"zz"}
    assert read(AvroFormat(json.dumps(schema)), [avro(schema, value)])[0] == [value]


def test_avro_that_was_written_before_its_numbers_were_times(registry: str) -> None:
    """The schema that is read says what they count; one that does not fit costs no other value."""
    written = {"type": "record", "name": "R", "fields": [{"name": "at", "type": "long"}]}
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    schema = {**written, "fields": [{"name": "at", "type": kind}]}
    form = AvroFormat(json.dumps(schema), registry={"url": registry})
    form._writers[7] = _parse([json.dumps(written)])[-1]
    other = {**written, "fields": [{"name": "no", "type": "long"}]}
    form._writers[8] = _parse([json.dumps(other)])[-1]
    good = b"\0\0\0\0\7" + avro(written, {"at": 1_577_836_800_123})
    poison = b"\0\0\0\0\x08" + good[5:]
    values, corrupt, errors = read(form, [good, poison])
    at = datetime(2020, 1, 1, 0, 0, 0, 123_000, tzinfo=timezone.utc)
    assert values == [{"at": at}, None]
    assert corrupt == [None, poison]
    assert "its schema 8 does not fit" in errors[1]


def _with_field(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ('"string"', "must be a record"),
        ('{"type": "record", "fields": []}', "a record's schema, as JSON text"),
        (_with_field("K"), "K"),
        (_with_field({"type": "bytes", "logicalType": "decimal", "precision": 39}), "39 digits"),
        (_with_field({"type": "bytes", "logicalType": "decimal"}), "0 digits"),
        ('{"type": "record", "name": "R", "fields": []}', "no fields"),
        (
            _with_field("bytes").replace('"bytes"', '"bytes", "default": "\\u0100"'),
            "the default of a is none",
        ),
        (
            _with_field(
                {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
            ).replace('"name": "a"', '"default": {}, "name": "a"'),
            "the default of a is none",
        ),
        (_with_field(["int", "string"]), "a union of 2 types has no column"),
        (_with_field(["null", "R"]), "'R' is not known where it stands"),
    ],
)
def test_schemas_without_columns_are_refused(schema: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        AvroFormat(schema)


def test_a_format_needs_a_schema() -> None:
    with pytest.raises(ValueError, match="a registry and a subject"):
        AvroFormat(registry={"url": "http://127.0.0.1:1"})


def test_a_timestamp_that_is_no_time_of_python_is_null() -> None:
    """No row could be made of it, as of a producer that counts microseconds or nanoseconds."""
    last = 253_402_300_799_999
    milliseconds = np.array(
        [
            *(0, 1_577_836_800_123, -1, last),
            *(last + 1, 1_577_836_800_123_456, 1_577_836_800_123_456_789, -(2**63)),
        ]
    )
    columns = arrays(
        ("t", 0),
        np.arange(8),
        milliseconds,
        np.zeros(8, np.int32),
        *([b""] * 8, [b""] * 8, [()] * 8),
    )
    assert columns["timestamp"].to_pylist()[4:] == [None] * 4
    assert columns["timestamp"].cast(pa.int64()).to_pylist() == [
        *(0, 1_577_836_800_123_000, -1000, last * 1000),
        *[None] * 4,
    ]
