"""Reads a driver log back into a ledger, and writes snapshots, so that this stays short.

A snapshot is the whole ledger as log records, after which older segments can go: a run of
`SnapshotPart` records, written without anything between them. Only when the part marked `last` is
there does it count; a piece without its end is as if never written.

Reading starts at the newest segment that begins with a whole snapshot, so that a long history
costs nothing. From there on every record must follow the one before it; a record that was written
but never confirmed (its append failed) is dropped, because the running ledger went on without it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import msgspec

from penstock.position_changes import StandingPosition
from penstock.tracker.errors import LedgerError, LedgerRecoveryError
from penstock.tracker.ledger._block_numbers import BlockNumbers
from penstock.tracker.ledger._kept_blocks import KeptBlocks
from penstock.tracker.ledger._ledger_state import (
    AttemptLedger,
    LedgerState,
    NumberedBlock,
    StreamLedger,
)
from penstock.tracker.ledger.events import (
    EVENTS_KIND,
    SNAPSHOT_KIND,
    AttemptState,
    BlockAdditionEvent,
    KeptState,
    LedgerRecord,
    RetainedSegment,
    SnapshotPart,
    StreamState,
    addition_events,
    block_number,
    blocks_of,
    decode_record,
    decode_snapshot,
)
from penstock.wal import CorruptRecordError, LogReader, Record

UNALLOCATED = -1
"""In place of a batch's time, for blocks that no batch has taken."""

KEPT = -2
"""In place of a batch's time, for blocks that are read by places."""

_PART_BYTES = 2 << 20
"""A part holds about this much, so that no record is large."""

_ROW_BYTES = 48
"""Approximate size of a block without a position."""

_RETAINED_PER_PART = 8192

_log = logging.getLogger("penstock.tracker")


def snapshot_parts(state: LedgerState, number: int, after: int) -> Iterator[SnapshotPart]:
    """Yield the records of a snapshot.

    Args:
        state: What is written; must not change before the last part was taken.
        number: Number of the first part; the others follow.
        after: Number of the last record that is known to be in the log; all parts carry it,
            since they count together or not at all.
    """
    streams = tuple(
        StreamState(
            stream_id,
            stream.next_counter,
            stream.newest,
            stream.position.value,
            stream.position_number,
            stream.name,
            None if stream.kept is None else _kept_state(stream.kept),
            stream.splits,
            stream.wanted,
            stream.declared,
            tuple(stream.letters.items()),
        )
        for stream_id, stream in state.streams.items()
    )
    attempts = tuple(
        AttemptState(
            attempt.attempt,
            attempt.stream_id,
            attempt.host,
            attempt.counter,
            attempt.numbers.next,
            attempt.newest_segment,
            attempt.numbers.gaps,
            tuple(attempt.replica_hosts),
            attempt.log,
        )
        for attempt in state.attempts.values()
    )
    batches = tuple((batch, tuple(blocks)) for batch, blocks in state.batches.items())
    head = SnapshotPart(
        number,
        after,
        0,
        False,
        state.last_batch,
        streams,
        attempts,
        batches,
        additions=(),
        complete=tuple(sorted(state.complete)),
        cleaned_before=state.cleaned_before,
    )
    chunks = chain(
        ((additions, (), b"") for additions in _chunks(state)),
        (((), retained, b"") for retained in _retained(state)),
        (((), (), piece) for piece in pieces_of(state.checkpoint)),
    )
    for index, (additions, retained, checkpoint) in enumerate(chunks, start=1):
        yield head
        head = SnapshotPart(
            number + index,
            after,
            index,
            False,
            state.last_batch,
            streams=(),
            attempts=(),
            batches=(),
            additions=additions,
            retained=retained,
            checkpoint=checkpoint,
        )
    yield msgspec.structs.replace(head, last=True)


def pieces_of(checkpoint: bytes) -> Iterator[bytes]:
    """Yield what records hold of a checkpoint, so that none of them is large."""
    for begin in range(0, len(checkpoint), _PART_BYTES):
        yield checkpoint[begin : begin + _PART_BYTES]


def _kept_state(kept: KeptBlocks) -> KeptState:
    return KeptState(
        kept.epoch,
        kept.first,
        kept.records_before(kept.first),
        kept.bytes_before(kept.first),
        kept.consumers,
        kept.kind,
        kept.schema,
        kept.released_ms,
    )


def _kept_blocks(state: KeptState) -> KeptBlocks:
    kept = KeptBlocks(state.epoch, state.first, state.records_before, state.bytes_before)
    kept.kind, kept.schema = state.kind, state.schema
    kept.released_ms = state.released_ms
    kept.consumers = state.consumers
    return kept


