"""The Kafka sink: what is committed is there once, and what cannot be is told with the way out."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.sources.kafka import KafkaFencedError, KafkaRefusedError, KafkaUnavailableError
from penstock.streaming import Epoch, KafkaSink, SinkError
from penstock.testing import sink_crash_test
from tests.bounds import HANG_S
from tests.continuous.kafka_topic import committed, values
from tests.services.kafka import PASSWORD, USER, Broker, Kafka
from tests.sources.kafka.conftest import own, started

__all__ = ["own", "started"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def new_source() -> str:
    return uuid.uuid4().hex


def epoch(source: str, number: int, part: int = 0) -> Epoch:
    return Epoch(source, number, part, "a" * 32)


def batches(*numbers: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"n": [n]}) for n in numbers]


def params(kafka: Kafka, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka.address,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def opened(sink: KafkaSink, source: str, task: int = 0) -> KafkaSink:
    """As a task has it: pickled, and opened in its process."""
    copy: KafkaSink = pickle.loads(pickle.dumps(sink))
    copy.open(source, task)
    return copy


def write(sink: KafkaSink, of: Epoch, given: list[pa.RecordBatch]) -> None:
    sink.prepare(of, given)
    sink.commit(of, given)


def test_an_epoch_is_there_once_it_is_committed_and_never_twice(started: Kafka) -> None:
    topic, source = started.create_topic(), new_source()
    sink = KafkaSink(topic, params(started), value="n")
    first = opened(sink, source)
    first.prepare(epoch(source, 0), batches(1, 2))
    assert values(started.address, topic) == []
    first.commit(epoch(source, 0), batches(1, 2))
    assert values(started.address, topic) == [1, 2]
    write(first, epoch(source, 1), [])
    write(first, epoch(source, 2), batches(3))
    # Another attempt does not know what is committed, and has computed something else.
    again = opened(sink, source)
    write(again, epoch(source, 2), batches(9))
    write(again, epoch(source, 3), batches(4))
    # Epochs of another part and of another ledger.
    write(again, epoch(source, 3, 1), batches(5))
    other = new_source()
    write(opened(sink, other), epoch(other, 0), batches(6))
    assert values(started.address, topic) == [1, 2, 3, 4, 5, 6]


def test_columns_become_keys_values_and_headers(started: Kafka) -> None:
    topic, source = started.create_topic(), new_source()
    headers = pa.array(
        [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    batch = pa.record_batch(
        {"id": [7, None], "text": ["é", None], "raw": [b"\xff", b""], "h": headers}
    )
    plain = opened(KafkaSink(topic, params(started), key="id", value="text", headers="h"), source)
    write(plain, epoch(source, 0), [batch])
    whole = opened(KafkaSink(topic, params(started), key="raw"), source)
    write(whole, epoch(source, 1), [batch.drop_columns(["h"])])
    found = committed(started.address, topic)
    assert [(each.key(), each.value(), each.headers()) for each in found[:2]] == [
        (b"7", "é".encode(), [("a", b"1"), ("b", None)]),
        (None, None, None),
    ]
    assert [(each.key(), json.loads(each.value())) for each in found[2:]] == [
        (b"\xff", {"id": 7, "text": "é", "raw": "/w=="}),
        (b"", {"id": None, "text": None, "raw": ""}),
    ]


def test_keys_go_where_kafkas_own_clients_send_them(started: Kafka) -> None:
    topic, source = started.create_topic(3), new_source()
    keys = [f"key-{n}" for n in range(20)]
    for key in keys:
        with started.producer() as producer:
            producer.send(topic, key=key.encode(), value=b"theirs").get(HANG_S)
    sink = opened(KafkaSink(topic, params(started), key="key"), source)
    write(sink, epoch(source, 0), [pa.RecordBatch.from_pydict({"key": keys})])
    for partition in range(3):
        found = [each.key() for each in committed(started.address, topic, partition)]
        assert found[len(found) // 2 :] == found[: len(found) // 2]


def test_who_begins_last_writes_and_the_other_one_says_why_not(started: Kafka) -> None:
    topic, source = started.create_topic(), new_source()
    sink = KafkaSink(topic, params(started), value="n")
    old, new = opened(sink, source), opened(sink, source)
    old.prepare(epoch(source, 0), batches(1))
    new.prepare(epoch(source, 0), batches(1))
    with pytest.raises(KafkaFencedError, match="another attempt writes as penstock-"):
        old.commit(epoch(source, 0), batches(1))
    new.commit(epoch(source, 0), batches(1))
    write(new, epoch(source, 1), batches(2))
    # The older one begins last: what is committed it leaves, and the newer one is not harmed.
    write(opened(sink, source), epoch(source, 1), batches(2))
    with pytest.raises(KafkaFencedError):
        write(new, epoch(source, 2), batches(3))
    write(opened(sink, source), epoch(source, 2), batches(3))
    assert values(started.address, topic) == [1, 2, 3]


STOPPED = """
import os, pickle, signal, sys
from penstock.sources.kafka import KafkaFencedError
from penstock.sources.kafka.engines.transactions import Transactions

