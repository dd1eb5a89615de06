"""``penstock checkpoint``: look into the checkpoints in a folder."""

from __future__ import annotations

import os

import click

from penstock.commands import Command
from penstock.errors import PenstockError
from penstock.host.encryption import recovery_encryption
from penstock.streaming.checkpoint.errors import CheckpointVersionError
from penstock.streaming.checkpoint.folder import Checkpoint, CheckpointFolder
from penstock.streaming.durations import batch_datetime
from penstock.wal import locate

_EPILOG = """\
exit codes: 0 all are whole, 1 some are damaged, or there is none, 2 wrong usage, no such folder,
            or some cannot be read, which may be whole
"""


@click.command(cls=Command, epilog=_EPILOG)
@click.argument("folder", metavar="FOLDER")
def checkpoint(folder: str) -> int:
    """Look into the checkpoints in FOLDER, a path or hdfs://…, the newest first.

    It shows which of them are whole, which batch each one stands at, and which versions wrote it.
    No code of the program is run, and nothing is changed. Encrypted ones are read with the key of
    PENSTOCK_ENCRYPTION_KEY, as a program reads them.
    """
    fs, path = locate(folder)
    if not fs.is_folder(path):
        raise PenstockError(f"no such folder: {folder}")
    return _show(CheckpointFolder(path, fs, recovery_encryption(None, os.environ)))


def _show(folder: CheckpointFolder) -> int:
    whole = damaged = unread = 0
    for name, found in folder.each():
        if isinstance(found, Checkpoint):
            whole += 1
            print(f"{name}: {_described(found)}")
        elif isinstance(found, CheckpointVersionError):
            whole += 1
            print(f"{name}: of another version: {found.what} {found.written}")
        elif isinstance(found, FileNotFoundError):
            # The running program has removed it since.
            continue
        elif isinstance(found, OSError):
            unread += 1
            print(f"{name}: cannot be read: {found}")
        else:
            damaged += 1
            print(f"{name}: DAMAGED: {found}")
    rest = f", {unread} not read" if unread else ""
    print(f"{folder.path}: {whole} whole, {damaged} damaged{rest}")
    if unread:
        return 2
    return 0 if whole and not damaged else 1


def _described(found: Checkpoint) -> str:
    header = found.header
    parts = [
        f"whole, last batch {batch_datetime(header.last_batch_ms)}",
        f"{len(header.pending_ms)} batches not complete",
        f"batches of {header.batch_ms / 1000:g} s",
        f"Python {header.python}, PySpark {header.pyspark}, Penstock {header.penstock}",
    ]
    if header.version:
        parts.append(f"program version {header.version!r}")
    if header.state_names:
        parts.append(f"states {', '.join(header.state_names)}")
    if header.is_last:
        parts.append("written by a graceful stop that left nothing")
    if header.refusal:
        parts.append(f"cannot be recovered from: {header.refusal}")
    return "; ".join(parts)
