"""``penstock consumers``: who reads the streams of a `ReceiverHost`, and forgetting some."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import datetime, timezone

from penstock.errors import PenstockError
from penstock.host.durability import LEDGER
from penstock.host.encryption import recovery_encryption
from penstock.tracker import ReceivedBlockTracker
from penstock.wal import locate

_DESCRIPTION = """\
Show the streams in the directory of a ReceiverHost that has stopped, and who reads them: the
consumer of each query, its place, and how many records it is behind. With --drop a consumer is
forgotten, and what only it needed goes when the host runs again. (A running host has its directory
locked: ReceiverHost.streams and dropConsumer do the same there.) An encrypted ledger is read with
the key of PENSTOCK_ENCRYPTION_KEY.
"""
_EPILOG = """\
exit codes: 0 shown, 1 there is no such consumer, 2 wrong usage, no such folder, it is none of a
            ReceiverHost, or it is in use
"""


def main(argv: Sequence[str]) -> int:
    """Run ``penstock consumers`` with these arguments and return its exit code."""
    options = make_parser().parse_args(argv)
    try:
        fs, path = locate(os.path.join(options.folder, LEDGER))
        if not fs.is_folder(path):
            if not fs.is_folder(os.path.dirname(path)):
                return _fail(f"no such folder: {options.folder}")
            # Where this user may not look, that is the error.
            fs.list_folder(os.path.dirname(path))
            return _fail(f"no ledger {LEDGER} in {options.folder}")
        ledger = ReceivedBlockTracker.recover(
            (), path, fs=fs, encryption=recovery_encryption(None, os.environ)
        )
        try:
            if not ledger.kept_streams():
                return _fail(f"there is no stream of a ReceiverHost in {options.folder}")
            return _show(ledger, options.drop)
        finally:
            ledger.close()
    except (OSError, PenstockError) as error:
        return _fail(str(error))


def _fail(text: str) -> int:
    print(f"penstock consumers: {text}", file=sys.stderr)
    return 2


def make_parser() -> argparse.ArgumentParser:
    """Return what takes the arguments of ``penstock consumers``."""
    parser = argparse.ArgumentParser(
        prog="penstock consumers",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="DIRECTORY", help="the host's, or hdfs://…")
    parser.add_argument(
        "--drop", action="append", default=[], metavar="CONSUMER", help="forget it; may be repeated"
    )
    return parser


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
