"""What `ClientSession` does with any client, here with none at all."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from penstock.sources._client_session import ClientReceiver, ClientSession
from penstock.sources._urls import trusting
from penstock.testing import run_receiver
from tests.bounds import HANG_S


class _Broken(ClientSession[bytes]):
    def serve(self) -> None:
        raise ValueError("no such thing")

    def wake(self) -> None:
        return

    def store(self, messages: list[bytes]) -> None:
        raise AssertionError


class _BrokenReceiver(ClientReceiver):
    extra = "none"

    def _begin(self) -> ClientSession[Any]:
        return _Broken(self, "server of a test", 10)


def test_a_client_that_fails_at_once_is_reported_with_its_error_only() -> None:
    receiver = _BrokenReceiver("MEMORY_ONLY")
    with run_receiver(receiver, settings={"spark.streaming.receiverRestartDelay": "1"}) as running:
        end_s = time.monotonic() + HANG_S
        while len(running.errors) < 8:
            assert time.monotonic() < end_s
            time.sleep(0.01)
        (told,) = {error.split(";")[0].split(" (")[0] for error in running.errors}
        assert told == "Error in _BrokenReceiver of receiver 0: ValueError: no such thing"


class _Windowed(ClientSession[int]):
    """Gives ten messages, and further ones when those are acknowledged."""

    def serve(self) -> None:
        self.connected()
        acknowledged: SimpleQueue[int] = self.receiver.acknowledged  # type: ignore[attr-defined]
        for first in range(0, 100, 10):
            for number in range(first, first + 10):
                self.hand_over(number)
            taken = 0
            while taken < 10 and not self.ended.is_set():
                with suppress(Empty):
                    taken += acknowledged.get(timeout=0.1)
        self.ended.wait()

    def wake(self) -> None:
        return

    def store(self, messages: list[int]) -> None:
        acknowledged: SimpleQueue[int] = self.receiver.acknowledged  # type: ignore[attr-defined]
        self.receiver.store(messages, ack=partial(acknowledged.put, len(messages)))


class _WindowedReceiver(ClientReceiver):
    extra = "none"

    def _begin(self) -> ClientSession[Any]:
        self.acknowledged: SimpleQueue[int] = SimpleQueue()
        return _Windowed(self, "server of a test", 10)


def test_a_server_that_waits_for_acknowledgements_waits_for_no_block_interval() -> None:
    with run_receiver(
        _WindowedReceiver("MEMORY_ONLY"), settings={"spark.streaming.blockInterval": "1h"}
    ) as running:
        assert running.wait_for_records(100) == list(range(100))


@pytest.mark.parametrize("name", ["authorities", "certificate"])
def test_a_file_of_certificates_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    missing, broken = tmp_path / "missing.pem", tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for path in (missing, broken):
        with pytest.raises(OSError, match=rf"TLS with {path}: \S"):
            trusting(**{"authorities": None, name: str(path)})
