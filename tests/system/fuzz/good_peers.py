"""Those who use the attacked application as they should, all the time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import msgspec

from penstock.blockstore.reading._remote import fetch_from_host
from penstock.blockstore.reading.fetch import fetch
from penstock.wire.messages import (
    AddBlock,
    BlockServerAt,
    FindBlockServer,
    Ok,
    ReceivedBlockInfo,
    Registered,
    RegisterReceiver,
)
from tests.bounds import HANG_S
from tests.system.fuzz.application import HOST, Application
from tests.system.fuzz.target import GOOD

BOUND_S = HANG_S
"""Of each answer. It is far more than an answer takes, for the machine may be busy."""
_PAUSE_S = 0.005


class GoodPeers:
    """A receiver that adds blocks, and a reader of blocks, each on a thread of its own.

    Args:
        application: Whose peers they are.

    Attributes:
        added: Blocks that were acknowledged.
        read: Blocks that were read and right.
        slowest_s: The longest that an answer took.
    """

    def __init__(self, application: Application) -> None:
        self.added = 0
        self.read = 0
        self.slowest_s = 0.0
        self._application = application
        self._over = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"good-{work.__name__}")
            for work in (self._receive, self._read)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        """Raise what one of them ran into."""
        if self._errors:
            raise AssertionError("a good peer was disturbed") from self._errors[0]

    def wait_for_more(self) -> None:
        """Wait until both have got more."""
        added, read = self.added, self.read
        end_s = time.monotonic() + 2 * BOUND_S
        while self.added == added or self.read == read:
            self.check()
            assert time.monotonic() < end_s, "a good peer got no answer"
            self._over.wait(0.01)

    def stop(self) -> None:
        """End both."""
        self._over.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(2 * BOUND_S)
                assert not thread.is_alive(), f"{thread.name} hangs"

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it travels to the fuzzer
            self._errors.append(error)

    def _receive(self) -> None:
        attempt = self._application.attempts[GOOD]
        hello = RegisterReceiver(GOOD, attempt, "Source", HOST, "1", 1)
        client = self._application.client(self._application.tracker, hello)
        with contextlib.closing(client):
            client.connect()
            registered = client.ask(hello, BOUND_S)
            assert isinstance(registered, Registered), registered
            number = registered.first_block_number
            while not self._over.wait(_PAUSE_S):
                block = self._block(number)
                begun_s = time.monotonic()
                answer = client.ask(AddBlock(GOOD, attempt, (block,)), BOUND_S)
                assert answer == Ok(), answer
                found = client.ask(FindBlockServer(HOST), BOUND_S)
                assert found == BlockServerAt(self._application.server, True), found
                self.slowest_s = max(self.slowest_s, time.monotonic() - begun_s)
                number += 1
                self.added += 1
            # One connection carried it all: it was never cut.
            assert client.connections == 1

    def _block(self, number: int) -> ReceivedBlockInfo:
        like, _ = self._application.blocks[0]
        return msgspec.structs.replace(
            like,
            block_id=f"input-{GOOD}-{number}",
            attempt=self._application.attempts[GOOD],
            position=number.to_bytes(8, "big"),
        )

    def _read(self) -> None:
        tls = self._application.tls
        while not self._over.wait(_PAUSE_S):
            info, payload = self._application.blocks[self.read % len(self._application.blocks)]
            begun_s = time.monotonic()
            if self.read % 10:
                context = tls.client_context() if tls else None
                server, secret = self._application.server, self._application.secret
                found = fetch(server, secret, info, BOUND_S, ssl_context=context)
            else:
                access = self._application.access(knows_server=False)
                found = fetch_from_host(info, access)
            assert bytes(found) == payload, f"block {info.block_id} is wrong"
            self.slowest_s = max(self.slowest_s, time.monotonic() - begun_s)
            self.read += 1
