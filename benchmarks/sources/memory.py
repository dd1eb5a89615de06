"""Memory of a receiver behind which 100,000 messages wait, beside the same with 100.

``python -m benchmarks.sources.memory [messages]``. Each case is a process of its own, which takes
all messages; every 20 ms it is looked at how much it has in memory, and the most is printed: what
is its own, and that with the pages of its block store, which a setting bounds.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import redis

from benchmarks.sources import amqp, nats, postgres
from benchmarks.sources import redis as redis_figures
from penstock.sources.amqp import AmqpReceiver
from penstock.sources.mqtt import MqttReceiver
from penstock.sources.nats import NatsReceiver
from penstock.sources.postgres import PostgresReceiver
from penstock.sources.redis import RedisStreamReceiver
from penstock.testing import run_receiver
from tests.services.mosquitto import Mosquitto
from tests.services.nats import make_server
from tests.services.postgres import postgres_server
from tests.services.rabbitmq import RabbitMQ
from tests.services.redis import RedisServer

_FEW, _MANY = 100, 100_000
_AT_ONCE = 10_000
"""MQTT's client has at most 65,535 under way."""
_EVERY_S = 0.02
_BOUND_S = 1800.0
_CONTEXT = multiprocessing.get_context("spawn")

Feed = Callable[[int, int], object]
"""Makes so many messages of such a size wait, and returns a receiver of them."""


def main() -> None:
    """Print the figures."""
    many = int(sys.argv[1]) if len(sys.argv) > 1 else _MANY
    for name, source in SOURCES.items():
        with tempfile.TemporaryDirectory() as folder, source(Path(folder)) as feed:
            for size in (100, 1000):
                few = _most_mib(feed(size, _FEW), _FEW)
                found = _most_mib(feed(size, many), many)
                shown = ", ".join(
                    f"{what} {more:,.0f} MiB beside {less:,.0f} ({more / less:.2f})"
                    for what, more, less in zip(("own", "all"), found, few, strict=True)
                )
                print(f"{name}, {size} B: {shown}", flush=True)


def _most_mib(receiver: object, count: int) -> tuple[float, float]:
    """Return the most that a process had in memory: of its own, and in all."""
    with _CONTEXT.Pool(1) as pool:
        return pool.apply(_receive, (receiver, count))


def _receive(receiver: object, count: int) -> tuple[float, float]:
    most = [0.0, 0.0]
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_EVERY_S):
            status = Path("/proc/self/status").read_text()
            lines = dict(line.split(":", 1) for line in status.splitlines())
            for at, name in enumerate(("RssAnon", "VmRSS")):
                most[at] = max(most[at], int(lines[name].split()[0]) / 1024)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        with run_receiver(receiver) as running:
            driver = running._driver
            running._wait_for(lambda: driver.count >= count, _BOUND_S, "last record")
    finally:
        ended.set()
        looking.join()
    return most[0], most[1]


@contextmanager
def _mqtt(folder: Path) -> Iterator[Feed]:
    with Mosquitto(folder, "max_inflight_messages 1000", "log_type error") as broker:

        def feed(size: int, count: int) -> object:
            topic = f"size/{size}/{count}"
            name = topic.replace("/", "-")
            broker.make_session(name, topic, 1)
            for _ in range(0, count, _AT_ONCE):
                broker.publish(topic, *[b"x" * size] * min(count, _AT_ONCE))
            return MqttReceiver(broker.address, topic, client_id=name)

        yield feed


@contextmanager
def _amqp(folder: Path) -> Iterator[Feed]:
    with RabbitMQ(folder) as server:

        def feed(size: int, count: int) -> object:
            queue = f"{size}-{count}"
            server.declare(queue)
            amqp._fill(server, queue, size, count)
            return AmqpReceiver(server.address, queue)

        yield feed


@contextmanager
def _nats(folder: Path) -> Iterator[Feed]:
    server = make_server(folder)
    server.start()

    def feed(size: int, count: int) -> object:
        stream = f"s{size}-{count}"
        server.do(partial(_nats_fill, stream=stream, size=size, count=count))
        return NatsReceiver(server.address, stream, "received")

    try:
        yield feed
    finally:
        server.stop()


async def _nats_fill(js: Any, stream: str, size: int, count: int) -> None:
    await nats._fill(js, stream, size, count)


@contextmanager
def _redis(folder: Path) -> Iterator[Feed]:
    server = RedisServer(folder)
    server.start()

    def feed(size: int, count: int) -> object:
        with redis.Redis.from_url(server.address) as client:
            redis_figures._fill(client, "stream", size, count)
        return RedisStreamReceiver(server.address, "stream", "received", field="value")

    try:
        yield feed
    finally:
        server.stop()


@contextmanager
def _postgres(folder: Path) -> Iterator[Feed]:
    with postgres_server(max_wal_size="8GB") as server:

        def feed(size: int, count: int) -> object:
            postgres._fill(server, size, max(count, postgres._A_TRANSACTION))
            return PostgresReceiver(server.conninfo(), "typed_rows", "rows", rows=postgres._TYPED)

        yield feed


SOURCES = {"MQTT": _mqtt, "AMQP": _amqp, "NATS": _nats, "Redis": _redis, "PostgreSQL": _postgres}


if __name__ == "__main__":
    main()
