"""The simplest source, whose receivers are as those that come with the project should be."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.receiver import ReceiverContext
from penstock.sources._common import Reconnecting
from tests.services.frames import MOST_UNACKNOWLEDGED, FrameServer
from tests.sources.cases import SECRET, Source, SourceCase

SILENCE_S = 20.0
"""On a busy machine the server, or the disk before an acknowledgement, is silent for seconds."""


class FrameReceiver:
    """Stores the messages of a `FrameServer`, and acknowledges them."""

    def __init__(self, port: int, secret: str, has_positions: bool) -> None:
        self.port = port
        self._secret = secret
        self._has_positions = has_positions
        self._source: socket.socket | None = None

    def run(self, ctx: ReceiverContext) -> None:
        again = Reconnecting(ctx.reportError, f"server of frames at port {self.port}")
        self._next = (ctx.last_position or 0) + 1
        while not ctx.stopped.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self.port), SILENCE_S) as source:
                    source.settimeout(SILENCE_S)
                    self._source = source
                    self._read(ctx, source, again)
            except OSError as error:
                if not ctx.stopped.is_set():
                    ctx.stopped.wait(again.failed(error))

    def _read(self, ctx: ReceiverContext, source: socket.socket, again: Reconnecting) -> None:
        source.sendall(f"{self._secret} {self._next if self._has_positions else 0}\n".encode())
        with source.makefile("rb") as file:
            if (said := file.readline()) == b"refused\n":
                raise PermissionError("the server refuses the secret")
            if said:
                again.connected()
            while line := file.readline():
                number, length = map(int, line.split())
                payload = file.read(length)
                if len(payload) < length:
                    break

                def acknowledge(number: int = number) -> None:
                    with contextlib.suppress(OSError):  # A broken connection is noticed above.
                        source.sendall(b"ack %d\n" % number)

                ctx.store(payload, number if self._has_positions else None, acknowledge)
                self._next = number + 1
        raise ConnectionError("the server closed the connection")

    def stop(self) -> None:
        if self._source is not None:
            with contextlib.suppress(OSError):
                self._source.shutdown(socket.SHUT_RDWR)


class FrameSource(Source):
    def __init__(self, folder: Path, has_positions: bool) -> None:
        self._has_positions = has_positions
        self._server = FrameServer(folder, SECRET)
        self.port = self._server.port
        self.start()

    def receiver(self, port: int, secret: str = SECRET) -> object:
        return FrameReceiver(port, secret, self._has_positions)

    def send(self, payloads: Sequence[bytes]) -> None:
        self._server.send(payloads)

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def unacknowledged(self) -> int:
        return self._server.unacknowledged()


def _opened(has_positions: bool) -> object:
    @contextlib.contextmanager
    def opened(folder: Path) -> Iterator[FrameSource]:
        source = FrameSource(folder, has_positions)
        try:
            yield source
        finally:
            source.kill()

    return opened


CASES = [
    SourceCase(
        name,
        _opened(name == "frames-positions"),
        claim,
        refusal="refuses the secret",
        most_unacknowledged=MOST_UNACKNOWLEDGED,
        notices_stalls=True,
    )
    for name, claim in (
        ("frames", "at least once"),
        ("frames-positions", "exactly once"),
    )
]
