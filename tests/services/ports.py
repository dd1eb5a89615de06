"""Ports for services that must know theirs before they start."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LEAST = 10_000


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nothing listens at.

    They are none of those that the kernel gives to whoever connects: a service may take a minute
    until it listens, and meanwhile any connection of this machine could get its port.
    """
    given_from = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 0
    found: list[int] = []
    while len(found) < count:
        if given_from - _LEAST < 1000:
            port = 0
        else:
            port = random.SystemRandom().randrange(_LEAST, given_from)
        try:
            with socket.create_server(("127.0.0.1", port)) as free:
                port = free.getsockname()[1]
        except OSError:
            continue
        if port not in found:
            found.append(port)
    return found
