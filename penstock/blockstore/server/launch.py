"""Starting a host's block server: at most one per application, detached from who starts it.

The one who starts it takes the lock of a file in the scratch folder and hands the locked
descriptor to the new process. So there is no moment at which two could run, and the lock ends
with the process, however it ends. What the process needs, the secret too, goes through a pipe:
nothing is in its arguments or its environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import partial

import msgspec

from penstock.blockstore.server._files import ApplicationFiles
from penstock.errors import PenstockError
from penstock.runtime.processes import ProcessIdentity, host_id
from penstock.wal import KEY_COMMAND_VARIABLE, KEY_VARIABLE, LogOptions, SyncPolicy
from penstock.wire import ApplicationLink

_logger = logging.getLogger("penstock.blockstore")

_LOCK_TRIES = 10
_LOCK_NAME = re.compile(r"block-server-.+\.lock")

_DETACH = """
import os, sys
if os.fork():
    os._exit(0)
os.execv(sys.executable, [sys.executable, "-m", *sys.argv[1:]])
"""
"""Forks and ends the process that was started, so that no one has to wait for the server's end. It
does so before anything is imported that has threads."""


@dataclass(frozen=True)
class BlockServerLaunch:
    """All that a block server needs to know.

    Attributes:
        application_id: Spark's.
        link: Where the tracker is, and what proves who belongs to the application.
        host: The name under which the tracker and tasks know this host.
        scratch_folder: Holds the lock file and the server's log; one per application, or shared,
            also by several hosts. The server ends when its lock file there is gone.
        block_log_root: The folder of the attempts' log folders.
        memory_folder: The folder of the memory files.
        listen_port: The port to listen at; 0 for any free one.
        port_retries: How many ports after it are tried while one is taken.
        lease_s: How long it lives on without the tracker once the driver is known to be dead,
            until the tracker says otherwise.
        driver: The driver's process; None when it is not known, and then never known to be dead.
        driver_timeout_s: After this long without the tracker the driver counts as dead.
        remove_at_lease_end: Whether the log folders are removed when the driver is dead: True
            when nothing could be recovered from them, False when a restarted driver can. Memory
            files are removed in either case.
        left_after_s: How long another application's memory file must have been in no one's use
            until it is removed.
        replica_log: How copies of other hosts' blocks are written.
        block_max_bytes: The largest of them, with the header of its record.
    """

    application_id: str
    link: ApplicationLink
    host: str
    scratch_folder: str
    block_log_root: str
    memory_folder: str = "/dev/shm"
    listen_port: int = 0
    port_retries: int = 0
    lease_s: float = 60.0
    driver: ProcessIdentity | None = None
    driver_timeout_s: float = 7200.0
    remove_at_lease_end: bool = False
    left_after_s: float = 60.0
    replica_log: LogOptions = field(default_factory=partial(LogOptions, sync=SyncPolicy.NONE))
    block_max_bytes: int = 32 << 20

    @property
    def driver_is_known_dead(self) -> bool:
        """Whether the driver is known to be dead; one that is only silent is not."""
        return self.driver is not None and self.driver.is_known_dead

    def address_to_listen_at(self) -> str:
        """Return the address of this host that others reach it by.

        Raises:
            OSError: The tracker's host is not known, or there is no way to it.
        """
        unreachable: OSError | None = None
        for family, kind, protocol, _, address in socket.getaddrinfo(
            *self.link.tracker_address, type=socket.SOCK_DGRAM
        ):
            # Connecting a datagram socket sends nothing; it only asks for the route.
            try:
                with socket.socket(family, kind, protocol) as probe:
                    probe.connect(address)
                    return str(probe.getsockname()[0])
            except OSError as error:
                # A name may stand for addresses of IPv4 and of IPv6, and this host have one kind.
                unreachable = error
        assert unreachable is not None
        raise unreachable


class BlockServerReady(msgspec.Struct, frozen=True):
    """What a started block server says: one line of JSON on its standard output."""

    pid: int
    address: tuple[str, int]


def scratch_claim_path(folder: str) -> str:
    """Return the file beside a scratch folder that is there for as long as its driver uses it."""
    parent, name = os.path.split(folder)
    return os.path.join(parent, f".{name}.lock")


def lock_path(launch: BlockServerLaunch) -> str:
    """Return the file whose lock the application's block server of this host holds."""
    return _path(launch, "lock")


