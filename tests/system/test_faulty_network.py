"""Control connections and fetches of blocks through a network that misbehaves.

The server, the client and the ledger are the real ones; between them stands a `FaultyProxy`.
Nothing is lost or taken twice, every wait is bounded, and errors say what is wrong.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.blockstore import BlockAccess, BlockNotFoundError, read_block
from penstock.blockstore.building.builder import (
    DATA_START,
    DESCRIPTOR,
    KIND_CODES,
    MAGIC,
    BlockKind,
)
from penstock.blockstore.reading import reader as reader_module
from penstock.blockstore.reading._remote import fetch_from_host
from penstock.tracker import ReceivedBlockTracker
from penstock.wire import (
    ApplicationLink,
    AskTimeoutError,
    AuthenticationError,
    Client,
    ConnectionLostError,
    Peer,
    Reply,
    Server,
    WireOptions,
)
from penstock.wire.messages import (
    AddBlock,
    BlockServerAt,
    Message,
    Ok,
    ReceivedBlockInfo,
    RegisterReceiver,
)
from tests.blockstore.test_server import Host
from tests.bounds import HANG_S
from tests.system.faulty_proxy import Fault, FaultyProxy
from tests.tracker.ledger_cases import block

WAIT_S = HANG_S
ATTEMPT = "0123456789abcdef" * 2
QUICK = WireOptions(heartbeat_interval_s=0.1, dead_after_s=0.5, authentication_timeout_s=1.0)
"""A link is given up after half a second, so that no test waits for long."""


class Ledger:
    """A driver that only has a ledger."""

    def __init__(self) -> None:
        self.ledger = ReceivedBlockTracker([0])
        registration = self.ledger.register_attempt(0, ATTEMPT, "here")
        self.first_block_number = registration.first_block_number

    def on_message(self, peer: Peer, message: Message) -> Reply:
        if isinstance(message, RegisterReceiver):
            return Ok()
        assert isinstance(message, AddBlock)
        return self.ledger.add_blocks(message)

    def on_disconnect(self, peer: Peer) -> None:
        pass


@pytest.fixture
def driver() -> Iterator[tuple[Ledger, Client, FaultyProxy]]:
    """A ledger, a receiver's connection to it, and what lies between."""
    secret = os.urandom(32)
    ledger = Ledger()
    server = Server(ApplicationLink(secret), ledger, options=QUICK)
    hello = RegisterReceiver(0, ATTEMPT, "R", "here", "1", 1)
    with FaultyProxy(server.start()) as proxy:
        client = Client(
            ApplicationLink(secret, proxy.address),
            on_reconnect=lambda: [hello],
            options=replace(QUICK, ask_timeout_s=WAIT_S),
        )
        client.connect()
        try:
            yield ledger, client, proxy
        finally:
            client.close()
            server.stop()


def some_blocks(ledger: Ledger, count: int) -> list[ReceivedBlockInfo]:
    first = ledger.first_block_number
    return [block(0, ATTEMPT, number) for number in range(first, first + count)]


@pytest.mark.parametrize("fault", ["delay", "silence", "half open", "resets"])
def test_i2_blocks_are_added_once_and_in_order_whatever_the_link_does(
    driver: tuple[Ledger, Client, FaultyProxy], fault: str
) -> None:
    ledger, client, proxy = driver
    blocks = some_blocks(ledger, 200)
    answers = []

    def add(some: list[ReceivedBlockInfo]) -> None:
        answers.extend(client.ask_async(AddBlock(0, ATTEMPT, (one,))) for one in some)

    if fault == "delay":
        proxy.delay_s = 0.05
    add(blocks[:50])
    if fault == "silence":
        proxy.become(Fault.SILENT)
        add(blocks[50:100])
        # Both ends give the link up by themselves, and the client tries again.
        proxy.await_accepted(2)
        proxy.become(Fault.NONE)
    elif fault == "half open":
        proxy.half_close()
        add(blocks[50:100])
        proxy.await_accepted(2)
        proxy.become(Fault.NONE)
    elif fault == "resets":
        # Also in the middle of a frame, and of the handshakes that come after.
        for number, cut in enumerate((1, 20, 60)):
            accepted = proxy.accepted
            proxy.reset_after(cut)
            add(blocks[50 + 10 * number : 60 + 10 * number])
            proxy.await_accepted(accepted + 1)
    add(blocks[len(answers) :])
    assert {type(answer.result(WAIT_S)) for answer in answers} == {Ok}
    assert list(ledger.ledger.unallocated_blocks(0)) == blocks


