"""A ledger with streams that are read by places, mostly one, and what answers about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from penstock.runtime.clock import ManualClock
from penstock.tracker import KeptStreamSettings, ReceivedBlockTracker, Retention
from penstock.tracker.consumers.place_service import PlaceService
from penstock.tracker.ledger._driver_log import SnapshotRule
from penstock.wire.messages import CommitPlace, FindEnd, ListBlocks, Ok, ReceivedBlockInfo
from tests.tracker.ledger_cases import LOG_OPTIONS, add, attempt_name, block

__all__ = ["DAY_S", "SERVERS", "Case"]

DAY_S = 86_400
SERVERS = {"host": ("127.0.0.1", 4711)}


class Connection:
    """In the place of a peer, of which only this is asked."""

    is_connected = True


class Case:
    """A ledger with one stream of `count` blocks of ten records, and its service.

    Others can be named; they are empty at first.
    """

    def __init__(self, folder: Path, count: int = 5, **settings: Any) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.folder = folder
        self.snapshots = settings.pop("snapshots", SnapshotRule())
        self.others: tuple[str, ...] = settings.pop("others", ())
        self.kept = KeptStreamSettings(
            "clicks", settings.pop("retention", Retention(0)), **settings
        )
        self.runs = 0
        self.blocks: list[ReceivedBlockInfo] = []
        self.holds: list[bool] = []
        self.open()
        self.add(count)

    def open(self) -> None:
        self.ledger = ReceivedBlockTracker.recover(
            (),
            str(self.folder),
            options=LOG_OPTIONS,
            clock=self.clock,
            snapshots=self.snapshots,
        )
        names = ("clicks", *self.others)
        streams = {name: number for number, name in enumerate(names)}
        self.ledger.register_streams(streams, are_kept=True)
        self.runs += 1
        self.attempt = attempt_name(self.runs)
        found = self.ledger.register_attempt(0, self.attempt, "host")
        self.next_number = found.first_block_number
        self.service = PlaceService(
            self.ledger.places,
            {number: replace(self.kept, name=name) for name, number in streams.items()},
            clock=self.clock,
            servers=lambda: SERVERS,
            parallelism=lambda: 3,
            hold=lambda stream_id, is_held: self.holds.append(is_held),
        )
        self.epoch = self.ledger.places.stream(0).epoch
        self.peer: Any = Connection()

    def start_again(self) -> None:
        """End this host, and open another on its directory."""
        self.ledger.close()
        self.open()

    def add(self, count: int, num_records: int = 10) -> None:
        numbers = range(self.next_number, self.next_number + count)
        blocks = [
            msgspec.structs.replace(block(0, self.attempt, number), num_records=num_records)
            for number in numbers
        ]
        if blocks:
            assert add(self.ledger, 0, self.attempt, blocks) == Ok()
        self.blocks += blocks
        self.next_number += count

    def add_to(self, stream_id: int, count: int) -> None:
        """Add blocks to another stream, once."""
        attempt = attempt_name(1000 + stream_id)
        first = self.ledger.register_attempt(stream_id, attempt, "host").first_block_number
        blocks = [
            msgspec.structs.replace(block(stream_id, attempt, number), num_records=10)
            for number in range(first, first + count)
        ]
        assert add(self.ledger, stream_id, attempt, blocks) == Ok()

    def release(self) -> None:
        self.ledger.places.release(self.service.retentions())

    def ask(self, message: Any) -> Any:
        return self.service.answer(self.peer, message)

    def end(self, start: int, **more: Any) -> Any:
        return self.ask(FindEnd(0, self.epoch, more.pop("consumer", "c"), start, **more))

    def list(self, start: int, end: int, consumer: str = "c", **more: Any) -> Any:
        return self.ask(ListBlocks(0, self.epoch, consumer, start, end, **more))

    def commit(self, place: int, consumer: str = "c") -> Any:
        return self.ask(CommitPlace(0, self.epoch, consumer, place))

    def consumers(self) -> dict[str, int]:
        return {found.consumer: found.place for found in self.ledger.places.stream(0).consumers}
