"""A client mends its connection, and an ask ends with its answer or a named error."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from penstock.errors import IllegalStateError
from penstock.wire import (
    AskTimeoutError,
    AuthenticationError,
    ClientState,
    ConnectionLostError,
    PendingReply,
    WireError,
)
from penstock.wire.messages import (
    AddBlock,
    DeregisterReceiver,
    Failure,
    Ok,
    Refused,
    RegisterReceiver,
    ReportError,
)
from tests.bounds import HANG_S

ATTEMPT = "0123456789abcdef" * 2
HELLO = RegisterReceiver(0, ATTEMPT, "R", "h", "e", 1)


def numbered(number: int) -> DeregisterReceiver:
    return DeregisterReceiver(number, ATTEMPT, "", "")


def test_unanswered_asks_are_sent_again_in_their_order_after_the_hello(
    make_server, make_client, recorder
):
    answers = []
    first = make_server()
    address = first.start()
    recorder.answer = lambda peer, message: PendingReply()  # never answered
    client = make_client(
        address,
        on_reconnect=lambda: [HELLO],
        on_hello_answer=lambda hello, answer: answers.append((hello, answer)),
    )
    client.connect()
    futures = [client.ask_async(numbered(number)) for number in range(50)]
    recorder.wait_for(lambda: len(recorder.seen) == 50)
    first.stop()
    assert len(recorder.gone) == 1
    futures += [client.ask_async(numbered(number)) for number in range(50, 100)]
    recorder.answer = lambda peer, message: Refused("hello") if message == HELLO else message
    make_server(port=address[1]).start()
    assert [future.result(HANG_S) for future in futures] == [numbered(n) for n in range(100)]
    seen = recorder.messages()
    assert seen[:50] == [numbered(n) for n in range(50)]
    assert seen[50:] == [HELLO] + [numbered(n) for n in range(100)]
    assert answers == [(HELLO, Refused("hello"))]
    assert client.connections == 2
    assert len(client.unanswered) == 0


def test_nothing_else_goes_out_before_the_hello_is_answered(make_server, make_client, recorder):
    first = make_server()
    address = first.start()
    client = make_client(address, on_reconnect=lambda: [HELLO])
    client.connect()
    assert client.ask(Ok()) == Ok()
    first.stop()
    held = []

    def hold_hello(peer, message):
        if message == HELLO:
            held.append(PendingReply())
            return held[-1]
        return Ok()

    recorder.answer = hold_hello
    recorder.seen.clear()
    second = make_server(port=address[1])
    second.start()
    recorder.wait_for(lambda: HELLO in recorder.messages())
    future = client.ask_async(numbered(1))
    client.send(numbered(2))
    assert client.state is ClientState.GREETING
    with pytest.raises(AskTimeoutError, match="saying hello"):
        client.ask(numbered(3), 0.1)
    assert recorder.messages() == [HELLO]
    second.resolve([(held[0], Ok())])
    assert future.result(HANG_S) == Ok()
    recorder.wait_for(lambda: len(recorder.seen) == 3)
    assert recorder.messages() == [HELLO, numbered(1), numbered(2)]


def test_a_hello_that_is_not_answered_in_time_is_said_again_on_another_connection(
    make_server, make_client, recorder
):
    first = make_server()
    address = first.start()
    client = make_client(address, on_reconnect=lambda: [HELLO], ask_timeout_s=0.2)
    client.connect()
    first.stop()
    recorder.answer = lambda peer, message: PendingReply() if message == HELLO else Ok()
    make_server(port=address[1]).start()
    recorder.wait_for(lambda: recorder.messages().count(HELLO) >= 2)
    recorder.answer = lambda peer, message: Ok()
    assert client.ask(numbered(1), 20) == Ok()
    first_two = [peer for peer, message in recorder.seen if message == HELLO][:2]
    assert first_two[0] is not first_two[1]


def test_every_ask_has_its_own_deadline(make_server, make_client, recorder):
    recorder.answer = lambda peer, message: PendingReply()
    client = make_client(make_server().start())
    client.connect()
    late, early, later = (client.ask_async(numbered(n), (n + 1) / 10) for n in (1, 0, 2))
    for future in (early, late, later):
        with pytest.raises(AskTimeoutError):
            future.result(HANG_S)
    assert len(client.unanswered) == 0


def test_an_ask_that_times_out_tells_why_there_is_no_connection(make_server, make_client, recorder):
    recorder.answer = lambda peer, message: PendingReply()
    server = make_server()
    address = server.start()
    client = make_client(address)
    client.connect()

    def reason() -> str:
        with pytest.raises(AskTimeoutError) as caught:
            client.ask(Ok(), 0.05)
        return str(caught.value)

    assert "(connected)" in reason()
    server.stop()
    # The first try comes at once, but not within any bound.
    assert any(
        "not connected, trying; last: " in text and "Connect call failed" in text
        for text in (reason() for _ in range(200))
    )
    make_server(port=address[1]).start()
    recorder.answer = lambda peer, message: Ok()
    assert client.ask(Ok()) == Ok()
    recorder.answer = lambda peer, message: PendingReply()
    assert "(connected)" in reason(), "what was before is not why"


SERVER_PROGRAM = """
import sys, threading
from penstock.wire import ApplicationLink, Server
from penstock.wire.messages import DeregisterReceiver, Ok, Refused
secret = sys.stdin.buffer.read(32)
class Ledger:
    # idempotent: a number that was taken before is taken once
    def __init__(self):
        self.file = open(sys.argv[1], "a+", buffering=1)
        self.file.seek(0)
        self.taken = set(map(int, self.file.read().split()))
    def on_message(self, peer, message):
        if message.stream_id not in self.taken:
            self.taken.add(message.stream_id)
            print(message.stream_id, file=self.file)
        return Ok()
    def on_disconnect(self, peer): pass
