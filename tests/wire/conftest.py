"""Real servers, clients and hostile peers on 127.0.0.1."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.wire import (
    ApplicationLink,
    Client,
    ClientHandshake,
    Peer,
    Reply,
    Seals,
    Server,
    WireOptions,
)
from penstock.wire.messages import DeregisterReceiver, Message, Ok
from tests.bounds import HANG_S

WAIT_S = HANG_S
"""No wait of a test is longer: a bound, not an expectation."""


class Recorder:
    """A handler that answers `Ok` to all and keeps what it saw."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.seen: list[tuple[Peer, Message]] = []
        self.gone: list[Peer] = []
        self.peers: list[Peer] = []
        self.answer: Callable[[Peer, Message], Reply] = lambda peer, message: Ok()

    def on_message(self, peer: Peer, message: Message) -> Reply:
        with self.changed:
            if peer not in self.peers:
                self.peers.append(peer)
            self.seen.append((peer, message))
            self.changed.notify_all()
        return self.answer(peer, message)

    def on_disconnect(self, peer: Peer) -> None:
        with self.changed:
            self.gone.append(peer)
            self.changed.notify_all()

    def messages(self) -> list[Message]:
        with self.changed:
            return [message for _, message in self.seen]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_S)


class RawPeer:
    """A bare socket: does what no client of ours would."""

    seals: Seals

    def __init__(self, address: tuple[str, int], *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(address)

    def receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            if not chunk:
                raise ConnectionResetError(f"closed after {len(data)} of {count} bytes")
            data += chunk
        return data

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def authenticate(self, secret: bytes, service: str = "tracker") -> RawPeer:
        handshake = ClientHandshake(secret, service, "the server")
        while handshake.expects:
            self.send(handshake.receive(self.receive(handshake.expects)))
        self.seals = handshake.seals()
        return self

    def sealed(self, *frames: bytes) -> bytes:
        """Return frames with their tags, as they are to be sent next."""
        return b"".join(one + self.seals.outgoing.tag(one) for one in frames)

    def rest(self) -> bytes:
        """Read until the other end closes; what came before."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while chunk := self.socket.recv(65536):
                data += chunk
        return data

    def close(self) -> None:
        self.socket.close()


def frame(payload: bytes, kind: int = 1, ask_id: int = 1) -> bytes:
    """Return the bytes of a frame around any payload."""
    return struct.pack("<IQB", 9 + len(payload), ask_id, kind) + payload


@pytest.fixture
def secret() -> bytes:
    return os.urandom(32)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def make_server(secret: bytes, recorder: Recorder) -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def make(*, handler: Any = None, options: WireOptions | None = None, **more: Any) -> Server:
        link = ApplicationLink(more.pop("secret", secret), tls=more.pop("tls", None))
        server = Server(link, handler or recorder, options=options, **more)
        made.append(server)
        return server

    yield make
    for server in made:
        server.stop()


@pytest.fixture
def make_client(secret: bytes) -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def make(address: tuple[str, int], **more: Any) -> Client:
        options = replace(
            more.pop("options", None) or WireOptions(),
            ask_timeout_s=more.pop("ask_timeout_s", WAIT_S),
            give_up_after_s=more.pop("give_up_after_s", None),
        )
        link = ApplicationLink(more.pop("secret", secret), address, more.pop("tls", None))
        client = Client(link, options=options, **more)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture
def raw_peer() -> Iterator[Callable[..., RawPeer]]:
    made: list[RawPeer] = []

    def make(address: tuple[str, int], **more: Any) -> RawPeer:
        made.append(RawPeer(address, **more))
        return made[-1]

    yield make
    for peer in made:
        peer.close()


@pytest.fixture
def raw_frame() -> Callable[..., bytes]:
    return frame


class GoodClient:
    """Asks all the time, on a thread of its own: nothing others do may change its answers."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.answered = 0
        self.error: BaseException | None = None
        self._done = threading.Event()
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="penstock-test-good-client")

    def _work(self) -> None:
        number = 0
        try:
            while not self._done.is_set():
                number += 1
                answer = self.client.ask(DeregisterReceiver(number, "good", "", ""))
                assert answer == Ok()
                with self._progress:
                    self.answered += 1
                    self._progress.notify_all()
        except BaseException as error:  # noqa: BLE001 - it travels to the test
            self.error = error
            with self._progress:
                self._progress.notify_all()

    def __enter__(self) -> GoodClient:
        self.client.connect()
        self._thread.start()
        self.check()
        return self

    def check(self) -> None:
        """Wait until it got ten more answers."""
        with self._progress:
            goal = self.answered + 10
            assert self._progress.wait_for(
                lambda: self.answered >= goal or self.error is not None, WAIT_S
            )
        assert self.error is None

    def __exit__(self, *exc: object) -> None:
        try:
            if exc[0] is None:
                self.check()
        finally:
            self._done.set()
            self._thread.join(WAIT_S)
        # One connection carried it all: it was never cut.
        assert self.client.connections == 1


@pytest.fixture
def good_client(make_client: Callable[..., Client]) -> Callable[[tuple[str, int]], GoodClient]:
    return lambda address: GoodClient(make_client(address))
