"""The segments of one writer, one after the other: begun, finished, abandoned, removed."""

from __future__ import annotations

import errno
import logging
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.runtime.clock import Clock
from penstock.wal._errors import CorruptRecordError
from penstock.wal._filesystem import FileSystem
from penstock.wal._folder import SPARE_SUFFIX, segment_path
from penstock.wal._options import LogOptions, LogStatistics, SyncPolicy
from penstock.wal._reader import LogReader
from penstock.wal._segments.encryption import LogCipher, LogSealer
from penstock.wal._segments.layout import LOG_ID_SIZE, SegmentHeader, segment_owner
from penstock.wal._segments.reader import SegmentEnd, SegmentReader
from penstock.wal._segments.writer import SegmentWriter, new_scratch

_logger = logging.getLogger("penstock.wal")

_DIRECT_ALIGNMENT = 4096


@dataclass
class _Unforced:
    """A closed segment whose records are not all on the disk, as far as is known.

    Attributes:
        begin: Where those that may not be begin.
        end: Where its records end.
        next_sequence: The sequence after the last of them.
        sync_failed: A sync of them failed; see `SegmentWriter`.
    """

    begin: int
    end: int
    next_sequence: int
    sync_failed: bool


class SegmentChain:
    """The segments that a writer makes. Its methods are for the writer's leader only.

    `open` is replaced by the leader and may be read by any thread; `statistics` may be asked by
    any thread. `_lock` guards the numbers behind it.

    Attributes:
        open: The open segment, None after a failure.
        log_id: Random bytes that all records of this writer carry.
        first_number: The number of the first segment.

    *Recycling.* Writing over blocks that a file has already is faster than filling reserved ones:
    the file system need not note for each that it is written now. So a segment that is removed is
    kept as the spare for the next one, if it is written by direct I/O (a segment that is mapped
    through the page cache must not change).
    """

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        options: LogOptions,
        clock: Clock,
        next_number: int,
        cipher: LogCipher | None = None,
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._options = options
        self._clock = clock
        self.first_number = next_number
        self._next_number = next_number
        self._highest_begun = 0
        self._direct = options.direct and options.alignment % _DIRECT_ALIGNMENT == 0
        self._scratch = new_scratch()
        self._sealer = None if cipher is None else LogSealer(cipher)
        # Where segments end in which a failed write may have left something behind.
        self._untrimmed: dict[int, int] = {}
        self._knows_tails_before = False
        self._unforced: dict[int, _Unforced] = {}
        self._lock = threading.Lock()
        self._created = 0
        self._abandoned = 0
        self._removed = 0
        self._syncs = 0
        self._sync_seconds_total = 0.0
        self._sync_seconds_max = 0.0
        self.log_id = secrets.token_bytes(LOG_ID_SIZE)
        self._spare: str | None = None
        self._begun_s = 0.0
        self.open: SegmentWriter | None = None

    def begin(self, needed: int, *, first_sequence: int, committed: int) -> SegmentWriter:
        """Begin the next segment, with room for an append of `needed` bytes.

        Raises:
            OSError: It is not begun; there is no open segment.
        """
        self._trim()
        self._force_what_failed()
        number = self._next_number
        # Also a number whose segment could not be begun is spent: its name may be on the disk.
        self._next_number += 1
        spare, self._spare = self._spare, None
        segment = SegmentWriter.create(
            self._fs,
            self._folder,
            SegmentHeader(
                number,
                self._highest_begun,
                self._options.alignment,
                first_sequence,
                committed,
                self._clock.time_ms(),
                segment_owner(self.log_id, number),
                self._sealer.key_id if self._sealer else b"",
            ),
            spare=spare,
            segment_size=self._options.segment_size,
            needed=needed,
            direct=self._direct,
            scratch=self._scratch,
            sealer=self._sealer,
        )
        self._begun_s = self._clock.monotonic_s()
        self._highest_begun = number
        with self._lock:
            self.open = segment
            self._created += 1
        return segment

    def is_old(self, segment: SegmentWriter) -> bool:
        """Return whether a segment has records and has reached the age at which it rolls."""
        age = self._options.roll_age_s
        return (
            age is not None
            and segment.record_count > 0
            and self._clock.monotonic_s() - self._begun_s >= age
        )

    def finish(self, *, committed: int) -> None:
        """Close the open segment with its end. Its records must be committed before."""
        segment = self.open
        if segment is None:
            return
        sync = self._options.sync is not SyncPolicy.NONE
        if not sync:
            self._note_unforced(segment)
        self._let_go(segment)
        try:
            segment.finish(committed=committed, sync=sync)
        except OSError as error:
            # Its records are committed all the same; a reader finds them without its end.
            _logger.warning("segment %s has no end record: %s", self._address(segment.path), error)
            self._untrimmed[segment.number] = segment.end
            self._trim()

    def abandon(self) -> None:
        """Give the open segment up behind its last good record, after a write or sync failed."""
        segment = self.open
        if segment is None:
            return
        self._let_go(segment)
        with self._lock:
            self._abandoned += 1
        self._untrimmed[segment.number] = segment.end
        try:
            segment.abandon()
        except OSError as error:
            address = self._address(segment.path)
            _logger.warning("could not close the abandoned segment %s: %s", address, error)
        # Only now: a sync in the background may have been under way.
        self._note_unforced(segment)
        self._trim()

    def _note_unforced(self, segment: SegmentWriter) -> None:
        if segment.forced_end < segment.end:
            self._unforced[segment.number] = _Unforced(
                segment.forced_end, segment.end, segment.next_sequence, segment.sync_failed
            )

    def _let_go(self, segment: SegmentWriter) -> None:
        with self._lock:
            self.open = None
            self._syncs += segment.syncs
            self._sync_seconds_total += segment.sync_seconds_total
            self._sync_seconds_max = max(self._sync_seconds_max, segment.sync_seconds_max)

    def _trim(self) -> None:
        """Cut off what failed writes left in segments, as far as the disk lets us.

        Until then the header of the segment after it says where such a segment ends.
        """
        for number, end in list(self._untrimmed.items()):
            path = segment_path(self._folder, number)
            try:
                self._cut(path, end)
            except OSError as error:
                # Where nothing can be cut there is nothing to warn of: the header does it.
                level = logging.DEBUG if error.errno == errno.EOPNOTSUPP else logging.WARNING
                address = self._address(path)
                _logger.log(level, "could not cut the segment %s at %d: %s", address, end, error)
                if number in self._unforced:
                    # It may have been the sync of the cut.
                    self._unforced[number].sync_failed = True
                continue
            del self._untrimmed[number]
            if number in self._unforced and not self._unforced[number].sync_failed:
                del self._unforced[number]

    def _address(self, path: str) -> str:
        return self._fs.address(path)

    def _cut(self, path: str, end: int) -> None:
        try:
            self._fs.truncate(path, end)
        except FileNotFoundError:
            _logger.warning("the segment %s was taken away", self._address(path))
            self._fs.sync_folder(self._folder)

    @property
    def lost_a_sync(self) -> bool:
        """Whether a sync of records in a closed segment failed that were not forced since.

        May be asked by any thread.
        """
        return any(unforced.sync_failed for unforced in tuple(self._unforced.values()))

    def sync_closed(self) -> None:
        """Force the segments that were closed without a sync, or whose sync failed.

        Raises:
            OSError: One of them may not be on the disk.
        """
        for number in sorted(self._unforced):
            self._force(number, self._unforced[number])

    def _force_what_failed(self) -> None:
        for number, unforced in sorted(self._unforced.items()):
            if unforced.sync_failed:
                try:
                    self._force(number, unforced)
                except OSError as error:
                    path = self._address(segment_path(self._folder, number))
                    _logger.warning("records of %s may not survive a power loss: %s", path, error)

    def _force(self, number: int, unforced: _Unforced) -> None:
        path = segment_path(self._folder, number)
        try:
            if not unforced.sync_failed:
                unforced.sync_failed = True
                self._fs.sync_file(path)
            else:
                self._check_readable(number, path, unforced.next_sequence)
                self._fs.write_again(path, unforced.begin, unforced.end)
        except FileNotFoundError:
            _logger.warning("the segment %s was taken away", self._address(path))
        del self._unforced[number]

    def _check_readable(self, number: int, path: str, next_sequence: int) -> None:
        """Make sure that the system still shows the records whose sync failed.

        Raises:
            OSError: It dropped them already.
        """
        ends: list[SegmentEnd] = []
        try:
            reader = SegmentReader(self._fs, path, number, as_stored=True)
            records = reader.records(
                followed=False,
                void_from=next_sequence,
                committed_later=lambda: 0,
                ended=ends.append,
            )
            for _ in records:
                pass
        except CorruptRecordError as error:
            raise OSError(errno.EIO, str(error), path) from error
        if ends[0].next_sequence < next_sequence or ends[0].damages:
            raise OSError(errno.EIO, "the system lost what it had not forced", path)

    def end(self) -> None:
        """Put in order what can be, when the writer closes."""
        self._trim()
        spare, self._spare = self._spare, None
        if spare is not None:
            try:
                self._fs.remove(spare)
            except OSError as error:
                _logger.warning("could not remove %s: %s", spare, error)

    def remove(self, numbers: Iterable[int]) -> OSError | None:
        """Remove segments, except those that must stay.

        The highest number stays, so that no name is used twice. And what follows an abandoned
        segment stays while that one holds remains of a failed write, no matter who wrote it: only
        the header of the later one says that they are void.

        Returns:
            The last error, None when all went well.
        """
        wanted = sorted(set(numbers))
        failed: OSError | None = None
        try:
            if wanted and wanted[0] < self.first_number:
                self._find_tails_before()
        except OSError as error:
            failed = error
            wanted = [number for number in wanted if number >= self.first_number]
        self._trim()
        for number in wanted:
            if number >= self._highest_begun or any(number > other for other in self._untrimmed):
                continue
            try:
                self._remove(number)
                if number in self._untrimmed:
                    # It must not come back when the header behind it is gone.
                    self._fs.sync_folder(self._folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                failed = error
                continue
            self._untrimmed.pop(number, None)
            self._unforced.pop(number, None)
            with self._lock:
                self._removed += 1
        return failed

    def _find_tails_before(self) -> None:
        """Note where segments of writers before end that a later one follows.

        Raises:
            OSError: It is not known of all of them.
        """
        if self._knows_tails_before:
            return
        reader = LogReader.open(self._folder, fs=self._fs, before=self.first_number, as_stored=True)
        void_from = {info.previous: info.first_sequence or 0 for info in reader.segments}
        for info in reader.segments:
            if info.closed or info.number not in void_from:
                continue
            for _ in reader.segment_records(info.number, on_damage=lambda damage: None):
                pass
            end = reader.segment_end(info.number)
            # What ends before is no remains of a failed write: `repair` is to find it as it is.
            is_whole = end is not None and end.next_sequence >= void_from[info.number]
            if end is not None and is_whole and end.offset < info.size:
                self._untrimmed[info.number] = end.offset
        self._knows_tails_before = True

    def _remove(self, number: int) -> None:
        path = segment_path(self._folder, number)
        whole = number not in self._untrimmed and number not in self._unforced
        if self._spare is None and whole and self.open is not None and self.open.direct:
            self._fs.rename(path, path + SPARE_SUFFIX)
            self._spare = path + SPARE_SUFFIX
        else:
            self._fs.remove(path)

    def statistics(
        self,
        *,
        records: int,
        bytes_appended: int,
        writes: int,
        failures: int,
        last_sequence: int,
        committed_sequence: int,
    ) -> LogStatistics:
        """Return the writer's numbers together with the segments'."""
        free = self._fs.free_bytes(self._folder)
        with self._lock:
            segment = self.open
            return LogStatistics(
                segment=segment.number if segment else None,
                segments_created=self._created,
                segments_abandoned=self._abandoned,
                segments_removed=self._removed,
                records=records,
                bytes_appended=bytes_appended,
                writes=writes,
                syncs=self._syncs + (segment.syncs if segment else 0),
                sync_seconds_total=self._sync_seconds_total
                + (segment.sync_seconds_total if segment else 0),
                sync_seconds_max=max(
                    self._sync_seconds_max, segment.sync_seconds_max if segment else 0.0
                ),
                failures=failures,
                last_sequence=last_sequence,
                committed_sequence=committed_sequence,
                free_bytes=free,
                direct=segment.direct if segment else self._direct,
            )
