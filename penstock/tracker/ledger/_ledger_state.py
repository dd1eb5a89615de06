"""What the ledger knows, in memory: streams, their blocks in order, batches, attempts.

This is the model that the driver log's events are applied to, both while running and at recovery,
so that the two cannot differ. It writes nothing, locks nothing and knows nothing of the blocks'
consumers: a batch is a whole number that grows, "take these for this batch" is `allocate`, "this
batch is done" is `clean`. Streams that are read by places have their blocks in `KeptBlocks`, and no
batch sees them. What is retained of the blocks that were cleaned up is in `RetainedSegments`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from msgspec import Struct, msgpack, structs

from penstock.position_changes import StandingPosition
from penstock.receiver.splits import split_of
from penstock.tracker.errors import BatchCleanedError, LedgerError
from penstock.tracker.ledger._block_numbers import NUMBER_BITS, BlockNumbers
from penstock.tracker.ledger._kept_blocks import KeptBlocks
from penstock.tracker.ledger._retained import RetainedSegments
from penstock.tracker.ledger.events import (
    AttemptEndEvent,
    AttemptRegistrationEvent,
    BatchAllocationEvent,
    BatchCleanupEvent,
    BatchCompletionEvent,
    BatchReturnEvent,
    BlockAdditionEvent,
    CheckpointEvent,
    Consumer,
    ConsumerEvent,
    ConsumerRemovalEvent,
    CopyEvent,
    EpochEvent,
    Event,
    LettersSentEvent,
    PlaceReleaseEvent,
    RetainedReleaseEvent,
    SegmentKey,
    SplitsEvent,
    StreamKeepingEvent,
    StreamNamesEvent,
    block_number,
    blocks_of,
    number_ranges,
)
from penstock.wire.messages import (
    AddBlock,
    Failure,
    ReceivedBlockInfo,
    Refused,
    ReplicaPlace,
    SegmentPlace,
)

NumberedBlock = tuple[int, ReceivedBlockInfo]
"""A block with the n of its id ``input-<streamId>-<n>``."""

ReplicaSegment = tuple[str, str, int]
"""A segment of copies on another host: host, folder, number."""


def replica_segments(block: ReceivedBlockInfo) -> list[ReplicaSegment]:
    """Return the segments of a block's copies."""
    return [
        (replica.host, replica.segment.folder, replica.segment.segment)
        for replica in block.replicas
    ]


@dataclass(slots=True)
class StreamLedger:
    """One stream: its unallocated blocks in order, and where its source stands."""

    next_counter: int = 1
    newest: str = ""
    position: StandingPosition = field(default_factory=StandingPosition)
    position_number: int = -1
    name: str = ""
    """Empty for one of a ledger in which streams had no names."""
    unallocated: dict[int, ReceivedBlockInfo] = field(default_factory=dict)
    kept: KeptBlocks | None = None
    """The blocks of a stream that is read by places; None for one that batches take."""
    splits: tuple[str, ...] | None = None
    """The splits that its receiver has; None: it shares no source, or is not wanted."""
    wanted: int = 0
    declared: int = 0
    """As of `SplitsEvent`."""
    letters: dict[bytes, int] = field(default_factory=dict)
    """The keys of dead letters that were sent again, each with its time, the oldest first."""


