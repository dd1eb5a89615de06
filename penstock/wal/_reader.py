"""The reading end of a log."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from types import TracebackType

from penstock.wal._errors import CorruptRecordError
from penstock.wal._filesystem import FileSystem, LocalFileSystem
from penstock.wal._folder import list_names, segment_path
from penstock.wal._segments.encryption import LogCipher
from penstock.wal._segments.layout import (
    Record,
)
from penstock.wal._segments.reader import SegmentEnd, SegmentReader

_logger = logging.getLogger("penstock.wal")

_LOCAL = LocalFileSystem()
_LIST_TRIES = 5


@dataclass(frozen=True)
class SegmentInfo:
    """What is known of a segment without reading its records.

    Attributes:
        number: Its number.
        path: Its path.
        size: Bytes of the file.
        closed: It ends with end record and trailer.
        first_sequence: Sequence of its first record, None when its header is unreadable.
        last_sequence: Sequence of its last record; None when it has none or is not closed.
        record_count: Records in it, None when it is not closed.
        log_id: The random id of the writer that made it.
        created_ms: Wall time of its creation in milliseconds, for people only.
        alignment: Records begin at multiples of this many bytes.
        damage: Why its header is unreadable, None when it is not.
        previous: Number of the segment before it in the same log, 0 when it is the first.
        key_id: The id of the key that it is encrypted with, empty when it is not.
    """

    number: int
    path: str
    size: int
    closed: bool
    first_sequence: int | None
    last_sequence: int | None
    record_count: int | None
    log_id: bytes
    created_ms: int
    alignment: int
    damage: CorruptRecordError | None
    previous: int = 0
    key_id: bytes = b""


class LogReader:
    """A log as it was when it was opened. Built by `open`; for one thread.

    Opening reads the header and the trailer of each segment, no records. Reading a log that a
    living writer appends to is allowed: what it appends meanwhile may look like a torn tail.
    """

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        before: int | None,
        cipher: LogCipher | None = None,
        as_stored: bool = False,
        only: int | None = None,
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._cipher = cipher
        self._as_stored = as_stored
        self._readers: dict[int, SegmentReader] = {}
        self._ends: dict[int, SegmentEnd] = {}
        self._segments: tuple[SegmentInfo, ...] = ()
        for _ in range(_LIST_TRIES):
            numbers = [
                number
                for number in list_names(fs, folder)[0]
                if (only is None or number >= only) and (before is None or number < before)
            ]
            shown = numbers[: None if only is None else 2]
            self._segments = tuple(self._look_at(shown, only))
            # All that were listed may be gone by then: that is no empty log (I15).
            if self._segments or not numbers:
                return
        text = "its segments go as fast as they are listed"
        raise FileNotFoundError(errno.ENOENT, text, fs.address(folder))

    def _look_at(self, numbers: Iterable[int], only: int | None) -> Iterator[SegmentInfo]:
        for number in numbers:
            path = segment_path(self._folder, number)
            try:
                reader = SegmentReader(
                    self._fs, path, number, cipher=self._cipher, as_stored=self._as_stored
                )
            except CorruptRecordError as error:
                yield _unreadable(path, number, error)
            except FileNotFoundError:
                # Released since the folder was listed.
                continue
            except OSError as error:
                # The one behind shows where one that is not closed ends; with it, it is not needed.
                if error.errno != errno.EBUSY or not self._is_closed(only):
                    raise
            else:
                self._readers[number] = reader
                yield _info(reader)

    def _is_closed(self, number: int | None) -> bool:
        reader = None if number is None else self._readers.get(number)
        return reader is not None and reader.trailer is not None

    @classmethod
    def open(
        cls,
        folder: str,
        *,
        fs: FileSystem = _LOCAL,
        before: int | None = None,
        cipher: LogCipher | None = None,
        as_stored: bool = False,
        only: int | None = None,
    ) -> LogReader:
        """Open a log for reading.

        A segment that is encrypted and should not be, or is not and should be, or has another key,
        raises `EncryptionMismatchError` when its first record is read.

        Args:
            folder: The log's folder.
            fs: Where it lives.
            before: Leave out segments from this number on, such as `LogWriter.first_segment`;
                on HDFS no one can read a segment that is being written.
            cipher: Decrypts the payloads; None: they are in clear.
            as_stored: Take payloads as they are, encrypted or not: to look after a log without its
                key.
            only: Look at this segment and the one behind it only, whatever the log has. That one
                is left out where it is being written, and this one is closed.

        Raises:
            FileNotFoundError: There is no such folder; or all its segments went after each of some
                listings.
            OSError: A segment cannot be read, on HDFS because it is being written (EBUSY).
        """
        return cls(fs, os.path.abspath(folder), before, cipher, as_stored, only)

    def __enter__(self) -> LogReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: files are open only while records are read. Here for symmetry."""

    @property
    def folder(self) -> str:
        """The log's folder, as an absolute path."""
        return self._folder

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """The segments in order, also those with an unreadable header."""
        return self._segments

    def records(
        self, *, on_damage: Callable[[CorruptRecordError], None] | None = None
    ) -> Iterator[Record]:
        """Yield the records of all segments in order, but of those that were released since.

        A payload is a view into a buffer of some MiB: copy what is kept for long.

        Args:
            on_damage: Notified of each damaged place; reading goes on behind it. Without it the
                damage is raised, after every readable record has been yielded.

        Raises:
            CorruptRecordError: A committed record is not readable. `damages` has all of them.
            EncryptionMismatchError: See `open`.
        """
        damages: list[CorruptRecordError] = []
        for info in self._segments:
            with contextlib.suppress(FileNotFoundError):
                yield from self._segment_records(info, on_damage or damages.append)
        _raise_first(damages)

    def segment_records(
        self, number: int, *, on_damage: Callable[[CorruptRecordError], None] | None = None
    ) -> Iterator[Record]:
        """Yield the records of one segment; as `records` otherwise.

        Raises:
            FileNotFoundError: It did not exist when the log was opened.
            FileNotFoundError: It was released since.
            CorruptRecordError: A committed record in it is not readable.
            EncryptionMismatchError: See `open`.
        """
        damages: list[CorruptRecordError] = []
        for info in self._segments:
            if info.number == number:
                yield from self._segment_records(info, on_damage or damages.append)
                break
        else:
            raise no_segment(self._fs.address(segment_path(self._folder, number)))
        _raise_first(damages)

    def segment_end(self, number: int) -> SegmentEnd | None:
        """Return how the last complete reading of a segment ended, None before any."""
        return self._ends.get(number)

    def _segment_records(
        self, info: SegmentInfo, on_damage: Callable[[CorruptRecordError], None]
    ) -> Iterator[Record]:
        if info.damage is not None:
            on_damage(info.damage)
            return
        reader = self._readers[info.number]
        # Up to one of another writer: one that was replaced may have begun one more, too late.
        behind = (other for other in self._readers.values() if other.number > info.number)
        later = list(takewhile(lambda other: other.header.log_id == info.log_id, behind))

        def ended(end: SegmentEnd) -> None:
            if end.torn and info.number not in self._ends:
                _logger.warning(
                    "torn tail in segment %d at offset %d of %s: what a crash left of a record "
                    "is left out. It was not acknowledged, unless the file was changed since",
                    info.number,
                    end.offset,
                    self._fs.address(self._folder),
                )
            self._ends[info.number] = end
            for damage in end.damages:
                on_damage(damage)

        yield from reader.records(
            followed=any(other.header.previous == info.number for other in later),
            void_from=min((other.header.first_sequence for other in later), default=None),
            committed_later=lambda: max((other.committed() for other in later), default=0),
            ended=ended,
        )


