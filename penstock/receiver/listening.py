"""Where a receiver listens: its sockets, and its addresses as others use them.

A port is a number, ``0`` for any free one, or a range, whose first free port is taken.
"""

from __future__ import annotations

import errno
import re
import socket

from penstock._arguments import refused
from penstock.wire.addresses import bare_host

_BACKLOG = 1024
_HIGHEST = 65535
_HOST = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<host>(?:0\.0\.0\.0|\[::\])(?=[:/]|$)|(?=:\d))"
)


def ports_of(port: int | str) -> range:
    """Return the ports that a receiver may listen at.

    Args:
        port: A number from 0 to 65535, where 0 is any free one, or a range: ``"8000-8010"``.

    Raises:
        ValueError, TypeError: It is something else.
    """
    accepted = 'a port (0 to 65535, 0 for any free one), or a range such as "8000-8010"'
    if isinstance(port, bool) or not isinstance(port, (int, str)):
        raise TypeError(refused("port", port, accepted))
    found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", str(port))
    if found is not None:
        first, last = int(found[1]), int(found[2] or found[1])
        if first <= last <= _HIGHEST and (first > 0 or last == 0):
            return range(first, last + 1)
    raise ValueError(refused("port", port, accepted))


def bound_socket(
    host: str, port: int | str, kind: socket.SocketKind = socket.SOCK_STREAM, *, share: bool = False
) -> socket.socket:
    """Return a socket that is bound to the first free port; one of a stream also listens.

    Args:
        host: An address of this host, or its name; ``"0.0.0.0"`` or ``"::"`` for all.
        port: See `ports_of`.
        kind: ``SOCK_STREAM`` or ``SOCK_DGRAM``.
        share: Whether other sockets that also say so may have the same port (``SO_REUSEPORT``): the
            kernel deals connections and datagrams out to them.

    Raises:
        OSError: All ports are taken, or the address is none of this host. It names them.
        ValueError, TypeError: The port is not accepted.
    """
    ports = ports_of(port)
    named = bare_host(host) or "0.0.0.0"  # none stands for all, as for a client's URL
    try:
        found = socket.getaddrinfo(named, None, type=kind, flags=socket.AI_PASSIVE)
    except OSError as error:
        where = f"port {port} of {host}"
        raise OSError(error.errno, f"cannot listen at {where}: {error.strerror}") from None
    family, _, _, _, place = found[0]
    for candidate in ports:
        made = socket.socket(family, kind)
        try:
            if share:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if kind == socket.SOCK_STREAM:
                # One that is started again need not wait until old connections are forgotten.
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((place[0], candidate, *place[2:]))
            if kind == socket.SOCK_STREAM:
                made.listen(_BACKLOG)
        except OSError as error:
            made.close()
            is_last = candidate == ports[-1]
            if error.errno != errno.EADDRINUSE or is_last:
                where = f"port {port} of {host}"
                raise OSError(error.errno, f"cannot listen at {where}: {error.strerror}") from None
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise AssertionError("no port was tried")


def reachable(address: str, host: str) -> str:
    """Return an address for others: a host that means all addresses here becomes this host's name.

    Args:
        address: Such as ``http://0.0.0.0:8080/``.
        host: The name of this host.
    """
    named = f"[{host}]" if ":" in host else host
    return _HOST.sub(lambda found: f"{found['scheme']}{named}", address, count=1)
