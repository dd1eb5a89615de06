"""Ports for services that must know theirs before they start."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nothing listens at."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
