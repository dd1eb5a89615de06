"""The settings of the Kafka client: what is taken, and what is never shown."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest

from penstock.sources.kafka import (
    ConsumerStrategies,
    KafkaParams,
    LocationStrategies,
    MissingKafkaClientError,
    OffsetRange,
    TopicPartition,
)
from penstock.sources.kafka.strategies import ConsumerStrategy

SERVERS = {"bootstrap.servers": "127.0.0.1:9"}
SECRETS = {"sasl.plain.password": "word-of-mine", "ssl_password": "key-of-mine"}


def test_secrets_reach_the_client_and_are_not_shown() -> None:
    params = pickle.loads(pickle.dumps(KafkaParams({**SERVERS, **SECRETS})))
    assert params._values["sasl_plain_password"] == "word-of-mine"
    assert params._values["ssl_password"] == "key-of-mine"
    shown = f"{params!r} {params._values!r} {params._values} {vars(params)}"
    assert "of-mine" not in shown


def test_settings_of_a_connection_are_told_apart_without_telling_them() -> None:
    first, same = KafkaParams({**SERVERS, **SECRETS}), KafkaParams({**SECRETS, **SERVERS})
    other = KafkaParams({**SERVERS, **SECRETS, "ssl.password": "another"})
    assert first.identity == same.identity != other.identity


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bootstrap.server": "a:1"}, "the closest is 'bootstrap_servers'"),
        ({}, "bootstrap.servers is needed"),
        ({**SERVERS, "enable.auto.commit": True}, "commitAsync"),
        ({**SERVERS, "auto.offset.reset": "first"}, "earliest, latest or none"),
        ({**SERVERS, "value.deserializer": "some.java.Class"}, "a function of bytes"),
        ({**SERVERS, "ssl.context": sys.stdout}, "must be picklable"),
    ],
)
def test_what_cannot_be_is_refused_at_once(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        KafkaParams(given)


def test_a_missing_client_is_an_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "kafka", None)
    with pytest.raises(MissingKafkaClientError, match=r"penstock\[kafka\]"):
        ConsumerStrategies.Subscribe(["topic"], SERVERS)


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        (ConsumerStrategies.Subscribe(["a", "b"], SERVERS), {("a", 0), ("a", 1), ("b", 0)}),
        (ConsumerStrategies.SubscribePattern("a.?", SERVERS), {("a", 0), ("a", 1), ("ab", 0)}),
        (ConsumerStrategies.Assign([("a", 1), ("b", 0)], SERVERS), {("a", 1), ("b", 0)}),
    ],
)
def test_a_strategy_wants_its_partitions(
    strategy: ConsumerStrategy, wanted: set[tuple[str, int]]
) -> None:
    there = [("a", 0), ("a", 1), ("ab", 0), ("b", 0), ("bab", 0)]
    topics = strategy.topics
    listed = [each for each in there if topics is None or each[0] in topics]
    assert {each for each in listed if strategy.wants(TopicPartition(*each))} == wanted


def test_strategies_refuse_what_reads_nothing() -> None:
    with pytest.raises(ValueError, match="at least one topic"):
        ConsumerStrategies.Subscribe([], SERVERS)
    with pytest.raises(TypeError, match="a list of names"):
        ConsumerStrategies.Subscribe("topic", SERVERS)
    fixed = LocationStrategies.PreferFixed({("a", 0): "host"})
    assert fixed.hosts == {TopicPartition("a", 0): "host"}


def test_a_range_counts_its_offsets() -> None:
    found = OffsetRange("a", 1, 5, 8)
    assert (found.count(), found.topicPartition()) == (3, ("a", 1))
