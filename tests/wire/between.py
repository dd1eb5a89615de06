"""Who stands between two ends and knows no secret: passes the handshake on, then does as it may."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

from penstock.wire import TAG_BYTES
from tests.bounds import HANG_S

GREETING, HELLO, VERDICT = 42, 74, 33
WAIT_S = HANG_S

Way = Callable[["Between", "Line"], None]
"""What is done in one direction of a connection after the handshake; then all is passed on."""


class Line:
    """One direction of one connection."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self._source = source
        self._target = target

    def take(self, count: int) -> bytes:
        """Take exactly so many bytes."""
        data = b""
        while len(data) < count:
            chunk = self._source.recv(count - len(data))
            if not chunk:
                raise ConnectionResetError("closed")
            data += chunk
        return data

    def take_frame(self) -> bytes:
        """Take a control frame with its tag."""
        length = self.take(4)
        return length + self.take(struct.unpack("<I", length)[0] + TAG_BYTES)

    def give(self, data: bytes) -> None:
        """Pass bytes on."""
        self._target.sendall(data)

    def pass_on(self) -> None:
        """Pass all on until it is closed."""
        while data := self._source.recv(1 << 16):
            self.give(data)

    def cut(self) -> None:
        """End the connection."""
        for end in (self._source, self._target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Between:
    """A proxy in front of a server.

    Args:
        address: The server's.
        to_server: What is done with what the client of the first connection says.
        to_client: What is done with what the server says to it.

    Attributes:
        address: Where clients connect.
        connections: How many there were.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        to_server: Way | None = None,
        to_client: Way | None = None,
    ) -> None:
        self._to = address
        self._ways = (to_server, to_client)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.connections = 0
        self.lines: list[tuple[Line, Line]] = []
        """To the server and to the client, of each connection."""
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="between")]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._to, WAIT_S)
                for end in (client, server):
                    end.settimeout(WAIT_S)
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [client, server]
                self.connections += 1
                up, down = Line(client, server), Line(server, client)
                self.lines.append((up, down))
                try:
                    down.give(down.take(GREETING))
                    up.give(up.take(HELLO))
                    down.give(down.take(VERDICT))
                except OSError:
                    up.cut()
                    continue
                ways = self._ways if self.connections == 1 else (None, None)
                for line, way in zip((up, down), ways, strict=True):
                    thread = threading.Thread(target=self._carry, args=(line, way), name="between")
                    self._threads.append(thread)
                    thread.start()

    def _carry(self, line: Line, way: Way | None) -> None:
        with contextlib.suppress(OSError):
            if way is not None:
                way(self, line)
            line.pass_on()
        line.cut()

    def close(self) -> None:
        """End all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT_S)
        for end in self._sockets:
            end.close()