def stop():
    os.kill(os.getpid(), signal.SIGSTOP)

def produce(self, record, end_s):
    plain(self, record, end_s)
    self._producer.flush()
    stop()

plain = Transactions._produce
sink, epoch, batches = pickle.load(sys.stdin.buffer)
sink.open(epoch.source, 0)
sink.prepare(epoch, batches)
if sys.argv[1] == "before commit":
    stop()
else:
    Transactions._produce = produce
try:
    sink.commit(epoch, batches)
except KafkaFencedError as error:
    print(error)
"""


@pytest.mark.parametrize("where", ["before commit", "within commit"])
def test_a_process_that_was_stopped_and_goes_on_writes_nothing(started: Kafka, where: str) -> None:
    topic, source = started.create_topic(), new_source()
    sink = KafkaSink(topic, params(started), value="n")
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdin is not None
        with process.stdin as given:
            pickle.dump((sink, epoch(source, 0), batches(1)), given)
        process.stdin = None
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        other = opened(sink, source)
        write(other, epoch(source, 0), batches(1))
        process.send_signal(signal.SIGCONT)
        told, _ = process.communicate(timeout=HANG_S)
    finally:
        process.kill()
    assert process.returncode == 0
    assert b"another attempt writes as" in told
    write(other, epoch(source, 1), batches(2))
    assert values(started.address, topic) == [1, 2]


def test_parts_of_tasks_that_are_no_more_are_committed_by_another(started: Kafka) -> None:
    topic, source = started.create_topic(), new_source()
    sink = KafkaSink(topic, params(started), value="n")
    gone = opened(sink, source, 1)
    gone.prepare(epoch(source, 0, 1), batches(2))
    last = opened(sink, source)
    for part in (0, 1):
        last.prepare(epoch(source, 0, part), batches(part + 1))
    for part in (0, 1):
        last.commit(epoch(source, 0, part), batches(part + 1))
    with pytest.raises(KafkaFencedError):
        gone.commit(epoch(source, 0, 1), batches(2))
    write(last, epoch(source, 1), batches(3))
    assert values(started.address, topic) == [1, 2, 3]


def test_another_topic_of_the_name_begins_empty(started: Kafka) -> None:
    topic, source = started.create_topic(), new_source()
    sink = KafkaSink(topic, params(started), value="n")
    write(opened(sink, source), epoch(source, 0), batches(1))
    started.create_again(topic)
    write(opened(sink, source), epoch(source, 0), batches(1))
    assert values(started.address, topic) == [1]


def test_epochs_that_kafka_does_not_know_are_told(
    started: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic, source = started.create_topic(), new_source()
    sink = KafkaSink(topic, params(started), value="n")
    # A part without rows leaves its number, too, and only the first time.
    for number in (0, 1):
        write(opened(sink, source), epoch(source, number), [])
    write(opened(sink, source), epoch(source, 2), batches(1))
    assert "knows no epoch" not in caplog.text
    other = new_source()
    write(opened(sink, other), epoch(other, 5), batches(2))
    assert f"knows no epoch of penstock-{other}-0000, and the next one is 5" in caplog.text
    assert values(started.address, topic) == [1, 2]


@pytest.mark.long
@pytest.mark.parametrize("kills", [12, pytest.param(40, marks=pytest.mark.exhaustive)])
def test_it_holds_when_it_is_killed_at_any_step(started: Kafka, kills: int) -> None:
    topic = started.create_topic()
    sink = KafkaSink(topic, params(started), value="n")
    report = sink_crash_test(sink, lambda: values(started.address, topic), kills=kills, seed=5)
    print(report)
    assert report.late > 0
    assert len(report.kills) > 3
    # In order, too: there is one part.
    assert values(started.address, topic) == list(range(report.records))


def test_a_topic_that_no_one_makes_is_told_once(started: Kafka) -> None:
    source = new_source()
    sink = opened(KafkaSink("not-there", params(started)), source)
    with pytest.raises(SinkError, match=r"what is for not-there: .*do not make it: create it"):
        sink.prepare(epoch(source, 0), batches(1))


@pytest.mark.parametrize("where", ["client", "topic", "topic, before others"])
def test_a_record_that_is_too_large_is_told_and_nothing_of_its_epoch_written(
    started: Kafka, where: str
) -> None:
    settings = {} if where == "client" else {"max_message_bytes": "20000"}
    topic, source = started.create_topic(**settings), new_source()
    size = 2_000_000 if where == "client" else 30_000
    sink = opened(KafkaSink(topic, params(started)), source)
    write(sink, epoch(source, 0), batches(1))
    large = [*batches(2), pa.RecordBatch.from_pydict({"n": ["x" * size]})]
    if where == "topic, before others":
        # More than wait in the client at once: the brokers refuse it meanwhile.
        large += [pa.RecordBatch.from_pydict({"n": ["y"] * 100_000})] * 3
    with pytest.raises(SinkError, match=r"MSG_SIZE_TOO_LARGE.*message\.max\.bytes.*max\.message"):
        write(sink, epoch(source, 1), large)
    assert len(committed(started.address, topic)) == 1


def test_a_record_that_the_client_has_no_room_for_is_told(started: Kafka) -> None:
    source = new_source()
    little = params(started, queue_buffering_max_kbytes=1)
    sink = opened(KafkaSink(started.create_topic(), little), source)
    with pytest.raises(SinkError, match=r"raise queue\.buffering\.max\.kbytes"):
        write(sink, epoch(source, 0), [pa.RecordBatch.from_pydict({"n": ["x" * 5000]})])


def test_a_time_that_the_brokers_do_not_allow_is_told(started: Kafka) -> None:
    source = new_source()
    longest = params(started, transaction_timeout_ms=3_600_000)
    sink = opened(KafkaSink(started.create_topic(), longest), source)
    with pytest.raises(SinkError, match=r"INVALID_TRANSACTION_TIMEOUT.*transaction\.max\.timeout"):
        sink.prepare(epoch(source, 0), batches(1))


@pytest.mark.long
def test_a_broker_that_is_away_is_waited_for_within_a_bound(own: Broker) -> None:
    topic, source = own.create_topic(), new_source()
    short = params(own, transaction_timeout_ms=4000)
    sink = opened(KafkaSink(topic, short, value="n"), source)
    write(sink, epoch(source, 0), batches(1))
    sink.prepare(epoch(source, 1), batches(2))
    begin_s = time.monotonic()
    with own.paused():
        with pytest.raises(KafkaUnavailableError, match=r"no Kafka broker at .* answered"):
            sink.commit(epoch(source, 1), batches(2))
        assert time.monotonic() - begin_s < HANG_S
    again = opened(KafkaSink(topic, params(own), value="n"), source)
    write(again, epoch(source, 1), batches(2))
    assert values(own.address, topic) == [1, 2]


GUARDED = """
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