def _chunks(state: LedgerState) -> Iterator[tuple[tuple[int, BlockAdditionEvent], ...]]:
    allocated = (
        (batch, (block_number(stream_id, block.block_id), block), 0)
        for batch, streams in state.batches.items()
        for stream_id, blocks in streams.items()
        for block in blocks
    )
    waiting = (
        (UNALLOCATED, numbered, 0)
        for stream in state.streams.values()
        for numbered in stream.unallocated.items()
    )
    kept = (
        (KEPT, (block_number(stream_id, block.block_id), block), added_ms)
        for stream_id, stream in state.streams.items()
        if stream.kept is not None
        for block, added_ms in zip(
            stream.kept.between(stream.kept.first, stream.kept.next),
            stream.kept.times_between(stream.kept.first, stream.kept.next),
            strict=True,
        )
    )
    found: list[tuple[int, BlockAdditionEvent]] = []
    run: list[NumberedBlock] = []
    times: list[int] = []
    run_batch = UNALLOCATED
    size = 0
    for batch, numbered, added_ms in chain(allocated, waiting, kept):
        if run and (batch != run_batch or size >= _PART_BYTES):
            found.extend((run_batch, event) for event in addition_events(run, times))
            run, times = [], []
        if size >= _PART_BYTES:
            yield tuple(found)
            found, size = [], 0
        run_batch = batch
        run.append(numbered)
        times.append(added_ms)
        size += _ROW_BYTES + len(numbered[1].position or b"")
    found.extend((run_batch, event) for event in addition_events(run, times))
    if found:
        yield tuple(found)


def _retained(state: LedgerState) -> Iterator[tuple[RetainedSegment, ...]]:
    found = tuple(state.retained)
    for start in range(0, len(found), _RETAINED_PER_PART):
        yield found[start : start + _RETAINED_PER_PART]


class SnapshotReader:
    """Puts a snapshot together from its parts."""

    def __init__(self) -> None:
        self._state: LedgerState | None = None
        self._next_index = 0
        self._checkpoint: list[bytes] = []

    def feed(self, part: SnapshotPart) -> LedgerState | None:
        """Take the next part; return the ledger when it was the last one.

        Raises:
            LedgerError: When a part is missing or says what cannot be.
        """
        if part.index == 0:
            self._state = _empty_ledger(part)
            self._next_index = 0
            self._checkpoint = []
        if self._state is None or part.index != self._next_index:
            raise LedgerError(f"part {part.index} of a snapshot is not where it belongs")
        self._next_index += 1
        for batch, event in part.additions:
            _add(self._state, batch, event)
        for retained in part.retained:
            _retain(self._state, retained)
        self._checkpoint.append(part.checkpoint)
        if not part.last:
            return None
        state, self._state = self._state, None
        state.checkpoint = b"".join(self._checkpoint)
        return state


def _empty_ledger(part: SnapshotPart) -> LedgerState:
    state = LedgerState()
    state.last_batch = part.last_batch
    state.cleaned_before = part.cleaned_before
    for stream in part.streams:
        state.streams[stream.stream_id] = StreamLedger(
            stream.next_counter,
            stream.newest,
            StandingPosition(stream.position),
            stream.position_number,
            stream.name,
            kept=None if stream.kept is None else _kept_blocks(stream.kept),
            splits=stream.splits,
            wanted=stream.wanted,
            declared=stream.declared,
            letters=dict(stream.letters),
        )
    for attempt in part.attempts:
        state.attempts[attempt.attempt] = AttemptLedger(
            attempt.stream_id,
            attempt.attempt,
            attempt.host,
            attempt.counter,
            BlockNumbers(attempt.next_number, attempt.gaps),
            attempt.newest_segment,
            replica_hosts=dict.fromkeys(attempt.replica_hosts),
            log=attempt.log,
        )
    for batch, streams in part.batches:
        state.batches[batch] = dict.fromkeys(streams, ())
    state.note_complete(part.complete)
    return state


def _retain(state: LedgerState, found: RetainedSegment) -> None:
    attempt = state.attempts.get(found.attempt)
    if attempt is None:
        raise LedgerError(f"a snapshot retains segments of unknown attempt {found.attempt}")
    attempt.retained += 1
    state.retained.put_back(found)


def _add(state: LedgerState, batch: int, event: BlockAdditionEvent) -> None:
    stream = state.streams.get(event.stream_id)
    attempt = state.attempts.get(event.attempt)
    if stream is None or attempt is None:
        raise LedgerError(f"a snapshot holds blocks of unknown attempt {event.attempt}")
    blocks = blocks_of(event)
    attempt.unreleased += len(blocks)
    attempt.count(block for _, block in blocks)
    if batch == UNALLOCATED:
        stream.unallocated.update(blocks)
        return
    if batch == KEPT:
        kept = state.kept(event.stream_id)
        for (number, block), row in zip(blocks, event.rows, strict=True):
            kept.append(number, block, row.added_ms)
        return
    taken = state.batches.get(batch)
    if taken is None:
        raise LedgerError(f"a snapshot holds blocks of unknown batch {batch}")
    before = taken.get(event.stream_id, ())
    taken[event.stream_id] = before + tuple(block for _, block in blocks)


