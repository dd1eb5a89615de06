"""`SocketReceiver` and its kind: lines, frames, or what a program makes of a TCP server's bytes."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, BinaryIO

from pyspark import StorageLevel

from penstock._arguments import as_host, as_port, refused
from penstock.errors import PenstockError, typed_text
from penstock.receiver.base import ReceiverContext
from penstock.receiver.blocks.framing import Framing
from penstock.receiver.door import ReceiverStoppedError
from penstock.receiver.forms.threaded import ThreadedReceiver
from penstock.receiver.validation import InvalidRecordError
from penstock.wire.addresses import address_text, bare_host

CONNECT_TIMEOUT_S = 10.0


class SocketReceiver(ThreadedReceiver):
    """Connects to ``host:port`` and stores each line of UTF-8 text as a `str`.

    It is the receiver of `socketTextStream`, after Spark's `SocketReceiver`
    (`SocketInputDStream.scala`). A line ends with LF, CR, or CR LF, as for Java's `readLine`;
    text after the last end is also a line when the server closes. Bytes that are not UTF-8 come out
    as U+FFFD. A line that is larger than a block is dropped and reported; it never grows memory.

    It holds no place in the source: what the server sent and this process had not stored when it
    was killed is lost, as in Spark. Use a source with positions or acknowledgements to have more.

    When the server cannot be reached, closes, or breaks the connection, it is connected to again
    after ``spark.streaming.receiverRestartDelay``, for ever, with a report to the driver each time.

    Args:
        host: Name or address of the server; one of IPv6 with brackets or without.
        port: Its port.
        storageLevel: Which copies of a block must exist; a level or its name.

    Raises:
        TypeError, ValueError: The host is no name, or the port no number from 1 to 65535.
    """

    _END_MESSAGE = "Socket data stream had no more data"

    def __init__(
        self,
        host: str,
        port: int,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(storageLevel)
        self.host = as_host(host, "hostname")
        self.port = as_port(port, "port")

    def _receive(self, context: ReceiverContext) -> bool:
        place = (bare_host(self.host), self.port)
        try:
            connection = socket.create_connection(place, CONNECT_TIMEOUT_S)
        except OSError as error:
            # Whatever it is, it is tried again later.
            self.restart(f"Error connecting to {address_text(*place)}: {_reason(error)}", error)
            return False
        with connection:
            connection.settimeout(None)
            self._interrupt_with(partial(_shut_down, connection))
            try:
                self._receive_from(connection)
            except ReceiverStoppedError:
                pass
            except OSError as error:
                self.restart("Error receiving data", error)
            except InvalidRecordError as error:
                self.restart(f"Error receiving data: {error}", error.__cause__ or error)
            except PenstockError as error:
                self.restart(f"Error storing what was received: {error}", error)
            else:
                self.restart(self._END_MESSAGE)
            finally:
                self._interrupt_with(None)
        return False

    def _receive_from(self, connection: socket.socket) -> None:
        """Store lines until the server closes.

        Raises:
            ReceiverStoppedError: It was stopped. The line that was cut by that is no record.
        """
        self.storeFrom(self._reader(connection), Framing.LINES.value)

    def _reader(self, connection: socket.socket) -> Callable[[memoryview], int]:
        """Return a function that reads, and leaves by `ReceiverStoppedError` at a stop."""

        def receive_into(buffer: memoryview) -> int:
            if self.isStopped():
                raise ReceiverStoppedError(self.streamId)
            try:
                size = connection.recv_into(buffer)
            except OSError:
                size = 0
                if not self.isStopped():
                    raise
            if size == 0 and self.isStopped():
                raise ReceiverStoppedError(self.streamId)
            return size

        return receive_into


class RawSocketReceiver(SocketReceiver):
    """Stores each frame that a TCP server sends as one `bytes`.

    A frame is its length, 4 bytes big-endian, and then that many bytes, as for Spark's
    `RawNetworkReceiver`, whose frames are blocks of serialized Java objects. Frames without bytes
    are records without bytes. A length that is negative or above the limit closes the connection;
    frames before it are stored. All else is as for `SocketReceiver`.

    Args:
        host: Name or address of the server.
        port: Its port.
        storageLevel: Which copies of a block must exist.
        max_frame_bytes: The limit.
    """

    _END_MESSAGE = "End of channel"

    def __init__(
        self,
        host: str,
        port: int,
        storageLevel: StorageLevel | str | None = None,
        max_frame_bytes: int = 1 << 30,
    ) -> None:
        super().__init__(host, port, storageLevel)
        self.max_frame_bytes = max_frame_bytes

    def _receive_from(self, connection: socket.socket) -> None:
        lengths = _LengthCheck(self._reader(connection), self.max_frame_bytes)
        self.storeFrom(lengths.read_into, Framing.LENGTH_PREFIX.value)


class ConvertingSocketReceiver(SocketReceiver):
    """Stores the records that a program's function makes of the bytes that a TCP server sends.

    What the function raises closes the connection, like an error of the connection itself.

    Args:
        host: Name or address of the server.
        port: Its port.
        converter: Called for each connection with a binary file that reads from it; yields
            records until the file ends. It runs in the executor.
        storageLevel: Which copies of a block must exist.
    """

    def __init__(
        self,
        host: str,
        port: int,
        converter: Callable[[BinaryIO], Iterable[Any]],
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(host, port, storageLevel)
        if not callable(converter):
            raise TypeError(refused("converter", converter, "a function of a binary file"))
        self.converter = converter

    def _receive_from(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            for record in self._convert(stream):
                if self.isStopped():
                    # The end of the file that the converter saw was made by the stop.
                    raise ReceiverStoppedError(self.streamId)
                self.store(record)
        if self.isStopped():
            raise ReceiverStoppedError(self.streamId)

    def _convert(self, stream: BinaryIO) -> Iterable[Any]:
        try:
            yield from self.converter(stream)
        except OSError:
            if self.isStopped():
                raise ReceiverStoppedError(self.streamId) from None
            raise
        except Exception as error:
            if self.isStopped():
                raise ReceiverStoppedError(self.streamId) from error
            raise InvalidRecordError(f"the converter failed: {typed_text(error)}") from error


class _LengthCheck:
    """Reads frames, looking at their lengths as they pass."""

    def __init__(self, read_into: Callable[[memoryview], int], limit: int) -> None:
        self._read_into = read_into
        self._limit = limit
        self._prefix = b""
        self._left = 0
        self._error: InvalidRecordError | None = None

    def read_into(self, buffer: memoryview) -> int:
        """Read what came, up to a length that is not accepted; raise when that is next."""
        size = 0 if self._error is not None else self._accepted(buffer, self._read_into(buffer))
        if size == 0 and self._error is not None:
            raise self._error
        return size

    def _accepted(self, buffer: memoryview, size: int) -> int:
        """Return how many bytes are before a length that is not accepted."""
        at = 0
        while at < size:
            if self._left:
                step = min(self._left, size - at)
                self._left -= step
                at += step
                continue
            begin = at
            at += min(4 - len(self._prefix), size - at)
            self._prefix += bytes(buffer[begin:at])
            if len(self._prefix) < 4:
                return size
            length = int.from_bytes(self._prefix, "big", signed=True)
            if not 0 <= length <= self._limit:
                self._error = InvalidRecordError(
                    f"a frame of {length} bytes is announced, and 0 to {self._limit} are accepted; "
                    "the sender does not write 4 bytes of length, big-endian, before each frame, "
                    "or spark.streaming.raw.maxBlockSizeBytes must be larger"
                )
                return begin
            self._prefix = b""
            self._left = length
        return size


def _reason(error: OSError) -> str:
    """Say why there is no connection, in words that say what to look at."""
    if isinstance(error, socket.gaierror):
        return f"host not found ({error.strerror}); look at its name and at DNS"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; the host is up, and nothing listens at that port"
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_TIMEOUT_S:g} s; the host is down, or a firewall drops it"
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return f"no way to that host ({error.strerror}); look at the network"
    return str(error)


def _shut_down(connection: socket.socket) -> None:
    """Wake a thread that waits in `recv`; the connection may be gone already."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
