"""What the clients would lose, and the engines keep."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from kafka import errors

from penstock.runtime.clock import ManualClock
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.sources.kafka._ledger import OffsetLedger
from penstock.sources.kafka.engines._confluent_client import ClientLog, Failures, translated
from penstock.sources.kafka.engines._kafka_python_client import _DataBeforeClose
from penstock.sources.kafka.engines.confluent import _Member as _ConfluentMember
from penstock.sources.kafka.engines.interface import (
    AccessDeniedError,
    ClientError,
    OffsetOutOfRangeError,
    RetriableError,
    UnknownMemberError,
)
from penstock.sources.kafka.engines.kafka_python import _Member
from penstock.sources.kafka.params import KafkaParams
from penstock.sources.kafka.records import TopicPartition


def test_an_error_that_came_among_records_is_raised_once_after_them() -> None:
    failures = Failures()
    failures.check()
    failures.take([KafkaError(KafkaError._TRANSPORT), KafkaError(KafkaError._AUTO_OFFSET_RESET)])
    failures.take([KafkaError(KafkaError._TRANSPORT)])
    with pytest.raises(OffsetOutOfRangeError):
        failures.check()
    failures.check()


def test_what_a_broker_says_before_it_closes_is_heard_before_the_close() -> None:
    closed = ConnectionResetError()
    read = iter([(b"1", None), (b"2", closed)])
    receive = _DataBeforeClose(lambda: next(read))
    assert [receive() for _ in range(4)] == [
        (b"1", None),
        (b"2", None),
        (b"", closed),
        (b"", closed),
    ]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AccessDeniedError),
        (KafkaError._AUTHENTICATION, AccessDeniedError),
        (KafkaError.UNKNOWN_MEMBER_ID, UnknownMemberError),
        (KafkaError._TRANSPORT, RetriableError),
        (KafkaError.NOT_COORDINATOR, RetriableError),
        (KafkaError._NOENT, RetriableError),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, RetriableError),
        (KafkaError.LEADER_NOT_AVAILABLE, RetriableError),
    ],
)
def test_an_error_of_the_client_is_one_of_ours(code: int, kind: type[Exception]) -> None:
    assert type(translated(KafkaError(code))) is kind


@pytest.mark.slow
def test_tries_to_connect_are_told_once_and_not_each_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A client tells of each, several times a second."""
    logger = logging.getLogger("penstock.sources.kafka.librdkafka.of-this-test")
    clock = ManualClock()
    client = AdminClient(
        {"bootstrap.servers": "127.0.0.1:1"}, logger=ClientLog(RateLimitedLog(logger, clock))
    )
    for _ in range(3):
        with pytest.raises(KafkaException):
            client.list_topics(timeout=0.5)
        client.poll(0)
    lines = [record.getMessage() for record in caplog.records if record.name == logger.name]
    assert len(lines) == 1
    assert "Connection refused" in lines[0]


class _Client:
    """A client of kafka-python whose own thread gives and takes a partition in between."""

    def __init__(self) -> None:
        self.partition = kafka.TopicPartition("lines", 0)
        self.assigned = {self.partition}
        self.listener: Any = None
        self.goes_when_asked = False
        self.comes_back_when_polled = False
        self.comes_back_when_asked = False
        self.group_is_at = 7
        self.at = 5
        self._coordinator = SimpleNamespace(rejoining=False, state=None)

    def subscribe(self, topics: list[str], listener: Any) -> None:
        self.listener = listener

    def assignment(self) -> set[Any]:
        return set(self.assigned)

    def assign(self) -> None:
        self.assigned = {self.partition}
        asyncio.run(self.listener.on_partitions_assigned(self.assigned))

    def committed(self, partition: Any, timeout_ms: float) -> int:
        if self.goes_when_asked:
            self.assigned.clear()
        known = self.group_is_at
        if self.comes_back_when_asked:
            self.comes_back_when_asked = False
            self.group_is_at = 9
            self.assign()
        return known

    def position(self, partition: Any, timeout_ms: float) -> int:
        if partition not in self.assigned:
            raise errors.IllegalStateError("Partition is not assigned")
        return self.at

    def seek(self, partition: Any, offset: int) -> None:
        if partition not in self.assigned:
            raise ValueError("Unassigned partition")
        self.at = offset

    def poll(self, timeout_ms: float) -> dict[Any, Any]:
        if self.comes_back_when_polled:
            self.comes_back_when_polled = False
            self.assign()
        self.at += 1
        return {each: [SimpleNamespace(offset=self.at - 1)] for each in self.assigned}


