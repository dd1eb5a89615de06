"""The block server as a real process: what it serves, to whom, how it ends, what it leaves."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crc32c import crc32c

import penstock
from penstock import blockstore
from penstock.blockstore.building.memory import MemoryArena
from penstock.blockstore.reading.fetch import (
    BlockConnection,
    BlockNotServedError,
    FetchRequest,
    FetchStatus,
    fetch,
)
from penstock.blockstore.server.launch import (
    BlockServerLaunch,
    BlockServerReady,
    end_on_this_host,
    ensure_block_server,
    lock_path,
    log_path,
    scratch_claim_path,
)
from penstock.blockstore.server.peer_link import PeerLink
from penstock.errors import PenstockError
from penstock.runtime.processes import ProcessIdentity, started
from penstock.wal import (
    CorruptRecordError,
    LogOptions,
    LogWriter,
    SyncPolicy,
    segment_path,
    stamp_record,
)
from penstock.wire import (
    ApplicationLink,
    AuthenticationError,
    ConnectionLostError,
    Server,
    TlsIdentity,
    WireError,
)
from penstock.wire.messages import (
    BlockServerRegistered,
    CheckLogs,
    LogsMissing,
    MemoryPlace,
    ReceivedBlockInfo,
    Refused,
    RegisterBlockServer,
    ReleaseBlocks,
    SegmentPlace,
    StopBlockServer,
)
from tests.bounds import HANG_S
from tests.doubles import BlockServerTracker
from tests.services.ipv6 import needs_ipv6

WAIT_S = HANG_S
APPLICATION = "local-1700000000000"
ATTEMPT = "0123456789abcdef" * 2
OTHER_ATTEMPT = "fedcba9876543210" * 2


class Host:
    """One host's files, and the tracker of the application whose block server runs here."""

    def __init__(
        self, folder: Path, tls: TlsIdentity | None = None, address: str = "127.0.0.1"
    ) -> None:
        self.root = folder / "blocks"
        self.memory = folder / "shm"
        self.scratch = folder / "scratch"
        for path in (self.root, self.memory):
            path.mkdir()
        self.secret = os.urandom(32)
        self.tracker = BlockServerTracker()
        self.server = Server(
            ApplicationLink(self.secret, tls=tls),
            self.tracker,
            host=address,
        )
        self.launch = BlockServerLaunch(
            application_id=APPLICATION,
            link=ApplicationLink(self.secret, self.server.start(), tls),
            host="here",
            scratch_folder=str(self.scratch),
            block_log_root=str(self.root),
            memory_folder=str(self.memory),
        )
        self._started: list[int] = []

    def ensure(self, **changes: object) -> BlockServerReady | None:
        ready = ensure_block_server(replace(self.launch, **changes), WAIT_S)
        if ready is not None:
            self._started.append(os.pidfd_open(ready.pid))
        return ready

    def start(self, **changes: object) -> BlockServerReady:
        ready = self.ensure(**changes)
        assert ready is not None
        return ready

    def wait_for_end(self) -> None:
        """Wait until the process that was started last is gone."""
        assert select.select([self._started[-1]], [], [], WAIT_S)[0], "it does not end"

    def kill(self) -> None:
        signal.pidfd_send_signal(self._started[-1], signal.SIGKILL)
        self.wait_for_end()

    def close(self) -> None:
        self.server.stop()
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [], WAIT_S)
            os.close(process)

    # -- blocks --------------------------------------------------------------------------------

    def log_folder(self, attempt: str = ATTEMPT, stream_id: int = 3) -> Path:
        return self.root / f"{stream_id}-{attempt}"

    def memory_path(self, attempt: str = ATTEMPT, application: str = APPLICATION) -> Path:
        return self.memory / f"penstock-{application}-{attempt}"

    def segment_block(self, payload: bytes, attempt: str = ATTEMPT) -> ReceivedBlockInfo:
        options = LogOptions(segment_size=1 << 20, sync=SyncPolicy.NONE)
        with LogWriter.create(str(self.log_folder(attempt)), options=options) as log:
            place = log.append(1, payload)
        return info(
            payload,
            place.sequence,
            attempt,
            segment=SegmentPlace(
                str(self.log_folder(attempt)), place.segment, place.offset, place.length
            ),
        )

    def memory_block(
        self, payload: bytes, path: Path | None = None, sequence: int = 7
    ) -> ReceivedBlockInfo:
        path = path or self.memory_path()
        record = bytearray(64) + payload
        stamp_record(memoryview(record), 1, len(payload), sequence)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(4096) + record)
        return info(payload, sequence, memory=MemoryPlace(str(path), 4096, len(record)))

    def fetch(self, server: BlockServerReady, block: ReceivedBlockInfo) -> bytes:
        tls = self.launch.link.tls
        context = tls.client_context() if tls else None
        return bytes(fetch(server.address, self.secret, block, WAIT_S, ssl_context=context))


