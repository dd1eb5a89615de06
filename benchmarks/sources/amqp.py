"""RabbitMQ: messages a second by `AmqpReceiver`, beside a bare loop of the same client.

``python -m benchmarks.sources.amqp [messages]``. Durable classic queues and persistent messages
with ids. The bare loop has the same prefetch and acknowledges each hundred messages at once,
without storing.
"""

from __future__ import annotations

import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import pika

from benchmarks.sources.comparing import received_s, show
from penstock.sources.amqp import AmqpReceiver
from tests.services.rabbitmq import RabbitMQ

_MESSAGES = 50_000
_MOST = 5000
_AT_ONCE = 100


def main() -> None:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _MESSAGES
    count -= count % _AT_ONCE
    with tempfile.TemporaryDirectory() as folder, RabbitMQ(Path(folder)) as server:
        for size in (100, 1000):
            queues = [f"bare-{size}", f"received-{size}"]
            for queue in queues:
                server.declare(queue)
                _fill(server, queue, size, count)
            bare_s = _bare(server, queues[0], count)
            ours_s = _received(server, queues[1], count)
            show(f"{size} B", count, bare_s, ours_s)


def _fill(server: RabbitMQ, queue: str, size: int, count: int) -> None:
    connection = server.connection()
    channel = connection.channel()
    for _ in range(count):
        told = pika.BasicProperties(delivery_mode=2, message_id=uuid.uuid4().hex)
        channel.basic_publish("", queue, b"x" * size, told)
    connection.close()
    while server.ready(queue) < count:
        time.sleep(0.1)


def _bare(server: RabbitMQ, queue: str, count: int) -> float:
    began_s = time.perf_counter()
    connection = server.connection()
    channel = connection.channel()
    channel.basic_qos(prefetch_count=_MOST)

    def take(channel: Any, method: Any, properties: object, body: bytes) -> None:
        if method.delivery_tag % _AT_ONCE == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if method.delivery_tag == count:
            channel.stop_consuming()

    channel.basic_consume(queue, take)
    channel.start_consuming()
    connection.close()
    return time.perf_counter() - began_s


def _received(server: RabbitMQ, queue: str, count: int) -> float:
    receiver = AmqpReceiver(server.address, queue, prefetch=_MOST)
    return received_s(receiver, count)


if __name__ == "__main__":
    main()
