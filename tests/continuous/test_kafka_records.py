"""What a Kafka sink makes of columns and arguments, without a broker."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

from penstock.sources.kafka.columns import HEADERS
from penstock.streaming import Epoch, KafkaSink, SinkError

PARAMS = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("arguments", "column", "says"),
    [
        ({"key": "k"}, [[1]], "must return one column k, and returned: n"),
        ({"value": "n"}, [[1]], r"column n is of type list<.*let the function make it bytes or"),
        ({"headers": "n"}, ["a"], r"column n is of type string, .*headers are array<struct<key"),
        ({"headers": "n"}, [[{"k": "a", "v": b""}]], "type list<.*, or a header in it has no key"),
        ({"headers": "n"}, [[None]], "type list<.*, or a header in it has no key"),
    ],
)
def test_columns_that_cannot_be_written_are_told_before_brokers_are_asked(
    arguments: dict[str, str], column: list[Any], says: str
) -> None:
    sink = KafkaSink("t", PARAMS, **arguments)  # type: ignore[arg-type]
    kind = HEADERS.type if column == [[None]] else None
    given = pa.record_batch({"n": pa.array(column, kind)})
    with pytest.raises(SinkError, match=says):
        sink.prepare(Epoch(uuid.uuid4().hex, 0, 0, "a" * 32), [given])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"\xff\xfe", None], pa.binary(2)),
        pa.array([b"\xff\xfe", None], pa.binary_view()),
        pa.array([b"\xff\xfe", None]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_bytes_of_any_type_stay_as_they_are(column: pa.Array) -> None:
    sink = KafkaSink("t", PARAMS, key="n", value="n")
    found = list(sink._records(pa.record_batch({"n": column})))
    assert found == [(b"\xff\xfe", b"\xff\xfe", None), (None, None, None)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((3, {}), "topic=3 is not accepted"),
        (("clicks of today", {}), "is no name of a topic"),
        (("t", {}), "bootstrap.servers is needed"),
        (("t", 3), "a dict of the client's settings"),
        (("t", {"penstock.engine": "kafka-python"}), "needs confluent-kafka"),
        (("t", {"transactional.id": "mine"}), "transactional.id is not accepted"),
        (("t", {"transaction.timeout.ms": 10}), "transaction.timeout.ms.*outside allowed range"),
        (("t", {"acks": 1}), "acks"),
        (("t", {"linger.mss": 1}), "linger.mss"),
    ],
)
def test_arguments_that_cannot_be_are_refused_where_they_are_given(
    arguments: tuple[Any, Any], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    topic, given = arguments
    if isinstance(given, dict) and given:
        given = {"bootstrap.servers": "127.0.0.1:1", **given}
    with pytest.raises((TypeError, ValueError), match=says):
        KafkaSink(topic, given)
    assert capfd.readouterr().err == ""
