"""What the clients would lose, and the engines keep."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from penstock.clock import ManualClock
from penstock.rate_limited_log import RateLimitedLog
from penstock.sources.kafka.engines._confluent_client import ClientLog, Failures, translated
from penstock.sources.kafka.engines._kafka_python_client import _DataBeforeClose
from penstock.sources.kafka.engines.interface import (
    AccessDeniedError,
    OffsetOutOfRangeError,
    RetriableError,
    UnknownMemberError,
)


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
