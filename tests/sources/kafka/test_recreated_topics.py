"""A topic that is deleted and made again under its name is another topic: all of it is read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

from penstock.sources.kafka import (
    KafkaCommitError,
    KafkaDataLossError,
    KafkaReceiver,
    _group_watch,
)
from penstock.sources.kafka._driver_client import DriverClient
from penstock.sources.kafka.engines import ENGINES
from penstock.sources.kafka.params import KafkaParams
from penstock.sources.kafka.records import TopicPartition as PenstockPartition
from penstock.wire.messages import ReportError, StopReceiver
from tests.receiver.conftest import run, shared, tracker
from tests.receiver.running import Running, Tracker
from tests.services.kafka import Kafka
from tests.sources.kafka.running import Direct, numbers, params, subscribe
from tests.streaming.batches import batches

__all__ = ["run", "shared", "tracker"]

pytestmark = pytest.mark.slow

WAIT_S = 60.0
RESETS = ("earliest", "latest")

Run = Callable[..., Running]


def receiver(broker: Kafka, topic: str, **settings: Any) -> KafkaReceiver:
    return KafkaReceiver([topic], params(broker, **{"group.id": f"g-{topic}", **settings}))


@pytest.mark.long
@pytest.mark.parametrize("reset", RESETS)
def test_a_running_receiver_reads_the_new_topic_from_its_first_record(
    run: Run, tracker: Tracker, broker: Kafka, reset: str
) -> None:
    topic = broker.create_topic()
    broker.send(topic, 0, numbers(0, 1))
    commit(broker, topic, 0)
    running = run(receiver(broker, topic, **{"auto.offset.reset": reset}))
    tracker.wait_for_records(1)
    broker.send(topic, 0, numbers(1, 500))
    tracker.wait_for_records(500)
    broker.create_again(topic)
    broker.send(topic, 0, numbers(500, 1100))
    found = tracker.wait_for_records(1100)
    tracker.wait_for(lambda: tracker.last_position()[topic]["0"] == 600)
    broker.send(topic, 0, numbers(1100, 1110))
    tracker.wait_for(lambda: tracker.last_position()[topic]["0"] == 610)
    found = [int(value) for value in tracker.wait_for_records(1110)]
    tracker.send(StopReceiver())
    assert running.join() is None
    # What came within the tenth of a second for which an id is kept may come twice.
    assert set(found) == set(range(1110))
    assert found[-610:] == list(range(500, 1110))
    (report,) = tracker.of(ReportError)
    assert f"The topic {topic} was deleted, and another one has its name" in report.message
    assert committed(broker, topic) == 610


def test_records_that_begin_again_are_of_a_new_topic_however_long_the_old_one_is_taken_for_known(
    run: Run, tracker: Tracker, broker: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_group_watch, "_KNOWN_S", 3600.0)
    topic = broker.create_topic()
    broker.send(topic, 0, numbers(0, 500))
    running = run(receiver(broker, topic))
    tracker.wait_for_records(500)
    broker.create_again(topic)
    broker.send(topic, 0, numbers(500, 600))
    found = tracker.wait_for_records(600)
    tracker.wait_for(lambda: tracker.last_position()[topic]["0"] == 100)
    tracker.send(StopReceiver())
    assert running.join() is None
    assert [int(value) for value in found] == list(range(600))
    (report,) = tracker.of(ReportError)
    assert f"The topic {topic} was deleted, and another one has its name" in report.message


@pytest.mark.long
@pytest.mark.parametrize("count", [100, 600])
@pytest.mark.parametrize("reset", RESETS)
def test_a_receiver_that_was_down_meanwhile_reads_the_new_topic_from_its_first_record(
    run: Run, tracker: Tracker, broker: Kafka, count: int, reset: str
) -> None:
    topic = broker.create_topic()
    broker.send(topic, 0, numbers(0, 500))
    one = receiver(broker, topic, **{"auto.offset.reset": reset})
    commit(broker, topic, 0)
    running = run(one)
    tracker.wait_for_records(500)
    tracker.send(StopReceiver())
    assert running.join() is None
    broker.create_again(topic)
    broker.send(topic, 0, numbers(500, 500 + count))
    running = run(one)
    found = tracker.wait_for_records(500 + count)
    tracker.send(StopReceiver())
    assert running.join() is None
    assert [int(value) for value in found] == list(range(500 + count))
    (report,) = tracker.of(ReportError)
    assert f"The topic {topic} was deleted, and another one has its name" in report.message
    assert committed(broker, topic) == count


def test_offsets_of_the_old_topic_are_not_committed_for_the_new_one(sc: Any, broker: Kafka) -> None:
    topic = broker.create_topic()
    broker.send(topic, 0, numbers(0, 10))
    told: list[Any] = []
    with batches(sc) as program:
        strategy = subscribe(broker, topic, **{"group.id": f"g-{topic}"})
        direct = Direct(program, strategy, failOnDataLoss=False)
        program.run(1)
        old = direct.ranges[0]
        direct.stream.commitAsync(old, lambda *outcome: told.append(outcome))
        broker.create_again(topic)
        broker.send(topic, 0, numbers(10, 30))
        program.run(1)
        assert direct.values() == list(range(30))
        ((_, error),) = told
        assert isinstance(error, KafkaCommitError)
        assert f"{topic}: the topic was deleted, and another one has its name" in str(error)
        direct.stream.commitAsync(old, lambda *outcome: told.append(outcome))
        program.run(1)
        assert isinstance(told[1][1], KafkaCommitError)
        assert committed(broker, topic) is None
        direct.stream.commitAsync(direct.ranges[1], lambda *outcome: told.append(outcome))
        program.run(1)
        assert told[2:] == [({(topic, 0): 20}, None)]


def test_a_commit_is_not_tried_again_until_another_topic_has_the_name(broker: Kafka) -> None:
    topic = broker.create_topic()
    mine = PenstockPartition(topic, 0)
    client = DriverClient(KafkaParams(params(broker, **{"group.id": f"g-{topic}"})), WAIT_S)
    try:
        assert client.committed([mine], WAIT_S) == {}
        with broker.admin() as admin:
            admin.delete_topics([topic])
        creating = threading.Timer(0.5, broker.create, [topic])
        creating.start()
        with suppress(KafkaCommitError):
            client.commit({mine: 5}, 5.0)
        creating.join()
        assert client.committed([mine], WAIT_S) == {}
    finally:
        client.close()


@pytest.mark.parametrize("fails", [True, False])
def test_a_batch_that_is_made_again_has_no_records_of_another_topic_of_the_name(
    sc: Any, broker: Kafka, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    """A driver that comes back makes its unfinished batches again, from their ranges."""
    topic = broker.create_topic()
    broker.send(topic, 0, numbers(0, 10))
    with batches(sc) as program:
        direct = Direct(program, subscribe(broker, topic), failOnDataLoss=fails)
        program.run(1)
        node = direct.stream._node
        (time_ms,) = node.ranges
        broker.create_again(topic)
        broker.send(topic, 0, numbers(100, 120))
        assert node._client is not None
        node._find(node._client, WAIT_S)
        if fails:
            with pytest.raises(KafkaDataLossError, match="another one has its name"):
                node.compute(time_ms)
        else:
            again = node.compute(time_ms)
            assert again is not None
            assert again.collect() == []
            assert f"Records of {topic} 0 from offset 0 on are lost" in caplog.text


def test_a_topic_has_one_id_whichever_client_asks(started: Kafka) -> None:
    """Otherwise a program that changes its client would take each topic for another one."""
    topic = started.create_topic()
    ids = set()
    for name in ENGINES:
        client = DriverClient(
            KafkaParams({"bootstrap.servers": started.address, "penstock.engine": name}), WAIT_S
        )
        (state,) = client.partitions([topic], WAIT_S, False).values()
        ids.add(state.topic_id)
        client.close()
    assert len(ids) == 1
    assert ids != {""}


def commit(broker: Kafka, topic: str, offset: int) -> None:
    """Let the group begin there, whatever `auto.offset.reset` says."""
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=f"g-{topic}")
    try:
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)})
    finally:
        consumer.close()


def committed(broker: Kafka, topic: str) -> int | None:
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=f"g-{topic}")
    try:
        return consumer.committed(TopicPartition(topic, 0))
    finally:
        consumer.close()
