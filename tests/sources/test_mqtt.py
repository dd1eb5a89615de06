from __future__ import annotations

import contextlib
import datetime
import json
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from penstock.sources.formats import JsonFormat
from penstock.sources.mqtt import MqttReceiver, _session
from penstock.sources.mqtt._client import MqttClient
from penstock.sources.mqtt._session import MqttSession, Released, numbers_of, ranges_of
from penstock.testing import RunningReceiver, run_receiver
from tests.bounds import HANG_S
from tests.services.mosquitto import Mosquitto
from tests.services.proxy import Proxy
from tests.services.tls import certificate_of_host

pytestmark = pytest.mark.slow

FAST = {"spark.streaming.blockInterval": "20ms"}
VERSIONS = ("5", "3.1.1")

ONLY_OPEN = {
    "defaultACLAccess": {"publishClientSend": True, "publishClientReceive": True},
    "roles": [
        {
            "rolename": "open",
            "acls": [{"acltype": "subscribePattern", "topic": "open/#", "allow": True}],
        }
    ],
    "groups": [{"groupname": "all", "roles": [{"rolename": "open"}]}],
    "clients": [],
    "anonymousGroup": "all",
}
"""Rules of mosquitto's dynamic security."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path_factory.mktemp("mosquitto")) as running:
        yield running


def a_name() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


def wait_until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def a_receiver(broker: Mosquitto, name: str, **options: object) -> MqttReceiver:
    return MqttReceiver(broker.address, f"{name}/#", client_id=name, **options)  # type: ignore[arg-type]


@contextlib.contextmanager
def receiving(
    broker: Mosquitto, name: str, folder: Path | None = None, **options: object
) -> Iterator[RunningReceiver]:
    with run_receiver(a_receiver(broker, name, **options), settings=FAST) as running:
        wait_until(lambda: f"{name}/# (QoS" in broker.log())
        yield running


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_are_stored_in_their_order(broker: Mosquitto, qos: int, version: str) -> None:
    name = a_name()
    with receiving(broker, name, qos=qos, version=version) as running:
        broker.publish(f"{name}/x", *numbers(100), qos=qos)
        assert running.wait_for_records(100) == numbers(100)
        assert not running.errors


def test_filters_that_overlap_give_a_message_once(broker: Mosquitto) -> None:
    name = a_name()
    receiver = MqttReceiver(broker.address, [f"{name}/#", f"{name}/+"], client_id=name, qos=2)
    with run_receiver(receiver, settings=FAST) as running:
        wait_until(lambda: f"{name}/+ (QoS" in broker.log())
        # The same twice is two messages; `deep` fits only one of the filters.
        broker.publish(f"{name}/x", b"same", b"same", b"other", qos=2)
        broker.publish(f"{name}/x/deep", b"deep", qos=1)
        broker.publish(f"{name}/x", b"end")
        running.wait_for_records(5)
        running.stop()
        assert running.records == [b"same", b"same", b"other", b"deep", b"end"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_that_the_broker_has_released_and_gives_again_is_stored_once(
    broker: Mosquitto, version: str
) -> None:
    name = a_name()
    proxy = Proxy(broker.port)
    receiver = MqttReceiver(
        f"mqtt://127.0.0.1:{proxy.port}", f"{name}/#", client_id=name, qos=2, version=version
    )

    def said(what: str) -> int:
        return len(re.findall(what, broker.log()))

    with contextlib.closing(proxy), run_receiver(receiver, settings=FAST) as running:
        wait_until(lambda: running.position is not None)
        sent: list[bytes] = []
        while said(f"Received PUBCOMP from {name}") == len(sent):
            # Until they are released, and the broker has not heard yet that this is known for good.
            running.hold()
            sent.append(b"%d" % len(sent))
            broker.publish(f"{name}/x", sent[-1], qos=2)
            running.wait_for_records(len(sent))
            running.go_on()
            running.hold()
            wait_until(lambda: said(f"Sending PUBREL to {name}") == len(sent))
            wait_until(lambda: running.position["unreleased"] == [])
        # A connection is made while it does not answer, and is given up.
        broker.stall()
        client = broker.client(name, version)
        if version == "5":
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 1000
            client.connect("127.0.0.1", broker.port, clean_start=False, properties=properties)
        else:
            client.connect("127.0.0.1", broker.port)
        connection = client.socket()
        assert connection is not None
        connection.close()
        proxy.cut()
        proxy.wait_for_connections(2)
        broker.go_on()
        running.go_on()
        broker.publish(f"{name}/x", b"end", qos=2)
        wait_until(lambda: b"end" in running.records)
        assert running.records == [*sent, b"end"]


def test_numbers_that_a_broker_soon_uses_again_are_not_taken_for_the_messages_before() -> None:
    released = Released()
    released.add(1, 11)
    assert released.has(1, 11)
    assert not released.has(1, 12)
    assert not released.has(2, 11)
    released.note_new(1)
    released.add(1, 11)
    assert not released.has(1, 11)


@pytest.mark.parametrize("version", VERSIONS)
def test_receivers_of_a_shared_subscription_share_its_messages(
    broker: Mosquitto, version: str
) -> None:
    name = a_name()
    with contextlib.ExitStack() as kept:
        both = []
        for member in ("one", "two"):
            receiver = MqttReceiver(
                broker.address, f"$share/g/{name}/#", client_id=name + member, version=version
            )
            both.append(kept.enter_context(run_receiver(receiver, settings=FAST)))
            wait_until(lambda m=member: f"{name}{m} 1 $share/g/{name}/#" in broker.log())  # type: ignore[misc]
        broker.publish(f"{name}/x", *numbers(50))
        wait_until(lambda: sum(len(each.records) for each in both) >= 50)
        one, two = (each.records for each in both)
        assert one
        assert two
        assert sorted(one + two) == sorted(numbers(50))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_retained_message_comes_once_though_the_receiver_comes_back(
    broker: Mosquitto, version: str
) -> None:
    name = a_name()
    broker.publish(f"{name}/x", b"kept", retain=True)
    with receiving(broker, name, version=version) as running:
        running.wait_for_records(1)
        running.stop()
        running.start()
        broker.publish(f"{name}/x", b"new")
        assert running.wait_for_records(2) == [b"kept", b"new"]


def test_retained_messages_may_be_left_out(broker: Mosquitto) -> None:
    name = a_name()
    broker.publish(f"{name}/x", b"kept", retain=True)
    with receiving(broker, name, retained=False) as running:
        broker.publish(f"{name}/x", b"new")
        assert running.wait_for_records(1) == [b"new"]


def test_a_filter_that_is_left_out_later_gives_nothing_more(broker: Mosquitto) -> None:
    name = a_name()
    broker.make_session(name, f"{name}/old/#", 1)
    filters = [f"{name}/old/#", f"{name}/new"]
    receiver = MqttReceiver(broker.address, filters, client_id=name)
    with run_receiver(receiver, settings=FAST) as running:
        broker.publish(f"{name}/old/x", b"first")
        running.wait_for_records(1)
        # The broker has the session's filter, and gives its messages before the answer.
        wait_until(lambda: (running.position or {}).get("topics") == filters)
        running.stop()
        receiver.topics = filters[1:]
        running.start()
        wait_until(lambda: f"Sending UNSUBACK to {name}" in broker.log())
        broker.publish(f"{name}/old/x", b"not wanted")
        broker.publish(f"{name}/new", b"wanted")
        assert running.wait_for_records(2) == [b"first", b"wanted"]


def test_a_session_that_is_gone_is_reported_and_made_again(broker: Mosquitto) -> None:
    name = a_name()
    with receiving(broker, name) as running:
        broker.publish(f"{name}/x", b"one")
        running.wait_for_records(1)
        running.stop()
        ended = broker.client(name)
        ended.connect("127.0.0.1", broker.port, clean_start=True)
        ended.loop_start()
        wait_until(ended.is_connected)
        ended.disconnect()
        ended.loop_stop()
        running.start()
        running.wait_for_error(f"has no session '{name}' any more")
        broker.publish(f"{name}/x", b"two")
        assert running.wait_for_records(2) == [b"one", b"two"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_subscription_that_is_refused_is_named_and_the_others_go_on(
    tmp_path: Path, version: str
) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps(ONLY_OPEN))
    [plugin] = Path("/usr/lib").glob("*/mosquitto_dynamic_security.so")
    lines = (f"plugin {plugin}", f"plugin_opt_config_file {rules}")
    with Mosquitto(tmp_path, *lines) as broker:
        name = a_name()
        receiver = MqttReceiver(
            broker.address, ["closed/#", "open/#"], client_id=name, version=version
        )
        with run_receiver(receiver, settings=FAST) as running:
            running.wait_for_error("refuses the subscription 'closed/#'")
            broker.publish("open/x", b"one")
            assert running.wait_for_records(1) == [b"one"]
        receiver = MqttReceiver(broker.address, "closed/#", client_id=name, version=version)
        with run_receiver(receiver, settings=FAST) as running:
            running.wait_for_error("refuses all subscriptions")


def test_a_broker_that_gives_less_than_the_qos_is_reported(tmp_path: Path) -> None:
    name = a_name()
    with Mosquitto(tmp_path, "max_qos 1") as broker, receiving(broker, name, qos=2) as running:
        running.wait_for_error(f"gives less than was asked for to the subscription '{name}/#'")
        broker.publish(f"{name}/x", b"one")
        assert running.wait_for_records(1) == [b"one"]


def test_tls_is_checked_against_the_given_certificates(tmp_path: Path) -> None:
    certificate = certificate_of_host(tmp_path)
    with Mosquitto(tmp_path, tls=True) as broker:
        name = a_name()
        with run_receiver(a_receiver(broker, name)) as running:
            running.wait_for_error("certificate verify failed")
        with run_receiver(a_receiver(broker, name, ca_file=str(certificate))) as running:
            wait_until(lambda: f"{name}/# (QoS" in broker.log())
            large = b"x" * 300_000
            broker.publish(f"{name}/x", *numbers(200), large)
            assert running.wait_for_records(201) == [*numbers(200), large]


def test_columns_have_what_a_message_has_beside_its_payload(broker: Mosquitto) -> None:
    name = a_name()
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.UserProperty = [("site", "a"), ("site", "b")]
    properties.ContentType = "text/plain"
    before = datetime.datetime.now(datetime.timezone.utc)
    with receiving(broker, name, columns=True) as running:
        broker.publish(f"{name}/x", b"payload", properties=properties)
        broker.publish(f"{name}/y", b"", qos=0)
        first, second = running.wait_for_records(2)
    assert (first["topic"], first["qos"], first["retained"]) == (f"{name}/x", 1, False)
    assert first["headers"] == [{"key": "site", "value": "a"}, {"key": "site", "value": "b"}]
    assert (first["contentType"], first["value"]) == ("text/plain", b"payload")
    assert before <= first["timestamp"] <= datetime.datetime.now(datetime.timezone.utc)
    assert (second["headers"], second["qos"], second["value"]) == (None, 0, b"")


@pytest.mark.parametrize("columns", [False, True])
def test_a_byte_order_mark_in_a_property_is_a_character(broker: Mosquitto, columns: bool) -> None:
    """MQTT 5, 1.5.4: it must be kept. paho refuses it, and the broker would give it for ever."""
    name = a_name()
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.UserProperty = [("\ufeffsite", "a\ufeff")]
    properties.ContentType = "\ufefftext/plain"
    properties.CorrelationData = b"\xef\xbb\xbf"
    with receiving(broker, name, columns=columns) as running:
        broker.publish(f"{name}/\ufeffx", b"payload", properties=properties)
        (found,) = running.wait_for_records(1)
    if columns:
        assert found["topic"] == f"{name}/\ufeffx"
        assert found["headers"] == [{"key": "\ufeffsite", "value": "a\ufeff"}]
        assert found["contentType"] == "\ufefftext/plain"
    else:
        assert found == b"payload"


@pytest.mark.parametrize(
    ("numbers", "in_position"),
    [
        ([], []),
        ([1], [1]),
        ([1, 2], [1, -2]),
        ([7, 3, 4, 5, 9, 8, 65535, 1, 2, 3000], [7, 3, -5, 9, 8, 65535, 1, -2, 3000]),
        (list(range(1, 65536)), [1, -65535]),
    ],
)
def test_numbers_that_are_not_released_are_ranges_in_the_position(
    numbers: list[int], in_position: list[int]
) -> None:
    assert ranges_of(numbers) == in_position
    assert numbers_of({"unreleased": in_position}) == numbers


def test_of_too_many_ranges_the_last_ones_are_kept() -> None:
    ranges = ranges_of([2, 3, *range(5, 20_000, 2)])
    assert len(ranges) == 4000
    assert numbers_of({"unreleased": ranges}) == list(range(12_001, 20_000, 2))
    assert ranges_of([2, 3, *range(5, 8002, 2)]) == [3, *range(5, 8002, 2)]


def test_text_that_a_broker_did_not_look_at_costs_no_connection() -> None:
    """mosquitto refuses it from a sender; others hand it on. MQTT 5, 3.3.2.3."""
    client = MqttClient("x", is_v5=True, clean=True)
    properties = b"\x26\0\1\xff\0\2a\0" + b"\x03\0\1\xfe"
    packet = b"\0\1t" + bytes([len(properties)]) + properties + b"payload"
    found = client._published(0x30, bytearray(packet))
    assert found.payload == b"payload"
    assert found.properties.UserProperty == [("\ufffd", "a\0")]
    assert found.properties.ContentType == "\ufffd"
    # What is in hand is bounded by all of it.
    assert found.size == len(packet)
    longer = bytearray(packet.replace(b"\x03\0\1\xfe", b"\x03\0\2\xfe"))
    with pytest.raises(ValueError, match="longer than all of them"):
        client._published(0x30, longer)


def test_what_the_format_cannot_read_is_a_dead_letter_and_is_acknowledged(
    broker: Mosquitto,
) -> None:
    name = a_name()
    with receiving(broker, name, values=JsonFormat(pa.schema([("n", pa.int64())]))) as running:
        broker.publish(f"{name}/x", b'{"n": 1}', b"\xff no json", b'{"n": "one"}', b'{"n": 2}')
        assert running.wait_for_records(2) == [{"n": 1}, {"n": 2}]
        wait_until(lambda: broker.unacknowledged(name) == 0)
        running.stop()
        assert [data for data, _ in running.discarded] == [b"\xff no json", b'{"n": "one"}']


def test_what_has_no_acknowledgement_waits_in_the_connection_while_the_queue_is_full(
    broker: Mosquitto,
) -> None:
    name = a_name()
    narrow = {**FAST, "spark.streaming.blockQueueSize": "2"}
    # A second is too short on a busy machine; what has no acknowledgement goes with a connection.
    options = {"qos": 0, "keep_alive_s": 3, "max_unacknowledged": 10}
    with run_receiver(a_receiver(broker, name, **options), settings=narrow) as running:
        wait_until(lambda: f"{name} 0 {name}/#" in broker.log())
        running.hold()
        broker.publish(f"{name}/x", *numbers(500), qos=0)
        asked = f"Received PINGREQ from {name}"
        wait_until(lambda: broker.log().count(asked) > 1)
        running.go_on()
        assert running.wait_for_records(500) == numbers(500)
        assert not running.errors


def test_a_connection_that_is_lost_while_the_queue_is_full_is_made_again_once(
    broker: Mosquitto,
) -> None:
    name = a_name()
    narrow = {**FAST, "spark.streaming.blockQueueSize": "2"}
    proxy = Proxy(broker.port)
    receiver = MqttReceiver(
        f"mqtt://127.0.0.1:{proxy.port}",
        f"{name}/#",
        client_id=name,
        keep_alive_s=1,
        max_unacknowledged=5,
    )
    try:
        with run_receiver(receiver, settings=narrow) as running:
            wait_until(lambda: f"{name}/# (QoS" in broker.log())
            running.hold()
            broker.publish(f"{name}/x", *numbers(50))
            wait_until(lambda: broker.unacknowledged(name) == 5)
            proxy.cut()
            # A client that does not read the answer to CONNECT sends none, and gives up.
            asked = f"Received PINGREQ from {name}"
            before = broker.log().count(asked)
            wait_until(lambda: broker.log().count(asked) > before + 2)
            running.go_on()
            running.wait_for_records(50)
            assert proxy.connections == 2
    finally:
        proxy.close()


def test_a_subscription_that_the_broker_has_lost_is_made_again(broker: Mosquitto) -> None:
    name = a_name()
    with receiving(broker, name) as running:
        broker.publish(f"{name}/x", b"one")
        running.wait_for_records(1)
        running.stop()
        other = broker.client(name)
        other.on_connect = lambda *_: other.unsubscribe(f"{name}/#")
        other.on_unsubscribe = lambda *_: other.disconnect()
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 1000
        other.connect("127.0.0.1", broker.port, clean_start=False, properties=properties)
        other.loop_forever()
        before = broker.log().count(f"Sending SUBACK to {name}")
        running.start()
        wait_until(lambda: broker.log().count(f"Sending SUBACK to {name}") > before)
        broker.publish(f"{name}/x", b"two")
        assert running.wait_for_records(2) == [b"one", b"two"]
        assert not running.errors


def subscribed(server: socket.socket) -> socket.socket:
    """Play a broker that has no session, and grants the subscription with QoS 1."""
    connection, _ = server.accept()
    connection.settimeout(HANG_S)
    connection.recv(1 << 16)
    connection.sendall(b"\x20\x03\x00\x00\x00")
    asked = connection.recv(1 << 16)
    connection.sendall(b"\x90\x04" + asked[2:4] + b"\x00\x01")
    return connection


def test_bytes_that_are_not_durable_are_bounded_as_messages_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_hand: list[int] = []
    take = MqttSession._pass

    def noting(session: MqttSession, item: Any) -> None:
        take(session, item)
        in_hand.append(session._bytes_in_hand)

    monkeypatch.setattr(_session, "_MOST_BYTES", 5 * 0x6A)  # of five packets
    monkeypatch.setattr(MqttSession, "_pass", noting)
    with socket.create_server(("127.0.0.1", 0)) as server:
        receiver = MqttReceiver(f"mqtt://127.0.0.1:{server.getsockname()[1]}", "a", client_id="c")
        with run_receiver(receiver, settings=FAST) as running:
            running.hold()
            with subscribed(server) as connection:
                for number in range(1, 21):
                    connection.sendall(b"\x32\x6a\x00\x01a\x00%c\x00" % number + 100 * b"x")
                wait_until(lambda: len(in_hand) >= 5)
                running.go_on()
                assert running.wait_for_records(20) == [100 * b"x"] * 20
    assert max(in_hand) == 5 * 0x6A


def test_a_number_of_a_lost_session_is_another_message_in_the_next_one() -> None:
    """Though it comes again: its first sending may have been lost with a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"mqtt://127.0.0.1:{server.getsockname()[1]}"
        receiver = MqttReceiver(address, "a", client_id="c")
        with run_receiver(receiver, settings=FAST) as running:
            running.hold()
            with subscribed(server) as connection:
                connection.sendall(b"\x32\x07\x00\x01a\x00\x07\x00x")
            with subscribed(server) as connection:
                connection.sendall(b"\x3a\x07\x00\x01a\x00\x07\x00y")
                running.go_on()
                assert running.wait_for_records(2) == [b"x", b"y"]


