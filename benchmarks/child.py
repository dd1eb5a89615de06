"""A process tree that is started for one run and wholly gone after it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import IO, Any

__all__ = ["MARK", "Child", "ChildFailedError", "kill_marked", "marked_processes"]

MARK = "PENSTOCK_BENCHMARK_RUN"
"""Environment variable that every process of a run inherits, also one that left its session."""

_TAIL_LINES = 25
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class ChildFailedError(RuntimeError):
    """A program of a run ended early or said nothing in time; the message has its last words."""


def marked_processes(mark: str) -> list[int]:
    """Return the ids of the living processes that carry the mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if wanted in file.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                continue  # It has just ended, or is another user's.
    return found


class Child:
    """Runs ``python -m <module> <options as JSON>`` and hears its JSON lines.

    Args:
        module: The module to run.
        options: Given to it as one JSON argument.
        on_line: Called with each JSON object that it prints, from a thread of its own.
        environment: Set for it, beside what this process has.
    """

    def __init__(
        self,
        module: str,
        options: Mapping[str, Any],
        on_line: Callable[[dict[str, Any]], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.mark = uuid.uuid4().hex
        self._module = module
        self._on_line = on_line
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # closed in end()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(dict(options))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=_ROOT,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": _ROOT,
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                # Peers must resolve this machine alike, also where its name has no address.
                "SPARK_LOCAL_IP": "127.0.0.1",
                MARK: self.mark,
                **(environment or {}),
            },
        )
        assert self._process.stdin is not None
        self._stdin: IO[str] = self._process.stdin
        self._reader = threading.Thread(target=self._read, name=f"benchmark-{module}", daemon=True)
        self._reader.start()

    @property
    def has_ended(self) -> bool:
        """Whether the program's own process has ended."""
        return self._process.poll() is not None

    def tell(self, message: Mapping[str, Any]) -> None:
        """Write one JSON line to the program; one that has ended misses nothing."""
        with contextlib.suppress(OSError, ValueError):
            self._stdin.write(json.dumps(message) + "\n")
            self._stdin.flush()

    def wait(self, what: str, until: Callable[[], bool], timeout_s: float) -> None:
        """Wait until something is true.

        Raises:
            ChildFailedError: It did not come true in time, or the program ended before.
        """
        deadline = time.monotonic() + timeout_s
        while not until():
            if self.has_ended and not self._reader.is_alive() and not until():
                raise ChildFailedError(
                    f"{self._module} ended with {self._process.returncode} before {what}\n"
                    + self.last_words()
                )
            if time.monotonic() > deadline:
                raise ChildFailedError(
                    f"{self._module}: no {what} within {timeout_s:g} s\n{self.last_words()}"
                )
            time.sleep(0.02)

    def last_words(self) -> str:
        """Return the end of what it wrote to standard error."""
        self._errors.seek(0)
        return "".join(self._errors.readlines()[-_TAIL_LINES:])

    def end(self, timeout_s: float = 15.0) -> None:
        """Close its input, which is its sign to stop; then kill what is left of its tree."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        kill_marked(self.mark)
        self._process.wait()
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._on_line(json.loads(line))


def kill_marked(mark: str) -> None:
    """End the processes that carry the mark, each by its id: politely, then not."""
    for number, patience_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
        deadline = time.monotonic() + patience_s
        left = marked_processes(mark)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = marked_processes(mark)
        if not left:
            return
