"""Internet addresses as text.

Spark writes an IPv6 address in brackets wherever it names a host (`Utils.addBracketsIfNeeded`);
sockets want it without. Inside, hosts are without; texts for people that have a port, with them.
"""

from __future__ import annotations

import ipaddress
import socket

__all__ = ["address_text", "bare_host", "is_within_host"]


def bare_host(host: str) -> str:
    """Return a host as sockets want it: ``[::1]`` without its brackets, all else as it is."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def address_text(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address (RFC 3986)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_within_host(connected: socket.socket) -> bool:
    """Return whether a connection leads to this very host, as its own kernel sees it.

    Raises:
        OSError: It is none any more.
    """
    own, other = connected.getsockname()[0], connected.getpeername()[0]
    if own == other:
        return True
    address = ipaddress.ip_address(other.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)  # What a socket for both families shows of IPv4.
    return (mapped or address).is_loopback
