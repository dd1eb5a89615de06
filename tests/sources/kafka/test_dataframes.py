"""Batches of Kafka as DataFrames: the columns of Spark's Kafka source, and typed values."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

import pytest

from penstock.sources.kafka import (
    JsonFormat,
    KafkaReceiver,
    KafkaUtils,
    LocationStrategies,
    OffsetRange,
)
from tests.bounds import HANG_S
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


@pytest.mark.long
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


@pytest.mark.long
def test_a_receiver_stores_the_same_columns(sc: Any, started: Kafka) -> None:
    topic = started.create_topic()
    started.send(topic, 0, [b'{"id": %d}' % number for number in range(20)])
    given = params(started, **{"group.id": f"g-{topic}"})
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
        assert enough.wait(HANG_S)
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
