"""What an application has on this machine: processes, shared memory, folders.

All is found by the application's id, or by a mark in the environment, so that other runs on the
same machine are not taken for this one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from penstock.runtime.processes import stat_of

MARK = "PENSTOCK_TEST_RUN"


def await_that(
    what: str,
    condition: Callable[[], object],
    timeout_s: float = 60.0,
    report: Callable[[], str] = str,
) -> None:
    """Wait until `condition` is true, looking every 20 ms; `report` says how things are."""
    end_s = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        if time.monotonic() >= end_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what}; {report()}")
        pause.wait(0.02)


def _pids() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def is_running(pid: int) -> bool:
    """Whether the process exists and is not just waiting to be reaped."""
    try:
        return state_of(pid) not in "ZX"
    except OSError:
        return False


def state_of(pid: int) -> str:
    """Return the letter of proc(5): R runs, S waits, Z is to be reaped."""
    return stat_of(f"/proc/{pid}")[0]


def parent_of(pid: int) -> int:
    return int(stat_of(f"/proc/{pid}")[1])


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def marked_processes(mark: str) -> dict[int, str]:
    """Return the processes that were started with this mark in their environment, by id."""
    entry = f"{MARK}={mark}".encode()
    found = {}
    for pid in _pids():
        with suppress(OSError):
            if entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found[pid] = command_of(pid)
    return {pid: command for pid, command in found.items() if is_running(pid)}


def block_servers(application_id: str) -> list[int]:
    """Return the block server processes of an application: who has its lock file open."""
    name = f"block-server-{application_id}-"
    # Not the process that only starts it, and ends at once.
    module = "-m penstock.blockstore.server.block_server"
    return [pid for pid in _pids() if _has_open(pid, name) and module in command_of(pid)]


def keeps_memory(pid: int, application_id: str) -> bool:
    """Whether a process has a memory file of the application open: a block server that serves."""
    # The scratch folder's name begins like that of a memory file.
    with suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                opened = os.path.basename(os.readlink(f"/proc/{pid}/fd/{fd}"))
                if opened.startswith(f"penstock-{application_id}-"):
                    return True
    return False


def _has_open(pid: int, name: str) -> bool:
    with suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if name in os.readlink(f"/proc/{pid}/fd/{fd}"):
                    return True
    return False


def memory_mapped_by(application_id: str) -> dict[int, set[str]]:
    """Return which process still maps or has open which memory file of an application."""
    found: dict[int, set[str]] = {}
    for pid in _pids():
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                if f"penstock-{application_id}-" in line:
                    found.setdefault(pid, set()).add(line.split(maxsplit=5)[-1])
    return found


def memory_files(application_id: str, folder: str = "/dev/shm") -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(f"penstock-{application_id}-")]


def scratch_folders(application_id: str) -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"penstock-{application_id}-*"))


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("penstock-")}


_told: set[threading.Thread] = set()


def assert_nothing_left(
    application_id: str, before: set[threading.Thread], *, timeout_s: float = 20.0
) -> None:
    """Check what a stopped context must not leave; processes get a moment to end.

    Threads that there were `before` are another's.
    """
    left = threads() - before - _told
    # Once: the next test in this process is another one.
    _told.update(left)
    assert not left, f"threads are left: {[thread.name for thread in left]}"
    await_that(
        f"no block server ({block_servers(application_id)})",
        lambda: not block_servers(application_id),
        timeout_s,
    )
    files = memory_files(application_id)
    for file in files:
        os.remove(os.path.join("/dev/shm", file))
    assert not files, f"memory files are left: {files}"
    left_folders = {str(path): os.listdir(path) for path in scratch_folders(application_id)}
    for folder in left_folders:
        # The next test may run in the same application.
        shutil.rmtree(folder, ignore_errors=True)
    assert not left_folders, f"folders are left: {left_folders}"
