"""Servers and clients at addresses of IPv6, and at names that stand for several addresses."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from penstock.wire import Client, ConnectionLostError, Server, TlsIdentity, WireError
from penstock.wire.addresses import address_text, bare_host
from penstock.wire.messages import DeregisterReceiver, Ok
from tests.services.ipv6 import needs_ipv6

Make = Callable[..., Any]
ASK = DeregisterReceiver(1, "attempt", "done", "")


def test_an_ipv6_address_has_brackets_where_a_port_follows_and_nowhere_else() -> None:
    assert address_text("::1", 80) == "[::1]:80"
    assert address_text("10.0.0.1", 80) == "10.0.0.1:80"
    assert address_text("driver", 80) == "driver:80"
    assert [bare_host(host) for host in ("[::1]", "::1", "driver", "")] == [
        "::1",
        "::1",
        "driver",
        "",
    ]


@needs_ipv6
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_client_and_server_meet_at_an_ipv6_address(
    make_server: Make, make_client: Make, encrypted: bool
) -> None:
    identity = TlsIdentity.make() if encrypted else None
    server: Server = make_server(host="::1", tls=identity)
    address = server.start()
    assert address[0] == "::1"
    client: Client = make_client(address, tls=identity)
    client.connect()
    assert client.ask(ASK) == Ok()


@needs_ipv6
def test_a_server_at_all_addresses_takes_those_of_both_families(
    make_server: Make, make_client: Make
) -> None:
    """As Spark's own servers do with ``spark.driver.bindAddress=::``."""
    _, port = make_server(host="::").start()
    for host in ("127.0.0.1", "::1"):
        client: Client = make_client((host, port))
        client.connect()
        assert client.ask(ASK) == Ok()


@needs_ipv6
def test_a_name_of_several_addresses_has_one_port_at_all_of_them(
    make_server: Make, make_client: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are told the name and one port, and may have the means to reach one family only."""
    look_up = socket.getaddrinfo

    def both(host: Any, port: Any, *args: Any, **more: Any) -> list[Any]:
        if host != "both.test":
            return look_up(host, port, *args, **more)
        return [
            found
            for one in ("::1", "127.0.0.1")
            for found in look_up(one, port, type=socket.SOCK_STREAM)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    _, port = make_server(host="both.test").start()
    for host in ("127.0.0.1", "::1"):
        client: Client = make_client((host, port))
        client.connect()
        assert client.ask(ASK) == Ok()


@needs_ipv6
def test_errors_name_the_address_with_brackets(make_server: Make, make_client: Make) -> None:
    with closing(socket.create_server(("::1", 0), family=socket.AF_INET6)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WireError, match=rf"cannot listen at \[::1\]:{port}"):
            make_server(host="::1", port=port).start()
    with pytest.raises(ConnectionLostError, match=rf"no connection to \[::1\]:{port}"):
        make_client(("::1", port)).connect(0.1)
