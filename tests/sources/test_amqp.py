from __future__ import annotations

import contextlib
import datetime
import decimal
import math
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pika.data
import pyarrow as pa
import pytest

from penstock.sources.amqp import AmqpReceiver, _session
from penstock.sources.formats import JsonFormat
from penstock.testing import crash_test, run_receiver
from tests.bounds import HANG_S
from tests.services.proxy import Proxy
from tests.services.rabbitmq import RabbitMQ
from tests.sources.case_amqp import shared_server
from tests.sources.cases import SECRET

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FAST = {"spark.streaming.blockInterval": "20ms"}
KINDS = ("classic", "quorum")


@pytest.fixture
def server() -> RabbitMQ:
    running = shared_server()
    if not running.is_running:
        running.start()
    return running


def a_queue(server: RabbitMQ, kind: str = "classic") -> str:
    queue = f"{kind}-{uuid.uuid4().hex[:8]}"
    server.declare(queue, x_queue_type=kind)
    return queue


def a_receiver(server: RabbitMQ, queue: str, **options: Any) -> AmqpReceiver:
    return AmqpReceiver(server.address, queue, username="user", password=SECRET, **options)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def wait_until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_messages_are_stored_in_their_order_and_leave_the_queue(
    server: RabbitMQ, kind: str
) -> None:
    queue = a_queue(server, kind)
    server.publish(queue, numbers(100))
    with run_receiver(a_receiver(server, queue, prefetch=10), settings=FAST) as running:
        assert running.wait_for_records(100) == numbers(100)
    with server.channel() as channel:
        assert channel.queue_purge(queue).method.message_count == 0


class Queue:
    def __init__(self, server: RabbitMQ, kind: str, ids: bool) -> None:
        self.name = a_queue(server, kind)
        server.publish(self.name, self.expected(), ids=ids)

    def expected(self) -> list[bytes]:
        return numbers(40)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "ids", "claim"),
    [
        ("quorum", True, "exactly once"),
        # `test_every_source` kills receivers of classic queues.
        pytest.param("classic", False, "at least once", marks=pytest.mark.exhaustive),
    ],
)
def test_ids_of_the_sender_keep_kills_from_doubling(
    server: RabbitMQ, kind: str, ids: bool, claim: Any
) -> None:
    crash_test(
        lambda queue: a_receiver(server, queue.name, prefetch=10),
        lambda: contextlib.nullcontext(Queue(server, kind, ids)),
        claim=claim,
        kills=9,
        seed=5,
        settings=FAST,
    )


def test_a_queue_that_is_deleted_is_reported_and_read_again_when_it_is_there(
    server: RabbitMQ,
) -> None:
    queue = a_queue(server)
    server.publish(queue, [b"one"])
    with run_receiver(a_receiver(server, queue), settings=FAST) as running:
        running.wait_for_records(1)
        with server.channel() as channel:
            channel.queue_delete(queue)
        running.wait_for_error("the queue was deleted")
        running.wait_for_error(f"no queue '{queue}'")
        server.declare(queue)
        server.publish(queue, [b"two"])
        assert running.wait_for_records(2) == [b"one", b"two"]


def test_messages_with_one_id_that_differ_are_all_stored(server: RabbitMQ) -> None:
    queue = a_queue(server)
    server.publish(queue, numbers(20), message_id="the same")
    with run_receiver(a_receiver(server, queue, prefetch=5), settings=FAST) as running:
        running.hold()
        running.wait_for_records(5)
        # The server gives again what was not acknowledged.
        server.control("close_all_connections", "of a test")
        running.wait_for_error("CONNECTION_FORCED")
        running.go_on()
        running.wait_for_records(20)
        wait_until(lambda: server.ready(queue) == 0)
        running.stop()
        assert running.records == numbers(20)


