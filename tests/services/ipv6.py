"""Whether this machine speaks IPv6."""

from __future__ import annotations

import socket

import pytest

__all__ = ["needs_ipv6"]


def ipv6_is_impossible() -> bool:
    """Return whether nothing can listen at IPv6's loopback here."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return True
    return False


needs_ipv6 = pytest.mark.skipif(ipv6_is_impossible(), reason="platform: no IPv6 on loopback")
