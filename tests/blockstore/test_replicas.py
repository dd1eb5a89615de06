"""Second copies on another host: who may make them, what is in them, and what a broken link does.

Other hosts are block services on threads here, each with a folder of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import struct
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crc32c import crc32c

from penstock.blockstore import (
    BlockAccess,
    BlockKind,
    BlockNotFoundError,
    BlockStore,
    read_block,
    replicator,
)
from penstock.blockstore.building.builder import join_binary
from penstock.blockstore.reading import reader
from penstock.blockstore.reading._remote import copies_of, fetch_from_host
from penstock.blockstore.reading.fetch import ANSWER, FetchStatus, fetch
from penstock.blockstore.reading.reader import parse_block
from penstock.blockstore.replicator import (
    CopyHosts,
    IllegalStateError,
    Replicator,
)
from penstock.blockstore.server._files import ApplicationFiles
from penstock.blockstore.server._serving import BlockService, ServingLimits
from penstock.blockstore.server.peer_link import PeerLink
from penstock.blockstore.server.replica_service import ReplicaLogs, ReplicaRequest, ReplicaService
from penstock.blockstore.store import BlockStoreOptions
from penstock.errors import PenstockError
from penstock.wal import EncryptionKey, LogFullError, LogOptions, LogReader, SyncPolicy, WalError
from penstock.wire import (
    ApplicationLink,
    AuthenticationError,
    ConnectionLostError,
    TlsIdentity,
    WireError,
)
from penstock.wire.messages import Message, ReceivedBlockInfo, ReplicaHostAt, ReplicaPlace
from tests.blockstore.peers import SECRET, connect
from tests.blockstore.test_server_limits import in_thread
from tests.bounds import HANG_S

WAIT_S = HANG_S
ATTEMPT = "0123456789abcdef" * 2
BLOCK_BYTES = 256 << 10
LOG = LogOptions(segment_size=1 << 20, sync=SyncPolicy.NONE)


class OtherHost:
    """A host that takes copies."""

    def __init__(
        self, folder: Path, tls: TlsIdentity | None = None, secret: bytes = SECRET
    ) -> None:
        folder.mkdir()
        self.name = folder.name
        self.is_up = True
        self.root = folder / "blocks"
        self.files = ApplicationFiles("app-1", str(folder), str(self.root))
        self.logs = ReplicaLogs(self.files, LOG)
        self._stack = contextlib.ExitStack()
        limits = ServingLimits(max_senders=2)

        def make() -> BlockService:
            replicas = ReplicaService(self.logs, BLOCK_BYTES, limits.step_timeout_s)
            self._stack.callback(replicas.close)
            context = tls.server_context() if tls else None
            return BlockService(secret, self.files, limits, context, replicas)

        serving = contextlib.contextmanager(in_thread)
        self.address: tuple[str, int] = self._stack.enter_context(serving(make))

    def link(self, secret: bytes = SECRET, tls: TlsIdentity | None = None) -> PeerLink:
        return PeerLink(self.name, self.address, secret, tls.client_context() if tls else None)

    def payloads(self) -> list[bytes]:
        """Return what lies in its logs, the oldest log first."""
        self.logs.close()
        folders = sorted(self.root.glob("*"), key=lambda folder: folder.stat().st_mtime_ns)
        return [
            bytes(record.payload)
            for folder in folders
            for record in LogReader.open(str(folder)).records()
        ]

    def answer(self) -> ReplicaHostAt:
        return ReplicaHostAt(self.name, self.address, False, False)

    def stop(self) -> None:
        self.is_up = False
        self._stack.close()
        self.logs.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[OtherHost]:
    made = OtherHost(tmp_path / "other")
    yield made
    made.stop()


@pytest.fixture
def third(tmp_path: Path) -> Iterator[OtherHost]:
    made = OtherHost(tmp_path / "third")
    yield made
    made.stop()


class Driver:
    """Names hosts, and keeps what it was asked and told."""

    def __init__(self, *hosts: OtherHost) -> None:
        self.hosts = list(hosts)
        self.is_expected = False
        self.is_alone = False
        self.errors: list[BaseException] = []
        self.asked = threading.Semaphore(0)

    def find(self, silent: tuple[str, ...]) -> Future[Message]:
        answer: Future[Message] = Future()
        usable = [host for host in self.hosts if host.name not in silent]
        none = ReplicaHostAt(None, None, self.is_expected, self.is_alone)
        answer.set_result(usable[0].answer() if usable else none)
        self.asked.release()
        return answer

    def on_error(self, message: str, error: BaseException) -> None:
        self.errors.append(error)

    def replicator(self, attempt: str = ATTEMPT, hosts: CopyHosts | None = None) -> Replicator:
        link = ApplicationLink(SECRET)
        return Replicator(
            3, attempt, link=link, find=self.find, on_error=self.on_error, hosts=hosts
        )


@contextlib.contextmanager
def store_of(
    folder: Path,
    driver: Driver,
    memory: Path | None = None,
    encryption: EncryptionKey | None = None,
    copies: int = 1,
) -> Iterator[tuple[BlockStore, Replicator]]:
    attempt, hosts = uuid.uuid4().hex, CopyHosts()
    replicators = [driver.replicator(attempt, hosts) for _ in range(copies)]
    store = BlockStore(
        stream_id=3,
        attempt=attempt,
        host="here",
        log_folder=str(folder / f"3-{attempt}"),
        options=BlockStoreOptions(
            memory_dir=str(memory or folder),
            memory_bytes=4 << 20,
            block_max_bytes=BLOCK_BYTES,
            log=LOG,
            encryption=encryption,
        ),
        replicators=replicators,
    )
    try:
        yield store, replicators[0]
    finally:
        store.close()


def put(store: BlockStore, number: int, records: list[bytes]) -> ReceivedBlockInfo:
    builder = store.open_block(BlockKind.BINARY)
    builder.append(*join_binary(records))
    return store.put(builder.seal(f"input-3-{number}", 0.0))


def copy_of(info: ReceivedBlockInfo) -> ReceivedBlockInfo:
    """Return the block as another host has it."""
    return copies_of(info)[1]


def records_of(info: ReceivedBlockInfo) -> list[bytes]:
    with read_block(info, BlockAccess()) as block:
        return list(block.records())


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.001)


def keep(link: PeerLink, payload: bytes, attempt: str = ATTEMPT) -> ReplicaPlace:
    return link.keep(3, attempt, memoryview(payload), crc32c(payload))


# -- the protocol ------------------------------------------------------------------------------


@pytest.mark.parametrize("with_tls", [False, True])
def test_a_copy_is_kept_and_served_like_any_block(tmp_path: Path, with_tls: bool) -> None:
    tls = TlsIdentity.make() if with_tls else None
    host = OtherHost(tmp_path / "other", tls)
    link = host.link(tls=tls)
    for payload in (os.urandom(200_000), b"", os.urandom(1000)):
        place = keep(link, payload)
        assert place.host == "other"
        info = ReceivedBlockInfo(
            3, "i", 1, len(payload), ATTEMPT, "other", place.sequence, None, place.segment
        )
        context = tls.client_context() if tls else None
        assert bytes(fetch(host.address, SECRET, info, WAIT_S, ssl_context=context)) == payload
    link.close()
    host.stop()


def test_who_does_not_know_the_secret_writes_nothing(other: OtherHost) -> None:
    with pytest.raises(AuthenticationError):
        other.link(os.urandom(32))
    assert not other.root.exists()


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (ReplicaRequest(3, ATTEMPT, BLOCK_BYTES - 63, 0, False), "the largest has"),
        (ReplicaRequest(3, ATTEMPT, 1 << 62, 0, False), "the largest has"),
        (ReplicaRequest(3, ATTEMPT, -1, 0, False), "the largest has"),
        (ReplicaRequest(3, "../" + ATTEMPT[3:], 10, 0, False), "no receiver attempt"),
        (ReplicaRequest(-3, ATTEMPT, 10, 0, False), "no receiver attempt"),
        (["keep", 3, ATTEMPT, "ten", 0, False], "cannot be read"),
        (["keep"], "cannot be read"),
        (["drop", 3, ATTEMPT, 10, 0, False], "cannot be read"),
    ],
)
def test_what_is_no_copy_of_a_block_is_refused_before_its_bytes_are_taken(
    other: OtherHost, request_: object, reason: str
) -> None:
    with connect(other.address) as peer:
        text = msgspec.msgpack.encode(request_)
        peer.send_sealed(struct.pack("<I", len(text)) + text)
        status, length = ANSWER.unpack(peer.receive_sealed(ANSWER.size))
        assert FetchStatus(status) is FetchStatus.REFUSED
        assert reason in peer.receive_sealed(length).decode()
        assert peer.recv(1) == b""
    assert not other.root.exists()


def test_a_copy_that_comes_damaged_is_not_kept_and_the_connection_goes_on(other: OtherHost) -> None:
    link = other.link()
    with pytest.raises(WireError, match="damaged"):
        link.keep(3, ATTEMPT, memoryview(b"x" * 1000), 1)
    keep(link, b"y" * 1000)
    link.close()
    assert other.payloads() == [b"y" * 1000]


def test_a_connection_that_breaks_in_a_block_leaves_nothing_of_it(other: OtherHost) -> None:
    with connect(other.address) as peer:
        text = msgspec.msgpack.encode(ReplicaRequest(3, ATTEMPT, 100_000, 0, False))
        peer.send_sealed(struct.pack("<I", len(text)) + text)
        peer.sendall(bytes(50_000))
    link = other.link()
    keep(link, b"whole")
    link.close()
    assert other.payloads() == [b"whole"]


def test_there_is_a_bound_on_who_may_send_copies_at_a_time(other: OtherHost) -> None:
    links = [other.link() for _ in range(3)]
    keep(links[0], b"1")
    keep(links[1], b"2")
    with pytest.raises(WireError, match="busy"):
        keep(links[2], b"3")
    for link in links:
        link.close()


# -- the logs of copies ------------------------------------------------------------------------


def append(logs: ReplicaLogs, payload: bytes, attempt: str = ATTEMPT) -> tuple[str, int]:
    slot = memoryview(bytearray(-(-(64 + len(payload)) // 4096) * 4096))
    slot[64 : 64 + len(payload)] = payload
    place, _ = logs.append(3, attempt, slot, len(payload), crc32c(payload))
    return place.folder, place.segment


def test_released_segments_go_but_not_the_one_that_is_written(other: OtherHost) -> None:
    logs = other.logs
    places = [append(logs, os.urandom(200_000)) for _ in range(8)]
    assert len({segment for _, segment in places}) > 1
    folder = Path(places[0][0])
    logs.release((), places)
    assert [int(path.stem[-12:]) for path in folder.glob("segment-*.log")] == [places[-1][1]]
    append(logs, b"more")


def test_nothing_of_a_released_attempt_is_kept_any_more(other: OtherHost) -> None:
    append(other.logs, b"x")
    other.logs.release((ATTEMPT,), ())
    other.files.remove_attempts((ATTEMPT,))
    assert list(other.root.iterdir()) == []
    with pytest.raises(WalError, match="released"):
        append(other.logs, b"late")
    assert list(other.root.iterdir()) == []
    append(other.logs, b"x", "f" * 32)


# -- storing -----------------------------------------------------------------------------------


def test_a_copy_of_an_encrypted_block_is_not_in_clear_on_the_other_host(
    tmp_path: Path, other: OtherHost
) -> None:
    """Nor has that host's block server the key."""
    key, mark = EncryptionKey.generate(), b"what nobody may find on a disk"
    records = [mark, os.urandom(BLOCK_BYTES // 2), mark]
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
        store_of(tmp_path, Driver(other), Path(memory), key) as (store, _),
    ):
        first, second = put(store, 1, records), put(store, 2, [mark])
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or mark not in path.read_bytes()
    servers = {other.name: other.address}
    lost = msgspec.structs.replace(first, memory=None, segment=None)
    with read_block(lost, BlockAccess(encryption=key)) as block:
        assert list(block.records()) == records
    access = BlockAccess(servers, ApplicationLink(SECRET), WAIT_S, encryption=key)
    cipher = key.cipher(f"blocks of {first.attempt}")
    with read_block(lost, access) as block:
        assert bytes(block.data) in bytes(fetch_from_host(lost, access, cipher))
    # A copy of another block, and no key.
    swapped = msgspec.structs.replace(lost, replicas=second.replicas)
    for info, with_key in ((swapped, key), (lost, None), (lost, EncryptionKey.generate())):
        with (
            pytest.raises(BlockNotFoundError),
            read_block(
                info, BlockAccess(servers, ApplicationLink(SECRET), WAIT_S, encryption=with_key)
            ),
        ):
            pass


def test_a_block_is_stored_when_the_other_host_has_it_too(tmp_path: Path, other: OtherHost) -> None:
    """I1, with a storage level for two copies."""
    driver = Driver()
    named: Future[Message] = Future()
    asked = threading.Event()

    def find(silent: tuple[str, ...]) -> Future[Message]:
        asked.set()
        return named

    driver.find = find  # type: ignore[method-assign]
    stored: list[ReceivedBlockInfo] = []
    with store_of(tmp_path, driver) as (store, copies):
        putting = threading.Thread(target=lambda: stored.append(put(store, 1, [b"a", b"b"])))
        putting.start()
        assert asked.wait(WAIT_S)
        # The driver has named no host yet: there cannot be a copy.
        assert not stored
        named.set_result(other.answer())
        putting.join(WAIT_S)
        (info,) = stored
        (replica,) = info.replicas
        assert replica.host == "other"
        assert info.hosts == ("here", "other")
        assert records_of(info) == [b"a", b"b"]
        # The reader finds the copy by its path, and by the network.
        lost = msgspec.structs.replace(
            info, memory=None, segment=msgspec.structs.replace(info.segment, folder="/gone")
        )
        assert records_of(lost) == [b"a", b"b"]
        access = BlockAccess({"other": other.address}, ApplicationLink(SECRET))
        assert len(fetch_from_host(lost, access)) == info.num_bytes
        assert (copies.copied, copies.left_alone, copies.switches) == (1, 0, 1)


def test_the_next_host_takes_over_and_no_path_leads_to_another_block(
    tmp_path: Path, other: OtherHost, third: OtherHost
) -> None:
    """Blocks of one size have the same places and numbers in the logs of both hosts."""
    driver = Driver(other, third)
    with store_of(tmp_path, driver) as (store, copies):
        infos = [put(store, n, [b"%03d" % n]) for n in range(3)]
        other.stop()
        infos += [put(store, n, [b"%03d" % n]) for n in range(3, 6)]
        assert [info.replicas[0].host for info in infos] == ["other"] * 3 + ["third"] * 3
        assert [records_of(copy_of(info)) for info in infos] == [[b"%03d" % n] for n in range(6)]
        places = [(info.replicas[0].segment.offset, info.replicas[0].sequence) for info in infos]
        assert places[:3] == places[3:]
        assert len({info.replicas[0].segment.folder for info in infos}) == 2
        assert (copies.copied, copies.left_alone, copies.switches) == (6, 0, 2)
    assert driver.errors == []


class CuttingRelay:
    """Passes connections on; cuts the first one in the middle of what is sent."""

    def __init__(self, to: tuple[str, int], after_bytes: int) -> None:
        self._to = to
        self._left = after_bytes
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._thread = threading.Thread(target=self._accept, name="relay", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            server = socket.create_connection(self._to, WAIT_S)
            back = threading.Thread(target=self._pass, args=(server, peer), daemon=True)
            back.start()
            self._pass(peer, server, self._left if self.connections == 1 else 1 << 60)
            back.join(WAIT_S)

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, left: int = 1 << 60) -> None:
        with contextlib.suppress(OSError):
            while left and (data := source.recv(min(left, 64 << 10))):
                target.sendall(data)
                left -= len(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(WAIT_S)


def test_a_block_whose_way_was_cut_is_sent_again_and_is_there_once(
    tmp_path: Path, other: OtherHost
) -> None:
    relay = CuttingRelay(other.address, 50_000)
    other.address = relay.address
    records = [[os.urandom(30_000)] for _ in range(3)]
    with store_of(tmp_path, Driver(other)) as (store, copies):
        infos = [put(store, n, found) for n, found in enumerate(records)]
        assert [records_of(copy_of(info)) for info in infos] == records
        assert (copies.copied, copies.left_alone, copies.switches) == (3, 0, 2)
    assert relay.connections == 2
    assert len(other.payloads()) == 3
    relay.close()


def test_without_another_host_blocks_go_on_with_one_copy_and_nobody_is_told(
    tmp_path: Path,
) -> None:
    driver = Driver()
    driver.is_alone = True
    with store_of(tmp_path, driver) as (store, copies):
        infos = [put(store, n, [b"x"]) for n in range(3)]
        assert [info.replicas for info in infos] == [()] * 3
        assert records_of(infos[2]) == [b"x"]
        assert (copies.copied, copies.left_alone, copies.switches) == (0, 3, 0)
    assert driver.errors == []


def test_when_the_last_other_host_is_lost_that_is_told_once_until_one_is_back(
    tmp_path: Path, other: OtherHost, third: OtherHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(other)
    with store_of(tmp_path, driver) as (store, copies):
        assert put(store, 0, [b"x"]).replicas
        other.stop()
        assert [put(store, n, [b"x"]).replicas for n in (1, 2, 3)] == [()] * 3
        (error,) = driver.errors
        assert isinstance(error, PenstockError)
        assert "on the receiver's host only" in str(error)
        assert copies.left_alone == 3
        # The pause until it looks again is over.
        driver.hosts = [third]
        copies._look_at_s = 0.0
        for number in range(4, int(WAIT_S / 0.01)):
            info = put(store, number, [b"back"])
            if info.replicas:
                break
            threading.Event().wait(0.01)
        assert records_of(copy_of(info)) == [b"back"]
        assert len(driver.errors) == 1


def test_a_host_whose_disk_is_full_is_not_announced_again_before_it_has_a_block(
    tmp_path: Path,
    other: OtherHost,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # It is tried again for each block, and not half a minute later.
    monkeypatch.setattr(replicator, "SILENT_S", 0.0)
    monkeypatch.setattr(replicator, "SEARCH_S", 0.0)
    monkeypatch.setattr(replicator, "LOOK_AGAIN_S", 0.0)
    caplog.set_level(logging.WARNING, "penstock.blockstore.replicator")
    append = ReplicaLogs.append
    is_full = True

    def refuse(self: ReplicaLogs, *arguments: Any, **named: Any) -> Any:
        if is_full:
            raise LogFullError(str(tmp_path), 0)
        return append(self, *arguments, **named)

    monkeypatch.setattr(ReplicaLogs, "append", refuse)
    driver = Driver(other)
    copies = driver.replicator()
    data = b"x" * 1000

    def copy(number: int) -> ReplicaPlace | None:
        begun = copies.begin(f"input-3-{number}", memoryview(data), crc32c(data))
        return copies.wait(begun)

    def is_linked() -> bool:
        return copies._link is not None and not copies._alone

    def said() -> list[str]:
        return [each.getMessage() for each in caplog.records if "again" in each.getMessage()]

    try:
        for number in range(3):
            assert copy(number) is None
            until(is_linked)  # It answers, and has room for nothing.
        assert len(driver.errors) == 1
        assert said() == []
        assert copies.switches == 0
        is_full = False
        until(is_linked)
        assert copy(4) is not None
        assert said() == ["stream 3: blocks are copied to another host again"]
        assert copies.switches == 1
    finally:
        copies.close()


def test_each_copy_is_on_another_host_whatever_becomes_of_one(
    tmp_path: Path, other: OtherHost, third: OtherHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicator, "LOOK_AGAIN_S", 0.01)
    driver = Driver(other, third)

    def hosts_of(info: ReceivedBlockInfo) -> list[str]:
        found = [copy for copy in copies_of(info) if copy.host != "here"]
        assert [records_of(copy) for copy in found] == [[b"x"]] * len(found)
        return sorted(copy.host for copy in found)

    with store_of(tmp_path, driver, copies=2) as (store, _):
        for number in range(5):
            assert hosts_of(put(store, number, [b"x"])) == ["other", "third"]
        driver.hosts.remove(other)
        other.stop()
        assert hosts_of(put(store, 6, [b"x"])) == ["third"]
        (error,) = driver.errors
        assert "are kept on the receiver's host and third only" in str(error)
        fourth = OtherHost(tmp_path / "fourth")
        try:
            driver.hosts.append(fourth)
            numbers = itertools.count(7)
            until(lambda: len(put(store, next(numbers), [b"x"]).replicas) == 2)
            assert hosts_of(put(store, next(numbers), [b"x"])) == ["fourth", "third"]
        finally:
            fourth.stop()


def test_one_that_is_about_to_start_is_waited_for(tmp_path: Path, other: OtherHost) -> None:
    driver = Driver()
    driver.is_expected = True
    stored: list[ReceivedBlockInfo] = []
    with store_of(tmp_path, driver) as (store, _):
        putting = threading.Thread(target=lambda: stored.append(put(store, 1, [b"x"])))
        putting.start()
        for _ in range(2):
            assert driver.asked.acquire(timeout=WAIT_S)
        assert not stored
        driver.hosts = [other]
        putting.join(WAIT_S)
        assert [info.replicas[0].host for info in stored] == ["other"]


def test_one_that_never_comes_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicator, "SEARCH_S", 0.2)
    driver = Driver()
    driver.is_expected = True
    with store_of(tmp_path, driver) as (store, _):
        assert put(store, 1, [b"x"]).replicas == ()
    assert "no other host with a block server" in str(driver.errors[0])


def test_after_the_driver_was_out_of_reach_no_host_is_passed_over(
    tmp_path: Path, other: OtherHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was this host that was cut off, not all the others."""
    monkeypatch.setattr(replicator, "SLOW_DRIVER_S", -1.0)
    driver = Driver(other)
    with store_of(tmp_path, driver) as (store, copies):
        copies._silent = {"other": float("inf")}
        assert put(store, 1, [b"x"]).replicas[0].host == "other"
    assert driver.errors == []


def test_a_block_that_its_own_log_refused_first_is_not_sent_twice(other: OtherHost) -> None:
    copies = Driver(other).replicator()
    payload = memoryview(b"x" * 1000)
    crc = crc32c(payload)
    first = copies.wait(copies.begin("input-3-1", payload, crc))
    assert copies.wait(copies.begin("input-3-1", payload, crc)) == first
    assert copies.wait(copies.begin("input-3-2", payload, crc)) != first
    copies.close()
    assert len(other.payloads()) == 2


def test_a_block_whose_copy_failed_is_copied_when_it_is_put_again(
    tmp_path: Path, other: OtherHost
) -> None:
    driver = Driver(other)
    find = driver.find
    failures = [OSError(11, "can't start new thread")]

    def find_later(silent: tuple[str, ...]) -> Future[Message]:
        if failures:
            raise failures.pop()
        return find(silent)

    driver.find = find_later  # type: ignore[method-assign]
    with store_of(tmp_path, driver) as (store, copies):
        builder = store.open_block(BlockKind.BINARY)
        builder.append(*join_binary([b"x"]))
        block = builder.seal("input-3-1", 0.0)
        with pytest.raises(OSError, match="new thread"):
            store.put(block)
        info = store.put(block)
        assert records_of(copy_of(info)) == [b"x"]
        assert (copies.copied, copies.left_alone, copies.switches) == (1, 0, 1)


def test_who_waits_for_a_driver_that_is_out_of_reach_is_freed_by_the_end(tmp_path: Path) -> None:
    driver = Driver()
    asked = threading.Event()

    def find(silent: tuple[str, ...]) -> Future[Message]:
        asked.set()
        return Future()

    driver.find = find  # type: ignore[method-assign]
    ended: list[BaseException] = []

    def put_one(store: BlockStore) -> None:
        try:
            put(store, 1, [b"x"])
        except IllegalStateError as error:
            ended.append(error)

    with store_of(tmp_path, driver) as (store, _):
        putting = threading.Thread(target=put_one, args=(store,))
        putting.start()
        assert asked.wait(WAIT_S)
    putting.join(WAIT_S)
    assert len(ended) == 1


# -- reading -----------------------------------------------------------------------------------


def test_a_block_is_fetched_from_the_second_host_when_the_first_is_gone(
    tmp_path: Path, other: OtherHost
) -> None:
    with store_of(tmp_path, Driver(other)) as (store, _):
        info = put(store, 1, [b"x"])
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            gone = nobody.getsockname()
        access = BlockAccess({"here": gone, "other": other.address}, ApplicationLink(SECRET))
        payload = bytes(fetch_from_host(info, access))
        assert len(payload) == info.num_bytes
        # The first host has a server, which does not have the block.
        access = BlockAccess(
            {"here": other.address, "other": other.address}, ApplicationLink(SECRET)
        )
        assert bytes(fetch_from_host(info, access)) == payload
        with pytest.raises(ConnectionLostError, match=r"input-3-1.*; .*other has no block server"):
            fetch_from_host(info, BlockAccess({"here": gone}, ApplicationLink(SECRET)))


@pytest.mark.parametrize("kind", ["away", "stranger", "unwanted", "deleted", "deleted on both"])
def test_a_host_that_is_away_is_waited_for_and_no_other(
    tmp_path: Path, other: OtherHost, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with store_of(tmp_path, Driver(other)) as (store, _):
        info = put(store, 1, [b"x"])
    (replica,) = info.replicas
    gone = msgspec.structs.replace(replica.segment, segment=replica.segment.segment + 1)
    copy = msgspec.structs.replace(replica, segment=gone)
    lost = msgspec.structs.replace(
        info, memory=None, segment=gone, replicas=(copy,) if kind == "deleted on both" else ()
    )
    stranger = OtherHost(tmp_path / "stranger", secret=b"another application's secret")
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        servers = {"here": nobody.getsockname()}
    if kind == "stranger":
        # While the host is away another application's server has its port.
        servers = {"here": stranger.address}
    elif kind.startswith("deleted"):
        servers = {"here": other.address, "other": other.address}
    looks = 0
    find = reader._find

    def look(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks == 3:
            return parse_block(memoryview(payload))
        return find(*arguments)

    there = BlockAccess(
        {"here": other.address, "other": other.address}, ApplicationLink(SECRET), WAIT_S
    )
    payload = bytes(fetch_from_host(info, there))
    monkeypatch.setattr(reader, "_find", look)
    monkeypatch.setattr(reader, "_WAIT_PAUSE_S", 0.001)
    access = BlockAccess(
        servers, ApplicationLink(SECRET), WAIT_S, wait_s=0.0 if kind == "unwanted" else WAIT_S
    )
    try:
        if kind in ("away", "stranger"):
            with read_block(lost, access) as block:
                assert list(block.records()) == [b"x"]
        else:
            with pytest.raises(BlockNotFoundError), read_block(lost, access):
                pass
            assert looks == 1
    finally:
        stranger.stop()
