"""The writing end of a log: group commit, rolling, and what happens after a failure."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, cast

from crc32c import crc32c

from penstock.clock import Clock, SystemClock
from penstock.wal._errors import (
    LogClosedError,
    LogFolderInUseError,
    LogFullError,
    LogStalledError,
    LogWriteError,
    RecordTooLargeError,
    UnwritableFolderError,
    WalError,
)
from penstock.wal._filesystem import FileSystem, FolderLock
from penstock.wal._layout import MAX_KIND, RECORD_HEADER_SIZE, RecordPlace, round_up
from penstock.wal._local_filesystem import LocalFileSystem
from penstock.wal._names import (
    LOCK_NAME,
    is_unwritable,
    list_names,
    make_folders,
    segment_path,
)
from penstock.wal._options import LogOptions, LogStatistics, SyncPolicy
from penstock.wal._segment_writer import (
    MAX_RECORDS,
    AppendUnit,
    SegmentWriter,
    UnitRecord,
    new_scratch,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["LogWriter", "lock_folder"]

_logger = logging.getLogger("penstock.wal")

_DIRECT_ALIGNMENT = 4096
_RUN_BYTES = 8 << 20
_NO_OPTIONS = LogOptions()
_LOCAL = LocalFileSystem()
_SYSTEM_CLOCK = SystemClock()


class LogWriter:
    """The one writer of a log's folder. Built by `create`; usable from many threads.

    *Group commit.* An append puts its records into a queue. Whoever finds no leader becomes it:
    it takes what the queue holds, writes it with one write and one sync, and wakes the others.
    So there is one write at a time, records lie in the order in which they were queued, and the
    disk forces as many appends at once as came in meanwhile.

    *After a failure* nothing of the failed write is trusted. The appends in it raise, the
    segment ends before them, and the next append begins a new segment whose header says so: what
    a failed write may have left in the old one never comes back once a later append succeeded.
    Until then an append that raised may or may not be found by a reader.

    `_turn` guards the queue, the leadership, `_closed`, `_background_error` and the numbers of
    `statistics`. What belongs to the open segment belongs to the leader.
    """

    def __init__(
        self,
        folder: str,
        fs: FileSystem,
        lock: FolderLock,
        options: LogOptions,
        clock: Clock,
        user_header: bytes,
        next_number: int,
    ) -> None:
        self._folder = folder
        self._fs = fs
        self._lock = lock
        self._options = options
        self._clock = clock
        self._user_header = user_header
        self._log_id = secrets.token_bytes(16)
        self._direct = options.direct and options.alignment % _DIRECT_ALIGNMENT == 0
        self._always = options.sync is SyncPolicy.ALWAYS
        self._scratch = new_scratch()
        self._turn = threading.Condition()
        self._queue: list[AppendUnit] = []
        self._leader: threading.Thread | None = None
        self._closed = False
        self._segment: SegmentWriter | None = None
        self._distrusted: SegmentWriter | None = None
        self._highest_begun = 0
        self._next_number = next_number
        self._untrimmed: dict[int, int] = {}
        self._unforced: set[int] = set()
        self._last_sequence = 0
        self._committed = 0
        self._synced = 0
        self._background_error: BaseException | None = None
        self._stop = threading.Event()
        self._syncer: threading.Thread | None = None
        self._counts = _Counts()

    @classmethod
    def create(
        cls,
        folder: str,
        *,
        options: LogOptions = _NO_OPTIONS,
        fs: FileSystem = _LOCAL,
        clock: Clock = _SYSTEM_CLOCK,
        user_header: bytes = b"",
        application: str = "",
    ) -> LogWriter:
        """Take a folder for writing and begin a segment in it.

        Missing folders are made (0700) and forced to the disk. Segments that are there already
        stay as they are; the new one gets the next number. Nothing of them is read.

        Args:
            folder: The log's folder; one writer at a time.
            options: How to write.
            fs: Where the folder lives.
            clock: For ages and intervals.
            user_header: Bytes for the header of each segment, as `SegmentInfo.user_header`.
            application: Named in the error of whoever wants the folder meanwhile.

        Raises:
            LogFolderInUseError: Another living writer has it.
            UnwritableFolderError: This user may not write there.
            LogFullError: There is no space for a segment.
            LogWriteError: Anything else that the system refused.
        """
        folder = os.path.abspath(folder)
        try:
            make_folders(fs, folder)
            lock = lock_folder(fs, folder, application)
            try:
                _, unfinished, highest = list_names(fs, folder)
                for name in unfinished:
                    fs.remove(os.path.join(folder, name))
                writer = cls(folder, fs, lock, options, clock, user_header, highest + 1)
                writer._begin_segment(0)
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            raise _translated(error, fs, folder) from error
        writer._start()
        return writer

    def _start(self) -> None:
        if self._options.sync is SyncPolicy.INTERVAL:
            name = f"penstock-wal-sync-{os.path.basename(self._folder)}"
            self._syncer = threading.Thread(target=self._sync_loop, name=name, daemon=True)
            self._syncer.start()

    @property
    def folder(self) -> str:
        """The log's folder, as an absolute path."""
        return self._folder

    @property
    def options(self) -> LogOptions:
        """The options it was created with."""
        return self._options

    @property
    def log_id(self) -> bytes:
        """The 16 random bytes that all records of this writer carry."""
        return self._log_id

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Appending

    def append(self, kind: int, payload: Buffer | Sequence[Buffer]) -> RecordPlace:
        """Append one record and return when it is committed to the sync policy.

        Args:
            kind: 0 to 0xFEFF, meaning up to the log's owner.
            payload: Its bytes, as one buffer or as several that are written one after the other.

        Raises:
            RecordTooLargeError: It is above `LogOptions.max_append_size`.
            LogFullError: No space; appends succeed again when there is.
            LogWriteError: The disk failed, or a sync in the background had failed before.
            LogStalledError: The disk did not answer in time.
            LogClosedError: The writer is closed.
        """
        record, size = self._record(kind, payload)
        return self._commit(AppendUnit([record], size))[0]

    def append_many(
        self, records: Sequence[tuple[int, Buffer | Sequence[Buffer]]]
    ) -> list[RecordPlace]:
        """Append records with one write and one commit; they lie in one segment.

        Either the call returns and all are committed, or it raises and, once a later append has
        succeeded, none is there. A crash in the middle may leave the first few.

        Args:
            records: Pairs of kind and payload, as for `append`.

        Raises:
            WalError: As `append`.
        """
        made = []
        total = 0
        for kind, payload in records:
            record, size = self._record(kind, payload)
            made.append(record)
            total += size
        if not made:
            return []
        return self._commit(AppendUnit(made, total))

    def append_slot(
        self,
        kind: int,
        slot: memoryview,
        payload_length: int,
        payload_crc: int | None = None,
    ) -> RecordPlace:
        """Append a record that was built in place, without copying it.

        The slot must not change before the call returns. Afterwards it holds the record as it
        lies in the segment (see `parse_record`).

        Args:
            kind: As for `append`.
            slot: Page-aligned writable memory. Its first 64 bytes are room for the header, the
                payload follows. It must reach to the next multiple of the alignment.
            payload_length: Bytes of the payload.
            payload_crc: The payload's CRC-32C, when the caller has it already.

        Raises:
            WalError: As `append`.
            ValueError: The slot is too short or read-only.
        """
        slot = slot.cast("B")
        end = RECORD_HEADER_SIZE + payload_length
        size = round_up(end, self._options.alignment)
        if slot.readonly or payload_length < 0 or len(slot) < size:
            raise ValueError(
                f"a slot for {payload_length} bytes must be writable and {size} bytes long, "
                f"not {len(slot)}"
            )
        if payload_crc is None:
            payload_crc = crc32c(slot[RECORD_HEADER_SIZE:end])
        _check_kind(kind)
        record = UnitRecord(kind, (), payload_length, payload_crc)
        return self._commit(AppendUnit([record], size, slot))[0]

    def _record(self, kind: int, payload: Buffer | Sequence[Buffer]) -> tuple[UnitRecord, int]:
        _check_kind(kind)
        buffers: tuple[Buffer, ...]
        # What has no buffer of its own is a sequence of buffers.
        if isinstance(payload, (list, tuple)):
            buffers = tuple(payload)
        else:
            buffers = (cast("Buffer", payload),)
        length = 0
        crc = 0
        for buffer in buffers:
            length += len(buffer) if type(buffer) is bytes else memoryview(buffer).nbytes
            crc = crc32c(buffer, crc)
        alignment = self._options.alignment
        return (
            UnitRecord(kind, buffers, length, crc),
            (RECORD_HEADER_SIZE + length + alignment - 1) & -alignment,
        )

    def _commit(self, unit: AppendUnit) -> list[RecordPlace]:
        """Queue a unit, lead or follow until it is done."""
        if unit.size > self._options.max_append_size or len(unit.records) > MAX_RECORDS:
            raise RecordTooLargeError(unit.size, self._options.max_append_size)
        with self._turn:
            self._check_usable()
            self._queue.append(unit)
            try:
                leads = self._wait_for_turn(unit)
            except BaseException:
                if unit in self._queue:
                    self._queue.remove(unit)
                raise
        if leads:
            try:
                while not unit.done:
                    self._write_queued()
            finally:
                self._give_turn_back()
        if unit.error is not None:
            raise unit.error
        return unit.places

    def _check_usable(self) -> None:
        if self._closed:
            raise LogClosedError(self._folder)
        if self._background_error is not None:
            error, self._background_error = self._background_error, None
            raise LogWriteError(
                self._folder,
                f"an earlier sync in the background failed ({error}); "
                "records of the last interval may not survive a power loss",
            ) from error

    def _wait_for_turn(self, unit: AppendUnit | None, what: str = "earlier appends") -> bool:
        """With `_turn` held, wait until there is no leader and become it, or until it is done.

        Returns:
            True when the caller now leads and must call `_give_turn_back`.
        """
        end = time.monotonic() + self._options.stall_timeout_s
        while unit is None or not unit.done:
            if self._leader is None:
                self._leader = threading.current_thread()
                return True
            left = end - time.monotonic()
            if left <= 0:
                raise LogStalledError(self._folder, self._options.stall_timeout_s, what)
            self._turn.wait(left)
        return False

    def _give_turn_back(self) -> None:
        with self._turn:
            self._leader = None
            self._turn.notify_all()

    @contextlib.contextmanager
    def _lead(self, what: str) -> Iterator[None]:
        with self._turn:
            self._wait_for_turn(None, what)
        try:
            yield
        finally:
            self._give_turn_back()

    # What the leader does

    def _write_queued(self) -> None:
        """Write one run: what is queued and fits together into one segment."""
        with self._turn:
            units = self._take_run()
        error: BaseException | None = None
        try:
            self._write_run(units)
        except BaseException as caught:  # noqa: BLE001 - it goes to every caller whose unit it broke
            error = caught
            self._abandon_segment()
        with self._turn:
            if error is None:
                self._counts.note_run(units)
            else:
                self._counts.failures += 1
            for unit in units:
                unit.error = self._own_error(error)
                unit.done = True
            self._turn.notify_all()
        if error is not None and not isinstance(error, (OSError, WalError)):
            raise error

    def _take_run(self) -> list[AppendUnit]:
        segment = self._segment
        size = self._queue[0].size
        records = len(self._queue[0].records)
        count = 1
        if segment is not None and segment.fits(size, records):
            for unit in self._queue[1:]:
                size += unit.size
                records += len(unit.records)
                if size > _RUN_BYTES or not segment.fits(size, records):
                    break
                count += 1
        units = self._queue[:count]
        del self._queue[:count]
        return units

    def _write_run(self, units: list[AppendUnit]) -> None:
        size = sum(unit.size for unit in units)
        records = sum(len(unit.records) for unit in units)
        segment = self._segment
        if segment is not None and segment is self._distrusted:
            self._abandon_segment()
        elif segment is not None and (not segment.fits(size, records) or self._is_old(segment)):
            self._finish_segment()
        segment = self._segment
        if segment is None:
            segment = self._begin_segment(size + 16 * records)
        segment.write(units, committed=self._committed, sync=self._always)
        last = segment.next_sequence - 1
        with self._turn:
            self._last_sequence = last
            if self._always:
                self._synced = last
            if self._options.sync is not SyncPolicy.INTERVAL:
                self._committed = last

    def _is_old(self, segment: SegmentWriter) -> bool:
        age = self._options.roll_age_s
        return (
            age is not None
            and segment.record_count > 0
            and self._clock.monotonic_s() - segment.begun_s >= age
        )

    def _begin_segment(self, needed: int) -> SegmentWriter:
        self._trim()
        number = self._next_number
        # Also a number whose segment could not be begun is spent: its name may be on the disk.
        self._next_number += 1
        segment = SegmentWriter.create(
            self._fs,
            self._folder,
            number=number,
            previous=self._highest_begun,
            alignment=self._options.alignment,
            segment_size=self._options.segment_size,
            needed=needed,
            direct=self._direct,
            log_id=self._log_id,
            first_sequence=self._last_sequence + 1,
            committed=self._committed,
            created_ms=self._clock.time_ms(),
            begun_s=self._clock.monotonic_s(),
            user_header=self._user_header,
            scratch=self._scratch,
        )
        with self._turn:
            self._segment = segment
            self._highest_begun = number
            self._counts.segments_created += 1
        return segment

    def _finish_segment(self) -> None:
        """Close the open segment with its index. Its records are committed first."""
        segment = self._segment
        if segment is None:
            return
        if self._options.sync is SyncPolicy.INTERVAL:
            self._sync_segment()
        sync = self._options.sync is not SyncPolicy.NONE
        if not sync:
            self._unforced.add(segment.number)
        with self._turn:
            self._segment = None
        try:
            segment.finish(committed=self._committed, sync=sync)
        except OSError as error:
            # Its records are committed all the same; a reader finds them without the index.
            _logger.warning("segment %s has no index: %s", segment.path, error)
            self._untrimmed[segment.number] = segment.end
            self._trim()
        with self._turn:
            self._counts.note_segment(segment)

    def _abandon_segment(self) -> None:
        segment = self._segment
        if segment is None:
            return
        with self._turn:
            self._segment = None
            self._counts.segments_abandoned += 1
            self._counts.note_segment(segment)
        self._untrimmed[segment.number] = segment.end
        self._unforced.add(segment.number)
        try:
            segment.abandon()
        except OSError as error:
            _logger.warning("could not close the abandoned segment %s: %s", segment.path, error)
        self._trim()

    def _trim(self) -> None:
        """Cut off what failed writes left in segments, as far as the disk lets us.

        Until then the header of the segment after it says where such a segment ends.
        """
        for number, end in list(self._untrimmed.items()):
            path = segment_path(self._folder, number)
            try:
                self._fs.truncate(path, end)
            except OSError as error:
                _logger.warning("could not cut the segment %s at %d: %s", path, end, error)
                continue
            del self._untrimmed[number]
            self._unforced.discard(number)

    def _sync_closed(self) -> None:
        """Force segments that the policy `NONE` closed without a sync."""
        for number in sorted(self._unforced):
            self._fs.sync_file(segment_path(self._folder, number))
            self._unforced.discard(number)

    def _sync_segment(self) -> None:
        """Force the open segment."""
        segment = self._segment
        if segment is None:
            return
        with self._turn:
            last = self._last_sequence
        if segment.sync():
            self._note_synced(last)

    def _note_synced(self, last: int) -> None:
        with self._turn:
            self._synced = max(self._synced, last)
            self._committed = max(self._committed, self._synced)

    def _own_error(self, error: BaseException | None) -> BaseException | None:
        """Make the error of one caller: an exception object has one traceback, callers many."""
        if error is None:
            return None
        if isinstance(error, OSError):
            own = _translated(error, self._fs, self._folder)
        else:
            own = LogWriteError(self._folder, f"the write was broken off by {error!r}")
        own.__cause__ = error
        return own

    # Everything else

    def sync(self) -> None:
        """Return when all that was appended so far is on the disk, whatever the policy.

        Raises:
            LogWriteError: The sync failed: records since the last good sync may not survive a
                power loss.
            LogClosedError: The writer is closed.
        """
        with self._lead("a sync"):
            with self._turn:
                self._check_usable()
            try:
                self._sync_closed()
                self._sync_segment()
            except OSError as error:
                self._fail_outside_append()
                raise _translated(error, self._fs, self._folder) from error

    def roll(self) -> None:
        """Close the open segment and begin the next. Does nothing when it holds no record.

        Raises:
            WalError: As `append`. What was committed stays committed.
        """
        with self._lead("a roll"):
            with self._turn:
                self._check_usable()
            if self._segment is not None and not self._segment.record_count:
                return
            try:
                self._finish_segment()
                self._begin_segment(0)
            except OSError as error:
                self._fail_outside_append()
                raise _translated(error, self._fs, self._folder) from error

    def _fail_outside_append(self) -> None:
        with self._turn:
            self._counts.failures += 1
        self._abandon_segment()

    def close(self) -> None:
        """Commit what was appended, close the segment with its index, give the folder back.

        May be called twice.

        Raises:
            LogWriteError: The last records may not be on the disk. The folder is given back.
        """
        with self._turn:
            if self._closed:
                return
            self._wait_for_turn(None, "the end of appends under way")
            self._closed = True
        self._stop.set()
        try:
            if self._syncer is not None:
                self._syncer.join(self._options.stall_timeout_s)
                if self._syncer.is_alive():
                    raise LogStalledError(
                        self._folder, self._options.stall_timeout_s, "the last sync"
                    )
            while self._queue:
                self._write_queued()
            try:
                self._finish_segment()
            except OSError as error:
                self._fail_outside_append()
                raise _translated(error, self._fs, self._folder) from error
            self._trim()
        finally:
            self._lock.release()
            self._give_turn_back()

    def remove_segments(self, numbers: Iterable[int]) -> None:
        """Remove segments whose records nobody needs any more.

        The open segment is left; a segment that is gone already is no error. Removal is not
        forced: after a crash some may be there again.

        Args:
            numbers: Their numbers.

        Raises:
            LogWriteError: The system refused; the others are removed.
        """
        with self._lead("a removal"):
            with self._turn:
                if self._closed:
                    raise LogClosedError(self._folder)
            self._trim()
            wanted = sorted(set(numbers))
            kept = [number for number in self._untrimmed if number not in wanted]
            failed: OSError | None = None
            for number in wanted:
                if number >= self._highest_begun or any(number > other for other in kept):
                    # The highest number stays, so that no name is used twice. And what follows
                    # an abandoned segment stays while that one holds remains of a failed write:
                    # only the later header says that they are void.
                    continue
                try:
                    self._fs.remove(segment_path(self._folder, number))
                except FileNotFoundError:
                    continue
                except OSError as error:
                    failed = error
                    continue
                finally:
                    self._unforced.discard(number)
                self._untrimmed.pop(number, None)
                with self._turn:
                    self._counts.segments_removed += 1
            if failed is not None:
                raise _translated(failed, self._fs, self._folder) from failed

    def statistics(self) -> LogStatistics:
        """Return what was done so far."""
        free = self._fs.free_bytes(self._folder)
        with self._turn:
            return self._counts.snapshot(
                self._segment, self._last_sequence, self._committed, free, self._direct
            )

    # The sync thread of the INTERVAL policy

    def _sync_loop(self) -> None:
        while not self._clock.wait(self._stop, self._options.sync_interval_s):
            self._sync_in_background()

    def _sync_in_background(self) -> None:
        with self._turn:
            segment, last = self._segment, self._last_sequence
            if segment is None or last == self._synced:
                return
        try:
            if segment.sync():
                self._note_synced(last)
        except BaseException as error:  # noqa: BLE001 - the next append raises it
            with self._turn:
                self._background_error = error
                self._distrusted = segment
                self._counts.failures += 1