def test_what_waits_is_bounded_though_connections_are_lost_again_and_again(
    server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = a_queue(server)
    server.publish(queue, numbers(60))
    sessions: list[Any] = []
    begin = AmqpReceiver._begin
    monkeypatch.setattr(
        AmqpReceiver, "_begin", lambda receiver: sessions.append(begin(receiver)) or sessions[-1]
    )
    proxy = Proxy(server.port)
    address = f"amqp://127.0.0.1:{proxy.port}"
    receiver = AmqpReceiver(address, queue, username="user", password=SECRET, prefetch=20)
    narrow = {**FAST, "spark.streaming.blockQueueSize": "1"}
    try:
        with run_receiver(receiver, settings=narrow) as running:
            running.hold()
            running.wait_for_records(1)
            for number in range(2, 8):
                wait_until(lambda: server.ready(queue) == 40)
                assert sessions[0]._inbox.qsize() <= 20
                proxy.cut()
                proxy.wait_for_connections(number)
            running.go_on()
            assert sorted(running.wait_for_records(60)) == sorted(numbers(60))
    finally:
        proxy.close()


@pytest.fixture
def impatient(server: RabbitMQ) -> Iterator[RabbitMQ]:
    """Have the server close channels whose messages are not acknowledged within half a second."""
    setting = "[application:set_env(rabbit, K, V) || {{K, V}} <- [{{consumer_timeout, {}}}, "
    setting += "{{channel_tick_interval, {}}}]]."
    server.control("eval", setting.format(500, 300))
    yield server
    server.control("eval", setting.format(1_800_000, 60_000))


def test_a_server_that_waits_no_longer_for_acknowledgements_is_reported_and_asked_again(
    impatient: RabbitMQ,
) -> None:
    queue = a_queue(impatient)
    with run_receiver(a_receiver(impatient, queue, prefetch=5), settings=FAST) as running:
        running.hold()
        impatient.publish(queue, numbers(20))
        running.wait_for_error("delivery acknowledgement on channel 1 timed out")
        running.go_on()
        assert running.wait_for_records(20) == numbers(20)
        wait_until(lambda: impatient.ready(queue) == 0)
        running.stop()
        assert running.records == numbers(20)


def test_headers_that_json_has_nothing_for_are_no_reason_not_to_take_a_message(
    server: RabbitMQ,
) -> None:
    queue = a_queue(server)
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    server.publish(queue, [b"payload"], headers={"deep": deep, "names": {b"\xff": b"\xff"}})
    with run_receiver(a_receiver(server, queue, columns=True), settings=FAST) as running:
        headers = {each["key"]: each["value"] for each in running.wait_for_records(1)[0]["headers"]}
    assert headers["names"] == '{"�": "�"}'
    assert headers["deep"].strip("[]") == '"..."'
    assert _session._text([math.inf, math.nan, 1.5]) == '["inf", "nan", 1.5]'


class Encoded(bytes):
    """A header's value as it goes to the server: pika encodes no floating-point number."""


def test_numbers_and_times_of_headers_are_those_that_were_sent(
    server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = pika.data.encode_value

    def encode_value(pieces: list[bytes], value: Any) -> int:
        if not isinstance(value, Encoded):
            return encode(pieces, value)  # type: ignore[no-any-return]
        pieces.append(value)
        return len(value)

    monkeypatch.setattr(pika.data, "encode_value", encode_value)
    queue = a_queue(server)
    headers = {
        "double": Encoded(struct.pack(">cd", b"d", 0.1)),
        "single": Encoded(struct.pack(">cf", b"f", -0.5)),
        "beyond": Encoded(struct.pack(">cd", b"d", 1e300)),
        "latest": Encoded(struct.pack(">cQ", b"T", 253_402_300_799)),
        "later": Encoded(struct.pack(">cQ", b"T", 253_402_300_800)),
        "table": {"ratios": [Encoded(struct.pack(">cd", b"d", 2.5)), 1]},
    }
    server.publish(queue, [b"payload"], headers=headers)
    with run_receiver(a_receiver(server, queue, columns=True), settings=FAST) as running:
        (record,) = running.wait_for_records(1)
    assert {each["key"]: each["value"] for each in record["headers"]} == {
        "double": "0.1",
        "single": "-0.5",
        "beyond": "1e+300",
        "latest": "9999-12-31T23:59:59+00:00",
        "later": "253402300800",
        "table": '{"ratios": [2.5, 1]}',
    }


def test_columns_have_what_a_message_has_beside_its_body(server: RabbitMQ) -> None:
    queue = a_queue(server)
    told = {
        "message_id": "m1",
        "content_type": "text/plain",
        "timestamp": 1_700_000_000,
        "headers": {
            "number": 1,
            "text": "one",
            "bytes": b"\xff",
            "none": None,
            # Pika gives an integer of 64 bits as a type of its own: RabbitMQ's counts are some.
            "long": 2**40,
            "flag": True,
            "time": datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc),
            "decimal": decimal.Decimal("1.5"),
            "deaths": [{"count": 2**40, "queue": "ü", "none": [None, False]}],
        },
    }
    server.publish(queue, [b"payload"], **told)
    server.publish(queue, [b""], ids=False, timestamp=2**63)
    with run_receiver(a_receiver(server, queue, columns=True), settings=FAST) as running:
        first, second = running.wait_for_records(2)
    assert first == {
        "exchange": "",
        "routingKey": queue,
        "messageId": "m1",
        "timestamp": datetime.datetime.fromtimestamp(1_700_000_000, datetime.timezone.utc),
        "contentType": "text/plain",
        "redelivered": False,
        "headers": [
            {"key": "number", "value": "1"},
            {"key": "text", "value": "one"},
            {"key": "bytes", "value": "�"},
            {"key": "none", "value": None},
            {"key": "long", "value": "1099511627776"},
            {"key": "flag", "value": "true"},
            {"key": "time", "value": "2020-01-01T00:00:00+00:00"},
            {"key": "decimal", "value": "1.5"},
            {
                "key": "deaths",
                "value": '[{"count": 1099511627776, "queue": "ü", "none": [null, false]}]',
            },
        ],
        "value": b"payload",
    }
    assert (second["messageId"], second["timestamp"], second["headers"]) == (None, None, None)


def test_what_the_format_cannot_read_is_a_dead_letter_and_is_acknowledged(
    server: RabbitMQ,
) -> None:
    queue = a_queue(server)
    server.publish(queue, [b'{"n": 1}', b"\xff no json", b'{"n": "one"}', b'{"n": 2}'])
    receiver = a_receiver(server, queue, values=JsonFormat(pa.schema([("n", pa.int64())])))
    with run_receiver(receiver, settings=FAST) as running:
        assert running.wait_for_records(2) == [{"n": 1}, {"n": 2}]
        running.stop()
        assert [data for data, _ in running.discarded] == [b"\xff no json", b'{"n": "one"}']
    with server.channel() as channel:
        assert channel.queue_purge(queue).method.message_count == 0


def test_a_virtual_host_that_is_not_there_is_said(server: RabbitMQ) -> None:
    receiver = AmqpReceiver(f"{server.address}/other", "q", username="user", password=SECRET)
    with run_receiver(receiver) as running:
        assert SECRET not in running.wait_for_error("vhost other not found")


def test_a_stream_is_refused(server: RabbitMQ) -> None:
    queue = a_queue(server, "stream")
    with run_receiver(a_receiver(server, queue), settings=FAST) as running:
        while not running.errors:  # It gives what comes after its consumer.
            server.publish(queue, [b"one"])
        running.wait_for_error("the queue is a stream")
        assert not running.records


def test_a_server_that_says_nothing_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_session, "_CONNECT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        receiver = AmqpReceiver(f"amqp://127.0.0.1:{silent.getsockname()[1]}", "q")
        with run_receiver(receiver, settings=FAST) as running:
            running.wait_for_error("is asked again, after: AMQPConnectorStackTimeout")


def test_a_server_that_is_not_there_is_said_to_refuse() -> None:
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        receiver = AmqpReceiver(f"amqp://127.0.0.1:{bound.getsockname()[1]}", "q")
        with run_receiver(receiver, settings=FAST) as running:
            running.wait_for_error("after: ConnectionRefusedError: [Errno 111] Connection refused")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"url": "http://host"}, "amqp://host:port"),
        ({"url": "amqp://user:secret@host"}, "username= and password="),
        ({"queue": ""}, "queue"),
        ({"prefetch": 0}, "prefetch"),
        ({"prefetch": 5001}, "messages, from 1 to 5000"),
        ({"heartbeat_s": 70_000}, "heartbeat_s"),
        ({"queue": 7}, "queue"),
        ({"ca_file": "ca.pem"}, "ca_file='ca.pem' is not accepted: .* amqps://"),
        ({"certificate_file": "me.pem"}, "certificate_file"),
    ],
)
def test_what_is_not_accepted_is_said_in_the_driver(options: dict[str, Any], named: str) -> None:
    given: dict[str, Any] = {"url": "amqp://host", "queue": "q", **options}
    with pytest.raises(ValueError, match=named) as refused:
        AmqpReceiver(**given)
    assert "secret" not in str(refused.value)


