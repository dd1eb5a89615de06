"""Values in JSON and Avro as typed columns, without brokers."""

from __future__ import annotations

import io
import json
import pickle
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from penstock.sources.kafka import AvroFormat, JsonFormat, ValueFormat

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
            schemas = {"/schemas/ids/1": WRITER, "/subjects/trades-value/versions/latest": READER}
            schema = schemas.get(self.path.split("?")[0])
            told: dict[str, Any] = {"error_code": 40403, "message": "not found"}
            if schema is not None:
                told = {"subject": "trades-value", "version": 1, "id": 2}
                told["schema"] = json.dumps(schema)
            body = json.dumps(told).encode()
            self.send_response(404 if schema is None else 200)
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
    poison = [b"plain", b"\0\0\0\0\7x", good[0] + b"rest", good[0][:-1], good[0][:6]]
    values, corrupt, errors = read(form, [good[7], *poison])
    assert values == [{"id": 7, "venue": "none"}, *[None] * 5]
    assert corrupt == [None, *poison]
    assert errors[1:] == [
        "it is not in the wire format of a schema registry",
        "the registry has no schema 7",
        "4 bytes are left over",
        "it ends too early",
        errors[5],
    ]
    assert "url" not in repr(form)


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


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ('"string"', "must be a record"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}',
            "a union of 2 types has no column",
        ),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}',
            "'R' is not known where it stands",
        ),
    ],
)
def test_schemas_without_columns_are_refused(schema: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        AvroFormat(schema)


def test_a_format_needs_a_schema() -> None:
    with pytest.raises(ValueError, match="a registry and a subject"):
        AvroFormat(registry={"url": "http://127.0.0.1:1"})
