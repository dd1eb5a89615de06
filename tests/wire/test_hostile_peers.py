"""What a peer does to its own connection changes nothing for the others.

In each test a good client asks all the time on one connection; the fixture fails the test when
one of its asks is not answered or its connection is ever cut.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import resource
import socket
import threading
from typing import Any

import msgspec
import pytest

from penstock.wire import (
    Arrival,
    Arrivals,
    ClientHandshake,
    ConnectionLostError,
    HandshakeState,
    ServerHandshake,
    WireOptions,
)
from penstock.wire.messages import Failure, Ok, Refused, RegisterReceiver
from tests.bounds import HANG_S

WAIT_S = HANG_S

OK = msgspec.msgpack.encode(Ok())


def lines(caplog, text: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if text in r.getMessage()]


@pytest.fixture(autouse=True)
def _logs(caplog):
    caplog.set_level(logging.INFO, "penstock.wire")


def name_of(peer) -> str:
    host, port = peer.socket.getsockname()
    return f"{host}:{port}"


def test_a_peer_without_the_secret_that_sends_a_message_is_not_heard(
    make_server, raw_peer, recorder, good_client, raw_frame
):
    address = make_server().start()
    with good_client(address):
        peer = raw_peer(address)
        peer.send(raw_frame(msgspec.msgpack.encode(RegisterReceiver(0, "a", "", "", "", 1))) * 9)
        assert peer.rest()[:8] == b"PENSTOCK"  # the greeting; a verdict at most follows
    assert not any(isinstance(message, RegisterReceiver) for message in recorder.messages())


@pytest.mark.parametrize("size", [1, 73, 74, 75, 100_000])
def test_garbage_instead_of_the_handshake(make_server, raw_peer, good_client, size):
    server = make_server(options=WireOptions(authentication_timeout_s=0.2))
    address = server.start()
    with good_client(address):
        peer = raw_peer(address)
        peer.send(os.urandom(size))
        peer.rest()
        assert len(server.peers) == 1


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\xc1", "cannot be read"),
        (b"\x81\xa4type\xa7Unknown", "cannot be read"),
        (b"\x81\xa4type\xa2Ok" + b"\x00", "cannot be read"),
        (msgspec.msgpack.encode({"type": "Refused", "reason": 5}), "cannot be read"),
        (b"\x82\xa4type\xa7Refused\xa6reason\xa2\xff\xfe", "cannot be read"),
        (b"\x82\xa4type\xa2Ok\xa1x" + b"\x91" * 200_000 + b"\xc0", "cannot be read"),
        (b"\xdd\xff\xff\xff\xff", "cannot be read"),
        (os.urandom(5000), "cannot be read"),
        (b"", "too short"),
    ],
)
def test_a_message_that_cannot_be_read_ends_that_connection_with_one_line_naming_the_peer(
    make_server, raw_peer, recorder, good_client, raw_frame, secret, caplog, payload, reason
):
    address = make_server().start()
    with good_client(address):
        peer = raw_peer(address).authenticate(secret)
        peer.send(peer.sealed(raw_frame(OK)))
        peer.receive(4)
        peer.send(peer.sealed(raw_frame(payload)))
        peer.rest()
        recorder.wait_for(lambda: len(recorder.gone) == 1)
    complaints = lines(caplog, name_of(peer))
    assert len(complaints) == 1
    assert reason in complaints[0]


def test_an_unknown_kind_of_frame(make_server, raw_peer, good_client, raw_frame, secret, caplog):
    address = make_server().start()
    with good_client(address):
        peer = raw_peer(address).authenticate(secret)
        peer.send(peer.sealed(raw_frame(OK, kind=3)))
        assert peer.rest() == b""
    assert "unknown kind 3" in lines(caplog, name_of(peer))[0]


def test_a_reply_to_nothing_changes_nothing(make_server, raw_peer, raw_frame, secret, good_client):
    address = make_server().start()
    with good_client(address):
        peer = raw_peer(address).authenticate(secret)
        peer.send(peer.sealed(raw_frame(OK, kind=2, ask_id=77), raw_frame(OK)))
        assert peer.receive(13)[4:13] == (1).to_bytes(8, "little") + b"\x02"


@pytest.mark.parametrize("length", [0xFFFFFFFF, (8 << 20) + 1])
def test_a_huge_length_is_refused_from_its_four_bytes_alone(
    make_server, raw_peer, good_client, secret, caplog, length
):
    address = make_server().start()
    with good_client(address):
        peer = raw_peer(address).authenticate(secret)
        peer.send(length.to_bytes(4, "little"))
        assert peer.rest() == b""
    assert str(length) in lines(caplog, name_of(peer))[0]


def test_a_stall_in_the_handshake_is_bounded(make_server, raw_peer, good_client, caplog):
    server = make_server(options=WireOptions(authentication_timeout_s=0.2))
    address = server.start()
    with good_client(address):
        silent, halfway = raw_peer(address), raw_peer(address)
        halfway.receive(42)
        halfway.send(b"PENSTOCK\x01")
        silent.rest()
        halfway.rest()
        assert server.refused == 2
    assert len(lines(caplog, "did not finish the authentication")) == 1  # the rate is limited


def test_a_stall_in_a_frame_is_bounded_by_the_silence_it_causes(
    make_server, raw_peer, raw_frame, secret, caplog
):
    options = WireOptions(heartbeat_interval_s=0.1, dead_after_s=0.4)
    peer = raw_peer(make_server(options=options).start()).authenticate(secret)
    peer.send(raw_frame(b"x" * 1000)[:500])
    peer.rest()
    assert "nothing came" in lines(caplog, name_of(peer))[0]


@pytest.mark.slow
def test_a_connection_that_is_never_between_two_frames_lives_as_long_as_they_become_whole(
    make_server, raw_peer, raw_frame, recorder, secret
):
    options = WireOptions(heartbeat_interval_s=0.1, dead_after_s=0.4)
    peer = raw_peer(make_server(options=options).start()).authenticate(secret)
    sealed = [peer.sealed(raw_frame(OK)) for _ in range(20)]
    peer.send(sealed[0][:7])
    for one, next_one in itertools.pairwise(sealed):
        peer.send(one[7:] + next_one[:7])
        threading.Event().wait(0.1)
    peer.send(sealed[-1][7:])
    recorder.wait_for(lambda: len(recorder.seen) == 20)
    assert recorder.gone == []


def test_a_peer_that_dies_in_the_middle_of_a_frame(
    make_server, raw_peer, recorder, good_client, raw_frame, secret
):
    address = make_server().start()
    with good_client(address):
        for ends_with_reset in (False, True):
            peer = raw_peer(address).authenticate(secret)
            peer.send(peer.sealed(raw_frame(OK)) + raw_frame(b"x" * 1000)[:500])
            peer.receive(13)
            if ends_with_reset:
                linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            peer.close()
        recorder.wait_for(lambda: len(recorder.gone) == 2)


def test_a_slow_reader_is_cut_off_and_memory_does_not_grow(
    make_server, raw_peer, recorder, good_client, raw_frame, secret, caplog
):
    options = WireOptions(write_limit_bytes=1 << 20)
    address = make_server(options=options).start()
    with good_client(address):
        slow = raw_peer(address, receive_buffer=4096).authenticate(secret)
        slow.send(slow.sealed(raw_frame(msgspec.msgpack.encode(Refused("slow")))))
        recorder.wait_for(lambda: Refused("slow") in recorder.messages())
        slow_peer = next(p for p, m in recorder.seen if m == Refused("slow"))
        news = Failure("x" * 100_000)
        for _ in range(1000):  # 100 MB, of which it reads nothing
            if not slow_peer.is_connected:
                break
            slow_peer.send(news)
        recorder.wait_for(lambda: recorder.gone == [slow_peer])
        slow_peer.send(news)  # to a peer that is gone: no error
    assert "unread" in lines(caplog, name_of(slow))[0]


def test_what_is_only_offered_never_makes_a_slow_reader(
    make_server, raw_peer, recorder, raw_frame, secret
):
    address = make_server(options=WireOptions(write_limit_bytes=4 << 20)).start()
    slow = raw_peer(address, receive_buffer=4096).authenticate(secret)
    slow.send(slow.sealed(raw_frame(OK)))
    recorder.wait_for(lambda: recorder.seen)
    (peer, _) = recorder.seen[0]
    for _ in range(1000):  # 100 MB, of which it reads nothing
        peer.offer(Failure("x" * 100_000))
    peer.send(Refused("last"))
    received = b""
    while b"last" not in received:
        received = received[-10:] + (slow.socket.recv(1 << 16) or pytest.fail("it was cut off"))
    assert recorder.gone == []


@pytest.mark.long
@pytest.mark.slow
def test_ten_thousand_connections_that_prove_nothing(make_server, good_client):
    server = make_server(options=WireOptions(max_unauthenticated=32))
    address = server.start()
    most = 0
    with good_client(address) as good:
        for _ in range(50):
            wave: list[socket.socket] = []
            for _ in range(200):
                connection = socket.socket()
                connection.settimeout(20)
                connection.connect(address)
                wave.append(connection)
            most = max(most, len(server.arrivals or ()))
            good.check()
            for connection in wave:
                connection.close()
        assert most <= 32
        assert len(server.peers) == 1


def test_a_flood_of_connections_does_not_keep_a_new_client_out(make_server, make_client):
    server = make_server(options=WireOptions(max_unauthenticated=16))
    address = server.start()
    over = threading.Event()
    held: list[socket.socket] = []

    def flood() -> None:
        while not over.is_set():
            held.append(socket.create_connection(address))
            if len(held) > 100:
                held.pop(0).close()

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        client = make_client(address)
        client.connect()
        assert client.ask(Ok()) == Ok()
    finally:
        over.set()
        thread.join(HANG_S)
        for connection in held:
            connection.close()


def test_a_flood_from_one_host_does_not_cut_short_a_slow_client_of_another(make_server, secret):
    server = make_server(options=WireOptions(max_unauthenticated=16))
    host, port = server.start()
    with socket.create_connection((host, port), 20, source_address=("127.0.0.2", 0)) as slow:
        handshake = ClientHandshake(secret, "tracker", "the server")
        challenge = slow.recv(handshake.expects, socket.MSG_WAITALL)
        flood = [socket.create_connection((host, port), 20) for _ in range(100)]
        for connection in flood[:80]:
            while connection.recv(4096):  # until it made way
                pass
        slow.sendall(handshake.receive(challenge))
        handshake.receive(slow.recv(handshake.expects, socket.MSG_WAITALL))
        assert handshake.state is HandshakeState.ACCEPTED
        for connection in flood:
            connection.close()


def test_who_makes_way_is_told_so_and_the_next_one_is_not() -> None:
    """The block server asks whether one is over: it may be turned away before its task begins."""

    async def run() -> tuple[list[Arrival], list[str], int]:
        arrived: list[Arrival] = []
        reasons: list[str] = []
        there = asyncio.Event()

        def protocol(arrival: Arrival) -> asyncio.BaseProtocol:
            assert not arrival.is_over
            arrival.turn_away = reasons.append
            arrived.append(arrival)
            there.set()
            return asyncio.Protocol()

        arrivals = Arrivals(
            protocol, most=1, timeout_s=60, refused=lambda peer, reason: reasons.append(reason)
        )
        listener = socket.create_server(("127.0.0.1", 0))
        arrivals.listen([listener])
        _, first = await asyncio.open_connection(*listener.getsockname())
        await asyncio.wait_for(there.wait(), HANG_S)
        there.clear()
        _, second = await asyncio.open_connection(*listener.getsockname())
        await asyncio.wait_for(there.wait(), HANG_S)
        waiting = len(arrivals)
        arrivals.remove(arrived[1])
        await arrivals.stop()
        first.close()
        second.close()
        return arrived, reasons, waiting

    (first, second), reasons, waiting = asyncio.run(run())
    assert (first.is_over, second.is_over) == (True, False)
    assert first.host == second.host == "127.0.0.1"
    assert first.peer != second.peer
    assert reasons == [f"{first.peer} made way for newer connections"]
    assert waiting == 1


def test_a_host_that_has_as_many_makes_way_for_its_own_next_one() -> None:
    """Else a crowd on one host would drive out whoever came first from another."""

    async def run() -> list[tuple[str, bool]]:
        arrived: list[Arrival] = []
        there = asyncio.Queue[None]()

        def protocol(arrival: Arrival) -> asyncio.BaseProtocol:
            arrived.append(arrival)
            there.put_nowait(None)
            return asyncio.Protocol()

        arrivals = Arrivals(protocol, most=2, timeout_s=60, refused=lambda peer, reason: None)
        listener = socket.create_server(("127.0.0.1", 0))
        arrivals.listen([listener])
        writers = []
        for host in ("127.0.0.1", "127.0.0.2", "127.0.0.2"):
            _, writer = await asyncio.open_connection(*listener.getsockname(), local_addr=(host, 0))
            writers.append(writer)
            await asyncio.wait_for(there.get(), HANG_S)
        found = [(arrival.host, arrival.is_over) for arrival in arrived]
        await arrivals.stop()
        for writer in writers:
            writer.close()
        return found

    assert asyncio.run(run()) == [
        ("127.0.0.1", False),
        ("127.0.0.2", True),
        ("127.0.0.2", False),
    ]


def test_no_one_ever_counts_more_unproved_connections_than_there_may_be() -> None:
    """The figure is read by other threads, at any moment."""

    class Waiting(dict[Arrival, None]):
        most = 0

        def __setitem__(self, arrival: Arrival, nothing: None) -> None:
            super().__setitem__(arrival, nothing)
            self.most = max(self.most, len(self))

    async def run() -> int:
        async with _Listening() as listening:
            listening.arrivals._waiting = waiting = Waiting()
            held = []
            for _ in range(30):
                held.append(await asyncio.open_connection(*listening.listener.getsockname()))
                await asyncio.wait_for(listening.arrived.get(), HANG_S)
            for _, writer in held:
                writer.close()
            return waiting.most

    assert asyncio.run(run()) == 9


class _Listening:
    """Arrivals at a listener; an arrival is told of in a queue."""

    async def __aenter__(self) -> _Listening:
        self.arrived: asyncio.Queue[Arrival] = asyncio.Queue()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.arrivals = Arrivals(
            self.protocol, most=9, timeout_s=60, refused=lambda peer, reason: None
        )
        self.arrivals.listen([self.listener])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.arrivals.stop()

    def protocol(self, arrival: Arrival) -> asyncio.BaseProtocol:
        self.arrived.put_nowait(arrival)
        return asyncio.Protocol()


def test_when_no_more_files_can_be_opened_connections_wait(caplog) -> None:
    async def run() -> None:
        async with _Listening() as listening:
            with socket.socket() as client:
                limits = resource.getrlimit(resource.RLIMIT_NOFILE)
                with open(os.devnull) as last:
                    free = last.fileno()
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
                try:
                    client.connect(listening.listener.getsockname())
                    while not lines(caplog, "a connection could not be accepted: Too many open"):
                        await asyncio.sleep(0.01)
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                await listening.arrived.get()

    asyncio.run(asyncio.wait_for(run(), WAIT_S))


def test_a_listener_that_is_broken_does_not_hold_up_who_is_there(caplog) -> None:
    async def run() -> None:
        async with _Listening() as listening:
            listening.listener.shutdown(socket.SHUT_RDWR)
            while not lines(caplog, "a connection could not be accepted: Invalid argument"):
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), WAIT_S))


def test_a_connection_for_which_there_is_no_memory_keeps_no_other_one_out(
    make_server, make_client, monkeypatch, caplog
) -> None:
    arrived = Arrivals._arrived
    failures = iter([MemoryError("none left")])

    def fail_once(self: Arrivals, *found: Any) -> None:
        for failure in failures:
            raise failure
        arrived(self, *found)

    monkeypatch.setattr(Arrivals, "_arrived", fail_once)
    client = make_client(make_server().start())
    client.connect()
    assert client.ask(Ok()) is not None
    assert len(lines(caplog, "MemoryError: none left")) == 1


def test_a_server_that_falls_silent_is_noticed_by_the_client(make_client, secret):
    """The other end is a process that was stopped: its sockets stand and nothing comes."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)
    connections: list[socket.socket] = []

    def authenticate_and_stop() -> None:
        for _ in range(2):
            connection, _address = listener.accept()
            connections.append(connection)
            handshake = ServerHandshake(secret, "tracker")
            connection.sendall(handshake.opening())
            connection.sendall(handshake.receive(connection.recv(74, socket.MSG_WAITALL)))

    thread = threading.Thread(target=authenticate_and_stop)
    thread.start()
    options = WireOptions(heartbeat_interval_s=0.1, dead_after_s=0.3)
    client = make_client(listener.getsockname(), options=options)
    client.connect()
    future = client.ask_async(Ok(), 2.0)
    thread.join(HANG_S)
    assert len(connections) == 2  # it hung up and came again
    client.close()
    with pytest.raises(ConnectionLostError, match="closed by this process"):
        future.result(HANG_S)
    listener.close()
    for connection in connections:
        connection.close()


@pytest.mark.slow
def test_a_quiet_connection_lives_by_its_heartbeats(make_server, make_client):
    options = WireOptions(heartbeat_interval_s=0.05, dead_after_s=1.0)
    client = make_client(make_server(options=options).start(), options=options)
    client.connect()
    quiet = threading.Event()
    quiet.wait(2.2)  # the time itself is what is tried here: twice what a dead peer gets
    assert client.ask(Ok()) == Ok()
    assert client.connections == 1
