"""`RetainedSegments`: segments of the receivers' logs that stay after the batches of their blocks.

What must hold:

- *The log is what is kept.* The ledger knows of each segment where it is and which of its records
  were taken, as runs of sequences. So a day of many small blocks costs the driver some hundred
  bytes for each segment, whatever their number.
- *Only what was processed is retained.* A block counts here from the clean-up of its batch on (I4);
  before that it is the batch's. A record that a receiver logged and the ledger never took is in no
  run: its source gave it again.
- *The oldest goes first*, whole segments at a time, by the time at which the last of their blocks
  was cleaned up.
- *Nothing waits for it.* Letting go asks no one.

What is retained is one copy: those on other hosts go with the clean-up, as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.tracker.ledger._kept_blocks import Retention
from penstock.tracker.ledger.events import RetainedSegment, SegmentKey
from penstock.wire.messages import ReceivedBlockInfo


class RetainedSegments:
    """All of them, the oldest first. Not locked: it is part of `LedgerState`.

    Attributes:
        size_bytes: Bytes of the records that are retained.
    """

    def __init__(self) -> None:
        self._segments: dict[SegmentKey, RetainedSegment] = {}
        self._latest_ms = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[RetainedSegment]:
        return iter(self._segments.values())

    def __contains__(self, key: SegmentKey) -> bool:
        return key in self._segments

    def add(self, block: ReceivedBlockInfo, at_ms: int) -> bool:
        """Retain a block that has a segment. A clock that was set back does not make it older.

        Returns:
            Whether it is the first of its segment.
        """
        place = block.segment
        assert place is not None
        self._latest_ms = max(self._latest_ms, at_ms)
        key = (place.folder, place.segment)
        found = self._segments.pop(key, None)
        is_first = found is None
        if found is None:
            found = RetainedSegment(block.attempt, place.folder, place.segment)
        found.add(block.sequence, place.length, block.num_records, self._latest_ms)
        self._segments[key] = found
        self.size_bytes += place.length
        return is_first

    def put_back(self, segment: RetainedSegment) -> None:
        """Take one from a snapshot; it is newer than those that are here."""
        self._segments[segment.key] = segment
        self._latest_ms = max(self._latest_ms, segment.at_ms)
        self.size_bytes += segment.size_bytes

    def pop(self, key: SegmentKey) -> RetainedSegment | None:
        """Retain a segment no longer."""
        found = self._segments.pop(key, None)
        if found is not None:
            self.size_bytes -= found.size_bytes
        return found

    def over(self, now_ms: int, retention: Retention | None) -> tuple[SegmentKey, ...]:
        """Return the segments whose retention is over; None: nothing is to be retained."""
        if retention is None:
            return tuple(self._segments)
        found: list[SegmentKey] = []
        left = self.size_bytes
        for key, segment in self._segments.items():
            is_old = retention.time_ms is not None and now_ms - segment.at_ms >= retention.time_ms
            is_much = retention.size_bytes is not None and left > retention.size_bytes
            if not is_old and not is_much:
                break
            found.append(key)
            left -= segment.size_bytes
        return tuple(found)

    def oldest(self, attempts: Iterable[str], size_bytes: int) -> tuple[SegmentKey, ...]:
        """Return the oldest segments that have that many bytes together, or all.

        Args:
            attempts: Only these attempts' segments.
            size_bytes: How much is wanted.
        """
        wanted = frozenset(attempts)
        found: list[SegmentKey] = []
        for key, segment in self._segments.items():
            if size_bytes <= 0:
                break
            if segment.attempt in wanted:
                found.append(key)
                size_bytes -= segment.size_bytes
        return tuple(found)
