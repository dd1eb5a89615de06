"""The settings of the Kafka client: what is taken, and what is never shown."""

from __future__ import annotations

import pickle
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import MissingPackageError
from penstock.sources.kafka import (
    ConsumerStrategies,
    KafkaParams,
    KafkaReceiver,
    KafkaUtils,
    LocationStrategies,
    OffsetRange,
    PerPartitionConfig,
    TopicPartition,
)
from penstock.sources.kafka.engines import ENGINES, engine_of
from penstock.sources.kafka.engines._confluent_client import shared_settings
from penstock.sources.kafka.strategies import ConsumerStrategy

SERVERS = {"bootstrap.servers": "127.0.0.1:9"}
SECRETS = {"sasl.plain.password": "word-of-mine", "ssl_password": "key-of-mine"}


@pytest.fixture(params=ENGINES)
def servers(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {**SERVERS, "penstock.engine": request.param}


def test_secrets_reach_the_client_and_are_not_shown(servers: dict[str, Any]) -> None:
    params = pickle.loads(pickle.dumps(KafkaParams({**servers, **SECRETS})))
    assert sorted(params.values.values()) == ["key-of-mine", "word-of-mine"]
    assert all(name.startswith(("sasl", "ssl")) for name in params.values)
    shown = f"{params!r} {params.values!r} {params.values} {vars(params)}"
    assert "of-mine" not in shown


def test_all_clients_of_a_stream_connect_by_the_same_settings() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "enable.ssl.certificate.verification": "false",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "https.ca.location": "probe",
    }
    params = KafkaParams({**SERVERS, **given, "penstock.engine": "confluent-kafka"})
    assert shared_settings(params) == {**SERVERS, **given}


def test_clients_take_each_others_names_of_security_settings() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "word-of-mine",
    }
    plain, other = (KafkaParams({**SERVERS, **given, "penstock.engine": e}) for e in ENGINES[::-1])
    assert plain.values["sasl_plain_password"] == other.values["sasl.password"] == "word-of-mine"
    assert plain.values["sasl_plain_username"] == other.values["sasl.username"] == "me"


def test_settings_of_a_connection_are_told_apart_without_telling_them(
    servers: dict[str, Any],
) -> None:
    first, same = KafkaParams({**servers, **SECRETS}), KafkaParams({**SECRETS, **servers})
    other = KafkaParams({**servers, **SECRETS, "ssl.password": "another"})
    assert first.identity == same.identity != other.identity
    assert "of-mine" not in first.identity


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bootstrap.server": "a:1"}, r"the closest is 'bootstrap_servers'|bootstrap\.server"),
        ({}, "bootstrap.servers is needed"),
        ({**SERVERS, "enable.auto.commit": True}, "commitAsync"),
        ({**SERVERS, "auto.offset.reset": "first"}, "earliest, latest or none"),
        ({**SERVERS, "value.deserializer": "some.java.Class"}, "a function of bytes"),
        ({**SERVERS, "ssl.context": sys.stdout}, "must be picklable"),
        # kafka-python would go on with the default.
        ({**SERVERS, "security.protocol": "SASL"}, r"security\.protocol.*"),
        ({**SERVERS, "isolation.level": "committed"}, r"isolation\.level"),
        ({"bootstrap.servers": "a:1, b:port"}, r"has 'b:port': a port is a number"),
        ({"bootstrap.servers": "[::1]:port"}, "a port is a number"),
        ({"bootstrap.servers": "a:99999"}, "a port is a number"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    servers: dict[str, Any], given: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        KafkaParams({**given, "penstock.engine": servers["penstock.engine"]})


@pytest.mark.parametrize(
    "address", ["a", "a:1", "a:1, b:2", "[::1]:1", "::1", "PLAINTEXT://a:1", "PLAINTEXT://a"]
)
def test_addresses_of_brokers_are_taken(servers: dict[str, Any], address: str) -> None:
    assert KafkaParams({**servers, "bootstrap.servers": address}).servers == address


def test_a_protocol_in_small_letters_is_not_taken_for_plain_text() -> None:
    given = {**SERVERS, "penstock.engine": "kafka-python", "security.protocol": "sasl_ssl"}
    assert KafkaParams(given).values["security_protocol"] == "SASL_SSL"


def test_a_refusal_tells_no_secret() -> None:
    given = {**SERVERS, "penstock.engine": "confluent-kafka", "ssl.key.pem": "key-of-mine"}
    with pytest.raises(ValueError, match="refuses") as raised:
        KafkaParams({**given, "security.protocol": "ssl"})
    assert "of-mine" not in "".join(traceback.format_exception(raised.value))


def test_a_client_of_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="confluent-kafka or kafka-python, and not 'kafka'"):
        KafkaParams({**SERVERS, "penstock.engine": "kafka"})


def test_the_faster_client_is_taken_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert KafkaParams(SERVERS).engine_name == "confluent-kafka"
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert KafkaParams(SERVERS).engine_name == "kafka-python"