@dataclass(slots=True)
class AttemptLedger:
    """One receiver attempt: which of its blocks are known, and what still needs its files."""

    stream_id: int
    attempt: str
    host: str
    counter: int
    numbers: BlockNumbers
    newest_segment: int = -1
    unreleased: int = 0
    retained: int = 0
    """Segments of it that are retained."""
    segments: dict[SegmentKey, int] = field(default_factory=dict)
    """Unreleased blocks per segment; 0 until the segment itself is released."""
    replicas: dict[ReplicaSegment, int] = field(default_factory=dict)
    """The same for the segments of copies."""
    newest_replicas: list[ReplicaSegment] = field(default_factory=list)
    """Those of the newest block that has copies: they may also have one of the next block."""
    replica_hosts: dict[str, None] = field(default_factory=dict)
    """All hosts that have had copies, in order."""
    ended: bool = False
    was_named: bool = False
    """The whole attempt was named for deletion in this run."""
    was_memory_named: bool = False
    """Its memory file alone was."""
    log: str = ""
    """Folder of the log that it shares with others of its process; empty: it has its own."""

    def count(self, blocks: Iterable[ReceivedBlockInfo]) -> None:
        """Count the segments in which blocks are."""
        for block in blocks:
            if block.segment is not None:
                key = (block.segment.folder, block.segment.segment)
                self.segments[key] = self.segments.get(key, 0) + 1
            if copies := replica_segments(block):
                self.newest_replicas = copies
            for copy in copies:
                self.replicas[copy] = self.replicas.get(copy, 0) + 1
                self.replica_hosts[copy[0]] = None


class AttemptRelease(Struct, frozen=True):
    """What of one attempt may be deleted now (I4: its clean-up is in the driver log).

    Attributes:
        stream_id: The attempt's stream.
        attempt: The attempt.
        host: The host that holds its files.
        ended: The attempt is over: a block server deletes; otherwise the receiver itself does.
        whole: Nothing of the attempt is needed any more: folder and memory file may go.
        block_ids: Released blocks; their hot copies may go.
        segments: (folder, number) of segments that may go.
        replicas: (host, folder, number) of segments of copies that may go.
        replica_hosts: Hosts that had copies, where the whole attempt may go.
        is_first: With `whole`: it is named for the first time in this run.
        memory: The attempt is over, and only its log is retained: its memory file may go.
        log: Folder of the log that it shares with others of its process; empty: it has its own.
        log_is_over: No attempt needs anything of that log, which may go; reported once in a run.
        mate: Stream and attempt of one that lives and shares it, None when none does.
    """

    stream_id: int
    attempt: str
    host: str
    ended: bool
    whole: bool
    block_ids: tuple[str, ...]
    segments: tuple[tuple[str, int], ...]
    replicas: tuple[ReplicaSegment, ...] = ()
    replica_hosts: tuple[str, ...] = ()
    is_first: bool = False
    memory: bool = False
    log: str = ""
    log_is_over: bool = False
    mate: tuple[int, str] | None = None


