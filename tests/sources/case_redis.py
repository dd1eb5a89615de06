"""Redis and Valkey: a stream, a list and a channel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import redis

from penstock.sources.redis import RedisChannelReceiver, RedisListReceiver, RedisStreamReceiver
from tests.bounds import HANG_S
from tests.services.redis import RedisServer, make_server
from tests.sources.cases import SECRET, Source, SourceCase

MOST_PENDING = 100
OPTIONS = {"socket_timeout": 2.0}


class RedisSource(Source):
    """A server of its own, with one key."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.port = server.port
        server.start()

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, password=SECRET, socket_timeout=HANG_S)

    def url(self, port: int, secret: str) -> str:
        return f"redis://:{secret}@127.0.0.1:{port}/0"

    def kill(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self.server.start()


class StreamSource(RedisSource):
    def receiver(self, port: int, secret: str = SECRET) -> object:
        return RedisStreamReceiver(
            self.url(port, secret),
            "stream",
            "group",
            field="value",
            claim_after_s=2,
            max_pending=MOST_PENDING,
            options=OPTIONS,
        )

    def send(self, payloads: Sequence[bytes]) -> None:
        with self.client as client, client.pipeline(transaction=False) as sending:
            for payload in payloads:
                sending.xadd("stream", {"value": payload})
            sending.execute()

    def unacknowledged(self) -> int:
        with self.client as client:
            return int(client.xpending("stream", "group")["pending"])


class ListSource(RedisSource):
    def receiver(self, port: int, secret: str = SECRET) -> object:
        return RedisListReceiver(
            self.url(port, secret),
            "list",
            processing="own",
            max_pending=MOST_PENDING,
            options=OPTIONS,
        )

    def send(self, payloads: Sequence[bytes]) -> None:
        with self.client as client:
            client.rpush("list", *payloads)

    def unacknowledged(self) -> int:
        with self.client as client:
            return client.llen("own")


class ChannelSource(RedisSource):
    def receiver(self, port: int, secret: str = SECRET) -> object:
        return RedisChannelReceiver(self.url(port, secret), "channel", options=OPTIONS)

    def send(self, payloads: Sequence[bytes]) -> None:
        with self.client as client:
            for payload in payloads:
                client.publish("channel", payload)

    def wait_until_heard(self) -> None:
        with self.client as client:
            while not client.pubsub_numsub("channel")[0][1]:
                pass


def _opened(kind: Callable[[RedisServer], Source]) -> Callable[[Path], object]:
    @contextlib.contextmanager
    def opened(folder: Path) -> Iterator[Source]:
        server = make_server(folder, SECRET, keeps=True)
        try:
            yield kind(server)
        finally:
            server.stop()

    return opened


REFUSAL = "invalid username-password pair"
CASES = [
    SourceCase(
        "redis-stream",
        _opened(StreamSource),
        "exactly once",
        refusal=REFUSAL,
        most_unacknowledged=MOST_PENDING,
        notices_stalls=True,
    ),
    SourceCase(
        "redis-list",
        _opened(ListSource),
        "exactly once",
        refusal=REFUSAL,
        most_unacknowledged=MOST_PENDING,
        notices_stalls=True,
    ),
    SourceCase("redis-channel", _opened(ChannelSource), None, refusal=REFUSAL),
]
