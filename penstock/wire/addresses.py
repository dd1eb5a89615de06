"""Internet addresses: as text, and where a server listens.

Spark writes an IPv6 address in brackets wherever it names a host (`Utils.addBracketsIfNeeded`);
sockets want it without. Inside, hosts are without; texts for people that have a port, with them.

Which ports a server tries is the rule that Spark has for its own.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Iterator
from typing import Any

_FIRST, _COUNT = 1024, 65536 - 1024
"""The ports that need no privilege; a search that reaches the last goes on at the first."""

_FREE_PORT_TRIES = 16
"""How often any free port is tried: it may be taken at another address of the name."""

_BACKLOG = 1024
_Place = tuple[socket.AddressFamily, tuple[Any, ...]]
"""What `getaddrinfo` says of an address: its family, and what to bind a socket to."""

_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Errors of binding to an address that the name has, and this host does not."""


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


def ports_to_try(port: int, max_retries: int) -> Iterator[int]:
    """Yield the ports to try, one after the other (`Utils.startServiceOnPort` of Spark).

    Args:
        port: The first; 0 is any free one, which is tried once.
        max_retries: How many follow it. After 65535 comes 1024.
    """
    yield port
    if port:
        for offset in range(1, max_retries + 1):
            yield (port + offset - _FIRST) % _COUNT + _FIRST


def listen_in_range(host: str, port: int, max_retries: int) -> tuple[socket.socket, ...]:
    """Return listening sockets for the first port that is not taken; the caller closes them.

    A name may stand for several addresses, of IPv4 and of IPv6. There is a socket for each of
    them, and all have the same port: others learn only one. ``::`` stands for all addresses of the
    host, also of IPv4, as it does for Spark's own servers.

    Args:
        host: The address or name to listen at.
        port: The first port; 0 for any free one.
        max_retries: How many ports after it are tried while one is taken.

    Raises:
        OSError: All are taken (the last one's error), or something else is wrong with the address.
    """
    taken: OSError | None = None
    for candidate in ports_to_try(port, max_retries):
        try:
            return _bind_all(host, candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            taken = error
    if port and max_retries and taken is not None:
        more = f"and so are the {max_retries} ports after {port} (spark.port.maxRetries)"
        raise OSError(errno.EADDRINUSE, f"{taken.strerror}, {more}") from taken
    assert taken is not None
    raise taken


def _bind_all(host: str, port: int) -> tuple[socket.socket, ...]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    places: list[_Place] = list(dict.fromkeys((family, place) for family, _, _, _, place in found))
    tries = 1 if port else _FREE_PORT_TRIES
    while True:
        tries -= 1
        try:
            return _bind(places)
        except OSError as error:
            # The port that was free at the first address was taken at another one.
            if error.errno != errno.EADDRINUSE or not tries:
                raise


def _bind(places: list[_Place]) -> tuple[socket.socket, ...]:
    with contextlib.ExitStack() as opened:
        sockets: list[socket.socket] = []
        missing: OSError | None = None
        for family, (address, port, *scope) in places:
            if sockets:
                port = sockets[0].getsockname()[1]
            try:
                made = opened.enter_context(_bound(family, (address, port, *scope)))
            except OSError as error:
                if error.errno not in _NO_SUCH_ADDRESS:
                    raise
                missing = error
            else:
                sockets.append(made)
        if not sockets and missing is not None:
            raise missing
        opened.pop_all()
    return tuple(sockets)


def _bound(family: socket.AddressFamily, place: tuple[Any, ...]) -> socket.socket:
    # The protocol is named, because asyncio turns Nagle's algorithm off only where it is.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # A server that is started again need not wait until old connections are forgotten.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, place[0] != "::")
        made.bind(place)
        # Until it listens, others that do not listen yet could have the same place.
        made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    return made
