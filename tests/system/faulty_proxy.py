"""A TCP proxy that a test lets misbehave: slow, silent, cut in the middle, or half open."""

from __future__ import annotations

import enum
import socket
import struct
import threading
from types import TracebackType

from tests.bounds import HANG_S

WAIT_S = HANG_S
_CHUNK = 16 << 10


class Fault(enum.Enum):
    """What the proxy does with connections, also with those that it has."""

    NONE = "passes everything on"
    SILENT = "takes everything and passes nothing on: a cable that was taken out"
    REFUSING = "resets each new connection"


class FaultyProxy:
    """Stands before a server; both ends are real connections.

    Args:
        target: The server.

    Attributes:
        address: Where clients connect to.
        delay_s: How long each piece of up to 16 KiB is held back, in either direction.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.delay_s = 0.0
        self._target = target
        self._changed = threading.Condition()
        self._fault = Fault.NONE
        self._left_bytes: int | None = None
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._accepted = 0
        self._to_client = 0
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._threads = [threading.Thread(target=self._accept, name="proxy", daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- for the test ------------------------------------------------------------------------------

    def become(self, fault: Fault) -> None:
        """Behave so from now on."""
        with self._changed:
            self._fault = fault
            self._changed.notify_all()

    def reset_after(self, count: int) -> None:
        """Reset the connection on which the next `count` bytes for clients have passed; once."""
        with self._changed:
            self._left_bytes = count

    def reset_all(self) -> None:
        """Reset every connection, at both ends."""
        for pair in list(self._pairs):
            self._reset(*pair)

    def half_close(self) -> None:
        """Let the server's ends go; clients hear nothing of it and may go on sending."""
        with self._changed:
            self._fault = Fault.SILENT
            for _, server in self._pairs:
                _reset(server)

    @property
    def accepted(self) -> int:
        """How many connections there were."""
        return self._accepted

    def await_passed(self, count: int) -> None:
        """Wait until so many bytes have passed to clients since the start."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._to_client >= count, WAIT_S)

    def await_accepted(self, count: int) -> None:
        """Wait until there were so many connections."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._accepted >= count, WAIT_S)

    def close(self) -> None:
        self._closed.set()
        self.become(Fault.NONE)
        _shut(self._listener)
        self._listener.close()
        self.reset_all()
        for thread in self._threads:
            thread.join(WAIT_S)

    # -- threads -----------------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._changed:
                self._accepted += 1
                refuses = self._fault is Fault.REFUSING
                self._changed.notify_all()
            if refuses:
                _reset(client)
                continue
            try:
                server = socket.create_connection(self._target, WAIT_S)
            except OSError:
                _reset(client)
                continue
            server.settimeout(None)
            pair = (client, server)
            self._pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                thread = threading.Thread(
                    target=self._pass_on,
                    args=(pair, source, sink),
                    name="proxy-connection",
                    daemon=True,
                )
                self._threads.append(thread)
                thread.start()

    def _pass_on(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket
    ) -> None:
        try:
            while data := source.recv(_CHUNK):
                if self.delay_s:
                    self._closed.wait(self.delay_s)
                with self._changed:
                    self._changed.wait_for(lambda: self._fault is not Fault.SILENT)
                    cut = None
                    if sink is pair[0] and self._left_bytes is not None:
                        cut = min(len(data), self._left_bytes)
                        self._left_bytes -= cut
                        data = data[:cut]
                        if self._left_bytes == 0:
                            self._left_bytes = None
                        else:
                            cut = None
                sink.sendall(data)
                if sink is pair[0]:
                    with self._changed:
                        self._to_client += len(data)
                        self._changed.notify_all()
                if cut is not None:
                    break
        except OSError:
            # One end is gone; so goes the other.
            pass
        if not self._is_silent():
            self._reset(*pair)

    def _is_silent(self) -> bool:
        with self._changed:
            return self._fault is Fault.SILENT

    def _reset(self, client: socket.socket, server: socket.socket) -> None:
        self._pairs.discard((client, server))
        _reset(client)
        _reset(server)


def _reset(connection: socket.socket) -> None:
    """Close with a reset; what is on its way is lost. Wakes a thread that reads from it."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        return
    _shut(connection)
    connection.close()


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