def no_segment(address: str) -> FileNotFoundError:
    """Return the error of a segment that is missing."""
    return FileNotFoundError(
        errno.ENOENT, f"no segment at {address}: it was never written or is already released"
    )


def _raise_first(damages: list[CorruptRecordError]) -> None:
    if damages:
        first = damages[0]
        raise CorruptRecordError(
            first.segment, first.offset, first.reason, first.folder, tuple(damages)
        )


def _info(reader: SegmentReader) -> SegmentInfo:
    header, trailer = reader.header, reader.trailer
    count = None if trailer is None else trailer.record_count
    return SegmentInfo(
        number=reader.number,
        path=reader.path,
        size=reader.size,
        closed=trailer is not None,
        first_sequence=header.first_sequence,
        last_sequence=header.first_sequence + count - 1 if count else None,
        record_count=count,
        log_id=header.log_id,
        created_ms=header.created_ms,
        alignment=header.alignment,
        damage=None,
        previous=header.previous,
        key_id=header.key_id,
    )


def _unreadable(path: str, number: int, error: CorruptRecordError) -> SegmentInfo:
    return SegmentInfo(
        number=number,
        path=path,
        size=0,
        closed=False,
        first_sequence=None,
        last_sequence=None,
        record_count=None,
        log_id=b"",
        created_ms=0,
        alignment=0,
        damage=error,
    )