def a_session(stored: list[tuple[Any, Any]], **options: Any) -> _session.AmqpSession:
    """Return a session with a link, whose receiver says what it is to store."""
    receiver = AmqpReceiver("amqp://host", "q", **options)
    receiver.store = lambda data, position, ack: stored.append((data, position))  # type: ignore[method-assign,assignment,misc]
    session = _session.AmqpSession(receiver)
    session._link = _session._Link(None, None)
    return session


def a_delivery(link: Any, name: str) -> _session._Delivery:
    method = SimpleNamespace(redelivered=False, delivery_tag=1)
    return _session._Delivery(link, method, SimpleNamespace(message_id=name), name.encode())


def test_the_position_has_no_more_ids_than_are_in_hand() -> None:
    """It goes to the driver's log with each block, which takes 64 KB of it."""
    stored: list[tuple[Any, Any]] = []
    session = a_session(stored, prefetch=3)
    for number in range(10):
        session.store([a_delivery(session._link, str(number))])
    positions = [position["ids"] for _, position in stored]
    assert [len(each) // 8 for each in positions] == [1, 2, 3, *[3] * 7]
    assert positions[-1][:8] == positions[-2][8:16]


def test_what_a_channel_had_that_is_gone_is_given_up() -> None:
    """The server gives it again; without an id it would come twice."""
    stored: list[tuple[Any, Any]] = []
    session = a_session(stored)
    gone = _session._Link(None, 1)
    session.store([a_delivery(gone, "a"), a_delivery(session._link, "b")])
    session.store([a_delivery(gone, "c")])
    assert [data for data, _ in stored] == [[b"b"]]
