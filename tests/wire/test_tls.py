"""Connections inside TLS, with the application's own certificate."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import threading
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.wire import Client, Server, TlsIdentity, WireError, WireOptions
from penstock.wire.messages import DeregisterReceiver, Ok
from tests.wire.conftest import WAIT_S, RawPeer, Recorder

MARK = "what nobody else may read"


@pytest.fixture(scope="module")
def identity() -> TlsIdentity:
    return TlsIdentity.make()


class Listener:
    """Stands between a client and a server, and keeps all bytes that go by."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._to = address
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._server.getsockname()
        self.heard = bytearray()
        self._threads = [threading.Thread(target=self._accept, name="listener")]
        self._threads[0].start()

    def _accept(self) -> None:
        near, _ = self._server.accept()
        far = socket.create_connection(self._to, WAIT_S)
        for pair in ((near, far), (far, near)):
            thread = threading.Thread(target=self._pass_on, args=pair, name="listener")
            self._threads.append(thread)
            thread.start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.heard += data
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for thread in self._threads:
            thread.join(WAIT_S)
        self._server.close()


@pytest.mark.parametrize("encrypted", [True, False], ids=["tls", "plain"])
def test_who_listens_in_reads_nothing(
    make_server: Callable[..., Server],
    make_client: Callable[..., Client],
    identity: TlsIdentity,
    encrypted: bool,
) -> None:
    server = make_server(tls=identity if encrypted else None)
    listener = Listener(server.start())
    client = make_client(listener.address, tls=identity if encrypted else None)
    client.connect()
    for number in range(100):
        assert client.ask(DeregisterReceiver(number, "attempt", MARK, "")) == Ok()
    client.close()
    listener.close()
    assert (MARK.encode() in listener.heard) is not encrypted
    assert (b"PENSTOCK" in listener.heard) is not encrypted


@pytest.fixture
def short() -> WireOptions:
    return WireOptions(authentication_timeout_s=1.0)


def test_another_applications_certificate_is_not_accepted_even_with_the_secret(
    make_server: Callable[..., Server],
    make_client: Callable[..., Client],
    recorder: Recorder,
    identity: TlsIdentity,
    short: WireOptions,
) -> None:
    server = make_server(tls=identity)
    stranger = make_client(
        server.start(),
        tls=TlsIdentity.make(),
        options=short,
        give_up_after_s=1.0,
        ask_timeout_s=2.0,
    )
    with pytest.raises(WireError):
        stranger.connect()
    assert recorder.messages() == []


def test_a_client_without_a_certificate_is_not_accepted(
    make_server: Callable[..., Server], raw_peer: Callable[..., RawPeer], identity: TlsIdentity
) -> None:
    server = make_server(tls=identity)
    peer = raw_peer(server.start())
    context = identity.client_context()
    bare = type(context)(context.protocol)
    bare.check_hostname = False
    bare.load_verify_locations(cadata=identity.certificate)
    # TLS 1.3: the client learns of the refusal when it reads.
    peer.socket = bare.wrap_socket(peer.socket)
    with pytest.raises(OSError, match=r"certificate required|EOF|reset|closed"):
        peer.receive(1)


def test_who_does_not_speak_tls_is_shut_out_and_the_others_go_on(
    make_server: Callable[..., Server],
    make_client: Callable[..., Client],
    raw_peer: Callable[..., RawPeer],
    identity: TlsIdentity,
    short: WireOptions,
) -> None:
    server = make_server(tls=identity, options=short)
    address = server.start()
    client = make_client(address, tls=identity)
    client.connect()
    silent, loud = raw_peer(address), raw_peer(address)
    loud.send(os.urandom(4096))
    assert b"PENSTOCK" not in loud.rest()
    assert silent.rest() == b""  # It is shut out after the time for authentication.
    assert client.ask(DeregisterReceiver(1, "attempt", "", "")) == Ok()


