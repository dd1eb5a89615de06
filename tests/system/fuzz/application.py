"""One application that is fuzzed: its tracker and its block server, and what they use."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.blockstore import BlockAccess
from penstock.blockstore.reading.fetch import fetch
from penstock.blockstore.server.launch import (
    BlockServerLaunch,
    ensure_block_server,
    lock_path,
    log_path,
)
from penstock.wal import LogOptions, LogWriter, SyncPolicy, stamp_record
from penstock.wire import ApplicationLink, Client, TlsIdentity, WireOptions
from penstock.wire.messages import (
    AddBlock,
    DeregisterReceiver,
    FindBlockServer,
    MemoryPlace,
    ReceivedBlockInfo,
    RegisterReceiver,
    ReportError,
    ReportRateStatus,
    SegmentPlace,
)
from tests.bounds import HANG_S
from tests.system.fuzz.recording import Relay
from tests.system.fuzz.target import APPLICATION, ATTACKED, GOOD

START_S = HANG_S
END_S = HANG_S
HOST, STRANGE_HOST = "here", "there"
"""What the fuzzer plays with stands under the other name."""
SIZES = (1, 1000, 70_000, 3_000_000)


_ALLOCATOR = {"MALLOC_ARENA_MAX": "1"} | {
    f"MALLOC_{name}_THRESHOLD_": str(64 << 10) for name in ("MMAP", "TRIM")
}
"""Have glibc give back what is free, at once: then what a process has is what it keeps."""


@contextlib.contextmanager
def exact_memory() -> Iterator[None]:
    """Start processes so meanwhile."""
    before = dict(os.environ)
    os.environ.update(_ALLOCATOR)
    try:
        yield
    finally:
        for name in _ALLOCATOR:
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]


class Watched:
    """A process from outside: what it uses.

    Attributes:
        memory_mib: Its anonymous memory, each time that it was looked at.
    """

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self.memory_mib: list[float] = []
        self._handle = os.pidfd_open(pid)

    def is_alive(self) -> bool:
        return not select.select([self._handle], [], [], 0)[0]

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def look(self) -> None:
        with open(f"/proc/{self.pid}/status") as file:
            found = re.search(r"^RssAnon:\s+(\d+) kB", file.read(), re.MULTILINE)
        assert found is not None
        self.memory_mib.append(int(found[1]) / 1024)

    def growth_mib(self) -> float:
        """Return how much the least of the last third is above the least of the first third.

        What is used goes up and down by tens of MiB, with what the collector has not freed yet; a
        leak raises the least of it, too.
        """
        third = max(1, len(self.memory_mib) // 3)
        return min(self.memory_mib[-third:]) - min(self.memory_mib[:third])

    def wait_for_end(self) -> bool:
        return bool(select.select([self._handle], [], [], END_S)[0])

    def close(self) -> None:
        if self.is_alive():
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            self.wait_for_end()
        os.close(self._handle)


class Application:
    """A tracker and a block server, each a process, with blocks to read and what was recorded.

    Args:
        folder: An empty one.
        tls: Whether its connections are TLS.

    Attributes:
        name: For people.
        tls: Its certificate, if it has one.
        blocks: What the block server serves, with the payloads.
        conversations: What real clients sent, by port (``tracker``, ``blocks``).
        processes: The tracker and the block server.
    """

    def __init__(self, folder: Path, *, tls: bool) -> None:
        self.name = "TLS" if tls else "plain"
        self._folder = folder
        self._root = folder / "blocks"
        self._memory = folder / "memory"
        for made in (self._root, self._memory):
            made.mkdir(parents=True)
        with open(folder / "tracker.log", "w") as log, exact_memory():
            self._tracker = subprocess.Popen(
                [sys.executable, "-m", "tests.system.fuzz.target"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.processes = [Watched(f"tracker ({self.name})", self._tracker.pid)]
        try:
            self._tell({"folder": str(folder), "tls": tls})
            said = self._hear()
            self.secret = bytes.fromhex(said["secret"])
            self.tracker: tuple[str, int] = (said["address"][0], said["address"][1])
            self.tls = TlsIdentity(*said["tls"]) if said["tls"] else None
            self.link = ApplicationLink(self.secret, self.tracker, self.tls)
            self.attempts: dict[int, str] = {int(k): v for k, v in said["attempts"].items()}
            self._launch = BlockServerLaunch(
                application_id=APPLICATION,
                link=self.link,
                host=HOST,
                scratch_folder=str(folder / "scratch"),
                block_log_root=str(self._root),
                memory_folder=str(self._memory),
            )
            with exact_memory():
                ready = ensure_block_server(self._launch, START_S)
            assert ready is not None
            self.server = ready.address
            self.processes.append(Watched(f"block server ({self.name})", ready.pid))
            self.blocks = [self._block(number, size) for number, size in enumerate(SIZES)]
            self.conversations = {"tracker": self._to_tracker(), "blocks": self._to_server()}
        except BaseException:
            self.close()
            raise

    # -- blocks --------------------------------------------------------------------------------

    def _block(self, number: int, size: int) -> tuple[ReceivedBlockInfo, bytes]:
        """Make a block: every second one in memory, all of them in the log."""
        payload = os.urandom(size)
        attempt = f"{number:032x}"
        folder = self._root / f"{GOOD}-{attempt}"
        options = LogOptions(segment_size=16 << 20, sync=SyncPolicy.NONE)
        with LogWriter.create(str(folder), options=options) as log:
            place = log.append(1, payload)
        memory = None
        if number % 2:
            record = bytearray(64) + payload
            stamp_record(memoryview(record), 1, size, place.sequence)
            path = self._memory / f"penstock-{APPLICATION}-{attempt}"
            path.write_bytes(bytes(4096) + record)
            memory = MemoryPlace(str(path), 4096, len(record))
        segment = SegmentPlace(str(folder), place.segment, place.offset, place.length)
        info = ReceivedBlockInfo(
            GOOD, f"input-0-{number}", 1, size, attempt, HOST, place.sequence, memory, segment
        )
        return info, payload

    def access(self, *, knows_server: bool) -> BlockAccess:
        """Return what a batch task has; one that does not know the block server asks for it."""
        servers = {HOST: self.server} if knows_server else {}
        return BlockAccess(servers, self.link)

    def client(self, address: tuple[str, int], hello: RegisterReceiver | None = None) -> Client:
        return Client(
            replace(self.link, tracker=address),
            on_reconnect=lambda: [hello] if hello else [],
            options=WireOptions(ask_timeout_s=START_S),
        )

    # -- recorded conversations ----------------------------------------------------------------

    def _to_tracker(self) -> list[bytes]:
        """Take down a receiver, a block server and a batch task that talk to the tracker."""
        attempt = self.attempts[ATTACKED]
        scratch = str(self._folder / "strange")
        with Relay(self.tracker, self.tls) as relay:
            client = self.client(relay.address)
            client.connect()
            with contextlib.closing(client):
                registered = client.ask(
                    RegisterReceiver(ATTACKED, attempt, "Source", STRANGE_HOST, "1", 77)
                )
                first = registered.first_block_number
                for number in range(first, first + 4):
                    client.ask(AddBlock(ATTACKED, attempt, (self._strange_block(number),)))
                client.ask(ReportRateStatus(ATTACKED, attempt, 0, 1000, 0.5, True, 0.25, 12.5))
                client.ask(ReportError(ATTACKED, attempt, "no connection", "told by a good peer"))
                client.ask(FindBlockServer(STRANGE_HOST))
                client.ask(DeregisterReceiver(ATTACKED, attempt, "done", ""))
            launch = replace(
                self._launch,
                link=replace(self.link, tracker=relay.address),
                host=STRANGE_HOST,
                scratch_folder=scratch,
                memory_folder=scratch,
                block_log_root=os.path.join(scratch, "blocks"),
            )
            ready = ensure_block_server(launch, START_S)
            assert ready is not None
            strange = Watched("block server that is recorded", ready.pid)
            # It ends when its lock file is gone.
            os.unlink(lock_path(launch))
            ended = strange.wait_for_end()
            strange.close()
            assert ended
            return relay.conversations()

    def _strange_block(self, number: int) -> ReceivedBlockInfo:
        attempt = self.attempts[ATTACKED]
        memory = MemoryPlace(f"/dev/shm/penstock-{APPLICATION}-{attempt}", 4096, 1064)
        segment = SegmentPlace(f"/log/{ATTACKED}-{attempt}", 1, 4096, 1064)
        return ReceivedBlockInfo(
            ATTACKED,
            f"input-{ATTACKED}-{number}",
            10,
            1000,
            attempt,
            STRANGE_HOST,
            number & 0xFFFF,
            memory,
            segment,
            b"\xcd\x10\x00",
        )

    def _to_server(self) -> list[bytes]:
        """Take down batch tasks that read blocks."""
        with Relay(self.server, self.tls) as relay:
            for info, payload in self.blocks:
                context = self.tls.client_context() if self.tls else None
                found = fetch(relay.address, self.secret, info, START_S, ssl_context=context)
                assert bytes(found) == payload
            return relay.conversations()

    # -- the end -------------------------------------------------------------------------------

    def look(self) -> None:
        """Take down the memory of both processes.

        Raises:
            AssertionError: One of them died.
        """
        for process in self.processes:
            assert process.is_alive(), f"the {process.name} died\n{self.logs()[-4000:]}"
            process.look()

    def logs(self) -> str:
        """Return what both processes logged."""
        with contextlib.suppress(FileNotFoundError), open(log_path(self._launch)) as file:
            return (self._folder / "tracker.log").read_text() + file.read()
        return (self._folder / "tracker.log").read_text()

    def finish(self) -> dict[str, int]:
        """End the tracker, which ends the block server; return what it saw."""
        assert self._tracker.stdin is not None
        self._tracker.stdin.close()
        said = self._hear()
        assert self._tracker.wait(END_S) == 0
        for process in self.processes:
            assert process.wait_for_end(), f"the {process.name} does not end"
        return {str(key): int(value) for key, value in said.items()}

    def close(self) -> None:
        """Kill what is left."""
        for process in self.processes:
            process.close()
        self._tracker.wait()
        for pipe in (self._tracker.stdin, self._tracker.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def _tell(self, message: dict[str, object]) -> None:
        assert self._tracker.stdin is not None
        self._tracker.stdin.write(json.dumps(message) + "\n")
        self._tracker.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._tracker.stdout is not None
        assert select.select([self._tracker.stdout], [], [], START_S)[0], "the tracker is silent"
        line = self._tracker.stdout.readline()
        assert line, f"the tracker ended\n{self.logs()[-4000:]}"
        found: dict[str, Any] = json.loads(line)
        return found
