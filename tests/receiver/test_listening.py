"""Where a receiver listens: its ports, and what the driver is told of them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from penstock.receiver import ReceiverContext, bound_socket, ports_of
from penstock.receiver.listening import reachable
from penstock.testing import run_receiver


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


def echo(ctx: ReceiverContext) -> Iterator[bytes]:
    with bound_socket("127.0.0.1", 0, socket.SOCK_DGRAM) as server:
        ctx.listening(f"udp://127.0.0.1:{port_of(server)}")
        server.settimeout(0.05)
        while not ctx.stopped.is_set():
            with contextlib.suppress(TimeoutError):
                yield server.recv(100)


def test_a_receiver_tells_where_to_send() -> None:
    with run_receiver(echo) as running:
        (address,) = running.wait_for_addresses()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"hello", ("127.0.0.1", int(address.rpartition(":")[2])))
        assert running.wait_for_records(1) == [b"hello"]
        running.stop()
        assert running.addresses == ()


def test_after_a_restart_its_new_addresses_hold() -> None:
    with run_receiver(echo, settings={"spark.streaming.receiverRestartDelay": 1}) as running:
        before = running.wait_for_addresses()
        running.restart()
        running.wait_for_event("registered", 2)
        after = running.wait_for_addresses()
        assert len(after) == 1
        assert after != before


@pytest.mark.parametrize(
    ("given", "ports"),
    [(0, [0]), (80, [80]), ("80", [80]), ("0", [0]), ("8000-8002", [8000, 8001, 8002])],
)
def test_a_port_is_a_number_or_a_range(given: int | str, ports: list[int]) -> None:
    assert list(ports_of(given)) == ports


@pytest.mark.parametrize("given", [-1, 65536, "", "a", "9-8", "0-5", "1-2-3", "1-65536", True, 1.0])
def test_another_port_is_refused_with_what_is_accepted(given: object) -> None:
    with pytest.raises((ValueError, TypeError), match=r'port=.*a range such as "8000-8010"'):
        ports_of(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_range_gives_the_first_port_that_is_free(kind: socket.SocketKind) -> None:
    with bound_socket("127.0.0.1", 0, kind) as first:
        taken = port_of(first)
        try:
            with bound_socket("127.0.0.1", f"{taken}-{min(65535, taken + 50)}", kind) as second:
                assert taken < port_of(second) <= taken + 50
        except OSError:
            pytest.fail("no port of the range was taken")
        with pytest.raises(OSError, match=f"cannot listen at port {taken} of 127.0.0.1: .* in use"):
            bound_socket("127.0.0.1", taken, kind)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_several_share_a_port(kind: socket.SocketKind) -> None:
    with contextlib.ExitStack() as opened:
        first = opened.enter_context(bound_socket("127.0.0.1", 0, kind, share=True))
        second = bound_socket("127.0.0.1", port_of(first), kind, share=True)
        assert port_of(opened.enter_context(second)) == port_of(first)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://0.0.0.0:8080/hooks", "http://worker-1:8080/hooks"),
        ("udp://[::]:514", "udp://worker-1:514"),
        ("tcp://:514", "tcp://worker-1:514"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://0.0.0.0.example.org/", "http://0.0.0.0.example.org/"),
        ("unix:///run/app.sock", "unix:///run/app.sock"),
    ],
)
def test_an_address_names_a_host_that_others_know(address: str, told: str) -> None:
    assert reachable(address, "worker-1") == told


def test_an_ipv6_host_has_its_brackets() -> None:
    assert reachable("udp://[::]:514", "fd00::1") == "udp://[fd00::1]:514"
