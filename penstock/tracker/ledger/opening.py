"""Opening an application's ledger: where it is, and by which options of the log."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

from penstock.runtime.clock import Clock
from penstock.settings import Settings
from penstock.tracker.ledger._driver_log import SnapshotRule
from penstock.tracker.ledger._kept_blocks import Retention
from penstock.tracker.ledger.received_block_tracker import ReceivedBlockTracker
from penstock.wal import EncryptionKey, LogOptions, SyncPolicy, locate, settled

_SEGMENT_BYTES = 16 << 20


def open_ledger(
    stream_ids: Iterable[int],
    folder: str | None,
    settings: Settings,
    *,
    sync: str,
    application: str = "",
    clock: Clock,
    encryption: EncryptionKey | None = None,
) -> ReceivedBlockTracker:
    """Open an application's ledger; see `ReceivedBlockTracker.recover`.

    Args:
        stream_ids: The streams whose blocks are taken, until streams are registered.
        folder: The driver log's folder, also on HDFS; None: the ledger is in memory only.
        settings: The application's settings.
        sync: The sync policy.
        application: Its name, for anyone who wants the log meanwhile.
        clock: Time.
        encryption: The key; None: the log is in clear.
    """
    if folder is None:
        ledger = ReceivedBlockTracker(stream_ids, clock=clock)
    else:
        fs, path = locate(folder)
        ledger = ReceivedBlockTracker.recover(
            stream_ids,
            path,
            fs=fs,
            options=LogOptions(
                segment_size=_SEGMENT_BYTES,
                alignment=64,
                sync=SyncPolicy(sync),
                sync_interval_s=settings.wal_sync_interval_ms / 1000,
            ),
            clock=clock,
            snapshots=SnapshotRule(age_s=settings.driver_wal_rolling_s),
            application=application,
            encryption=encryption,
            retention=_retention(settings),
        )
    # Twice, for hosts have clocks of their own: a letter that is older is not sent.
    ledger.letters_kept_s = 2 * settings.dead_letters_max_age_s
    return ledger


def read_checkpoint(
    folder: str, encryption: EncryptionKey | None = None, *, is_taken: bool = True
) -> bytes:
    """Return the newest checkpoint in a driver log; empty when there is none.

    Args:
        folder: The driver log's folder, also on HDFS.
        encryption: The key; None: the log is in clear.
        is_taken: Whether the caller will go on from it. Then it must not be in use, and on HDFS it
            is taken from a driver on another host, without which what that one is writing cannot
            be read.

    Raises:
        LogFolderInUseError: It would be taken, and a driver on this host writes it.
        OSError: It cannot be read; on HDFS also as it is being written.
        DamagedLedgerError, LedgerRecoveryError, EncryptionMismatchError: As
            `ReceivedBlockTracker.recover`.
    """
    fs, path = locate(folder)
    if not fs.is_folder(path):
        return b""
    with settled(fs, path) if is_taken else nullcontext():
        return ReceivedBlockTracker.read(path, fs=fs, encryption=encryption).checkpoint


def _retention(settings: Settings) -> Retention | None:
    time_ms, size_bytes = settings.wal_retention_ms, settings.wal_retention_bytes
    if time_ms is None and size_bytes is None:
        return None
    return Retention(time_ms, size_bytes)
