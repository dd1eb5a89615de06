"""ReceivedBlockTracker: the ledger of received blocks (Spark's class of that name).

Every change is an event: it is written to the driver log first and applied to memory after, so
that memory never knows more than the log (I3, I4; SPARK-23991). Without a log the same events
are applied to memory only.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.runtime.clock import Clock, SystemClock
from penstock.tracker.errors import (
    DamagedLedgerError,
    LedgerError,
    LedgerLostError,
    LedgerWriteError,
    StreamsDoNotFitError,
)
from penstock.tracker.ledger._block_numbers import BlockNumbers
from penstock.tracker.ledger._driver_log import DriverLog, SnapshotRule
from penstock.tracker.ledger._kept_blocks import Retention
from penstock.tracker.ledger._ledger_state import (
    AttemptRelease,
    LedgerState,
    NumberedBlock,
    StreamLedger,
)
from penstock.tracker.ledger._recovery import pieces_of, recover_ledger
from penstock.tracker.ledger._retained import RetainedSegments
from penstock.tracker.ledger.events import (
    AttemptEndEvent,
    AttemptRegistrationEvent,
    BatchAllocationEvent,
    BatchCleanupEvent,
    BatchCompletionEvent,
    BatchReturnEvent,
    CheckpointEvent,
    Event,
    LettersSentEvent,
    RetainedReleaseEvent,
    SplitsEvent,
    StreamKeepingEvent,
    StreamNamesEvent,
    StreamRemovalEvent,
    addition_events,
    block_number,
    copy_events,
)
from penstock.tracker.ledger.places import Places
from penstock.wal import (
    CorruptRecordError,
    EncryptionKey,
    FileSystem,
    LocalFileSystem,
    LogOptions,
    LogReader,
    LogWriter,
)
from penstock.wire.messages import AddBlock, Failure, Ok, ReceivedBlockInfo, Refused, ReplicaPlace

__all__ = [
    "AttemptRegistration",
    "AttemptRelease",
    "LoggedSegment",
    "ReceivedBlockTracker",
]

_log = logging.getLogger("penstock.tracker")

_OK = Ok()

_SNAPSHOTS = SnapshotRule()

_READ_TRIES = 5

_LETTERS_KEPT_S = 14 * 86400.0

_LOG_NAME = "driver log"
"""Distinguishes it from other logs of the same key."""


@dataclass(frozen=True)
class AttemptRegistration:
    """What a newly registered receiver attempt gets.

    Attributes:
        first_block_number: It numbers its blocks from here, one by one.
        last_position: The last durable position of the stream (MessagePack), or None.
        splits: The splits that it has; None where its source has none.
    """

    first_block_number: int
    last_position: bytes | None
    splits: tuple[str, ...] | None = None


@dataclass(frozen=True)
class LoggedSegment:
    """A segment of a receiver's log that the ledger knows of.

    Attributes:
        attempt: The receiver attempt that wrote it.
        host: The host on which it did.
        folder: The attempt's log.
        number: The segment's number in that log.
        size_bytes: Bytes of the records that were taken.
        records: Records of the stream in them.
        runs: Their sequences in the log: first and last of each run, in order.
    """

    attempt: str
    host: str
    folder: str
    number: int
    size_bytes: int
    records: int
    runs: tuple[tuple[int, int], ...]


class ReceivedBlockTracker:
    """Which blocks each stream has, in order, and which batch has taken them.

    Safe to use from any thread. Two locks: `_commit_lock` is held while an event is written and
    applied, so that the log's order is the memory's order; `_state_lock` guards the memory, is
    held only while it is looked at or changed, and never while the disk is waited for.

    Attributes:
        places: The streams that are read by places, and their readers.
        letters_kept_s: How long it is known that a dead letter was sent through again.
    """

    def __init__(
        self,
        stream_ids: Iterable[int],
        *,
        log: LogWriter | None = None,
        clock: Clock | None = None,
        snapshots: SnapshotRule = _SNAPSHOTS,
        retention: Retention | None = None,
    ) -> None:
        """Start an empty ledger.

        Args:
            stream_ids: The streams whose blocks are taken.
            log: The driver log, empty and open for appending; closed by `close`. None: nothing
                survives this process.
            clock: Says how old the log's segments are.
            snapshots: When a snapshot is due.
            retention: How long the segments of blocks stay after the clean-up of their batches;
                None: not at all.
        """
        self._retention = retention
        self._stream_ids = frozenset(stream_ids)
        self._address = "memory"
        self._clock = clock or SystemClock()
        self._driver_log = DriverLog(log, snapshots, self._clock)
        self._commit_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._state = LedgerState()
        for stream_id in sorted(self._stream_ids):
            self._state.streams[stream_id] = StreamLedger()
        self.places = Places(
            lambda: self._state,
            self._commit,
            self._driver_log.check,
            self._commit_lock,
            self._state_lock,
            self._clock,
        )
        # Guarded by _commit_lock:
        self._received: dict[int, tuple[int, int]] = {}
        self.letters_kept_s = _LETTERS_KEPT_S
        # Batches whose completion is not in the log yet; guarded by _state_lock.
        self._newly_complete: set[int] = set()

    @classmethod
    def recover(
        cls,
        stream_ids: Iterable[int],
        folder: str,
        *,
        options: LogOptions | None = None,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        snapshots: SnapshotRule = _SNAPSHOTS,
        application: str = "",
        encryption: EncryptionKey | None = None,
        retention: Retention | None = None,
    ) -> ReceivedBlockTracker:
        """Open the driver log in `folder` and go on from what it says; a new one if there is none.

        All attempts that it knows are over: their processes belonged to the driver before.
        The folder is locked before it is read, so that no one else can write meanwhile.

        Args:
            stream_ids: The streams whose blocks are taken from now on.
            folder: The driver log's folder; made when it is missing.
            options: How the log is written; by default with sync at each record.
            fs: The file system.
            clock: For the age of segments.
            snapshots: When a snapshot is due.
            application: Named in the error of anyone who wants the log meanwhile.
            encryption: The key that the log is encrypted with; None: it is in clear.
            retention: As for the constructor.

        Raises:
            LogFolderInUseError: Another process writes this log.
            UnwritableFolderError: The folder cannot be made or written.
            DamagedLedgerError: A record that was acknowledged is damaged (I6); it names the folder
                and what to do.
            LedgerRecoveryError: A record cannot be followed; names segment and offset.
            EncryptionMismatchError: The log has another key, or is encrypted and
                should not be, or the reverse. Nothing of it was changed.
        """
        cipher = None if encryption is None else encryption.cipher(_LOG_NAME)
        clock = clock or SystemClock()
        fs = fs or LocalFileSystem()
        log = LogWriter.create(
            folder,
            options=options or LogOptions(segment_size=64 << 20, alignment=64),
            fs=fs,
            clock=clock,
            application=application,
            cipher=cipher,
        )
        try:
            tracker = cls(
                stream_ids, log=log, clock=clock, snapshots=snapshots, retention=retention
            )
            reader = LogReader.open(folder, fs=fs, before=log.first_segment, cipher=cipher)
            tracker._recover(fs.address(folder), reader, clock)
        except BaseException:
            log.close()
            raise
        return tracker

    @classmethod
    def read(
        cls, folder: str, *, fs: FileSystem | None = None, encryption: EncryptionKey | None = None
    ) -> ReceivedBlockTracker:
        """Read what the driver log in `folder` says, and leave it as it is.

        What this ledger is asked to do changes its memory alone. A log that is being written gives
        an earlier state; on HDFS it is an error.

        Args:
            folder: The driver log's folder.
            fs: The file system.
            encryption: The key that the log is encrypted with; None: it is in clear.

        Raises:
            FileNotFoundError: There is no such folder, or its writer replaced what was listed by a
                snapshot, again and again.
            OSError: It cannot be read, on HDFS also because its writer has not ended.
            DamagedLedgerError, LedgerRecoveryError, EncryptionMismatchError: As
                `recover`.
        """
        cipher = None if encryption is None else encryption.cipher(_LOG_NAME)
        clock = SystemClock()
        fs = fs or LocalFileSystem()
        for left in reversed(range(_READ_TRIES)):
            try:
                reader = LogReader.open(folder, fs=fs, cipher=cipher)
                tracker = cls((), clock=clock)
                tracker._recover(fs.address(folder), reader, clock)
            except FileNotFoundError:
                # A running program replaced what was listed by a snapshot.
                if not left:
                    raise
            else:
                return tracker
        raise AssertionError("not reached")

    def _recover(self, address: str, reader: LogReader, clock: Clock) -> None:
        started_s = clock.monotonic_s()
        try:
            found = recover_ledger(address, reader)
        except CorruptRecordError as error:
            raise DamagedLedgerError(address, error) from error
        self._address = address
        self._state = found.state
        for attempt in found.state.attempts.values():
            attempt.ended = True
        for stream_id in sorted(self._stream_ids):
            found.state.streams.setdefault(stream_id, StreamLedger())
        self._driver_log.go_on_from(found)
        if not found.records:
            return
        _log.info(
            "driver log %s: recovered %d unallocated blocks and %d batches from %d records in "
            "%.2f s",
            address,
            sum(
                len(stream.unallocated) + len(stream.kept or ())
                for stream in found.state.streams.values()
            ),
            len(found.state.batches),
            found.records,
            clock.monotonic_s() - started_s,
        )
        with self._commit_lock:
            self._driver_log.write_snapshot(found.state)

    # -- streams -------------------------------------------------------------------------------

    def register_streams(
        self,
        streams: Mapping[str, int],
        removed: Collection[str] = (),
        *,
        are_kept: bool = False,
        kept: Collection[str] = (),
    ) -> dict[str, int]:
        """Say which streams the program has; from now on only their blocks are taken.

        A stream that the ledger knows keeps its number. One of a ledger in which streams had no
        names is known by its number. A number is never given to another name.

        Args:
            streams: The names, each with the number that a new stream would have.
            removed: Names of streams whose positions and blocks are given up.
            are_kept: Whether they are read by places, and not by batches; a stream never changes
                from one to the other.
            kept: The names of those that are, where not all of them are.

        Returns:
            The number of each name.

        Raises:
            StreamsDoNotFitError: There are blocks to process or a position of a stream that is
                neither among these nor removed. Nothing was changed.
            LedgerError: A stream was read by batches and should be by places, or the reverse.
            LedgerWriteError: The driver log did not take it; nothing was changed.
        """
        with self._commit_lock:
            state = self._state
            known = {stream.name: number for number, stream in state.streams.items()}
            numbers = {name: known[name] for name in streams if name in known}
            for name, wish in streams.items():
                if name in numbers:
                    continue
                nameless = wish in state.streams and not state.streams[wish].name
                taken = state.streams.keys() | set(numbers.values())
                free = wish not in taken or (nameless and wish not in numbers.values())
                numbers[name] = wish if free else max(taken) + 1
            others = {
                stream.name or f"stream {number}": number
                for number, stream in state.streams.items()
                if number not in numbers.values() and self._is_needed(number)
            }
            left = tuple(name for name in others if name not in removed)
            if left:
                new = tuple(name for name in streams if name not in known)
                raise StreamsDoNotFitError(self._address, left, new, are_kept)
            others_use = tuple(
                name
                for name in streams
                if name in known
                and (state.streams[numbers[name]].kept is not None) != (are_kept or name in kept)
            )
            if others_use:
                is_kept = state.streams[numbers[others_use[0]]].kept is not None
                raise LedgerError(_in_other_use(self._address, others_use, is_kept))
            names = tuple((numbers[name], name) for name in streams if name not in known)
            newly_kept = tuple(
                (number, uuid.uuid4().hex) for number, name in names if are_kept or name in kept
            )
            events: list[Event] = []
            if names:
                events.append(StreamNamesEvent(names))
            if newly_kept:
                events.append(StreamKeepingEvent(newly_kept))
            if others:
                events.append(StreamRemovalEvent(tuple(others.values())))
                _log.warning(
                    "The records that wait, and the positions, of %s are given up",
                    ", ".join(others),
                )

            if events:
                self._commit(f"the names of {len(streams)} streams", events)
            self._stream_ids = frozenset(numbers.values())
            return numbers

    def kept_streams(self) -> dict[str, int]:
        """Return the streams that are read by places, each with its number."""
        with self._state_lock:
            streams = self._state.streams.items()
            return {found.name: number for number, found in streams if found.kept is not None}

    def _is_needed(self, number: int) -> bool:
        stream = self._state.streams[number]
        return (
            stream.position.value is not None
            or bool(stream.unallocated)
            or bool(stream.kept)
            or any(
                number in blocks
                for batch, blocks in self._state.batches.items()
                if batch not in self._state.complete and batch not in self._newly_complete
            )
        )

    # -- receivers -----------------------------------------------------------------------------

    def register_attempt(
        self, stream_id: int, attempt: str, host: str, log: str = ""
    ) -> AttemptRegistration:
        """Make a receiver attempt the newest of its stream; older ones are fenced from here on.

        Registering the newest attempt again changes nothing and returns the same number.

        Args:
            stream_id: Its stream.
            attempt: The attempt.
            host: The host that it is on.
            log: Folder of the log that it shares with others of its process; empty: its own.

        Raises:
            LedgerError: When the stream is not known, the attempt was replaced or has ended, or the
                log that it is to share has been removed.
            LedgerWriteError: When the driver log did not take it; nothing was changed.
        """
        found = self.register_attempts([(stream_id, attempt, host, log)])[0]
        if isinstance(found, LedgerError):
            raise found
        return found

    def register_attempts(
        self, attempts: Sequence[tuple[int, str, str, str]]
    ) -> list[AttemptRegistration | LedgerError]:
        """Register many with one record of the driver log: all that are new, or none.

        Args:
            attempts: Stream, attempt, host and log of each, as for `register_attempt`.

        Returns:
            What `register_attempt` would return, or raise, in order.
        """
        with self._commit_lock:
            state = self._state
            new: dict[str, AttemptRegistrationEvent] = {}
            next_counters: dict[int, int] = {}
            found: list[AttemptRegistration | LedgerError] = []
            for stream_id, attempt, host, log in attempts:
                stream = state.streams.get(stream_id)
                known = state.attempts.get(attempt)
                if stream is None or stream_id not in self._stream_ids:
                    found.append(LedgerError(f"stream {stream_id} is not known"))
                    continue
                if known is not None and (stream.newest != attempt or known.ended):
                    text = f"attempt {attempt} of stream {stream_id} was replaced or ended"
                    found.append(LedgerError(text))
                    continue
                if known is None and attempt not in new:
                    if log in state.removed_logs:
                        text = f"attempt {attempt} is to share {log}, which was removed"
                        found.append(LedgerError(text))
                        continue
                    counter = next_counters.get(stream_id, stream.next_counter)
                    next_counters[stream_id] = counter + 1
                    new[attempt] = AttemptRegistrationEvent(stream_id, attempt, host, counter, log)
                counter = new[attempt].counter if known is None else known.counter
                first = BlockNumbers.first_number(counter)
                found.append(AttemptRegistration(first, stream.position.value, stream.splits))
            if new:
                first_new = next(iter(new.values()))
                what = f"attempt {first_new.attempt} of stream {first_new.stream_id}"
                if len(new) > 1:
                    what = f"{len(new)} attempts"
                try:
                    self._commit(f"the registration of {what}", list(new.values()))
                except LedgerWriteError as error:
                    return [
                        error if attempt in new and not isinstance(answer, LedgerError) else answer
                        for (_, attempt, _, _), answer in zip(attempts, found, strict=True)
                    ]
            return found

    def splits(self, streams: Sequence[int]) -> SplitsEvent:
        """Return which splits the receivers have that share a source."""
        with self._state_lock:
            found = [(one, self._state.streams[one]) for one in streams]
            first = found[0][1]
            return SplitsEvent(
                tuple((one, stream.splits) for one, stream in found), first.wanted, first.declared
            )

    def split_places(self, streams: Iterable[int]) -> dict[str, Any]:
        """Return the places of all splits of receivers that share a source."""
        with self._state_lock:
            found = [self._state.split_places(one) for one in streams]
        return {split: place for places in found for split, place in places.items()}

    def divide(self, splits: SplitsEvent, unregistered: Collection[str] = ()) -> bool:
        """Give receivers that share a source its splits, and fence those whose splits change.

        Args:
            splits: Which receiver has which.
            unregistered: Attempts that have not registered: they get these when they do.

        Returns:
            Whether it was done; not if one of them has registered, and reads what it had.

        Raises:
            LedgerWriteError: When the driver log did not take it; nothing was changed.
        """
        with self._commit_lock:
            if any(attempt in self._state.attempts for attempt in unregistered):
                return False
            self._commit(f"the splits of {len(splits.streams)} receivers", [splits])
            return True

    def end_attempt(self, attempt: str) -> None:
        """Say that the attempt's process is gone for good: it adds no more, its files are left."""
        with self._commit_lock, self._state_lock:
            known = self._state.attempts.get(attempt)
            if known is not None:
                known.ended = True

    def forget_attempts(self, attempts: Collection[str]) -> None:
        """Drop ended attempts whose files were given up, so that the ledger does not grow.

        When the driver log does not take it, they are only forgotten later.
        """
        with self._commit_lock:
            state = self._state
            gone = tuple(
                name
                for name in attempts
                if (known := state.attempts.get(name)) is not None
                and known.ended
                and not known.unreleased
                and not known.retained
            )
            if not gone:
                return
            try:
                self._commit(f"the end of {len(gone)} attempts", [AttemptEndEvent(gone)])
            except LedgerWriteError as error:
                _log.warning("%s", error)

    def forget_host(self, host: str) -> None:
        """Forget a host that is gone for good: what it had left to delete is given up."""
        with self._commit_lock, self._state_lock:
            attempts = self._state.attempts.items()
            gone = [name for name, one in attempts if one.host == host and one.was_named]
            self._state.forget_host(host)
        self.forget_attempts(gone)

    # -- copies --------------------------------------------------------------------------------

    def hosts(self) -> set[str]:
        """Return the hosts that have blocks, or copies."""
        with self._state_lock:
            return self._state.hosts()

    def logs_on(self, host: str) -> set[str]:
        """Return the folders in which a host has blocks, or copies, that are not released."""
        with self._state_lock:
            return self._state.logs_on(host)

    def blocks(self, streams: Iterable[int]) -> list[ReceivedBlockInfo]:
        """Return all blocks of streams that are not released; of each stream in order (I5)."""
        found: list[ReceivedBlockInfo] = []
        for stream_id in streams:
            with self._state_lock:
                found.extend(self._state.blocks_of(stream_id))
        return found

    def find_block(self, stream_id: int, block_id: str) -> ReceivedBlockInfo | None:
        """Return a block as it is known now; None when it is not there any more, or never was."""
        try:
            number = block_number(stream_id, block_id)
        except ValueError:
            return None
        with self._state_lock:
            return self._state.find_block(stream_id, number)

    def hold_copies(self, held: Collection[tuple[str, str]]) -> None:
        """Say which attempts' copies are made on which hosts now: these and no others.

        Segments of copies of these attempts stay on them: one may have a copy that is not added
        yet.
        """
        with self._state_lock:
            self._state.held = frozenset(held)

    def add_copies(
        self, copies: Iterable[tuple[ReceivedBlockInfo, ReplicaPlace]], lost: Collection[str]
    ) -> list[tuple[str, str]]:
        """Take note of copies that were made again.

        Args:
            copies: The blocks, each with the place of its new copy.
            lost: Hosts that are gone: these replace the copies on them.

        Returns:
            Hosts and attempts of copies that are not needed, as nothing is left of the attempt.
            (One that lives may have others on their way; `releases` names its segments.)

        Raises:
            LedgerWriteError: The driver log did not take it; nothing was changed.
        """
        with self._commit_lock:
            attempts = self._state.attempts
            wanted = []
            left: dict[tuple[str, str], None] = {}
            for block, copy in copies:
                known = attempts.get(block.attempt)
                if known is not None and (known.unreleased or not known.ended):
                    wanted.append((block, copy))
                else:
                    left[copy.host, block.attempt] = None
            if wanted:
                self._commit(f"{len(wanted)} copies of blocks", copy_events(wanted, lost))
            return [*left]

    # -- blocks --------------------------------------------------------------------------------

    def add_blocks(self, message: AddBlock) -> Ok | Refused | Failure:
        """Add the blocks of one message, all or none; see `add_many`."""
        return self.add_many((message,))[0]

    def add_many(self, messages: Sequence[AddBlock]) -> list[Ok | Refused | Failure]:
        """Add the blocks of many messages with one record of the driver log.

        Blocks that are in the ledger already, also released ones, are left out and answered as
        if they were new (I2).

        Returns:
            One answer per message, in order. `Ok`: all its blocks are in the driver log (I1).
            `Refused`: none is, and none ever will. `Failure`: none is; asking again may help.
        """
        with self._commit_lock:
            state = self._state
            numbers: dict[str, BlockNumbers] = {}
            answers: list[Ok | Refused | Failure] = []
            accepted: list[tuple[str, list[NumberedBlock]]] = []
            for message in messages:
                if message.stream_id not in self._stream_ids:
                    answers.append(Refused(f"stream {message.stream_id} is not known"))
                    continue
                new = state.new_blocks(message, numbers)
                if not isinstance(new, list):
                    answers.append(new)
                    continue
                answers.append(_OK)
                if not new:
                    continue
                if accepted and accepted[-1][0] == message.attempt:
                    accepted[-1][1].extend(new)
                else:
                    accepted.append((message.attempt, new))
            count = sum(len(blocks) for _, blocks in accepted)
            if count:
                now_ms = self._clock.time_ms()
                times = [
                    [now_ms] * len(blocks) if state.is_kept(attempt) else ()
                    for attempt, blocks in accepted
                ]
                events = [
                    event
                    for (_, blocks), added_ms in zip(accepted, times, strict=True)
                    for event in addition_events(blocks, added_ms)
                ]
                letters = self._letters_sent(accepted, now_ms)

                def apply() -> None:
                    # As `LedgerState.apply` would, with the blocks that are here already.
                    for (attempt, blocks), added_ms in zip(accepted, times, strict=True):
                        state.add(attempt, blocks, added_ms)
                    for event in letters:
                        state.note_letters(event)

                try:
                    self._commit(f"{count} blocks", [*events, *letters], apply)
                except LedgerWriteError as error:
                    failure: Refused | Failure = Failure(str(error))
                    if isinstance(error, LedgerLostError):
                        failure = Refused(str(error))
                    # Also for messages without new blocks: one of theirs may be among these.
                    return [failure if answer is _OK else answer for answer in answers]
                for _, blocks in accepted:
                    for _, block in blocks:
                        records, of_stream = self._received.get(block.stream_id, (0, 0))
                        self._received[block.stream_id] = records + block.num_records, of_stream + 1
            return answers

    def _letters_sent(
        self, accepted: Iterable[tuple[str, list[NumberedBlock]]], now_ms: int
    ) -> list[LettersSentEvent]:
        """Return the events of letters whose records are in blocks; the blocks forget them."""
        found: list[LettersSentEvent] = []
        for _, blocks in accepted:
            for at, (number, block) in enumerate(blocks):
                if block.letters:
                    oldest_ms = now_ms - int(self.letters_kept_s * 1000)
                    found.append(
                        LettersSentEvent(block.stream_id, block.letters, now_ms, oldest_ms)
                    )
                    blocks[at] = number, msgspec.structs.replace(block, letters=())
        return found

    def sent_letters(
        self, stream_id: int, among: Iterable[bytes] | None = None
    ) -> tuple[str, frozenset[bytes]]:
        """Return the newest attempt of a stream, and the keys of the letters that were sent.

        Args:
            stream_id: The stream.
            among: The keys that are looked for; None: all.
        """
        with self._state_lock:
            stream = self._state.streams.get(stream_id)
            if stream is None:
                return "", frozenset()
            known = stream.letters
            found = known if among is None else filter(known.__contains__, among)
            return stream.newest, frozenset(found)

    def received(self, stream_id: int) -> tuple[int, int]:
        """Return how many records, and blocks, of a stream were added since it was opened."""
        return self._received.get(stream_id, (0, 0))

    def last_position(self, stream_id: int) -> bytes | None:
        """Return the position after the last durable block of the stream, if it has one."""
        with self._state_lock:
            stream = self._state.streams.get(stream_id)
            return stream.position.value if stream is not None else None

    # -- batches -------------------------------------------------------------------------------

    @property
    def has_unallocated_blocks(self) -> bool:
        """Whether any block waits for a batch."""
        with self._state_lock:
            return any(stream.unallocated for stream in self._state.streams.values())

    def unallocated_blocks(self, stream_id: int) -> tuple[ReceivedBlockInfo, ...]:
        """Return the blocks of the stream that wait for a batch, in order."""
        with self._state_lock:
            stream = self._state.streams.get(stream_id)
            return tuple(stream.unallocated.values()) if stream is not None else ()

    def blocks_on(self, host: str) -> Mapping[int | None, tuple[ReceivedBlockInfo, ...]]:
        """Return the blocks that are on a host, or have a copy on it, by the batch that has them.

        Under None stand those that wait for a batch. A batch that was not cleaned up may be
        complete already.
        """
        with self._state_lock:
            return self._state.blocks_on(host)

    @property
    def last_allocated_ms(self) -> int:
        """Time of the last allocated batch, -1 before the first."""
        with self._state_lock:
            return self._state.last_batch

    @property
    def attempts(self) -> tuple[str, ...]:
        """Receiver attempts that have something left."""
        with self._state_lock:
            return tuple(self._state.attempts)

    @property
    def batch_times_ms(self) -> tuple[int, ...]:
        """Times of the batches that were allocated and not cleaned up, in order."""
        with self._state_lock:
            return tuple(self._state.batches)

    def allocate_blocks_to_batch(self, time_ms: int) -> bool:
        """Give all waiting blocks to the batch and log that, before any job of it runs (I3).

        Returns:
            True when it is in the driver log. False, with a log line, when the batch is not
            later than the last allocated one: it keeps what it has.

        Raises:
            LedgerWriteError: The driver log did not take it; the blocks wait as before. It may be
                on the disk all the same, so ask again for this batch before any later one.
        """
        with self._commit_lock:
            state = self._state
            if time_ms <= state.last_batch:
                _log.warning(
                    "batch %d ms was allocated before, or is older than batch %d ms: it keeps the "
                    "blocks it has",
                    time_ms,
                    state.last_batch,
                )
                return False
            self._commit(
                f"the allocation of batch {time_ms} ms",
                [BatchAllocationEvent(time_ms, state.unallocated_ranges())],
            )
            return True

    def incomplete_batches(self) -> tuple[int, ...]:
        """Return the times of the batches that are not known to be complete, in order."""
        with self._state_lock:
            state = self._state
            return tuple(
                batch
                for batch in state.batches
                if batch not in state.complete and batch not in self._newly_complete
            )

    def complete_batches(self, times_ms: Iterable[int]) -> None:
        """Note that batches were processed, so that no later driver gives their blocks again.

        Nothing waits for the disk: the next record of the driver log says it, at the latest that
        of the next clean-up or of `close`. A driver that dies before processes them once more.
        """
        with self._state_lock:
            state = self._state
            self._newly_complete.update(
                time_ms
                for time_ms in times_ms
                if time_ms in state.batches and time_ms not in state.complete
            )

    def return_unfinished_batches(self) -> int:
        """Let the blocks of all batches that are not complete wait for a batch again.

        For a driver that starts over on the log of an earlier one and does not know its batches:
        what was running is processed again, perhaps for the second time, and nothing that was
        acknowledged is lost. Complete batches are cleaned up.

        Returns:
            How many blocks wait again.

        Raises:
            LedgerWriteError, WalError: It could not be logged; nothing has changed.
        """
        with self._commit_lock:
            state = self._state
            batches = self.incomplete_batches()
            complete = tuple(batch for batch in state.batches if batch not in batches)
            count = sum(
                len(blocks) for batch in batches for blocks in state.batches[batch].values()
            )
            if state.batches:
                # What may be deleted of those that are complete, the next clean-up names.
                self._commit(
                    f"the return of {len(batches)} unfinished batches",
                    [BatchReturnEvent(batches), BatchCleanupEvent(complete, self._retained_ms())],
                )
            return count

    def get_blocks_of_batch(self, time_ms: int) -> Mapping[int, tuple[ReceivedBlockInfo, ...]]:
        """Return the batch's blocks by stream, in order (I5); streams without blocks are absent.

        Raises:
            BatchCleanedError: The batch was cleaned up.
        """
        with self._state_lock:
            return dict(self._state.batch_blocks(time_ms))

    def get_blocks_of_batch_and_stream(
        self, time_ms: int, stream_id: int
    ) -> tuple[ReceivedBlockInfo, ...]:
        """Return the blocks of one stream in the batch, in order; empty when there are none.

        Raises:
            BatchCleanedError: The batch was cleaned up (I15).
        """
        with self._state_lock:
            return self._state.batch_blocks(time_ms).get(stream_id, ())

    def cleanup_old_batches(self, threshold_ms: int) -> list[AttemptRelease]:
        """Drop the batches before `threshold_ms` and say what may be deleted.

        Nothing is released before the clean-up is in the driver log (I4); when the log does not
        take it, nothing is dropped and the next call tries again. An ended attempt that is wholly
        released is named by every call until `forget_attempts`. With a retention the segments of
        the blocks stay, and those go whose retention is over.
        """
        with self._commit_lock:
            state = self._state
            batches = tuple(batch for batch in state.batches if batch < threshold_ms)
            over = state.retained.over(self._clock.time_ms(), self._retention)
            events: list[Event] = []
            if over:
                events.append(RetainedReleaseEvent(over))
            if batches:
                events.append(BatchCleanupEvent(batches, self._retained_ms()))
            blocks: Sequence[ReceivedBlockInfo] = ()
            if events or self._newly_complete:
                try:
                    blocks = self._commit(f"the clean-up of {len(batches)} batches", events)
                except LedgerWriteError as error:
                    _log.error("%s; it is tried again", error)
            with self._state_lock:
                return state.releases(blocks)

    # -- what is retained ----------------------------------------------------------------------

    def release_retained(
        self, host: str | None, size_bytes: int
    ) -> tuple[list[AttemptRelease], int, int]:
        """Let the oldest that is retained go, because the disk of a receiver's log runs short.

        Also when the driver log does not take that: it may be on the same disk, and what is
        retained is promised to no one.

        Args:
            host: What is on it goes; None: what is anywhere.
            size_bytes: This much of it, or all.

        Returns:
            What may be deleted now; how many segments are retained no longer; how many bytes of
            blocks they have.
        """
        with self._commit_lock:
            state = self._state
            attempts = [
                name
                for name, attempt in state.attempts.items()
                if host is None or attempt.host == host
            ]
            before_bytes = state.retained.size_bytes
            segments = state.retained.oldest(attempts, size_bytes)
            if not segments:
                return [], 0, 0
            try:
                self._commit(
                    f"the end of the retention of {len(segments)} segments",
                    [RetainedReleaseEvent(segments)],
                )
            except LedgerWriteError as error:
                _log.warning("%s; they go all the same", error)
                with self._state_lock:
                    state.release_retained(segments)
            with self._state_lock:
                freed_bytes = before_bytes - state.retained.size_bytes
                return state.releases(()), len(segments), freed_bytes

    def host_of(self, attempt: str) -> str | None:
        """Return the host of a receiver attempt; None if it is not known."""
        with self._state_lock:
            known = self._state.attempts.get(attempt)
            return None if known is None else known.host

    def stream_numbers(self) -> dict[str, int]:
        """Return all streams that have a name, each with its number."""
        with self._state_lock:
            streams = self._state.streams.items()
            return {found.name: number for number, found in streams if found.name}

    def logged_blocks(self, stream_id: int) -> tuple[ReceivedBlockInfo, ...]:
        """Return the blocks of a stream that are in a log and not yet cleaned up, in order (I5)."""
        with self._state_lock:
            blocks = self._state.blocks_of(stream_id)
            return tuple(block for block in blocks if block.segment is not None)

    def logged_segments(self, stream_id: int) -> tuple[LoggedSegment, ...]:
        """Return where the receivers' logs have the blocks of a stream, in order (I5).

        Those that wait, batches' blocks, what is retained, and what is read by places. A block that
        is in no log is left out.
        """
        with self._state_lock:
            state = self._state
            found = RetainedSegments()
            for one in state.retained:
                if state.attempts[one.attempt].stream_id == stream_id:
                    found.put_back(one.copy())
            for block in state.blocks_of(stream_id):
                if block.segment is not None:
                    found.add(block, 0)
            order = sorted(found, key=lambda one: (state.attempts[one.attempt].counter, one.number))
            return tuple(
                LoggedSegment(
                    one.attempt,
                    state.attempts[one.attempt].host,
                    one.folder,
                    one.number,
                    one.size_bytes,
                    one.records,
                    tuple(one.runs),
                )
                for one in order
            )

    def _retained_ms(self) -> int:
        """Return the time that is noted at a clean-up; -1 where nothing is retained."""
        return -1 if self._retention is None else self._clock.time_ms()

    # -- checkpoints ---------------------------------------------------------------------------

    @property
    def checkpoint(self) -> bytes:
        """The program's newest checkpoint; empty before the first."""
        with self._state_lock:
            return self._state.checkpoint

    def write_checkpoint(self, checkpoint: bytes) -> None:
        """Write a checkpoint, in place of the one before.

        When this returns it is on the disk, whatever the sync policy, and so is all that was
        written before it. No event comes between its pieces.

        Raises:
            LedgerWriteError: The driver log did not take it. The one before counts, or this one
                if all of it came to the disk.
        """
        what = "a checkpoint"
        pieces = list(pieces_of(checkpoint))
        with self._commit_lock:
            for index, piece in enumerate(pieces):
                event = CheckpointEvent(index, index == len(pieces) - 1, piece)
                self._append(what, [event])
            self._driver_log.force(what)
            self._snapshot_if_due()

    # -- the log -------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the driver log. What the ledger knows can still be asked, but not changed."""
        with self._commit_lock:
            if self._newly_complete:
                try:
                    self._commit("the completion of the last batches", ())
                except LedgerWriteError as error:
                    _log.warning("%s; the next driver processes them again", error)
            self._driver_log.close()

    def _commit(
        self, what: str, events: Sequence[Event], apply: Callable[[], None] | None = None
    ) -> Sequence[ReceivedBlockInfo]:
        """Write events, apply them, and write a snapshot when one is due. Needs `_commit_lock`."""
        released = self._append(what, events, apply)
        self._snapshot_if_due()
        return released

    def _append(
        self, what: str, events: Sequence[Event], apply: Callable[[], None] | None = None
    ) -> Sequence[ReceivedBlockInfo]:
        """Write events, then apply them. Needs `_commit_lock`.

        What became complete since the last record is written first, in the same one.

        Args:
            what: The events in words.
            events: The events.
            apply: Applies them in a quicker way than `LedgerState.apply`.

        Returns:
            The blocks that they released.
        """
        with self._state_lock:
            complete = tuple(sorted(self._newly_complete))
        completion = (BatchCompletionEvent(complete),) if complete else ()
        self._driver_log.append(what, (*completion, *events))
        with self._state_lock:
            self._state.note_complete(complete)
            self._newly_complete.difference_update(complete)
            if apply is not None:
                apply()
                return ()
            return [block for event in events for block in self._state.apply(event)]

    def _snapshot_if_due(self) -> None:
        if self._driver_log.snapshot_is_due:
            self._driver_log.write_snapshot(self._state)


def _in_other_use(folder: str, streams: tuple[str, ...], is_kept: bool) -> str:
    uses = ["by places (a ReceiverHost, or `continuous`)", "by batches of a StreamingContext"]
    ledger, program = uses if is_kept else reversed(uses)
    return (
        f"driver log {folder}: what it has of {', '.join(streams)} was received to be read "
        f"{ledger}, and cannot be read {program}: use another folder or other names"
    )
