"""`DriverLog`: how the ledger's events get into the segment log, and snapshots between them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.runtime.clock import Clock
from penstock.tracker.errors import LedgerLostError, LedgerWriteError
from penstock.tracker.ledger._ledger_state import LedgerState
from penstock.tracker.ledger._recovery import RecoveredLedger, snapshot_parts
from penstock.tracker.ledger.events import (
    EVENTS_KIND,
    SNAPSHOT_KIND,
    Event,
    LedgerRecord,
    encode,
)
from penstock.wal import LogLostError, LogWriter, SyncPolicy

_log = logging.getLogger("penstock.tracker")


@dataclass(frozen=True)
class SnapshotRule:
    """When a snapshot is due, so that snapshots cost at most about what the events cost.

    Attributes:
        size_bytes: After this many bytes of events, or twice the last snapshot, if that is more.
        age_s: Also after this time, unless there are fewer bytes of events than the last snapshot
            had; None: by size only.
    """

    size_bytes: int = 8 << 20
    age_s: float | None = None


class DriverLog:
    """Writes numbered records. Not locked: `ReceivedBlockTracker` calls it one at a time.

    Without a writer it takes everything and keeps nothing.

    Attributes:
        records: Records of events written.
        size_bytes: Bytes of their payloads.
        snapshots: Snapshots written.
    """

    def __init__(self, writer: LogWriter | None, rule: SnapshotRule, clock: Clock) -> None:
        self._writer = writer
        self._rule = rule
        self._clock = clock
        self._closed = False
        self._lost: LogLostError | None = None
        self._number = 0
        self._after = 0
        self._first_segment = 0
        self._since_snapshot = 0
        self._last_snapshot = 0
        self._last_snapshot_s = clock.monotonic_s()
        self.records = 0
        self.size_bytes = 0
        self.snapshots = 0

    def go_on_from(self, found: RecoveredLedger) -> None:
        """Number the next record after those that were recovered."""
        self._number = found.number
        self._after = found.after
        self._first_segment = max(found.first_segment, 0)

    def append(self, what: str, events: tuple[Event, ...]) -> None:
        """Write events as one record; when this returns they are committed to the sync policy.

        Args:
            what: The events in words.
            events: The events.

        Raises:
            LedgerLostError: The log was removed, or taken over, now or before.
            LedgerWriteError: The log did not take them. They may be on the disk all the same, but
                no recovery will count them once a later record was written.
        """
        if self._closed:
            raise LedgerWriteError(what, "the ledger is closed")
        if self._writer is None:
            return
        self.check(what)
        self._number += 1
        payload = encode(LedgerRecord(self._number, self._after, events))
        try:
            self._writer.append(EVENTS_KIND, payload)
        except LogLostError as error:
            # A new segment would not make up for those that are gone.
            self._lost = error
            raise _lost_error(what, error) from error
        except (PenstockError, OSError) as error:
            raise LedgerWriteError(what, str(error)) from error
        self._after = self._number
        self._since_snapshot += len(payload)
        self.records += 1
        self.size_bytes += len(payload)

    def force(self, what: str) -> None:
        """Return when all that was appended is on the disk, whatever the sync policy.

        Raises:
            LedgerWriteError: It may not be.
        """
        if self._writer is None or self._writer.options.sync is SyncPolicy.ALWAYS:
            return
        try:
            self._writer.sync()
        except (PenstockError, OSError) as error:
            raise LedgerWriteError(what, str(error)) from error

    def check(self, what: str) -> None:
        """Check that it was not found removed or taken over.

        Args:
            what: What waits for it, in words.

        Raises:
            LedgerLostError: It was.
        """
        if (lost := self._lost) is not None:
            raise _lost_error(what, lost) from lost

    @property
    def snapshot_is_due(self) -> bool:
        """Whether `write_snapshot` should be called."""
        if self._since_snapshot >= max(self._rule.size_bytes, 2 * self._last_snapshot):
            return True
        return (
            self._rule.age_s is not None
            and self._since_snapshot > self._last_snapshot
            and self._clock.monotonic_s() - self._last_snapshot_s >= self._rule.age_s
        )

    def write_snapshot(self, state: LedgerState) -> None:
        """Begin a segment with the whole ledger and remove the older ones.

        A snapshot that fails is one log line: the log still has all events before it.
        """
        if self._writer is None:
            return
        self._since_snapshot = 0
        self._last_snapshot_s = self._clock.monotonic_s()
        size, segment = 0, -1
        try:
            self._writer.roll()
            for part in snapshot_parts(state, self._number + 1, self._after):
                self._number = part.number
                payload = encode(part)
                place = self._writer.append(SNAPSHOT_KIND, payload)
                segment = place.segment if segment < 0 else segment
                size += len(payload)
        except (PenstockError, OSError) as error:
            if isinstance(error, LogLostError):
                self._lost = error
            _log.warning("the driver log did not take a snapshot, older segments stay: %s", error)
            return
        self._after = self._number
        self._last_snapshot = size
        self.snapshots += 1
        try:
            # A power loss may take what came last, but never what was forced before it.
            self.force("a snapshot")
            self._writer.remove_segments(range(self._first_segment, segment))
            self._first_segment = segment
        except (PenstockError, OSError) as error:
            _log.warning("segments of the driver log before %d stay: %s", segment, error)

    def close(self) -> None:
        """Close the writer; nothing more is taken. May be called twice."""
        self._closed = True
        if self._writer is not None:
            self._writer.close()


def _lost_error(what: str, lost: LogLostError) -> LedgerLostError:
    return LedgerLostError(what, str(lost), is_taken_over=lost.is_taken_over)
