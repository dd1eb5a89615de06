"""Connections that must be earned: by TLS and SASL, whose settings are told to nobody."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.sources.kafka import KafkaReceiver, KafkaRefusedError, KafkaUnavailableError
from penstock.wire.messages import DeregisterReceiver
from tests.bounds import HANG_S
from tests.receiver.conftest import run, shared, tracker
from tests.receiver.running import Running, Tracker
from tests.services.kafka import PASSWORD, USER, Broker
from tests.services.tls import certificate_of_host
from tests.sources.kafka.running import Direct, numbers, params, subscribe
from tests.streaming.batches import batches
from tests.system.running import settings

__all__ = ["run", "shared", "tracker"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(720)]

PATIENT_S = 900
BOUND_S = HANG_S
"""A bound, not an expectation: who is refused does not wait for `PATIENT_S`."""


def secure(broker: Broker, **changes: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.secure_address,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.certificate),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        **{name.replace("_", "."): value for name, value in changes.items()},
    }


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_tls_and_sasl_are_handed_to_the_client(sc: Any, mortal: Broker, mechanism: str) -> None:
    topic = mortal.create_topic()
    mortal.send(topic, 0, numbers(0, 10))
    with batches(sc) as program:
        given = secure(mortal, sasl_mechanism=mechanism)
        direct = Direct(program, subscribe(mortal, topic, **given))
        program.run(1)
    assert direct.values() == list(range(10))


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            {"sasl_password": "another-of-mine"},
            r"the log-in by PLAIN failed: .*Invalid username or password.*sasl\.password",
        ),
        (
            {"sasl_mechanism": "SCRAM-SHA-256", "sasl_password": "another-of-mine"},
            r"the log-in by SCRAM-SHA-256 failed: .*invalid credentials.*sasl\.password",
        ),
        (
            {"sasl_mechanism": "SCRAM-SHA-512"},
            r"the log-in by SCRAM-SHA-512 failed: .*sasl\.mechanism",
        ),
        (
            {"ssl_ca_location": "of another"},
            r"TLS failed: .*certificate.*ssl\.ca\.location",
        ),
    ],
    ids=["password", "proof", "mechanism", "certificate"],
)
def test_who_is_refused_is_told_of_it_soon_and_without_secrets(
    sc: Any,
    mortal: Broker,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    wrong: dict[str, str],
    told: str,
) -> None:
    if "ssl_ca_location" in wrong:
        wrong = {"ssl_ca_location": str(certificate_of_host(tmp_path))}
    caplog.set_level(logging.DEBUG)
    before = client_threads()
    timeout = {"spark.penstock.kafka.brokerTimeout": f"{PATIENT_S}s"}
    with settings(sc, timeout), batches(sc) as program:
        Direct(program, subscribe(mortal, "any", **secure(mortal, **wrong)))
        with pytest.raises(KafkaRefusedError, match=told) as raised:
            program.start()
    error = raised.value
    assert isinstance(error, KafkaUnavailableError)
    assert error.servers == mortal.secure_address in str(error)
    assert error.waited_s < BOUND_S
    assert "of-mine" not in f"{caplog.text} {error!r} {error.__cause__!r}"
    assert USER not in str(error)
    assert client_threads() <= before


def test_a_receiver_that_is_refused_tells_why_and_is_tried_again(
    run: Callable[..., Running], tracker: Tracker, mortal: Broker
) -> None:
    given = secure(mortal, sasl_password="another-of-mine")
    run(KafkaReceiver(["any"], params(mortal, **given, **{"group.id": "g"})))
    tracker.wait_for_count(DeregisterReceiver, 2)
    for message in tracker.of(DeregisterReceiver):
        assert f"Error connecting to Kafka at {mortal.secure_address}: " in message.message
        assert "the log-in by PLAIN failed" in message.message
        assert "of-mine" not in repr(message)


def client_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("kafka-io")}
