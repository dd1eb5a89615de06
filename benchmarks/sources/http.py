"""HTTP: requests a second and MB/s by `HttpReceiver`, beside a bare handler of the same server.

``python -m benchmarks.sources.http [seconds]``. 64 connections send one record a request; four send
lines of JSON, 1 MB a request. The bare handler reads the body, of lines also looks through it with
the parser that the receiver has, and answers at once. The load is one process with a loop over its
sockets, on both sides, and each server is a process of its own; the receiver's log is forced to the
disk.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
import numpy as np
from aiohttp import web

from benchmarks.sources.comparing import running, wait_for
from penstock.receiver import bound_socket
from penstock.sources.http import HttpReceiver

_SECONDS = 10.0
_LINE = b'{"id": 123456, "name": "a name of some length", "value": 1.25, "tags": ["a", "b"]}\n'
_LINES = _LINE * ((1 << 20) // len(_LINE))
_SETTINGS = {"spark.penstock.memory.size": "512m"}
_CONTEXT = multiprocessing.get_context("spawn")


def main() -> None:
    """Print the figures."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else _SECONDS
    cases = [
        ("one record of 100 B", b"x" * 100, "application/octet-stream", 64),
        ("one record of 1 kB", b"x" * 1000, "application/octet-stream", 64),
        ("lines, 1 MB", _LINES, "application/x-ndjson", 4),
    ]
    for name, body, kind, connections in cases:
        with _bare_server() as port:
            bare = _load(port, body, kind, connections, seconds)
        with running(HttpReceiver(0, "127.0.0.1"), _SETTINGS) as driver:
            wait_for(driver, lambda: bool(driver.addresses), "address")
            port = int(driver.addresses[0].rstrip("/").rpartition(":")[2])
            ours = _load(port, body, kind, connections, seconds)
        print(f"{name}: bare {_shown(bare, body)}; ours {_shown(ours, body)}", end="")
        print(f"; {len(ours) / len(bare):.2f}")


def _shown(took_s: list[float], body: bytes) -> str:
    rate = len(took_s) / took_s[0]
    p50, p99 = np.percentile(took_s[1:], [50, 99]) * 1000
    speed = f"{rate:,.0f} requests/s, {rate * len(body) / 1e6:,.1f} MB/s"
    return f"{speed}, p50 {p50:.1f}, p99 {p99:.1f} ms"


@contextmanager
def _bare_server() -> Iterator[int]:
    with bound_socket("127.0.0.1", 0) as bound:
        process = _CONTEXT.Process(target=_serve, args=(bound,))
        process.start()
        try:
            yield int(bound.getsockname()[1])
        finally:
            process.kill()
            process.join()


def _serve(bound: Any) -> None:
    scan = msgspec.json.Decoder(msgspec.Raw)

    async def answer(request: web.BaseRequest) -> web.Response:
        body = b"".join([chunk async for chunk in request.content.iter_any()])
        if request.content_type == "application/x-ndjson":
            scan.decode_lines(body)
        return web.json_response({})

    async def serve() -> None:
        server = web.Server(answer, access_log=None)
        await asyncio.get_running_loop().create_server(server, sock=bound)
        await asyncio.Event().wait()

    asyncio.run(serve())


def _load(port: int, body: bytes, kind: str, connections: int, seconds: float) -> list[float]:
    """Return the seconds of all, and then those of each answer."""
    found: Any = _CONTEXT.Queue()
    process = _CONTEXT.Process(target=_send, args=(port, body, kind, connections, seconds, found))
    process.start()
    took: list[float] = found.get()
    process.join()
    return took


def _send(port: int, body: bytes, kind: str, connections: int, seconds: float, found: Any) -> None:
    head = (
        f"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    took: list[float] = []
    with selectors.DefaultSelector() as selector, ExitStack() as opened:
        clients = {
            client.fileno(): client
            for client in (
                opened.enter_context(socket.create_connection(("127.0.0.1", port)))
                for _ in range(connections)
            )
        }
        began_s = time.perf_counter()
        sent_s = {}
        for number, client in clients.items():
            selector.register(number, selectors.EVENT_READ)
            sent_s[number] = time.perf_counter()
            client.sendall(request)
        while sent_s:
            for key, _ in selector.select():
                answer = clients[key.fd].recv(1 << 16)
                assert answer.startswith(b"HTTP/1.1 200 "), answer
                assert answer.endswith(b"{}"), answer
                now_s = time.perf_counter()
                took.append(now_s - sent_s.pop(key.fd))
                if now_s < began_s + seconds:
                    sent_s[key.fd] = now_s
                    clients[key.fd].sendall(request)
        found.put([time.perf_counter() - began_s, *took])


if __name__ == "__main__":
    main()
