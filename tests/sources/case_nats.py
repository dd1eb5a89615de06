"""NATS JetStream: a stream with a durable consumer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nats.js.errors import NotFoundError

from penstock.sources.nats import NatsReceiver
from tests.services.nats import NatsServer, make_server
from tests.sources.cases import SECRET, Source, SourceCase

MOST_PENDING = 100


class NatsSource(Source):
    """A server of its own, with one stream."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.port = server.port
        server.start()
        server.do(lambda js: js.add_stream(name="orders", subjects=["orders.>"]))

    def receiver(self, port: int, secret: str = SECRET) -> object:
        return NatsReceiver(
            f"nats://user:{secret}@127.0.0.1:{port}",
            "orders",
            "reader",
            ack_wait_s=1.5,
            max_pending=MOST_PENDING,
            options={"ping_interval": 1},
        )

    def send(self, payloads: Sequence[bytes]) -> None:
        async def send(js: Any) -> None:
            for payload in payloads:
                await js.publish("orders.new", payload)

        self.server.do(send)

    def kill(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self.server.start()

    def unacknowledged(self) -> int:
        async def ask(js: Any) -> int:
            try:
                return int((await js.consumer_info("orders", "reader")).num_ack_pending)
            except NotFoundError:
                return 0

        return self.server.do(ask)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[NatsSource]:
    server = make_server(folder, SECRET)
    try:
        yield NatsSource(server)
    finally:
        server.stop()


CASES = [
    SourceCase(
        "nats",
        _opened,
        "exactly once",
        refusal="authorization failed|Authorization Violation",
        most_unacknowledged=MOST_PENDING,
        notices_stalls=True,
        largest_bytes=1 << 20,
    )
]
