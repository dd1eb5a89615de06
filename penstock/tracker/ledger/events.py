"""The events of the driver log, and how they are written.

One log record is one `LedgerRecord`: a number, the number of the record it follows, and any
count of events. Numbers are given in order and never twice. `after` is the last record that the
writer *knew* to be in the log: a record whose append failed may be on the disk all the same, and
the next record's `after` stands before it, so that a recovery drops exactly what the running
ledger did not have either.

Everything is MessagePack of arrays without names. The blocks of one attempt that were added
together share their host, paths and attempt; a block itself is eleven small values, about 40 bytes.
Each record says in which version of the format it is written; one of another version is refused.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from penstock.wire.messages import MemoryPlace, ReceivedBlockInfo, ReplicaPlace, SegmentPlace

FORMAT = 13
"""The version of the format that is written and read."""

EVENTS_KIND = 16
"""Record kind of `LedgerRecord` in the driver log."""

SNAPSHOT_KIND = 17
"""Record kind of `SnapshotPart` in the driver log."""


SegmentKey = tuple[str, int]
"""Folder and number of a segment."""


class BlockRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One added block, without what it shares with its neighbours. -1 means "no such place"."""

    number: int
    num_records: int
    num_bytes: int
    sequence: int
    memory_offset: int
    memory_length: int
    segment: int
    segment_offset: int
    segment_length: int
    position: bytes | None
    replicas: tuple[tuple[int, int, int, int], ...] = ()
    """Of each copy: segment, offset, length, sequence."""
    added_ms: int = 0
    """When it was added, ms since the epoch; 0 where no one asks, which is in batches."""


class BlockAdditionEvent(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Blocks of one attempt, in the order in which they were accepted."""

    stream_id: int
    attempt: str
    host: str
    memory_path: str
    folder: str
    kind: str
    schema: bytes | None
    rows: tuple[BlockRow, ...]
    replicas: tuple[tuple[str, str], ...] = ()
    """Host and folder of each copy in the rows."""


class BatchAllocationEvent(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The blocks of a batch: per stream, in order, runs of block numbers (first, count)."""

    batch: int
    streams: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]


