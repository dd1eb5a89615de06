"""A source that numbers its records, and sends again what was not acknowledged.

It is a TCP server. A receiver connects and says ``hello <pid> <from>``: its process, and the first
number that it wants, or ``-`` for the first one that was never acknowledged. Then it gets lines,
each a number with leading zeros, and answers with lines: a number ``n`` says that all records
below ``n`` are durable. Only so many records as the window are sent and not acknowledged, so the
speed is that of the pipeline and nothing has to sleep.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType

from penstock.wire.addresses import bare_host
from tests.bounds import HANG_S

WAIT_S = HANG_S


class Feeder:
    """Feeds one receiver at a time; a new connection takes the place of the one before.

    Attributes:
        pids: The process of each connection's receiver, in the order of the connections.
        starts: The first number of each connection.
        acknowledged: All numbers below this one were acknowledged.
        sent: All numbers below this one were sent at least once.
        resent: How many were sent again.
    """

    def __init__(
        self,
        *,
        line_bytes: int = 100,
        window: int = 2000,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._line = b"%%0%dd\n" % (line_bytes - 1)
        self._window = window
        self._changed = threading.Condition()
        self.pids: list[int] = []
        self.starts: list[int] = []
        self.acknowledged = 0
        self.sent = 0
        self.resent = 0
        self._total: int | None = None
        self._closed = False
        self._connection: socket.socket | None = None
        bare = bare_host(host)
        family = socket.AF_INET6 if ":" in bare else socket.AF_INET
        self._server = socket.create_server((bare, port), family=family)
        self.address: tuple[str, int] = self._server.getsockname()[:2]
        self._threads = [threading.Thread(target=self._accept, name="feeder", daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Feeder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- what tests ask ----------------------------------------------------------------------------

    def wait(self, what: str, condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        """Wait until `condition` holds; `what` says for what, should it not come."""
        with self._changed:
            if not self._changed.wait_for(condition, timeout_s):
                raise AssertionError(f"not within {timeout_s:g} s: {what}; {self}")

    def __str__(self) -> str:
        return (
            f"feeder: sent {self.sent}, acknowledged {self.acknowledged}, resent {self.resent}, "
            f"connections {self.starts}, processes {self.pids}"
        )

    def await_acknowledged(self, count: int, timeout_s: float = WAIT_S) -> None:
        """Wait until `count` records more than now are acknowledged."""
        goal = self.acknowledged + count
        self.wait(f"{goal} acknowledged", lambda: self.acknowledged >= goal, timeout_s)

    def await_connection(self, number: int, timeout_s: float = WAIT_S) -> int:
        """Wait for the connection with this number, from 1; return its receiver's process."""
        self.wait(f"connection {number}", lambda: len(self.pids) >= number, timeout_s)
        return self.pids[number - 1]

    @property
    def is_connected(self) -> bool:
        """Whether the receiver of the last connection still has it."""
        return self._connection is not None

    def finish(self, timeout_s: float = WAIT_S) -> int:
        """Send nothing new and wait until all is acknowledged; return the number of records."""
        with self._changed:
            self._total = self.sent
            self._changed.notify_all()
        self.wait("all acknowledged", lambda: self.acknowledged >= self.sent, timeout_s)
        return self.sent

    def close(self) -> None:
        """End all connections and threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._shut(self._server)
        self._server.close()
        if self._connection is not None:
            self._shut(self._connection)
        for thread in self._threads:
            thread.join(WAIT_S)

    # -- threads -----------------------------------------------------------------------------------

    @staticmethod
    def _shut(connection: socket.socket) -> None:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            if self._connection is not None:
                self._shut(self._connection)
            self._connection = connection
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="feeder-connection", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            try:
                words = lines.readline().split()
            except OSError:
                return
            if len(words) != 3:
                return
            with self._changed:
                start = self.acknowledged if words[2] == b"-" else int(words[2])
                # What is below the position that is asked for is durable, although a receiver
                # that was killed could not say so any more.
                self.acknowledged = max(self.acknowledged, start)
                self.pids.append(int(words[1]))
                self.starts.append(start)
                self._changed.notify_all()
            sender = threading.Thread(
                target=self._send, args=(connection, start), name="feeder-sender", daemon=True
            )
            sender.start()
            try:
                for line in lines:
                    with self._changed:
                        self.acknowledged = max(self.acknowledged, int(line))
                        self._changed.notify_all()
            except (OSError, ValueError):
                # The receiver was killed in the middle of a line, or the connection was reset.
                pass
            self._shut(connection)
            with self._changed:
                if self._connection is connection:
                    self._connection = None
                self._changed.notify_all()
            sender.join(WAIT_S)

    def _send(self, connection: socket.socket, number: int) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda number=number: self._is_over(connection) or self._more(number) > number
                )
                if self._is_over(connection):
                    return
                end = min(self._more(number), number + 500)
                self.resent += max(0, min(end, self.sent) - number)
                self.sent = max(self.sent, end)
            try:
                connection.sendall(b"".join(self._line % n for n in range(number, end)))
            except OSError:
                return
            number = end

    def _is_over(self, connection: socket.socket) -> bool:
        return self._closed or connection is not self._connection or connection.fileno() < 0

    def _more(self, number: int) -> int:
        end = max(self.acknowledged, number - self._window) + self._window
        return end if self._total is None else min(end, self._total)
