"""Reads a driver log back into a ledger.

Reading starts at the newest segment that begins with a whole snapshot, so that a long history
costs nothing. From there on every record must follow the one before it; a record that was written
but never confirmed (its append failed) is dropped, because the running ledger went on without it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import msgspec

from penstock.tracker._events import (
    EVENTS_KIND,
    SNAPSHOT_KIND,
    AttemptEndEvent,
    AttemptRegistrationEvent,
    BatchAllocationEvent,
    BatchCompletionEvent,
    BatchReturnEvent,
    BlockAdditionEvent,
    ConsumerEvent,
    ConsumerRemovalEvent,
    Event,
    LedgerRecord,
    NewerFormatError,
    PlaceReleaseEvent,
    RetainedReleaseEvent,
    SnapshotPart,
    StreamKeepingEvent,
    StreamNamesEvent,
    StreamRemovalEvent,
    blocks_of,
    decode_record,
    decode_snapshot,
)
from penstock.tracker._ledger_state import LedgerState
from penstock.tracker._snapshot import SnapshotReader
from penstock.tracker.errors import LedgerError, LedgerRecoveryError
from penstock.wal import CorruptRecordError, LogReader, Record

__all__ = ["RecoveredLedger", "apply_event", "recover_ledger"]

_log = logging.getLogger("penstock.tracker")


@dataclass(frozen=True, slots=True)
class RecoveredLedger:
    """What a driver log says.

    Attributes:
        state: The ledger.
        number: The highest record number seen, confirmed or not.
        after: The last confirmed record's number; the next record follows it.
        records: Records that were read.
        first_segment: The lowest segment that is still there, or -1 when there is none.
    """

    state: LedgerState
    number: int
    after: int
    records: int
    first_segment: int


def recover_ledger(folder: str, reader: LogReader) -> RecoveredLedger:
    """Read the ledger back.

    Args:
        folder: The driver log's folder, for messages.
        reader: The log, opened for reading.

    Raises:
        CorruptRecordError: When a record that was acknowledged is damaged (I6).
        LedgerRecoveryError: When a whole record cannot be followed; names segment and offset.
    """
    segments = [info.number for info in reader.segments]
    for position in range(len(segments) - 1, -1, -1):
        if position and not _begins_with_snapshot(reader, segments[position]):
            continue
        try:
            return _replay(folder, reader, segments[position:], segments[0])
        except _IncompleteSnapshotError:
            # The process ended while it wrote this snapshot: what is older is still there.
            continue
    if not segments:
        return RecoveredLedger(LedgerState(), 0, 0, 0, -1)
    raise LedgerRecoveryError(folder, segments[0], 0, "the snapshot that begins here has no end")


class _IncompleteSnapshotError(Exception):
    """The reading began at a snapshot whose end was never written: begin earlier."""


def _begins_with_snapshot(reader: LogReader, segment: int) -> bool:
    try:
        for record in reader.segment_records(segment):
            return record.kind == SNAPSHOT_KIND and decode_snapshot(record.payload).index == 0
    except (CorruptRecordError, NewerFormatError, msgspec.DecodeError):
        # The replay from an earlier segment reads this record again and tells of the damage.
        return False
    return False


def _replay(folder: str, reader: LogReader, segments: list[int], first: int) -> RecoveredLedger:
    replay = _Replay(folder)
    for number in segments:
        records = reader.segment_records(number)
        for record in records:
            try:
                replay.take(record)
            except LedgerRecoveryError:
                # The cause may be a damaged record before this one, which the log tells of last.
                for _ in records:
                    pass
                raise
    return replay.finish(first)


class _Replay:
    """Applies records one behind: the newest is held back until the next one confirms it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._state = LedgerState()
        self._snapshot = SnapshotReader()
        self._held: tuple[Record, int, LedgerRecord | LedgerState] | None = None
        self._has_base = True
        self._applied = -1
        self._number = 0
        self._records = 0

    def take(self, record: Record) -> None:
        """Read the next record of the log."""
        parsed = self._parse(record)
        if self._applied < 0:
            self._begin(record, parsed)
        if parsed.number <= self._number:
            # Its append had failed and was carried out all the same, later. Nobody relied on it.
            _log.warning(
                "driver log %s: record %d at offset %d of segment %d was never confirmed; dropped",
                self._folder,
                parsed.number,
                record.place.offset,
                record.place.segment,
            )
            return
        if self._held is not None and self._held[1] <= parsed.after:
            self._apply_held()
        if self._applied != parsed.after:
            raise self._error(record, f"record {parsed.after} before it is missing")
        self._number = parsed.number
        self._records += 1
        self._hold(record, parsed)

    def finish(self, first_segment: int) -> RecoveredLedger:
        """Apply what is held back and return the ledger."""
        self._apply_held()
        if not self._has_base:
            raise _IncompleteSnapshotError
        return RecoveredLedger(
            self._state, self._number, max(self._applied, 0), self._records, first_segment
        )

    def _begin(self, record: Record, parsed: LedgerRecord | SnapshotPart) -> None:
        self._applied = parsed.after
        self._has_base = parsed.after == 0
        if not self._has_base and not isinstance(parsed, SnapshotPart):
            raise self._error(record, f"record {parsed.after} before it is missing")

    def _hold(self, record: Record, parsed: LedgerRecord | SnapshotPart) -> None:
        if isinstance(parsed, LedgerRecord):
            if not self._has_base:
                raise _IncompleteSnapshotError
            self._held = (record, parsed.number, parsed)
            return
        try:
            state = self._snapshot.feed(parsed)
        except LedgerError as error:
            raise self._error(record, str(error)) from error
        self._held = (record, parsed.number, state) if state is not None else None

    def _apply_held(self) -> None:
        if self._held is None:
            return
        record, number, content = self._held
        self._held = None
        if isinstance(content, LedgerState):
            self._state = content
            self._has_base = True
        else:
            try:
                for event in content.events:
                    apply_event(self._state, event)
            except LedgerError as error:
                raise self._error(record, str(error)) from error
        self._applied = number

    def _parse(self, record: Record) -> LedgerRecord | SnapshotPart:
        try:
            if record.kind == EVENTS_KIND:
                return decode_record(record.payload)
            if record.kind == SNAPSHOT_KIND:
                return decode_snapshot(record.payload)
        except NewerFormatError as error:
            raise self._error(record, str(error)) from error
        except msgspec.DecodeError as error:
            raise self._error(record, f"it cannot be decoded ({error})") from error
        raise self._error(record, f"its kind is {record.kind}: this is not a driver log")

    def _error(self, record: Record, reason: str) -> LedgerRecoveryError:
        place = record.place
        return LedgerRecoveryError(self._folder, place.segment, place.offset, reason)