def test_an_ask_into_silence_ends_in_its_time(
    driver: tuple[Ledger, Client, FaultyProxy],
) -> None:
    ledger, client, proxy = driver
    message = AddBlock(0, ATTEMPT, tuple(some_blocks(ledger, 1)))
    proxy.become(Fault.SILENT)
    with pytest.raises(AskTimeoutError, match="AddBlock"):
        client.ask(message, 0.2)
    proxy.become(Fault.NONE)
    # The block may be there by now; to add it again is safe.
    assert client.ask(message) == Ok()
    assert len(ledger.ledger.unallocated_blocks(0)) == 1


# -- blocks ------------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    try:
        yield made
    finally:
        made.close()


PAYLOAD = os.urandom(2 << 20)


def fetched(
    host: Host, block: ReceivedBlockInfo, address: tuple[str, int] | None, timeout_s: float = WAIT_S
) -> bytes:
    """Read a block as a batch task of another host does, which knows this address."""
    servers = {} if address is None else {"here": address}
    access = BlockAccess(servers, host.launch.link, timeout_s)
    return bytes(fetch_from_host(block, access))


def test_a_block_comes_whole_over_a_slow_link_and_one_that_breaks_in_the_middle(host: Host) -> None:
    block = host.memory_block(PAYLOAD)
    with FaultyProxy(host.start().address) as proxy:
        host.tracker.found = BlockServerAt(proxy.address, True)
        proxy.delay_s = 0.001
        assert fetched(host, block, proxy.address) == PAYLOAD
        assert proxy.accepted == 1
        proxy.delay_s = 0.0
        # On the connection that was kept: in the answer's head, and in the bytes.
        for count in (5, 1 << 20):
            accepted = proxy.accepted
            proxy.reset_after(count)
            assert fetched(host, block, proxy.address) == PAYLOAD
            assert proxy.accepted == accepted + 1
        # On a new one: in the greeting, too.
        for count in (10, 42 + 33 + 5, 1 << 20):
            accepted = proxy.accepted
            proxy.reset_all()
            proxy.reset_after(count)
            assert fetched(host, block, proxy.address) == PAYLOAD
            assert proxy.accepted == accepted + 2


@pytest.mark.parametrize("is_half_open", [False, True])
def test_a_fetch_from_a_silent_host_ends_in_its_time_and_says_from_where(
    host: Host, is_half_open: bool
) -> None:
    block = host.memory_block(PAYLOAD)
    with FaultyProxy(host.start().address) as proxy:
        host.tracker.found = BlockServerAt(proxy.address, True)
        proxy.delay_s = 0.001
        errors = []

        def fetch() -> None:
            try:
                fetched(host, block, proxy.address, 0.5 if is_half_open else 0.3)
            except ConnectionLostError as error:
                errors.append(error)

        if not is_half_open:
            proxy.become(Fault.SILENT)
        reader = threading.Thread(target=fetch)
        reader.start()
        if is_half_open:
            proxy.await_passed(1 << 16)
            proxy.half_close()
        reader.join(WAIT_S)
        assert not reader.is_alive()
        (error,) = errors
        host_and_port = "{}:{}".format(*proxy.address)
        assert f"block {block.block_id} could not be fetched from {host_and_port}" in str(error)
        assert "no answer, or not all of it" in str(error)


def test_a_host_that_is_silent_for_a_while_is_waited_for(host: Host) -> None:
    block = host.memory_block(PAYLOAD)
    with FaultyProxy(host.start().address) as proxy:
        proxy.become(Fault.SILENT)
        found: list[bytes] = []
        reader = threading.Thread(target=lambda: found.append(fetched(host, block, proxy.address)))
        reader.start()
        proxy.await_accepted(1)
        proxy.become(Fault.NONE)
        reader.join(WAIT_S)
        assert found == [PAYLOAD]


