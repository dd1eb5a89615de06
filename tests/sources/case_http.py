"""What comes over HTTP: requests that a receiver answers, and messages that it asks for."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from penstock.sources.http import HttpReceiver
from penstock.sources.server_sent import ServerSentEventsReceiver
from penstock.sources.websocket import WebSocketReceiver
from tests.bounds import HANG_S
from tests.services.ports import free_ports
from tests.services.pushing import PushServer
from tests.sources.cases import SECRET, Source, SourceCase

SILENCE_S = 2.0
_CLIENTS = 16


class HttpSource(Source):
    """A client that sends each message until it is answered, by a key of its own."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self._keys = itertools.count()
        self._is_over = False

    def receiver(self, port: int, secret: str = SECRET) -> object:
        return HttpReceiver(port, "127.0.0.1", token=secret)

    def send(self, payloads: Sequence[bytes]) -> None:
        with ThreadPoolExecutor(_CLIENTS) as clients:
            list(clients.map(self._send, payloads))

    def _send(self, payload: bytes) -> None:
        key = str(next(self._keys))
        headers = {"Idempotency-Key": key, "Authorization": f"Bearer {SECRET}"}
        while not self._is_over and self._post(payload, headers) not in (200, 401):
            time.sleep(0.02)

    def _post(self, payload: bytes, headers: dict[str, str]) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        with contextlib.closing(connection):
            try:
                connection.request("POST", "/", payload, headers)
                return connection.getresponse().status
            except (OSError, http.client.HTTPException):
                return 0

    def close(self) -> None:
        self._is_over = True


class PushSource(Source):
    def __init__(self, folder: Path, make: Callable[[int, dict[str, str]], object]) -> None:
        self._make = make
        self._server = PushServer(folder, SECRET)
        self.port = self._server.port
        self._server.start()

    def receiver(self, port: int, secret: str = SECRET) -> object:
        return self._make(port, {"Authorization": f"Bearer {secret}"})

    def send(self, payloads: Sequence[bytes]) -> None:
        self._server.send(payloads)

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.stop()


def events(port: int, headers: dict[str, str]) -> ServerSentEventsReceiver:
    url = f"http://127.0.0.1:{port}/events"
    return ServerSentEventsReceiver(url, headers=headers, silence=SILENCE_S)


def messages(port: int, headers: dict[str, str]) -> WebSocketReceiver:
    def url(after: Any) -> str:
        return f"ws://127.0.0.1:{port}/socket?after={after or 0}"

    return WebSocketReceiver(
        url,
        position=lambda message: int(message.partition(b" ")[0]),
        records=lambda message: [message.partition(b" ")[2]],
        headers=headers,
        pingTimeout=SILENCE_S / 2,
    )


@contextlib.contextmanager
def http_source(_: Path) -> Iterator[HttpSource]:
    with contextlib.closing(HttpSource()) as source:
        yield source


@contextlib.contextmanager
def push_source(
    make: Callable[[int, dict[str, str]], object], folder: Path
) -> Iterator[PushSource]:
    with contextlib.closing(PushSource(folder, make)) as source:
        yield source


CASES = [
    SourceCase("http", http_source, "exactly once", connects=False, refusal="401"),
    SourceCase(
        "server-sent-events",
        partial(push_source, events),
        "exactly once",
        refusal="answered 401",
        notices_stalls=True,
    ),
    SourceCase(
        "websocket",
        partial(push_source, messages),
        "exactly once",
        refusal="HTTP 401",
        notices_stalls=True,
    ),
]
