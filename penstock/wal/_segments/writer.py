"""One segment that is being written: its creation, its records, its end.

Not thread-safe: the writer's leader owns it, only `sync` and `put` may come from other threads.
After a call has raised, a segment takes no more records; see `LogWriter` for what happens then.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import mmap
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.runtime.checksum import crc32c
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.wal._filesystem import AppendFile, FileSystem
from penstock.wal._folder import NEW_SUFFIX, segment_path
from penstock.wal._segments.encryption import LogSealer, SegmentSealer
from penstock.wal._segments.layout import (
    KIND_END,
    RECORD_HEADER_SIZE,
    TRAILER_SIZE,
    AppendUnit,
    RecordPlace,
    SegmentHeader,
    Trailer,
    pack_header,
    pack_segment_header,
    pack_trailer,
    round_up,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_logger = logging.getLogger("penstock.wal")
_limited_log = RateLimitedLog(_logger)

_PAGE = 4096
_SCRATCH_SIZE = 1 << 20
_JOIN_BELOW = 32 << 10
_SMALLEST_SEGMENT = 1 << 20
_SLOW_SYNC_S = 1.0
_CLOSE_TIMEOUT_S = 120.0
_ZEROS = bytes(_PAGE)


@dataclass(frozen=True)
class PlacedRun:
    """Units that have their places in a segment and are not written yet.

    Attributes:
        pieces: What to write where.
        end: The offset behind it.
        next_sequence: The sequence after its last record.
    """

    pieces: Sequence[tuple[int, list[Buffer]]]
    end: int
    next_sequence: int


class SegmentWriter:
    """The open segment of a log. Built by `create` only.

    A run is placed, put, and then acknowledged; the next ones may be placed and put before, and are
    acknowledged behind it.

    Attributes:
        end: Where its records end, of those that were acknowledged.
        forced_end: Up to where they are known to be on the disk.
        sync_failed: A sync of what is behind `forced_end` failed. The system may have dropped it
            and count it as forced, so that one more sync proves nothing: it is not tried.
    """

    def __init__(
        self,
        fs: FileSystem,
        file: AppendFile,
        path: str,
        header: SegmentHeader,
        *,
        capacity: int,
        end: int,
        scratch: mmap.mmap,
        sealer: SegmentSealer | None,
    ) -> None:
        self._fs = fs
        self._file = file
        self._alignment = header.alignment
        self._capacity = capacity
        self._owner = header.owner
        self._scratch = scratch
        self._sealer = sealer
        self._file_lock = threading.Lock()
        self._closed = False
        self._placed_end = end
        self._placed_sequence = header.first_sequence
        self._counting = threading.Lock()
        self.path = path
        self.number = header.number
        self.first_sequence = header.first_sequence
        self.next_sequence = header.first_sequence
        self.end = end
        self.forced_end = end
        self.sync_failed = False
        self.record_count = 0
        self.syncs = 0
        self.sync_seconds_total = 0.0
        self.sync_seconds_max = 0.0

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        folder: str,
        header: SegmentHeader,
        *,
        spare: str | None,
        segment_size: int,
        needed: int,
        direct: bool,
        scratch: mmap.mmap,
        sealer: LogSealer | None,
    ) -> SegmentWriter:
        """Begin a segment: temporary name, header forced, renamed, folder forced.

        Only then a record may go into it: a record in a file whose name or header a power loss
        can take is not durable. Where a file begins at once its header is all of that.

        Raises:
            OSError: The segment is not begun; what was left of it is removed if possible.
        """
        path = segment_path(folder, header.number)
        present = path if fs.begins_at_once else path + NEW_SUFFIX
        file, recycled = _new_file(fs, present, spare, direct)
        first = pack_segment_header(
            replace(header, recycled=recycled, preallocated=file.preallocates)
        )
        needed += len(first) + _end_size(header.alignment)
        try:
            capacity = _preallocate(file, max(segment_size, needed), needed)
            segment = cls(
                fs,
                file,
                path,
                header,
                capacity=capacity,
                end=len(first),
                scratch=scratch,
                sealer=sealer.segment(header.number, header.owner) if sealer else None,
            )
            segment._put(0, [first], sync=False)
            segment.sync()
            if not fs.begins_at_once:
                fs.rename(present, path)
                present = path
                fs.sync_folder(folder)
        except BaseException:
            file.close()
            if fs.begins_at_once:
                raise  # The file may be another writer's. One without records is no harm.
            try:
                fs.remove(present)
            except OSError as error:
                _logger.warning("could not remove the unfinished segment %s: %s", present, error)
            raise
        return segment

    @property
    def direct(self) -> bool:
        """Whether its records go past the page cache."""
        return self._file.direct

    def fits(self, size: int) -> bool:
        """Return whether an append of that size leaves room for the end of the segment."""
        return self._placed_end + size + _end_size(self._alignment) <= self._capacity

    def place(self, units: Sequence[AppendUnit], *, committed: int) -> PlacedRun:
        """Give units their places behind the last record.

        Args:
            units: What to write; together they must fit.
            committed: Highest committed sequence, for the record headers.
        """
        pieces, end, sequence = self._place(units, committed)
        self._placed_end, self._placed_sequence = end, sequence
        return PlacedRun(pieces, end, sequence)

    def put(self, run: PlacedRun, *, sync: bool) -> None:
        """Write a run, from any thread.

        Args:
            run: What to write.
            sync: Return only when all that was written so far is on the disk.

        Raises:
            OSError: Nothing of it may be taken as written.
        """
        pieces = run.pieces
        if len(pieces) == 1 or self._file.forces_writes:
            # What is forced anyway is written at once: they are one behind the other as it is.
            buffers = [buffer for _, some in pieces for buffer in some]
            self._put(pieces[0][0], buffers, sync=sync)
        else:
            for offset, buffers in pieces:
                self._put(offset, buffers, sync=False)
            if sync:
                self.sync()

    def acknowledge(self, run: PlacedRun, *, sync: bool) -> None:
        """Take a run that was put as the segment's: all before it are."""
        self.record_count += run.next_sequence - self.next_sequence
        self.end = run.end
        if sync or self._file.forces_writes:
            self.forced_end = run.end
        self.next_sequence = run.next_sequence

    def _place(
        self, units: Sequence[AppendUnit], committed: int
    ) -> tuple[list[tuple[int, list[Buffer]]], int, int]:
        """Give each record its place and header.

        Returns:
            What to write where, the offset behind it, and the sequence after the last.
        """
        if self._sealer is not None:
            return self._sealer.place(
                units, self._placed_end, self._placed_sequence, committed, self._alignment
            )
        pieces: list[tuple[int, list[Buffer]]] = []
        run: list[Buffer] | None = None
        number, owner, mask = self.number, self._owner, self._alignment - 1
        offset = self._placed_end
        sequence = self._placed_sequence
        for unit in units:
            if unit.slot is not None:
                record = unit.records[0]
                length = RECORD_HEADER_SIZE + record.length
                unit.slot[:RECORD_HEADER_SIZE] = pack_header(
                    record.crc, record.kind, record.length, sequence, committed, owner
                )
                # The padding also goes to the disk: it must not carry what an earlier block left.
                unit.slot[length : unit.size] = bytes(unit.size - length)
                unit.places = [RecordPlace(number, offset, length, sequence)]
                pieces.append((offset, [unit.slot[: unit.size]]))
                run = None
                offset += unit.size
                sequence += 1
                continue
            if run is None:
                run = []
                pieces.append((offset, run))
            places = []
            for record in unit.records:
                length = RECORD_HEADER_SIZE + record.length
                run.append(
                    pack_header(record.crc, record.kind, record.length, sequence, committed, owner)
                )
                run.extend(record.buffers)
                padding = -length & mask
                if padding:
                    run.append(_ZEROS[:padding] if padding < _PAGE else bytes(padding))
                places.append(RecordPlace(number, offset, length, sequence))
                offset += length + padding
                sequence += 1
            unit.places = places
        return pieces, offset, sequence

    def _put(self, offset: int, buffers: list[Buffer], *, sync: bool) -> None:
        """Write buffers at an aligned offset; with `sync`, force them."""
        begun = time.perf_counter()
        if not self._file.direct:
            self._file.write(offset, _joined(buffers), sync=sync)
            forced = sync
        elif len(buffers) == 1 and _is_page_aligned(buffers[0]):
            self._file.write(offset, buffers, sync=sync)
            forced = sync
        else:
            forced = self._put_through_scratch(offset, buffers, sync)
        if forced:
            self._account_sync(time.perf_counter() - begun)
        elif sync:
            self.sync()

    def _put_through_scratch(self, offset: int, buffers: list[Buffer], sync: bool) -> bool:
        """Copy buffers of any address and length into the aligned scratch and write that.

        Returns:
            Whether all of it was forced: so when it fits in one write.
        """
        scratch = memoryview(self._scratch)
        filled = 0
        in_one = True
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            while len(view):
                room = len(scratch) - filled
                part = view[:room]
                scratch[filled : filled + len(part)] = part
                filled += len(part)
                view = view[room:]
                if filled == len(scratch):
                    self._file.write(offset, [scratch], sync=False)
                    in_one = False
                    offset += filled
                    filled = 0
        if not filled:
            return False
        size = round_up(filled, _PAGE)
        scratch[filled:size] = bytes(size - filled)
        self._file.write(offset, [scratch[:size]], sync=sync and in_one)
        return sync and in_one

    def sync(self) -> bool:
        """Return when all that was written is on the disk.

        Returns:
            False when the segment was closed meanwhile: then its end decided about the records.

        Raises:
            OSError: What was not forced before may be lost.
        """
        begun = time.perf_counter()
        with self._file_in_use():
            if self._closed:
                return False
            if self.sync_failed:
                raise OSError(errno.EIO, "an earlier sync of it failed", self.path)
            end = self.end
            try:
                self._file.sync()
            except OSError:
                self.sync_failed = True
                raise
            self.forced_end = max(self.forced_end, end)
        self._account_sync(time.perf_counter() - begun)
        return True

    @contextlib.contextmanager
    def _file_in_use(self) -> Iterator[None]:
        # A sync in the background must not meet a file that is being closed.
        if not self._file_lock.acquire(timeout=_CLOSE_TIMEOUT_S):
            raise OSError(errno.ETIMEDOUT, "a sync under way does not end", self.path)
        try:
            yield
        finally:
            self._file_lock.release()

    def _close(self) -> None:
        with self._file_in_use():
            self._closed = True
            self._file.close()

    def _account_sync(self, seconds: float) -> None:
        with self._counting:
            self.syncs += 1
            self.sync_seconds_total += seconds
            self.sync_seconds_max = max(self.sync_seconds_max, seconds)
        if seconds > _SLOW_SYNC_S:
            _limited_log.log(
                f"slow disk: forcing a write to {self._fs.address(self.path)} took {seconds:.2f} s",
                like=os.path.dirname(self.path),
            )

    def finish(self, *, committed: int, sync: bool) -> None:
        """Write end record and trailer, cut the file behind them, and close it.

        Whatever a crash leaves of this, the records are still found by reading the segment.
        """
        end = pack_header(crc32c(b""), KIND_END, 0, self.next_sequence, committed, self._owner)
        trailer = pack_trailer(
            Trailer(self.end, self.record_count, self.first_sequence, committed, self._owner)
        )
        size = _end_size(self._alignment)
        gap = bytes(size - RECORD_HEADER_SIZE - TRAILER_SIZE)
        try:
            self._put(self.end, [end, gap, trailer], sync=False)
            self._file.truncate(self.end + size)
            if sync:
                self.sync()
        finally:
            self._close()

    def abandon(self) -> None:
        """Close the file as it is: a write failed, and what is behind `end` is void."""
        self._close()


