"""`DiskRoom`: when the disk of the receivers' logs runs short, what is retained goes, oldest first.

Receivers tell about once a second how much is free where their log lies. What is retained is
promised to nobody, so nobody is asked: a program that runs never waits for it.
"""

from __future__ import annotations

import logging

from penstock.clock import Clock
from penstock.rate_limited_log import RateLimitedLog
from penstock.tracker._block_deletion import BlockDeletion
from penstock.tracker.received_block_tracker import ReceivedBlockTracker
from penstock.wire.messages import ReportGate

__all__ = ["DiskRoom"]

_log = logging.getLogger("penstock.tracker")

_SEGMENTS = 4
"""So many segments of a receiver's log should find room: logs allocate theirs in advance."""

_SETTLE_S = 2.0
"""How long what was let go may take to be gone from the disk."""


class DiskRoom:
    """All calls come on the tracker's control thread."""

    def __init__(
        self,
        ledger: ReceivedBlockTracker,
        deletion: BlockDeletion,
        clock: Clock,
        *,
        segment_bytes: int,
        is_shared: bool,
    ) -> None:
        """Make it.

        Args:
            ledger: Knows what is retained.
            deletion: Has it deleted.
            clock: Time.
            segment_bytes: The size of a segment.
            is_shared: The logs of all hosts lie on one file system.
        """
        self._ledger = ledger
        self._deletion = deletion
        self._clock = clock
        self._least_bytes = _SEGMENTS * segment_bytes
        self._is_shared = is_shared
        self._limited_log = RateLimitedLog(_log, clock)
        # By host: when something was let go there.
        self._last_s: dict[str | None, float] = {}

    def take(self, report: ReportGate) -> None:
        """Look at what a receiver tells, and let go what is in the way."""
        log = None if report.pipe is None else report.pipe.log
        if log is None or not 0 <= log.free_bytes < self._least_bytes:
            return
        host = None if self._is_shared else self._ledger.host_of(report.attempt)
        now_s = self._clock.monotonic_s()
        if now_s - self._last_s.get(host, -_SETTLE_S) < _SETTLE_S:
            return
        releases, segments, size_bytes = self._ledger.release_retained(
            host, 2 * self._least_bytes - log.free_bytes
        )
        if not segments:
            return
        self._last_s[host] = now_s
        self._limited_log.log(
            f"The disk of the log of stream {report.stream_id} runs short ({log.free_bytes >> 20} "
            f"MiB are free): {segments} segments with {size_bytes >> 20} MiB of retained blocks go "
            "before their time, the oldest first; give the disk more room, or retain less "
            "(spark.penstock.wal.retention, spark.penstock.wal.retentionSize)"
        )
        self._deletion.delete(self._ledger, releases)