@dataclass(frozen=True, slots=True)
class RecoveredLedger:
    """What a driver log says.

    Attributes:
        state: The ledger.
        number: The highest record number seen, confirmed or not.
        after: The last confirmed record's number; the next record follows it.
        records: Records that were read.
        first_segment: The lowest segment that still exists, or -1 when there is none.
    """

    state: LedgerState
    number: int
    after: int
    records: int
    first_segment: int


def recover_ledger(folder: str, reader: LogReader) -> RecoveredLedger:
    """Read the ledger back.

    Args:
        folder: The address of the driver log's folder, for messages.
        reader: The log, opened for reading.

    Raises:
        CorruptRecordError: When a record that was acknowledged is damaged (I6).
        LedgerRecoveryError: When a whole record cannot be followed; names segment and offset.
    """
    segments = [info.number for info in reader.segments]
    for position in range(len(segments) - 1, -1, -1):
        if position and not _begins_with_snapshot(reader, segments[position]):
            continue
        found = _replay(folder, reader, segments[position:], segments[0])
        if found is not None:
            return found
        # The process ended while it wrote this snapshot: what is older still exists.
    if not segments:
        return RecoveredLedger(LedgerState(), 0, 0, 0, -1)
    raise LedgerRecoveryError(folder, segments[0], 0, "the snapshot that begins here has no end")


def _begins_with_snapshot(reader: LogReader, segment: int) -> bool:
    try:
        for record in reader.segment_records(segment):
            return record.kind == SNAPSHOT_KIND and decode_snapshot(record.payload).index == 0
    except (CorruptRecordError, ValueError):
        # The replay from an earlier segment reads this record again and reports the damage.
        return False
    return False


def _replay(
    folder: str, reader: LogReader, segments: list[int], first: int
) -> RecoveredLedger | None:
    """Return the ledger; None: it begins at a snapshot whose end was never written."""
    replay = _Replay(folder)
    for number in segments:
        records = reader.segment_records(number)
        for record in records:
            try:
                if not replay.take(record):
                    return None
            except LedgerRecoveryError:
                # The cause may be a damaged record before this one, which the log reports last.
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

    def take(self, record: Record) -> bool:
        """Read the next record of the log; return whether there is what it stands on."""
        parsed = self._parse(record)
        if self._applied < 0:
            self._begin(record, parsed)
        if parsed.number <= self._number:
            # Its append had failed and was carried out all the same, later. No one relied on it.
            _log.warning(
                "driver log %s: record %d at offset %d of segment %d was never confirmed; dropped",
                self._folder,
                parsed.number,
                record.place.offset,
                record.place.segment,
            )
            return True
        if self._held is not None and self._held[1] <= parsed.after:
            self._apply_held()
        if self._applied != parsed.after:
            raise self._error(record, f"record {parsed.after} before it is missing")
        self._number = parsed.number
        self._records += 1
        return self._hold(record, parsed)

    def finish(self, first_segment: int) -> RecoveredLedger | None:
        """Apply what is held back and return the ledger; None: it has no beginning."""
        self._apply_held()
        if not self._has_base:
            return None
        return RecoveredLedger(
            self._state, self._number, max(self._applied, 0), self._records, first_segment
        )

    def _begin(self, record: Record, parsed: LedgerRecord | SnapshotPart) -> None:
        self._applied = parsed.after
        self._has_base = parsed.after == 0
        if not self._has_base and not isinstance(parsed, SnapshotPart):
            raise self._error(record, f"record {parsed.after} before it is missing")

    def _hold(self, record: Record, parsed: LedgerRecord | SnapshotPart) -> bool:
        if isinstance(parsed, LedgerRecord):
            self._held = (record, parsed.number, parsed)
            return self._has_base
        try:
            state = self._snapshot.feed(parsed)
        except LedgerError as error:
            raise self._error(record, str(error)) from error
        self._held = (record, parsed.number, state) if state is not None else None
        return True

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
                    self._state.apply(event)
            except LedgerError as error:
                raise self._error(record, str(error)) from error
        self._applied = number

    def _parse(self, record: Record) -> LedgerRecord | SnapshotPart:
        try:
            if record.kind == EVENTS_KIND:
                return decode_record(record.payload)
            if record.kind == SNAPSHOT_KIND:
                return decode_snapshot(record.payload)
        except msgspec.DecodeError as error:
            raise self._error(record, f"it cannot be decoded ({error})") from error
        except ValueError as error:
            raise self._error(record, str(error)) from error
        raise self._error(record, f"its kind is {record.kind}: this is not a driver log")

    def _error(self, record: Record, reason: str) -> LedgerRecoveryError:
        place = record.place
        return LedgerRecoveryError(self._folder, place.segment, place.offset, reason)