def info(
    payload: bytes,
    sequence: int,
    attempt: str = ATTEMPT,
    *,
    memory: MemoryPlace | None = None,
    segment: SegmentPlace | None = None,
) -> ReceivedBlockInfo:
    return ReceivedBlockInfo(
        3, "input-3-1", 1, len(payload), attempt, "here", sequence, memory, segment
    )


@contextlib.contextmanager
def other_process() -> Iterator[tuple[subprocess.Popen[bytes], ProcessIdentity]]:
    """A process that does nothing: the driver, for who only looks whether it lives."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        started_at = started(process.pid)
        yield process, ProcessIdentity(ProcessIdentity.this_process().host, process.pid, started_at)


@pytest.fixture
def dead_driver() -> ProcessIdentity:
    with other_process() as (process, driver):
        assert driver.is_alive_here
        process.kill()
        process.wait(WAIT_S)
        assert driver.is_known_dead
    return driver


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


# -- serving -----------------------------------------------------------------------------------


def test_a_block_is_read_from_memory_and_from_the_log(host: Host) -> None:
    payload = os.urandom(3_000_000)
    in_log = host.segment_block(payload[:500_000])
    in_memory = host.memory_block(payload)
    in_folder = host.memory_block(b"fallback", host.log_folder() / "memory")
    server = host.start()
    assert host.tracker.registered[0][1] == RegisterBlockServer("here", server.address, server.pid)
    assert host.fetch(server, in_memory) == payload
    assert host.fetch(server, in_log) == payload[:500_000]
    assert host.fetch(server, in_folder) == b"fallback"
    both = msgspec.structs.replace(in_memory, segment=in_log.segment)
    assert host.fetch(server, both) == payload


def test_it_says_which_logs_are_not_there(host: Host) -> None:
    host.segment_block(b"a")
    host.memory_block(b"b")
    there = str(host.log_folder())
    gone = (str(host.log_folder(OTHER_ATTEMPT)), str(host.log_folder(stream_id=4)))
    # What cannot be looked at is not known to be gone.
    hidden = str(host.memory_path() / "below-a-file")
    host.start()
    peer, _ = host.tracker.registered[0]
    peer.send(CheckLogs((there, *gone, hidden)))
    with host.tracker.changed:
        assert host.tracker.changed.wait_for(lambda: host.tracker.missing, WAIT_S)
    assert host.tracker.missing == [LogsMissing("here", gone)]


def test_its_process_has_nothing_that_only_writers_and_readers_of_blocks_need(host: Host) -> None:
    code = "import sys, penstock.blockstore.server.block_server; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert not {b"numpy", b"pyarrow", b"pyspark"} & set(imported.stdout.split())
    server = host.start()
    assert host.fetch(server, host.segment_block(b"a block")) == b"a block"
    libraries = Path(f"/proc/{server.pid}/maps").read_text()
    assert "msgspec" in libraries
    assert "numpy" not in libraries
    assert "libarrow" not in libraries


def test_the_room_has_what_it_names() -> None:
    assert [name for name in blockstore.__all__ if not hasattr(blockstore, name)] == []
    assert not hasattr(blockstore, "BlockServers")


def test_a_slot_that_holds_another_block_by_now_is_not_served(host: Host) -> None:
    payload = b"x" * 1000
    in_log = host.segment_block(payload)
    stale = host.memory_block(b"y" * 1000, sequence=in_log.sequence + 1)
    server = host.start()
    # The hot copy was given away: the block comes from the log.
    both = msgspec.structs.replace(in_log, memory=stale.memory)
    assert host.fetch(server, both) == payload
    with pytest.raises(BlockNotServedError, match="sequence") as caught:
        host.fetch(server, msgspec.structs.replace(both, segment=None))
    assert caught.value.status is FetchStatus.NOT_FOUND


def test_a_slot_that_is_being_written_is_not_served(host: Host) -> None:
    arena = MemoryArena(str(host.memory_path()), 1 << 20)
    slot = arena.reserve(8192, timeout_s=1)
    assert slot is not None
    slot.grow_to(8192)
    stamp_record(slot.view, 1, 1000, 5)
    block = info(bytes(1000), 5, memory=MemoryPlace(arena.path, slot.offset, 1064))
    server = host.start()
    with pytest.raises(BlockNotServedError, match="given to another block"):
        host.fetch(server, block)
    slot.trim(1064)
    arena.publish(slot, evictable=False)
    assert host.fetch(server, block) == bytes(1000)
    arena.close()


def test_a_block_that_is_damaged_is_an_error_for_the_reader(host: Host) -> None:
    block = host.memory_block(b"x" * 100_000)
    with host.memory_path().open("r+b") as file:
        file.seek(50_000)
        file.write(b"y")
    server = host.start()
    with pytest.raises(CorruptRecordError, match="checksum"):
        host.fetch(server, block)


def test_only_the_applications_own_files_are_served(host: Host, tmp_path: Path) -> None:
    """I9: no name, no link and no trick leads out of the application's folders."""
    payload = b"secret of another application"
    outside = tmp_path / "outside"
    outside.mkdir()
    real = host.memory_block(payload, outside / "file")
    assert real.memory is not None
    others = host.memory_block(payload, host.memory_path(application="app-2"))
    genuine = host.segment_block(payload)
    server = host.start()

    def refused(path: Path | str, status: FetchStatus = FetchStatus.REFUSED) -> None:
        block = msgspec.structs.replace(
            real, memory=MemoryPlace(str(path), 4096, 64 + len(payload))
        )
        with pytest.raises(BlockNotServedError) as caught:
            host.fetch(server, block)
        assert caught.value.status is status

    def refused_segment(place: SegmentPlace) -> None:
        block = msgspec.structs.replace(genuine, segment=place)
        with pytest.raises(BlockNotServedError) as caught:
            host.fetch(server, block)
        assert caught.value.status is FetchStatus.REFUSED

    refused(outside / "file")
    assert others.memory is not None
    refused(others.memory.path)
    refused("/etc/passwd")
    refused("")
    refused("memory")
    refused(f"{host.memory}/../outside/file")
    refused(f"{host.memory_path()}/../../outside/file")
    refused(f"{host.memory}/./penstock-{APPLICATION}-{ATTEMPT}")
    refused(f"{host.root}/../outside/memory")
    refused(f"{host.root}/3-{ATTEMPT}/../memory")
    refused(f"{host.memory_path()}\0/etc/passwd")
    refused(f"/proc/{os.getpid()}/mem")
    # Links, in every place where one could be.
    host.memory_path(OTHER_ATTEMPT).symlink_to(outside / "file")
    refused(host.memory_path(OTHER_ATTEMPT), FetchStatus.NOT_FOUND)
    # Of a run before this one, as blocks of a restarted program name them: it is gone as well.
    refused(f"{host.memory}/penstock-before-1-{ATTEMPT}", FetchStatus.NOT_FOUND)
    (outside / "memory").write_bytes((outside / "file").read_bytes())
    host.log_folder(OTHER_ATTEMPT).symlink_to(outside)
    refused(host.log_folder(OTHER_ATTEMPT) / "memory")
    # No regular file.
    os.mkfifo(host.memory_path("a" * 32))
    refused(host.memory_path("a" * 32))
    host.memory_path("b" * 32).mkdir()
    refused(host.memory_path("b" * 32))
    # Segments.
    place = genuine.segment
    assert place is not None
    for folder in (
        "/etc",
        f"{host.root}",
        f"{host.root}/3-{ATTEMPT}/",
        f"{host.root}/../blocks/3-{ATTEMPT}",
        f"blocks/3-{ATTEMPT}",
        f"{host.root}/x-{ATTEMPT}",
    ):
        refused_segment(SegmentPlace(folder, place.segment, place.offset, place.length))
    refused_segment(SegmentPlace(place.folder, -1, place.offset, place.length))
    name = next(name for name in os.listdir(place.folder) if name.startswith("segment"))
    os.link(os.path.join(place.folder, name), outside / name)
    refused_segment(
        SegmentPlace(str(host.log_folder(OTHER_ATTEMPT)), place.segment, place.offset, place.length)
    )
    assert host.fetch(server, genuine) == payload


