"""The writing end of a log: group commit, rolling, and what happens after a failure."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, cast

from penstock.runtime.checksum import crc32c
from penstock.runtime.clock import Clock, SystemClock
from penstock.runtime.threads import OwnedThread
from penstock.wal._company import Company
from penstock.wal._errors import (
    AppendTooLargeError,
    LogClosedError,
    LogFullError,
    LogLostError,
    LogWriteError,
    UnwritableFolderError,
    WalError,
)
from penstock.wal._filesystem import FileSystem, FolderLock, LocalFileSystem
from penstock.wal._folder import is_unwritable, list_names, lock_folder, make_folders, segment_path
from penstock.wal._options import LogOptions, LogStatistics, SyncPolicy
from penstock.wal._owner import TakenOverError
from penstock.wal._segments.chain import SegmentChain
from penstock.wal._segments.encryption import TAG_SIZE, LogCipher
from penstock.wal._segments.layout import (
    MAX_KIND,
    RECORD_HEADER_SIZE,
    AppendUnit,
    RecordPlace,
    UnitRecord,
    round_up,
)
from penstock.wal._segments.writer import PlacedRun, SegmentWriter

if TYPE_CHECKING:
    from typing_extensions import Buffer

_RUN_BYTES = 8 << 20
_BEGIN_TRIES = 5
_NO_OPTIONS = LogOptions()
_LOCAL = LocalFileSystem()
_SYSTEM_CLOCK = SystemClock()


class LogWriter:
    """The one writer of a log's folder. Built by `create`; usable from many threads.

    *Group commit.* An append puts its records into a queue. Anyone who finds no leader becomes it:
    it takes what the queue holds, writes it with one write and one sync, and wakes the others.
    So records are in the order in which they were queued, and the disk forces as many appends at
    once as came in meanwhile. With a `Company` the leader first waits, within bounds, for those
    that are about to come.

    *Several writes under way.* On a disk there is one write at a time. Where a file takes more
    (`FileSystem.writes_at_once`), the leader gives its turn away once its run has its place, and
    then writes. Another one begins while the queue holds as much as one write takes, or, with a
    `Company`, its time has come: waiting for answers must neither hold up the bytes nor the next
    flush, and small appends share a write as ever. Each is acknowledged when it and all before it
    are stored. When one fails, so do those behind it, and no one writes until all of them are over:
    what they may leave in the segment is behind a place that was never written. The end of a
    segment also waits for all of them.

    *After a failure* nothing of the failed write is trusted. The appends in it raise, the
    segment ends before them, and the next append begins a new segment whose header says so: what
    a failed write may have left in the old one never comes back once a later append succeeded.
    Until then an append that raised may or may not be found by a reader.

    `_turn` guards the queue, the leadership, what is under way, `_closed`, `_background_error`, the
    numbers of `statistics`, and what of the open segment is acknowledged. What else belongs to the
    open segment belongs to the leader.
    """

    def __init__(
        self,
        folder: str,
        fs: FileSystem,
        lock: FolderLock,
        options: LogOptions,
        clock: Clock,
        next_number: int,
        cipher: LogCipher | None = None,
        company: Company | None = None,
    ) -> None:
        self._folder = folder
        self._fs = fs
        self._address = fs.address(folder)
        self._lock = lock
        self._options = options
        self._clock = clock
        self._always = options.sync is SyncPolicy.ALWAYS
        self._overhead = 0 if cipher is None else TAG_SIZE
        self._chain = SegmentChain(fs, folder, options, clock, next_number, cipher)
        self._company = company
        turn = threading.RLock()
        self._turn = threading.Condition(turn)
        self._arrived = threading.Condition(turn)
        self._queue: list[AppendUnit] = []
        self._leader: threading.Thread | None = None
        # In order; only the first can be acknowledged.
        self._under_way: deque[_Write] = deque()
        self._begun_s = 0.0
        self._closed = False
        self._distrusted: SegmentWriter | None = None
        # The one of them that a write failed in.
        self._broken: SegmentWriter | None = None
        self._last_sequence = 0
        self._committed = 0
        self._synced = 0
        self._background_error: BaseException | None = None
        self._stop = threading.Event()
        self._syncer: threading.Thread | None = None
        self._records = 0
        self._bytes = 0
        self._writes = 0
        self._failures = 0

    @classmethod
    def create(
        cls,
        folder: str,
        *,
        options: LogOptions = _NO_OPTIONS,
        fs: FileSystem = _LOCAL,
        clock: Clock = _SYSTEM_CLOCK,
        application: str = "",
        cipher: LogCipher | None = None,
        company: Company | None = None,
    ) -> LogWriter:
        """Take a folder for writing and begin a segment in it.

        Missing folders are made (0700) and forced to the disk. Existing segments stay as they are;
        the new one gets the next number. Nothing of them is read.

        Args:
            folder: The log's folder; one writer at a time.
            options: How to write.
            fs: Where the folder lives.
            clock: For ages and intervals.
            application: Named in the error of anyone who wants the folder meanwhile.
            cipher: Encrypts the payloads; None: they are written in clear.
            company: For the threads that append at about the same time; None: each append is
                written at once.

        Raises:
            LogFolderInUseError: Another living writer has it.
            UnwritableFolderError: This user may not write to it.
            LogFullError: There is no space for a segment.
            LogWriteError: Anything else that the system refused.
        """
        folder = os.path.abspath(folder)
        try:
            make_folders(fs, folder)
            lock = lock_folder(fs, folder, application)
            try:
                writer = cls._begun(folder, fs, lock, options, clock, cipher, company)
                try:
                    # Only now: the owner before can begin no segment any more.
                    left = [n for n in list_names(fs, folder)[0] if n < writer.first_segment]
                    fs.settle([segment_path(folder, number) for number in left])
                except BaseException:
                    writer._chain.abandon()
                    raise
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            raise _translated(error, fs, folder) from error
        writer._start()
        return writer

    @classmethod
    def _begun(
        cls,
        folder: str,
        fs: FileSystem,
        lock: FolderLock,
        options: LogOptions,
        clock: Clock,
        cipher: LogCipher | None,
        company: Company | None,
    ) -> LogWriter:
        """Return a writer with its first segment, behind all that exist."""
        for left in reversed(range(_BEGIN_TRIES)):
            _, unfinished, highest = list_names(fs, folder)
            for name in unfinished:
                fs.remove(os.path.join(folder, name))
            number = highest + 1
            writer = cls(folder, fs, lock, options, clock, number, cipher, company)
            try:
                writer._begin_segment(0)
            except FileExistsError:
                # A writer that this one replaces was just beginning one: look again.
                if not left:
                    raise
            else:
                return writer
        raise AssertionError("not reached")

    def _start(self) -> None:
        if self._options.sync is SyncPolicy.INTERVAL:
            name = f"wal-sync-{os.path.basename(self._folder)}"
            self._syncer = OwnedThread(self._sync_loop, name)
            self._syncer.start()

    @property
    def folder(self) -> str:
        """The log's folder, as an absolute path."""
        return self._folder

    @property
    def first_segment(self) -> int:
        """The number of this writer's first segment; those below it are of writers before."""
        return self._chain.first_number

    @property
    def options(self) -> LogOptions:
        """The options it was created with."""
        return self._options

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
            AppendTooLargeError: It is above `LogOptions.max_append_size`.
            LogFullError: No space; appends succeed again when there is.
            LogWriteError: The disk failed, or a sync in the background had failed before.
            LogClosedError: The writer is closed.
        """
        record, size = self._record(kind, payload)
        return self._commit(AppendUnit([record], size))[0]

    def append_many(
        self, records: Sequence[tuple[int, Buffer | Sequence[Buffer]]]
    ) -> list[RecordPlace]:
        """Append records with one write and one commit; they are in one segment.

        Either the call returns and all are committed, or it raises and, once a later append has
        succeeded, the log has none. A crash in the middle may leave the first few.

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
        is in the segment (see `parse_record`); of a log that is encrypted, in clear.

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
        needed = round_up(end, self._options.alignment)
        if slot.readonly or payload_length < 0 or len(slot) < needed:
            raise ValueError(
                f"a slot for {payload_length} bytes must be writable and {needed} bytes long, "
                f"not {len(slot)}"
            )
        size = round_up(end + self._overhead, self._options.alignment)
        if payload_crc is None:
            payload_crc = crc32c(slot[RECORD_HEADER_SIZE:end])
        _check_kind(kind)
        record = UnitRecord(kind, (), payload_length + self._overhead, payload_crc)
        return self._commit(AppendUnit([record], size, slot))[0]

    def _record(self, kind: int, payload: Buffer | Sequence[Buffer]) -> tuple[UnitRecord, int]:
        _check_kind(kind)
        buffers: tuple[Buffer, ...]
        # What has no buffer of its own is a sequence of buffers.
        if isinstance(payload, (list, tuple)):
            buffers = tuple(payload)
        else:
            buffers = (cast("Buffer", payload),)
        length = self._overhead
        crc = 0
        for buffer in buffers:
            length += len(buffer) if type(buffer) is bytes else memoryview(buffer).nbytes
            if not self._overhead:
                crc = crc32c(buffer, crc)
        alignment = self._options.alignment
        return (
            UnitRecord(kind, buffers, length, crc),
            (RECORD_HEADER_SIZE + length + alignment - 1) & -alignment,
        )

    def _commit(self, unit: AppendUnit) -> list[RecordPlace]:
        """Queue a unit, lead or follow until it is done."""
        if unit.size > self._options.max_append_size:
            raise AppendTooLargeError(unit.size, self._options.max_append_size)
        with self._turn:
            self._check_usable()
            self._queue.append(unit)
            if self._company is not None:
                self._company.came(unit.thread)
                self._arrived.notify()
            try:
                leads = self._wait_for_turn(unit)
            except BaseException:
                if unit in self._queue:
                    self._queue.remove(unit)
                    self._served(unit)
                raise
        while leads:
            try:
                self._write_queued()
            finally:
                self._give_turn_back()
            with self._turn:
                # What was queued before it may have filled the write.
                leads = self._wait_for_turn(unit)
        if unit.error is not None:
            raise unit.error
        return unit.places

    def _check_usable(self) -> None:
        if self._closed:
            raise LogClosedError(self._address)
        self._raise_background_error()

    def _raise_background_error(self) -> None:
        if self._background_error is not None:
            error, self._background_error = self._background_error, None
            if isinstance(error, FileNotFoundError):
                raise LogLostError(self._address, str(error)) from error
            raise LogWriteError(
                self._address,
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
            now = time.monotonic()
            due = now if unit is None else self._due_s(unit)
            if self._leader is None and due <= now:
                self._leader = threading.current_thread()
                return True
            if end <= now:
                raise self._stalled(what)
            self._turn.wait(end - now if self._leader is not None else min(end, due) - now)
        return False

    def _due_s(self, unit: AppendUnit) -> float:
        """Return when the owner of a unit may write, beside the writes that are under way."""
        if unit.taken:
            return math.inf
        if not self._under_way:
            return 0.0
        if len(self._under_way) >= self._fs.writes_at_once:
            return math.inf
        if self._has_enough():
            return 0.0
        return math.inf if self._company is None else self._begun_s + self._company.wait_s

    def _stalled(self, what: str) -> LogWriteError:
        waited = f"waited {self._options.stall_timeout_s:.1f} s for {what}"
        return LogWriteError(self._address, f"{waited}; look at the disk below it")

    def _give_turn_back(self) -> None:
        with self._turn:
            if self._leader is threading.current_thread():
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
        """Write one run: what is queued and fits together into one segment.

        The turn may have been given away when it returns.
        """
        with self._turn:
            if self._company is not None and not self._closed:
                self._company.wait_for(self._arrived, self._has_enough)
            write = _Write(self._take_run())
            self._under_way.append(write)
        try:
            self._place(write)
            if self._fs.writes_at_once > 1:
                self._give_turn_back()
            write.put(sync=self._always)
        except BaseException as caught:  # noqa: BLE001 - it goes to every caller whose unit it broke
            write.error = caught
        error = write.error
        with self._turn:
            if error is not None and write.segment is None:
                # It may have been in ending the one before.
                self._distrusted = self._chain.open
            write.is_over = True
            while self._under_way and self._under_way[0].is_over:
                self._end(self._under_way.popleft())
            self._turn.notify_all()
            if self._leader is None and self._broken is not None and not self._under_way:
                self._leader = threading.current_thread()
        if self._leader is threading.current_thread():
            self._leave_distrusted()
        if error is not None and not isinstance(error, (OSError, WalError)):
            raise error

    def _end(self, write: _Write) -> None:
        """Acknowledge a write that is over, or have it fail; with `_turn` held, in their order."""
        segment, run = write.segment, write.run
        if write.error is None and segment is not None and segment is self._broken:
            write.error = OSError(errno.EIO, "a write before it failed", self._address)
        if segment is not None and run is not None and write.error is None:
            segment.acknowledge(run, sync=self._always)
            last = self._last_sequence = segment.next_sequence - 1
            if self._always:
                self._synced = last
            if self._options.sync is not SyncPolicy.INTERVAL:
                self._committed = last
            self._writes += 1
            self._records += sum(len(unit.records) for unit in write.units)
            self._bytes += sum(unit.size for unit in write.units)
        else:
            self._failures += 1
            if segment is not None:
                self._distrusted = self._broken = segment
        for unit in write.units:
            unit.error = self._own_error(write.error)
            unit.done = True
            self._served(unit)

    def _served(self, unit: AppendUnit) -> None:
        if self._company is not None:
            self._company.served(unit.thread)

    def _has_enough(self) -> bool:
        return sum(unit.size for unit in self._queue) >= _RUN_BYTES

    def _take_run(self) -> list[AppendUnit]:
        segment = self._chain.open
        size = self._queue[0].size
        count = 1
        if segment is not None and segment.fits(size):
            for unit in self._queue[1:]:
                size += unit.size
                if size > _RUN_BYTES or not segment.fits(size):
                    break
                count += 1
        units = self._queue[:count]
        del self._queue[:count]
        for unit in units:
            unit.taken = True
        return units

    def _place(self, write: _Write) -> None:
        """Give a run its place, in a new segment if need be."""
        size = sum(unit.size for unit in write.units)
        self._leave_distrusted(write)
        segment = self._chain.open
        if segment is not None and (not segment.fits(size) or self._chain.is_old(segment)):
            self._finish_segment(write)
        segment = self._chain.open
        if segment is None:
            segment = self._begin_segment(size)
        with self._turn:
            # A write before may have failed by now: then this one also fails.
            write.segment = segment
            committed = self._committed
            self._begun_s = time.monotonic()
        write.run = segment.place(write.units, committed=committed)

    def _wait_for_others(self, write: _Write | None) -> None:
        """Wait until what is under way is over, but for a write that has no place yet."""
        end = time.monotonic() + self._options.stall_timeout_s
        with self._turn:
            while self._under_way and self._under_way[0] is not write:
                left = end - time.monotonic()
                if left <= 0:
                    raise self._stalled("earlier writes")
                self._turn.wait(left)

    def _leave_distrusted(self, write: _Write | None = None) -> None:
        """Take no more records into a segment in which a write or a sync failed."""
        distrusted = self._distrusted
        if distrusted is None:
            return
        self._wait_for_others(write)
        with self._turn:
            self._distrusted = self._broken = None
        if distrusted is self._chain.open:
            self._chain.abandon()

    def _begin_segment(self, needed: int) -> SegmentWriter:
        self._lock.check()
        segment = self._chain.begin(
            needed, first_sequence=self._last_sequence + 1, committed=self._committed
        )
        try:
            # Once more, now that it has its name: one that takes the folder over from here on finds
            # it, and one that did before is found here.
            self._lock.check()
        except BaseException:
            self._chain.abandon()
            raise
        return segment

    def _finish_segment(self, write: _Write | None = None) -> None:
        """Commit what is in the open segment, and close it."""
        self._wait_for_others(write)
        self._leave_distrusted(write)
        if self._options.sync is SyncPolicy.INTERVAL:
            self._sync_segment()
        self._chain.finish(committed=self._committed)

    def _sync_segment(self) -> None:
        segment = self._chain.open
        if segment is None:
            return
        with self._turn:
            last = self._last_sequence
        if segment.sync():
            self._note_synced(last)

    def _note_synced(self, last: int) -> None:
        with self._turn:
            if not self._chain.lost_a_sync:
                self._synced = max(self._synced, last)
                self._committed = max(self._committed, self._synced)

    def _own_error(self, error: BaseException | None) -> BaseException | None:
        """Make the error of one caller: an exception object has one traceback, callers many."""
        if error is None:
            return None
        if isinstance(error, OSError):
            own = _translated(error, self._fs, self._folder)
        else:
            own = LogWriteError(self._address, f"the write was broken off by {error!r}")
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
            self._leave_distrusted()
            try:
                self._chain.sync_closed()
            except OSError as error:
                with self._turn:
                    self._failures += 1
                raise _translated(error, self._fs, self._folder) from error
            try:
                self._sync_segment()
            except OSError as error:
                self._fail_outside_append()
                raise _translated(error, self._fs, self._folder) from error
            self._note_synced(self._last_sequence)

    def roll(self) -> None:
        """Close the open segment and begin the next. Does nothing when it holds no record.

        Raises:
            WalError: As `append`. What was committed stays committed.
        """
        with self._lead("a roll"):
            with self._turn:
                self._check_usable()
            self._wait_for_others(None)
            self._leave_distrusted()
            if self._chain.open is not None and not self._chain.open.record_count:
                return
            try:
                self._finish_segment()
                self._begin_segment(0)
            except OSError as error:
                self._fail_outside_append()
                raise _translated(error, self._fs, self._folder) from error

    def _fail_outside_append(self) -> None:
        with self._turn:
            self._failures += 1
        self._chain.abandon()

    def close(self) -> None:
        """Commit what was appended, close the segment, give the folder back.

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
                    raise self._stalled("the last sync")
            while self._queue:
                self._write_queued()
                self._give_turn_back()
                with self._turn:
                    self._wait_for_turn(None, "the end of appends under way")
            self._leave_distrusted()
            try:
                self._finish_segment()
            except OSError as error:
                self._fail_outside_append()
                raise _translated(error, self._fs, self._folder) from error
            self._chain.end()
            if self._options.sync is not SyncPolicy.NONE:
                try:
                    self._chain.sync_closed()
                except OSError as error:
                    raise _translated(error, self._fs, self._folder) from error
            with self._turn:
                self._raise_background_error()
        finally:
            self._lock.release()
            self._give_turn_back()

    def remove_segments(self, numbers: Iterable[int]) -> None:
        """Remove segments whose records no one needs any more.

        The open segment is left; a segment that is gone already is no error. Removal is not
        forced: after a crash some may exist again.

        Args:
            numbers: Their numbers.

        Raises:
            LogWriteError: The system refused; the others are removed.
        """
        with self._lead("a removal"):
            with self._turn:
                if self._closed:
                    raise LogClosedError(self._address)
            failed = self._chain.remove(numbers)
            if failed is not None:
                raise _translated(failed, self._fs, self._folder) from failed

    def statistics(self) -> LogStatistics:
        """Return what was done so far."""
        with self._turn:
            return self._chain.statistics(
                records=self._records,
                bytes_appended=self._bytes,
                writes=self._writes,
                failures=self._failures,
                last_sequence=self._last_sequence,
                committed_sequence=self._committed,
            )

    # The sync thread of the INTERVAL policy

    def _sync_loop(self) -> None:
        while not self._clock.wait(self._stop, self._options.sync_interval_s):
            self._sync_in_background()

    def _sync_in_background(self) -> None:
        with self._turn:
            segment, last = self._chain.open, self._last_sequence
            if segment is None or last == self._synced:
                return
        try:
            if segment.sync():
                self._note_synced(last)
        except BaseException as error:  # noqa: BLE001 - the next append raises it
            with self._turn:
                self._background_error = error
                self._distrusted = segment
                self._failures += 1


@dataclass(eq=False)
class _Write:
    """A run that is under way.

    Attributes:
        units: What is written.
        segment: Where to, once it is known.
        run: Its place in that.
        error: Why it failed.
        is_over: Nothing reads what is written any more. Guarded by the writer's lock.
    """

    units: list[AppendUnit]
    segment: SegmentWriter | None = None
    run: PlacedRun | None = None
    error: BaseException | None = None
    is_over: bool = False

    def put(self, *, sync: bool) -> None:
        assert self.segment is not None
        assert self.run is not None
        self.segment.put(self.run, sync=sync)


def _check_kind(kind: int) -> None:
    if not 0 <= kind <= MAX_KIND:
        raise ValueError(f"kind {kind} is not between 0 and {MAX_KIND}")


def _translated(error: OSError, fs: FileSystem, folder: str) -> WalError:
    address = fs.address(folder)
    if isinstance(error, TakenOverError):
        return LogLostError(address, str(error.strerror), is_taken_over=True)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LogFullError(address, fs.free_bytes(folder))
    if is_unwritable(error):
        return UnwritableFolderError.of(address, error)
    if isinstance(error, FileNotFoundError):
        return LogLostError(address, str(error))
    return LogWriteError(address, str(error))
