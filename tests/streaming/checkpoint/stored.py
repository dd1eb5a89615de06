"""The checkpoint that lies in a folder: read, and put in place of another."""

from __future__ import annotations

import os

from penstock.host.durability import LEDGER
from penstock.streaming.checkpoint.record import Checkpoint, CheckpointHeader, read_checkpoint
from penstock.tracker import ReceivedBlockTracker
from penstock.wal import EncryptionKey, locate


def stored(directory: object, encryption: EncryptionKey | None = None) -> Checkpoint | None:
    """Return the newest checkpoint, also while a program of this host runs from the folder."""
    return read_checkpoint(str(directory), encryption, is_taken=False)


def stored_header(directory: object) -> CheckpointHeader:
    found = stored(directory)
    assert found is not None
    return found.header


def store(directory: object, checkpoint: Checkpoint) -> None:
    ledger = ledger_of(directory)
    ledger.write_checkpoint(checkpoint.encode())
    ledger.close()


def ledger_of(directory: object, application: str = "") -> ReceivedBlockTracker:
    """Take a checkpoint directory, as a program that starts does."""
    fs, path = locate(os.path.join(str(directory), LEDGER))
    return ReceivedBlockTracker.recover((), path, fs=fs, application=application)