class BatchCleanupEvent(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """These batches are done and their blocks released."""

    batches: tuple[int, ...]
    retained_ms: int = -1
    """When that was, ms since the epoch, where the segments of the blocks are retained."""


class BatchCompletionEvent(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """These batches were processed: a driver that starts over does not give their blocks again."""

    batches: tuple[int, ...]


class BatchReturnEvent(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """These batches were never finished: their blocks wait for a batch again, before all others."""

    batches: tuple[int, ...]


class AttemptRegistrationEvent(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A receiver attempt becomes the newest of its stream and fences the older ones."""

    stream_id: int
    attempt: str
    host: str
    counter: int
    log: str = ""
    """Folder of the log that it shares with others of its process."""


class StreamNamesEvent(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Streams get names, each with its number."""

    names: tuple[tuple[int, str], ...]


class StreamRemovalEvent(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The program gave these streams up: their positions are forgotten, their blocks released."""

    streams: tuple[int, ...]


class StreamKeepingEvent(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """From here on these streams are read by places, each with the name of its epoch."""

    streams: tuple[tuple[int, str], ...]


class ConsumerEvent(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """A consumer of a stream needs the blocks from this place on."""

    stream_id: int
    consumer: str
    place: int
    is_committed: bool
    at_ms: int


class LoggedEpoch(msgspec.Struct, frozen=True, array_like=True):
    """The last epoch of a consumer that reads by epochs; see `penstock.continuous`."""

    source: str
    """Names the consumer's epochs; made with the first one."""
    number: int
    """They are numbered one by one, from 0."""
    end: int
    """It has the blocks before this place, from the end of the one before on."""
    parts: int
    """How many parts they are divided into: place modulo parts, or by key."""
    key_by: str | None = None
    """The column whose keys divide them."""
    clock_ms: int = 0
    """What time it was when it ended, in ms since the epoch; 0 before that was noted."""
    is_open: bool = False
    """It has no blocks, and whether it is where it belongs is not known. (Of one with blocks its
    consumer's place says that.)"""


class EpochEvent(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """A consumer's next epoch; all before it are where they belong, and need no blocks any more.

    Or the last one again, not open any more.
    """

    stream_id: int
    consumer: str
    start: int
    epoch: LoggedEpoch
    at_ms: int


class ConsumerRemovalEvent(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """These consumers of a stream are forgotten."""

    stream_id: int
    consumers: tuple[str, ...]


class PlaceReleaseEvent(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The blocks before this place of a stream are released."""

    stream_id: int
    before: int


class RetainedReleaseEvent(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """These segments are retained no longer: each with its folder."""

    segments: tuple[tuple[str, int], ...]


class SplitsEvent(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """Which of its source's splits each receiver has from here on; their positions go with them.

    An attempt of one whose splits change is fenced.
    """

    streams: tuple[tuple[int, tuple[str, ...] | None], ...]
    """Of all receivers that share the source; None: it is not wanted."""
    wanted: int
    """How many receivers there are to be."""
    declared: int
    """How many the program asked for when it was made."""
    changes: dict[str, Any] = {}
    """Of places, by split: where one begins that has none yet; None takes one away."""


class CopyEvent(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """Blocks of one attempt have one copy more, all in one log of a host."""

    stream_id: int
    attempt: str
    host: str
    folder: str
    rows: tuple[tuple[int, int, int, int, int], ...]
    """Of each block its number, then segment, offset, length and sequence of the copy."""
    lost: tuple[str, ...] = ()
    """Hosts that are gone: the copies that these blocks had there are given up."""


class LettersSentEvent(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """The records of dead letters are in blocks that the same record of the log adds."""

    stream_id: int
    keys: tuple[bytes, ...]
    at_ms: int
    """When, ms since the epoch."""
    forget_before_ms: int
    """Letters are kept until they are so old: keys that were added before that are forgotten."""


class CheckpointEvent(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """A piece of a checkpoint, which replaces the one before once its last piece is written."""

    index: int
    is_last: bool
    data: bytes


class AttemptEndEvent(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """These attempts are over, their files are given up, and the ledger forgets them."""

    attempts: tuple[str, ...]


Event = (
    BlockAdditionEvent
    | BatchAllocationEvent
    | BatchCleanupEvent
    | BatchCompletionEvent
    | BatchReturnEvent
    | AttemptRegistrationEvent
    | AttemptEndEvent
    | StreamNamesEvent
    | StreamRemovalEvent
    | StreamKeepingEvent
    | ConsumerEvent
    | EpochEvent
    | ConsumerRemovalEvent
    | PlaceReleaseEvent
    | RetainedReleaseEvent
    | SplitsEvent
    | CopyEvent
    | LettersSentEvent
    | CheckpointEvent
)


class LedgerRecord(msgspec.Struct, frozen=True, array_like=True):
    """One record of the driver log: events that become true together."""

    number: int
    after: int
    events: tuple[Event, ...]
    version: int = FORMAT


class GapState(msgspec.Struct, frozen=True, array_like=True):
    """Block numbers that were jumped over, and the segments in which they may be."""

    first: int
    last: int
    segment_low: int
    segment_high: int


class AttemptState(msgspec.Struct, frozen=True, array_like=True):
    """A receiver attempt in a snapshot."""

    attempt: str
    stream_id: int
    host: str
    counter: int
    next_number: int
    newest_segment: int
    gaps: tuple[GapState, ...]
    replica_hosts: tuple[str, ...] = ()
    log: str = ""


class Consumer(msgspec.Struct, array_like=True):
    """A stream's readers; stored as it is in a snapshot."""

    place: int
    """It needs the blocks from here on."""
    is_committed: bool
    """A batch of it was asked for, or done; else Spark may never have logged it."""
    at_ms: int
    """When it was last heard of in the driver log, ms since the epoch."""
    epoch: LoggedEpoch | None = None
    """The last one that was logged, of one that reads by epochs."""


class KeptState(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot has of a stream that is read by places, beside its blocks."""

    epoch: str
    first: int
    records_before: int
    bytes_before: int
    consumers: dict[str, Consumer]
    kind: str = ""
    schema: bytes | None = None
    released_ms: int = -1
    """When the last block that is gone was added; -1: none is, or that was not noted."""


class RetainedSegment(msgspec.Struct, array_like=True):
    """A segment, and what is retained of it; as it is, it stands in a snapshot.

    Attributes:
        attempt: The receiver attempt that wrote it.
        folder: The attempt's log.
        number: Its number in that log.
        at_ms: When the last of its blocks was cleaned up, ms since the epoch.
        size_bytes: Bytes of the records that are retained.
        records: Records of the stream in them.
        runs: Their sequences in the log: first and last of each run, in order.
    """

    attempt: str
    folder: str
    number: int
    at_ms: int = 0
    size_bytes: int = 0
    records: int = 0
    runs: list[tuple[int, int]] = msgspec.field(default_factory=list)

    def copy(self) -> RetainedSegment:
        """Return one that can be changed by itself."""
        return msgspec.structs.replace(self, runs=list(self.runs))

    @property
    def key(self) -> SegmentKey:
        """Return what names it."""
        return self.folder, self.number

    def add(self, sequence: int, size_bytes: int, records: int, at_ms: int) -> None:
        """Count one more record of the log, which was not counted before."""
        self.at_ms = max(self.at_ms, at_ms)
        self.size_bytes += size_bytes
        self.records += records
        runs = self.runs
        if runs and runs[-1][1] + 1 == sequence:
            runs[-1] = (runs[-1][0], sequence)
            return
        at = bisect_right(runs, (sequence, sequence))
        first = last = sequence
        if at < len(runs) and runs[at][0] == sequence + 1:
            last = runs.pop(at)[1]
        if at and runs[at - 1][1] + 1 == sequence:
            at -= 1
            first = runs.pop(at)[0]
        runs.insert(at, (first, last))


class StreamState(msgspec.Struct, frozen=True, array_like=True):
    """A stream in a snapshot."""

    stream_id: int
    next_counter: int
    newest: str
    position: bytes | None
    position_number: int
    name: str = ""
    kept: KeptState | None = None
    """None for a stream that batches take."""
    splits: tuple[str, ...] | None = None
    """Those that its receiver has; None: it shares no source, or is not wanted."""
    wanted: int = 0
    declared: int = 0
    """As of `SplitsEvent`; 0 where it shares no source."""
    letters: tuple[tuple[bytes, int], ...] = ()
    """The keys of dead letters that were sent through again, each with its time."""


class SnapshotPart(msgspec.Struct, frozen=True, array_like=True):
    """A piece of the whole ledger. The first piece carries streams, attempts and batch times.

    `additions` are blocks with the batch that holds them, or -1 for the unallocated ones, or -2 for
    those that are read by places.
    """

    number: int
    after: int
    index: int
    last: bool
    last_batch: int
    streams: tuple[StreamState, ...]
    attempts: tuple[AttemptState, ...]
    batches: tuple[tuple[int, tuple[int, ...]], ...]
    additions: tuple[tuple[int, BlockAdditionEvent], ...]
    version: int = FORMAT
    complete: tuple[int, ...] = ()
    """Those of `batches` that were processed."""
    cleaned_before: int = -1
    """Batches before this one were cleaned up."""
    retained: tuple[RetainedSegment, ...] = ()
    """Segments that are retained, the oldest first."""
    checkpoint: bytes = b""
    """A piece of the program's newest checkpoint; the pieces of all parts make it up, in their
    order."""


_encoder = msgspec.msgpack.Encoder()
_record_decoder = msgspec.msgpack.Decoder(LedgerRecord)
_snapshot_decoder = msgspec.msgpack.Decoder(SnapshotPart)


def encode(record: LedgerRecord | SnapshotPart) -> bytes:
    """Return the payload of a log record."""
    return _encoder.encode(record)


def decode_record(payload: memoryview) -> LedgerRecord:
    """Return the record.

    Raises:
        ValueError: It is of another version.
        msgspec.DecodeError: It is something else.
    """
    return _decoded(_record_decoder, payload)


def decode_snapshot(payload: memoryview) -> SnapshotPart:
    """Return the snapshot's piece; raises as `decode_record`."""
    return _decoded(_snapshot_decoder, payload)


_R = TypeVar("_R", LedgerRecord, SnapshotPart)


def _other_format(version: object) -> ValueError:
    return ValueError(
        f"it was written in version {version} of the ledger's format, and this Penstock reads "
        f"version {FORMAT}: end the program with the Penstock that wrote it, by a graceful stop, "
        "and go on in another folder"
    )


def _decoded(decoder: msgspec.msgpack.Decoder[_R], payload: memoryview) -> _R:
    try:
        record = decoder.decode(payload)
    except msgspec.DecodeError:
        # What another version writes is no damage.
        fields = msgspec.msgpack.decode(payload)
        at = decoder.type.__struct_fields__.index("version")
        if isinstance(fields, list) and len(fields) > at and fields[at] != FORMAT:
            raise _other_format(fields[at]) from None
        raise
    if record.version != FORMAT:
        raise _other_format(record.version)
    return record


def block_number(stream_id: int, block_id: str) -> int:
    """Return n of ``input-<streamId>-<n>``.

    Raises:
        ValueError: When the id has another form or names another stream.
    """
    prefix = f"input-{stream_id}-"
    digits = block_id[len(prefix) :]
    if not block_id.startswith(prefix) or not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{block_id!r} is not a block id of stream {stream_id}")
    return int(digits)


def number_ranges(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return runs (first, count) of consecutive numbers, in the order given."""
    runs: list[tuple[int, int]] = []
    first = count = 0
    for number in numbers:
        if count and number == first + count:
            count += 1
            continue
        if count:
            runs.append((first, count))
        first, count = number, 1
    if count:
        runs.append((first, count))
    return tuple(runs)


def addition_events(
    blocks: Sequence[tuple[int, ReceivedBlockInfo]], added_ms: Sequence[int] = ()
) -> tuple[BlockAdditionEvent, ...]:
    """Return (number, block) pairs as events: neighbours that share everything share an event.

    Args:
        blocks: The blocks.
        added_ms: When each was added; empty where no one asks.
    """
    events: list[BlockAdditionEvent] = []
    rows: list[BlockRow] = []
    shared: tuple[int, str, str, str, str, str, bytes | None] | None = None
    replicas: tuple[tuple[str, str], ...] = ()
    for at, (number, block) in enumerate(blocks):
        memory, segment = block.memory, block.segment
        key = (
            block.stream_id,
            block.attempt,
            block.host,
            memory.path if memory is not None else "",
            segment.folder if segment is not None else "",
            block.kind,
            block.schema,
        )
        copies = tuple((replica.host, replica.segment.folder) for replica in block.replicas)
        if key != shared or copies != replicas:
            if shared is not None:
                events.append(BlockAdditionEvent(*shared, rows=tuple(rows), replicas=replicas))
            shared, replicas, rows = key, copies, []
        rows.append(
            BlockRow(
                number,
                block.num_records,
                block.num_bytes,
                block.sequence,
                memory.offset if memory is not None else -1,
                memory.length if memory is not None else -1,
                segment.segment if segment is not None else -1,
                segment.offset if segment is not None else -1,
                segment.length if segment is not None else -1,
                block.position,
                tuple(
                    (place.segment, place.offset, place.length, replica.sequence)
                    for replica in block.replicas
                    for place in (replica.segment,)
                ),
                added_ms[at] if added_ms else 0,
            )
        )
    if shared is not None:
        events.append(BlockAdditionEvent(*shared, rows=tuple(rows), replicas=replicas))
    return tuple(events)


def copy_events(
    copies: Iterable[tuple[ReceivedBlockInfo, ReplicaPlace]], lost: Iterable[str] = ()
) -> list[CopyEvent]:
    """Return copies that were made of blocks as events: one for each log that has them.

    Args:
        copies: The blocks, each with the place of its copy.
        lost: Hosts on which they had other copies.
    """
    rows: dict[tuple[int, str, str, str], list[tuple[int, int, int, int, int]]] = {}
    for block, copy in copies:
        place = copy.segment
        number = block_number(block.stream_id, block.block_id)
        rows.setdefault((block.stream_id, block.attempt, copy.host, place.folder), []).append(
            (number, place.segment, place.offset, place.length, copy.sequence)
        )
    gone = tuple(sorted(lost))
    return [CopyEvent(*log, rows=tuple(found), lost=gone) for log, found in rows.items()]


def blocks_of(event: BlockAdditionEvent) -> list[tuple[int, ReceivedBlockInfo]]:
    """Return the event's blocks with their numbers, in order."""
    stream_id, attempt, host = event.stream_id, event.attempt, event.host
    path, folder = event.memory_path, event.folder
    prefix = f"input-{stream_id}-"
    return [
        (
            row.number,
            ReceivedBlockInfo(
                stream_id,
                prefix + str(row.number),
                row.num_records,
                row.num_bytes,
                attempt,
                host,
                row.sequence,
                MemoryPlace(path, row.memory_offset, row.memory_length)
                if row.memory_offset >= 0
                else None,
                SegmentPlace(folder, row.segment, row.segment_offset, row.segment_length)
                if row.segment >= 0
                else None,
                row.position,
                event.kind,
                event.schema,
                tuple(
                    ReplicaPlace(copy_host, SegmentPlace(copy_folder, *place), sequence)
                    for (copy_host, copy_folder), (*place, sequence) in zip(
                        event.replicas, row.replicas, strict=True
                    )
                )
                if row.replicas
                else (),
            ),
        )
        for row in event.rows
    ]
