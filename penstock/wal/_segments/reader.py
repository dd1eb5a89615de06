"""Reading one segment: its header, its trailer, its records, and what is wrong with it."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.runtime.checksum import crc32c
from penstock.runtime.reused_memory import ReusedMemory
from penstock.wal._errors import CorruptRecordError, EncryptionMismatchError
from penstock.wal._filesystem import FileSystem, ReadFile
from penstock.wal._segments.encryption import LogCipher
from penstock.wal._segments.layout import (
    FLAG_ENCRYPTED,
    HEADER,
    KIND_END,
    MAGIC,
    MAX_KIND,
    RECORD_HEADER_SIZE,
    TRAILER_SIZE,
    Record,
    RecordPlace,
    SegmentHeader,
    Trailer,
    check_header,
    parse_segment_header,
    parse_trailer,
)

_logger = logging.getLogger("penstock.wal")

_CHUNK = 4 << 20
_FIRST_READ = 4096
_SECTOR = 4096
_MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_FILE_ENDS = "the file ends"
_PAYLOAD_IS_CUT = "the payload goes beyond the end of the file"

_memory = ReusedMemory()
"""Of all readers: a pass over one segment is too short for its own to be used again."""


@dataclass(frozen=True)
class SegmentEnd:
    """How the reading of a segment ended.

    Attributes:
        offset: Where the records end.
        torn: It has bytes of a record that was never acknowledged.
        closed: It has an end record.
        next_sequence: The sequence after the last record.
        damages: Damaged places that were found on the way.
        was_cut: The last of these is where the file was cut short, in the middle of a record that
            no one knows as committed.
    """

    offset: int
    torn: bool
    closed: bool
    next_sequence: int
    damages: tuple[CorruptRecordError, ...]
    was_cut: bool = False


class SegmentReader:
    """One segment that is being read. Opens its file for each pass and closes it after.

    Args:
        fs: Where it lives.
        path: Its path.
        number: Its number.
        cipher: Decrypts its records; None: they must be in clear.
        as_stored: Take payloads as they are, encrypted or not.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        number: int,
        *,
        cipher: LogCipher | None = None,
        as_stored: bool = False,
    ) -> None:
        self._fs = fs
        self._cipher = None if as_stored else cipher
        self._as_stored = as_stored
        self.path = path
        self._address = fs.address(path)
        self.number = number
        self.folder = fs.address(os.path.dirname(path))
        file = fs.open(path)
        try:
            self.size = file.size
            self.header = self._read_header(file)
            self.trailer = self._read_trailer(file)
        finally:
            file.close()

    def _read_header(self, file: ReadFile) -> SegmentHeader:
        data = file.read(0, _FIRST_READ)
        try:
            _, length = check_header(memoryview(data), 0)
            if RECORD_HEADER_SIZE + length > len(data):
                data = file.read(0, RECORD_HEADER_SIZE + min(length, self.size))
            header = parse_segment_header(memoryview(data))
        except CorruptRecordError as error:
            raise self._damage(0, f"segment header: {error.reason}") from error
        if header.number != self.number:
            raise self._damage(0, f"segment header: it says that it is segment {header.number}")
        return header

    def _damage(self, offset: int, reason: str) -> CorruptRecordError:
        return CorruptRecordError(self.number, offset, reason, self.folder)

    def _read_trailer(self, file: ReadFile) -> Trailer | None:
        if self.size < self.header.size + TRAILER_SIZE:
            return None
        trailer = parse_trailer(file.read(self.size - TRAILER_SIZE, TRAILER_SIZE))
        # A trailer that another segment left in recycled space is none of ours.
        return trailer if trailer and trailer.owner == self.header.owner else None

    def records(
        self,
        *,
        followed: bool,
        void_from: int | None,
        committed_later: Callable[[], int],
        ended: Callable[[SegmentEnd], None],
    ) -> Iterator[Record]:
        """Yield all readable records, then report to `ended` what was found.

        Args:
            followed: The segment that was begun right after this one still exists.
            void_from: Records from this sequence on are void: a later segment has them again.
            committed_later: Gives the highest sequence that later segments of the same log know
                as committed. Asked only when something is wrong here.
            ended: Called once, when the records are at their end.
        """
        file = self._fs.open(self.path)
        try:
            yield from self._walk(file, followed, void_from, committed_later, ended)
        finally:
            file.close()

    def _walk(
        self,
        file: ReadFile,
        followed: bool,
        void_from: int | None,
        committed_later: Callable[[], int],
        ended: Callable[[SegmentEnd], None],
    ) -> Iterator[Record]:
        # The loop over small records is the hot path of recovery: everything is a local name,
        # and nothing is called per record that can be avoided.
        number = self.number
        own = self.header.owner
        mask = self.header.alignment - 1
        file_size = file.size
        stop = void_from if void_from is not None else 1 << 64
        cipher = self._cipher
        wanted_flags = 0 if cipher is None else FLAG_ENCRYPTED
        unpack, crc = HEADER.unpack_from, crc32c
        damages: list[CorruptRecordError] = []
        sequence = self.header.first_sequence
        position = self.header.size
        kind = KIND_END
        wanted = _CHUNK
        while True:
            # A caller that still has an earlier record has its memory for itself.
            view = _memory.take(wanted)
            size = self._read_into(file, position, view)
            if size < wanted:
                # It may be shorter by now: a living writer cuts off what it failed to write.
                file_size = min(file_size, position + size)
            at = 0
            reason = ""
            while True:
                body = at + RECORD_HEADER_SIZE
                if body > size:
                    if position + body > file_size:
                        reason = _FILE_ENDS
                    break
                magic, header_crc, payload_crc, kind, flags, length, found, _, owner, _ = unpack(
                    view, at
                )
                if (
                    magic != MAGIC
                    or found != sequence
                    or owner != own
                    or crc(view[at + 8 : body]) != header_crc
                ):
                    reason = "no readable record header"
                    break
                end = body + length
                if end > size:
                    if position + end > file_size:
                        reason = _PAYLOAD_IS_CUT
                    else:
                        # From now on: the next ones are as large, and would be read twice.
                        wanted = max(wanted, RECORD_HEADER_SIZE + length)
                    break
                payload = view[body:end]
                if crc(payload) != payload_crc:
                    reason = "payload checksum does not match"
                    break
                if sequence >= stop or kind > MAX_KIND:
                    break
                if flags != wanted_flags and not self._as_stored:
                    raise EncryptionMismatchError(self._address, bool(flags & FLAG_ENCRYPTED))
                if cipher is not None:
                    opened = self._opened(cipher, view[at:body], payload, position + at, damages)
                    if opened is None:
                        sequence += 1
                        at = (end + mask) & ~mask
                        continue
                    payload = opened
                yield Record(
                    kind,
                    sequence,
                    payload,
                    RecordPlace(number, position + at, RECORD_HEADER_SIZE + length, sequence),
                )
                sequence += 1
                at = (end + mask) & ~mask
            position += at
            if not reason and body <= size and end <= size:
                closed = kind == KIND_END and sequence <= stop
                ended(SegmentEnd(position, False, closed, sequence, tuple(damages)))
                return
            if not reason:
                continue
            judged = self._judge(file, position, sequence, stop, reason, followed, committed_later)
            if judged is not False and self._is_there_now(file, position, sequence):
                continue
            if judged is True and self._was_cut(file, position, reason, kind):
                told = f"{reason} (sequence {sequence}): somebody cut it short"
                damages.append(self._damage(position, told))
                ended(SegmentEnd(position, False, False, sequence, tuple(damages), True))
                return
            if isinstance(judged, bool):
                ended(SegmentEnd(position, judged, False, sequence, tuple(damages)))
                return
            damage, position, sequence = judged
            damages.append(damage)
            if position >= file_size:
                ended(SegmentEnd(position, False, False, sequence, tuple(damages)))
                return

    def _is_there_now(self, file: ReadFile, position: int, sequence: int) -> bool:
        """Return whether a bad place is a good record by now.

        What was read before may be older than what it was judged by: a living writer appends.
        """
        view = memoryview(self._read(file, position, _FIRST_READ))
        is_its_header = check_header(view, sequence)[0] is None
        return is_its_header and self._valid_record(file, position, view) > 0

    def _was_cut(self, file: ReadFile, position: int, reason: str, kind: int) -> bool:
        """Return whether a torn tail was left by a cut of the file.

        No crash leaves that where the file had its full length before: a record is within it as
        a whole. Of an end record that is cut off no record is missed.
        """
        if not self.header.preallocated or position >= file.size:
            return False
        return reason == _FILE_ENDS or (reason == _PAYLOAD_IS_CUT and kind <= MAX_KIND)

    def _opened(
        self,
        cipher: LogCipher,
        header: memoryview,
        payload: memoryview,
        offset: int,
        damages: list[CorruptRecordError],
    ) -> memoryview | None:
        """Decrypt a payload; None, and one more damage, when it is not what was written.

        Its checksum is right, so it is no torn tail.

        Raises:
            EncryptionMismatchError: It was written with another key.
        """
        if self.header.key_id != cipher.key_id:
            raise EncryptionMismatchError(self._address, True, self.header.key_id, cipher.key_id)
        try:
            return cipher.open(header, payload)
        except CorruptRecordError as error:
            damages.append(self._damage(offset, error.reason))
            return None

    def _judge(
        self,
        file: ReadFile,
        position: int,
        sequence: int,
        stop: int,
        reason: str,
        followed: bool,
        committed_later: Callable[[], int],
    ) -> bool | tuple[CorruptRecordError, int, int]:
        """Decide what a bad place is.

        Returns:
            False: the clean end of the records. True: a torn tail. Else the damage, with place
            and sequence of the next readable record (or the end of the file).
        """
        if sequence >= stop:
            return False
        found = self._following(file, position, sequence)
        committed = max((place[2] for place in found), default=0)
        if self.trailer is not None:
            committed = max(committed, self.trailer.committed)
        clean = not found and self._is_unwritten(file, position)
        # Without the segment right after it no one says where an abandoned one ended: later ones
        # know the sequence as committed, which may have been in the one that was released.
        if committed < sequence and (followed or not clean):
            committed = committed_later()
        if committed < sequence:
            return not clean
        damage = self._damage(position, f"{reason} (sequence {sequence})")
        if not found:
            return damage, file.size, sequence
        return damage, found[0][0], found[0][1]

    def _following(
        self, file: ReadFile, position: int, sequence: int
    ) -> list[tuple[int, int, int]]:
        """Look for valid records behind a bad place.

        Returns:
            Offset, sequence and committed of the first and of the last one; one or none if there
            are not two.
        """
        first: tuple[int, int, int] | None = None
        last: tuple[int, int, int] | None = None
        for offset, found, committed in self._scan(file, position + self.header.alignment):
            if found > (last[1] if last else sequence):
                last = offset, found, committed
                first = first or last
        if first is None or last is None:
            return []
        return [first] if first is last else [first, last]

    def _scan(self, file: ReadFile, position: int) -> Iterator[tuple[int, int, int]]:
        """Yield offset, sequence and committed of each valid record from an aligned place on."""
        alignment = self.header.alignment
        size = file.size
        while position < size:
            data = self._read(file, position, _CHUNK)
            at = data.find(_MAGIC_BYTES)
            skip_to = len(data) if len(data) < _CHUNK else len(data) - RECORD_HEADER_SIZE
            skip_to = max(alignment, skip_to & -alignment)
            while at >= 0:
                end = 0
                if at % alignment == 0:
                    if at + RECORD_HEADER_SIZE > len(data) and position + len(data) < size:
                        skip_to = at
                        break
                    end = self._valid_record(file, position + at, memoryview(data)[at:])
                if end:
                    fields = HEADER.unpack_from(data, at)
                    yield position + at, fields[6], fields[7]
                    if end >= position + len(data):
                        skip_to = end - position
                        break
                    at = data.find(_MAGIC_BYTES, end - position)
                else:
                    at = data.find(_MAGIC_BYTES, at + 1)
            if skip_to <= 0:
                return
            position += (skip_to + alignment - 1) & -alignment

    def _valid_record(self, file: ReadFile, position: int, view: memoryview) -> int:
        """Return where the record at `position` ends, 0 when there is no valid one of this log."""
        reason, length = check_header(view)
        if reason is not None:
            return 0
        fields = HEADER.unpack_from(view)
        if fields[8] != self.header.owner:
            return 0
        end = RECORD_HEADER_SIZE + length
        if position + end > file.size:
            return 0
        payload = view[RECORD_HEADER_SIZE:end]
        if end > len(view):
            payload = memoryview(self._read(file, position + RECORD_HEADER_SIZE, length))
        if crc32c(payload) != fields[2]:
            return 0
        return position + end

    def committed(self) -> int:
        """Return the highest sequence that this segment knows as committed."""
        highest = self.header.committed
        if self.trailer is not None:
            return max(highest, self.trailer.committed)
        file = self._fs.open(self.path)
        try:
            for _, _, committed in self._scan(file, self.header.size):
                highest = max(highest, committed)
        finally:
            file.close()
        return highest

    def _is_unwritten(self, file: ReadFile, position: int) -> bool:
        """Return whether nothing of this segment was written, as far as that can be seen."""
        if not self.header.recycled:
            return self._is_zero(file, position)
        # The bytes may be older than this segment; only a header of its own proves a write.
        header = memoryview(self._read(file, position, RECORD_HEADER_SIZE))
        reason, _ = check_header(header)
        return reason is not None or HEADER.unpack_from(header)[8] != self.header.owner

    def _is_zero(self, file: ReadFile, position: int) -> bool:
        zeros = bytes(_CHUNK)
        while data := self._read(file, position, _CHUNK):
            if data != zeros[: len(data)]:
                return False
            position += len(data)
        return True

    def _read(self, file: ReadFile, position: int, length: int) -> bytes:
        try:
            return file.read(position, length)
        except OSError as error:
            return self._read_around(file, position, length, error)

    def _read_into(self, file: ReadFile, position: int, buffer: memoryview) -> int:
        try:
            return file.read_into(position, buffer)
        except OSError as error:
            data = self._read_around(file, position, len(buffer), error)
            buffer[: len(data)] = data
            return len(data)

    def _read_around(self, file: ReadFile, position: int, length: int, error: OSError) -> bytes:
        """Read what can be read: a place that the disk cannot read is damage like any other."""
        if error.errno != errno.EIO:
            raise error
        _logger.warning("segment %s is not readable at %d: %s", self._address, position, error)
        # Zeros stand for it.
        data = bytearray(max(0, min(length, file.size - position)))
        at = 0
        while at < len(data):
            # A disk loses sectors, and not what is around them.
            part = min(_SECTOR - (position + at) % _SECTOR, len(data) - at)
            try:
                data[at : at + part] = file.read(position + at, part)
            except OSError as found:
                if found.errno != errno.EIO:
                    raise
            at += part
        return bytes(data)
