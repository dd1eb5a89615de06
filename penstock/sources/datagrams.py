"""`DatagramReceiver`: UDP and Unix datagrams, each one record.

What must hold
--------------

* A datagram is a record, whole; one that is larger than the limit is a dead letter.
* The protocol has no acknowledgement. What the kernel had no room for is lost, and counted and
  reported; what was in the open block when the process was killed is also lost.
* While `store` waits for the rate or a full queue nothing is read: the kernel's buffer fills, and
  then drops. Memory stays bounded.
* At a stop what has come is stored before the socket is closed.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import socket
import stat
import time
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import as_count, refused
from penstock.receiver import bound_socket, ports_of
from penstock.receiver.door import acknowledge_nothing
from penstock.sources._selecting import Datagrams, SelectingReceiver, set_receive_buffer
from penstock.wire.addresses import address_text

_log = logging.getLogger("penstock.sources.datagrams")

_AT_ONCE = 1024
_STEP_S = 1.0
_LAST_S = 2.0
_MOST_PATH_BYTES = 107
"""What ``sockaddr_un`` of Linux has room for (unix(7))."""

_COLUMNS = pa.schema(
    [
        pa.field("peer", pa.string(), nullable=False),
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)


class DatagramReceiver(SelectingReceiver):
    """Stores each datagram that comes to a UDP port, or to a Unix socket, as `bytes`.

    UDP has no acknowledgement: what the kernel dropped for want of room is counted and reported,
    and what had come within the last block interval when the process was killed is lost. A sender
    to a Unix socket waits while it is full, or gets an error.

    Args:
        port: The UDP port, 0 for any, or a range such as ``"9000-9009"``, of which the first is
            taken that is free. None: `path` is given.
        host: The address of the executor's host; ``"0.0.0.0"`` for all of them.
        path: The file of a Unix socket, which is made.
        columns: Whether ``peer``, ``time`` (when it was read) and ``value`` are stored as columns.
        maxDatagram: Bytes of a datagram; a larger one is a dead letter with its first bytes.
        receiveBuffer: Bytes that the kernel is asked to hold; it gives ``net.core.rmem_max`` at
            most unless the process may exceed that.
        share: Whether several receivers of a host take datagrams of one port (``SO_REUSEPORT``).
        storageLevel: Which copies of a block must exist.

    Raises:
        ValueError, TypeError: An argument is not accepted.
    """

    def __init__(
        self,
        port: int | str | None = None,
        host: str = "0.0.0.0",
        *,
        path: str | os.PathLike[str] | None = None,
        columns: bool = False,
        maxDatagram: int = 65_535,
        receiveBuffer: int = 8 << 20,
        share: bool = False,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(storageLevel)
        if (port is None) == (path is None):
            raise ValueError("a receiver of datagrams needs a port or a path, and not both")
        if port is not None:
            ports_of(port)
        self.port, self.host, self.share = port, host, share
        self.path = None if path is None else os.fspath(path)
        if self.path is not None and not (
            os.path.isabs(self.path) and len(os.fsencode(self.path)) <= _MOST_PATH_BYTES
        ):
            accepted = f"an absolute path of at most {_MOST_PATH_BYTES} bytes"
            raise ValueError(refused("path", path, accepted))
        self.columns = columns
        if columns:
            self.schema = _COLUMNS
        self.maxDatagram = as_count(maxDatagram, "maxDatagram", "bytes", least=1)
        self.receiveBuffer = as_count(receiveBuffer, "receiveBuffer", "bytes", least=1)

    def _listen(self, selector: selectors.BaseSelector) -> None:
        bound, name = self._open()
        try:
            with bound:
                given = set_receive_buffer(bound, self.receiveBuffer)
                if given < self.receiveBuffer:
                    _log.info(
                        "The kernel holds %d bytes of datagrams at %s, and not %d: "
                        "net.core.rmem_max is in the way",
                        given,
                        name,
                        self.receiveBuffer,
                    )
                datagrams = Datagrams(self, bound, name, self.maxDatagram)
                selector.register(bound, selectors.EVENT_READ)
                self.listening(name)
                while not self._stopped.is_set():
                    if selector.select(_STEP_S):
                        self._store_some(datagrams)
                    datagrams.count_dropped()
                end_s = time.monotonic() + _LAST_S
                while self._store_some(datagrams) and time.monotonic() < end_s:
                    pass
                datagrams.count_dropped()
        finally:
            if self.path is not None:
                with contextlib.suppress(OSError):
                    os.unlink(self.path)

    def _open(self) -> tuple[socket.socket, str]:
        if self.path is None:
            assert self.port is not None
            bound = bound_socket(self.host, self.port, socket.SOCK_DGRAM, share=self.share)
            return bound, f"udp://{address_text(*bound.getsockname()[:2])}"
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            _remove_stale(self.path)
            bound.bind(self.path)
        except OSError as error:
            bound.close()
            raise OSError(error.errno, f"{os.strerror(error.errno or 0)}: {self.path}") from error
        return bound, f"unix:{self.path}"

    def _store_some(self, datagrams: Datagrams) -> bool:
        """Store what has come; return whether there was something."""
        if not self.columns:
            count = 0
            for data, _ in datagrams.read(_AT_ONCE):
                self.store(data)
                count += 1
            return count > 0
        found = list(datagrams.read(_AT_ONCE))
        if found:
            values, peers = zip(*found, strict=True)
            times = pa.array([time.time_ns() // 1000] * len(found), _COLUMNS.field("time").type)
            arrays: list[Any] = [pa.array(peers), times, pa.array(values, pa.binary())]
            batch = pa.RecordBatch.from_arrays(arrays, schema=_COLUMNS)
            self.store(batch, ack=acknowledge_nothing)
        return bool(found)


def _remove_stale(path: str) -> None:
    """Remove the socket that a killed process left.

    Raises:
        OSError: It is in use, or something else.
    """
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), path)
