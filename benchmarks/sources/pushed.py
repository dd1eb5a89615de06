"""Pushed messages a second by `WebSocketReceiver` and `ServerSentEventsReceiver`.

``python -m benchmarks.sources.pushed [messages]``. Beside each is a bare loop of the same client,
and for events the same parser, that only counts. The server is a process of its own that sends
bytes which were made before, as fast as they are taken.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import multiprocessing
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
from websockets.asyncio.client import connect

from benchmarks.sources.comparing import received_s, show
from penstock.receiver import bound_socket
from penstock.sources.server_sent import EventStreamParser, ServerSentEventsReceiver
from penstock.sources.websocket import WebSocketReceiver

_MESSAGES = 200_000
_AT_ONCE = 100
_START_S = 60.0
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTEXT = multiprocessing.get_context("spawn")


def main() -> None:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _MESSAGES
    for size in (100, 1000):
        with _server(size, count) as port:
            events = asyncio.run(_bare_events(port, count))
            ours = received_s(ServerSentEventsReceiver(f"http://127.0.0.1:{port}/"), count)
            show(f"server-sent events, {size} B", count, events, ours)
            messages = asyncio.run(_bare_messages(port, count))
            ours = received_s(WebSocketReceiver(f"ws://127.0.0.1:{port}/"), count)
            show(f"WebSocket, {size} B", count, messages, ours)


async def _bare_events(port: int, count: int) -> float:
    began_s = time.perf_counter()
    parser = EventStreamParser(1 << 20)
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/") as got:
        while count > 0:
            for _ in parser.feed(await got.content.readany()):
                count -= 1
    return time.perf_counter() - began_s


async def _bare_messages(port: int, count: int) -> float:
    began_s = time.perf_counter()
    async with connect(f"ws://127.0.0.1:{port}/") as connection:
        for _ in range(count):
            await connection.recv()
        return time.perf_counter() - began_s


@contextmanager
def _server(size: int, count: int) -> Iterator[int]:
    with bound_socket("127.0.0.1", 0) as bound:
        is_ready = _CONTEXT.Event()
        process = _CONTEXT.Process(target=_serve, args=(bound, size, count, is_ready))
        process.start()
        try:
            is_ready.wait(_START_S)
            yield int(bound.getsockname()[1])
        finally:
            process.kill()
            process.join()


def _serve(bound: Any, size: int, count: int, is_ready: Any) -> None:
    event = b"data: " + b"x" * size + b"\n\n"
    frame = (b"\x82" + bytes([size]) if size < 126 else b"\x82\x7e" + size.to_bytes(2, "big")) + (
        b"x" * size
    )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if key := re.search(rb"(?i)sec-websocket-key: (\S+)", head):
            accept = base64.b64encode(hashlib.sha1(key[1] + _MAGIC).digest())  # RFC 6455
            writer.write(b"HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
            writer.write(b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        chunk = (frame if key else event) * _AT_ONCE
        for _ in range(0, count, _AT_ONCE):
            writer.write(chunk)
            await writer.drain()
        await reader.read()
        writer.close()

    async def serve() -> None:
        await asyncio.start_server(answer, sock=bound)
        is_ready.set()
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
