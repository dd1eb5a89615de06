"""What readers may cost a block server, whatever they do."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import socket
import struct
import threading
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.blockstore import (
    BlockAccess,
    BlockNotFoundError,
    BlockUnavailableError,
    read_block,
)
from penstock.blockstore.building.memory import try_lock_exclusive
from penstock.blockstore.reading.fetch import (
    ANSWER,
    SERVICE,
    BlockNotServedError,
    FetchRequest,
    FetchStatus,
    fetch,
)
from penstock.blockstore.reading.reader import _is_lost
from penstock.blockstore.server._files import ApplicationFiles
from penstock.blockstore.server._serving import BlockService, ServingLimits
from penstock.wal import stamp_record
from penstock.wire import (
    TAG_BYTES,
    ApplicationLink,
    Arrival,
    ConnectionLostError,
    ProtocolError,
    ServerHandshake,
    TlsIdentity,
)
from penstock.wire.messages import MemoryPlace, ReceivedBlockInfo, ReplicaPlace, SegmentPlace
from tests.blockstore.peers import SECRET, connect, receive
from tests.bounds import HANG_S

WAIT_S = HANG_S
ATTEMPT = "0123456789abcdef" * 2


def in_thread(service: Callable[[], BlockService]) -> Iterator[tuple[str, int]]:
    """Run a service on a thread of its own; yields its address."""
    started: Future[tuple[tuple[str, int], asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        made = service()
        over = asyncio.Event()
        started.set_result((await made.start("127.0.0.1"), asyncio.get_running_loop(), over))
        await over.wait()
        await made.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="penstock-test-service")
    thread.start()
    address, loop, over = started.result(WAIT_S)
    yield address
    loop.call_soon_threadsafe(over.set)
    thread.join(WAIT_S)
    assert not thread.is_alive()


@contextlib.contextmanager
def serving(
    folder: Path, tls: TlsIdentity | None = None, **limits: float
) -> Iterator[tuple[str, int]]:
    files = ApplicationFiles("app-1", str(folder), str(folder / "blocks"))
    context = tls.server_context() if tls else None
    yield from in_thread(
        lambda: BlockService(SECRET, files, ServingLimits(**limits), context)  # type: ignore[arg-type]
    )


def make_block(folder: Path, size: int) -> ReceivedBlockInfo:
    record = bytearray(64 + size)
    stamp_record(memoryview(record), 1, size, 9)
    path = folder / f"penstock-app-1-{ATTEMPT}"
    path.write_bytes(record)
    memory = MemoryPlace(str(path), 0, len(record))
    return ReceivedBlockInfo(3, "input-3-1", 1, size, ATTEMPT, "h", 9, memory, None)


def request_for(block: ReceivedBlockInfo) -> bytes:
    text = msgspec.msgpack.encode(FetchRequest(block.sequence, block.memory, block.segment, False))
    return struct.pack("<I", len(text)) + text


def rest(peer: socket.socket) -> int:
    """Read to the end; how much there was."""
    total = 0
    with contextlib.suppress(ConnectionError):
        while chunk := peer.recv(1 << 20):
            total += len(chunk)
    return total


def test_a_reader_that_stops_reading_is_cut_off_and_frees_its_slot(tmp_path: Path) -> None:
    block = make_block(tmp_path, 32 << 20)
    assert block.memory is not None
    with serving(tmp_path, max_transfers=1, step_timeout_s=0.5) as address:
        slow = connect(address, receive_buffer=4096)
        slow.send_sealed(request_for(block))
        status, length = ANSWER.unpack(slow.receive_sealed(ANSWER.size))
        assert (status, length) == (FetchStatus.RECORD, block.memory.length)
        fd = os.open(block.memory.path, os.O_RDWR)
        assert not try_lock_exclusive(fd, 0, 4096)  # not reused while it is on its way
        # The only transfer at a time is that of the slow one, until it is cut off.
        assert len(fetch(address, SECRET, block, WAIT_S)) == 32 << 20
        assert rest(slow) < 32 << 20
        assert try_lock_exclusive(fd, 0, 4096)
        os.close(fd)
        slow.close()


def test_a_connection_carries_several_requests(tmp_path: Path) -> None:
    block = make_block(tmp_path, 10_000)
    with serving(tmp_path) as address:
        peer = connect(address)
        peer.send_sealed(*[request_for(block)] * 3)
        for _ in range(3):
            status, length = ANSWER.unpack(peer.receive_sealed(ANSWER.size))
            assert status == FetchStatus.RECORD
            assert length == 10_064
            receive(peer, length)
        peer.close()


def test_a_reader_that_goes_away_before_its_blocks_were_sent_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    block = make_block(tmp_path, 1000)
    with serving(tmp_path) as address:
        for _ in range(30):
            peer = connect(address)
            peer.send_sealed(*[request_for(block)] * 200)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
        assert len(fetch(address, SECRET, block, WAIT_S)) == 1000
    # The loop tells of what nobody has caught.
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_a_reader_that_goes_away_in_a_block_leaves_no_mapping_of_it(tmp_path: Path) -> None:
    """Each holds the file's bytes, also when it is removed."""
    block = make_block(tmp_path, 16 << 20)
    assert block.memory is not None
    path = block.memory.path

    def mappings() -> int:
        return Path("/proc/self/maps").read_text().count(path)

    # Longer than it takes to ask, also on a slow machine.
    with serving(tmp_path, step_timeout_s=3) as address:
        gc.collect()
        gc.disable()
        try:
            peers = [connect(address, receive_buffer=4096) for _ in range(6)]
            for peer in peers:
                peer.send_sealed(request_for(block))
                peer.receive_sealed(ANSWER.size)
            assert mappings() == len(peers)
            # The others stop reading, and the server ends them.
            for peer in peers[::2]:
                peer.close()
            end_s = time.monotonic() + WAIT_S
            while mappings() and time.monotonic() < end_s:
                threading.Event().wait(0.02)
            assert mappings() == 0
        finally:
            gc.enable()
        for peer in peers[1::2]:
            peer.close()


