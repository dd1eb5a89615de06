"""Batches of Kafka as DataFrames: the columns of Spark's Kafka source, and typed values."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro
import pytest

from penstock.sources.kafka import (
    AvroFormat,
    JsonFormat,
    KafkaReceiver,
    KafkaUtils,
    LocationStrategies,
    OffsetRange,
)
from tests.services.kafka import Kafka
from tests.sources.kafka.running import params, subscribe
from tests.streaming.batches import batches
from tests.system.running import run_on

pytestmark = pytest.mark.slow

# What Spark 4's own Kafka source declares (`KafkaRecordToRowConverter`), with headers.
SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
    "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
)

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


class Frames:
    """The rows of each batch of a direct stream."""

    def __init__(self, run: Any, broker: Kafka, topic: str, **options: Any) -> None:
        self.rows: list[list[Any]] = []
        self.schemas: list[str] = []
        self.ranges: list[Any] = []
        self.stream = KafkaUtils.createDirectStream(
            run.ssc, LocationStrategies.PreferConsistent, subscribe(broker, topic), **options
        )
        self.stream.foreachBatch(self._keep)

    def _keep(self, frame: Any, _: datetime) -> None:
        self.ranges.append(frame.offsetRanges)
        self.schemas.append(frame.schema.simpleString())
        self.rows.append(sorted(frame.collect(), key=lambda row: (row.partition, row.offset)))


def test_a_batch_has_the_columns_of_sparks_kafka_source(sc: Any, broker: Kafka) -> None:
    topic = broker.create_topic(2)
    producer = broker.producer()
    at_ms = 1_700_000_000_123
    producer.send(topic, b"v", b"k", [("h", b"1"), ("n", b"")], 0, at_ms)
    producer.send(topic, None, b"k", partition=0, timestamp_ms=at_ms + 1)
    producer.send(topic, b"w", None, partition=1, timestamp_ms=at_ms + 2)
    producer.close()
    with batches(sc) as run:
        found = Frames(run, broker, topic, includeHeaders=True)
        run.run(1)
        broker.send(topic, 1, [b"later"])
        run.run(2)
    assert found.schemas == [SCHEMA] * 3
    first, second, third = (tuple(row) for row in found.rows[0])
    time = datetime.fromtimestamp(at_ms / 1000)
    assert first == (b"k", b"v", topic, 0, 0, time, 0, [("h", b"1"), ("n", b"")])
    assert second[:5] == (b"k", None, topic, 0, 1)
    assert second[7] is None
    assert third[:5] == (None, b"w", topic, 1, 0)
    assert [row.value for row in found.rows[1]] == [b"later"]
    assert found.rows[2] == []
    assert found.ranges[1] == (OffsetRange(topic, 0, 2, 2), OffsetRange(topic, 1, 1, 2))


def test_a_receiver_stores_the_same_columns(sc: Any, broker: Kafka) -> None:
    topic = broker.create_topic()
    broker.send(topic, 0, [b'{"id": %d}' % number for number in range(20)])
    given = params(broker, **{"group.id": f"g-{topic}"})
    rows: list[Any] = []
    enough = threading.Event()

    def keep(frame: Any, _: datetime) -> None:
        rows.extend(frame.select("topic", "offset", "value.id", "error").collect())
        if len(rows) >= 20:
            enough.set()

    with run_on(sc) as run:
        receiver = KafkaReceiver([topic], given, columns=True, values=JsonFormat("id bigint"))
        run.ssc.receiverStream(receiver).foreachBatch(keep)
        run.start()
        assert enough.wait(60)
        run.stop()
    assert sorted(tuple(row) for row in rows) == [(topic, each, each, None) for each in range(20)]


def test_poison_among_json_is_kept_apart_and_everything_else_is_read(
    sc: Any, started: Kafka
) -> None:
    topic = started.create_topic()
    poison = {
        2: b"{",
        5: b'{"id": "text"}',
        7: b"",
        9: b"[1]",
        11: b'{"id": 1}{"id": 2}',
        13: b"\xff\xfe",
        15: b'{"id": 99999999999999999999}',
    }
    values = [b'{"id": %d, "more": [1]}' % each for each in range(20)]
    values[3] = b'{\n "id": 3}'
    values[4] = b"{}"
    values = [poison.get(each, value) for each, value in enumerate(values)]
    started.send(topic, 0, values)
    with batches(sc) as run:
        found = Frames(run, started, topic, values=JsonFormat("id bigint"))
        run.run(1)
    for number, row in enumerate(found.rows[0]):
        assert row.offset == number
        if number in poison:
            assert (row.value, row.corrupt) == (None, poison[number])
            assert row.error
        else:
            assert (row.corrupt, row.error) == (None, None)
            assert row.value.id == (None if number == 4 else number)


def test_json_is_read_in_bulk_with_nulls_between(sc: Any, started: Kafka) -> None:
    topic = started.create_topic()
    producer = started.producer()
    for number in range(100):
        value = None if number % 10 == 0 else json.dumps({"id": number, "at": {"x": 0.5}}).encode()
        producer.send(topic, value, b"k")
    producer.close()
    with batches(sc) as run:
        found = Frames(
            run, started, topic, values=JsonFormat("id int, at struct<x double>, day timestamp")
        )
        run.run(1)
    rows = found.rows[0]
    assert [row.value and (row.value.id, row.value.at.x) for row in rows] == [
        None if number % 10 == 0 else (number, 0.5) for number in range(100)
    ]
    assert {row.error for row in rows} == {None}


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


def test_avro_of_a_registry_is_read_as_the_latest_schema(
    sc: Any, started: Kafka, registry: str
) -> None:
    topic = started.create_topic()
    good = [b"\0\0\0\0\1" + avro(WRITER, {"id": each, "old": "x"}) for each in range(50)]
    started.send(topic, 0, [*good, b"plain", b"\0\0\0\0\7x", good[0] + b"rest", good[0][:-1]])
    values = AvroFormat(registry={"url": registry}, subject="trades-value")
    with batches(sc) as run:
        found = Frames(run, started, topic, values=values)
        run.run(1)
    rows = found.rows[0]
    assert [tuple(row.value) for row in rows[:50]] == [(each, "none") for each in range(50)]
    assert {row.error for row in rows[:50]} == {None}
    assert [row.value for row in rows[50:]] == [None] * 4
    assert [row.error[:20] for row in rows[50:]] == [
        "it is not in the wir",
        "the registry has no ",
        "4 bytes are left ove",
        "it ends too early",
    ]


def test_avro_without_a_registry_has_logical_types(sc: Any, started: Kafka) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "maybe", "type": ["null", "int"]},
            {"name": "counts", "type": {"type": "map", "values": "long"}},
        ],
    }
    at = datetime(2026, 5, 4, 3, 2, 1, tzinfo=timezone.utc)
    topic = started.create_topic()
    value = {"at": at, "tags": ["a"], "maybe": None, "counts": {"b": 2}}
    started.send(topic, 0, [avro(schema, value)])
    with batches(sc) as run:
        found = Frames(run, started, topic, values=AvroFormat(json.dumps(schema)))
        run.run(1)
    (row,) = found.rows[0]
    assert row.error is None
    assert row.value.at.astimezone(timezone.utc) == at
    assert (row.value.tags, row.value.maybe, row.value.counts) == (["a"], None, {"b": 2})