@pytest.mark.long
def test_what_the_user_may_not_do_is_told_with_what_to_allow(tmp_path: Path) -> None:
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    broker = Broker(tmp_path, more_properties=GUARDED)
    broker.start()
    try:
        topic, source = broker.create_topic(), new_source()
        given = {
            "bootstrap.servers": broker.secure_address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(broker.certificate),
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        steps = [
            (ResourceType.TOPIC, topic, AclOperation.WRITE, "READ and WRITE the topic"),
            (
                ResourceType.TRANSACTIONAL_ID,
                "penstock-",
                AclOperation.WRITE,
                "WRITE transactional ids that begin with group.id",
            ),
            (ResourceType.GROUP, "penstock-", AclOperation.READ, "READ groups that begin"),
            (ResourceType.TOPIC, topic, AclOperation.READ, "READ and WRITE the topic"),
        ]
        for kind, name, operation, says in steps:
            with pytest.raises(SinkError, match=says):
                write(opened(KafkaSink(topic, given), source), epoch(source, 0), batches(1))
            allowed = AclBinding(
                kind,
                name,
                ResourcePatternType.PREFIXED,
                f"User:{USER}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for done in admin.create_acls([allowed]).values():
                done.result(HANG_S)
        write(opened(KafkaSink(topic, given), source), epoch(source, 0), batches(1))
        assert len(committed(broker.address, topic)) == 1
        wrong = {**given, "sasl.password": "another-of-mine"}
        with pytest.raises(KafkaRefusedError, match="the log-in by PLAIN failed") as refused:
            opened(KafkaSink(topic, wrong), source).prepare(epoch(source, 0), batches(1))
        assert "another-of-mine" not in str(refused.value)
    finally:
        broker.stop()


@pytest.mark.exhaustive  # `tests/sources/kafka/test_group_watch.py` has a group's.
def test_a_coordinator_that_cannot_be_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sources.kafka.engines.transactions._BEGIN_S", 5.0)
    broker = Broker(tmp_path, more_properties="transaction.state.log.replication.factor=3\n")
    broker.start()
    try:
        source = new_source()
        sink = opened(KafkaSink(broker.create_topic(), params(broker)), source)
        with pytest.raises(KafkaUnavailableError, match="no answer of the coordinator of trans"):
            sink.prepare(epoch(source, 0), batches(1))
    finally:
        broker.stop()
