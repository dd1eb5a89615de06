"""Attempts of a crash test: processes of one module, forked from one that has imported it.

Starting Python and importing what a receiver needs takes longer than most attempts. That process
has one thread, which forks, waits for the attempt and says how it ended; it runs nothing of the
user's, and ends with the test's own process.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from penstock.testing.driver import ReceiverTestError

_START_S = 120.0
_NUMBER_BYTES = 4
_SAID_BYTES = 2000


class Attempt:
    """A process that runs the `main` of a module.

    Attributes:
        code: What it ended with; a signal is below 0. None: it has not ended.
    """

    def __init__(self, pid: int, template: socket.socket, raised: IO[bytes]) -> None:
        self.code: int | None = None
        self._pid = pid
        self._template = template
        self._raised = raised

    def has_ended(self, wait_s: float) -> bool:
        """Wait for its end; return whether it came."""
        if self.code is None:
            self._template.settimeout(wait_s)
            try:
                self.code = _number(self._template)
            except TimeoutError:
                pass
            except ConnectionError as error:
                raise ReceiverTestError(str(error)) from None
        return self.code is not None

    def kill(self) -> None:
        """Kill it, if it has not ended, and wait for its end."""
        if self.code is None:
            # It is not reaped before the next one is asked for, so that no other has its number.
            os.kill(self._pid, signal.SIGKILL)
            if not self.has_ended(_START_S):
                raise ReceiverTestError(
                    f"process {self._pid} has not ended {_START_S:g} s after SIGKILL"
                )

    @property
    def was_killed(self) -> bool:
        """Whether it ended by `SIGKILL`.

        Raises:
            ReceiverTestError: It failed, with the end of what it said.
        """
        if self.code not in (0, -signal.SIGKILL):
            text = _all_of(self._raised)[-_SAID_BYTES:]
            raise ReceiverTestError(f"an attempt ended with {self.code}: {text}")
        return self.code == -signal.SIGKILL


class Attempts:
    """Runs attempts, one after the other. A context manager: leaving it ends the last one.

    Args:
        module: What they run: its `main`, with a pickled plan as standard input.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._template: tuple[socket.socket, IO[bytes]] | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Attempts:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def _begin(self) -> tuple[socket.socket, IO[bytes]]:
        raised = tempfile.TemporaryFile()  # noqa: SIM115
        self._stack.enter_context(raised)
        ours, theirs = socket.socketpair()
        # Receivers of test modules, which a test runner finds in its own ways.
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", __name__, self._module, str(theirs.fileno())]
        with theirs:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=raised,
                pass_fds=[theirs.fileno()],
                env=env,
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        self._stack.callback(ours.close)
        return ours, raised

    @contextlib.contextmanager
    def attempt(self, plan: object) -> Iterator[Attempt]:
        """Start an attempt; it is killed when the context is left."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as raised:
            given.write(pickle.dumps(plan))
            given.seek(0)
            template, why = self._template = self._template or self._begin()
            try:
                socket.send_fds(template, [b"\0"], [given.fileno(), raised.fileno()])
                template.settimeout(_START_S)
                pid = _number(template)
            except OSError as error:
                text = _all_of(why)[-_SAID_BYTES:]
                raise ReceiverTestError(f"{self._module} cannot begin: {text}") from error
            attempt = Attempt(pid, template, raised)
            try:
                yield attempt
            finally:
                attempt.kill()


def _number(connection: socket.socket) -> int:
    data = connection.recv(_NUMBER_BYTES)
    if not data:
        raise ConnectionError("the process that forks attempts was ended")
    return int.from_bytes(data, "big", signed=True)


def _all_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _say(connection: socket.socket, number: int) -> None:
    connection.sendall(number.to_bytes(_NUMBER_BYTES, "big", signed=True))


def _serve(connection: socket.socket) -> None:
    """Fork attempts until no more are asked for. Returns in each attempt."""
    pid = 0
    while True:
        order, files, _, _ = socket.recv_fds(connection, 1, 2)
        if pid:
            os.waitpid(pid, 0)
        if not order:
            sys.exit()
        pid = os.fork()
        if not pid:
            connection.close()
            os.dup2(files[0], 0)
            os.dup2(files[1], 2)
            return
        for file in files:
            os.close(file)
        _say(connection, pid)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        code = ended.si_status
        _say(connection, code if ended.si_code == os.CLD_EXITED else -code)


def main() -> None:
    """Import the module named first, and fork attempts as asked for on the socket named second."""
    # What most receivers and sinks import.
    for name in ("penstock.streaming", "pyarrow.parquet", "pyspark.cloudpickle"):
        importlib.import_module(name)
    importlib.import_module("pyarrow").array([0])  # Its first one imports pandas.
    module: Any = importlib.import_module(sys.argv[1])
    # Ctrl-C is for the test, and for the attempt.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[2])) as connection:
        _serve(connection)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module.main()


if __name__ == "__main__":
    main()