print(Server(ApplicationLink(secret), Ledger(), port=int(sys.argv[2])).start()[1], flush=True)
threading.Event().wait(60)
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_server_killed_and_started_again_gets_every_ask_exactly_once_in_effect(
    make_client, secret, tmp_path
):
    """SIGKILL between receiving, acting and answering, five times."""
    ledger = tmp_path / "ledger"

    def start(port: int) -> tuple[subprocess.Popen[bytes], int]:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER_PROGRAM, str(ledger), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(secret)
        process.stdin.close()
        return process, int(process.stdout.readline())

    def end(process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait(HANG_S)
        process.stdout.close()

    process, port = start(0)
    try:
        client = make_client(("127.0.0.1", port))
        client.connect()
        futures = []
        for round_ in range(5):
            futures += [client.ask_async(numbered(round_ * 500 + n)) for n in range(500)]
            futures[-300].result(HANG_S)
            end(process)
            process, _ = start(port)
        assert all(future.result(HANG_S) == Ok() for future in futures)
    finally:
        end(process)
    assert sorted(map(int, ledger.read_text().split())) == list(range(2500))


def test_a_server_that_starts_late_is_waited_for(make_server, make_client):
    with socket.create_server(("127.0.0.1", 0)) as placeholder:
        port = placeholder.getsockname()[1]
    client = make_client(("127.0.0.1", port))
    thread = threading.Thread(target=client.connect)
    thread.start()
    make_server(port=port).start()
    thread.join(HANG_S)
    assert client.ask(Ok()) == Ok()


def test_a_server_that_never_starts_is_a_named_error(make_client):
    with socket.create_server(("127.0.0.1", 0)) as placeholder:
        port = placeholder.getsockname()[1]
    client = make_client(("127.0.0.1", port))
    with pytest.raises(
        ConnectionLostError, match=rf"127\.0\.0\.1:{port}.*0\.2 s.*Connect call failed"
    ):
        client.connect(0.2)
    with pytest.raises(ConnectionLostError):
        client.ask(Ok())


def test_a_server_with_another_secret_after_the_restart_ends_the_client_for_good(
    make_server, make_client, recorder
):
    first = make_server()
    address = first.start()
    ends: list[WireError] = []
    ended = threading.Event()

    def on_closed(error: WireError) -> None:
        ends.append(error)
        ended.set()

    client = make_client(address, on_closed=on_closed)
    client.connect()
    recorder.answer = lambda peer, message: PendingReply()
    future = client.ask_async(Ok())
    recorder.wait_for(lambda: len(recorder.seen) == 1)
    first.stop()
    second = make_server(port=address[1], secret=os.urandom(32))
    second.start()
    with pytest.raises(AuthenticationError):
        future.result(HANG_S)
    assert ended.wait(HANG_S)
    assert isinstance(ends[0], AuthenticationError)
    with pytest.raises(AuthenticationError):
        client.ask(Ok())
    client.close()
    second.stop()
    assert second.refused == 1  # it did not try again


@pytest.mark.slow
def test_a_client_gives_up_when_told_to(make_server, make_client):
    server = make_server()
    ends: list[WireError] = []
    ended = threading.Event()

    def on_closed(error: WireError) -> None:
        ends.append(error)
        ended.set()

    client = make_client(server.start(), on_closed=on_closed, give_up_after_s=2.0)
    client.connect()
    server.stop()
    assert ended.wait(HANG_S)
    assert isinstance(ends[0], ConnectionLostError)
    assert "for 2 s" in str(ends[0])
    assert client.state is ClientState.CLOSED


def test_a_client_that_was_closed_does_not_connect(make_server, make_client, recorder):
    server = make_server()
    client = make_client(server.start())
    client.close()
    with pytest.raises(ConnectionLostError, match="closed by this process"):
        client.connect()
    assert client.connections == 0


def test_close_fails_what_has_no_answer(make_server, make_client, recorder):
    recorder.answer = lambda peer, message: PendingReply()
    client = make_client(make_server().start())
    with pytest.raises(IllegalStateError, match="connect"):
        client.ask(Ok())
    client.connect()
    futures = [client.ask_async(AddBlock(0, ATTEMPT, ())) for _ in range(3)]
    client.close()
    client.close()
    for future in futures:
        with pytest.raises(ConnectionLostError, match="closed by this process"):
            future.result(0)
    for call in (client.ask, client.ask_async, client.send):
        with pytest.raises(ConnectionLostError):
            call(Ok())


def test_what_was_sent_just_before_close_or_stop_still_arrives(make_server, make_client, recorder):
    got = []
    closed = threading.Event()
    server = make_server()
    client = make_client(server.start(), on_message=got.append)
    client.connect()
    client.ask(Ok())
    reports = [ReportError(n, ATTEMPT, "", "") for n in range(100)]
    for report in reports:
        client.send(report)
    client.close()
    recorder.wait_for(lambda: len(recorder.gone) == 1)
    assert recorder.messages() == [Ok(), *reports]
    listener = make_client((server._host, server._port), on_message=got.append)
    listener.connect()
    recorder.answer = lambda peer, message: closed.set() or Ok()
    listener.ask(Ok())
    for number in range(100):
        recorder.peers[-1].send(Failure(str(number)))
    server.stop()
    listener.close()
    assert got == [Failure(str(number)) for number in range(100)]
