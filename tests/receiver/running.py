"""Running a receiver for a test: the real path, and a small tracker on a real server.

The tracker here keeps what it is told and hands out block numbers; the real one is tested in its
own room. It answers `AddBlock` at once unless a test says otherwise.
"""

from __future__ import annotations

import os
import pickle
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
from pyspark import StorageLevel, cloudpickle

from penstock.receiver import BlockLogs, Receiver, ReceiverLaunch, as_receiver, run_receiver
from penstock.settings import Settings
from penstock.testing.driver import read_back
from penstock.wire import ApplicationLink, Peer, Reply, Server
from penstock.wire.messages import (
    AddBlock,
    BlockServerRegistered,
    DeregisterReceiver,
    Message,
    Ok,
    ReceivedBlockInfo,
    Refused,
    RegisterBlockServer,
    Registered,
    RegisterReceiver,
    ReportError,
    ReportRateStatus,
    StopReceiver,
)
from tests.bounds import HANG_S

WAIT_S = HANG_S
"""No wait of a test is longer: a bound, not an expectation."""

M = TypeVar("M", bound=Message)


class Tracker:
    """The driver's side of one stream."""

    def __init__(self) -> None:
        self.secret = os.urandom(32)
        self.changed = threading.Condition()
        self.rate_reports: list[ReportRateStatus] = []
        self.messages: list[Message] = []
        self.blocks: list[ReceivedBlockInfo] = []
        self.peer: Peer | None = None
        self.block_server: Peer | None = None
        self.position: bytes | None = None
        self.answer: Callable[[Message], Message | None] = lambda message: None
        """A test may answer in the place of this tracker."""
        self._attempts: dict[str, int] = {}
        self.server = Server(ApplicationLink(self.secret), self)
        self.address = self.server.start()

    def on_message(self, peer: Peer, message: Message) -> Reply:
        with self.changed:
            if isinstance(message, ReportRateStatus):
                self.rate_reports.append(message)
                self.changed.notify_all()
                return None
            self.messages.append(message)
            if isinstance(message, RegisterReceiver):
                self.peer = peer
            if isinstance(message, RegisterBlockServer):
                self.block_server = peer
            reply = self.answer(message)
            if reply is None:
                reply = self._answer(message)
            self.changed.notify_all()
            return reply

    def _answer(self, message: Message) -> Message | None:
        if isinstance(message, RegisterReceiver):
            attempt = self._attempts.setdefault(message.attempt, len(self._attempts) + 1)
            return Registered(attempt << 32, self.position, None)
        if isinstance(message, AddBlock):
            for block in message.blocks:
                if block.block_id not in [known.block_id for known in self.blocks]:
                    self.blocks.append(block)
                    self.position = block.position or self.position
        if isinstance(message, RegisterBlockServer):
            return BlockServerRegistered(WAIT_S)
        return None if isinstance(message, ReportError) else Ok()

    def on_disconnect(self, peer: Peer) -> None:
        with self.changed:
            if peer is self.block_server:
                self.block_server = None
            self.changed.notify_all()

    def of(self, kind: type[M]) -> list[M]:
        with self.changed:
            return [message for message in self.messages if isinstance(message, kind)]

    def wait_for(self, condition: Callable[[], Any]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_S), self.messages

    def wait_for_count(self, kind: type[Message], count: int) -> None:
        self.wait_for(lambda: len(self.of(kind)) >= count)

    def send(self, message: Message) -> None:
        assert self.peer is not None
        self.peer.send(message)

    def records(self) -> list[Any]:
        """Read back every reported block."""
        with self.changed:
            blocks = list(self.blocks)
        return read_back(blocks)

    def wait_for_records(self, count: int) -> list[Any]:
        self.wait_for(lambda: sum(block.num_records for block in self.blocks) >= count)
        return self.records()

    @property
    def attempts(self) -> list[str]:
        """The attempts, in the order in which they registered."""
        return list(self._attempts)

    def last_position(self) -> Any:
        return None if self.position is None else msgspec.msgpack.decode(self.position)


class Running:
    """One attempt of a receiver, run in a thread of this process as a Spark task would run it."""

    def __init__(
        self,
        receiver: object,
        tracker: Tracker,
        folder: Path,
        settings: Settings,
        *,
        ensure_block_server: Callable[[ReceiverLaunch], None] = lambda launch: None,
        **changes: Any,
    ) -> None:
        self.error: BaseException | None = None
        self._ensure_block_server = ensure_block_server
        self.launch = replace(make_launch(receiver, tracker, folder, settings), **changes)
        self._thread = threading.Thread(target=self._run, name="penstock-test-task", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            run_receiver(self.launch, ensure_block_server=self._ensure_block_server)
        except BaseException as error:  # noqa: BLE001 - what the task raises is what a test asks
            self.error = error

    def join(self) -> BaseException | None:
        """Wait for the end of the task; return what it raised."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the receiver did not end"
        return self.error


def make_launch(
    receiver: object, tracker: Tracker, folder: Path, settings: Settings
) -> ReceiverLaunch:
    """Return the launch of an attempt."""
    pickled = receiver if isinstance(receiver, bytes) else cloudpickle.dumps(as_receiver(receiver))
    level = StorageLevel.MEMORY_AND_DISK
    return ReceiverLaunch(
        stream_id=3,
        attempt=uuid.uuid4().hex,
        receiver=pickled,
        link=ApplicationLink(tracker.secret, tracker.address),
        settings=settings,
        logs=BlockLogs(str(folder / "blocks"), "none", application_id="app-test"),
        storage_level=ReceiverLaunch.storage_level_tuple(level),
    )


class Shared:
    """What a receiver under test and its test share: the object is pickled, the registry is not."""

    _all: ClassVar[dict[str, Shared]] = {}

    def __init__(self) -> None:
        self.key = uuid.uuid4().hex
        self.changed = threading.Condition()
        self.events: list[Any] = []
        self.receiver: Any = None
        self.go = threading.Event()
        Shared._all[self.key] = self

    def __reduce__(self) -> tuple[Callable[[str], Shared], tuple[str]]:
        return Shared._find, (self.key,)

    @staticmethod
    def _find(key: str) -> Shared:
        return Shared._all[key]

    def say(self, event: Any) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def wait_for(self, event: Any, count: int = 1) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.events.count(event) >= count, WAIT_S), (
                self.events
            )


__all__ = [
    "WAIT_S",
    "DeregisterReceiver",
    "Receiver",
    "Refused",
    "Running",
    "Shared",
    "StopReceiver",
    "Tracker",
    "pickle",
]
