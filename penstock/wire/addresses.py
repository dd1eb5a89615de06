"""Internet addresses as text.

Spark writes an IPv6 address in brackets wherever it names a host (`Utils.addBracketsIfNeeded`);
sockets want it without. Inside, hosts are without; texts for people that have a port, with them.
"""

from __future__ import annotations

__all__ = ["address_text", "bare_host"]


def bare_host(host: str) -> str:
    """Return a host as sockets want it: ``[::1]`` without its brackets, all else as it is."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def address_text(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address (RFC 3986)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
