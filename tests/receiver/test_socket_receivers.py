"""`SocketReceiver` against real servers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.sources import ConvertingSocketReceiver, RawSocketReceiver, SocketReceiver
from penstock.wire.messages import DeregisterReceiver, RegisterReceiver, ReportError, StopReceiver
from tests.receiver.conftest import run, shared, tracker
from tests.receiver.running import WAIT_S, Running, Tracker
from tests.services.ipv6 import needs_ipv6

__all__ = ["run", "shared", "tracker"]

Run = Callable[..., Running]


class LineServer:
    """Accepts connections one after the other; the test sends."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.listening = socket.create_server((address, 0), family=family)
        self.listening.settimeout(WAIT_S)
        self.port: int = self.listening.getsockname()[1]
        self.connection: socket.socket | None = None

    def accept(self) -> socket.socket:
        self.connection, _ = self.listening.accept()
        return self.connection

    def close(self) -> None:
        self.listening.close()
        if self.connection is not None:
            self.connection.close()


@pytest.fixture
def server() -> Iterator[LineServer]:
    server = LineServer()
    yield server
    server.close()


def test_lines_are_cut_as_javas_readline_cuts_them(
    run: Run, tracker: Tracker, server: LineServer
) -> None:
    run(SocketReceiver("127.0.0.1", server.port))
    connection = server.accept()
    connection.sendall("one\ntwo\r\nthree\rvier \xfc\n\nno end".encode())
    connection.shutdown(socket.SHUT_WR)
    assert tracker.wait_for_records(6) == ["one", "two", "three", "vier \xfc", "", "no end"]


@needs_ipv6
@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_the_server_may_have_an_ipv6_address_in_brackets_or_without(
    run: Run, tracker: Tracker, host: str
) -> None:
    server = LineServer("::1")
    try:
        run(SocketReceiver(host, server.port))
        server.accept().sendall(b"one\ntwo\n")
        assert tracker.wait_for_records(2) == ["one", "two"]
    finally:
        server.close()


def test_bytes_that_are_not_utf_8_are_replaced(
    run: Run, tracker: Tracker, server: LineServer
) -> None:
    run(SocketReceiver("127.0.0.1", server.port))
    server.accept().sendall(b"good\nb\xffd\n")
    assert tracker.wait_for_records(2) == ["good", "b\ufffdd"]


def test_an_end_of_the_stream_is_a_restart_that_says_so(
    run: Run, tracker: Tracker, server: LineServer
) -> None:
    run(SocketReceiver("127.0.0.1", server.port))
    server.accept().close()
    server.accept().sendall(b"again\n")
    assert tracker.wait_for_records(1) == ["again"]
    assert tracker.of(DeregisterReceiver)[0].message == (
        "Restarting receiver with delay 10 ms: Socket data stream had no more data"
    )


def test_a_refused_connection_is_tried_again_after_the_delay(
    run: Run, tracker: Tracker, server: LineServer
) -> None:
    server.listening.close()
    running = run(SocketReceiver("127.0.0.1", server.port))
    tracker.wait_for_count(DeregisterReceiver, 2)
    for told in tracker.of(DeregisterReceiver)[:2]:
        assert told.message.endswith(
            f"Error connecting to 127.0.0.1:{server.port}: connection refused; the host is up, and "
            "nothing listens at that port"
        )
        assert "ConnectionRefusedError" in told.error
    tracker.send(StopReceiver())
    assert running.join() is None


def test_an_unknown_host_is_no_tight_loop(run: Run, tracker: Tracker) -> None:
    """In the original it ends the task, and the driver launches it again, about thrice a second."""
    running = run(SocketReceiver("no-such-host.invalid", 9))
    tracker.wait_for_count(DeregisterReceiver, 1)
    told = tracker.of(DeregisterReceiver)[0]
    assert "Restarting receiver with delay 10 ms" in told.message
    assert "Error connecting to no-such-host.invalid:9: host not found" in told.message
    assert "gaierror" in told.error
    tracker.send(StopReceiver())
    assert running.join() is None


def test_a_broken_connection_is_a_restart_with_its_error(
    run: Run, tracker: Tracker, server: LineServer
) -> None:
    run(SocketReceiver("127.0.0.1", server.port))
    connection = server.accept()
    connection.sendall(b"complete\ncut")
    tracker.wait_for_records(1)
    # With this option a close is a reset.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    tracker.wait_for_count(DeregisterReceiver, 1)
    told = tracker.of(DeregisterReceiver)[0]
    assert told.message.endswith("Error receiving data")
    assert "ConnectionResetError" in told.error
    assert tracker.records() == ["complete"]


def test_a_silent_source_does_not_hang_the_stop_and_a_cut_line_is_no_record(
    run: Run, tracker: Tracker, server: LineServer
) -> None:
    running = run(SocketReceiver("127.0.0.1", server.port))
    server.accept().sendall(b"whole\nhalf a li")
    tracker.wait_for_records(1)
    tracker.send(StopReceiver())
    assert running.join() is None
    assert tracker.records() == ["whole"]
    assert len(tracker.of(RegisterReceiver)) == 1