@pytest.mark.parametrize(
    "message",
    [
        b"\x36\x06\x00\x01a\x00\x01\x00",  # QoS 3
        b"\x30\x04\x00\x09ab",  # a topic that is longer than the packet
        b"\x32\x04\x00\x01a\x00",  # half a number
        b"\x30\x05\x00\x01a\x01\x77",  # a property that there is not
        b"\x30\x03\x00\x01a",  # no properties
    ],
)
def test_what_is_no_message_ends_the_connection_and_is_reported(message: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"mqtt://127.0.0.1:{server.getsockname()[1]}"
        receiver = MqttReceiver(address, "a", client_id="c")
        with run_receiver(receiver, settings=FAST) as running, subscribed(server) as connection:
            connection.sendall(b"\x30\x05\x00\x01a\x00!" + message)
            running.wait_for_error("is asked again, after: it sent no MQTT")
            assert running.wait_for_records(1) == [b"!"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"url": "http://host"}, "mqtt://host:port"),
        ({"url": "mqtt://user:secret@host"}, "username= and password="),
        ({"topics": []}, "topics"),
        ({"topics": "a/#/b"}, "topics='a/#/b' is not accepted"),
        ({"topics": ["a/+", "a+/b"]}, "topics"),
        ({"topics": [7]}, "topics"),
        ({"keep_alive_s": 70_000}, "seconds, from 1 to 65535"),
        ({"session_expiry_s": 2**32}, "session_expiry_s"),
        ({"qos": 3}, "qos=3"),
        ({"version": "4"}, "version"),
        ({"client_id": None}, "client_id is needed for qos=1"),
        ({"max_unacknowledged": 5000}, "messages, from 1 to 4000"),
        ({"ca_file": "ca.pem"}, "ca_file='ca.pem' is not accepted: .* mqtts://"),
    ],
)
def test_what_is_not_accepted_is_said_in_the_driver(options: dict[str, Any], named: str) -> None:
    given: dict[str, Any] = {"url": "mqtt://host", "topics": "a/#", "client_id": "c", **options}
    with pytest.raises(ValueError, match=named) as refused:
        MqttReceiver(**given)
    assert "secret" not in str(refused.value)
