"""Peers of a block server that speak its protocol by hand."""

from __future__ import annotations

import socket

from penstock.blockstore._fetch import SERVICE
from penstock.wire import ClientHandshake

WAIT_S = 30.0
SECRET = bytes(range(32))


def connect(address: tuple[str, int], *, receive_buffer: int | None = None) -> socket.socket:
    """Connect and prove `SECRET`."""
    peer = socket.socket()
    if receive_buffer is not None:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    peer.settimeout(WAIT_S)
    peer.connect(address)
    handshake = ClientHandshake(SECRET, SERVICE, "server")
    while handshake.expects:
        peer.sendall(handshake.receive(receive(peer, handshake.expects)))
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