def apply_event(state: LedgerState, event: Event) -> None:
    """Apply one event of the driver log to the ledger.

    Raises:
        LedgerError: When the event cannot follow what the ledger knows.
    """
    if isinstance(event, BlockAdditionEvent):
        state.add(event.attempt, blocks_of(event), [row.added_ms for row in event.rows])
    elif isinstance(event, BatchAllocationEvent):
        state.allocate(event)
    elif isinstance(event, BatchCompletionEvent):
        state.note_complete(event.batches)
    elif isinstance(event, BatchReturnEvent):
        state.give_back(event.batches)
    elif isinstance(event, AttemptRegistrationEvent):
        state.register(event)
    elif isinstance(event, AttemptEndEvent):
        state.forget(event.attempts)
    elif isinstance(event, StreamNamesEvent):
        state.name_streams(event.names)
    elif isinstance(event, StreamRemovalEvent):
        state.remove_streams(event.streams)
    elif isinstance(event, StreamKeepingEvent):
        state.keep_streams(event.streams)
    elif isinstance(event, ConsumerEvent):
        state.note_consumer(event)
    elif isinstance(event, ConsumerRemovalEvent):
        state.kept(event.stream_id).forget(event.consumers)
    elif isinstance(event, PlaceReleaseEvent):
        state.release_places(event.stream_id, event.before)
    elif isinstance(event, RetainedReleaseEvent):
        state.release_retained(event.segments)
    else:
        state.clean(event.batches, event.retained_ms)
