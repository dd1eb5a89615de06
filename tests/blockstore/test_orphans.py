"""Memory files of killed applications: which ones go, and which ones stay."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.blockstore.building.memory import MemoryArena
from penstock.blockstore.server.block_server import OrphanCollector
from penstock.blockstore.server.launch import BlockServerLaunch, ensure_block_server
from penstock.runtime.clock import ManualClock
from penstock.wire import ApplicationLink, Server
from penstock.wire.messages import StopBlockServer
from tests.bounds import HANG_S
from tests.doubles import BlockServerTracker

ROOT = str(Path(__file__).parents[2])
WAIT_S = HANG_S
PATIENCE_S = 60.0
OWN, OTHER = "local-1-aaaaaaaa", "local-2-bbbbbbbb"
HOLDER = """
import sys, time
from penstock.blockstore.building.memory import MemoryArena
arena = MemoryArena(sys.argv[1], 1 << 20)
print("there", flush=True)
sys.stdin.read()
"""


def name(application: str, number: int = 0) -> str:
    return f"penstock-{application}-{number:032x}"


@pytest.fixture
def receivers(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate(timeout=WAIT_S)


def hold(receivers: list[subprocess.Popen[bytes]], path: Path) -> subprocess.Popen[bytes]:
    """Make a memory file in a process of its own, as a receiver does."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    receivers.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == b"there\n"
    return process


def collector(folder: Path, application: str = OWN) -> tuple[OrphanCollector, ManualClock]:
    clock = ManualClock()
    return OrphanCollector(application, str(folder), PATIENCE_S, clock), clock


def test_a_file_of_a_killed_receiver_goes_after_a_while_and_one_in_use_stays(
    tmp_path: Path, receivers: list[subprocess.Popen[bytes]]
) -> None:
    left, used = tmp_path / name(OTHER, 1), tmp_path / name(OTHER, 2)
    victim, _ = hold(receivers, left), hold(receivers, used)
    looking, clock = collector(tmp_path)
    looking.look()
    clock.advance(1000 * PATIENCE_S)
    looking.look()
    assert left.exists()
    victim.send_signal(signal.SIGKILL)
    victim.wait(WAIT_S)
    # From now on it counts: a new application locks its file a moment after it made it.
    looking.look()
    clock.advance(1000 * PATIENCE_S - 1)
    looking.look()
    assert left.exists()
    clock.advance(1)
    looking.look()
    assert not left.exists()
    assert used.exists()


def test_a_file_that_somebody_uses_again_stays(tmp_path: Path) -> None:
    path = tmp_path / name(OTHER)
    path.touch()
    looking, clock = collector(tmp_path)
    looking.look()
    clock.advance(1000 * PATIENCE_S - 1)
    its_own, _ = collector(tmp_path, OTHER)
    its_own.look()
    looking.look()
    its_own.close()
    looking.look()
    clock.advance(1000 * PATIENCE_S - 1)
    looking.look()
    assert path.exists()


def test_a_block_server_keeps_its_applications_files_when_their_receiver_is_killed(
    tmp_path: Path, receivers: list[subprocess.Popen[bytes]]
) -> None:
    path = tmp_path / name(OWN)
    victim = hold(receivers, path)
    own, _ = collector(tmp_path)
    own.look()
    victim.send_signal(signal.SIGKILL)
    victim.wait(WAIT_S)
    other, clock = collector(tmp_path, OTHER)
    for _ in range(3):
        other.look()
        clock.advance(1000 * PATIENCE_S)
    assert path.exists()
    # What is kept is not held in memory once it is removed.
    path.unlink()
    own.look()
    assert str(path) not in "".join(map(os.path.realpath, open_files()))
    own.close()


def open_files() -> list[str]:
    return [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]


def test_nothing_else_is_touched(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.touch()
    (tmp_path / name(OTHER, 1)).symlink_to(target)
    os.mkfifo(tmp_path / name(OTHER, 2))
    (tmp_path / name(OTHER, 3)).mkdir()
    for other in (
        "penstock-notes",
        f"penstock-{OTHER}-xyz",
        f"my-{name(OTHER)}",
        name(OTHER) + "0",
    ):
        (tmp_path / other).touch()
    before = sorted(tmp_path.iterdir())
    looking, clock = collector(tmp_path)
    for _ in range(3):
        looking.look()
        clock.advance(1000 * PATIENCE_S)
    assert sorted(tmp_path.iterdir()) == before
    looking, _ = collector(tmp_path / "gone")
    looking.look()


def test_two_that_look_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / name(OTHER)
    path.touch()
    looking, clock = collector(tmp_path)
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        looking.look()
    looking.look()
    clock.advance(1000 * PATIENCE_S)
    looking.look()
    assert not path.exists()


@pytest.mark.slow
def test_the_next_applications_block_server_removes_what_a_killed_one_left(
    tmp_path: Path, receivers: list[subprocess.Popen[bytes]]
) -> None:
    """The receiver is killed before its application has a block server."""
    memory, tracker, secret = tmp_path / "shm", BlockServerTracker(), os.urandom(32)
    memory.mkdir()
    victim = hold(receivers, memory / name(OTHER))
    used = memory / name(OTHER, 2)
    hold(receivers, used)
    victim.send_signal(signal.SIGKILL)
    victim.wait(WAIT_S)
    own = MemoryArena(str(memory / name(OWN)), 1 << 20)
    server = Server(ApplicationLink(secret), tracker)
    launch = BlockServerLaunch(
        application_id=OWN,
        link=ApplicationLink(secret, server.start()),
        host="here",
        scratch_folder=str(tmp_path / "scratch"),
        block_log_root=str(tmp_path / "blocks"),
        memory_folder=str(memory),
    )
    ready = ensure_block_server(replace(launch, left_after_s=0.5), WAIT_S)
    assert ready is not None
    process = os.pidfd_open(ready.pid)
    own.close()
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.02)):
        if not (memory / name(OTHER)).exists():
            break
        pause.wait(0.02)
    try:
        assert sorted(memory.iterdir()) == sorted([used, memory / name(OWN)])
        tracker.send(StopBlockServer(remove_files=True))
        tracker.wait_for(lambda: len(tracker.gone) == 1)
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        os.close(process)
        server.stop()
