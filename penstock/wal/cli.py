"""``penstock wal``: look into a segment log, and repair it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from penstock.wal._check import LogReport, check, repair
from penstock.wal._errors import CorruptRecordError, WalError
from penstock.wal._filesystem import FileSystem
from penstock.wal._folder import LOCK_NAME, list_names, locate
from penstock.wal._reader import LogReader

_DESCRIPTION = """\
Look into the segment log in a folder, and repair it.

  check   read every byte, say what is there, damaged or missing; changes nothing
  dump    print one line per record
  repair  cut torn tails off, put damaged segments aside (renamed, not deleted); one that
          somebody cut short stays, without the record that is not whole

A torn tail is what a crash leaves of a record that was never acknowledged: no damage.
"""
_EPILOG = """\
exit codes: 0 all is well (torn tails included), 1 damage was found, or segments are missing,
            2 wrong usage, no such folder, no log in it, or the log is in use (repair)
"""
_PREVIEW_BYTES = 48
_DEPTH = 2
"""A checkpoint directory has the ledger one level below it, and the blocks' logs two."""
_SHOWN = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``penstock wal`` with these arguments and return its exit code."""
    options = make_parser().parse_args(argv)
    try:
        fs, path = locate(options.folder)
        if not fs.is_folder(path):
            print(f"penstock wal: no such folder: {options.folder}", file=sys.stderr)
            return 2
        if not _is_log(fs, path):
            print(f"penstock wal: {_no_log(fs, path, options.folder)}", file=sys.stderr)
            return 2
        code: int = options.run(fs, path, options)
    except BrokenPipeError:
        # Whoever read the output has seen enough: keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, WalError) as error:
        print(f"penstock wal: {error}", file=sys.stderr)
        return 2
    return code


def _is_log(fs: FileSystem, folder: str) -> bool:
    if list_names(fs, folder)[2] > 0:
        return True
    # A checkpoint directory has a LOCK, too, and the logs in folders below it.
    names = fs.list_folder(folder)
    return LOCK_NAME in names and not any(
        fs.is_folder(os.path.join(folder, name)) for name in names
    )


def _no_log(fs: FileSystem, folder: str, shown: str) -> str:
    """Say that a folder is no log, and which folders below it are: most have the one above."""
    found: list[str] = []
    level = [folder]
    for _ in range(_DEPTH):
        below = [os.path.join(path, name) for path in level for name in fs.list_folder(path)]
        level = sorted(path for path in below if fs.is_folder(path))
        found += [path for path in level if _is_log(fs, path)]
    if not found:
        return f"no log in {shown}"
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"no log in {shown} itself; below it are {', '.join(found[:_SHOWN])}{more}"


def make_parser() -> argparse.ArgumentParser:
    """Return what takes the arguments of ``penstock wal``."""
    parser = argparse.ArgumentParser(
        prog="penstock wal",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, run, text in (
        ("check", _check, "read every byte and report; changes nothing"),
        ("dump", _dump, "print one line per record"),
        ("repair", _repair, "cut torn tails off, put damaged segments aside"),
    ):
        command = commands.add_parser(name, help=text, description=text + ".", epilog=_EPILOG)
        command.add_argument("folder", metavar="FOLDER", help="the log's folder, or hdfs://…")
        command.set_defaults(run=run)
        if name == "dump":
            command.add_argument(
                "--segment", type=int, metavar="N", help="only the segment of this number"
            )
            command.add_argument(
                "--payload", action="store_true", help="also print how each payload begins"
            )
    return parser


def _check(fs: FileSystem, folder: str, options: argparse.Namespace) -> int:
    report = check(folder, fs=fs)
    _print_report(report)
    return 1 if report.damages or report.gaps else 0


def _repair(fs: FileSystem, folder: str, options: argparse.Namespace) -> int:
    report = repair(folder, fs=fs)
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


def _dump(fs: FileSystem, folder: str, options: argparse.Namespace) -> int:
    reader = LogReader.open(folder, fs=fs, as_stored=True)
    encrypted = {info.number for info in reader.segments if info.key_id}
    damages: list[CorruptRecordError] = []
    records = (
        reader.records(on_damage=damages.append)
        if options.segment is None
        else reader.segment_records(options.segment, on_damage=damages.append)
    )
    for record in records:
        place = record.place
        line = (
            f"segment {place.segment} offset {place.offset} sequence {record.sequence} "
            f"kind {record.kind} length {len(record.payload)}"
        )
        if options.payload and place.segment in encrypted:
            line += " (encrypted)"
        elif options.payload:
            line += f" {bytes(record.payload[:_PREVIEW_BYTES])!r}"
        print(line)
    for damage in damages:
        print(f"penstock wal: {damage}", file=sys.stderr)
    return 1 if damages else 0
