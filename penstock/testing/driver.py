"""`TestDriver`: the driver's side of one stream, in memory."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from pyspark import StorageLevel, cloudpickle

from penstock.blockstore import BlockAccess, read_block
from penstock.errors import PenstockError, SettingError
from penstock.host.receiver_arguments import check_picklable
from penstock.position_changes import StandingPosition
from penstock.receiver import BlockLogs, ReceiverLaunch, as_receiver
from penstock.receiver.splits import names_of
from penstock.settings import Settings
from penstock.wire import ApplicationLink, Peer, PendingReply, Reply, Server
from penstock.wire.messages import (
    AddBlock,
    DeregisterReceiver,
    Message,
    Ok,
    ReceivedBlockInfo,
    Refused,
    Registered,
    RegisterReceiver,
    ReportAddresses,
    ReportDropped,
    ReportError,
    ReportRateStatus,
    StopReceiver,
)

_STREAM = 0
_STEP_S = 0.2


class ReceiverTestError(PenstockError, AssertionError):
    """What a test waited for did not come, or a receiver did not end."""


def read_back(blocks: Iterable[ReceivedBlockInfo]) -> list[Any]:
    """Return the records of blocks of this host, in their order."""
    found: list[Any] = []
    for info in blocks:
        with read_block(info, BlockAccess()) as block:
            found.extend(block.records())
    return found


class TestDriver:
    """Takes what a receiver reports, as a driver does, and keeps it in the order of the stream.

    `changed` guards all of it.

    Attributes:
        blocks: What was reported, each block once.
        errors: The errors that the receiver reported, with tracebacks.
        addresses: Where the receiver listens.
        events: ``registered`` for each attempt, ``deregistered: <why>`` for its end.
        dropped: How many records each attempt dropped.
        failed_for_good: Why no attempt can work, as the receiver reported; None: it did not.
    """

    __test__ = False  # It is no test, whatever its name begins with.

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        """Listen.

        Args:
            folder: Where logs go.
            settings: Settings of the receiver, by their keys.

        Raises:
            SettingError: One has an unknown key, or a value that it does not accept.
        """
        self.folder = folder
        self.changed = threading.Condition()
        self.blocks: list[ReceivedBlockInfo] = []
        self.errors: list[str] = []
        self.events: list[str] = []
        self.addresses: tuple[str, ...] = ()
        self.dropped: dict[str, int] = {}
        self.failed_for_good: str | None = None
        for key in settings:
            if not key.startswith("spark."):
                accepted = "keys begin with spark.; `penstock settings` lists all"
                raise SettingError(key, str(settings[key]), accepted)
        pairs = {"spark.penstock.memory.size": "64m", **settings}
        self.settings = replace(
            Settings.from_pairs([(key, str(value)) for key, value in pairs.items()]),
            memory_dir=str(folder),
        )
        self._known: set[str] = set()
        self._position = StandingPosition()
        self._starts = 0
        self._splits: tuple[str, ...] | None = None
        self._attempt = ""
        self._peer: Peer | None = None
        self._is_held = False
        self._waiting: list[PendingReply] = []
        self._secret = os.urandom(32)
        self._server = Server(ApplicationLink(self._secret), self)
        self._address = self._server.start()

    def launch(self, receiver: object) -> ReceiverLaunch:
        """Return all that one attempt of a receiver needs; the one before is over."""
        with self.changed:
            self._peer = None
        adapted = as_receiver(receiver)
        check_picklable(adapted, type(receiver).__name__, _STREAM)
        # It is alone, and has them all.
        kind, splits = adapted._receiver_type(), adapted.splits
        if splits is not None and adapted._has_splits_alone:
            self._splits = names_of(kind, splits())
        return ReceiverLaunch(
            stream_id=_STREAM,
            attempt=uuid.uuid4().hex,
            receiver=cloudpickle.dumps(adapted),  # type: ignore[no-untyped-call]
            link=ApplicationLink(self._secret, self._address),
            settings=self.settings,
            logs=BlockLogs(
                str(self.folder / "receivedData"), "always", application_id="penstock-testing"
            ),
            storage_level=ReceiverLaunch.storage_level_tuple(StorageLevel.MEMORY_AND_DISK),
        )

    # -- what a receiver asks --------------------------------------------------------------------

    def on_message(self, peer: Peer, message: Message) -> Reply:
        """Answer a message of the receiver."""
        with self.changed:
            try:
                return self._answer(peer, message)
            finally:
                self.changed.notify_all()

    def _answer(self, peer: Peer, message: Message) -> Reply:
        if isinstance(message, RegisterReceiver):
            self._peer = peer
            self._starts += 1
            self._attempt = message.attempt
            self.events.append("registered")
            return Registered(self._starts << 32, self._position.value, None, splits=self._splits)
        if isinstance(message, AddBlock):
            if message.attempt != self._attempt:
                # Of a process that was killed: the next one has begun without it.
                return Refused("a newer attempt is registered")
            for block in message.blocks:
                if block.block_id not in self._known:
                    self._known.add(block.block_id)
                    self.blocks.append(block)
                    if block.position is not None:
                        self._position.take(block.position)
            if self._is_held:
                self._waiting.append(PendingReply())
                return self._waiting[-1]
        if isinstance(message, ReportAddresses):
            self.addresses = message.addresses
        if isinstance(message, ReportDropped):
            self.dropped[message.attempt] = message.records
        if isinstance(message, DeregisterReceiver):
            self.addresses = ()
            self.events.append(f"deregistered: {message.message}")
        if isinstance(message, ReportError):
            self.errors.append(f"{message.message}\n{message.error}".strip())
            if message.permanent:
                self.failed_for_good = self.errors[-1]
            return None
        return None if isinstance(message, ReportRateStatus) else Ok()

    def on_disconnect(self, peer: Peer) -> None:
        """Take note that a receiver's connection is gone."""
        with self.changed:
            if peer is self._peer:
                self._peer = None
                self.addresses = ()
            self.changed.notify_all()

    # -- what a test asks ------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Send the running receiver a message; nothing if there is none."""
        with self.changed:
            peer = self._peer
        if peer is not None:
            peer.send(message)

    def stop(self, has_ended: Callable[[float], bool], timeout_s: float) -> None:
        """Ask the receiver to stop until it has ended, also one that has yet to register.

        Args:
            has_ended: Waits that many seconds for its end.
            timeout_s: How long it may take.

        Raises:
            ReceiverTestError: It has not ended by then.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            self.send(StopReceiver())
            if has_ended(_STEP_S):
                return
            if time.monotonic() >= end_s:
                told = self._told_errors()
                raise ReceiverTestError(f"the receiver did not end within {timeout_s:g} s{told}")

    def hold(self, is_held: bool) -> None:
        """Answer no report of blocks, so that the receiver's queue becomes full; or all again."""
        with self.changed:
            self._is_held = is_held
            waiting, self._waiting = ([], self._waiting) if is_held else (self._waiting, [])
        self._server.resolve((reply, Ok()) for reply in waiting)

    @property
    def is_connected(self) -> bool:
        """Whether a receiver is there to be sent a message."""
        with self.changed:
            return self._peer is not None

    @property
    def starts(self) -> int:
        """How often a receiver has registered: at each start, also in the same process."""
        with self.changed:
            return self._starts

    @property
    def count(self) -> int:
        """How many records have been reported."""
        with self.changed:
            return sum(block.num_records for block in self.blocks)

    @property
    def position(self) -> Any:
        """The stream's last durable position; None: there is none."""
        with self.changed:
            found = self._position.value
            return None if found is None else msgspec.msgpack.decode(found)

    def records(self) -> list[Any]:
        """Read back every record that was reported, in the order of the stream.

        Raises:
            ReceiverTestError: The log was removed with its temporary folder.
        """
        if not self.folder.exists():
            raise ReceiverTestError(
                "the log is removed: ask for records within the with, or give run_receiver a folder"
            )
        with self.changed:
            blocks = list(self.blocks)
        return read_back(blocks)

    def wait_for(
        self, holds: Callable[[], bool], timeout_s: float, what: str, is_over: Callable[[], bool]
    ) -> None:
        """Wait until something holds.

        Args:
            holds: Says whether it does; called when something has changed.
            timeout_s: For how long.
            what: What it is, for people.
            is_over: Says whether nothing more can come: the attempt has ended.

        Raises:
            ReceiverTestError: It did not within `timeout_s` seconds, or the attempt ended before.
        """
        with self.changed:
            self.changed.wait_for(lambda: holds() or is_over(), timeout_s)
            if holds():
                return
            until = "before the receiver ended" if is_over() else f"within {timeout_s:g} s"
            raise ReceiverTestError(
                f"no {what} {until}: {self.count} records came, events {self.events}"
                + self._told_errors()
            )

    def _told_errors(self) -> str:
        with self.changed:
            return "; it reported " + "\n".join(self.errors) if self.errors else ""

    def note_end(self) -> None:
        """Have waiters look whether the attempt has ended."""
        with self.changed:
            self.changed.notify_all()

    def close(self) -> None:
        """End."""
        self.hold(False)
        self._server.stop()
