"""Attempts of a crash test: processes of one module, forked from one that has imported it.

Starting Python and importing what a receiver needs takes longer than most attempts. That process
has one thread of Python's, which forks, waits for the attempt and says how it ended; it runs
nothing of the user's.

What must hold
--------------

* An attempt finds what a new process of the test would find: the test's environment, folder and
  modules as they are now, and random numbers of its own.
* Attempts end with the process that forks them, and that one with the test's own, however that
  ends. What an attempt started ends with it, unless it made itself a session of its own.
* No process is killed by a number that may belong to another one.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from penstock.runtime.processes import die_with
from penstock.testing.driver import ReceiverTestError

_START_S = 120.0
_LOOK_S = 1.0
"""How soon it is noticed that the test's process was killed."""

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
            except (TimeoutError, BlockingIOError):
                pass
            except ConnectionError as error:
                raise ReceiverTestError(str(error)) from None
        return self.code is not None

    def kill(self) -> None:
        """Kill it, if it has not ended, and wait for its end."""
        # Raises when the process that would reap it is gone: it is killed with that.
        if not self.has_ended(0):
            # It is not reaped before the next one is asked for, so that no other has its number.
            os.kill(self._pid, signal.SIGKILL)
            if not self.has_ended(_START_S):
                raise ReceiverTestError(
                    f"process {self._pid} has not ended {_START_S:g} s after SIGKILL"
                )

    def was_killed(self, is_to_be: bool) -> bool:
        """Return whether it ended by `SIGKILL`.

        Args:
            is_to_be: Whether its plan is that it kills itself.

        Raises:
            ReceiverTestError: It failed, with the end of what it said, or was killed by another.
        """
        if self.code == -signal.SIGKILL and not is_to_be:
            raise ReceiverTestError(
                "an attempt was killed, and not by the test: is there too little memory?"
            )
        if self.code not in (0, -signal.SIGKILL):
            text = _end_of(self._raised)
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
        command = [sys.executable, "-m", __name__, self._module]
        command += [str(theirs.fileno()), str(os.getpid())]
        with theirs:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=raised,
                pass_fds=[theirs.fileno()],
                env=_environment(),
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        self._stack.callback(ours.close)
        return ours, raised

    @contextlib.contextmanager
    def attempt(self, plan: object) -> Iterator[Attempt]:
        """Start an attempt; it is killed when the context is left."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as raised:
            # What the test, or its source, has changed since the first attempt.
            given.write(pickle.dumps((_environment(), os.getcwd(), sys.path)))
            given.write(pickle.dumps(plan))
            given.seek(0)
            template, why = self._template = self._template or self._begin()
            try:
                socket.send_fds(template, [b"\0"], [given.fileno(), raised.fileno()])
                template.settimeout(_START_S)
                pid = _number(template)
            except OSError as error:
                text = _end_of(why) or str(error)
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


def _end_of(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _SAID_BYTES))
    return file.read().decode(errors="replace")


def _environment() -> dict[str, str]:
    # Receivers of test modules, which a test runner finds in its own ways.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _say(connection: socket.socket, number: int) -> None:
    connection.sendall(number.to_bytes(_NUMBER_BYTES, "big", signed=True))


def _serve(connection: socket.socket, test: int) -> None:
    """Fork attempts until no more are asked for. Returns in each attempt.

    Args:
        connection: Where they are asked for.
        test: The process of the test.
    """
    template, pid = os.getpid(), 0
    while True:
        # A child of the test's process may also have the connection, so that it never ends.
        while not select.select([connection], [], [], _LOOK_S)[0]:
            if os.getppid() != test:
                sys.exit()
        order, files, _, _ = socket.recv_fds(connection, 1, 2)
        if pid:
            os.waitpid(pid, 0)
        if not order:
            sys.exit()
        pid = os.fork()
        if not pid:
            os.setsid()
            die_with(template)
            for number, file in zip((0, 2), files, strict=True):
                os.dup2(file, number)
                os.close(file)
            return
        for file in files:
            os.close(file)
        _say(connection, pid)
        while (ended := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is None:
            signal.sigtimedwait([signal.SIGCHLD], _LOOK_S)
            if os.getppid() != test:
                os.kill(pid, signal.SIGKILL)
        # What it started; its number is its own until it is reaped.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        code = ended.si_status
        _say(connection, code if ended.si_code == os.CLD_EXITED else -code)


def _become_anew() -> None:
    """Have in an attempt what a new process of the test would have."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    environment, folder, sys.path[:] = pickle.load(sys.stdin.buffer)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    # The random module sees to itself.
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()


def _tell_of_exits() -> None:
    """Have an attempt fail that ends by `os._exit`, whatever it gives, and say so."""
    pid, leave = os.getpid(), os._exit

    def tell(status: int) -> None:
        # A process that it forked ends itself alone.
        if os.getpid() == pid:
            os.write(2, f"it called os._exit({status})".encode())
            status = status or 1
        leave(status)

    os._exit = tell  # type: ignore[assignment]


def main() -> None:
    """Import the module named first, and fork attempts as asked for on the socket named second.

    The third argument is the process of the test.
    """
    # What most receivers and sinks import.
    for name in ("penstock.streaming", "pyarrow.parquet", "pyspark.cloudpickle"):
        importlib.import_module(name)
    importlib.import_module("pyarrow").array([0])  # Its first one imports pandas.
    module: Any = importlib.import_module(sys.argv[1])
    # Ctrl-C is for the test.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Waited for; and ends are not seen where the test ignores it.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    with socket.socket(fileno=int(sys.argv[2])) as connection:
        _serve(connection, int(sys.argv[3]))
    _become_anew()
    _tell_of_exits()
    module.main()


if __name__ == "__main__":
    main()
