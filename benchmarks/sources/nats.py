"""NATS JetStream: messages a second by `NatsReceiver`, beside a bare loop of the same client.

``python -m benchmarks.sources.nats [messages]``. The bare loop fetches and acknowledges, without
storing. Both are timed until the last message is there.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nats.js.api import AckPolicy, ConsumerConfig

from benchmarks.sources.comparing import received_s, show
from penstock.sources.nats import NatsReceiver
from tests.services.nats import NatsServer, make_server

_MESSAGES = 100_000
_AT_ONCE = 1000


def main() -> None:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _MESSAGES
    with tempfile.TemporaryDirectory() as folder:
        server = make_server(Path(folder))
        server.start()
        try:
            for size in (100, 1000):
                stream = f"s{size}"
                server.do(lambda js, stream=stream, size=size: _fill(js, stream, size, count))
                bare_s = server.do(lambda js, stream=stream: _bare(js, stream, count))
                ours_s = _received(server, stream, count)
                show(f"{size} B", count, bare_s, ours_s)
        finally:
            server.stop()


async def _fill(js: Any, stream: str, size: int, count: int) -> None:
    await js.add_stream(name=stream, subjects=[stream])
    for _ in range(count):
        await js.publish_async(stream, b"x" * size)
    await js.publish_async_completed()


async def _bare(js: Any, stream: str, count: int) -> float:
    config = ConsumerConfig(
        durable_name="bare", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=20_000
    )
    await js.add_consumer(stream, config)
    subscription = await js.pull_subscribe_bind("bare", stream)
    began_s = time.perf_counter()
    while count:
        messages = await subscription.fetch(min(_AT_ONCE, count))
        for message in messages:
            await message.ack()
        count -= len(messages)
    return time.perf_counter() - began_s


def _received(server: NatsServer, stream: str, count: int) -> float:
    return received_s(NatsReceiver(server.address, stream, "received"), count)


if __name__ == "__main__":
    main()
