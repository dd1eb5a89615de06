"""What the clients would lose, and the engines keep."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from penstock.sources.kafka.engines._confluent_client import Failures, as_ours
from penstock.sources.kafka.engines._kafka_python_client import _LastWords
from penstock.sources.kafka.engines.interface import (
    AskAgainError,
    OffsetsGoneError,
    RefusedError,
    StrangerError,
)


def test_an_error_that_came_among_records_is_raised_once_after_them() -> None:
    failures = Failures()
    failures.check()
    failures.take([KafkaError(KafkaError._TRANSPORT), KafkaError(KafkaError._AUTO_OFFSET_RESET)])
    failures.take([KafkaError(KafkaError._TRANSPORT)])
    with pytest.raises(OffsetsGoneError):
        failures.check()
    failures.check()


def test_what_a_broker_says_before_it_closes_is_heard_before_the_close() -> None:
    closed = ConnectionResetError()
    read = iter([(b"1", None), (b"2", closed)])
    receive = _LastWords(lambda: next(read))
    assert [receive() for _ in range(4)] == [
        (b"1", None),
        (b"2", None),
        (b"", closed),
        (b"", closed),
    ]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, RefusedError),
        (KafkaError._AUTHENTICATION, RefusedError),
        (KafkaError.UNKNOWN_MEMBER_ID, StrangerError),
        (KafkaError._TRANSPORT, AskAgainError),
    ],
)
def test_an_error_of_the_client_is_one_of_ours(code: int, kind: type[Exception]) -> None:
    assert type(as_ours(KafkaError(code))) is kind
