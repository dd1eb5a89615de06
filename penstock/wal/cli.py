"""``penstock wal``: look into a segment log, and repair it."""

from __future__ import annotations

import contextlib
import os
import sys
from contextlib import closing

import click

from penstock.commands import Group
from penstock.wal._check import LogReport
from penstock.wal._check import check as check_log
from penstock.wal._check import repair as repair_log
from penstock.wal._errors import CorruptRecordError, WalError
from penstock.wal._filesystem import FileSystem
from penstock.wal._folder import LOCK_NAME, list_names, locate, segment_path
from penstock.wal._reader import LogReader

_EPILOG = """\
exit codes: 0 all is well (torn tails included), 1 damage was found, or segments are missing,
            2 wrong usage, no such folder, no log in it, or the log is in use (repair)
"""
_PREVIEW_BYTES = 48
_DEPTH = 2
"""A checkpoint directory has the ledger one level below it, and the blocks' logs two."""
_SHOWN = 10


@click.group(cls=Group, epilog=_EPILOG)
def wal() -> None:
    """Look into the segment log in a folder, and repair it.

    FOLDER may be an address hdfs://..., s3://..., gs://... or abfss://...

    repair puts damaged segments aside (renamed, not deleted); one that was cut short stays, without
    the record that is not whole. A torn tail is what a crash leaves of a record that was never
    acknowledged: no damage.
    """


_folder = click.argument("folder", metavar="FOLDER")


def _log(folder: str) -> tuple[FileSystem, str]:
    fs, path = locate(folder)
    if not fs.is_folder(path):
        raise WalError(f"no such folder: {folder}")
    if not _is_log(fs, path):
        raise WalError(_no_log(fs, path, folder))
    return fs, path


def _is_log(fs: FileSystem, folder: str) -> bool:
    if list_names(fs, folder)[2] > 0:
        return True
    # A checkpoint directory has a LOCK, too, and the logs in folders below it.
    names = fs.list_folder(folder)
    return LOCK_NAME in names and not any(
        fs.is_folder(os.path.join(folder, name)) for name in names
    )


def _logs(fs: FileSystem, folder: str) -> list[str]:
    """Return the logs in and below a folder."""
    found: list[str] = []
    level = [folder]
    for depth in range(_DEPTH + 1):
        found += [path for path in level if _is_log(fs, path)]
        if depth < _DEPTH:
            below = [os.path.join(path, name) for path in level for name in fs.list_folder(path)]
            level = sorted(path for path in below if fs.is_folder(path))
    return found


def _no_log(fs: FileSystem, folder: str, shown: str) -> str:
    """Say that a folder is no log, and which folders below it are: most have the one above."""
    found = _logs(fs, folder)
    if not found:
        return f"no log in {shown}"
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (
        f"no log in {shown} itself; below it are {', '.join(map(fs.address, found[:_SHOWN]))}{more}"
    )


@wal.command(epilog=_EPILOG)
@_folder
def ls(folder: str) -> int:
    """Print one line per log in FOLDER and below it: its segments, and their bytes."""
    fs, path = locate(folder)
    if not fs.is_folder(path):
        raise WalError(f"no such folder: {folder}")
    logs = _logs(fs, path)
    if not logs:
        print(f"no log in {folder}")
    for log in logs:
        numbers = list_names(fs, log)[0]
        size = 0
        for number in numbers:
            with (
                contextlib.suppress(FileNotFoundError),
                closing(fs.open(segment_path(log, number))) as file,
            ):
                size += file.size
        segments = f"{len(numbers)} segment{'' if len(numbers) == 1 else 's'}"
        print(f"{fs.address(log)}: {segments}, {size} bytes")
    return 0


@wal.command(epilog=_EPILOG)
@_folder
def check(folder: str) -> int:
    """Read every byte of the log in FOLDER, and report; changes nothing."""
    fs, path = _log(folder)
    report = check_log(path, fs=fs)
    _print_report(report)
    return 1 if report.damages or report.gaps else 0


@wal.command(epilog=_EPILOG)
@_folder
def repair(folder: str) -> int:
    """Cut torn tails of the log in FOLDER off, put damaged segments aside."""
    fs, path = _log(folder)
    report = repair_log(path, fs=fs)
    _print_report(report)
    for action in report.actions:
        print(f"repaired: {action}")
    if not report.actions:
        print("nothing to repair")
    return 1 if report.damages or report.gaps else 0


def _print_report(report: LogReport) -> None:
    gaps = {gap.before: gap for gap in report.gaps}
    for segment in report.segments:
        if gap := gaps.get(segment.number):
            print(
                f"MISSING between segments {gap.after} and {gap.before}: sequences "
                f"{gap.first_sequence} to {gap.last_sequence}; what held them was lost, or removed "
                f"before segment {gap.after} was"
            )
        state = "closed" if segment.closed else "open"
        if segment.damages:
            state = "DAMAGED"
        elif segment.torn:
            state = f"torn tail at {segment.end}"
        sequences = (
            f"sequences {segment.first_sequence} to {segment.last_sequence}"
            if segment.records
            else "no records"
        )
        key = f", encrypted with key {segment.key_id.hex()}" if segment.key_id else ""
        print(
            f"segment {segment.number}: {state}, {segment.size} bytes, "
            f"{segment.records} records, {sequences}{key}"
        )
        for damage in segment.damages:
            print(f"  damage at offset {damage.offset}: {damage.reason}")
    for name in report.unfinished:
        print(f"{name}: unfinished, never a segment")
    for name in report.aside:
        print(f"{name}: put aside by a repair; its records are not read")
    print(
        f"{report.folder}: {len(report.segments)} segments, {report.records} records, "
        f"{len(report.damages)} damaged places" + (f", {len(gaps)} gaps" if gaps else "")
    )


@wal.command(epilog=_EPILOG)
@_folder
@click.option("--segment", type=int, metavar="N", help="Only the segment of this number.")
@click.option("--payload", is_flag=True, help="Also print how each payload begins.")
def dump(folder: str, segment: int | None, payload: bool) -> int:
    """Print one line per record of the log in FOLDER."""
    fs, path = _log(folder)
    reader = LogReader.open(path, fs=fs, as_stored=True)
    encrypted = {info.number for info in reader.segments if info.key_id}
    damages: list[CorruptRecordError] = []
    records = (
        reader.records(on_damage=damages.append)
        if segment is None
        else reader.segment_records(segment, on_damage=damages.append)
    )
    for record in records:
        place = record.place
        line = (
            f"segment {place.segment} offset {place.offset} sequence {record.sequence} "
            f"kind {record.kind} length {len(record.payload)}"
        )
        if payload and place.segment in encrypted:
            line += " (encrypted)"
        elif payload:
            line += f" {bytes(record.payload[:_PREVIEW_BYTES])!r}"
        print(line)
    for damage in damages:
        print(f"penstock wal: {damage}", file=sys.stderr)
    return 1 if damages else 0