@pytest.mark.parametrize(
    ("offset", "length"), [(2**63, 64), (2**63 - 1, 2**63 - 1), (-(2**63), 64), (0, 2**64 - 1)]
)
def test_a_place_that_no_file_can_have_is_not_found(
    tmp_path: Path, offset: int, length: int
) -> None:
    block = make_block(tmp_path, 1000)
    assert block.memory is not None
    wrong = msgspec.structs.replace(
        block, memory=MemoryPlace(block.memory.path, offset, length), num_bytes=0
    )
    with serving(tmp_path) as address:
        with pytest.raises(BlockNotServedError) as caught:
            fetch(address, SECRET, wrong, WAIT_S)
        assert caught.value.status is FetchStatus.NOT_FOUND


def test_connections_over_the_limit_are_told_so(tmp_path: Path) -> None:
    block = make_block(tmp_path, 1000)
    with serving(tmp_path, max_connections=3) as address:
        held = [connect(address) for _ in range(3)]
        with pytest.raises(BlockNotServedError) as caught:
            fetch(address, SECRET, block, WAIT_S)
        assert caught.value.status is FetchStatus.BUSY
        for peer in held:
            peer.send_sealed(request_for(block))
            assert ANSWER.unpack(peer.receive_sealed(ANSWER.size))[0] == FetchStatus.RECORD
            peer.close()


def test_a_block_is_lost_where_its_host_says_so_and_not_where_that_is_busy(tmp_path: Path) -> None:
    block = make_block(tmp_path, 1000)
    memory = MemoryPlace(f"{tmp_path}/penstock-app-1-{'f' * 32}", 0, 1064)
    gone = msgspec.structs.replace(block, memory=memory)
    with serving(tmp_path, max_connections=1) as address:
        access = BlockAccess({"h": address}, ApplicationLink(SECRET), fetch_timeout_s=0.3)
        held = connect(address)
        with pytest.raises(BlockUnavailableError, match="may be whole"):
            read_block(gone, access).__enter__()
        held.close()
        patient = replace(access, fetch_timeout_s=WAIT_S)
        with pytest.raises(BlockNotFoundError, match="not found"):
            read_block(gone, patient).__enter__()


