"""I9: every connection proves knowledge of the secret before a byte of it is interpreted."""

from __future__ import annotations

import logging
import os
import socket
import threading

import pytest

from penstock.wire import (
    ApplicationLink,
    AuthenticationError,
    Client,
    ClientHandshake,
    HandshakeState,
    Server,
    ServerHandshake,
)
from penstock.wire.messages import Ok
from tests.bounds import HANG_S

SECRET = bytes(range(32))


def converse(server: ServerHandshake, client: ClientHandshake) -> None:
    """Carry the bytes between two halves until both are done."""
    to_client = server.opening()
    while to_client:
        to_server = client.receive(to_client)
        if not to_server:
            return
        to_client = server.receive(to_server)


def test_two_ends_with_the_secret_accept_each_other() -> None:
    server, client = ServerHandshake(SECRET, "tracker"), ClientHandshake(SECRET, "tracker", "s")
    converse(server, client)
    assert server.state is client.state is HandshakeState.ACCEPTED
    assert server.expects == client.expects == 0


@pytest.mark.parametrize("length", [0, 15])
def test_a_short_secret_is_refused_at_once(length: int) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Server(ApplicationLink(bytes(length)), None)
    with pytest.raises(ValueError, match="16 bytes"):
        Client(ApplicationLink(bytes(length), ("127.0.0.1", 1)))


def test_a_proof_for_one_service_is_worthless_at_another() -> None:
    server, client = ServerHandshake(SECRET, "blocks"), ClientHandshake(SECRET, "tracker", "s")
    with pytest.raises(AuthenticationError):
        converse(server, client)
    assert server.state is HandshakeState.REFUSED


def test_every_bit_of_the_hello_counts() -> None:
    for position in range(ClientHandshakeSize := 74):
        server, client = ServerHandshake(SECRET, "t"), ClientHandshake(SECRET, "t", "s")
        hello = bytearray(client.receive(server.opening()))
        assert len(hello) == ClientHandshakeSize
        hello[position] ^= 1
        verdict = server.receive(bytes(hello))
        assert server.state is HandshakeState.REFUSED
        assert verdict == bytes(33)


def test_every_bit_of_the_verdict_counts() -> None:
    for position in range(33):
        server, client = ServerHandshake(SECRET, "t"), ClientHandshake(SECRET, "t", "s")
        verdict = bytearray(server.receive(client.receive(server.opening())))
        verdict[position] ^= 1
        with pytest.raises(AuthenticationError):
            client.receive(bytes(verdict))
        assert client.state is HandshakeState.REFUSED


@pytest.mark.parametrize("other", [1, 9])
def test_another_version_is_named_by_both_ends(other: int) -> None:
    server, client = ServerHandshake(SECRET, "t"), ClientHandshake(SECRET, "t", "10.0.0.1:7077")
    greeting = bytearray(server.opening())
    greeting[8] = other
    with pytest.raises(
        AuthenticationError, match=rf"10\.0\.0\.1:7077.*version {other}.*same Penstock"
    ):
        client.receive(bytes(greeting))
    client = ClientHandshake(SECRET, "t", "s")
    hello = bytearray(client.receive(server.opening()))
    hello[8] = other
    server.receive(bytes(hello))
    assert f"version {other}" in server.reason


def test_a_wrong_secret_is_a_clear_error_for_the_client_and_one_line_for_the_server(
    make_server, make_client, recorder, good_client, caplog
):
    host, port = make_server().start()
    caplog.set_level(logging.INFO, "penstock.wire")
    wrong = os.urandom(32)
    with good_client((host, port)) as good:
        for _ in range(20):
            client = make_client((host, port), secret=wrong)
            with pytest.raises(AuthenticationError, match=f"{host}:{port}.*same application"):
                client.connect()
            with pytest.raises(AuthenticationError):
                client.ask(Ok())
        good.check()
    lines = [r for r in caplog.records if "does not know the secret" in r.getMessage()]
    assert len(lines) == 1
    assert not any(isinstance(message, Ok) for message in recorder.messages())


def test_the_secret_is_in_no_repr_and_no_log_line(
    make_server, make_client, secret, caplog, recorder
):
    caplog.set_level(logging.DEBUG)
    server = make_server()
    client = make_client(server.start())
    client.connect()
    client.ask(Ok())
    with pytest.raises(AuthenticationError):
        make_client((client._address), secret=os.urandom(32)).connect()
    shown = caplog.text + "".join(
        map(repr, (server, client, recorder.peers, ServerHandshake(secret, "t")))
    )
    assert secret.hex() not in shown
    assert repr(secret)[2:-1] not in shown


def test_a_recorded_handshake_is_worthless_the_second_time(
    make_server, raw_peer, recorder, secret, good_client
):
    address = make_server().start()
    with good_client(address):
        first = raw_peer(address)
        handshake = ClientHandshake(secret, "tracker", "server")
        hello = handshake.receive(first.receive(handshake.expects))
        first.send(hello)
        handshake.receive(first.receive(33))
        assert handshake.state is HandshakeState.ACCEPTED
        second = raw_peer(address)
        second.receive(42)
        second.send(hello)
        assert second.rest() == bytes(33)


def test_a_challenge_reflected_to_the_server_proves_nothing(
    make_server, raw_peer, good_client, secret
):
    address = make_server().start()
    with good_client(address):
        # The server's own nonce as the client's, with the proof of every role it could be had for.
        peer = raw_peer(address)
        greeting = peer.receive(42)
        peer.send(greeting + greeting[10:42])
        assert peer.rest() == bytes(33)
        # A second connection's answer as the proof on the first.
        one, two = raw_peer(address), raw_peer(address)
        nonce = one.receive(42)[10:]
        two.receive(42)
        two.send(b"PENSTOCK\x02\x00" + nonce + bytes(32))
        answer = two.rest()
        assert answer == bytes(33)
        one.send(b"PENSTOCK\x02\x00" + nonce + answer[1:])
        assert one.rest() == bytes(33)


def test_a_server_that_does_not_know_the_secret_is_not_believed(make_client):
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)
    connections = 0

    def pose_as_server() -> None:
        nonlocal connections
        accepted, _ = listener.accept()
        connections += 1
        with accepted:
            accepted.sendall(b"PENSTOCK\x02\x00" + bytes(32))
            accepted.recv(74)
            accepted.sendall(b"\x01" + bytes(32))
            accepted.recv(1)

    thread = threading.Thread(target=pose_as_server)
    thread.start()
    with listener:
        with pytest.raises(AuthenticationError, match="could not prove"):
            make_client(listener.getsockname()).connect()
        thread.join(HANG_S)
    assert connections == 1  # it was not tried again


def test_what_listens_there_may_be_no_penstock_at_all(make_client):
    listener = socket.create_server(("127.0.0.1", 0))

    def pose_as_web_server() -> None:
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nServer: x\r\n\r\n")

    thread = threading.Thread(target=pose_as_web_server)
    thread.start()
    with listener, pytest.raises(AuthenticationError, match="does not speak this protocol"):
        make_client(listener.getsockname()).connect()
    thread.join(HANG_S)
