"""Peers of a block server that speak its protocol by hand."""

from __future__ import annotations

import socket

from penstock.blockstore.reading.fetch import SERVICE
from penstock.wire import TAG_BYTES, ClientHandshake, Seals
from tests.bounds import HANG_S

WAIT_S = HANG_S
SECRET = bytes(range(32))


class SealingSocket(socket.socket):
    """A socket to a block server that knows how to make and check tags."""

    seals: Seals

    def send_sealed(self, *pieces: bytes) -> None:
        """Send each piece with its tag."""
        self.sendall(b"".join(piece + self.seals.outgoing.tag(piece) for piece in pieces))

    def receive_sealed(self, count: int) -> bytes:
        """Receive so many bytes and their tag."""
        data = receive(self, count)
        self.seals.incoming.check("server", receive(self, TAG_BYTES), data)
        return data


def connect(address: tuple[str, int], *, receive_buffer: int | None = None) -> SealingSocket:
    """Connect and prove `SECRET`."""
    peer = SealingSocket()
    if receive_buffer is not None:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    peer.settimeout(WAIT_S)
    peer.connect(address)
    handshake = ClientHandshake(SECRET, SERVICE, "server")
    while handshake.expects:
        peer.sendall(handshake.receive(receive(peer, handshake.expects)))
    peer.seals = handshake.seals()
    return peer


def receive(peer: socket.socket, count: int) -> bytes:
    """Receive exactly so many bytes; `EOFError` when there are fewer."""
    data = b""
    while len(data) < count:
        chunk = peer.recv(count - len(data))
        if not chunk:
            raise EOFError(f"closed after {len(data)} of {count} bytes")
        data += chunk
    return data
