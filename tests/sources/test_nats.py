"""NATS JetStream as a source, with a real server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

from penstock.sources import _on_loop, nats
from penstock.sources.formats import JsonFormat
from penstock.sources.nats import NatsReceiver, _new_client, _Numbers
from penstock.testing import run_receiver
from tests.bounds import HANG_S
from tests.services.nats import NatsServer, make_server
from tests.services.ports import free_ports
from tests.services.tls import certificate_of_host

pytestmark = pytest.mark.slow
QUICK = {"spark.streaming.blockInterval": "20ms", "spark.streaming.receiverRestartDelay": "50"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: Any) -> Iterator[NatsServer]:
    running = make_server(tmp_path_factory.mktemp("nats"))
    running.start()
    yield running
    running.stop()


@pytest.fixture
def server(shared: NatsServer) -> NatsServer:
    """A server that has a stream ``s``, which is empty."""

    async def make(js: Any) -> None:
        with contextlib.suppress(NotFoundError):
            await js.delete_stream("s")
        await js.add_stream(name="s", subjects=["s.>"])

    shared.do(make)
    return shared


def send(server: NatsServer, *payloads: bytes, subject: str = "s.a", **asked: Any) -> None:
    async def publish(js: Any) -> None:
        for payload in payloads:
            await js.publish(subject, payload, **asked)

    server.do(publish)


def info(server: NatsServer) -> Any:
    return server.do(lambda js: js.consumer_info("s", "c"))


def wait_until(holds: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < end_s, f"no {what}"
        time.sleep(0.02)


def reader(server: NatsServer, **asked: Any) -> NatsReceiver:
    return NatsReceiver(server.address, "s", "c", **{"ack_wait_s": 1.0, **asked})


def test_messages_are_stored_and_acknowledged_with_a_short_position(server: NatsServer) -> None:
    send(server, *(b"%d" % number for number in range(200)))
    with run_receiver(reader(server), settings=QUICK) as running:
        assert running.wait_for_records(200) == [b"%d" % number for number in range(200)]
        wait_until(lambda: not info(server).num_ack_pending, "acknowledgement")
        assert running.position["stored"] == "1-200"


def test_a_consumer_of_some_subjects_has_a_short_position_too(server: NatsServer) -> None:
    for number in range(5):
        send(server, b"%d" % number, subject="s.a")
        send(server, b"not this one", subject="s.b")
    with run_receiver(reader(server, subjects="s.a"), settings=QUICK) as running:
        assert running.wait_for_records(5) == [b"0", b"1", b"2", b"3", b"4"]
        assert running.position["stored"] == "1-9"


def test_the_envelope_comes_as_columns(server: NatsServer) -> None:
    send(server, b'{"n": 7}', headers={"kind": "x"})
    send(server, b"{")
    values = JsonFormat(pa.schema([("n", pa.int64())]))
    with run_receiver(reader(server, columns=True, values=values), settings=QUICK) as running:
        (record,) = running.wait_for_records(1)
        wait_until(lambda: running.discarded, "dead letter")
        assert running.discarded[0][0] == b"{"
        wait_until(lambda: not info(server).num_ack_pending, "acknowledgement")
    assert (record["subject"], record["sequence"], record["value"]) == ("s.a", 1, {"n": 7})
    assert record["headers"] == [{"key": "kind", "value": "x"}]


def test_what_waits_for_its_block_is_not_given_again(server: NatsServer) -> None:
    send(server, b"a")
    with run_receiver(reader(server, ack_wait_s=0.3), settings=QUICK) as running:
        running.hold()
        running.wait_for_records(1)
        time.sleep(1)
        found = info(server)
        assert (found.num_ack_pending, found.num_redelivered) == (1, 0)
        running.go_on()
        wait_until(lambda: not info(server).num_ack_pending, "acknowledgement")


def test_what_was_given_to_another_and_not_acknowledged_is_stored(server: NatsServer) -> None:
    """It comes after messages with higher numbers."""

    replies: list[str] = []

    async def take(js: Any) -> None:
        subscription = await js.pull_subscribe_bind("c", "s")
        replies.extend([message.reply for message in await subscription.fetch(2)])

    async def give_back(js: Any) -> None:
        for reply in replies:
            await js._nc.publish(reply, b"-NAK")
        await js._nc.flush()

    config = ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, ack_wait=HANG_S)
    server.do(lambda js: js.add_consumer("s", config))
    send(server, b"1", b"2", b"3")
    server.do(take)
    with run_receiver(reader(server), settings=QUICK) as running:
        assert running.wait_for_records(1) == [b"3"]
        server.do(give_back)
        assert running.wait_for_records(3) == [b"3", b"1", b"2"]
        wait_until(lambda: not info(server).num_ack_pending, "acknowledgement")
        assert running.position["stored"] == "1-3"


def test_what_is_given_too_often_is_reported(server: NatsServer) -> None:
    async def take(js: Any) -> None:
        subscription = await js.pull_subscribe_bind("c", "s")
        await subscription.fetch(1)

    config = ConsumerConfig(
        durable_name="c", ack_policy=AckPolicy.EXPLICIT, ack_wait=1, max_deliver=1
    )
    server.do(lambda js: js.add_consumer("s", config))
    with run_receiver(reader(server), settings=QUICK) as running:
        send(server, b"1")
        running.wait_for_records(1)
        running.stop()
        send(server, b"2")
        server.do(take)
        running.start()
        running.wait_for_error("The message 2 of the stream 's' was given 1 times")


def test_two_receivers_share_a_consumer(server: NatsServer) -> None:
    with (
        run_receiver(reader(server), settings=QUICK) as one,
        run_receiver(reader(server), settings=QUICK) as other,
    ):
        send(server, *(b"%d" % number for number in range(300)))
        wait_until(lambda: len(one.records) + len(other.records) >= 300, "records")
        wait_until(lambda: not info(server).num_ack_pending, "acknowledgement")
        found = sorted(one.records + other.records, key=int)
        assert found == [b"%d" % number for number in range(300)]


def test_a_consumer_that_vanishes_is_made_again_after_what_is_stored(server: NatsServer) -> None:
    send(server, b"1", b"2")
    with run_receiver(reader(server), settings=QUICK) as running:
        running.wait_for_records(2)
        server.do(lambda js: js.delete_consumer("s", "c"))
        send(server, b"3")
        assert running.wait_for_records(3) == [b"1", b"2", b"3"]
        running.wait_for_error("made again, and begins after the message 2")


def test_what_another_had_in_hand_is_not_passed_over_by_a_consumer_that_is_made_again(
    server: NatsServer,
) -> None:
    async def take(js: Any) -> None:
        subscription = await js.pull_subscribe_bind("c", "s")
        assert len(await subscription.fetch(2)) == 2

    config = ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT)
    send(server, b"acknowledged")
    server.do(lambda js: js.add_consumer("s", config))
    with run_receiver(reader(server), settings=QUICK) as running:
        running.wait_for_records(1)
        wait_until(lambda: info(server).ack_floor.stream_seq == 1, "acknowledgement")
        running.stop()
        send(server, b"2", b"3", b"4")
        server.do(take)
        running.start()
        assert running.wait_for_records(2) == [b"acknowledged", b"4"]
        server.do(lambda js: js.delete_consumer("s", "c"))
        running.wait_for_error("made again, and begins after the message 1")
        assert running.wait_for_records(4) == [b"acknowledged", b"4", b"2", b"3"]


def test_numbers_that_were_acknowledged_before_need_no_place_in_the_position(
    server: NatsServer,
) -> None:
    async def take(js: Any) -> None:
        subscription = await js.pull_subscribe_bind("c", "s")
        for message in await subscription.fetch(2):
            await message.ack_sync()

    config = ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT)
    server.do(lambda js: js.add_consumer("s", config))
    send(server, b"1", b"2", b"3")
    server.do(take)
    with run_receiver(reader(server), settings=QUICK) as running:
        assert running.wait_for_records(1) == [b"3"]
        assert running.position["stored"] == "1-3"


def test_a_request_that_the_server_refuses_is_reported(server: NatsServer) -> None:
    async def wait(js: Any) -> None:
        subscription = await js.pull_subscribe_bind("c", "s")
        waiting = asyncio.ensure_future(subscription.fetch(1, timeout=HANG_S))
        while not (await js.consumer_info("s", "c")).num_waiting:
            await asyncio.sleep(0.01)
        with run_receiver(reader(server), settings=QUICK) as running:
            await asyncio.to_thread(running.wait_for_error, "409 Exceeded MaxWaiting")
            waiting.cancel()
            await subscription.unsubscribe()
            await js.publish("s.a", b"one")
            await asyncio.to_thread(running.wait_for_records, 1)

    config = ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, max_waiting=1)
    server.do(lambda js: js.add_consumer("s", config))
    server.do(wait)


def test_a_stream_that_is_made_anew_is_read_from_its_first_message(server: NatsServer) -> None:
    send(server, b"1", b"2")
    with run_receiver(reader(server), settings=QUICK) as running:
        running.wait_for_records(2)
        server.do(lambda js: js.delete_stream("s"))
        running.wait_for_error("stream not found")
        server.do(lambda js: js.add_stream(name="s", subjects=["s.>"]))
        send(server, b"new 1", b"new 2", b"new 3")
        found = running.wait_for_records(5)
        assert found == [b"1", b"2", b"new 1", b"new 2", b"new 3"]
        running.wait_for_error("was made again")


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (ConsumerConfig(ack_policy=AckPolicy.NONE), "has the ack policy 'none'"),
        (ConsumerConfig(ack_policy=AckPolicy.ALL), "has the ack policy 'all'"),
        (ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, deliver_subject="x"), "pushes"),
        (ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, headers_only=True), "headers only"),
    ],
)
def test_a_consumer_that_would_lose_messages_is_refused(
    server: NatsServer, config: ConsumerConfig, why: str
) -> None:
    config.durable_name = "c"
    server.do(lambda js: js.add_consumer("s", config))
    with run_receiver(reader(server), settings=QUICK) as running:
        running.wait_for_error(why)


def test_a_server_without_jetstream_is_told_from_one_that_is_away(server: NatsServer) -> None:
    receiver = NatsReceiver(server.address, "s", "c", domain="elsewhere")
    with run_receiver(receiver, settings=QUICK) as running:
        running.wait_for_error("JetStream is not enabled there, or not for this account")


@pytest.mark.parametrize("is_header", [True, False])
def test_no_more_is_taken_than_there_is_room_for_in_memory(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch, is_header: bool
) -> None:
    """Headers have bytes, too; in the log are two blocks, and two are in the queue."""
    monkeypatch.setattr(_on_loop, "_IN_HAND_BYTES", 1 << 18)
    monkeypatch.setattr(nats, "_READ_BYTES", 1 << 18)
    large = "x" * 50_000
    if is_header:
        send(server, *[b""] * 400, headers={"large": large})
    else:
        send(server, *[large.encode()] * 400)
    narrow = {
        **QUICK,
        "spark.streaming.blockQueueSize": "2",
        "spark.penstock.block.maxSize": "256k",
        "spark.penstock.memory.size": "1m",
    }
    config = ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, ack_wait=30)
    server.do(lambda js: js.add_consumer("s", config))
    with run_receiver(reader(server, columns=True), settings=narrow) as running:
        running.hold()
        seen = 0
        while (taken := info(server).num_ack_pending) > seen or not seen:
            seen = taken
            time.sleep(0.5)
        assert seen < 200
        running.go_on()
        running.wait_for_records(400)


def test_subjects_and_headers_that_are_no_text_stop_nothing(server: NatsServer) -> None:
    """Subjects and headers are bytes to the server."""
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n')
        raw.sendall(b"PUB s.\xff 3\r\none\r\n")
        twice = b"NATS/1.0\r\nTag: a\r\nTag: b: c\r\ntag:\r\n\r\n"
        for head in (
            twice,
            b"NATS/1.0\r\nkind: \xff\r\n\r\n",
            b"NATS/1.0 \xff\xff\r\nkind: b\r\n\r\n",
            b"\x00",
        ):
            raw.sendall(b"HPUB s.a %d %d\r\n%s2\r\n" % (len(head), len(head) + 1, head))
        raw.sendall(b"PING\r\n")
        raw.settimeout(HANG_S)
        while b"PONG" not in raw.recv(1 << 16):
            pass
    send(server, b"next")
    with run_receiver(reader(server, columns=True), settings=QUICK) as running:
        found = running.wait_for_records(6)
    assert [each["value"] for each in found] == [b"one", b"2", b"2", b"2", b"2", b"next"]
    assert found[0]["subject"] == "s.\ufffd"
    names_and_values = [[(h["key"], h["value"]) for h in each["headers"]] for each in found]
    tags = [("Tag", "a"), ("Tag", "b: c"), ("tag", "")]
    assert names_and_values == [[], tags, [("kind", "\ufffd")], [("kind", "b")], [], []]


def test_a_server_that_is_away_is_reported_at_once() -> None:
    (port,) = free_ports(1)
    with run_receiver(NatsReceiver(f"nats://127.0.0.1:{port}", "s", "c")) as running:
        running.wait_for_error("Connect call failed", 20)


def test_a_server_that_says_nothing_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        receiver = NatsReceiver(address, "s", "c", options={"connect_timeout": 0.1})
        with run_receiver(receiver, settings=QUICK) as running:
            running.wait_for_error("is asked again, after: TimeoutError")


def test_tls_is_checked_against_the_given_certificates(tmp_path: Path) -> None:
    certificate = certificate_of_host(tmp_path)
    server = make_server(tmp_path)
    key = tmp_path / "key.pem"
    server.command += ["--tlsverify", "--tlscacert", str(certificate)]
    server.command += ["--tlscert", str(certificate), "--tlskey", str(key)]
    server.start()
    address = server.address.replace("nats://", "tls://")
    ours = {"ca_file": str(certificate), "certificate_file": str(tmp_path / "server.pem")}
    try:
        for given, why in (
            ({}, "certificate verify failed"),
            ({**ours, "certificate_file": None}, "certificate required"),
            ({**ours, "ca_file": "/no/ca.pem"}, "TLS with /no/ca.pem"),
            (ours, "stream not found"),
        ):
            receiver = NatsReceiver(address, "s", "c", **given)  # type: ignore[arg-type]
            with run_receiver(receiver, settings=QUICK) as running:
                assert why in running.wait_for_error(why)
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("scheme", "is_given", "may_lack"),
    [("tls", False, True), ("tls", True, False), ("nats", False, False)],
)
def test_a_connection_that_is_cut_as_tls_begins_may_lack_a_certificate(
    scheme: str, is_given: bool, may_lack: bool, tmp_path: Path
) -> None:
    certificate = certificate_of_host(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, tmp_path / "key.pem")
    given = {"ca_file": str(certificate)} if scheme == "tls" else {}
    if is_given:
        given["certificate_file"] = str(tmp_path / "server.pem")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"{scheme}://127.0.0.1:{server.getsockname()[1]}"
        with run_receiver(NatsReceiver(address, "s", "c", **given), settings=QUICK) as running:
            connection, _ = server.accept()
            is_tls = b"true" if given else b"false"
            connection.sendall(b'INFO {"tls_required":%b,"headers":true}\r\n' % is_tls)
            if given:
                connection = context.wrap_socket(connection, server_side=True)
            with connection:
                # Its end is a reset.
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            told = running.wait_for_error("is asked again, after: ")
            assert ("is a certificate required (certificate_file)?" in told) is may_lack


@pytest.mark.parametrize("given", [{}, {"ca_file": True}])
def test_no_password_is_sent_without_tls_where_tls_was_asked_for(
    given: dict[str, Any], tmp_path: Path
) -> None:
    if given:
        given = {"ca_file": str(certificate_of_host(tmp_path))}
    scheme = "nats" if given else "tls"
    with socket.create_server(("127.0.0.1", 0)) as plain:
        address = f"{scheme}://user:secret@127.0.0.1:{plain.getsockname()[1]}"
        with run_receiver(NatsReceiver(address, "s", "c", **given), settings=QUICK) as running:
            connection, _ = plain.accept()
            with connection:
                connection.sendall(b'INFO {"auth_required":true,"headers":true}\r\n')
                connection.settimeout(HANG_S)
                assert connection.recv(1 << 16) == b""
            assert "secret" not in running.wait_for_error("the server has no TLS")


@pytest.mark.parametrize(
    "servers", ["", "http://u:secret@h", [], ["nats://h:1", "h:2"], 7, "nats://h:x"]
)
def test_an_address_that_is_not_accepted_is_named_without_its_secret(servers: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as raised:
        NatsReceiver(servers, "s", "c")
    assert "secret" not in str(raised.value)


def test_an_option_that_the_client_has_not_is_named_in_the_driver() -> None:
    with pytest.raises(TypeError, match=r"not accepted: .*'pasword'"):
        NatsReceiver("nats://h", "s", "c", options={"user": "u", "pasword": "p"})


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=30))
def test_ranges_of_numbers_are_the_set_of_them(added: list[tuple[int, int]]) -> None:
    numbers, model = _Numbers(), set()
    for first, more in added:
        numbers.add(first, first + more)
        model |= set(range(first, first + more + 1))
        again = _Numbers(numbers.text())
        for found in (numbers, again, numbers.copy()):
            assert {one for one in range(-1, 40) if one in found} == model
        assert len(numbers.text().split()) == len([one for one in model if one - 1 not in model])


def test_of_too_many_ranges_the_one_after_which_nothing_is_missing_stays() -> None:
    numbers = _Numbers("1-5")
    for number in range(10, 10_000, 2):
        numbers.add(number, number)
    assert numbers.gapless() == 5
    assert len(numbers.text().split()) == 1000
    assert 9_998 in numbers


@pytest.mark.slow
def test_a_flush_that_was_given_up_does_not_end_the_reading(server: NatsServer) -> None:
    async def give_up_and_go_on() -> None:
        client = _new_client(is_tls=False)
        await client.connect(server.address)
        given_up = asyncio.create_task(client.flush())
        await asyncio.sleep(0)
        given_up.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await given_up
        await client.flush(HANG_S)
        await client.close()

    asyncio.run(give_up_and_go_on())
