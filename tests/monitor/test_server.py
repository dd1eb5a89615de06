"""The door stays open whatever comes in: bounds on connections, time and size."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.monitor.web.exchange import Answer, Request, text_answer
from penstock.monitor.web.server import Bounds, WebServer
from tests.monitor.asking import WAIT_S, ask, connect, raw, serving, until
from tests.programs import run_to_end


def echo(request: Request) -> Answer:
    return text_answer(f"{request.method} {request.path} {len(request.body)}")


HEAD = b"Host: localhost\r\n\r\n"


def test_a_request_is_answered_and_the_connection_ends() -> None:
    with serving(echo) as server:
        status, body, headers = ask(server, "/a%20b?c=d", "POST", body=b"12345")
        assert (status, body) == (200, b"POST /a b 5\n")
        assert headers["Connection"] == "close"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert ask(server, "/", "HEAD")[:2] == (200, b"")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET http://evil.example/ HTTP/1.1\r\n" + HEAD, 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HEAD, 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n" + HEAD + b"12", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n" + HEAD, 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n" + HEAD, 413),
        (b"DELETE / HTTP/1.1\r\n" + HEAD, 501),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n" + HEAD, 414),
        (b"nonsense\r\n" + HEAD, 400),
        (b"GET / HTTP/9.9\r\n" + HEAD, 505),
    ],
)
def test_what_is_malformed_or_too_large_is_refused_in_plain_text(sent: bytes, status: int) -> None:
    bounds = Bounds(head_bytes=80_000) if len(sent) > 60_000 else None
    with serving(echo, bounds) as server:
        answered = raw(server, sent)
        assert answered.startswith(b"HTTP/1.1 %d " % status), answered[:200]
        assert b"text/plain" in answered
        assert b"evil" not in answered
        assert ask(server, "/")[0] == 200


@pytest.mark.parametrize("body_bytes", [0, 5, Bounds.body_bytes])
def test_a_head_may_be_as_long_as_it_says_and_no_byte_longer(body_bytes: int) -> None:
    """Nor does a long head take from what a body may have, or the other way round."""
    begin = b"POST / HTTP/1.1\r\nContent-Length: %d\r\nX-A: " % body_bytes
    end, body = b"\r\n" + HEAD, b"x" * body_bytes
    bounds = Bounds()
    room = bounds.head_bytes - len(begin) - len(end)
    with serving(echo, bounds) as server:
        for size, status in ((room, 200), (room + 1, 431), (20_000, 431)):
            answered = raw(server, begin + b"b" * size + end + body)
            assert answered.startswith(b"HTTP/1.1 %d " % status), (size, answered[:200])
            assert status != 200 or answered.endswith(b"POST / %d\n" % body_bytes)


def test_a_first_line_that_is_longer_than_a_head_may_be_is_answered_too() -> None:
    with serving(echo) as server:
        answered = raw(server, b"GET /" + b"a" * Bounds().head_bytes + HEAD)
        assert answered.startswith(b"HTTP/1.1 431 "), answered[:200]


def test_headers_without_end_are_cut_off() -> None:
    with serving(echo) as server:
        raw(server, b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 100_000)
        assert ask(server, "/")[0] == 200


def test_no_bytes_keep_the_next_request_from_its_answer() -> None:
    with serving(echo, Bounds(request_s=1.0)) as server:

        @given(st.binary(max_size=300))
        @settings(max_examples=50, deadline=None)
        def send(sent: bytes) -> None:
            raw(server, sent + b"\r\n\r\n")
            assert ask(server, "/")[0] == 200

        send()


def drip(connection: socket.socket, sent: bytes) -> None:
    """Send byte by byte: each is in time, all of them are not."""
    for byte in sent:
        connection.send(bytes([byte]))
        time.sleep(0.02)


def test_who_is_late_with_a_request_is_cut_off() -> None:
    with serving(echo, Bounds(request_s=0.3)) as server, connect(server) as connection:
        with pytest.raises(OSError, match=r"reset|pipe"):
            drip(connection, b"GET / HTTP/1.1\r\n" + b"X" * 10_000)
        assert ask(server, "/")[0] == 200


def test_connections_on_which_nobody_asks_keep_no_request_from_its_answer() -> None:
    with serving(echo, Bounds(connections=3, request_s=WAIT_S)) as server:
        held = [connect(server) for _ in range(20)]
        for connection in held[:10]:
            with contextlib.suppress(OSError):
                connection.sendall(b"GET / HTTP/1.1\r\nX")
        for _ in range(3):
            assert ask(server, "/")[0] == 200
        threads = [each for each in threading.enumerate() if each.name == "penstock-ui-connection"]
        assert len(threads) <= 3 + 1  # One that has left may be about to end.
        for connection in held:
            connection.close()


@pytest.mark.slow
def test_who_drips_after_his_answer_is_cut_off() -> None:
    with (
        serving(echo, Bounds(answer_s=WAIT_S)) as server,
        connect(server) as connection,
        pytest.raises(OSError, match=r"reset|pipe"),
    ):
        drip(connection, b"GET / HTTP/1.1\r\n" + HEAD + b"X" * 1_000)


def test_more_connections_than_there_may_be_are_asked_to_come_again() -> None:
    ticking = Ticking()
    with serving(ticking.answer, Bounds(connections=2)) as server:
        held = [connect(server) for _ in range(2)]
        for connection in held:
            connection.sendall(b"GET / HTTP/1.1\r\n" + HEAD)
            found = b""
            while b"data: 1" not in found:
                found += connection.recv(1 << 16)
        until(lambda: raw(server, b"GET / HTTP/1.1\r\n" + HEAD).startswith(b"HTTP/1.1 503 "))
        held[0].close()
        until(lambda: not raw(server, b"HEAD / HTTP/1.1\r\n" + HEAD).startswith(b"HTTP/1.1 503 "))
        held[1].close()


@pytest.mark.slow
def test_without_descriptors_it_waits_for_some_and_does_not_spin() -> None:
    """In a process of its own, which has none for a while."""
    program = """
