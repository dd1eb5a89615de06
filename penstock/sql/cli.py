"""``penstock consumers``: who reads the streams of a `ReceiverHost`, and forgetting some."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime, timezone

import click

from penstock.commands import Command
from penstock.errors import PenstockError
from penstock.host.durability import LEDGER
from penstock.host.encryption import recovery_encryption
from penstock.tracker import ReceivedBlockTracker
from penstock.wal import locate

_EPILOG = """\
exit codes: 0 shown, 1 there is no such consumer, 2 wrong usage, no such folder, it is none of a
            ReceiverHost, or it is in use
"""


@click.command(cls=Command, epilog=_EPILOG)
@click.argument("folder", metavar="DIRECTORY")
@click.option("--drop", multiple=True, metavar="CONSUMER", help="Forget it; may be repeated.")
def consumers(folder: str, drop: Sequence[str]) -> int:
    """Show the streams in the DIRECTORY of a ReceiverHost that has stopped, and who reads them.

    That is the consumer of each query, its place, and how many records it is behind. With --drop a
    consumer is forgotten, and what only it needed goes when the host runs again. (A running host
    has its directory locked: ReceiverHost.streams and dropConsumer do the same there.) An encrypted
    ledger is read with the key of PENSTOCK_ENCRYPTION_KEY.
    """
    fs, path = locate(os.path.join(folder, LEDGER))
    if not fs.is_folder(path):
        if not fs.is_folder(os.path.dirname(path)):
            raise PenstockError(f"no such folder: {folder}")
        # Where this user may not look, that is the error.
        fs.list_folder(os.path.dirname(path))
        raise PenstockError(f"no ledger {LEDGER} in {folder}")
    ledger = ReceivedBlockTracker.recover(
        (), path, fs=fs, encryption=recovery_encryption(None, os.environ)
    )
    try:
        if not ledger.kept_streams():
            raise PenstockError(f"there is no stream of a ReceiverHost in {folder}")
        return _show(ledger, drop)
    finally:
        ledger.close()


def _show(ledger: ReceivedBlockTracker, dropped: Sequence[str]) -> int:
    left = set(dropped)
    for name, number in sorted(ledger.kept_streams().items()):
        wanted = {found.consumer for found in ledger.places.stream(number).consumers} & left
        ledger.places.drop(number, wanted)
        left -= wanted
        stream = ledger.places.stream(number)
        print(
            f"{name}: places {stream.first} to {stream.next}, {stream.size_bytes} bytes, "
            f"{stream.records} records so far"
        )
        for found in stream.consumers:
            at = datetime.fromtimestamp(found.at_ms / 1000, timezone.utc)
            batch = "" if found.is_committed else ", no batch yet"
            print(
                f"  {found.consumer}: place {found.place}, {found.records_behind} records behind, "
                f"last seen {at:%Y-%m-%d %H:%M:%S} UTC{batch}"
            )
    for consumer in sorted(left):
        print(f"penstock consumers: there is no consumer {consumer}", file=sys.stderr)
    return 1 if left else 0