class LedgerState:
    """The ledger's memory. Not locked: `ReceivedBlockTracker` owns and guards it."""

    def __init__(self) -> None:
        self.streams: dict[int, StreamLedger] = {}
        self.attempts: dict[str, AttemptLedger] = {}
        self.batches: dict[int, dict[int, tuple[ReceivedBlockInfo, ...]]] = {}
        self.complete: set[int] = set()
        """Those of `batches` that were processed."""
        self.last_batch = -1
        self.cleaned_before = -1
        self.retained = RetainedSegments()
        self.removed_logs: set[str] = set()
        """Those that attempts of this run shared: none may be registered with one of them."""
        self.checkpoint = b""
        """The program's newest checkpoint, empty before the first."""
        self._checkpoint_pieces: list[bytes] = []
        self.held: frozenset[tuple[str, str]] = frozenset()
        """Attempts and hosts: copies are being made on these that the ledger does not know yet, and
        no segment of copies goes meanwhile. Not in the log: their making ends with it."""

    def take_checkpoint(self, event: CheckpointEvent) -> None:
        """Take a piece of a checkpoint; one that was begun and not ended counts for nothing."""
        if event.index == 0:
            self._checkpoint_pieces = []
        if event.index != len(self._checkpoint_pieces):
            raise LedgerError(f"piece {event.index} of a checkpoint is not where it belongs")
        self._checkpoint_pieces.append(event.data)
        if event.is_last:
            self.checkpoint = b"".join(self._checkpoint_pieces)
            self._checkpoint_pieces = []

    # -- questions -----------------------------------------------------------------------------

    def new_blocks(
        self, message: AddBlock, numbers: dict[str, BlockNumbers]
    ) -> list[NumberedBlock] | Refused | Failure:
        """Return the blocks of a message that are not in the ledger yet, or the answer "no".

        Args:
            message: What a receiver asks to add: all of it or nothing.
            numbers: The numbers that earlier messages of the same log record will have taken;
                changed when the answer is yes.
        """
        attempt = self.attempts.get(message.attempt)
        stream = self.streams.get(message.stream_id)
        if stream is None:
            return Refused(f"stream {message.stream_id} is not known")
        if attempt is None or attempt.stream_id != message.stream_id:
            return Refused(
                f"attempt {message.attempt} is not a registered receiver of stream "
                f"{message.stream_id}"
            )
        if stream.newest != message.attempt:
            return Refused(
                f"attempt {message.attempt} of stream {message.stream_id} was replaced by "
                f"attempt {stream.newest}"
            )
        if attempt.ended:
            return Refused(f"attempt {message.attempt} of stream {message.stream_id} has ended")
        taken = (numbers.get(message.attempt) or attempt.numbers).copy()
        newest_segment = attempt.newest_segment
        new: list[NumberedBlock] = []
        for block in message.blocks:
            try:
                number = block_number(message.stream_id, block.block_id)
            except ValueError as error:
                return Refused(str(error))
            if block.attempt != message.attempt or block.stream_id != message.stream_id:
                return Refused(f"block {block.block_id} belongs to another receiver attempt")
            if number >> NUMBER_BITS != attempt.counter:
                return Refused(
                    f"block {block.block_id} is not numbered from "
                    f"{BlockNumbers.first_number(attempt.counter)} on"
                )
            if taken.is_known(number):
                continue
            if block.position is not None and (number != taken.next or taken.gaps):
                # A position stands for everything before it, so nothing before may be missing.
                return Failure(
                    f"block {block.block_id} carries a position, but blocks before it are not "
                    f"in the ledger yet"
                )
            segment = block.segment.segment if block.segment is not None else -1
            try:
                taken.accept(number, segment, newest_segment)
            except LedgerError as error:
                return Refused(str(error))
            newest_segment = max(newest_segment, segment)
            new.append((number, block))
        numbers[message.attempt] = taken
        return new

    def unallocated_ranges(self) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
        """Return, per stream, the runs of numbers of all blocks that no batch has taken."""
        return tuple(
            (stream_id, number_ranges(stream.unallocated))
            for stream_id, stream in self.streams.items()
            if stream.unallocated
        )

    # -- events --------------------------------------------------------------------------------

    def apply(self, event: Event) -> Sequence[ReceivedBlockInfo]:
        """Apply an event of the driver log, one that was just written or one of a recovery.

        Returns:
            The blocks that it released; `releases` turns them into deletions.

        Raises:
            LedgerError: It cannot follow what the ledger knows.
        """
        if isinstance(event, BlockAdditionEvent):
            self.add(event.attempt, blocks_of(event), [row.added_ms for row in event.rows])
        elif isinstance(event, BatchAllocationEvent):
            self.allocate(event)
        elif isinstance(event, BatchCompletionEvent):
            self.note_complete(event.batches)
        elif isinstance(event, BatchCleanupEvent):
            return self.clean(event.batches, event.retained_ms)
        elif isinstance(event, BatchReturnEvent):
            self.give_back(event.batches)
        elif isinstance(event, AttemptRegistrationEvent):
            self.register(event)
        elif isinstance(event, AttemptEndEvent):
            self.forget(event.attempts)
        elif isinstance(event, StreamNamesEvent):
            self.name_streams(event.names)
        elif isinstance(event, StreamKeepingEvent):
            self.keep_streams(event.streams)
        elif isinstance(event, ConsumerEvent):
            self.note_consumer(event)
        elif isinstance(event, EpochEvent):
            self.note_epoch(event)
        elif isinstance(event, ConsumerRemovalEvent):
            self.kept(event.stream_id).forget(event.consumers)
        elif isinstance(event, PlaceReleaseEvent):
            return self.release_places(event.stream_id, event.before)
        elif isinstance(event, RetainedReleaseEvent):
            self.release_retained(event.segments)
        elif isinstance(event, SplitsEvent):
            self.divide(event)
        elif isinstance(event, CopyEvent):
            self.add_copies(event)
        elif isinstance(event, LettersSentEvent):
            self.note_letters(event)
        elif isinstance(event, CheckpointEvent):
            self.take_checkpoint(event)
        else:
            self.remove_streams(event.streams)
        return ()

    def register(self, event: AttemptRegistrationEvent) -> None:
        """Make an attempt the newest of its stream; older ones are fenced from here on."""
        stream = self.streams.setdefault(event.stream_id, StreamLedger())
        stream.newest = event.attempt
        stream.next_counter = event.counter + 1
        self.attempts[event.attempt] = AttemptLedger(
            event.stream_id,
            event.attempt,
            event.host,
            event.counter,
            BlockNumbers(BlockNumbers.first_number(event.counter)),
            log=event.log,
        )

    def add(
        self, attempt_id: str, blocks: Sequence[NumberedBlock], added_ms: Sequence[int] = ()
    ) -> None:
        """Append blocks to their stream.

        Args:
            attempt_id: The attempt.
            blocks: Its blocks.
            added_ms: When each was added, for a stream that is read by places.

        Raises:
            LedgerError: When they cannot have come from this ledger (a damaged log).
        """
        attempt = self.attempts.get(attempt_id)
        if attempt is None:
            raise LedgerError(f"blocks were added by attempt {attempt_id}, which never registered")
        stream = self.streams[attempt.stream_id]
        numbers, unallocated, kept = attempt.numbers, stream.unallocated, stream.kept
        for at, (number, block) in enumerate(blocks):
            segment = block.segment.segment if block.segment is not None else -1
            if number == numbers.next:
                numbers.next = number + 1
            elif numbers.is_known(number):
                raise LedgerError(f"block {block.block_id} was added twice")
            else:
                numbers.accept(number, segment, attempt.newest_segment)
            if segment > attempt.newest_segment:
                attempt.newest_segment = segment
            if kept is None:
                unallocated[number] = block
            else:
                kept.append(number, block, added_ms[at] if added_ms else 0)
            if block.position is not None and number > stream.position_number:
                stream.position.take(block.position)
                stream.position_number = number
        attempt.count(block for _, block in blocks)
        attempt.unreleased += len(blocks)

    def note_letters(self, event: LettersSentEvent) -> None:
        """Take note of dead letters whose records are in blocks now, and forget the oldest."""
        letters = self.streams.setdefault(event.stream_id, StreamLedger()).letters
        for key in event.keys:
            letters.pop(key, None)
            letters[key] = event.at_ms
        while letters and letters[oldest := next(iter(letters))] < event.forget_before_ms:
            del letters[oldest]

    def add_copies(self, event: CopyEvent) -> None:
        """Take note of copies that were made again, in the place of those on lost hosts.

        A host that is back without its disk may have one again.

        The copy of a block that was released meanwhile, or that has one on its host, is not needed:
        `releases` names its segment. So it does with that of a copy that is given up, for the host
        may come back.

        Raises:
            LedgerError: The attempt is not known.
        """
        attempt = self.attempts.get(event.attempt)
        if attempt is None:
            raise LedgerError(f"blocks of attempt {event.attempt}, which is not known, were copied")
        copies = {
            number: ReplicaPlace(event.host, SegmentPlace(event.folder, *place), sequence)
            for number, *place, sequence in event.rows
        }
        attempt.replica_hosts[event.host] = None
        for copy in copies.values():
            attempt.replicas.setdefault((copy.host, event.folder, copy.segment.segment), 0)

        def change(number: int, block: ReceivedBlockInfo) -> ReceivedBlockInfo:
            copy = copies.pop(number)
            if copy.host in {*block.hosts} - {*event.lost}:
                return block
            kept = tuple(one for one in block.replicas if one.host not in event.lost)
            changed = structs.replace(block, replicas=(*kept, copy))
            for sign, of in ((-1, block), (1, changed)):
                for key in replica_segments(of):
                    attempt.replicas[key] += sign
            return changed

        stream = self.streams[event.stream_id]
        for number in copies.keys() & stream.unallocated.keys():
            stream.unallocated[number] = change(number, stream.unallocated[number])
        if stream.kept is not None:
            stream.kept.change(tuple(copies), change)
        numbers = {f"input-{event.stream_id}-{number}": number for number in copies}
        for batch in self.batches.values():
            blocks = batch.get(event.stream_id, ())
            if any(block.block_id in numbers for block in blocks):
                batch[event.stream_id] = tuple(
                    change(numbers[block.block_id], block) if block.block_id in numbers else block
                    for block in blocks
                )

    def allocate(self, event: BatchAllocationEvent) -> None:
        """Move exactly the named blocks from their streams to the batch (SPARK-23438).

        Raises:
            LedgerError: When a block is not there or the batch is not later than the last one.
        """
        if event.batch <= self.last_batch:
            raise LedgerError(
                f"batch {event.batch} is allocated after batch {self.last_batch}, but not later"
            )
        taken: dict[int, tuple[ReceivedBlockInfo, ...]] = {}
        for stream_id, runs in event.streams:
            stream = self.streams.get(stream_id)
            if stream is None:
                raise LedgerError(f"batch {event.batch} takes blocks of unknown stream {stream_id}")
            if sum(count for _, count in runs) == len(stream.unallocated) and runs == (
                number_ranges(stream.unallocated)
            ):
                taken[stream_id] = tuple(stream.unallocated.values())
                stream.unallocated = {}
                continue
            try:
                taken[stream_id] = tuple(
                    stream.unallocated.pop(number)
                    for first, count in runs
                    for number in range(first, first + count)
                )
            except KeyError as error:
                raise LedgerError(
                    f"batch {event.batch} takes block input-{stream_id}-{error.args[0]}, which "
                    f"is not waiting"
                ) from None
        self.batches[event.batch] = taken
        self.last_batch = event.batch

    def note_complete(self, batches: Iterable[int]) -> None:
        """Note that batches were processed; those that are not there any more are passed over."""
        self.complete.update(batch for batch in batches if batch in self.batches)

    def give_back(self, batches: Iterable[int]) -> None:
        """Let the blocks of batches wait again, before all others and in their order."""
        for batch in sorted(batches, reverse=True):
            self.complete.discard(batch)
            for stream_id, blocks in self.batches.pop(batch, {}).items():
                stream = self.streams[stream_id]
                again = {block_number(stream_id, block.block_id): block for block in blocks}
                stream.unallocated = {**again, **stream.unallocated}

    def name_streams(self, names: Iterable[tuple[int, str]]) -> None:
        """Give streams their names; those that are not there yet are new."""
        for stream_id, name in names:
            self.streams.setdefault(stream_id, StreamLedger()).name = name

    def remove_streams(self, streams: Iterable[int]) -> None:
        """Forget what streams have: position and blocks. Names and numbers stay theirs."""
        released: list[ReceivedBlockInfo] = []
        for stream_id in streams:
            stream = self.streams[stream_id]
            stream.position = StandingPosition()
            stream.splits, stream.wanted, stream.declared = None, 0, 0
            released.extend(stream.unallocated.values())
            stream.unallocated = {}
            if stream.kept is not None:
                released.extend(stream.kept.release(stream.kept.next))
                stream.kept.consumers.clear()
            for batch in self.batches.values():
                released.extend(batch.pop(stream_id, ()))
        self._release(released)

    def divide(self, event: SplitsEvent) -> None:
        """Give receivers their splits, each with its position, and fence those that change.

        The position of a split that no one has stays where it is, for the source may have it again,
        or goes to the first receiver that is wanted, so that one that is not wanted has nothing.
        """
        has = dict(event.streams)
        heir = next((one for one, splits in event.streams if splits is not None), None)
        owners = {split: one for one, splits in event.streams for split in splits or ()}
        places = {one: self.split_places(one) for one, _ in event.streams}
        changes = event.changes
        known = changes.keys() & {split for found in places.values() for split in found}
        begun = {split: changes[split] for split in changes.keys() - known}
        moved: dict[int, dict[str, Any]] = {one: {} for one in places}
        for one, found in (*places.items(), (event.streams[0][0], begun)):
            keeper = one if heir is None or has[one] is not None else heir
            for split, place in found.items():
                if place is not None and changes.get(split, place) is not None:
                    moved[owners.get(split_of(split), keeper)][split] = place
        for stream_id, splits in event.streams:
            stream = self.streams[stream_id]
            if splits != stream.splits:
                stream.splits, stream.newest = splits, ""
            stream.wanted, stream.declared = event.wanted, event.declared
            if moved[stream_id] != places[stream_id]:
                now = moved[stream_id]
                stream.position = StandingPosition(msgpack.encode(now) if now else None)

    def split_places(self, stream_id: int) -> dict[str, Any]:
        """Return the places of a receiver's splits, and of those that no one has."""
        value = self.streams.setdefault(stream_id, StreamLedger()).position.value
        found = None if value is None else msgpack.decode(value)
        return found if isinstance(found, dict) else {}

    def keep_streams(self, streams: Iterable[tuple[int, str]]) -> None:
        """Let streams be read by places from here on.

        Raises:
            LedgerError: One has blocks that batches take.
        """
        for stream_id, epoch in streams:
            stream = self.streams.setdefault(stream_id, StreamLedger())
            if stream.unallocated or any(stream_id in batch for batch in self.batches.values()):
                raise LedgerError(f"stream {stream_id} has blocks that batches take")
            stream.kept = KeptBlocks(epoch)

    def kept(self, stream_id: int) -> KeptBlocks:
        """Return the blocks of a stream that is read by places.

        Raises:
            LedgerError: It is not.
        """
        stream = self.streams.get(stream_id)
        if stream is None or stream.kept is None:
            raise LedgerError(f"stream {stream_id} is not read by places")
        return stream.kept

    def is_kept(self, attempt: str) -> bool:
        """Return whether the blocks of an attempt are read by places."""
        return self.streams[self.attempts[attempt].stream_id].kept is not None

    def note_consumer(self, event: ConsumerEvent) -> None:
        """Take note of a consumer, or of how far it is by now."""
        consumers = self.kept(event.stream_id).consumers
        known = consumers.get(event.consumer)
        if known is None:
            consumers[event.consumer] = Consumer(event.place, event.is_committed, event.at_ms)
            return
        known.place = max(known.place, event.place)
        known.is_committed |= event.is_committed
        known.at_ms = event.at_ms

    def note_epoch(self, event: EpochEvent) -> None:
        """Take note of a consumer's next epoch, or that the last one is not open any more.

        Raises:
            LedgerError: It does not follow the one before.
        """
        consumers, epoch = self.kept(event.stream_id).consumers, event.epoch
        known = consumers.get(event.consumer)
        last = None if known is None else known.epoch
        is_next = last is None or (epoch.source, epoch.number) == (last.source, last.number + 1)
        is_closed = (
            last is not None and last.is_open and epoch == structs.replace(last, is_open=False)
        )
        if last is not None and not (is_next or is_closed):
            raise LedgerError(
                f"epoch {epoch.number} of {epoch.source} follows epoch {last.number} of "
                f"{last.source}, and is not the next one"
            )
        consumers[event.consumer] = Consumer(event.start, True, event.at_ms, epoch)

    def release_places(self, stream_id: int, before: int) -> list[ReceivedBlockInfo]:
        """Let the blocks before a place go; `releases` turns them into deletions."""
        released = self.kept(stream_id).release(before)
        self._release(released)
        return released

    def blocks_on(self, host: str) -> dict[int | None, tuple[ReceivedBlockInfo, ...]]:
        """Return a host's blocks and copies by the batch that has them; None: no batch yet."""
        waiting = (block for s in self.streams.values() for block in s.unallocated.values())
        found: dict[int | None, tuple[ReceivedBlockInfo, ...]] = {
            time_ms: tuple(b for blocks in batch.values() for b in blocks if host in b.hosts)
            for time_ms, batch in self.batches.items()
        }
        kept = (
            block
            for stream in self.streams.values()
            if stream.kept is not None
            for block in stream.kept.between(stream.kept.first, stream.kept.next)
        )
        found[None] = tuple(block for block in chain(waiting, kept) if host in block.hosts)
        return {time_ms: blocks for time_ms, blocks in found.items() if blocks}

    def hosts(self) -> set[str]:
        """Return the hosts that have blocks, or copies."""
        found = {one.host for one in self.attempts.values() if one.unreleased}
        for attempt in self.attempts.values():
            found.update(host for (host, _, _), count in attempt.replicas.items() if count)
        return found

    def logs_on(self, host: str) -> set[str]:
        """Return the folders in which a host has blocks, or copies, that are not released."""
        found: set[str] = set()
        for one in self.attempts.values():
            if one.host == host:
                found.update(folder for (folder, _), count in one.segments.items() if count)
            found.update(at[1] for at, count in one.replicas.items() if count and at[0] == host)
        return found

    def forget_host(self, host: str) -> None:
        """Forget that attempts had copies on a host that has nothing of them left."""
        for attempt in self.attempts.values():
            if not any(key[0] == host for key in attempt.replicas):
                attempt.replica_hosts.pop(host, None)

    def blocks_of(self, stream_id: int) -> list[ReceivedBlockInfo]:
        """Return all blocks of a stream that are not released."""
        stream = self.streams.get(stream_id)
        if stream is None:
            return []
        found = [block for batch in self.batches.values() for block in batch.get(stream_id, ())]
        found += stream.unallocated.values()
        if stream.kept is not None:
            found += stream.kept.between(stream.kept.first, stream.kept.next)
        return found

    def find_block(self, stream_id: int, number: int) -> ReceivedBlockInfo | None:
        """Return a block that is not released; None when there is none with that number."""
        stream = self.streams.get(stream_id)
        if stream is None:
            return None
        found = stream.unallocated.get(number)
        if found is None and stream.kept is not None:
            found = stream.kept.find(number)
        if found is not None:
            return found
        block_id = f"input-{stream_id}-{number}"
        batches = (batch.get(stream_id, ()) for batch in self.batches.values())
        return next((one for one in chain(*batches) if one.block_id == block_id), None)

    def clean(self, batches: Iterable[int], retained_ms: int = -1) -> list[ReceivedBlockInfo]:
        """Drop batches and return the blocks they held; `releases` turns them into deletions.

        Args:
            batches: The batches.
            retained_ms: When that is, where the segments of the blocks are retained; else -1.
        """
        released: list[ReceivedBlockInfo] = []
        for batch in batches:
            self.cleaned_before = max(self.cleaned_before, batch + 1)
            self.complete.discard(batch)
            for blocks in self.batches.pop(batch, {}).values():
                released.extend(blocks)
        if retained_ms >= 0:
            for block in released:
                if block.segment is not None and self.retained.add(block, retained_ms):
                    self.attempts[block.attempt].retained += 1
        self._release(released)
        return released

    def release_retained(self, segments: Iterable[SegmentKey]) -> None:
        """Retain segments no longer; `releases` names those that nothing else needs."""
        for key in segments:
            found = self.retained.pop(key)
            if found is not None:
                attempt = self.attempts[found.attempt]
                attempt.retained -= 1
                attempt.segments.setdefault(key, 0)

    def _release(self, blocks: Iterable[ReceivedBlockInfo]) -> None:
        for block in blocks:
            attempt = self.attempts[block.attempt]
            attempt.unreleased -= 1
            if block.segment is not None:
                attempt.segments[(block.segment.folder, block.segment.segment)] -= 1
            for copy in replica_segments(block):
                attempt.replicas[copy] -= 1

    def releases(self, blocks: Iterable[ReceivedBlockInfo]) -> list[AttemptRelease]:
        """Return what may be deleted, and stop counting the segments among it.

        A segment of a living attempt may go when a later one is in use and no block of it is
        unreleased or missing; one of an ended attempt when no block of it is unreleased; the
        whole attempt when it has ended and none of its blocks is. For segments of copies the same
        holds; which of them missing blocks may be in is not known. What is retained stays. A log
        that attempts share may go when all of them may.
        """
        ids: dict[str, list[str]] = {}
        for block in blocks:
            ids.setdefault(block.attempt, []).append(block.block_id)
        found: list[AttemptRelease] = []
        attempts = self.attempts.values()
        needed = {one.log for one in attempts if not one.ended or one.unreleased or one.retained}
        mates = {one.log: (one.stream_id, one.attempt) for one in attempts if not one.ended}
        for attempt in self.attempts.values():
            ended = attempt.ended
            # Lists, and nothing for what is empty: there may be thousands of attempts.
            done = [
                key
                for key, unreleased in attempt.segments.items()
                if unreleased == 0 and (ended or self._is_left_behind(attempt, key[1]))
            ]
            for key in done:
                del attempt.segments[key]
            segments = tuple(key for key in done if key not in self.retained) if done else ()
            copies: Sequence[ReplicaSegment] = ()
            if attempt.replicas:
                copies = [
                    key
                    for key, unreleased in attempt.replicas.items()
                    if unreleased == 0
                    and (ended or self._is_copy_left_behind(attempt, key))
                    and (attempt.attempt, key[0]) not in self.held
                ]
                for copy in copies:
                    del attempt.replicas[copy]
            is_over = ended and attempt.unreleased == 0
            whole = is_over and not attempt.retained
            is_first = whole and not attempt.was_named
            attempt.was_named |= whole
            memory = is_over and not whole and not attempt.was_memory_named
            attempt.was_memory_named |= memory
            block_ids = tuple(ids.get(attempt.attempt, ()))
            log_is_over = bool(attempt.log) and attempt.log not in needed
            log_is_over &= attempt.log not in self.removed_logs
            if log_is_over:
                self.removed_logs.add(attempt.log)
            if whole or segments or block_ids or copies or memory:
                found.append(
                    AttemptRelease(
                        attempt.stream_id,
                        attempt.attempt,
                        attempt.host,
                        ended,
                        whole,
                        block_ids,
                        segments,
                        tuple(copies),
                        tuple(attempt.replica_hosts),
                        is_first,
                        memory,
                        attempt.log,
                        log_is_over,
                        mates.get(attempt.log) if attempt.log else None,
                    )
                )
        return found

    @staticmethod
    def _is_left_behind(attempt: AttemptLedger, segment: int) -> bool:
        return segment < attempt.newest_segment and not attempt.numbers.may_lie_in(segment)

    @staticmethod
    def _is_copy_left_behind(attempt: AttemptLedger, copy: ReplicaSegment) -> bool:
        # Copies that were made again are in the same log, also behind those that are on their way.
        newest = attempt.newest_replicas
        is_behind = all(copy[:2] != one[:2] or copy[2] < one[2] for one in newest)
        return is_behind and not attempt.numbers.gaps

    def forget(self, attempts: Iterable[str]) -> None:
        """Drop attempts that have nothing left.

        Raises:
            LedgerError: When one of them still has blocks.
        """
        for name in attempts:
            attempt = self.attempts.get(name)
            if attempt is None:
                continue
            if attempt.unreleased:
                raise LedgerError(f"attempt {name} still has {attempt.unreleased} blocks")
            if attempt.retained:
                # Let go at a time when the driver log did not take that.
                for key in [one.key for one in self.retained if one.attempt == name]:
                    self.retained.pop(key)
            del self.attempts[name]

    def batch_blocks(self, batch: int) -> Mapping[int, tuple[ReceivedBlockInfo, ...]]:
        """Return the batch's blocks by stream, in order; empty when none was allocated.

        Raises:
            BatchCleanedError: It was cleaned up.
        """
        found = self.batches.get(batch)
        if found is None:
            if batch < self.cleaned_before:
                raise BatchCleanedError(batch, self.cleaned_before)
            return {}
        return found
