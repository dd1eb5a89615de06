"""`History`: where a program's logs have the blocks of a stream."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from penstock._arguments import refused
from penstock.blockstore import Block
from penstock.blockstore.process_log import moved
from penstock.blockstore.reading.reader import read_segment
from penstock.errors import PenstockError
from penstock.host.durability import BLOCKS, LEDGER
from penstock.tracker import LoggedSegment, ReceivedBlockTracker
from penstock.wal import EncryptionKey, WalError, locate
from penstock.wire.messages import ReceivedBlockInfo

_MAY_BE_GONE = (
    ". If the program has let it go meanwhile, read again, from a later time on, or have more "
    "retained (spark.penstock.wal.retention)"
)


class HistoryError(PenstockError, LookupError):
    """What a program received is gone, or cannot be read again.

    Attributes:
        folder: The folder that was named, or that of a log.
        is_away: Whether it may come back: a name node is away, a disk, or a right.
    """

    def __init__(self, folder: str, reason: str, *, is_away: bool = False) -> None:
        super().__init__(f"{folder}: {reason}")
        self.folder = folder
        self.is_away = is_away


@dataclass(frozen=True)
class Window:
    """Times between which blocks were stored, ms since the epoch.

    Attributes:
        start_ms: The first.
        end_ms: The one after the last; None: all that is kept.
    """

    start_ms: int = 0
    end_ms: int | None = None

    def __post_init__(self) -> None:
        if self.end_ms is not None and self.end_ms <= self.start_ms:
            raise ValueError("the window is empty: it ends before it begins")

    def ends_before(self, created_ms: int) -> bool:
        """Return whether a segment was begun when it was over."""
        return self.end_ms is not None and created_ms >= self.end_ms

    def begins_before(self, closed_ms: int | None) -> bool:
        """Return whether a segment may have a block that was sealed at its beginning or later.

        Args:
            closed_ms: When the segment behind it was begun, perhaps in the very millisecond of its
                last block; None: there is none, or that is not known.
        """
        return closed_ms is None or closed_ms >= self.start_ms

    def has(self, sealed_ms: int) -> bool:
        """Return whether a block is of it."""
        return sealed_ms >= self.start_ms and not self.ends_before(sealed_ms)


def as_time_ms(value: datetime | str | None, name: str) -> int | None:
    """Return a time in ms since the epoch; one without a zone is of this host's.

    Raises:
        TypeError: It is neither a time nor text.
        ValueError: The text is no time.
    """
    accepted = 'a datetime, or text such as "2026-11-22T03:00:00" or "2026-11-22T03:00:00+00:00"'
    if value is None:
        return None
    if isinstance(value, str):
        try:
            # Python 3.10 does not know Z.
            value = datetime.fromisoformat(value[:-1] + "+00:00" if value[-1:] in "Zz" else value)
        except ValueError:
            raise ValueError(refused(name, value, accepted)) from None
    if not isinstance(value, datetime):
        raise TypeError(refused(name, value, accepted))
    try:
        return int(value.timestamp() * 1000)
    except (OverflowError, ValueError, OSError):
        # Without a zone, near the first or the last year.
        raise ValueError(refused(name, value, accepted)) from None


class History:
    """What a folder's ledger knows, as it is now.

    Args:
        folder: The checkpoint directory or log folder of a program, on this host or ``hdfs://…``.
        encryption: The key that its logs are encrypted with; None: they are in clear.

    Raises:
        HistoryError: It is no such folder, or cannot be read.
    """

    def __init__(self, folder: str, encryption: EncryptionKey | None = None) -> None:
        self._folder = folder
        self._encryption = encryption
        self._blocks = os.path.join(folder, BLOCKS)
        try:
            fs, path = locate(os.path.join(folder, LEDGER))
            if not fs.is_folder(path):
                if not fs.is_folder(os.path.dirname(path)):
                    raise HistoryError(folder, "there is no such folder")
                # Where this user may not look, that is the error.
                fs.list_folder(os.path.dirname(path))
                raise HistoryError(folder, f"there is no ledger {LEDGER} in it")
            self._ledger = ReceivedBlockTracker.read(path, fs=fs, encryption=encryption)
            blocks_fs, blocks = locate(self._blocks)
            is_there = blocks_fs.is_folder(blocks)
            self._attempts = frozenset(blocks_fs.list_folder(blocks) if is_there else ())
        except HistoryError:
            raise
        except OSError as error:
            raise HistoryError(folder, str(error), is_away=True) from error
        except PenstockError as error:
            raise HistoryError(folder, str(error)) from error

    @staticmethod
    def is_there(folder: str) -> bool:
        """Return whether a folder has a ledger; False also where that is not to be known now."""
        try:
            fs, path = locate(os.path.join(folder, LEDGER))
            return fs.is_folder(path)
        except OSError:
            return False

    def segments(self, stream: str | int) -> tuple[LoggedSegment, ...]:
        """Return the segments that have blocks of a stream, in order.

        Args:
            stream: Its name or number.

        Raises:
            HistoryError: There is no such stream.
        """
        return tuple(
            replace(segment, folder=self._as_it_lies_now(segment.folder))
            for segment in self._ledger.logged_segments(self._number(stream))
        )

    def blocks(self, stream: str | int) -> tuple[ReceivedBlockInfo, ...]:
        """Return the logged blocks of a stream that are not cleaned up, in order.

        Raises:
            HistoryError: There is no such stream.
        """
        found: list[ReceivedBlockInfo] = []
        for block in self._ledger.logged_blocks(self._number(stream)):
            assert block.segment is not None
            folder = self._as_it_lies_now(block.segment.folder)
            segment = msgspec.structs.replace(block.segment, folder=folder)
            found.append(msgspec.structs.replace(block, segment=segment))
        return tuple(found)

    def name_of(self, stream: str | int) -> str:
        """Return the name of a stream.

        Raises:
            HistoryError: There is no such stream.
        """
        number = self._number(stream)
        return next(name for name, n in self._ledger.stream_numbers().items() if n == number)

    def _number(self, stream: str | int) -> int:
        numbers = self._ledger.stream_numbers()
        number = stream if isinstance(stream, int) else numbers.get(stream)
        if isinstance(stream, str) and number is None and stream.isdecimal():
            number = int(stream)
        if number is None or number not in numbers.values():
            known = ", ".join(f"{name} ({n})" for name, n in sorted(numbers.items())) or "none"
            raise HistoryError(
                self._folder, f"there is no stream {stream!r}; it has these: {known}"
            )
        return number

    def _as_it_lies_now(self, folder: str) -> str:
        return moved(folder, self._blocks, self._attempts)


def blocks_of(
    segment: LoggedSegment, window: Window, encryption: EncryptionKey | None, *, after: int = 0
) -> Iterator[tuple[int, Block]]:
    """Yield the blocks of a segment that are of the window, each with its sequence.

    Each is valid until the next one is asked for. Where blocks have no time, from a release before
    they had one, a segment's are all in the window if any of them can be.

    Args:
        segment: The segment.
        window: The window.
        encryption: The key, where logs are encrypted.
        after: Only blocks behind this sequence.

    Raises:
        HistoryError: It cannot be read here.
    """
    is_late = False

    def is_wanted(created_ms: int, closed_ms: int | None) -> bool:
        nonlocal is_late
        is_late = window.ends_before(created_ms)
        # Where the clock was set back meanwhile, blocks may be younger than the next segment.
        is_known = closed_ms is not None and closed_ms >= created_ms
        return window.begins_before(closed_ms if is_known else None)

    runs = [(max(first, after + 1), last) for first, last in segment.runs if last > after]
    try:
        for sequence, block in read_segment(
            segment.folder,
            segment.number,
            runs,
            attempt=segment.attempt,
            encryption=encryption,
            is_wanted=is_wanted,
        ):
            # A block may have waited for the log, so a segment may be younger than its blocks.
            if is_late and (not block.sealed_ms or window.ends_before(block.sealed_ms)):
                return
            if not block.sealed_ms or window.has(block.sealed_ms):
                yield sequence, block
    except (OSError, WalError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HistoryError(
            segment.folder,
            f"segment {segment.number}, which {segment.host} wrote, cannot be read here: {reason}. "
            "Logs on local disks are read on the host that has them, or as a copy of the folder"
            f"{_MAY_BE_GONE if isinstance(error, FileNotFoundError) else ''}",
            is_away=isinstance(error, OSError) and not isinstance(error, FileNotFoundError),
        ) from error
