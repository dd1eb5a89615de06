"""What the ledger's tests share: attempts, messages, and a file system that refuses on command."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

from penstock.tracker.ledger.received_block_tracker import ReceivedBlockTracker
from penstock.wal import AppendFile, LocalFileSystem, LogOptions, SyncPolicy
from penstock.wire.messages import AddBlock, MemoryPlace, ReceivedBlockInfo, SegmentPlace

LOG_OPTIONS = LogOptions(segment_size=64 << 10, alignment=64, sync=SyncPolicy.NONE)


def attempt_name(number: int) -> str:
    return f"{number:032x}"


def block(
    stream_id: int,
    attempt: str,
    number: int,
    *,
    segment: int | None = 1,
    position: bytes | None = None,
) -> ReceivedBlockInfo:
    return ReceivedBlockInfo(
        stream_id,
        f"input-{stream_id}-{number}",
        10,
        1000,
        attempt,
        "host",
        number & 0xFFFFFFFF,
        MemoryPlace(f"/dev/shm/{attempt}", 4096, 1064),
        None if segment is None else SegmentPlace(f"/log/{stream_id}-{attempt}", segment, 0, 1064),
        position,
    )


def add(
    tracker: ReceivedBlockTracker, stream_id: int, attempt: str, blocks: Sequence[ReceivedBlockInfo]
) -> Any:
    return tracker.add_blocks(AddBlock(stream_id, attempt, tuple(blocks)))


def ids(blocks: Sequence[ReceivedBlockInfo]) -> list[str]:
    return [info.block_id for info in blocks]


class RefusingFile:
    """An append file whose writes fail while its file system says so; the rest is real."""

    def __init__(self, file: AppendFile, fs: RefusingFileSystem) -> None:
        self._file = file
        self._fs = fs

    def __getattr__(self, name: str) -> Any:
        if name in ("write", "preallocate", "sync"):
            self._fs.check()
        return getattr(self._file, name)


class RefusingFileSystem(LocalFileSystem):
    """The local disk, which is full while `full` is set."""

    full = False

    def check(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def create(self, *arguments: Any, **named: Any) -> Any:
        self.check()
        return RefusingFile(super().create(*arguments, **named), self)
