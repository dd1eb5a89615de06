"""A server that pushes numbered messages, as server-sent events and over a WebSocket.

It is a process of its own, of another library than the WebSocket's client. What is sent to it is in
a file before it is answered, so it has all of it again after SIGKILL.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from tests.bounds import HANG_S
from tests.services.process import ServerProcess

_KEEP_ALIVE_S = 0.2


class PushServer(ServerProcess):
    """One server; its port and its messages stay the same when it is started again.

    Args:
        folder: An empty folder.
        secret: What a client must give as ``Authorization: Bearer``.
    """

    def __init__(self, folder: Path, secret: str) -> None:
        super().__init__(folder)
        command = [sys.executable, "-m", "tests.services.pushing", str(self.port)]
        self.command = [*command, str(folder / "messages"), secret]

    def send(self, payloads: Sequence[bytes]) -> None:
        """Give it messages."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        with contextlib.closing(connection):
            body = json.dumps([payload.decode("latin-1") for payload in payloads])
            connection.request("POST", "/", body)
            assert connection.getresponse().status == 200


class _Pushing:
    def __init__(self, file: Path, secret: str) -> None:
        self._file = file
        self._wanted = f"Bearer {secret}"
        self._messages: list[bytes] = []
        if file.exists():
            for line in file.read_text().splitlines():
                self._messages += [text.encode("latin-1") for text in json.loads(line)]
        self._came = asyncio.Condition()

    async def take(self, request: web.Request) -> web.Response:
        texts = json.loads(await request.text())
        with open(self._file, "a") as file:
            file.write(json.dumps(texts) + "\n")
            file.flush()
            os.fsync(file.fileno())
        async with self._came:
            self._messages += [text.encode("latin-1") for text in texts]
            self._came.notify_all()
        return web.Response()

    def _check(self, request: web.Request) -> None:
        if request.headers.get("Authorization") != self._wanted:
            raise web.HTTPUnauthorized

    async def _more_after(self, number: int) -> Sequence[bytes]:
        async with self._came:
            with contextlib.suppress(asyncio.TimeoutError):
                more = self._came.wait_for(lambda: len(self._messages) > number)
                await asyncio.wait_for(more, _KEEP_ALIVE_S)
        return self._messages[number : number + 100]

    async def events(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        number = int(request.headers.get("Last-Event-ID", "0"))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"retry: 10\n\n")
        while True:
            found = await self._more_after(number)
            parts = [b"" if found else b": keep-alive\n\n"]
            for message in found:
                number += 1
                lines = b"".join(b"data: %b\n" % line for line in message.split(b"\n"))
                parts.append(b"id: %d\n%b\n" % (number, lines))
            await response.write(b"".join(parts))

    async def socket(self, request: web.Request) -> web.WebSocketResponse:
        self._check(request)
        number = int(request.query["after"])
        response = web.WebSocketResponse(compress=False)
        await response.prepare(request)
        reading = asyncio.ensure_future(self._read(response))
        while not response.closed:
            for message in await self._more_after(number):
                number += 1
                await response.send_bytes(b"%d %b" % (number, message))
        reading.cancel()
        return response

    @staticmethod
    async def _read(response: web.WebSocketResponse) -> None:
        async for _ in response:
            pass


async def _serve(port: int, file: Path, secret: str) -> None:
    pushing = _Pushing(file, secret)
    application = web.Application(client_max_size=1 << 30)
    application.router.add_post("/", pushing.take)
    application.router.add_get("/events", pushing.events)
    application.router.add_get("/socket", pushing.socket)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
