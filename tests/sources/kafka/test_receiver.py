"""`KafkaReceiver` in groups of a real broker."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import NewPartitions

from penstock.sources.kafka import KafkaReceiver
from penstock.wire.messages import AddBlock, DeregisterReceiver, ReportError, StopReceiver
from tests.bounds import HANG_S
from tests.receiver.conftest import SETTINGS, run, shared, tracker
from tests.receiver.running import Running, Tracker
from tests.services.kafka import Kafka
from tests.sources.kafka.receivers import Marked
from tests.sources.kafka.running import numbers, params
from tests.system.running import run_on

__all__ = ["run", "shared", "tracker"]

pytestmark = pytest.mark.slow

WAIT_S = HANG_S

Run = Callable[..., Running]


def committed(broker: Kafka, topic: str, partitions: int = 1) -> list[int | None]:
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=f"g-{topic}")
    try:
        return [consumer.committed(TopicPartition(topic, each)) for each in range(partitions)]
    finally:
        consumer.close()


def receiver(broker: Kafka, topic: str, **settings: Any) -> KafkaReceiver:
    return KafkaReceiver([topic], params(broker, **{"group.id": f"g-{topic}", **settings}))


def stopped_after_ten(run: Run, tracker: Tracker, broker: Kafka, topic: str) -> KafkaReceiver:
    """Return a receiver that has stored the ten records of a topic, and was stopped."""
    broker.send(topic, 0, numbers(0, 10))
    one = receiver(broker, topic)
    running = run(one)
    tracker.wait_for_records(10)
    tracker.send(StopReceiver())
    assert running.join() is None
    return one


def test_values_are_stored_and_offsets_committed_once_they_are_durable(
    run: Run, tracker: Tracker, broker: Kafka
) -> None:
    topic = broker.create_topic()
    acknowledged = 0
    too_soon: list[Any] = []

    def answer(message: Any) -> None:
        nonlocal acknowledged
        if isinstance(message, AddBlock):
            known = committed(broker, topic)[0]
            if known is not None and known > acknowledged:
                too_soon.append((known, acknowledged))
            for block in message.blocks:
                if block.position is not None:
                    acknowledged = msgspec.msgpack.decode(block.position)[topic]["0"]

    tracker.answer = answer
    broker.send(topic, 0, numbers(0, 1000))
    running = run(receiver(broker, topic))
    tracker.wait_for_records(1000)
    _wait(lambda: committed(broker, topic) == [1000])
    broker.send(topic, 0, numbers(1000, 1010))
    found = tracker.wait_for_records(1010)
    tracker.send(StopReceiver())
    assert running.join() is None
    assert [int(value) for value in found] == list(range(1010))
    assert tracker.last_position()[topic]["0"] == 1010
    assert committed(broker, topic) == [1010], "before the member leaves its group"
    assert too_soon == []


def test_how_many_records_the_broker_has_beyond_what_is_stored_is_told(
    run: Run, tracker: Tracker, broker: Kafka
) -> None:
    topic = broker.create_topic(2)
    broker.send(topic, 0, numbers(0, 2000))
    broker.send(topic, 1, numbers(2000, 2010))
    run(receiver(broker, topic), settings=replace(SETTINGS, receiver_rate="1000/second"))

    def lags() -> list[int]:
        reports = [each.pipe.source_lag for each in tracker.rate_reports if each.pipe]
        return [lag for lag in reports if lag is not None]

    tracker.wait_for(lambda: any(lags()))
    assert 0 < max(lags()) <= 2010
    tracker.wait_for_records(2010)
    tracker.wait_for(lambda: lags()[-1] == 0)


@pytest.mark.long
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_markers_of_transactions_are_no_lag_and_one_that_is_open_is_none_either(
    run: Run, tracker: Tracker, broker: Kafka, level: str
) -> None:
    topic = broker.create_topic()
    producer = broker.producer(transactional_id=f"t-{topic}")
    producer.init_transactions()
    producer.begin_transaction()
    for value in numbers(0, 10):
        producer.send(topic, value, partition=0)
    producer.commit_transaction()
    one = receiver(broker, topic, **{"isolation.level": level})
    run(one)
    tracker.wait_for_records(10)
    # The tenth offset is the marker's.
    _wait(lambda: committed(broker, topic) == [11])
    _wait(lambda: _last_lag(tracker) == 0)
    producer.begin_transaction()
    for value in numbers(10, 15):
        producer.send(topic, value, partition=0)
    producer.flush(WAIT_S)
    if level == "read_uncommitted":
        tracker.wait_for_records(15)
    reports = len(tracker.rate_reports)
    _wait(lambda: len(tracker.rate_reports) >= reports + 3 and _last_lag(tracker) == 0)
    producer.abort_transaction()
    producer.close()
    _wait(lambda: committed(broker, topic) == [17])
    assert _stored(tracker) == (10 if level == "read_committed" else 15)


def test_what_is_stored_is_what_the_program_makes_of_a_record(
    run: Run, tracker: Tracker, broker: Kafka
) -> None:
    topic = broker.create_topic()
    broker.send(topic, 0, numbers(5, 7))
    group = {"group.id": f"g-{topic}"}
    run(KafkaReceiver([topic], params(broker, **group), lambda each: (each.offset, each.value)))
    assert [tuple(each) for each in tracker.wait_for_records(2)] == [(0, b"5"), (1, b"6")]


def test_a_large_fetch_is_halved_and_a_record_larger_than_a_block_is_told(
    run: Run, tracker: Tracker, broker: Kafka
) -> None:
    topic = broker.create_topic(max_message_bytes=str(4 << 20))
    large = SETTINGS.block_max_bytes // 3
    values = [b"%d" % number * large for number in range(8)]
    values.insert(4, b"x" * (SETTINGS.block_max_bytes + 1))
    producer = broker.producer(max_request_size=4 << 20)
    for value in values:
        producer.send(topic, value, partition=0)
    producer.close()
    run(receiver(broker, topic), settings=replace(SETTINGS, memory_bytes=16 << 20))
    found = tracker.wait_for_records(8)
    assert [value[:1] for value in found] == [b"%d" % number for number in range(8)]
    tracker.wait_for_count(ReportError, 1)
    told = tracker.of(ReportError)[0].message
    assert told.startswith(f"1 record was discarded (stored with {{'{topic}': {{'0': ")
    assert told.endswith(f"it begins with {b'x' * 64!r}...")


def test_a_message_of_ten_megabytes_is_stored_among_small_ones(
    run: Run, tracker: Tracker, broker: Kafka
) -> None:
    topic = broker.create_topic(max_message_bytes=str(12 << 20))
    producer = broker.producer(max_request_size=12 << 20)
    values = [b"1", b"x" * (10 << 20), b"2"]
    for value in values:
        producer.send(topic, value, partition=0)
    producer.close()
    sizes = {"block_max_bytes": 16 << 20, "memory_bytes": 64 << 20, "wal_segment_bytes": 64 << 20}
    run(receiver(broker, topic), settings=replace(SETTINGS, **sizes))
    assert tracker.wait_for_records(3) == values
    assert not tracker.of(ReportError)


@pytest.mark.long
def test_a_member_that_joins_gets_its_share_and_no_record_comes_twice(
    run: Run, tracker: Tracker, broker: Kafka, tmp_path: Path
) -> None:
    topic = broker.create_topic(2)
    other = Tracker()
    (tmp_path / "other").mkdir()
    try:
        sent = 0
        stop = threading.Event()
        first = run(receiver(broker, topic))
        broker.send(topic, 0, numbers(0, 100))
        tracker.wait_for_records(100)
        sent = 100
        settings = replace(SETTINGS, memory_dir=str(tmp_path))
        second = Running(receiver(broker, topic), other, tmp_path / "other", settings)
        end_s = time.monotonic() + WAIT_S
        while not other.blocks and not stop.is_set():
            assert time.monotonic() < end_s, "the second member got no partition"
            for partition in range(2):
                broker.send(topic, partition, numbers(sent, sent + 50))
                sent += 50
        _wait(lambda: _stored(tracker) + _stored(other) >= sent)
        for each, running in ((tracker, first), (other, second)):
            each.send(StopReceiver())
            assert running.join() is None
        found = sorted(int(value) for value in [*tracker.records(), *other.records()])
        assert found == list(range(sent))
    finally:
        other.server.stop()


@pytest.mark.long
def test_a_member_with_a_backlog_goes_on_with_all_partitions_after_a_rebalance(
    run: Run, tracker: Tracker, broker: Kafka
) -> None:
    """It is given two partitions more while many records of its own two wait inside the client."""
    topic, each = broker.create_topic(4), 100_000
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 20})
    for number in range(4 * each):
        while True:
            try:
                producer.produce(topic, b"%d" % number, partition=number % 4)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(WAIT_S) == 0
    # Not kafka-python: a member whose polls end before it has joined may wait for ever (see
    # `_end_half_joined` of the engine), and on a slow machine these do.
    other = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": f"g-{topic}",
            "heartbeat.interval.ms": 200,
            # The topic may be too new for the metadata that it begins with.
            "topic.metadata.refresh.interval.ms": 1000,
            "enable.auto.commit": False,
        }
    )
    other.subscribe([topic])

    def has(count: int) -> bool:
        other.poll(0.1)
        return len(other.assignment()) == count

    _wait(lambda: has(4))
    one = receiver(broker, topic, **{"heartbeat.interval.ms": 200})
    run(one, settings=replace(SETTINGS, receiver_rate="40000/second", memory_bytes=64 << 20))
    # It moves when the other takes part in the division, and reads the two that it got.
    _wait(lambda: has(2) and _stored(tracker))
    other.close()
    _wait(lambda: _stored(tracker) >= 4 * each)
    assert sorted(map(int, tracker.records())) == list(range(4 * each))
    assert tracker.of(ReportError) == []


def test_a_broker_that_is_away_at_the_start_is_told_and_tried_again(
    run: Run, tracker: Tracker, broker: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sources.kafka.receiver._CONNECT_S", 0.5)
    away = KafkaReceiver(["any"], {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
    running = run(away)
    tracker.wait_for_count(DeregisterReceiver, 2)
    told = tracker.of(DeregisterReceiver)[0].message
    assert "Error connecting to Kafka at 127.0.0.1:1: " in told
    tracker.send(StopReceiver())
    assert running.join() is None


@pytest.mark.long
def test_a_stop_does_not_wait_for_a_connection_that_does_not_come(
    run: Run, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sources.kafka.receiver._CONNECT_S", 10.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        running = run(
            KafkaReceiver(["any"], {"bootstrap.servers": f"{host}:{port}", "group.id": "g"})
        )
        silent.settimeout(WAIT_S)
        accepted, _ = silent.accept()
        with accepted:
            tracker.send(StopReceiver(timeout_s=10 * WAIT_S))
            assert running.join() is None
        (thread,) = (t for t in threading.enumerate() if t.name.endswith("-KafkaReceiver"))
        # It is not left to the tests behind this one.
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert tracker.of(ReportError) == []


def test_records_that_are_gone_before_a_receiver_is_back_are_told(
    run: Run, tracker: Tracker, broker: Kafka
) -> None:
    topic = broker.create_topic()
    one = stopped_after_ten(run, tracker, broker, topic)
    broker.send(topic, 0, numbers(10, 20))
    with broker.admin() as admin:
        admin.delete_records({TopicPartition(topic, 0): 15})
    run(one)
    found = tracker.wait_for_records(15)
    assert [int(value) for value in found] == [*range(10), *range(15, 20)]
    (report,) = tracker.of(ReportError)
    assert f"Records of {topic} 0 from offset 10 on are lost" in report.message
    assert "the first that is there is 15" in report.message


def test_partitions_that_were_made_while_a_member_was_away_are_read(
    run: Run, tracker: Tracker, started: Kafka
) -> None:
    """Brokers give it back what it had, and do not say that it divides the partitions."""
    broker = started
    broker.engine = "kafka-python"
    topic = broker.create_topic()
    one = stopped_after_ten(run, tracker, broker, topic)
    with broker.admin() as admin:
        admin.create_partitions({topic: NewPartitions(2)})
    broker.send(topic, 1, numbers(10, 20))
    run(one)
    assert sorted(map(int, tracker.wait_for_records(20))) == list(range(20))


@pytest.mark.long
def test_a_receiver_that_is_killed_stores_each_record_once(
    sc: Any, broker: Kafka, tmp_path: Path
) -> None:
    topic = broker.create_topic(2)
    sent = 0
    with run_on(sc) as run:
        given = params(broker, **{"group.id": f"g-{topic}"})
        run.process(Marked(tmp_path, [topic], given))
        run.start()
        for kills in range(1, 3):
            _wait(lambda kills=kills: len(list(tmp_path.iterdir())) >= kills)
            for _ in range(5):
                for partition in range(2):
                    broker.send(topic, partition, numbers(sent, sent + 500))
                    sent += 500
            run.await_processed(sent - 2000)
            newest = max(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            os.kill(int(newest.name), signal.SIGKILL)
        broker.send(topic, 0, numbers(sent, sent + 100))
        sent += 100
        run.await_processed(sent)
        run.stop()
        assert sorted(run.processed) == list(range(sent))
    assert len(list(tmp_path.iterdir())) == 3


def _last_lag(tracker: Tracker) -> int | None:
    reports = [each.pipe.source_lag for each in list(tracker.rate_reports) if each.pipe]
    return reports[-1] if reports else None


def _stored(tracker: Tracker) -> int:
    return sum(block.num_records for block in list(tracker.blocks))


def _wait(holds: Callable[[], Any]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s, "it did not come about"
        time.sleep(0.1)
