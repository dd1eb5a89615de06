"""Looking through a log for damage, and the explicit repair of what was found."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from penstock.wal._errors import CorruptRecordError
from penstock.wal._filesystem import FileSystem, LocalFileSystem
from penstock.wal._folder import (
    DAMAGED_SUFFIX,
    LOCK_NAME,
    NEW_SUFFIX,
    list_names,
    lock_folder,
    segment_path,
)
from penstock.wal._reader import LogReader, SegmentInfo

_LOCAL = LocalFileSystem()
_COPY_BYTES = 4 << 20


@dataclass(frozen=True)
class SegmentReport:
    """What a pass over all bytes of a segment found.

    Attributes:
        number: The segment's number.
        path: Its path.
        size: Bytes of the file.
        closed: It ends with end record and trailer.
        records: Readable records.
        first_sequence: Sequence of the first, None when there is none.
        last_sequence: Sequence of the last, None when there is none.
        end: Offset behind the last record; the size when the header is unreadable.
        torn: A record that was never acknowledged is behind it.
        damages: Committed records that are not readable.
        key_id: The id of the key that it is encrypted with, empty when it is not.
        was_cut: The last of the damages is where the file was cut short.
    """

    number: int
    path: str
    size: int
    closed: bool
    records: int
    first_sequence: int | None
    last_sequence: int | None
    end: int
    torn: bool
    damages: tuple[CorruptRecordError, ...]
    key_id: bytes = b""
    was_cut: bool = False

    @property
    def is_damaged(self) -> bool:
        """Whether more is damaged than the end of a file that was cut short."""
        return len(self.damages) > self.was_cut


@dataclass(frozen=True)
class Gap:
    """Records that are missing between two segments of the same writer.

    The segments that held them were lost, or removed before an older one was.

    Attributes:
        after: The number of the segment before them.
        before: That of the segment behind them.
        first_sequence: Sequence of the first that is missing.
        last_sequence: Sequence of the last.
    """

    after: int
    before: int
    first_sequence: int
    last_sequence: int


@dataclass(frozen=True)
class LogReport:
    """What `check` found, or what `repair` found and did.

    Attributes:
        folder: The log's folder; its address, where that is not on this host.
        segments: One report per segment, in order.
        gaps: What is missing between them.
        unfinished: Names of files that are no segments yet, or no longer: left by a crash, or a
            living writer's spare.
        actions: What `repair` did, in words.
        aside: Names of segments that an earlier `repair` put aside.
    """

    folder: str
    segments: tuple[SegmentReport, ...]
    unfinished: tuple[str, ...]
    gaps: tuple[Gap, ...] = ()
    actions: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()

    @property
    def damages(self) -> tuple[CorruptRecordError, ...]:
        """All damaged places in the log."""
        return tuple(damage for segment in self.segments for damage in segment.damages)

    @property
    def records(self) -> int:
        """All readable records."""
        return sum(segment.records for segment in self.segments)


def check(folder: str, *, fs: FileSystem = _LOCAL) -> LogReport:
    """Read every byte of a log and report. Changes nothing, and needs no key.

    Args:
        folder: The log's folder.
        fs: Where it lives.

    Raises:
        FileNotFoundError: There is no such folder.
    """
    folder = os.path.abspath(folder)
    reader = LogReader.open(folder, fs=fs, as_stored=True)
    reports = []
    for info in reader.segments:
        damages: list[CorruptRecordError] = []
        records = 0
        first: int | None = None
        last: int | None = None
        try:
            for record in reader.segment_records(info.number, on_damage=damages.append):
                first = record.sequence if first is None else first
                last = record.sequence
                records += 1
        except FileNotFoundError:
            # Released since by a program that runs.
            continue
        end = reader.segment_end(info.number)
        reports.append(
            SegmentReport(
                number=info.number,
                path=info.path,
                size=info.size,
                closed=end is not None and end.closed,
                records=records,
                first_sequence=first,
                last_sequence=last,
                end=info.size if end is None else end.offset,
                torn=end is not None and end.torn,
                damages=tuple(damages),
                key_id=info.key_id,
                was_cut=end is not None and end.was_cut,
            )
        )
    unfinished = tuple(list_names(fs, folder)[1])
    aside = tuple(sorted(n for n in fs.list_folder(folder) if n.endswith(DAMAGED_SUFFIX)))
    return LogReport(
        fs.address(folder), tuple(reports), unfinished, tuple(_gaps(reader, aside)), aside=aside
    )


def _gaps(reader: LogReader, aside: Collection[str]) -> Iterator[Gap]:
    last: dict[bytes, SegmentInfo] = {}
    for info in reader.segments:
        before = last.get(info.log_id)
        end = None if before is None else reader.segment_end(before.number)
        if info.damage is None:
            last[info.log_id] = info
        if before is None or end is None or before.number == info.previous:
            continue
        name = os.path.basename(segment_path(reader.folder, info.previous)) + DAMAGED_SUFFIX
        if name not in aside and end.next_sequence < (info.first_sequence or 0):
            yield Gap(before.number, info.number, end.next_sequence, (info.first_sequence or 0) - 1)


def repair(folder: str, *, fs: FileSystem = _LOCAL) -> LogReport:
    """Cut torn tails off and put damaged segments aside.

    A damaged segment is renamed to ``….damaged``: nothing of it is deleted, its name is not used
    again, and readers no longer see it, the readable records in it included. One that was cut short
    stays, with all its records but the last, of which it has only the beginning.

    Args:
        folder: The log's folder. No writer may have it.
        fs: Where it lives.

    Returns:
        What was found, with what was done in `LogReport.actions`.

    Raises:
        LogFolderInUseError: A living writer has the folder.
        FileNotFoundError: There is no such folder.
    """
    folder = os.path.abspath(folder)
    if not fs.is_folder(folder):
        raise FileNotFoundError(folder)
    lock = lock_folder(fs, folder, "penstock wal repair")
    try:
        fs.settle([segment_path(folder, number) for number in list_names(fs, folder)[0]])
        report = check(folder, fs=fs)
        actions = []
        # First: the copy of a repair that died has a name that is needed now.
        for name in report.unfinished:
            fs.remove(os.path.join(folder, name))
            actions.append(f"removed the unfinished {name}")
        actions += _cut_tails(report, fs)
        # Only now: until the tails are cut, the headers of later segments say what is void.
        actions += _put_aside(report, fs)
        fs.sync_folder(folder)
    finally:
        lock.release()
    return replace(report, actions=tuple(actions))


def _cut_tails(report: LogReport, fs: FileSystem) -> list[str]:
    actions = []
    last_aside = max((found.number for found in report.segments if found.is_damaged), default=0)
    for segment in report.segments:
        if segment.closed or segment.is_damaged or segment.end >= segment.size:
            continue
        try:
            fs.truncate(segment.path, segment.end, is_settled=True)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            # Nothing is cut on HDFS; no reader needs it while there are all segments behind.
            if segment.number > last_aside:
                continue
            _copy_without_tail(segment, fs)
        what = "a torn tail" if segment.torn else "unused space"
        if segment.was_cut:
            what = "a record that was cut short, and with it what lay behind it,"
        actions.append(
            f"segment {segment.number}: cut {what} of {segment.size - segment.end} bytes "
            f"at offset {segment.end}"
        )
    return actions


def _copy_without_tail(segment: SegmentReport, fs: FileSystem) -> None:
    present = segment.path + NEW_SUFFIX
    shown = fs.open(segment.path)
    file = fs.create(present, direct=False)
    try:
        for offset in range(0, segment.end, _COPY_BYTES):
            data = shown.read(offset, min(_COPY_BYTES, segment.end - offset))
            file.write(offset, [data], sync=True)
    finally:
        file.close()
        shown.close()
    fs.rename(present, segment.path, replace=True)


def _put_aside(report: LogReport, fs: FileSystem) -> list[str]:
    actions = []
    for segment in report.segments:
        if not segment.is_damaged:
            continue
        aside = segment.path + DAMAGED_SUFFIX
        fs.rename(segment.path, aside)
        actions.append(
            f"segment {segment.number}: {len(segment.damages)} damaged places, "
            f"{segment.records} readable records; put aside as {os.path.basename(aside)}"
        )
    return actions


def remove_log(folder: str, *, fs: FileSystem = _LOCAL) -> None:
    """Remove a log: all its segments, and the folder if nothing else is in it.

    A folder that is gone already is no error.

    Args:
        folder: The log's folder. No writer may have it.
        fs: Where it lives.

    Raises:
        LogFolderInUseError: A living writer has the folder.
    """
    folder = os.path.abspath(folder)
    if not fs.is_folder(folder):
        return
    lock = lock_folder(fs, folder, "removal")
    try:
        numbers, unfinished, _ = list_names(fs, folder)
        names = [os.path.basename(segment_path(folder, number)) for number in numbers]
        names += unfinished
        names += [name for name in fs.list_folder(folder) if name.endswith(DAMAGED_SUFFIX)]
        for name in [*names, LOCK_NAME]:
            with contextlib.suppress(FileNotFoundError):
                fs.remove(os.path.join(folder, name))
        # On an object store a folder is gone with the last that is in it.
        with contextlib.suppress(FileNotFoundError):
            if not fs.list_folder(folder):
                fs.remove_folder(folder)
    finally:
        lock.release()
