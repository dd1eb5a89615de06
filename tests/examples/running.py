"""Running an example as a user does, and looking for what it left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from tests.bounds import HANG_S

ROOT = Path(__file__).resolve().parents[2]
MARK = "PENSTOCK_TEST_RUN"
END_BOUND_S = HANG_S


class Run:
    """A script in a process group of its own, with a temporary folder of its own.

    Everything that it starts inherits a mark in its environment, by which it is found again.
    """

    def __init__(self, folder: Path, *command: str) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.mark = uuid.uuid4().hex
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            MARK: self.mark,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self.temporary),
        }
        environment.pop("SPARK_LOCAL_DIRS", None)
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._is_over = False
        self._reader = threading.Thread(target=self._read, name="output", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    @property
    def output(self) -> str:
        with self._changed:
            return "\n".join(self.lines)

    def wait_for_line(self, fits: Callable[[str], bool], bound_s: float) -> str:
        def found() -> list[str]:
            return [line for line in self.lines if fits(line)]

        with self._changed:
            self._changed.wait_for(lambda: self._is_over or found(), bound_s)
            lines = found()
        assert lines, f"the line did not come within {bound_s:.0f} s:\n{self.output}"
        return lines[0]

    def press_ctrl_c(self) -> None:
        """Interrupt the process group, as a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self, bound_s: float) -> int:
        """Return the exit code."""
        try:
            code = self.process.wait(bound_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {bound_s:.0f} s:\n{self.output}") from None
        self._reader.join(END_BOUND_S)
        return code

    def processes(self) -> list[str]:
        """Return the processes of this run that live, as ``pid command``."""
        mark = f"{MARK}={self.mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found.append(f"{folder.name} {command.decode(errors='replace')}")
            except OSError:  # it has ended, or is another user's
                continue
        return found

    def wait_until_nothing_is_left(self, bound_s: float = END_BOUND_S) -> None:
        """Wait until no process of this run lives, and see that no file is left."""
        end = time.monotonic() + bound_s
        while left := self.processes():
            assert time.monotonic() < end, "left behind: " + "; ".join(p[:200] for p in left)
            threading.Event().wait(0.05)
        assert sorted(path.name for path in self.temporary.iterdir()) == []

    def kill(self) -> None:
        """End what is still there, by pid, whatever the test came to."""
        for process in self.processes():
            try:
                os.kill(int(process.split()[0]), signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(END_BOUND_S)
