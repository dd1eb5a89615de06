"""Redis: entries a second by the receivers, beside bare loops of the same client.

``python -m benchmarks.sources.redis [entries]``. A bare loop takes what a receiver takes, and
acknowledges or removes it at once, without storing. Both are timed until the last one is there.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from benchmarks.sources.comparing import received_s, show
from penstock.sources.redis import RedisListReceiver, RedisStreamReceiver
from tests.services.redis import RedisServer

_ENTRIES = 200_000
_AT_ONCE = 1000


def main() -> None:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _ENTRIES
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder))
        server.start()
        try:
            with redis.Redis.from_url(server.address) as client:
                for size in (100, 1000):
                    _compare(client, server.address, size, count)
        finally:
            server.stop()


def _compare(client: Any, address: str, size: int, count: int) -> None:
    stream = RedisStreamReceiver(address, "stream", "received", field="value")
    listed = RedisListReceiver(address, "list")
    cases: list[tuple[str, Callable[[Any, int], None], object]] = [
        ("stream", _bare_stream, stream),
        ("list", _bare_list, listed),
    ]
    for name, bare, receiver in cases:
        _fill(client, name, size, count)
        began_s = time.perf_counter()
        bare(client, count)
        bare_s = time.perf_counter() - began_s
        if name == "list":
            _fill(client, name, size, count)
        ours_s = received_s(receiver, count)
        show(f"{name}, {size} B", count, bare_s, ours_s)


def _fill(client: Any, name: str, size: int, count: int) -> None:
    client.flushall()
    for first in range(0, count, _AT_ONCE):
        with client.pipeline(transaction=False) as sending:
            for _ in range(min(_AT_ONCE, count - first)):
                if name == "list":
                    sending.rpush("list", b"x" * size)
                else:
                    sending.xadd("stream", {"value": b"x" * size})
            sending.execute()


def _bare_stream(client: Any, count: int) -> None:
    client.xgroup_create("stream", "bare", "0")
    while count:
        ((_, entries),) = client.xreadgroup("bare", "me", {"stream": ">"}, count=_AT_ONCE)
        client.xack("stream", "bare", *(each for each, _ in entries))
        count -= len(entries)


def _bare_list(client: Any, count: int) -> None:
    while count:
        with client.pipeline(transaction=False) as moves:
            for _ in range(_AT_ONCE):
                moves.lmove("list", "own", "LEFT", "RIGHT")
            moved = [each for each in moves.execute() if each is not None]
        client.ltrim("own", len(moved), -1)
        count -= len(moved)


if __name__ == "__main__":
    main()
