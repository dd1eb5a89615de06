"""Ports that are taken are passed over as Spark does it."""

from __future__ import annotations

import socket
from contextlib import closing, suppress

import pytest

from penstock.wire import WireError
from penstock.wire.addresses import listen_in_range, ports_to_try


def test_the_rule_is_sparks() -> None:
    assert list(ports_to_try(0, 16)) == [0]
    assert list(ports_to_try(4040, 3)) == [4040, 4041, 4042, 4043]
    # After the last port come the first that need no rights.
    assert list(ports_to_try(65534, 3)) == [65534, 65535, 1024, 1025]


def test_a_server_takes_the_next_port_when_one_is_taken(make_server, make_client) -> None:
    first = make_server(port=0).start()
    address = make_server(port=first[1], port_retries=16).start()
    assert 0 < address[1] - first[1] <= 16
    client = make_client(address)
    client.connect()


def test_when_all_are_taken_the_error_names_the_setting(make_server) -> None:
    host, port = make_server(port=0).start()
    with pytest.raises(WireError, match=f"cannot listen at {host}:{port}"):
        make_server(port=port).start()
    with closing(socket.socket()) as next_one:
        with suppress(OSError):  # somebody has it: so much the better
            next_one.bind((host, port + 1))
            next_one.listen()
        with pytest.raises(WireError, match=r"1 ports after .*spark.port.maxRetries"):
            make_server(port=port, port_retries=1).start()


def test_the_sockets_are_those_for_which_asyncio_turns_nagles_algorithm_off() -> None:
    (listening,) = listen_in_range("127.0.0.1", 0, 0)
    with listening, socket.create_connection(listening.getsockname(), 30):
        accepted, _ = listening.accept()
        with accepted:
            # asyncio looks at this; with 0 each answer could wait for 40 ms.
            assert accepted.proto == socket.IPPROTO_TCP
