"""Direct streams of a real broker: each record in exactly one batch."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import NewPartitions

from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.sources.kafka import (
    ConsumerStrategies,
    KafkaCommitError,
    KafkaDataLossError,
    KafkaUnavailableError,
    KafkaUtils,
    LocationStrategies,
    OffsetRange,
    PerPartitionConfig,
)
from penstock.sources.kafka.engines._confluent_client import client_log
from penstock.streaming import JobGenerationError
from tests.bounds import HANG_S
from tests.services.kafka import Broker, Kafka
from tests.sources.kafka.running import Direct, numbers, params, subscribe
from tests.streaming.batches import batches
from tests.system.running import settings

pytestmark = pytest.mark.slow

WAIT_S = HANG_S
BOUND_S = HANG_S
"""A bound, not an expectation: without ours the client would go on for ever."""


@pytest.mark.long
def test_each_record_is_in_one_batch_whose_ranges_say_so(sc: Any, broker: Kafka) -> None:
    topic = broker.create_topic(2)
    broker.send(topic, 0, numbers(0, 30_000))
    broker.send(topic, 1, numbers(30_000, 30_100))
    with batches(sc) as run:
        direct = Direct(run, subscribe(broker, topic))
        run.run(1)
        broker.send(topic, 1, numbers(30_100, 30_200))
        run.run(3)
    assert direct.ranges == [
        (OffsetRange(topic, 0, 0, 30_000), OffsetRange(topic, 1, 0, 100)),
        (OffsetRange(topic, 0, 30_000, 30_000), OffsetRange(topic, 1, 100, 200)),
        (OffsetRange(topic, 0, 30_000, 30_000), OffsetRange(topic, 1, 200, 200)),
        (OffsetRange(topic, 0, 30_000, 30_000), OffsetRange(topic, 1, 200, 200)),
    ]
    assert direct.values() == list(range(30_200))
    info = run.events.of("batch")[0].streamIdToInputInfo()[0]
    assert info.numRecords() == 30_100
    assert f"topic: {topic}\tpartition: 1\toffsets: 0 to 100" in info.metadata()["Description"]


def test_a_record_has_all_that_kafka_has_of_it(sc: Any, broker: Kafka) -> None:
    topic = broker.create_topic()
    producer = broker.producer()
    producer.send(topic, b"v", b"k", [("h", b"1"), ("n", b"")], timestamp_ms=1234567890123)
    producer.send(topic, None, b"k", timestamp_ms=1234567890124)
    producer.close()
    with batches(sc) as run:
        direct = Direct(run, subscribe(broker, topic))
        run.run(1)
    first, second = direct.batches[0]
    assert first == (topic, 0, 0, 1234567890123, 0, b"k", b"v", [("h", b"1"), ("n", b"")])
    assert (second.offset, second.timestamp, second.value, second.headers) == (
        1,
        1234567890124,
        None,
        [],
    )


def test_functions_make_keys_and_values(sc: Any, broker: Kafka) -> None:
    topic = broker.create_topic()
    broker.send(topic, 0, numbers(0, 3))
    given = params(broker)
    given["value.deserializer"] = "org.apache.kafka.common.serialization.StringDeserializer"
    found = KafkaUtils.createRDD(sc, given, [OffsetRange(topic, 0, 1, 3)])
    assert [each.value for each in found.collect()] == ["1", "2"]


def test_given_offsets_come_before_committed_ones_and_these_before_the_reset(
    sc: Any, broker: Kafka
) -> None:
    topic = broker.create_topic(3)
    for partition in range(3):
        broker.send(topic, partition, numbers(0, 10))
    group = {"group.id": f"g-{topic}"}
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=group["group.id"])
    with batches(sc) as run:
        strategy = ConsumerStrategies.Assign(
            [(topic, 0), (topic, 1)], params(broker, **group), {(topic, 0): 8}
        )
        direct = Direct(run, strategy)
        run.run(1)
        told: list[Any] = []
        ranges = direct.ranges[0]
        assert [each.fromOffset for each in ranges] == [8, 0]
        direct.stream.commitAsync(ranges[1:], lambda *outcome: told.append(outcome))
    assert told == [({(topic, 1): 10}, None)]
    assert consumer.committed(TopicPartition(topic, 1)) == 10
    consumer.close()
    with batches(sc) as run:
        strategy = subscribe(broker, topic, {(topic, 0): 9}, **group)
        direct = Direct(run, strategy)
        run.run(1)
    assert [each.fromOffset for each in direct.ranges[0]] == [9, 10, 0]


def test_offsets_are_committed_with_the_next_batch(sc: Any, broker: Kafka) -> None:
    topic = broker.create_topic()
    broker.send(topic, 0, numbers(0, 5))
    group = f"g-{topic}"
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=group)
    with batches(sc) as run:
        direct = Direct(run, subscribe(broker, topic, **{"group.id": group}))
        run.run(1)
        told: list[Any] = []
        direct.stream.commitAsync(direct.ranges[0], lambda *outcome: told.append(outcome))
        run.run(1)
        _wait(lambda: told)
        assert told == [({(topic, 0): 5}, None)]
        assert consumer.committed(TopicPartition(topic, 0)) == 5
    consumer.close()


def test_a_commit_to_a_group_with_members_is_refused_and_says_so(
    sc: Any, broker: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.create_topic()
    broker.send(topic, 0, numbers(0, 5))
    group = f"g-{topic}"
    # Not kafka-python, which on a slow machine may wait to be assigned for ever.
    member = Consumer(
        {"bootstrap.servers": broker.address, "group.id": group, "enable.auto.commit": False}
    )
    member.subscribe([topic])

    def is_assigned() -> bool:
        member.poll(0.5)
        return bool(member.assignment())

    _wait(is_assigned)
    told: list[Any] = []
    with batches(sc) as run:
        direct = Direct(run, subscribe(broker, topic, **{"group.id": group}))
        run.run(1)
        direct.stream.commitAsync(direct.ranges[0], lambda *outcome: told.append(outcome))
        run.run(1)
        ((offsets, error),) = told
        assert offsets == {(topic, 0): 5}
        assert isinstance(error, KafkaCommitError)
        assert error.group == group
        assert "has members" in str(error)
        assert str(error) in caplog.text
        member.close()
        direct.stream.commitAsync(direct.ranges[0], lambda *outcome: told.append(outcome))
        run.run(1)
    assert told[1:] == [({(topic, 0): 5}, None)]


def test_a_callback_that_raises_harms_no_batch(sc: Any, started: Kafka) -> None:
    topic = started.create_topic()
    started.send(topic, 0, numbers(0, 5))
    told: list[Any] = []
    with batches(sc) as run:
        direct = Direct(run, subscribe(started, topic, **{"group.id": f"g-{topic}"}))
        run.run(1)
        direct.stream.commitAsync(direct.ranges[0], lambda *outcome: 1 // 0)
        direct.stream.commitAsync(direct.ranges[0], lambda *outcome: told.append(outcome))
        run.run(1)
    assert told == [({(topic, 0): 5}, None)]
    assert direct.values() == list(range(5))


def test_limits_hold_and_nothing_is_lost_by_them(sc: Any, broker: Kafka) -> None:
    topic = broker.create_topic(2)
    broker.send(topic, 0, numbers(0, 250))
    broker.send(topic, 1, numbers(250, 300))
    with batches(sc) as run:
        limits = PerPartitionConfig(max_rate=100)
        direct = Direct(run, subscribe(broker, topic), perPartitionConfig=limits)
        run.run(4)
    assert [[each.count() for each in ranges] for ranges in direct.ranges] == [
        [100, 50],
        [100, 0],
        [50, 0],
        [0, 0],
    ]
    assert sorted(direct.values()) == list(range(300))
    infos = [batch.streamIdToInputInfo()[0] for batch in run.events.of("batch")]
    told = "\n".join(info.metadata()["Description"] for info in infos).splitlines()
    assert [line.removeprefix(f"topic: {topic}\tpartition: ") for line in told if line] == [
        "0\toffsets: 0 to 100\tbehind: 150",
        "1\toffsets: 0 to 50",
        "0\toffsets: 100 to 200\tbehind: 50",
        "0\toffsets: 200 to 250",
    ]


def test_the_latest_records_are_those_after_the_start(sc: Any, broker: Kafka) -> None:
    topic = broker.create_topic()
    broker.send(topic, 0, numbers(0, 10))
    with batches(sc) as run:
        given = {**params(broker), "auto.offset.reset": "latest"}
        direct = Direct(run, ConsumerStrategies.Subscribe([topic], given))
        run.start()
        broker.send(topic, 0, numbers(10, 15))
        run.run(1)
    assert direct.values() == [10, 11, 12, 13, 14]


def test_partitions_and_topics_that_come_later_are_read_from_their_first_record(
    sc: Any, broker: Kafka
) -> None:
    topic = broker.create_topic()
    later = f"{topic}-later"
    with batches(sc) as run:
        strategy = ConsumerStrategies.SubscribePattern(
            f"{topic}(-later)?", {**params(broker), "auto.offset.reset": "latest"}
        )
        direct = Direct(run, strategy)
        run.run(1)
        with broker.admin() as admin:
            admin.create_partitions({topic: NewPartitions(2)})
        broker.create(later)
        broker.send(topic, 1, numbers(0, 5))
        broker.send(later, 0, numbers(5, 9))
        run.run(1)
    assert sorted(direct.values()) == list(range(9))


@pytest.mark.long
def test_a_broker_that_is_killed_and_started_again_loses_nothing(
    sc: Any, mortal: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = mortal.create_topic(2)
    mortal.send(topic, 0, numbers(0, 5000))
    with batches(sc) as run:
        direct = Direct(run, subscribe(mortal, topic))
        run.run(1)
        mortal.send(topic, 1, numbers(5000, 6000))
        mortal.kill()
        try:
            monkeypatch.setattr("penstock.sources.kafka.direct_stream._ASK_S", 1.0)
            run.run(1)
            assert [each.count() for each in direct.ranges[1]] == [0, 0]
            monkeypatch.setattr("penstock.sources.kafka.direct_stream._ASK_S", 30.0)
        finally:
            mortal.start()
        mortal.send(topic, 0, numbers(6000, 7000))
        for _ in range(10):
            # It may take longer than a batch waits until the client finds the broker again.
            run.run(1)
            if len(direct.values()) >= 7000:
                break
    assert sorted(direct.values()) == list(range(7000))


@pytest.mark.exhaustive  # The test above starts a broker again, too.
def test_a_task_waits_for_a_broker_that_comes_back(sc: Any, mortal: Broker) -> None:
    topic = mortal.create_topic()
    mortal.send(topic, 0, numbers(0, 100))
    found = KafkaUtils.createRDD(sc, params(mortal), [OffsetRange(topic, 0, 0, 100)])
    mortal.kill()
    with ThreadPoolExecutor(1) as pool:
        try:
            values = pool.submit(lambda: [int(each.value) for each in found.collect()])
        finally:
            mortal.start()
        assert values.result(WAIT_S) == list(range(100))


def test_gaps_of_transactions_do_not_hold_a_batch_up(sc: Any, broker: Kafka) -> None:
    topic = broker.create_topic()
    producer = broker.producer(transactional_id=f"t-{topic}")
    producer.init_transactions()
    expected = []
    for number in range(6):
        producer.begin_transaction()
        values = numbers(number * 10, number * 10 + 10)
        for value in values:
            producer.send(topic, value, partition=0)
        producer.flush()
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            expected += [int(value) for value in values]
    producer.close()
    with batches(sc) as run:
        direct = Direct(run, subscribe(broker, topic, **{"isolation.level": "read_committed"}))
        run.run(2)
    assert direct.values() == expected
    # Ten records and a marker for each transaction.
    assert direct.ranges[0] == (OffsetRange(topic, 0, 0, 66),)


def test_gaps_of_compaction_do_not_hold_a_batch_up(sc: Any, broker: Kafka) -> None:
    topic = broker.create_topic(
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="100",
    )
    producer = broker.producer()
    for number in range(1000):
        producer.send(topic, b"%d" % number, b"key-%d" % (number % 10), partition=0)
    producer.flush()

    def is_compacted() -> bool:
        # The open segment is never compacted: another record closes it.
        producer.send(topic, b"-1", b"last", partition=0)
        producer.flush()
        consumer = KafkaConsumer(
            bootstrap_servers=broker.address, auto_offset_reset="earliest", max_poll_records=5000
        )
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        (end,) = consumer.end_offsets([partition]).values()
        found = 0
        # An answer has records of one segment only, of which a slow machine makes many.
        while consumer.position(partition) < end:
            found += len(consumer.poll(1000).get(partition, []))
        consumer.close()
        return found < 500

    _wait(is_compacted)
    with batches(sc) as run:
        # Compaction goes on between two readings of the same range.
        direct = Direct(run, subscribe(broker, topic), reads_once=True)
        run.run(1)
    producer.close()
    latest = {record.key: record.value for record in direct.batches[0]}
    assert {latest[b"key-%d" % each] for each in range(10)} == {b"%d" % n for n in range(990, 1000)}
    assert len(direct.batches[0]) < direct.ranges[0][0].count()


def test_records_that_are_gone_are_an_error_until_the_program_says_otherwise(
    sc: Any, broker: Kafka
) -> None:
    topic = broker.create_topic()
    broker.send(topic, 0, numbers(0, 100))
    for fails in (True, False):
        with batches(sc) as run:
            strategy = subscribe(broker, topic, {(topic, 0): 0})
            direct = Direct(run, strategy, failOnDataLoss=fails)
            run.start()
            with broker.admin() as admin:
                admin.delete_records({TopicPartition(topic, 0): 40})
            run.run(1)
            if fails:
                with pytest.raises(JobGenerationError) as raised:
                    run.ssc.awaitTermination(WAIT_S)
                assert isinstance(raised.value.__cause__, KafkaDataLossError)
                assert "offsets 40 to 100" in str(raised.value.__cause__)
                assert direct.batches == []
            else:
                assert direct.values() == list(range(40, 100))


@pytest.mark.long
def test_a_topic_that_was_created_anew_is_noticed(sc: Any, broker: Kafka) -> None:
    for fails in (True, False):
        topic = broker.create_topic()
        broker.send(topic, 0, numbers(0, 10))
        with batches(sc) as run:
            direct = Direct(run, subscribe(broker, topic), failOnDataLoss=fails)
            run.run(1)
            with broker.admin() as admin:
                admin.delete_topics([topic])
            _create_when_gone(broker, topic)
            # More than before: offsets alone would not tell.
            broker.send(topic, 0, numbers(100, 120))
            run.run(1)
            if fails:
                with pytest.raises(JobGenerationError, match="another one has its name"):
                    run.ssc.awaitTermination(WAIT_S)
            else:
                assert direct.values() == [*range(10), *range(100, 120)]


def test_a_task_finds_records_gone_that_its_batch_still_had(sc: Any, broker: Kafka) -> None:
    topic = broker.create_topic()
    broker.send(topic, 0, numbers(0, 100))
    found = KafkaUtils.createRDD(sc, params(broker), [OffsetRange(topic, 0, 0, 100)])
    with broker.admin() as admin:
        admin.delete_records({TopicPartition(topic, 0): 50})
    with pytest.raises(Exception, match=r"KafkaDataLossError: records of .* are lost"):
        found.collect()


def test_no_broker_at_the_start_is_an_error_within_a_bound(
    sc: Any, broker: Kafka, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, "kafka")
    # Lines like those of another test within a minute would be counted only.
    monkeypatch.setattr(client_log, "_log", RateLimitedLog(logging.getLogger("penstock.of-this")))
    with settings(sc, {"spark.penstock.kafka.brokerTimeout": "2s"}), batches(sc) as run:
        nobody = {"bootstrap.servers": "127.0.0.1:1", "sasl.plain.password": "word-of-mine"}
        Direct(run, ConsumerStrategies.Subscribe(["any"], params(broker, **nobody)))
        begin_s = time.monotonic()
        with pytest.raises(KafkaUnavailableError, match=r"127\.0\.0\.1:1") as raised:
            run.start()
        assert time.monotonic() - begin_s < BOUND_S
        assert raised.value.servers == "127.0.0.1:1"
    assert caplog.text
    assert "word-of-mine" not in str(raised.value) + caplog.text


def test_brokers_are_leaders_where_they_are_preferred(sc: Any, broker: Kafka) -> None:
    topic = broker.create_topic()
    broker.send(topic, 0, numbers(0, 3))
    with batches(sc) as run:
        stream = KafkaUtils.createDirectStream(
            run.ssc, LocationStrategies.PreferBrokers, subscribe(broker, topic)
        )
        found = run.collect(stream.map(lambda record: int(record.value)))
        run.run(1)
        assert stream._node._leaders == {(topic, 0): "127.0.0.1"}
    assert found == [[0, 1, 2]]


def _create_when_gone(broker: Kafka, topic: str) -> None:
    def is_created() -> bool:
        try:
            broker.create(topic)
        except Exception as error:
            if "TopicAlreadyExists" in repr(error) or "already exists" in str(error):
                return False
            raise
        return True

    _wait(is_created)


def _wait(holds: Any) -> None:
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s, "it did not come about"
        time.sleep(0.05)