class _Counts:
    """The numbers behind `LogStatistics`. Guarded by the writer's lock."""

    def __init__(self) -> None:
        self.segments_created = 0
        self.segments_abandoned = 0
        self.segments_removed = 0
        self.failures = 0
        self._records = 0
        self._bytes = 0
        self._writes = 0
        self._syncs = 0
        self._sync_total_s = 0.0
        self._sync_max_s = 0.0

    def note_run(self, units: Sequence[AppendUnit]) -> None:
        self._writes += 1
        for unit in units:
            self._records += len(unit.records)
            self._bytes += unit.size

    def note_segment(self, segment: SegmentWriter) -> None:
        self._syncs += segment.syncs
        self._sync_total_s += segment.sync_seconds_total
        self._sync_max_s = max(self._sync_max_s, segment.sync_seconds_max)

    def snapshot(
        self,
        segment: SegmentWriter | None,
        last_sequence: int,
        committed: int,
        free_bytes: int,
        direct: bool,
    ) -> LogStatistics:
        return LogStatistics(
            segment=None if segment is None else segment.number,
            segments_created=self.segments_created,
            segments_abandoned=self.segments_abandoned,
            segments_removed=self.segments_removed,
            records=self._records,
            bytes_appended=self._bytes,
            writes=self._writes,
            syncs=self._syncs + (segment.syncs if segment else 0),
            sync_seconds_total=self._sync_total_s + (segment.sync_seconds_total if segment else 0),
            sync_seconds_max=max(self._sync_max_s, segment.sync_seconds_max if segment else 0.0),
            failures=self.failures,
            last_sequence=last_sequence,
            committed_sequence=committed,
            free_bytes=free_bytes,
            direct=segment.direct if segment else direct,
        )


def lock_folder(fs: FileSystem, folder: str, application: str = "") -> FolderLock:
    """Take a log's folder for this process.

    Raises:
        LogFolderInUseError: Another living process has it.
    """
    owner = f"process {os.getpid()} on host {socket.gethostname()}"
    if application:
        owner += f", application {application}"
    try:
        return fs.lock(os.path.join(folder, LOCK_NAME), owner)
    except BlockingIOError as error:
        raise LogFolderInUseError(folder, error.strerror or "an unknown process") from error


def _check_kind(kind: int) -> None:
    if not 0 <= kind <= MAX_KIND:
        raise ValueError(f"kind {kind} is not between 0 and {MAX_KIND}")


def _translated(error: OSError, fs: FileSystem, folder: str) -> WalError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LogFullError(folder, fs.free_bytes(folder))
    if is_unwritable(error):
        return UnwritableFolderError(folder, str(error))
    return LogWriteError(folder, str(error))