@pytest.fixture
def client() -> _Client:
    return _Client()


@pytest.fixture
def offsets() -> OffsetLedger:
    found = OffsetLedger(0.0)
    found.restore({"lines": {"0": 5}})
    return found


class _Unanswered:
    """A client of confluent-kafka whose group's coordinator is away."""

    def committed(self, partitions: list[Any], timeout: float) -> list[Any]:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def assign(self, partitions: list[Any]) -> None:
        """Take partitions."""


def test_nothing_is_committed_of_a_partition_that_came_before_it_is_known_what_the_group_has(
    client: _Client, offsets: OffsetLedger
) -> None:
    # An attempt that was killed had it up to 5; another member went on, and committed 7.
    member, mine = _Member(client, ["lines"], offsets), TopicPartition("lines", 0)
    # In the client's own thread, so that the receiver may commit before it polls.
    client.assign()
    assert offsets.to_commit([mine]) == {}
    asyncio.run(client.listener.on_partitions_revoked(client.assignment()))
    list(member.poll(0.0))
    assert (offsets.stored(mine), offsets.to_commit([mine])) == (7, {mine: 7})


def test_a_member_of_confluent_kafka_reads_nothing_while_it_is_not_known_what_the_group_has(
    offsets: OffsetLedger,
) -> None:
    mine = TopicPartition("lines", 0)
    params = KafkaParams({"bootstrap.servers": "127.0.0.1:1", "group.id": "group"})
    member = _ConfluentMember(params, ["lines"], "instance", offsets)
    try:
        member._on_assign(_Unanswered(), [confluent_kafka.TopicPartition(*mine)])
        with pytest.raises(ClientError, match="what the group has committed is not known"):
            list(member.poll(0.0))
        assert (offsets.stored(mine), offsets.to_commit([mine])) == (5, {})
    finally:
        member.close()


def test_a_partition_that_goes_while_the_member_asks_about_it_ends_nothing(
    client: _Client, offsets: OffsetLedger
) -> None:
    client.goes_when_asked = True
    member, mine = _Member(client, ["lines"], offsets), TopicPartition("lines", 0)
    client.assign()
    assert list(member.poll(0.0)) == []
    assert offsets.stored(mine) == 7, "another member got that far"
    assert member.position(mine) is None
    with pytest.raises(RetriableError, match="not this member's any more"):
        member.seek(mine, 5)


def test_what_comes_before_it_is_known_how_far_another_member_got_is_read_again(
    client: _Client, offsets: OffsetLedger
) -> None:
    client.comes_back_when_polled = True
    member, mine = _Member(client, ["lines"], offsets), TopicPartition("lines", 0)
    assert list(member.poll(0.0)) == []
    assert member.position(mine) is None
    ((partition, chunk),) = member.poll(0.0)
    assert (partition, chunk.start, member.position(mine)) == (mine, 7, 8)


def test_a_partition_that_goes_and_comes_back_while_the_member_asks_is_looked_at_again(
    client: _Client, offsets: OffsetLedger
) -> None:
    client.comes_back_when_asked = True
    member = _Member(client, ["lines"], offsets)
    client.assign()
    assert list(member.poll(0.0)) == []
    ((_, chunk),) = member.poll(0.0)
    assert chunk.start == 9, "another member had it in between"


def test_a_member_that_gets_no_answer_asks_again_before_it_gives_anything(
    client: _Client, offsets: OffsetLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = _Member(client, ["lines"], offsets)
    client.assign()

    def fail(*_: Any, **__: Any) -> int:
        raise errors.KafkaTimeoutError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(client, "committed", fail)
        with pytest.raises(RetriableError):
            member.poll(0.0)
    ((_, chunk),) = member.poll(0.0)
    assert chunk.start == 7