import http.client, os, resource, socket, time
from penstock.monitor.web import server as web
from penstock.monitor.web.exchange import text_answer

tried = []
original = web._Server.get_request
web._Server.get_request = lambda self: tried.append(1) or original(self)
server = web.WebServer("127.0.0.1", iter([0]), lambda request: text_answer("there"))
server.start()
connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
connection.sock = socket.socket()
connection.sock.settimeout(30)
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
connection.sock.connect(("127.0.0.1", server.port))
while len(tried) < 3:
    time.sleep(0.01)
while len(tried) < 5:
    time.sleep(0.01)
for number in taken:
    os.close(number)
connection.request("GET", "/")
print(connection.getresponse().read().decode().strip(), len(tried) < 50)
"""
    assert run_to_end("-c", program, code=None).stdout.strip() == "there True"


class Ticking:
    """Goes on for ever, as events do."""

    def __init__(self, part: bytes = b"data: 1\n\n") -> None:
        self.part = part
        self.closed = threading.Event()

    def answer(self, request: Request) -> Answer:
        return Answer(200, self.parts(), "text/event-stream")

    def parts(self) -> Iterator[bytes]:
        try:
            while True:
                yield self.part
                time.sleep(0.01)
        finally:
            self.closed.set()


def test_streams_of_events_are_bounded_and_end_with_the_server() -> None:
    ticking = Ticking()
    with serving(ticking.answer, Bounds(streams=2)) as server:
        held = [connect(server) for _ in range(2)]
        for connection in held:
            connection.sendall(b"GET / HTTP/1.1\r\n" + HEAD)
            assert b"data: 1" in b"".join(connection.recv(1 << 16) for _ in range(3))
        assert raw(server, b"GET / HTTP/1.1\r\n" + HEAD).startswith(b"HTTP/1.1 503 ")
    for connection in held:
        while connection.recv(1 << 16):
            pass
        connection.close()


def leave(connection: socket.socket) -> None:
    connection.recv(1)


def reset(connection: socket.socket) -> None:
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def read_all(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def fail_after_one() -> Iterator[bytes]:
    yield b"data: 1\n\n"
    raise KeyError("a defect")


@pytest.mark.parametrize(
    ("method", "parts", "ends"),
    [
        (b"GET", lambda: Ticking().parts(), leave),
        (b"GET", lambda: Ticking().parts(), reset),
        # Its answer has a head only, it ends by itself, or it breaks.
        (b"HEAD", lambda: Ticking().parts(), read_all),
        (b"GET", lambda: iter([b"data: 1\n\n"]), read_all),
        (b"GET", fail_after_one, read_all),
    ],
)
def test_whoever_listened_leaves_his_place_to_the_next(
    method: bytes,
    parts: Callable[[], Iterator[bytes]],
    ends: Callable[[socket.socket], None],
) -> None:
    def answer(_: Request) -> Answer:
        return Answer(200, parts(), "text/event-stream")

    asked = b" / HTTP/1.1\r\n" + HEAD
    with serving(answer, Bounds(streams=1, connections=2)) as server:
        # More of them, one behind the other, than there are places for connections.
        for _ in range(4):

            def listen() -> socket.socket | None:
                connection = connect(server)
                connection.sendall(method + asked)
                if connection.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200":
                    return connection
                connection.close()
                return None

            connection = until(listen)
            ends(connection)
            connection.close()


def test_a_client_that_reads_nothing_is_cut_off() -> None:
    ticking = Ticking(b"x" * (1 << 20))
    with serving(ticking.answer, Bounds(answer_s=0.5)) as server:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(b"GET / HTTP/1.1\r\n" + HEAD)
        assert ticking.closed.wait(WAIT_S)
        connection.close()


@pytest.mark.slow
def test_an_answer_may_take_longer_than_a_request() -> None:
    def think(request: Request) -> Answer:
        # As an action that waits for a receiver.
        threading.Event().wait(1.5)
        return echo(request)

    with serving(think, Bounds(request_s=0.5, answer_s=WAIT_S)) as server:
        assert ask(server, "/")[:2] == (200, b"GET / 0\n")


def test_an_answer_that_fails_harms_nobody_else() -> None:
    def fail(request: Request) -> Answer:
        if request.path == "/bad":
            raise KeyError("a defect")
        return echo(request)

    with serving(fail) as server:
        status, body, _ = ask(server, "/bad")
        assert (status, b"the driver's log" in body, b"defect" in body) == (500, True, False)
        assert ask(server, "/")[0] == 200


def test_a_port_that_is_taken_is_passed_over() -> None:
    with serving(echo) as one:
        other = WebServer("127.0.0.1", iter([one.port, 0]), echo)
        other.start()
        assert other.port != one.port
        assert ask(other, "/")[0] == 200
        other.stop(WAIT_S)
        with pytest.raises(OSError, match="in use"):
            WebServer("127.0.0.1", iter([one.port]), echo)
        with pytest.raises(OSError, match="no port"):
            WebServer("127.0.0.1", iter([]), echo)


def test_a_server_that_was_never_started_stops_too() -> None:
    server = WebServer("127.0.0.1", iter([0]), echo)
    server.stop(WAIT_S)
    server.stop(WAIT_S)