@pytest.mark.parametrize(
    ("number", "is_local", "is_lost"),
    [
        (errno.ENOENT, True, True),
        (errno.EIO, True, True),
        (errno.EIO, False, False),
        (errno.EMFILE, True, False),
        (errno.EACCES, True, False),
        (errno.ETIMEDOUT, False, False),
    ],
)
def test_what_this_process_lacks_is_not_taken_for_a_block_that_is_gone(
    number: int, is_local: bool, is_lost: bool
) -> None:
    assert _is_lost(OSError(number, "as the system says"), is_local=is_local) is is_lost


def test_a_block_is_not_lost_while_one_of_two_hosts_may_have_it(tmp_path: Path) -> None:
    block = make_block(tmp_path, 1000)
    memory = MemoryPlace(f"{tmp_path}/penstock-app-1-{'f' * 32}", 0, 1064)
    place = SegmentPlace(f"{tmp_path}/blocks/3-{'e' * 32}", 1, 0, 1064)
    copy = ReplicaPlace("i", place, 9)
    gone = msgspec.structs.replace(block, memory=memory, replicas=(copy,))
    with serving(tmp_path) as first, serving(tmp_path, max_connections=1) as second:
        servers = {"h": first, "i": second}
        access = BlockAccess(servers, ApplicationLink(SECRET), fetch_timeout_s=0.3)
        held = connect(second)
        with pytest.raises(BlockUnavailableError, match="may be whole"):
            read_block(gone, access).__enter__()
        held.close()
        with pytest.raises(BlockNotFoundError, match="not found"):
            read_block(gone, replace(access, fetch_timeout_s=WAIT_S)).__enter__()


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (errno.EMFILE, FetchStatus.BUSY),
        (errno.EACCES, FetchStatus.REFUSED),
        (errno.EIO, FetchStatus.NOT_FOUND),
    ],
)
def test_what_a_block_server_lacks_is_not_taken_for_a_block_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: FetchStatus
) -> None:
    block = make_block(tmp_path, 1000)

    def fail(files: ApplicationFiles, place: MemoryPlace) -> int:
        raise OSError(number, "as the system says")

    monkeypatch.setattr(ApplicationFiles, "open_memory", fail)
    with serving(tmp_path) as address:
        with pytest.raises(BlockNotServedError, match="as the system says") as caught:
            fetch(address, SECRET, block, WAIT_S)
        assert caught.value.status is status


def test_strangers_take_no_place_of_those_who_have_proved_themselves(tmp_path: Path) -> None:
    block = make_block(tmp_path, 1000)
    with serving(tmp_path, max_connections=2) as address:
        strangers = [socket.create_connection(address, WAIT_S) for _ in range(10)]
        for stranger in strangers:
            assert stranger.recv(1), "it is served, up to the challenge"
        for _ in range(3):
            assert len(fetch(address, SECRET, block, WAIT_S)) == 1000
        for stranger in strangers:
            stranger.close()


def test_idle_and_stalled_connections_end(tmp_path: Path) -> None:
    block = make_block(tmp_path, 1000)
    with serving(
        tmp_path, idle_timeout_s=0.2, authentication_timeout_s=0.2, max_unauthenticated=4
    ) as address:
        idle, halfway = connect(address), connect(address)
        halfway.sendall(request_for(block)[:10])
        unproved = socket.create_connection(address, WAIT_S)
        assert rest(idle) == 0
        assert rest(halfway) == 0
        assert rest(unproved) == 42
        crowd = [socket.create_connection(address, WAIT_S) for _ in range(20)]
        assert len(fetch(address, SECRET, block, WAIT_S)) == 1000
        for peer in (idle, halfway, unproved, *crowd):
            peer.close()


