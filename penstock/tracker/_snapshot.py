"""The whole ledger as log records, so that older segments can go and recovery stays short.

A snapshot is a run of `SnapshotPart` records, written without anything between them. Only when
the part marked `last` is there does it count; a piece without its end is as if never written.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import msgspec

from penstock.tracker._block_numbers import BlockNumbers
from penstock.tracker._events import (
    FORMAT,
    AttemptState,
    BlockAdditionEvent,
    ConsumerState,
    KeptState,
    RetainedState,
    SnapshotPart,
    StreamState,
    addition_events,
    block_number,
    blocks_of,
)
from penstock.tracker._kept_blocks import Consumer, KeptBlocks
from penstock.tracker._ledger_state import AttemptLedger, LedgerState, NumberedBlock, StreamLedger
from penstock.tracker._retained import RetainedSegment
from penstock.tracker.errors import LedgerError

__all__ = ["KEPT", "UNALLOCATED", "SnapshotReader", "snapshot_parts"]

UNALLOCATED = -1
"""Stands where a batch would stand, for blocks that no batch has taken."""

KEPT = -2
"""The same for blocks that are read by places."""

_PART_BYTES = 2 << 20
"""A part holds about this much, so that no record is large."""

_ROW_BYTES = 48
"""About what a block without a position takes."""

_RETAINED_PER_PART = 8192


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
            stream.position,
            stream.position_number,
            stream.name,
            None if stream.kept is None else _kept_state(stream.kept),
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
        version=FORMAT,
        complete=tuple(sorted(state.complete)),
        cleaned_before=state.cleaned_before,
    )
    chunks = chain(
        ((additions, ()) for additions in _chunks(state)),
        (((), retained) for retained in _retained(state)),
    )
    for index, (additions, retained) in enumerate(chunks, start=1):
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
            version=FORMAT,
            retained=retained,
        )
    yield msgspec.structs.replace(head, last=True)


def _kept_state(kept: KeptBlocks) -> KeptState:
    return KeptState(
        kept.epoch,
        kept.first,
        kept.records_before(kept.first),
        kept.bytes_before(kept.first),
        tuple(
            ConsumerState(name, consumer.place, consumer.is_committed, consumer.at_ms)
            for name, consumer in kept.consumers.items()
        ),
        kept.kind,
        kept.schema,
        kept.released_ms,
    )


def _kept_blocks(state: KeptState) -> KeptBlocks:
    kept = KeptBlocks(state.epoch, state.first, state.records_before, state.bytes_before)
    kept.kind, kept.schema = state.kind, state.schema
    kept.released_ms = state.released_ms
    for consumer in state.consumers:
        kept.consumers[consumer.consumer] = Consumer(
            consumer.place, consumer.is_committed, consumer.at_ms
        )
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


def _retained(state: LedgerState) -> Iterator[tuple[RetainedState, ...]]:
    found = [
        RetainedState(
            one.attempt,
            one.folder,
            one.number,
            one.at_ms,
            one.size_bytes,
            one.records,
            tuple(one.runs),
        )
        for one in state.retained
    ]
    for start in range(0, len(found), _RETAINED_PER_PART):
        yield tuple(found[start : start + _RETAINED_PER_PART])


class SnapshotReader:
    """Puts a snapshot together from its parts."""

    def __init__(self) -> None:
        self._state: LedgerState | None = None
        self._next_index = 0

    def feed(self, part: SnapshotPart) -> LedgerState | None:
        """Take the next part; return the ledger when it was the last one.

        Raises:
            LedgerError: When a part is missing or says what cannot be.
        """
        if part.index == 0:
            self._state = _empty_ledger(part)
            self._next_index = 0
        if self._state is None or part.index != self._next_index:
            raise LedgerError(f"part {part.index} of a snapshot is not where it belongs")
        self._next_index += 1
        for batch, event in part.additions:
            _add(self._state, batch, event)
        for retained in part.retained:
            _retain(self._state, retained)
        if not part.last:
            return None
        state, self._state = self._state, None
        return state


def _empty_ledger(part: SnapshotPart) -> LedgerState:
    state = LedgerState()
    state.last_batch = part.last_batch
    state.cleaned_before = part.cleaned_before
    for stream in part.streams:
        state.streams[stream.stream_id] = StreamLedger(
            stream.next_counter,
            stream.newest,
            stream.position,
            stream.position_number,
            stream.name,
            kept=None if stream.kept is None else _kept_blocks(stream.kept),
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
        )
    for batch, streams in part.batches:
        state.batches[batch] = dict.fromkeys(streams, ())
    state.note_complete(part.complete)
    return state


def _retain(state: LedgerState, found: RetainedState) -> None:
    attempt = state.attempts.get(found.attempt)
    if attempt is None:
        raise LedgerError(f"a snapshot retains segments of unknown attempt {found.attempt}")
    attempt.retained += 1
    state.retained.put_back(
        RetainedSegment(
            found.attempt,
            found.folder,
            found.number,
            found.at_ms,
            found.size_bytes,
            found.records,
            list(found.runs),
        )
    )


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
        for (_, block), row in zip(blocks, event.rows, strict=True):
            kept.append(block, row.added_ms)
        return
    taken = state.batches.get(batch)
    if taken is None:
        raise LedgerError(f"a snapshot holds blocks of unknown batch {batch}")
    before = taken.get(event.stream_id, ())
    taken[event.stream_id] = before + tuple(block for _, block in blocks)