def log_path(launch: BlockServerLaunch) -> str:
    """Return the file that gets the server's warnings and errors."""
    return _path(launch, "log")


def _path(launch: BlockServerLaunch, ending: str) -> str:
    # The folder may be one that several hosts share.
    name = f"{_prefix(launch.application_id)}{launch.host}.{ending}"
    return os.path.join(launch.scratch_folder, name)


def _prefix(application_id: str) -> str:
    return f"block-server-{application_id}-"


def remove_own_files(launch: BlockServerLaunch) -> None:
    """Remove the lock file, and the log if it says nothing.

    What cannot be removed stays: it is empty, or worth reading.
    """
    _remove(lock_path(launch), log_path(launch))


def _remove(lock: str, log: str) -> None:
    with contextlib.suppress(OSError):
        if os.path.getsize(log) == 0:
            os.unlink(log)
    with contextlib.suppress(OSError):
        os.unlink(lock)


def remove_orphans(launch: BlockServerLaunch) -> None:
    """Remove lock files, and logs that say nothing, of killed servers of this host.

    Only what a server of this host wrote, which is in the file, that no one has locked, and that is
    not new: its server might just be starting.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(launch.scratch_folder):
            path = os.path.join(launch.scratch_folder, name)
            if _LOCK_NAME.fullmatch(name) and path != lock_path(launch):
                with contextlib.suppress(OSError):
                    _remove_orphan(path, launch)


def _remove_orphan(path: str, launch: BlockServerLaunch) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        is_old = time.time() - found.st_mtime >= launch.left_after_s
        if not is_old or not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return
        host, _, machine = os.pread(fd, 1024, 0).decode(errors="replace").partition("\n")
        # A machine may have another name now, or the same after it was booted again.
        if host != launch.host and (not machine or machine != host_id()):
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if holds_lock(fd, path):
            _remove(path, f"{path.removesuffix('.lock')}.log")
    finally:
        os.close(fd)


def end_on_this_host(application_id: str, *, block_log_root: str, memory_folder: str) -> None:
    """Remove an application's memory files from this host, and end a block server that is left.

    For the driver, once its tracker has stopped: a block server that was only just starting then
    was never asked to end, and would try to reach the tracker for as long as its lease.
    """
    ApplicationFiles(application_id, memory_folder, block_log_root).remove_memory()
    folder, prefix = os.path.dirname(block_log_root), _prefix(application_id)
    # A server that runs sees that its lock file is gone, and ends.
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(prefix) and name.endswith(".lock"):
                lock = os.path.join(folder, name)
                _remove(lock, f"{lock.removesuffix('.lock')}.log")


def ensure_block_server(
    launch: BlockServerLaunch, timeout_s: float = 20.0
) -> BlockServerReady | None:
    """Make sure that this host has a block server of the application; start it if need be.

    It outlives this process. May be called by many processes at once, and again at any time.

    Args:
        launch: What it needs to know.
        timeout_s: How long to wait until it has registered with the tracker.

    Returns:
        What the new one says, or None when one runs already (or is being started).

    Raises:
        PenstockError: It could not be started, or the application has ended. Nothing of it is
            left running.
    """
    if _has_ended(launch):
        raise _not_started("the application has ended")
    try:
        os.makedirs(launch.scratch_folder, 0o700, exist_ok=True)
        lock = _take_lock(lock_path(launch), launch.host)
        if lock is None:
            return None
        try:
            return _start(launch, lock, timeout_s)
        except BaseException:
            # For all who share this lock, so also for a process that is only just dying.
            fcntl.flock(lock, fcntl.LOCK_UN)
            raise
        finally:
            os.close(lock)  # the new process has it now, or it is free again
    except OSError as error:
        raise _not_started(str(error)) from error


def _has_ended(launch: BlockServerLaunch) -> bool:
    """Return whether the application has surely ended: its claim on the driver's host is gone.

    A receiver or a task that is late would make the scratch folder again, which then no one
    removes.
    """
    is_scratch = os.path.basename(launch.scratch_folder) == f"penstock-{launch.application_id}"
    is_here = launch.driver is not None and launch.driver.is_visible
    return is_scratch and is_here and not os.path.exists(scratch_claim_path(launch.scratch_folder))


def _take_lock(path: str, host: str) -> int | None:
    """Lock the file at `path`, made if need be; None when another process has it."""
    for _ in range(_LOCK_TRIES):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if holds_lock(fd, path):
                # Whose it is, for `remove_orphans`.
                try:
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, f"{host}\n{host_id()}".encode(), 0)
                except OSError:
                    # The disk is full: no one would know whose it is.
                    os.unlink(path)
                    raise
                return fd
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # the file was removed meanwhile by the server that ended: take the new one
    raise OSError(f"{path} is removed again and again")


def holds_lock(fd: int, path: str) -> bool:
    """Return whether the locked descriptor is still that of the file at `path`."""
    try:
        at_path = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return os.path.samestat(os.fstat(fd), at_path)


def _start(launch: BlockServerLaunch, lock: int, timeout_s: float) -> BlockServerReady:
    deadline_s = time.monotonic() + timeout_s
    environment = dict(os.environ)
    # It has no use for the key of the logs, which is there with a local master.
    environment.pop(KEY_VARIABLE, None)
    environment.pop(KEY_COMMAND_VARIABLE, None)
    # The package may have come with the Spark job and be found by this process only. Below an
    # executor's folder there may be links to where it really is (YARN has such), and these go
    # with the executor.
    environment["PYTHONPATH"] = os.pathsep.join(os.path.realpath(entry) for entry in sys.path)
    log = os.open(log_path(launch), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            [
                _python(),
                "-I",
                "-S",
                "-c",
                _DETACH,
                "penstock.blockstore.server.block_server",
                str(lock),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd="/",
            env=environment,
            pass_fds=[lock],
            start_new_session=True,
        )
    finally:
        os.close(log)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout as output:
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
                pipe.write(msgspec.msgpack.encode(launch))
            line = _read_line(output.fileno(), deadline_s)
            # The process that was started goes at once; its child is the server.
            process.wait(max(0.1, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            line = b"it did not detach in time"
        except BaseException:
            _kill(process)
            raise
    try:
        ready = msgspec.json.decode(line, type=BlockServerReady)
    except msgspec.MsgspecError:
        _kill(process)
        reason = line.decode(errors="replace").strip() or "it said nothing"
        raise _not_started(reason + _see(log_path(launch))) from None
    _logger.info("started the block server %d of %s", ready.pid, launch.application_id)
    return ready


def _see(log: str) -> str:
    """Return where there is more to read, if there is."""
    with contextlib.suppress(OSError):
        if os.path.getsize(log):
            return f" (see {log})"
    return ""


def _python() -> str:
    """Return the path of this Python, without links to the folder that it is in.

    Python's own name stays as it is: in a virtual environment it is a link that must not be
    followed, since what is beside it says which environment that is.
    """
    folder, name = os.path.split(os.path.abspath(sys.executable))
    return os.path.join(os.path.realpath(folder), name)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill what was started and did not come up; it and its child are a process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read_line(fd: int, deadline_s: float) -> bytes:
    """Read until a line, the end, or the deadline."""
    text = b""
    while not text.endswith(b"\n"):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not select.select([fd], [], [], left_s)[0]:
            return text or b"it did not register with the tracker in time"
        chunk = os.read(fd, 4096)
        if not chunk:
            break
        text += chunk
    return text


def _not_started(reason: str) -> PenstockError:
    return PenstockError(f"the block server of this host could not be started: {reason}")
