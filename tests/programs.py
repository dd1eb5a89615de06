"""Programs in processes of their own: how tests start, hear and kill them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.bounds import HANG_S
from tests.system.leftovers import (
    MARK,
    await_that,
    command_of,
    is_running,
    marked_processes,
    parent_of,
)

__all__ = [
    "ROOT",
    "Program",
    "TellingProgram",
    "environment_of",
    "executors_of",
    "kill_one",
    "run_to_end",
    "running_in",
]

ROOT = Path(__file__).parents[1]
_T = TypeVar("_T")
_P = TypeVar("_P", bound="Program")


def environment_of(**more: str | None) -> dict[str, str]:
    """Return this process's environment, by which a program imports the tests and starts workers.

    Args:
        more: Variables that it has beside; None is none of the name.
    """
    imports = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    all_ = {**os.environ, **imports, **more}
    return {name: value for name, value in all_.items() if value is not None}


def run_to_end(
    *arguments: str | Path,
    folder: Path | None = None,
    timeout_s: float = HANG_S,
    stderr: int = subprocess.PIPE,
    code: int | None = 0,
    **environment: str | None,
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments until it ends by itself; what it said is kept.

    Args:
        arguments: What is run.
        folder: Where; None for where this process is.
        timeout_s: When it hangs.
        stderr: As `subprocess.run` takes it.
        code: With which exit code it must end; None for any.
        environment: See `environment_of`.
    """
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment_of(**environment),
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert code in (None, ended.returncode), f"{ended.returncode}: {ended.stdout}\n{ended.stderr}"
    return ended


def kill_one(pids: Collection[int], chance: random.Random) -> bool:
    """Kill one of some processes; tell whether there still was one."""
    with suppress(ProcessLookupError):
        if pids:
            os.kill(chance.choice(sorted(pids)), signal.SIGKILL)
            return True
    return False


def running_in(folder: Path) -> list[int]:
    """Return which processes live that have left a file of their number in a folder."""
    return [pid for pid in map(int, os.listdir(folder)) if is_running(pid)]


def executors_of(pids: Iterable[int]) -> list[int]:
    """Return the executors that are processes of their own in which others run."""
    found = set()
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):  # It has ended.
            while pid > 1 and "CoarseGrainedExecutorBackend" not in command_of(pid):
                pid = parent_of(pid)
            found.add(pid)
    return sorted(found - {0, 1})


class Program:
    """A program that is running, and what it has said so far.

    It leads a process group and session of its own, as a program does that a shell has started,
    and everything that it starts carries its mark.

    Args:
        command: What is run.
        folder: Where.
        stdin: As `subprocess.Popen` takes it.
        errors: The file for what it writes to its standard error; None: these are lines, too.
        environment: More of it than `environment_of` has.

    Attributes:
        lines: What it said, without line ends.
        mark: Finds all its processes, see `marked_processes`.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        folder: Path,
        *,
        stdin: int = subprocess.PIPE,
        errors: Path | None = None,
        **environment: str | None,
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._is_silent = False
        self._errors = errors
        with ExitStack() as stack:
            self.process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(open(errors, "ab")) if errors else subprocess.STDOUT,
                cwd=folder,
                env=environment_of(**{MARK: self.mark, **environment}),
                start_new_session=True,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, name="program-output", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self._hear(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._is_silent = True
            self._changed.notify_all()

    def _hear(self, line: str) -> None:
        """Take a line that it said; the lock is held."""
        self.lines.append(line)

    # -- asking ------------------------------------------------------------------------------------

    @property
    def output(self) -> str:
        with self._changed:
            return "\n".join(self.lines)

    def log(self) -> str:
        """Return what it wrote to its standard error, or all that it said."""
        return self._errors.read_text(errors="replace") if self._errors else self.output

    def report(self) -> str:
        """Say how things are, for a test that fails."""
        return self.log()[-6000:]

    def await_said(self, what: str, find: Callable[[], _T], timeout_s: float = HANG_S) -> _T:
        """Wait until what it said has what `find` finds; fail when the program ends before."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_silent or find(), timeout_s)
            found = find()
        assert found, f"no {what} within {timeout_s:g} s: {self.report()}"
        return found

    def wait_for_line(
        self, fits: Callable[[str], bool], timeout_s: float = HANG_S, *, count: int = 1
    ) -> str:
        """Return the line of this number that fits."""

        def find() -> list[str]:
            return [line for line in self.lines if fits(line)][count - 1 :]

        return self.await_said("such line", find, timeout_s)[0]

    def wait_until_ended(self, timeout_s: float = HANG_S) -> int:
        """Return the exit code; by then all is heard that it said, if its errors are lines, too."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"it did not end within {timeout_s:g} s: {self.report()}"
            ) from None
        if self._errors is None:
            # Else a child that hangs may have its output open.
            self._reader.join(timeout_s)
        return code

    def ends_within(self, timeout_s: float) -> bool:
        """Wait so long, or until it ends; tell whether it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
        return self.process.returncode is not None

    def processes(self, word: str = "") -> dict[int, str]:
        """Return all its processes that live and whose commands have a word, with these."""
        running = marked_processes(self.mark)
        return {pid: command for pid, command in running.items() if word in command}

    # -- doing -------------------------------------------------------------------------------------

    def tell(self, line: str) -> None:
        """Write a line to its standard input; nothing happens when it has ended."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()

    def end_input(self) -> None:
        """Close its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def signal(self, number: int) -> None:
        """Send a signal to its process group, as a terminal does."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill its first process."""
        self.process.kill()
        self.process.wait(HANG_S)

    def kill_group(self) -> None:
        """Kill its process group, and nothing that has left it."""
        self.signal(signal.SIGKILL)
        self.process.wait(HANG_S)

    def assert_no_process_left(self, timeout_s: float = HANG_S) -> None:
        """Check that all that it ever started has ended."""
        await_that(
            "no process is left",
            lambda: not self.processes(),
            timeout_s,
            lambda: f"{self.processes()}\n{self.report()}",
        )

    def close(self) -> None:
        """Kill what is left of it, whatever the test came to."""
        for _ in range(3):  # One may just have started another.
            for pid in [self.process.pid, *self.processes()]:
                with suppress(ProcessLookupError):
                    if pid != self.process.pid or self.process.poll() is None:
                        os.kill(pid, signal.SIGKILL)
        self.process.wait(HANG_S)
        self._reader.join(HANG_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def __enter__(self: _P) -> _P:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TellingProgram(Program):
    """One that says what happens in lines of JSON, each with a name as `what`.

    Attributes:
        events: What it said so far, in order.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.events: list[dict[str, Any]] = []
        super().__init__(*arguments, **options)

    def _hear(self, line: str) -> None:
        try:
            self.events.append(json.loads(line))
        except ValueError:
            super()._hear(line)

    def all(
        self, what: str, test: Callable[[dict[str, Any]], bool] = lambda _: True
    ) -> list[dict[str, Any]]:
        """Return the events of this name so far."""
        return [event for event in list(self.events) if event["what"] == what and test(event)]

    def wait_for(
        self,
        what: str,
        test: Callable[[dict[str, Any]], bool] = lambda _: True,
        *,
        count: int = 1,
        timeout_s: float = HANG_S,
    ) -> dict[str, Any]:
        """Return the event of this name and number; fail when the program ends before."""
        name = f"{what!r} ({count})"
        return self.await_said(name, lambda: self.all(what, test)[count - 1 :], timeout_s)[0]

    def report(self) -> str:
        told = [event for event in list(self.events) if event["what"] != "batch"]
        return f"events {told[-20:]}\nlog:\n{super().report()}"
