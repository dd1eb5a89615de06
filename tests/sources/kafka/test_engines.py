"""What the clients would lose, and the engines keep."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from penstock.sources.kafka.engines._confluent_client import Failures, translated
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
    ],
)
def test_an_error_of_the_client_is_one_of_ours(code: int, kind: type[Exception]) -> None:
    assert type(translated(KafkaError(code))) is kind
