"""A server in a process of its own, on a port of loopback, that a test may kill and stall."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.bounds import HANG_S
from tests.services.ports import free_ports

_LAST = 3000


@contextmanager
def paused(process: subprocess.Popen[Any] | None) -> Iterator[None]:
    """Stop a process with SIGSTOP until the end, if there is one."""
    if process is None:
        yield
        return
    process.send_signal(signal.SIGSTOP)
    _await_stopped(process.pid)
    try:
        yield
    finally:
        # Nothing happens to one that was killed meanwhile.
        process.send_signal(signal.SIGCONT)


def _await_stopped(pid: int) -> None:
    """Wait until a child does nothing any more: its threads stop one after the other."""
    with suppress(ChildProcessError):  # It was killed meanwhile, and waited for.
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


class ServerProcess:
    """One server; its port stays the same when it is started again.

    A subclass sets `command`, which `start` runs.

    Args:
        folder: For its log, ``server.log``.
        port: A free port if None.
    """

    command: Sequence[str]

    def __init__(self, folder: Path, port: int | None = None) -> None:
        (self.port,) = free_ports(1) if port is None else (port,)
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        assert self._process is None
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self.command, stdout=log, stderr=log, start_new_session=True
            )
        end_s = time.monotonic() + HANG_S
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end_s:
                    said = self.log()[-_LAST:]
                    raise AssertionError(
                        f"{type(self).__name__} does not come up: {said}"
                    ) from None
                time.sleep(0.01)

    def log(self) -> str:
        """Return what it said."""
        return self._log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def stall(self) -> None:
        """Let it answer nothing, with its connections open."""
        assert self._process is not None
        self.signal(signal.SIGSTOP)
        _await_stopped(self._process.pid)

    def go_on(self) -> None:
        """End a stall."""
        self.signal(signal.SIGCONT)

    def paused(self) -> AbstractContextManager[None]:
        """Stop it with SIGSTOP until the end, if it runs."""
        return paused(self._process)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(HANG_S)
        self._process = None

    def stop(self) -> None:
        """Kill it if it runs; a stalled one, too."""
        if self._process is not None:
            self.kill()