def test_the_private_key_is_not_shown_and_stays_in_no_file(identity: TlsIdentity) -> None:
    before = set(_open_files())
    identity.server_context()
    identity.client_context()
    assert "PRIVATE" not in repr(identity)
    assert set(_open_files()) - before == set()


def _open_files() -> Iterator[str]:
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = os.readlink(link)
            # Connections come and go with other tests.
            if target.startswith("/"):
                yield target


def test_without_the_package_the_error_names_the_way_out(monkeypatch: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    with pytest.raises(Exception, match=r"pip install 'penstock\[tls\]'"):
        TlsIdentity.make()


@pytest.mark.slow
def test_a_closed_connection_leaves_nothing_to_the_garbage_collector(
    make_server: Callable[..., Server],
    raw_peer: Callable[..., RawPeer],
    raw_frame: Callable[..., bytes],
    identity: TlsIdentity,
    secret: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its buffers have a quarter of a megabyte; those who come and go must not fill memory."""

    def standing() -> int:
        return sum(type(found) is SSLProtocol for found in gc.get_objects())

    # What pytest keeps of the log has the errors, with all that they came by.
    caplog.set_level(logging.CRITICAL, "penstock.wire")
    address = make_server(tls=identity).start()
    gc.collect()
    before = standing()
    gc.disable()
    try:
        for number in range(20):
            peer = raw_peer(address)
            peer.socket = identity.client_context().wrap_socket(peer.socket)
            if number % 5:
                peer.authenticate(secret)
            if number % 5 == 2:
                peer.send(b"\xff" * 100)  # Refused: too large.
            elif number % 5 == 3:
                peer.send(
                    peer.sealed(*[raw_frame(msgspec.msgpack.encode(Ok()))] * 100)
                )  # Answers are not read.
            elif number % 5 == 4:
                linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            peer.close()
        end_s = time.monotonic() + WAIT_S
        while standing() > before and time.monotonic() < end_s:
            threading.Event().wait(0.02)
        assert standing() <= before
    finally:
        gc.enable()


def eventually(condition: Callable[[], bool]) -> bool:
    """Wait until it holds: the server counts an end a moment after the peer sees it."""
    end_s = time.monotonic() + WAIT_S
    while not condition() and time.monotonic() < end_s:
        threading.Event().wait(0.01)
    return condition()


def test_those_who_do_not_finish_the_handshake_of_tls_hold_few_descriptors_and_keep_nobody_out(
    make_server: Callable[..., Server],
    make_client: Callable[..., Client],
    identity: TlsIdentity,
) -> None:
    options = WireOptions(max_unauthenticated=16, authentication_timeout_s=WAIT_S)
    server = make_server(tls=identity, options=options)
    address = server.start()
    before = len(list(_open_files()))
    strangers = []
    for number in range(200):
        stranger = socket.create_connection(address, WAIT_S)
        if number % 2:
            stranger.sendall(
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
            )  # A hello's beginning.
        strangers.append(stranger)
    client = make_client(address, tls=identity)
    client.connect()
    assert client.ask(DeregisterReceiver(1, "attempt", "", "")) == Ok()
    assert 0 < len(server.arrivals or ()) <= 16
    assert eventually(lambda: server.refused >= 200 - 16)
    held = len(list(_open_files())) - before - len(strangers)
    assert held < 16 + 10  # Those of the good client, its thread's loop among them.
    # The oldest were shut out, the newest wait.
    assert strangers[0].recv(1) == b""
    for stranger in strangers:
        stranger.close()


def test_the_time_to_prove_oneself_begins_before_tls(
    make_server: Callable[..., Server], identity: TlsIdentity
) -> None:
    options = WireOptions(authentication_timeout_s=0.2)
    server = make_server(tls=identity, options=options)
    stranger = socket.create_connection(server.start(), WAIT_S)
    assert stranger.recv(1) == b""
    assert eventually(lambda: server.refused == 1)
    assert len(server.arrivals or ()) == 0
    stranger.close()
