"""A way to a server that can be cut and stalled, also within a message."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.bounds import HANG_S

_PIECE_BYTES = 1 << 12


class Proxy:
    """Passes the connections to a port of its own on to a server's, until `close`.

    Attributes:
        port: Where clients connect to.
        connections: How many reached the server so far.
        refused: How many did not, since there was none.
    """

    def __init__(self, server_port: int) -> None:
        self.connections = 0
        self.refused = 0
        self._server_port = server_port
        self._changed = threading.Condition()
        self._open: set[_Connection] = set()
        self._left: int | None = None
        self._is_closed = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="proxy")
        self._thread.start()

    def cut(self) -> None:
        """End all connections that there are."""
        with self._changed:
            for connection in self._open:
                connection.end()
            self._open.clear()

    def cut_after(self, count: int) -> None:
        """Let that many more bytes of the server pass, in all, and then end all connections."""
        with self._changed:
            self._left = count

    def stall(self) -> None:
        """Let nothing pass on the connections that there are; they stay open."""
        with self._changed:
            for connection in self._open:
                connection.is_stalled = True

    def go_on(self) -> None:
        """End a stall."""
        with self._changed:
            for connection in self._open:
                connection.is_stalled = False
            self._changed.notify_all()

    def wait_for_connections(self, count: int) -> None:
        """Wait until that many connections have reached the server in all."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.connections >= count, HANG_S), (
                f"{self.connections} connections, and not {count}"
            )

    def wait_for_refusals(self, count: int) -> None:
        """Wait until that many connections found no server, in all."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.refused >= count, HANG_S), (
                f"{self.refused} connections were refused, and not {count}"
            )

    def close(self) -> None:
        """End everything."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(HANG_S)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port), HANG_S)
            except OSError:
                client.close()
                with self._changed:
                    self.refused += 1
                    self._changed.notify_all()
                continue
            connection = _Connection(client, server)
            with self._changed:
                self.connections += 1
                self._open.add(connection)
                self._changed.notify_all()
            for source, target in ((client, server), (server, client)):
                carrying = threading.Thread(
                    target=self._carry, args=(connection, source, target), daemon=True
                )
                carrying.start()

    def _carry(self, connection: _Connection, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            source.settimeout(None)
            while data := source.recv(_PIECE_BYTES):
                with self._changed:
                    self._changed.wait_for(
                        lambda: connection.is_over or not connection.is_stalled, HANG_S
                    )
                    is_cut = False
                    if source is connection.server and self._left is not None:
                        data = data[: self._left]
                        self._left -= len(data)
                        is_cut = self._left == 0
                if data:
                    target.sendall(data)
                if is_cut:
                    with self._changed:
                        self._left = None
                    self.cut()
        with self._changed:
            connection.end()
            self._open.discard(connection)
            self._changed.notify_all()


class _Connection:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.is_stalled = False
        self.is_over = False

    def end(self) -> None:
        self.is_over = True
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
