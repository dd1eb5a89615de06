"""`DriverProcess`: runs a program of this folder in a process of its own, and looks after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.bounds import HANG_S
from tests.system.leftovers import MARK, await_that, marked_processes

WAIT_S = HANG_S
ROOT = str(Path(__file__).parents[2])


class DriverProcess:
    """A streaming program that is running.

    It leads a process group and session of its own, as a program does that a shell has started,
    and everything that it starts carries its mark.

    Attributes:
        events: What it said so far, in order.
        mark: Finds all its processes, see `marked_processes`.
    """

    def __init__(
        self,
        folder: Path,
        config: dict[str, Any],
        command: Sequence[str] = (sys.executable,),
        module: str = "tests.system.program",
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.events: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._numbers = folder / f"numbers-{self.mark}"
        self.hold = Path(f"{self._numbers}-hold")
        self._log = folder / f"log-{self.mark}"
        text = json.dumps({**config, "numbers": str(self._numbers)})
        environment = {
            **os.environ,
            MARK: self.mark,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": ROOT,
        }
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [*command, "-m", module, text],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env=environment,
                start_new_session=True,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, name="driver-output", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                with suppress(ValueError):
                    self.events.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self.events.append({"what": "silent"})
            self._changed.notify_all()

    # -- asking ------------------------------------------------------------------------------------

    def wait_for(
        self,
        what: str,
        test: Callable[[dict[str, Any]], bool] = lambda _: True,
        *,
        count: int = 1,
        timeout_s: float = WAIT_S,
    ) -> dict[str, Any]:
        """Return the event of this name and number; fail when the program ends before."""

        def fitting() -> list[dict[str, Any]]:
            return [event for event in self.events if event["what"] == what and test(event)]

        with self._changed:
            self._changed.wait_for(
                lambda: len(fitting()) >= count or {"what": "silent"} in self.events, timeout_s
            )
            assert len(fitting()) >= count, f"no {what!r} ({count}): {self.report()}"
            return fitting()[count - 1]

    def wait_until_started(self) -> dict[str, Any]:
        return self.wait_for("started")

    def wait_until_ended(self, timeout_s: float = WAIT_S) -> int:
        """Return the exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"it did not end within {timeout_s:g} s: {self.report()}"
            ) from None

    def numbers(self, receiver: int = 0) -> list[int]:
        """Return all numbers of a receiver that it processed so far, in its order."""
        path = Path(f"{self._numbers}-{receiver}")
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def report(self) -> str:
        told = [event for event in self.events if event["what"] != "batch"]
        return f"events {told[-20:]}\nlog:\n{self.log()[-6000:]}"

    def processes(self) -> dict[int, str]:
        return marked_processes(self.mark)

    # -- doing -------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let it stop gracefully; it ends with exit code 0."""
        assert self.process.stdin is not None
        self.process.stdin.write("stop\n")
        self.process.stdin.flush()
        assert self.wait_until_ended() == 0, self.report()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)

    def interrupt(self) -> None:
        """Press Ctrl-C: a terminal sends SIGINT to the whole process group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def assert_no_process_left(self, timeout_s: float) -> None:
        """Check that all that it ever started has ended."""
        await_that(
            "no process is left",
            lambda: not self.processes(),
            timeout_s,
            lambda: f"{self.processes()}\n{self.report()}",
        )

    def close(self) -> None:
        for _ in range(3):
            for pid in [self.process.pid, *self.processes()]:
                with suppress(ProcessLookupError):
                    if pid != self.process.pid or self.process.poll() is None:
                        os.kill(pid, signal.SIGKILL)
        self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


@contextmanager
def driver_process(
    folder: Path,
    config: dict[str, Any],
    command: Sequence[str] = (sys.executable,),
    module: str = "tests.system.program",
) -> Iterator[DriverProcess]:
    """Run a program; at the end all its processes are killed, if there are any."""
    driver = DriverProcess(folder, config, command, module)
    try:
        yield driver
    finally:
        driver.close()
