"""What a block server and its readers and senders say to each other cannot be changed on the way.

The proxy knows no secret. Connections to this very host count as such to another one
here, where the bytes of blocks are sealed, too.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from penstock.blockstore.reading import fetch as module
from penstock.blockstore.reading._remote import fetch_from_host
from penstock.blockstore.reading.access import BlockAccess
from penstock.blockstore.reading.fetch import ANSWER, FetchStatus, fetch
from penstock.blockstore.server.peer_link import PeerLink
from penstock.wire import (
    TAG_BYTES,
    ApplicationLink,
    ConnectionLostError,
    TamperedError,
    TlsIdentity,
)
from penstock.wire.addresses import is_within_host
from tests.blockstore.peers import SECRET
from tests.blockstore.test_replicas import ATTEMPT, OtherHost
from tests.blockstore.test_server_limits import WAIT_S, make_block, serving
from tests.wire.between import Between, Line, Way

SIZE = 200_000
RECORD = 64 + SIZE


@pytest.fixture(autouse=True)
def _between_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_within_host", lambda connected: False)


@pytest.fixture
def between() -> Iterator[Callable[..., Between]]:
    made: list[Between] = []

    def make(address: tuple[str, int], **ways: Way) -> Between:
        made.append(Between(address, **ways))
        return made[-1]

    yield make
    for one in made:
        one.close()


def flipped(place: int) -> Way:
    """Change one bit of what is said after the handshake."""

    def flip(_: Between, line: Line) -> None:
        line.give(line.take(place))
        line.give(bytes([line.take(1)[0] ^ 1]))

    return flip


def forged_refusal(_: Between, line: Line) -> None:
    line.take(ANSWER.size + TAG_BYTES)
    line.give(ANSWER.pack(FetchStatus.NOT_FOUND, 4) + os.urandom(TAG_BYTES) + b"gone")
    line.give(os.urandom(TAG_BYTES))


ANSWERS = {
    "status": flipped(0),
    "length": flipped(1),
    "tag of the head": flipped(ANSWER.size),
    "header of the record": flipped(ANSWER.size + TAG_BYTES),
    "record": flipped(ANSWER.size + TAG_BYTES + RECORD // 2),
    "end of the record": flipped(ANSWER.size + TAG_BYTES + RECORD - 1),
    "tag of the record": flipped(ANSWER.size + TAG_BYTES + RECORD),
    "put in": forged_refusal,
}


@pytest.mark.parametrize("changed", ANSWERS)
def test_an_answer_that_was_changed_is_not_believed_and_the_block_is_fetched_again(
    tmp_path: Path, between: Callable[..., Between], changed: str
) -> None:
    block = make_block(tmp_path, SIZE)
    with serving(tmp_path) as address:
        middle = between(address, to_client=ANSWERS[changed])
        with pytest.raises(TamperedError, match="is not what it sent"):
            fetch(middle.address, SECRET, block, WAIT_S)
        middle = between(address, to_client=ANSWERS[changed])
        access = BlockAccess({"h": middle.address}, ApplicationLink(SECRET))
        assert len(fetch_from_host(block, access)) == SIZE
        assert middle.connections == 2


def test_a_record_of_another_block_is_not_taken_for_the_one_that_was_asked_for(
    tmp_path: Path, between: Callable[..., Between]
) -> None:
    """Played back from an earlier answer: its checksum is right, its place in the talk is not."""
    block = make_block(tmp_path, SIZE)
    whole = ANSWER.size + TAG_BYTES + RECORD + TAG_BYTES
    recorded: list[bytes] = []

    def record(_: Between, line: Line) -> None:
        recorded.append(line.take(whole))
        line.give(recorded[0])

    def play_again(_: Between, line: Line) -> None:
        line.take(whole)
        line.give(recorded[0])

    with serving(tmp_path) as address:
        assert len(fetch(between(address, to_client=record).address, SECRET, block, WAIT_S)) == SIZE
        with pytest.raises(TamperedError):
            fetch(between(address, to_client=play_again).address, SECRET, block, WAIT_S)


def test_a_request_that_was_changed_is_not_answered_and_told(
    tmp_path: Path, between: Callable[..., Between], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock.blockstore")
    block = make_block(tmp_path, SIZE)
    with serving(tmp_path) as address:
        middle = between(address, to_server=flipped(20))
        with pytest.raises(ConnectionLostError):
            fetch(middle.address, SECRET, block, WAIT_S)
        assert len(fetch(middle.address, SECRET, block, WAIT_S)) == SIZE
    assert "is not what it sent" in caplog.text


def test_a_copy_that_was_changed_on_its_way_is_not_kept(
    tmp_path: Path, between: Callable[..., Between]
) -> None:
    """Also when its checksum fits: who changes the bytes can do that."""
    host = OtherHost(tmp_path / "other")
    payload = os.urandom(SIZE)

    def exchange(_: Between, line: Line) -> None:
        head = line.take(4)
        request = line.take(int.from_bytes(head, "little") + TAG_BYTES)
        line.give(head + request)
        found = bytearray(line.take(SIZE))
        # The polynomial of CRC-32C, whose every multiple leaves the checksum as it is.
        for place, byte in enumerate((0x11EDC6F41).to_bytes(5, "big")):
            found[1000 + place] ^= int(f"{byte:08b}"[::-1], 2)
        assert bytes(found) != payload
        assert crc32c(bytes(found)) == crc32c(payload)
        line.give(bytes(found))

    middle = between(host.address, to_server=exchange)
    link = PeerLink("other", middle.address, SECRET)
    with pytest.raises(ConnectionLostError):
        link.keep(3, ATTEMPT, memoryview(payload), crc32c(payload))
    link.close()
    link = PeerLink("other", middle.address, SECRET)
    link.keep(3, ATTEMPT, memoryview(payload), crc32c(payload))
    link.close()
    host.stop()
    assert host.payloads() == [payload]


def test_an_answer_to_a_copy_that_was_changed_is_not_believed(
    tmp_path: Path, between: Callable[..., Between]
) -> None:
    host = OtherHost(tmp_path / "other")
    middle = between(host.address, to_client=flipped(ANSWER.size + TAG_BYTES + 5))
    link = PeerLink("other", middle.address, SECRET)
    with pytest.raises(TamperedError):
        link.keep(3, ATTEMPT, memoryview(b"x"), crc32c(b"x"))
    link.close()
    host.stop()


def test_the_bytes_of_blocks_are_sealed_where_they_leave_the_host_without_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = TlsIdentity.make()
    with serving(tmp_path, identity) as address:
        context = identity.client_context()
        connection = module.BlockConnection(address, "p", WAIT_S, context)
        assert not connection.seals_blocks
        connection.close()
    with serving(tmp_path) as address:
        connection = module.BlockConnection(address, "p", WAIT_S, None)
        assert connection.seals_blocks
        connection.close()
        monkeypatch.setattr(module, "is_within_host", is_within_host)
        connection = module.BlockConnection(address, "p", WAIT_S, None)
        assert not connection.seals_blocks
        connection.close()


def test_those_who_do_not_finish_the_handshake_of_tls_keep_no_reader_out(tmp_path: Path) -> None:
    identity = TlsIdentity.make()
    block = make_block(tmp_path, SIZE)
    before = len(os.listdir("/proc/self/fd"))
    strangers = []
    with serving(tmp_path, identity, max_unauthenticated=8) as address:
        for _ in range(100):
            strangers.append(socket.create_connection(address, WAIT_S))
        context = identity.client_context()
        assert len(fetch(address, SECRET, block, WAIT_S, ssl_context=context)) == SIZE
        assert len(os.listdir("/proc/self/fd")) - before - len(strangers) < 8 + 10
        assert strangers[0].recv(1) == b""
    for stranger in strangers:
        stranger.close()
    assert not any(
        thread.name.startswith("penstock-block-hash") for thread in threading.enumerate()
    )