def resident_bytes() -> int:
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * 4096


def test_i7_a_line_without_an_end_is_dropped_and_reported_without_growing_memory(
    run: Run, tracker: Tracker, server: LineServer
) -> None:
    run(SocketReceiver("127.0.0.1", server.port))
    connection = server.accept()
    piece = b"x" * (1 << 20)  # as large as a block of this test can be
    connection.sendall(b"before\n")
    tracker.wait_for_records(1)
    before = resident_bytes()

    def send() -> None:
        for _ in range(1024):
            connection.sendall(piece)
        connection.sendall(b"\nafter\n")

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    assert tracker.wait_for_records(2) == ["before", "after"]
    sending.join(WAIT_S)
    assert resident_bytes() - before < 32 << 20
    (report,) = tracker.of(ReportError)
    assert report.message.startswith("1 record was discarded: ")
    assert "RecordTooLargeError" in report.error


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def test_frames_are_records(run: Run, tracker: Tracker, server: LineServer) -> None:
    run(RawSocketReceiver("127.0.0.1", server.port))
    connection = server.accept()
    payloads = [b"one", b"", b"\x00\n\xff" * 200_000, b"last"]
    connection.sendall(b"".join(map(frame, payloads)) + frame(b"cut")[:-1])
    connection.shutdown(socket.SHUT_WR)
    assert tracker.wait_for_records(4) == payloads
    tracker.wait_for_count(DeregisterReceiver, 1)
    assert tracker.of(DeregisterReceiver)[0].message.endswith(": End of channel")


@pytest.mark.parametrize("prefix", [b"\xff\xff\xff\xff", b"\0\0\0\x0b", b"GET "])
def test_a_frame_of_a_length_that_is_not_accepted_ends_the_connection(
    run: Run, tracker: Tracker, server: LineServer, prefix: bytes
) -> None:
    run(RawSocketReceiver("127.0.0.1", server.port, max_frame_bytes=10))
    server.accept().sendall(frame(b"0123456789") + prefix + b"more than enough bytes")
    tracker.wait_for_count(DeregisterReceiver, 1)
    told = tracker.of(DeregisterReceiver)[0].message
    assert f"{int.from_bytes(prefix, 'big', signed=True)} bytes is announced" in told
    assert "spark.streaming.raw.maxBlockSizeBytes" in told
    assert tracker.wait_for_records(1) == [b"0123456789"]
    server.accept()


def test_lengths_may_come_in_pieces(run: Run, tracker: Tracker, server: LineServer) -> None:
    run(RawSocketReceiver("127.0.0.1", server.port, max_frame_bytes=10))
    connection = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for piece in (b"\0", b"\0\0", b"\2ab\0\0", b"\0\1", b"c\0\0\1"):
        connection.sendall(piece)
    connection.sendall(b"\0")
    tracker.wait_for_count(DeregisterReceiver, 1)
    assert "256 bytes is announced" in tracker.of(DeregisterReceiver)[0].message
    assert tracker.wait_for_records(2) == [b"ab", b"c"]


def test_a_converter_makes_records(run: Run, tracker: Tracker, server: LineServer) -> None:
    def numbers(stream: Any) -> Iterator[int]:
        while data := stream.read(2):
            yield int.from_bytes(data, "big")

    run(ConvertingSocketReceiver("127.0.0.1", server.port, numbers))
    connection = server.accept()
    connection.sendall(b"\0\1\1\0")
    connection.shutdown(socket.SHUT_WR)
    assert tracker.wait_for_records(2) == [1, 256]
    tracker.wait_for_count(DeregisterReceiver, 1)
    assert tracker.of(DeregisterReceiver)[0].message.endswith("had no more data")


def test_a_converter_that_fails_is_a_restart_with_its_error(
    run: Run, tracker: Tracker, server: LineServer
) -> None:
    def failing(stream: Any) -> Iterator[bytes]:
        yield stream.read(1)
        raise KeyError("no such code")

    run(ConvertingSocketReceiver("127.0.0.1", server.port, failing))
    server.accept().sendall(b"x")
    tracker.wait_for_count(DeregisterReceiver, 1)
    told = tracker.of(DeregisterReceiver)[0]
    assert "Error receiving data: the converter failed: KeyError" in told.message
    assert "no such code" in told.error
    assert tracker.wait_for_records(1) == [b"x"]


def test_a_stop_ends_a_converter_and_what_was_cut_is_no_record(
    run: Run, tracker: Tracker, server: LineServer
) -> None:
    running = run(ConvertingSocketReceiver("127.0.0.1", server.port, lambda stream: stream))
    server.accept().sendall(b"whole\nhalf a li")
    tracker.wait_for_records(1)
    tracker.send(StopReceiver())
    assert running.join() is None
    assert tracker.records() == [b"whole\n"]
