"""A server over a fed model, and plain ways to ask it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.monitor.web.access import Access
from penstock.monitor.web.exchange import Answer, Request
from penstock.monitor.web.server import Bounds, WebServer
from tests.bounds import HANG_S

WAIT_S = HANG_S
"""A bound for what must happen, not an expectation of when."""


def get(path: str, **headers: str) -> Request:
    """Return a request as a browser on this host sends it."""
    named = {"Host": "localhost:4140", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return Request.of("GET", path, named, b"")


def post(path: str, body: object, **headers: str) -> Request:
    named = {"Host": "localhost:4140", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return Request.of("POST", path, named, json.dumps(body).encode())


def read(answer: Answer | None) -> Any:
    """Return the JSON of an answer that went well."""
    assert answer is not None
    assert answer.status == 200, answer.body
    assert isinstance(answer.body, bytes)
    return json.loads(answer.body)


def text(answer: Answer | None) -> str:
    assert answer is not None
    assert isinstance(answer.body, bytes)
    return answer.body.decode().strip()


@contextlib.contextmanager
def serving(
    answer: Callable[[Request], Answer],
    bounds: Bounds | None = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[WebServer]:
    """Serve on a free port of this host."""
    server = WebServer("127.0.0.1", iter([0]), answer, bounds=bounds, tls=tls)
    server.start()
    try:
        yield server
    finally:
        server.stop(WAIT_S)


def connect(server: WebServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), WAIT_S)


def ask(
    server: WebServer,
    path: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> tuple[int, bytes, Mapping[str, str]]:
    """Ask it over a connection of its own; return status, body and headers."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def until(condition: Callable[[], Any], bound_s: float = WAIT_S) -> Any:
    """Wait for what is true, and return it."""
    end_s = time.monotonic() + bound_s
    while not (found := condition()):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    return found


def raw(server: WebServer, sent: bytes) -> bytes:
    """Send bytes as they are; return what comes until the connection ends."""
    found = b""
    with connect(server) as connection, contextlib.suppress(ConnectionResetError):
        # The server may have ended it already.
        with contextlib.suppress(OSError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(1 << 16):
            found += part
    return found


def open_access(**options: Any) -> Access:
    return Access(is_open=True, **options)
