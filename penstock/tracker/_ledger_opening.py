"""Opening an application's ledger: where it lies, and by which options of the log."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.clock import Clock
from penstock.settings import Settings
from penstock.tracker._driver_log import SnapshotRule
from penstock.tracker._kept_blocks import Retention
from penstock.tracker.received_block_tracker import ReceivedBlockTracker
from penstock.wal import EncryptionKey, LogOptions, SyncPolicy, locate

_SEGMENT_BYTES = 16 << 20


def open_ledger(
    stream_ids: Iterable[int],
    folder: str | None,
    settings: Settings,
    *,
    sync: str,
    owner: str,
    clock: Clock,
    encryption: EncryptionKey | None = None,
) -> ReceivedBlockTracker:
    """Open an application's ledger; see `ReceivedBlockTracker.recover`.

    Args:
        stream_ids: The streams whose blocks are taken, until streams are registered.
        folder: The driver log's folder, also on HDFS; None: the ledger is in memory only.
        settings: The application's settings.
        sync: The sync policy.
        owner: The application's id.
        clock: Time.
        encryption: The key; None: the log is in clear.
    """
    if folder is None:
        return ReceivedBlockTracker(stream_ids, clock=clock)
    fs, path = locate(folder)
    return ReceivedBlockTracker.recover(
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
        owner=owner.encode(),
        encryption=encryption,
        retention=_retention(settings),
    )


def _retention(settings: Settings) -> Retention | None:
    time_ms, size_bytes = settings.wal_retention_ms, settings.wal_retention_bytes
    if time_ms is None and size_bytes is None:
        return None
    return Retention(time_ms, size_bytes)
