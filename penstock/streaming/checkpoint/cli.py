"""``penstock checkpoint``: look into the checkpoint of a folder."""

from __future__ import annotations

import os

import click

from penstock.commands import Command
from penstock.errors import PenstockError
from penstock.host.durability import checkpoint_address
from penstock.host.encryption import recovery_encryption
from penstock.streaming.checkpoint.record import Checkpoint, read_checkpoint
from penstock.streaming.durations import batch_datetime
from penstock.wal import locate

_EPILOG = """\
exit codes: 0 there is one, 1 there is none, 2 wrong usage, no such folder, or it cannot be read, as
            the driver log is damaged, or on HDFS a program runs from it
"""


@click.command(cls=Command, epilog=_EPILOG)
@click.argument("folder", metavar="FOLDER")
def checkpoint(folder: str) -> int:
    """Look into the newest checkpoint in FOLDER, a path or hdfs://….

    It shows which batch the checkpoint stands at, and which versions wrote it. No code of the
    program is run, and nothing is changed. An encrypted one is read with the key of
    PENSTOCK_ENCRYPTION_KEY, as a program reads it.
    """
    fs, path = locate(folder)
    if not fs.is_folder(path):
        raise PenstockError(f"no such folder: {folder}")
    address = checkpoint_address(folder)
    encryption = recovery_encryption(None, os.environ)
    found = read_checkpoint(address, encryption, is_taken=False)
    print(f"{address}: {'no checkpoint' if found is None else _described(found)}")
    return int(found is None)


def _described(found: Checkpoint) -> str:
    header = found.header
    parts = [
        f"last batch {batch_datetime(header.last_batch_ms)}",
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
