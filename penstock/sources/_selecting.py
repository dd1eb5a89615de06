"""What receivers that listen have in common: one thread over their sockets, which a stop wakes."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.errors import text_of
from penstock.receiver import ReceiverContext, ReceiverStoppedError
from penstock.receiver.forms.threaded import ThreadedReceiver
from penstock.sources._urls import trusting
from penstock.wire.addresses import address_text

_SO_MEMINFO = 55
_SO_RCVBUFFORCE = 33
"""Not in Python's `socket`: from ``asm-generic/socket.h`` of Linux."""
_MEMINFO = struct.Struct("=9I")
_DROPS = 8
"""``SK_MEMINFO_DROPS`` of ``linux/sock_diag.h``."""
_WRAP = 1 << 32
_TELL_S = 10.0


class SelectingReceiver(ThreadedReceiver, ABC):
    """A receiver whose `_listen` waits for sockets, and returns soon after it was stopped.

    The stop wakes the selector.
    """

    STOP_BOUND_S = 5.0

    def onStart(self) -> None:
        """Start the thread that listens."""
        self._told: dict[str, tuple[float, int]] = {}
        super().onStart()

    def _receive(self, context: ReceiverContext) -> bool:
        woken, waker = socket.socketpair()
        with woken, waker, selectors.DefaultSelector() as selector:
            selector.register(woken, selectors.EVENT_READ)
            self._interrupt_with(partial(_wake, waker))
            if not context.stopped.is_set():
                try:
                    self._listen(selector)
                except ReceiverStoppedError:
                    pass
                except OSError as error:
                    if not context.stopped.is_set():
                        self.restart(f"Error listening: {text_of(error)}", error)
        return False

    @abstractmethod
    def _listen(self, selector: selectors.BaseSelector) -> None:
        """Register sockets, and receive until the receiver stops."""

    def _tell(self, kind: str, message: str, count: int = 1) -> None:
        """Report something, once in a while with how often it was meanwhile."""
        now_s = time.monotonic()
        told_s, untold = self._told.get(kind, (-_TELL_S, 0))
        if now_s < told_s + _TELL_S:
            self._told[kind] = told_s, untold + count
            return
        self._told[kind] = now_s, 0
        more = f" ({untold} more since the last report)" if untold else ""
        self.reportError(f"{message}{more}")


def _wake(waker: socket.socket) -> None:
    with contextlib.suppress(OSError):
        waker.send(b"x")


class Datagrams:
    """Reads what a socket of datagrams has.

    Args:
        receiver: Is notified of what the kernel dropped.
        bound: The socket.
        name: Names it for people.
        most_bytes: How large a datagram may be.

    Attributes:
        dropped: How many datagrams the kernel dropped since the socket had no room for them.
    """

    def __init__(
        self, receiver: SelectingReceiver, bound: socket.socket, name: str, most_bytes: int
    ) -> None:
        bound.setblocking(False)
        self.dropped = 0
        self._receiver = receiver
        self._socket = bound
        self._name = name
        self._buffer = bytearray(most_bytes + 1)
        self._view = memoryview(self._buffer)
        self._most = most_bytes
        self._seen = 0

    def read(self, most: int) -> Iterator[tuple[bytes, str]]:
        """Yield datagrams that have come, at most that many, each with its sender."""
        for _ in range(most):
            try:
                size, sender = self._socket.recvfrom_into(self._view)
            except BlockingIOError:
                return
            peer = sender_text(sender)
            data = bytes(self._view[:size])
            if size > self._most:
                self._receiver.discard(
                    data, f"a datagram of {peer} is larger than {self._most} bytes and was cut"
                )
                continue
            yield data, peer

    def count_dropped(self) -> None:
        """Report what the kernel dropped since the last call."""
        found = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        counter = _MEMINFO.unpack(found)[_DROPS]
        new = (counter - self._seen) % _WRAP
        self._seen = counter
        if not new:
            return
        self.dropped += new
        self._receiver._tell(
            f"dropped at {self._name}",
            f"The kernel dropped {new} datagrams at {self._name}, {self.dropped} since the start: "
            "they come faster than they are stored. A larger net.core.rmem_max and receiveBuffer "
            "hold a longer burst",
            new,
        )


def sender_text(sender: Any) -> str:
    """Return the address of a peer for people; empty for a Unix socket without a name."""
    if isinstance(sender, tuple):
        return address_text(sender[0], sender[1])
    return os.fsencode(sender or "").decode(errors="replace")


def set_receive_buffer(bound: socket.socket, size: int) -> int:
    """Ask for a receive buffer; return what the kernel gives."""
    try:  # beyond net.core.rmem_max, for users who may do that
        bound.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size)
    except PermissionError:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    # The kernel doubles it, for its own account of each datagram.
    return bound.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2


@dataclass(frozen=True)
class ServerTls:
    """What a server does TLS with: files on the executor's host.

    Raises:
        ValueError: There is no certificate, and something that is for one.
    """

    certificate: str | None
    private_key: str | None
    client_authorities: str | None

    def __post_init__(self) -> None:
        """Check that others come with a certificate only."""
        if self.certificate is None and (self.private_key or self.client_authorities):
            raise ValueError("privateKey and clientAuthorities are for a server with a certificate")

    def context(self) -> ssl.SSLContext | None:
        """Return the server's context; None: it does no TLS.

        Raises:
            OSError: A file cannot be read, or holds something else; it names all of them.
        """
        if self.certificate is None:
            return None
        purpose = ssl.Purpose.CLIENT_AUTH
        return trusting(self.client_authorities, self.certificate, self.private_key, purpose)
