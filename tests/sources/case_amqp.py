"""`AmqpReceiver` on a RabbitMQ that the cases share."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from penstock.sources.amqp import AmqpReceiver
from tests.services.rabbitmq import RabbitMQ
from tests.services.shared import until_the_end
from tests.sources.cases import SECRET, Source, SourceCase

MOST = 20


@cache
def shared_server() -> RabbitMQ:
    """Return the server of this process."""
    folder = Path(until_the_end.enter_context(tempfile.TemporaryDirectory()))
    server = RabbitMQ(folder, f"default_pass = {SECRET}", "default_user = user")
    until_the_end.callback(server.stop)
    return server


class AmqpSource(Source):
    def __init__(self, server: RabbitMQ, queue: str) -> None:
        self._server = server
        self._queue = queue
        self._sent = 0
        self.port = server.port

    def receiver(self, port: int, secret: str = SECRET) -> object:
        return AmqpReceiver(
            f"amqp://127.0.0.1:{port}",
            self._queue,
            username="user",
            password=secret,
            heartbeat_s=2,
            prefetch=MOST,
        )

    def send(self, payloads: Sequence[bytes]) -> None:
        self._server.publish(self._queue, payloads)
        self._sent += len(payloads)

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def unacknowledged(self) -> int:
        # Nothing is acknowledged while the tests ask this.
        return self._sent - self._server.ready(self._queue)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[Source]:
    server = shared_server()
    if not server.is_running:
        server.start()
    queue = uuid.uuid4().hex
    server.declare(queue)
    yield AmqpSource(server, queue)


CASES = [
    # Quorum queues: `test_amqp`. After a kill of the only node they need a minute to come back.
    SourceCase(
        "amqp",
        _opened,
        "exactly once",
        refusal="ACCESS_REFUSED",
        most_unacknowledged=MOST,
        notices_stalls=True,
    )
]
