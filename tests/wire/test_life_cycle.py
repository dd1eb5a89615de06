"""Threads and file descriptors: started once, ended in bounded time, none left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading

import pytest

from penstock.errors import IllegalStateError
from penstock.wire import ClientLoop, ConnectionLostError, PendingReply, WireError
from penstock.wire.messages import Ok
from tests.bounds import HANG_S


def open_files() -> set[tuple[str, str]]:
    """What is open in this process: descriptors with what they stand for."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # That of the list itself.
            found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
    return found


def test_no_thread_and_no_file_is_left(make_server, make_client, raw_peer, secret):
    def once() -> None:
        server = make_server()
        address = server.start()
        clients = [make_client(address) for _ in range(5)]
        for client in clients:
            client.connect()
            client.ask(Ok())
        raw = [raw_peer(address), raw_peer(address).authenticate(secret)]
        for client in clients[:3]:
            client.close()
        server.stop()
        for client in clients:
            client.close()
        for peer in raw:
            peer.close()

    once()
    threads, files = set(threading.enumerate()), open_files()
    for _ in range(5):
        once()
    # Less may be there: what earlier tests left is collected at any time.
    assert set(threading.enumerate()) - threads == set()
    assert open_files() - files == set()


def test_clients_may_share_a_thread_and_end_one_by_one(make_server, make_client):
    server = make_server()
    address = server.start()
    before = set(threading.enumerate())
    loop = ClientLoop("clients")
    loop.start()
    clients = [make_client(address, loop=loop) for _ in range(5)]
    for client in clients:
        client.connect()
    assert set(threading.enumerate()) - before == {loop.thread}
    clients[0].close()
    with pytest.raises(ConnectionLostError):
        clients[0].ask(Ok())
    # The end of one is not that of the others, of which each mends its own connection.
    assert [client.ask(Ok()) for client in clients[1:]] == [Ok()] * 4
    server.stop()
    again = make_server(port=address[1])
    again.start()
    assert [client.ask(Ok()) for client in clients[1:]] == [Ok()] * 4
    for client in clients:
        client.close()
    again.stop()


def test_threads_are_named(make_server, make_client):
    server = make_server(name="receiver-tracker")
    client = make_client(server.start(), name="receiver-3")
    client.connect()
    names = {thread.name for thread in threading.enumerate()}
    assert {"penstock-receiver-tracker", "penstock-receiver-3"} <= names


def test_stop_with_open_connections_and_open_asks_is_bounded(
    make_server, make_client, raw_peer, recorder, secret
):
    recorder.answer = lambda peer, message: PendingReply()
    server = make_server()
    address = server.start()
    client = make_client(address)
    client.connect()
    client.ask_async(Ok())
    stalled = raw_peer(address)
    unread = raw_peer(address, receive_buffer=4096).authenticate(secret)
    recorder.wait_for(lambda: len(recorder.seen) == 1)
    recorder.peers[0].send(Ok())
    server.stop(20)
    server.stop()
    stalled.rest()
    unread.rest()
    assert len(server.peers) == 0
    assert not any(thread.name == "penstock-wire-server" for thread in threading.enumerate())


def test_a_handler_that_blocks_is_named_by_stop(make_server, make_client, recorder):
    release = threading.Event()
    entered = threading.Event()

    def block(peer, message):
        entered.set()
        release.wait(HANG_S)
        return Ok()

    recorder.answer = block
    server = make_server()
    client = make_client(server.start())
    client.connect()
    client.ask_async(Ok())
    assert entered.wait(HANG_S)
    with pytest.raises(WireError, match="handler blocks"):
        server.stop(0.1)
    release.set()
    server.stop()


def test_a_coroutine_that_never_ends_does_not_keep_the_server(make_server, make_client, recorder):
    cancelled = threading.Event()

    async def forever():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    recorder.answer = lambda peer, message: forever()
    server = make_server()
    client = make_client(server.start())
    client.connect()
    client.ask_async(Ok())
    recorder.wait_for(lambda: len(recorder.seen) == 1)
    server.stop()
    assert cancelled.is_set()


def test_an_address_that_is_taken_is_a_named_error(make_server):
    host, port = make_server().start()
    with pytest.raises(WireError, match=f"{host}:{port}.*another address"):
        make_server(port=port).start()
    with pytest.raises(WireError):
        make_server(host="no.such.host.invalid").start()


def test_a_server_is_started_once_and_stops_before_its_start(make_server):
    server = make_server()
    server.stop()
    server.start()
    with pytest.raises(IllegalStateError):
        server.start()
