"""`SocketReceiver`: lines of text from a TCP server."""

from __future__ import annotations

import socket
import threading
from typing import Any

from pyspark import StorageLevel

from penstock.errors import PenstockError
from penstock.receiver import Framing, Receiver

__all__ = ["SocketReceiver"]

CONNECT_TIMEOUT_S = 10.0
END_BOUND_S = 3.0


class SocketReceiver(Receiver):
    """Connects to ``host:port`` and stores each line of UTF-8 text as a `str`.

    It is the receiver of `socketTextStream`, after Spark's `SocketReceiver`
    (`SocketInputDStream.scala`). A line ends with LF, CR, or CR LF, as for Java's `readLine`;
    text after the last end is a line too when the server closes. Bytes that are not UTF-8 come
    out as U+FFFD. A line that is larger than a block is dropped and reported; it never grows
    memory.

    It holds no place in the source: what the server sent and this process had not stored when it
    was killed is lost, as in Spark. Use a source with positions or acknowledgements to have more.

    When the server cannot be reached, closes, or breaks the connection, it is connected to again
    after ``spark.streaming.receiverRestartDelay``, for ever, and the driver is told each time.

    Args:
        host: Name or address of the server.
        port: Its port.
        storageLevel: Which copies of a block must exist.
    """

    def __init__(
        self,
        host: str,
        port: int,
        storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_2,
    ) -> None:
        super().__init__(storageLevel)
        self.host = host
        self.port = port
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def onStart(self) -> None:
        """Start the thread that connects and receives."""
        self._thread = threading.Thread(
            target=self._receive, name=f"penstock-socket-{self.streamId}", daemon=True
        )
        self._thread.start()

    def onStop(self) -> None:
        """Break the connection, and with it the wait for data."""
        connection = self._socket
        if connection is not None:
            _shut_down(connection)
        if self._thread is not None:
            self._thread.join(END_BOUND_S)

    def _receive(self) -> None:
        try:
            connection = socket.create_connection((self.host, self.port), CONNECT_TIMEOUT_S)
        except OSError as error:
            # Refused, not reachable, or a name that is not known: all are tried again later.
            self.restart(f"Error connecting to {self.host}:{self.port}", error)
            return
        with connection:
            connection.settimeout(None)
            self._socket = connection
            try:
                self._receive_from(connection)
            except _StoppedError:
                return
            except OSError as error:
                self.restart("Error receiving data", error)
            except PenstockError as error:
                self.restart(f"Error storing what was received: {error}", error)
            else:
                self.restart("Socket data stream had no more data")
            finally:
                self._socket = None

    def _receive_from(self, connection: socket.socket) -> None:
        """Store lines until the server closes.

        Raises:
            _StoppedError: The receiver was stopped. The line that was cut by that is no record.
        """

        def receive_into(buffer: memoryview) -> int:
            if self.isStopped():
                raise _StoppedError
            try:
                size = connection.recv_into(buffer)
            except OSError:
                size = 0
                if not self.isStopped():
                    raise
            if size == 0 and self.isStopped():
                raise _StoppedError
            return size

        self.storeFrom(receive_into, Framing.LINES.value)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_socket": None, "_thread": None}


class _StoppedError(Exception):
    """Leaves the reading of a connection because the receiver was stopped."""


def _shut_down(connection: socket.socket) -> None:
    """Wake a thread that waits in `recv`; the connection may be gone already."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