def test_a_block_server_that_was_replaced_is_found_by_asking_the_tracker(host: Host) -> None:
    block = host.memory_block(PAYLOAD)
    killed = host.start().address
    host.kill()
    host.tracker.found = BlockServerAt(None, True)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(fetched(host, block, killed)))
    reader.start()
    # It waits for the next one, which is being started.
    host.tracker.wait_for(lambda: host.tracker.searched >= 2)
    server = host.start()
    host.tracker.found = BlockServerAt(server.address, True)
    reader.join(WAIT_S)
    assert found == [PAYLOAD]


def test_a_stranger_at_the_old_port_does_not_fail_the_reader(host: Host, tmp_path: Path) -> None:
    block = host.memory_block(PAYLOAD)
    killed = host.start().address
    host.kill()
    (tmp_path / "other").mkdir()
    other = Host(tmp_path / "other")
    try:
        assert other.start(listen_port=killed[1]).address == killed
        with pytest.raises(AuthenticationError):
            fetched(host, block, killed)
        host.tracker.found = BlockServerAt(host.start().address, True)
        assert fetched(host, block, killed) == PAYLOAD
    finally:
        other.close()


def test_a_block_server_that_nobody_replaces_is_told_at_once(host: Host) -> None:
    block = host.memory_block(PAYLOAD)
    killed = host.start().address
    host.kill()
    with pytest.raises(ConnectionLostError, match=r"from 127\.0\.0\.1:\d+: .*refused"):
        fetched(host, block, killed)
    assert host.tracker.searched == 1
    with pytest.raises(ConnectionLostError, match="here has no block server"):
        fetched(host, block, None)
    assert host.tracker.searched == 2


def test_a_host_that_is_away_is_waited_for_where_the_user_chose_so(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_slow_told_s", -math.inf)
    lines = b"first\nsecond\n"
    code, end = KIND_CODES[BlockKind.BYTE_LINES], DATA_START + len(lines)
    head = DESCRIPTOR.pack(MAGIC, code, 0, 0, 0, 2, DATA_START, len(lines), end, 0)
    block = host.memory_block(head.ljust(DATA_START, b"\0") + lines)
    killed = host.start().address
    host.kill()
    away = host.memory_path().rename(host.memory_path().with_suffix(".away"))
    link = ApplicationLink(host.secret, host.launch.link.tracker)
    access = BlockAccess({"here": killed}, link, WAIT_S, wait_s=WAIT_S)
    found: list[Any] = []

    def read() -> None:
        with read_block(block, access) as one:
            found.extend(one.records())

    reader = threading.Thread(target=read)
    reader.start()
    host.tracker.wait_for(lambda: bool(host.tracker.slow))
    (told,) = host.tracker.slow
    assert told.is_waiting
    assert told.block_id == block.block_id
    assert "block server of here" in told.tried
    host.tracker.found = BlockServerAt(host.start().address, True)
    away.rename(host.memory_path())
    reader.join(WAIT_S)
    assert found == [b"first", b"second"]


def test_what_is_waited_for_is_an_error_when_the_time_is_over_or_its_host_has_it_no_more(
    host: Host,
) -> None:
    block = host.memory_block(PAYLOAD)
    server = host.start()
    host.memory_path().unlink()
    link = ApplicationLink(host.secret, host.launch.link.tracker)
    access = BlockAccess({"here": server.address}, link, WAIT_S, wait_s=10 * WAIT_S)
    with pytest.raises(BlockNotFoundError, match="not found"), read_block(block, access):
        pass
    host.kill()
    begun_s = time.monotonic()
    soon = replace(access, wait_s=0.5)
    with pytest.raises(BlockNotFoundError, match="refused"), read_block(block, soon):
        pass
    assert time.monotonic() - begun_s >= 0.5


def test_a_block_that_is_gone_is_an_error_that_names_all_that_was_tried(host: Host) -> None:
    block = host.memory_block(PAYLOAD)
    server = host.start()
    host.memory_path().unlink()
    access = BlockAccess({"here": server.address}, ApplicationLink(host.secret), WAIT_S)
    with pytest.raises(BlockNotFoundError) as caught, read_block(block, access):
        pass
    in_memory, at_server = caught.value.tried
    assert in_memory.startswith(f"memory {host.memory_path()}")
    assert at_server.startswith("block server of here: ")
    assert "not found" in at_server