def test_a_place_that_is_not_the_record_is_not_served(host: Host) -> None:
    block = host.memory_block(b"x" * 1000)
    server = host.start()
    for offset, length in (
        (0, 1064),
        (4095, 1064),
        (-4096, 1064),
        (1 << 62, 1064),
        (4096, 1063),
        (4096, 1065),
        (4096, 64),
        (4096, -1),
        (4096, 1 << 62),
    ):
        place = MemoryPlace(str(host.memory_path()), offset, length)
        with pytest.raises(BlockNotServedError):
            host.fetch(server, msgspec.structs.replace(block, memory=place))
    assert host.fetch(server, block) == b"x" * 1000


def test_a_reader_without_the_secret_gets_nothing(host: Host) -> None:
    block = host.memory_block(b"x" * 1000)
    server = host.start()
    with pytest.raises(AuthenticationError, match="same application"):
        fetch(server.address, os.urandom(32), block, WAIT_S)
    for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(74), os.urandom(10_000)):
        with socket.create_connection(server.address, WAIT_S) as peer:
            peer.sendall(garbage)
            peer.shutdown(socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ConnectionError):
                while chunk := peer.recv(4096):
                    answer += chunk
            assert len(answer) <= 42 + 33
    stalled = [socket.create_connection(server.address, WAIT_S) for _ in range(300)]
    assert host.fetch(server, block) == b"x" * 1000
    for peer in stalled:
        peer.close()