def _new_file(
    fs: FileSystem, path: str, spare: str | None, direct: bool
) -> tuple[AppendFile, bool]:
    """Make a file for a segment, from a removed one if there is one.

    Returns:
        The file, and whether it holds remains.
    """
    if spare is not None:
        try:
            fs.rename(spare, path)
            # Its old name must not come back after a power loss with what is written now.
            fs.sync_folder(os.path.dirname(path))
            return fs.reopen(path, direct=direct), True
        except OSError as error:
            _logger.warning("could not use %s again: %s", spare, error)
            for left in (spare, path):
                with contextlib.suppress(FileNotFoundError):
                    fs.remove(left)
    return fs.create(path, direct=direct), False


def _end_size(alignment: int) -> int:
    return round_up(RECORD_HEADER_SIZE + TRAILER_SIZE, alignment)


def _preallocate(file: AppendFile, size: int, needed: int) -> int:
    """Reserve a segment; on a nearly full disk a smaller one, down to what is needed.

    Returns:
        The bytes reserved.
    """
    while True:
        try:
            file.preallocate(size)
        except OSError as error:
            smaller = round_up(max(size // 4, needed, min(_SMALLEST_SEGMENT, size)), _PAGE)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or smaller >= size:
                raise
            size = smaller
        else:
            return size


def _joined(buffers: list[Buffer]) -> list[Buffer]:
    """Join small neighbours: a system call is quick with few buffers, not with many."""
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    if sum(map(len, views)) <= _SCRATCH_SIZE:
        return [b"".join(views)]
    joined: list[Buffer] = []
    small: list[memoryview] = []
    for view in views:
        if len(view) < _JOIN_BELOW:
            small.append(view)
            continue
        if small:
            joined.append(b"".join(small))
            small = []
        joined.append(view)
    if small:
        joined.append(b"".join(small))
    return joined


def _is_page_aligned(buffer: Buffer) -> bool:
    view = memoryview(buffer)
    if view.readonly or len(view) % _PAGE or not len(view):
        return False
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) % _PAGE == 0


def new_scratch() -> mmap.mmap:
    """Return page-aligned memory through which a log with direct I/O writes small records."""
    return mmap.mmap(-1, _SCRATCH_SIZE)