def test_a_tls_connection_that_broke_leaves_nothing_to_the_garbage_collector(
    tmp_path: Path,
) -> None:
    """It has buffers of its own and part of a block; those who break off must not fill memory."""

    def standing() -> int:
        return sum(type(found) is SSLProtocol for found in gc.get_objects())

    tls = TlsIdentity.make()
    block = make_block(tmp_path, 1000)
    with serving(tmp_path, tls) as address:
        gc.collect()
        before = standing()
        gc.disable()
        try:
            for number in range(10):
                plain = socket.create_connection(address, WAIT_S)
                peer = tls.client_context().wrap_socket(plain)
                if number % 2:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.close()
            end_s = time.monotonic() + WAIT_S
            while standing() > before and time.monotonic() < end_s:
                threading.Event().wait(0.02)
            # Those of an earlier test may end meanwhile.
            assert standing() <= before
        finally:
            gc.enable()
        context = tls.client_context()
        assert len(fetch(address, SECRET, block, WAIT_S, ssl_context=context)) == 1000


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(request=st.binary(max_size=200), length=st.none() | st.integers(0, 2**32 - 1))
def test_a_request_that_cannot_be_read_gets_a_reason_or_ends_the_connection(
    address_of_service: tuple[tuple[str, int], ReceivedBlockInfo],
    request: bytes,
    length: int | None,
) -> None:
    address, block = address_of_service
    peer = connect(address)
    peer.send_sealed(struct.pack("<I", len(request) if length is None else length) + request)
    peer.shutdown(socket.SHUT_WR)
    with contextlib.suppress(EOFError, ConnectionError):
        status, _ = ANSWER.unpack(peer.receive_sealed(ANSWER.size))
        assert status in (FetchStatus.REFUSED, FetchStatus.NOT_FOUND)
    peer.close()
    assert len(fetch(address, SECRET, block, WAIT_S)) == 1000


@pytest.fixture
def address_of_service(tmp_path: Path) -> Iterator[tuple[tuple[str, int], ReceivedBlockInfo]]:
    with serving(tmp_path) as address:
        yield address, make_block(tmp_path, 1000)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (b"\x09" + bytes(8), ProtocolError, "unknown status 9"),
        (ANSWER.pack(1, 1 << 60), ProtocolError, "announced"),
        (ANSWER.pack(1, 1064) + b"x" * 500, ConnectionLostError, "564 of 1064 bytes missing"),
        (b"", ConnectionLostError, "missing"),
        (None, ConnectionLostError, "no answer, or not all of it, within 0.3 s"),
        (ANSWER.pack(2, 1 << 60) + b"gone", ProtocolError, "an answer of"),
        (ANSWER.pack(2, 1000) + b"gone", ConnectionLostError, "missing"),
    ],
)
def test_a_block_server_that_misbehaves_is_a_named_error_in_bounded_time(
    tmp_path: Path, answer: bytes | None, error: type[Exception], text: str
) -> None:
    block = make_block(tmp_path, 1000)
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def misbehave() -> None:
        peer, _ = listener.accept()
        with peer:
            handshake = ServerHandshake(SECRET, SERVICE)
            peer.sendall(handshake.opening())
            peer.sendall(handshake.receive(receive(peer, 74)))
            receive(peer, len(request_for(block)) + TAG_BYTES)
            if answer is None:
                over.wait(WAIT_S)
            elif answer:
                head, text = answer[: ANSWER.size], answer[ANSWER.size :]
                peer.sendall(head + handshake.seals().outgoing.tag(head) + text)

    thread = threading.Thread(target=misbehave)
    thread.start()
    with listener, pytest.raises(error, match=text):
        fetch(listener.getsockname(), SECRET, block, 0.3 if answer is None else WAIT_S)
    over.set()
    thread.join(WAIT_S)


def test_who_was_turned_away_before_it_was_served_is_not_waited_for() -> None:
    """Nothing bounds it any more: it is not counted, and has no timer."""

    async def run() -> None:
        service = BlockService(b"s" * 32, cast("Any", None))
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        arrival = Arrival("a peer", "a host", lambda reason: None)
        arrival.is_over = True
        await asyncio.wait_for(service._serve(reader, writer, arrival), WAIT_S)
        with theirs:
            theirs.settimeout(WAIT_S)
            assert theirs.recv(100) == b""
        await service.stop()

    asyncio.run(run())


@pytest.mark.slow
def test_who_has_proved_itself_is_not_turned_away_with_strangers(tmp_path: Path) -> None:
    block = make_block(tmp_path, 1000)
    with serving(tmp_path, authentication_timeout_s=2, max_unauthenticated=1) as address:
        peer = connect(address)
        with socket.create_connection(address) as stranger:
            stranger.settimeout(WAIT_S)
            rest(stranger)  # until its time is over: that of the peer's proof was before
        peer.send_sealed(request_for(block))
        assert ANSWER.unpack(peer.receive_sealed(ANSWER.size)) == (FetchStatus.RECORD, 1064)
        peer.close()