def test_a_tracker_does_not_accept_the_proof_for_a_block_server(host: Host) -> None:
    block = host.memory_block(b"x")
    with pytest.raises(AuthenticationError):
        fetch(host.launch.link.tracker_address, host.secret, block, WAIT_S)


def test_many_readers_at_once_get_their_blocks(host: Host) -> None:
    payload = os.urandom(2_000_000)
    block = host.memory_block(payload)
    server = host.start()
    wrong: list[object] = []

    def read() -> None:
        for _ in range(5):
            try:
                if host.fetch(server, block) != payload:
                    wrong.append("other bytes")
            except Exception as error:  # noqa: BLE001 - it travels to the test
                wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert wrong == []


# -- starting ----------------------------------------------------------------------------------


def test_it_listens_at_the_port_that_was_asked_for_or_the_next_that_is_free(
    host: Host,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        address = host.start(listen_port=port, port_retries=16).address
    assert 0 < address[1] - port <= 16


def test_there_is_one_server_however_many_receivers_start_it_at_once(host: Host) -> None:
    ready: list[BlockServerReady | None] = []
    threads = [threading.Thread(target=lambda: ready.append(host.ensure())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(ready) == 8
    assert len([one for one in ready if one is not None]) == 1
    assert host.ensure() is None
    assert len(host.tracker.registered) == 1


def test_hosts_that_share_a_folder_have_a_server_each(host: Host) -> None:
    block = host.segment_block(b"in the log")
    for name in ("here", "there"):
        assert host.fetch(host.start(host=name), block) == b"in the log"
        assert host.ensure(host=name) is None
    assert {message.host for _, message in host.tracker.registered} == {"here", "there"}


@pytest.mark.slow
def test_blocks_are_fetched_inside_tls(tmp_path: Path) -> None:
    host = Host(tmp_path, TlsIdentity.make())
    try:
        server = host.start()
        for payload in (b"small", os.urandom(5 << 20)):
            assert host.fetch(server, host.memory_block(payload)) == payload
        block = host.segment_block(b"in the log")
        assert host.fetch(server, block) == b"in the log"
        with pytest.raises(ConnectionLostError):
            fetch(server.address, host.secret, block, 2.0)
    finally:
        host.close()


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "TLS"])
def test_a_segment_that_is_cut_while_it_is_sent_harms_nobody_else(
    tmp_path: Path, with_tls: bool
) -> None:
    """A released segment is used again, or cut, while a late reader still has it on its way."""
    identity = TlsIdentity.make() if with_tls else None
    with closing(Host(tmp_path, identity)) as host:
        payload = os.urandom(48 << 20)
        block = host.segment_block(payload)
        assert block.segment is not None
        server = host.start()
        context = identity.client_context() if identity else None
        with BlockConnection(server.address, "server", WAIT_S, context) as late:
            late.authenticate(host.secret)
            late.ask(FetchRequest(block.sequence, None, block.segment, False))
            assert late.answer()[0] is FetchStatus.RECORD
            os.truncate(segment_path(block.segment.folder, block.segment.segment), 4096)
            with pytest.raises((OSError, EOFError)):
                late.receive(len(payload))
        other = host.memory_block(b"other")
        assert host.fetch(server, other) == b"other"


@needs_ipv6
def test_it_listens_at_an_ipv6_address_where_the_tracker_has_one(tmp_path: Path) -> None:
    host = Host(tmp_path, TlsIdentity.make(), address="::1")
    try:
        server = host.start()
        assert server.address[0] == "::1"
        assert host.fetch(server, host.segment_block(b"in the log")) == b"in the log"
    finally:
        host.close()


def test_it_finds_the_package_when_a_link_to_it_is_gone(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """YARN puts such links into an executor's folder, which it removes with the executor."""
    package = tmp_path / "container"
    package.symlink_to(Path(penstock.__file__).parents[1])
    monkeypatch.setattr(sys, "path", [str(package), *sys.path])
    environment = tmp_path / "environment"
    environment.symlink_to(Path(sys.executable).parents[1])
    python = environment / "bin" / Path(sys.executable).name
    monkeypatch.setattr(sys, "executable", str(python))
    server = host.start()
    process = Path(f"/proc/{server.pid}")
    for place in ("environ", "cmdline", "maps"):
        found = (process / place).read_bytes()
        assert bytes(package) not in found
        assert bytes(environment) not in found


def test_the_secret_is_in_no_argument_no_environment_and_no_file(host: Host) -> None:
    server = host.start()
    shown = Path(f"/proc/{server.pid}/cmdline").read_bytes()
    shown += Path(f"/proc/{server.pid}/environ").read_bytes()
    shown += repr(host.launch).encode()
    for path in host.scratch.iterdir():
        shown += path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0
    assert host.secret not in shown
    assert host.secret.hex().encode() not in shown
    # Nor does it hold on to the pipe on which it got it.
    assert os.readlink(f"/proc/{server.pid}/fd/0") == os.devnull


STARTER = """
import sys, msgspec
from penstock.blockstore.server.launch import BlockServerLaunch, ensure_block_server
launch = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=BlockServerLaunch)
print(ensure_block_server(launch, 300).pid, flush=True)
import signal; signal.pause()
"""


def test_it_outlives_the_receiver_that_started_it_and_its_whole_process_group(host: Host) -> None:
    block = host.memory_block(b"x" * 1000)
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdin.write(msgspec.msgpack.encode(host.launch))
    starter.stdin.close()
    pid = int(starter.stdout.readline())
    host._started.append(os.pidfd_open(pid))
    os.killpg(starter.pid, signal.SIGKILL)
    starter.wait(WAIT_S)
    starter.stdout.close()
    address = host.tracker.registered[0][1].address
    assert host.fetch(BlockServerReady(pid, address), block) == b"x" * 1000
    assert host.ensure() is None


def test_a_server_that_cannot_start_says_why_and_leaves_nothing(host: Host) -> None:
    host.tracker.answer = Refused("this application is stopping")
    with pytest.raises(PenstockError, match="this application is stopping"):
        host.ensure()
    with pytest.raises(PenstockError, match="same application"):
        host.ensure(link=replace(host.launch.link, secret=os.urandom(32)))
    with pytest.raises(PenstockError, match="Not a directory"):
        host.ensure(scratch_folder="/dev/null/no")
    host.tracker.answer = BlockServerRegistered(60.0)
    # Nothing holds the lock.
    assert host.ensure() is not None


# -- copies of other hosts' blocks --------------------------------------------------------------


def test_copies_outlive_the_server_that_wrote_them_and_go_when_they_are_released(
    host: Host,
) -> None:
    def keep(server: BlockServerReady, payload: bytes) -> ReceivedBlockInfo:
        with closing(PeerLink("here", server.address, host.secret)) as link:
            place = link.keep(3, ATTEMPT, memoryview(payload), crc32c(payload))
        return info(payload, place.sequence, segment=place.segment)

    first = host.start()
    before = keep(first, b"before" * 1000)
    host.kill()
    second = host.start()
    assert host.fetch(second, before) == b"before" * 1000
    # The new server begins a log of its own: names are never used twice.
    after = keep(second, b"after" * 1000)
    assert host.fetch(second, after) == b"after" * 1000
    assert before.segment is not None
    assert after.segment is not None
    assert before.segment.folder != after.segment.folder
    released = [(block.segment.folder, block.segment.segment) for block in (before, after)]
    host.tracker.send(ReleaseBlocks((), tuple(released)))
    wait_until_gone(Path(segment_path(*released[0])))
    # The one that is being written stays until its attempt goes.
    assert host.fetch(second, after) == b"after" * 1000
    host.tracker.send(ReleaseBlocks((ATTEMPT,), ()))
    for folder, _ in released:
        wait_until_gone(Path(folder))
    with pytest.raises(WireError, match="was released"):
        keep(second, b"late")


# -- ending ------------------------------------------------------------------------------------


def test_its_death_harms_nothing_but_remote_reads_until_another_is_started(host: Host) -> None:
    payload = b"x" * 1000
    block = host.memory_block(payload)
    in_log = host.segment_block(payload)
    first = host.start()
    host.kill()
    host.tracker.wait_for(lambda: len(host.tracker.gone) == 1)
    with pytest.raises(ConnectionLostError, match=r"input-3-1.*127\.0\.0\.1"):
        host.fetch(first, block)
    second = host.start()
    assert second.pid != first.pid
    assert host.fetch(second, block) == payload
    assert host.fetch(second, in_log) == payload


@pytest.mark.slow
def test_it_ends_with_its_lease_when_the_driver_is_dead(
    host: Host, dead_driver: ProcessIdentity
) -> None:
    host.memory_block(b"x")
    other = host.memory_block(b"x", host.memory_path(application="app-2"))
    host.segment_block(b"x")
    host.tracker.answer = BlockServerRegistered(0.5)
    host.start(driver=dead_driver)
    host.server.stop()
    host.wait_for_end()
    # A restarted driver can recover from the logs; hot copies only hold memory.
    assert not host.memory_path().exists()
    assert host.log_folder().exists()
    assert other.memory is not None
    assert os.path.exists(other.memory.path)


@pytest.mark.slow
@pytest.mark.parametrize("is_known", [True, False], ids=["dead", "silent for hours"])
def test_it_takes_everything_with_it_when_nothing_could_be_recovered(
    host: Host, dead_driver: ProcessIdentity, is_known: bool
) -> None:
    host.memory_block(b"x")
    host.segment_block(b"x")
    host.tracker.answer = BlockServerRegistered(0.5)
    driver = replace(dead_driver, host="another") if not is_known else dead_driver
    host.start(
        remove_at_lease_end=True,
        lease_s=0.5,
        driver=driver,
        driver_timeout_s=7200.0 if is_known else 0.5,
    )
    host.server.stop()
    host.wait_for_end()
    assert not host.root.exists()
    assert not host.scratch.exists()
    assert list(host.memory.iterdir()) == []


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("where", ["here, and alive", "elsewhere", "not known"])
def test_a_driver_that_is_silent_for_longer_than_the_lease_finds_everything_again(
    host: Host, where: str
) -> None:
    hot = host.memory_block(b"hot")
    cold = host.segment_block(b"cold")
    host.tracker.answer = BlockServerRegistered(0.2)
    with other_process() as (_, driver):
        if where == "elsewhere":
            driver = replace(driver, host="another")
        server = host.start(
            remove_at_lease_end=True, lease_s=0.2, driver=driver if where != "not known" else None
        )
        host.server.stop()
        # Several of its looks later it still serves.
        assert not select.select([host._started[-1]], [], [], 3.5)[0]
        assert host.fetch(server, hot) == b"hot"
        host.server = Server(
            ApplicationLink(host.secret), host.tracker, port=host.launch.link.tracker_address[1]
        )
        host.server.start()
        host.tracker.wait_for(lambda: len(host.tracker.registered) == 2)
    assert host.fetch(server, hot) == b"hot"
    assert host.fetch(server, cold) == b"cold"


def test_it_removes_nothing_when_somebody_else_answers_in_the_drivers_place(host: Host) -> None:
    host.memory_block(b"x")
    host.segment_block(b"x")
    host.start(remove_at_lease_end=True)
    host.server.stop()
    host.server = Server(
        ApplicationLink(os.urandom(32)), host.tracker, port=host.launch.link.tracker_address[1]
    )
    host.server.start()
    host.wait_for_end()
    assert host.memory_path().exists()
    assert host.log_folder().exists()


def test_it_registers_again_with_a_tracker_that_comes_back_within_the_lease(host: Host) -> None:
    block = host.memory_block(b"x")
    server = host.start()
    host.server.stop()
    host.server = Server(
        ApplicationLink(host.secret), host.tracker, port=host.launch.link.tracker_address[1]
    )
    host.server.start()
    host.tracker.wait_for(lambda: len(host.tracker.registered) == 2)
    assert host.tracker.registered[0][1] == host.tracker.registered[1][1]
    assert host.fetch(server, block) == b"x"


def test_it_ends_when_the_tracker_does_not_want_it_back(host: Host) -> None:
    host.memory_block(b"x")
    host.start()
    host.tracker.answer = Refused("another has this host")
    host.server.stop()
    host.server = Server(
        ApplicationLink(host.secret), host.tracker, port=host.launch.link.tracker_address[1]
    )
    host.server.start()
    host.wait_for_end()
    assert host.memory_path().exists()


@pytest.mark.slow
def test_it_ends_when_its_folder_is_gone(host: Host) -> None:
    host.start()
    os.unlink(lock_path(host.launch))
    host.wait_for_end()
    host.tracker.wait_for(lambda: len(host.tracker.gone) == 1)
    assert host.ensure() is not None


@pytest.mark.parametrize("remove_files", [False, True])
def test_it_ends_when_the_application_does(host: Host, remove_files: bool) -> None:
    host.memory_block(b"x")
    host.segment_block(b"x")
    others = host.memory_path(application="app-2")
    others.write_bytes(b"x")
    host.start()
    host.tracker.send(StopBlockServer(remove_files))
    host.server.stop()  # at once: the message still arrives
    host.wait_for_end()
    assert not host.memory_path().exists()
    assert others.exists()
    assert host.log_folder().exists() is not remove_files
    assert host.root.exists() is not remove_files
    assert host.scratch.exists() is not remove_files


def test_it_removes_what_the_tracker_released_and_nothing_else(host: Host) -> None:
    """I4: nothing on start, nothing that was not named."""
    kept = host.segment_block(b"kept", OTHER_ATTEMPT)
    host.memory_block(b"kept", host.memory_path(OTHER_ATTEMPT))
    gone = host.segment_block(b"gone")
    host.memory_block(b"gone")
    outside = host.root.parent / "outside"
    outside.mkdir()
    (outside / "segment-000000000001.log").write_bytes(b"x")
    (host.root / f"9-{'c' * 32}").symlink_to(outside)
    server = host.start()
    assert host.fetch(server, gone) == b"gone"  # left alone until told
    assert gone.segment is not None
    assert kept.segment is not None
    host.tracker.send(
        ReleaseBlocks(
            (ATTEMPT, "c" * 32, "../../outside", ""),
            (("/etc", 1), (str(host.root / f"9-{'c' * 32}"), 1), ("..", 1)),
        )
    )
    wait_until_gone(host.log_folder())
    assert not host.memory_path().exists()
    assert host.fetch(server, kept) == b"kept"
    assert host.memory_path(OTHER_ATTEMPT).exists()
    host.tracker.send(
        ReleaseBlocks((), ((kept.segment.folder, kept.segment.segment), (kept.segment.folder, 99)))
    )
    wait_until_gone(Path(kept.segment.folder) / "segment-000000000001.log")
    assert (outside / "segment-000000000001.log").exists()
    with pytest.raises(BlockNotServedError, match="No such file"):
        host.fetch(server, kept)


def wait_until_gone(path: Path) -> None:
    """Wait for another process to remove `path`; the file system tells nobody, so look often."""
    never = threading.Event()
    for _ in range(int(WAIT_S / 0.01)):
        if not path.exists():
            return
        never.wait(0.01)
    raise AssertionError(f"{path} is still there")


def test_the_lock_ends_with_the_process_that_has_it(host: Host) -> None:
    host.start()
    fd = os.open(lock_path(host.launch), os.O_RDWR)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        host.kill()
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(fd)


def test_a_lock_that_cannot_be_written_is_not_left(host: Host) -> None:
    """It would not say whose it is, so no one would remove it if the driver is killed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # As on a full disk.
    try:
        with pytest.raises(PenstockError, match="could not be started"):
            host.ensure()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not os.path.exists(lock_path(host.launch))
    host.start()


def test_it_takes_the_memory_with_it_when_the_driver_died_before_it_was_up(
    host: Host, dead_driver: ProcessIdentity
) -> None:
    """The driver was killed while this server was starting: nobody else is left to do that."""
    host.memory_block(b"x")
    host.segment_block(b"x")
    host.server.stop()
    with pytest.raises(PenstockError, match="no connection"):
        host.ensure(lease_s=1.0, driver=dead_driver)
    assert not host.memory_path().exists()
    assert not os.path.exists(lock_path(host.launch))
    assert host.log_folder().exists()


@pytest.mark.slow
def test_it_leaves_all_as_it_is_when_the_driver_was_silent_before_it_was_up(host: Host) -> None:
    host.memory_block(b"x")
    host.segment_block(b"x")
    host.server.stop()
    with pytest.raises(PenstockError, match="no connection"):
        host.ensure(lease_s=1.0, remove_at_lease_end=True)
    assert host.memory_path().exists()
    assert host.log_folder().exists()


def test_it_ends_when_the_application_ended_before_it_was_up(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.memory_block(b"x")
    host.segment_block(b"x")
    host.server.stop()
    errors: list[BaseException] = []
    is_locked, has_ended = threading.Event(), threading.Event()
    popen = subprocess.Popen

    def held(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        is_locked.set()
        assert has_ended.wait(WAIT_S)
        return popen(*args, **options)

    def start() -> None:
        try:
            host.ensure(lease_s=WAIT_S)
        except PenstockError as error:
            errors.append(error)

    monkeypatch.setattr("penstock.blockstore.server.launch.subprocess.Popen", held)
    starting = threading.Thread(target=start)
    starting.start()
    assert is_locked.wait(WAIT_S)
    end_on_this_host(APPLICATION, block_log_root=str(host.root), memory_folder=str(host.memory))
    assert not host.memory_path().exists()
    # The lock lies beside the logs of a real application; here it does not.
    os.unlink(lock_path(host.launch))
    has_ended.set()
    starting.join(WAIT_S)
    assert "lock file is gone" in str(errors[0])
    assert host.log_folder().exists()


def test_who_is_late_starts_none_for_an_application_that_has_ended(
    host: Host, tmp_path: Path
) -> None:
    scratch = tmp_path / f"penstock-{APPLICATION}"
    claim = Path(scratch_claim_path(str(scratch)))
    late = {"scratch_folder": str(scratch), "driver": ProcessIdentity.this_process()}
    with pytest.raises(PenstockError, match="the application has ended"):
        host.ensure(**late)
    assert not scratch.exists()
    claim.touch()
    host.start(**late)


def test_what_could_not_start_leaves_no_file(host: Host) -> None:
    host.server.stop()
    with pytest.raises(PenstockError, match="no connection") as caught:
        host.ensure(lease_s=1.0)
    assert "(see" not in str(caught.value)
    assert not os.path.exists(lock_path(host.launch))
    assert not os.path.exists(log_path(host.launch))


def test_the_next_block_server_removes_locks_and_empty_logs_of_killed_ones(
    host: Host, tmp_path: Path
) -> None:
    launches = {
        name: replace(host.launch, application_id=name, host=where)
        for name, where in {
            "killed": "here",
            "with-a-log": "here",
            "new": "here",
            "renamed": "foo-here",
            "elsewhere": "foo-here",
        }.items()
    }
    for name, launch in launches.items():
        host.start(application_id=name, host=launch.host)
        host.kill()
    Path(log_path(launches["with-a-log"])).write_text("worth reading")
    living = replace(host.launch, application_id="living")
    host.start(application_id="living")
    link = host.scratch / "block-server-link-here.lock"
    link.symlink_to(tmp_path / "target")
    (tmp_path / "target").write_text("here")
    Path(lock_path(launches["elsewhere"])).write_text("foo-here\nanother machine")
    for launch in [*launches.values(), living]:
        os.utime(lock_path(launch), (0, 0))
    os.utime(lock_path(launches["new"]))
    host.start(application_id="next")
    wait_until_gone(Path(lock_path(launches["killed"])))
    wait_until_gone(Path(lock_path(launches["with-a-log"])))
    wait_until_gone(Path(lock_path(launches["renamed"])))
    host.tracker.send(StopBlockServer(False))
    host.wait_for_end()
    assert not os.path.exists(log_path(launches["killed"]))
    assert Path(log_path(launches["with-a-log"])).read_text() == "worth reading"
    for launch in (launches["new"], launches["elsewhere"], living):
        assert os.path.exists(lock_path(launch))
        assert os.path.exists(log_path(launch))
    assert link.is_symlink()
    assert (tmp_path / "target").exists()
