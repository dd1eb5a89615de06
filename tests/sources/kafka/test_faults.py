"""Brokers and drivers that die, large messages, poison; counts are exact."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.dead_letters import letters
from penstock.sources.kafka import ConsumerStrategies, KafkaReceiver
from penstock.sources.kafka.engines import ENGINES
from penstock.wire.messages import ReportError, StopReceiver
from tests.bounds import HANG_S
from tests.programs import Program
from tests.receiver.conftest import run, shared, tracker
from tests.receiver.running import Running, Tracker
from tests.services.kafka import Broker, Kafka
from tests.sources.kafka.cluster import Cluster, cluster
from tests.sources.kafka.running import Direct, numbers, params, subscribe
from tests.streaming.batches import batches

__all__ = ["run", "shared", "tracker"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(720)]

WAIT_S = HANG_S


@pytest.fixture(scope="module")
def three(own: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # `own` tells whether there are jars.
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.mark.exhaustive  # `test_direct_stream` kills a broker that is started again.
def test_a_leader_that_is_killed_loses_nothing_and_doubles_nothing(
    sc: Any, three: Cluster, run: Callable[..., Running], tracker: Tracker
) -> None:
    """Both clients read the topic by direct streams, and a receiver does, when its leader dies."""
    topic = three.brokers[0].create_topic(2, min_insync_replicas="2")
    three.sent = 0
    given = {"bootstrap.servers": three.address, "auto.offset.reset": "earliest"}
    receiver = KafkaReceiver([topic], {**given, "group.id": f"g-{topic}"})
    running = run(receiver)
    with batches(sc) as program:
        directs = []
        for engine in ENGINES:
            own = {**given, "penstock.engine": engine}
            directs.append(Direct(program, ConsumerStrategies.Subscribe([topic], own)))
        three.send(topic, 0, 1000)
        three.send(topic, 1, 1000)
        program.run(1)
        tracker.wait_for_records(2000)
        leader = three.leader(topic, 0)
        leader.kill()
        try:
            # The producer waits until another broker leads.
            three.send(topic, 0, 1000)
            three.send(topic, 1, 1000)
            _until(lambda: program.run(1), lambda: all(len(d.values()) >= 4000 for d in directs))
            found = tracker.wait_for_records(4000)
        finally:
            leader.start()
        three.send(topic, 0, 500)
        _until(lambda: program.run(1), lambda: all(len(d.values()) >= 4500 for d in directs))
        found = tracker.wait_for_records(4500)
    tracker.send(StopReceiver())
    assert running.join() is None
    assert sorted(int(value) for value in found) == list(range(4500))
    for direct in directs:
        assert sorted(direct.values()) == list(range(4500))


@pytest.mark.exhaustive  # `test_recovered_driver` kills drivers.
def test_a_driver_that_is_killed_reads_the_same_ranges_again(
    started: Kafka, tmp_path: Path
) -> None:
    topic = started.create_topic(2)
    results = tmp_path / "results"
    results.mkdir()
    given = {
        "topic": topic,
        "params": params(started),
        "checkpoint": str(tmp_path / "checkpoint"),
        "results": str(results),
    }
    for partition in range(2):
        started.send(topic, partition, numbers(partition * 5000, partition * 5000 + 5000))
    for attempt in range(2):
        command = [sys.executable, "-m", "tests.sources.kafka.recoverable", json.dumps(given)]
        with Program(command, tmp_path, errors=tmp_path / "errors") as program:
            enough = 2 if attempt == 0 else 5
            _until(lambda: time.sleep(0.05), lambda e=enough: len(_complete(results)) >= e)
            program.kill_group()
    by_batch: dict[str, Any] = {}
    for path in _complete(results):
        batch = path.name.split("-")[0]
        found = json.loads(path.read_text())
        # A batch that both drivers ran had the same records both times.
        assert by_batch.setdefault(batch, found) == found
    read = [number for _, values in by_batch.values() for number in values]
    assert len(read) == len(set(read))
    ranges = sorted(tuple(each) for found, _ in by_batch.values() for each in found)
    for partition in range(2):
        # They join without a gap from the first record on.
        own = [each for each in ranges if each[1] == partition and each[3] > each[2]]
        assert [each[2] for each in own] == [0, *(each[3] for each in own[:-1])]


@pytest.mark.long
def test_a_message_of_ten_megabytes_is_read_among_small_ones(sc: Any, broker: Kafka) -> None:
    topic = broker.create_topic(max_message_bytes=str(12 << 20))
    large = b"x" * (10 << 20)
    producer = broker.producer(max_request_size=12 << 20)
    for value in (b"1", large, b"2"):
        producer.send(topic, value, partition=0)
    producer.close()
    with batches(sc) as program:
        found: list[Any] = []
        direct = Direct(program, subscribe(broker, topic))
        direct.stream.map(lambda each: (each.value[:1], len(each.value))).foreachRDD(
            lambda rdd: found.extend(rdd.collect())
        )
        program.run(1)
    assert found == [(b"1", 1), (b"x", 10 << 20), (b"2", 1)]


@pytest.mark.long
def test_a_record_whose_function_raises_is_a_dead_letter_with_its_bytes_and_place(
    run: Callable[..., Running], tracker: Tracker, started: Kafka, tmp_path: Path
) -> None:
    topic = started.create_topic()
    started.send(topic, 0, [b"poison" if each == 3 else b"%d" % each for each in range(10)])
    given = {**params(started), "group.id": f"g-{topic}"}
    run(KafkaReceiver([topic], given, lambda record: int(record.value)))
    found = tracker.wait_for_records(9)
    assert [int(value) for value in found] == [each for each in range(10) if each != 3]
    tracker.wait_for_count(ReportError, 1)
    (report,) = tracker.of(ReportError)
    assert f"the function of the record of {topic} 0 at 3 raised ValueError" in report.message
    (letter,) = [stored.letter for stored in letters(str(tmp_path))]
    assert (letter.form, letter.data, letter.error) == ("bytes", b"poison", "InvalidRecordError")
    assert "raised ValueError" in letter.reason
    # Its position is durable: it does not come again.
    tracker.wait_for(lambda: tracker.last_position()[topic]["0"] == 10)


def _complete(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix != ".part"]


def _until(step: Callable[[], Any], holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s, "it did not come about"
        step()