def test_a_missing_client_is_an_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    monkeypatch.delitem(sys.modules, "penstock.sources.kafka.engines.confluent", raising=False)
    engine_of.cache_clear()
    with pytest.raises(MissingPackageError, match=r"penstock\[confluent\]"):
        KafkaParams({**SERVERS, "penstock.engine": "confluent-kafka"})
    monkeypatch.setitem(sys.modules, "kafka", None)
    with pytest.raises(MissingPackageError, match=r"penstock\[kafka\]"):
        ConsumerStrategies.Subscribe(["topic"], SERVERS)
    engine_of.cache_clear()


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


@pytest.mark.parametrize(
    ("offsets", "told"),
    [
        ([("lines", 0, 5)], r"offsets=\[\('lines', 0, 5\)\] is not accepted: a dict such as"),
        ({"lines": 5}, r"offsets='lines' is not accepted: a dict such as"),
        ({("lines", "0"): 5}, r"offsets=\('lines', '0'\) is not accepted: a dict such as"),
        ({("lines", 0): -2}, r"offsets\[\('lines', 0\)\]=-2 is not accepted: a whole number"),
        ({("lines", 0): "earliest"}, r"\]='earliest' is not accepted: a whole number"),
    ],
)
def test_offsets_of_another_form_are_refused_where_they_are_given(offsets: Any, told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        ConsumerStrategies.Subscribe(["lines"], SERVERS, offsets)


def test_partitions_of_another_form_are_refused_where_they_are_given() -> None:
    with pytest.raises(TypeError, match=r"topicPartitions='lines' is not accepted: pairs"):
        ConsumerStrategies.Assign(["lines"], SERVERS)  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"hostMap='lines' is not accepted: a dict of pairs"):
        LocationStrategies.PreferFixed({"lines": "host"})  # type: ignore[dict-item]


def test_arguments_in_the_wrong_order_are_refused_and_show_no_secret() -> None:
    given: Any = {**SERVERS, **SECRETS}
    names: Any = ["lines"]
    strategy: Any = ConsumerStrategies.Subscribe(names, given)
    place: Any = LocationStrategies.PreferConsistent
    calls: list[tuple[str, Callable[[], object]]] = [
        ("topics are a list of names", lambda: ConsumerStrategies.Subscribe(given, names)),
        ("topics are a list of names", lambda: KafkaReceiver(given, names)),
        ("kafkaParams of type str", lambda: ConsumerStrategies.Subscribe(names, str(given))),  # type: ignore[arg-type]
        ("locationStrategy of type", lambda: _stream(strategy, place)),
        ("consumerStrategy of type dict", lambda: _stream(place, given)),
        ("values of type str", lambda: _stream(place, strategy, values="a int")),
    ]
    for told, call in calls:
        with pytest.raises(TypeError, match=told) as raised:
            call()
        assert "of-mine" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bootstrap.servers": 9092}, "bootstrap.servers=9092 is not accepted: brokers as text"),
        ({"bootstrap.servers": [9092]}, r"bootstrap.servers=\[9092\] is not accepted"),
        ({**SERVERS, "group.id": 5}, "group.id=5 is not accepted: a name as text"),
        ({**SERVERS, 5: "x"}, "kafkaParams have the key 5: keys are names as text"),
    ],
)
def test_settings_of_another_type_are_refused_at_once(given: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        KafkaParams(given)


@pytest.mark.parametrize("name", ["", "bad topic!", "lines,words", "..", "x" * 250])
def test_a_name_that_no_topic_can_have_is_refused_where_it_is_given(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a topic"):
        ConsumerStrategies.Subscribe([name], SERVERS)
    with pytest.raises(ValueError, match="is no name of a topic"):
        KafkaReceiver(["lines", name], {**SERVERS, "group.id": "readers"})


def test_a_receiver_refuses_what_could_store_nothing() -> None:
    own = {**SERVERS, "group.id": "readers"}
    with pytest.raises(TypeError, match="convert='value' is not accepted: a function"):
        KafkaReceiver(["lines"], own, "value")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"needs group\.id"):
        KafkaReceiver(["lines"], {**SERVERS, "group.id": ""})


@pytest.mark.parametrize("pattern", ["*lines", 5, re.compile(b"lines")])
def test_a_pattern_that_cannot_be_is_refused_by_its_name(pattern: Any) -> None:
    with pytest.raises(
        (TypeError, ValueError), match=r"pattern=.* is not accepted: a pattern of re"
    ):
        ConsumerStrategies.SubscribePattern(pattern, SERVERS)


@pytest.mark.parametrize("rate", ["1000", -5, True, float("nan"), float("inf")])
def test_limits_of_partitions_that_cannot_be_are_refused(rate: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"max_rate=.* is not accepted: a number"):
        PerPartitionConfig(rate)
    with pytest.raises((TypeError, ValueError), match=r"min_rate=.* is not accepted: a number"):
        PerPartitionConfig(0, rate)


def _stream(location: Any, consumer: Any, **options: Any) -> object:
    # Arguments are looked at before the context is.
    return KafkaUtils.createDirectStream(None, location, consumer, **options)  # type: ignore[arg-type]


def test_a_range_counts_its_offsets() -> None:
    found = OffsetRange("a", 1, 5, 8)
    assert (found.count(), found.topicPartition()) == (3, ("a", 1))
