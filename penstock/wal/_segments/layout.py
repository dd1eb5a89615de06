"""The bytes of a segment: record headers, the segment header, end record and trailer.

All integers are little-endian, checksums are CRC-32C (Castagnoli, RFC 3720 appendix B.4).

Record header, 64 bytes::

    0  magic u32          "PSR1"
    4  header_crc u32     over bytes 8..64
    8  payload_crc u32    over the payload
    12 kind u16           0xFF00 and above are the log's own
    14 flags u16          1: the payload is encrypted (`penstock.wal._segments.encryption`)
    16 length u64         payload bytes as stored, no padding
    24 sequence u64       1, 2, 3, … per writer
    32 committed u64      highest sequence committed to the policy when this was written
    40 log id 8 bytes     random, one per writer
    48 segment u64        number of its segment
    56 key salt u64       random, one per segment; 0 when it is not encrypted

Payload of the segment header (kind 0xFFFF, sequence 0): format version u16, flags u16 (1: recycled,
2: with a key id, 4: preallocated), alignment u32, number u64, previous segment of this writer u64
(0: none), first sequence u64, creation time in ms u64; key id, 8
bytes.

End record (kind 0xFFFE, sequence last + 1): it is empty.

Trailer, the last 64 bytes of a closed segment: magic u32 "PST1", crc u32, end offset u64, record
count u64, first sequence u64, committed u64, log id, segment number u64, reserved u64.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.runtime.checksum import crc32c
from penstock.wal._errors import CorruptRecordError, EncryptionMismatchError

if TYPE_CHECKING:
    from typing_extensions import Buffer

FORMAT_VERSION = 2
RECORD_HEADER_SIZE = 64
TRAILER_SIZE = 64
LOG_ID_SIZE = 8
KEY_SALT_SIZE = 8
MAGIC = 0x31525350  # b"PSR1" read as a little-endian integer
_TRAILER_MAGIC = 0x31545350  # b"PST1"

MAX_KIND = 0xFEFF
KIND_SEGMENT = 0xFFFF
KIND_END = 0xFFFE
FLAG_ENCRYPTED = 1
"""Flag in a record's header."""
_RECYCLED = 1
_WITH_KEY_ID = 2
_PREALLOCATED = 4
"""Flags in a segment's header."""

HEADER = struct.Struct("<IIIHHQQQ16sQ")
_HEADER_BODY = struct.Struct("<IHHQQQ16sQ")
_HEADER_BOUND = struct.Struct("<HHQQQ16sQ")
_HEADER_FRONT = struct.Struct("<II")
_SEGMENT = struct.Struct("<HHIQQQQ")
_TRAILER = struct.Struct("<IIQQQQ16sQ")
_TRAILER_BODY = struct.Struct("<QQQQ16sQ")


class RecordPlace(msgspec.Struct, frozen=True, gc=False):
    """Where a record is.

    Attributes:
        segment: Number of the segment.
        offset: Byte offset of the record's header in it.
        length: Bytes of header and payload, padding not counted.
        sequence: The record's sequence in its log.
    """

    segment: int
    offset: int
    length: int
    sequence: int


@dataclass(frozen=True)
class UnitRecord:
    """One record of an append, before it has a place.

    Attributes:
        kind: Its kind.
        buffers: Its payload; nothing when it is in a slot.
        length: Bytes of the payload in the segment, so with the tag when it will be encrypted.
        crc: The CRC-32C of the payload in clear; 0 when that is not needed.
    """

    kind: int
    buffers: tuple[Buffer, ...]
    length: int
    crc: int


@dataclass(eq=False)
class AppendUnit:
    """What one call appends: written in one segment, committed or failed as a whole.

    Attributes:
        records: Its records in order.
        size: Bytes it takes in the segment.
        slot: The slot it is in, for an append without a copy.
        places: Filled in when it is written.
        error: Filled in when it failed.
        taken: A thread writes it, or has. Guarded by the writer's lock, as is:
        done: True when it was acknowledged or has failed.
        thread: Whose it is.
    """

    records: Sequence[UnitRecord]
    size: int
    slot: memoryview | None = None
    places: list[RecordPlace] = field(default_factory=list)
    error: BaseException | None = None
    taken: bool = False
    done: bool = False
    thread: int = field(default_factory=threading.get_ident)


class Record(msgspec.Struct, frozen=True):
    """One record as read back.

    Attributes:
        kind: What the writer gave as kind.
        sequence: Its place in the order of its writer, from 1.
        payload: Its bytes. The view may keep a larger buffer alive: copy what is kept for long.
        place: Where it is.
    """

    kind: int
    sequence: int
    payload: memoryview
    place: RecordPlace


@dataclass(frozen=True)
class SegmentHeader:
    """What stands at the beginning of a segment.

    Attributes:
        number: The segment's number.
        previous: Number of the segment before it in the same log, 0 when it is the first.
        alignment: Records begin at multiples of it.
        first_sequence: Sequence of its first record. A record of an earlier segment of the same
            log with this sequence or a higher one belongs to a failed append and is void.
        committed: Highest committed sequence when the segment was begun.
        created_ms: Wall time of creation in milliseconds, for people only.
        owner: What its records carry, see `segment_owner`.
        recycled: The file was a segment before: behind its records are remains of others.
        preallocated: The file had its full length before its first record was written: one that
            ends in the middle of a record was cut from outside.
        key_id: The id of the key that its records are encrypted with, empty when they are not.
        size: Bytes of the header in the segment, padding included; -1 before it is written.
    """

    number: int
    previous: int
    alignment: int
    first_sequence: int
    committed: int
    created_ms: int
    owner: bytes
    key_id: bytes
    recycled: bool = False
    preallocated: bool = False
    size: int = -1

    @property
    def log_id(self) -> bytes:
        """The writer's random id."""
        return self.owner[:LOG_ID_SIZE]


@dataclass(frozen=True)
class Trailer:
    """The last 64 bytes of a closed segment.

    Attributes:
        end_offset: Where the end record is.
        record_count: Records in the segment.
        first_sequence: Sequence of the first.
        committed: Highest committed sequence when the segment was closed.
        owner: As in the segment's header.
    """

    end_offset: int
    record_count: int
    first_sequence: int
    committed: int
    owner: bytes


def segment_owner(log_id: bytes, number: int) -> bytes:
    """Return the 16 bytes that the records of one segment carry, and no others.

    They tell a record from remains of other logs and, in a recycled file, of the segment that it
    was.
    """
    return log_id + number.to_bytes(16 - LOG_ID_SIZE, "little")


def round_up(size: int, alignment: int) -> int:
    """Return the next multiple of `alignment`, a power of two."""
    return (size + alignment - 1) & -alignment


def pack_header(
    payload_crc: int,
    kind: int,
    length: int,
    sequence: int,
    committed: int,
    owner: bytes,
    flags: int = 0,
    key_salt: int = 0,
) -> bytes:
    """Return the 64 bytes that stand before a payload."""
    body = _HEADER_BODY.pack(payload_crc, kind, flags, length, sequence, committed, owner, key_salt)
    return _HEADER_FRONT.pack(MAGIC, crc32c(body)) + body


def pack_bound(
    kind: int, length: int, sequence: int, committed: int, owner: bytes, key_salt: int
) -> bytes:
    """Return bytes 12 to 64 of an encrypted record's header, without which it does not decrypt."""
    return _HEADER_BOUND.pack(kind, FLAG_ENCRYPTED, length, sequence, committed, owner, key_salt)


def stamp_record(slot: memoryview, kind: int, payload_length: int, sequence: int) -> None:
    """Make a record of a payload that no log takes, so that `parse_record` can check it.

    Args:
        slot: Writable memory: 64 bytes of room for the header, then the payload.
        kind: As for `LogWriter.append`.
        payload_length: Bytes of the payload.
        sequence: The sequence that a reader will expect.
    """
    payload = slot[RECORD_HEADER_SIZE : RECORD_HEADER_SIZE + payload_length]
    slot[:RECORD_HEADER_SIZE] = pack_header(
        crc32c(payload), kind, payload_length, sequence, 0, bytes(16)
    )


class _Cipher(Protocol):
    """What of a `LogCipher` reading needs."""

    def open(self, header: memoryview, payload: memoryview) -> memoryview: ...


def parse_record(
    buffer: memoryview,
    *,
    expected_sequence: int | None = None,
    verify: bool = True,
    cipher: _Cipher | None = None,
    checksum: int | None = None,
) -> memoryview:
    """Return the payload of the record that is at the beginning of `buffer`.

    Args:
        buffer: A mapped slot or segment from the record's header on; it may be longer.
        expected_sequence: The sequence that the record must have.
        verify: Also check the payload's CRC, and decrypt it. The header's is always checked.
        cipher: Decrypts it; None: it is not encrypted.
        checksum: The CRC-32C of the payload as stored, when the caller has computed it already.

    Returns:
        A view into `buffer`, nothing is copied; or memory of its own when it was decrypted.

    Raises:
        CorruptRecordError: The bytes are not that record.
        EncryptionMismatchError: It is encrypted without a `cipher`, or not encrypted with one.
    """
    reason, _ = check_header(buffer, expected_sequence)
    if reason is not None:
        raise CorruptRecordError(None, 0, reason)
    fields = HEADER.unpack_from(buffer)
    payload = buffer[RECORD_HEADER_SIZE : RECORD_HEADER_SIZE + fields[5]]
    if len(payload) != fields[5]:
        raise CorruptRecordError(None, 0, f"payload of {fields[5]} bytes is cut short")
    if verify and (crc32c(payload) if checksum is None else checksum) != fields[2]:
        raise CorruptRecordError(None, 0, "payload checksum does not match")
    if not verify:
        return payload
    is_encrypted = bool(fields[4] & FLAG_ENCRYPTED)
    if is_encrypted is (cipher is None):
        raise EncryptionMismatchError("a record", is_encrypted)
    return payload if cipher is None else cipher.open(buffer[:RECORD_HEADER_SIZE], payload)


def record_length(header: memoryview, *, expected_sequence: int) -> int:
    """Return the bytes of the record whose header is at the beginning of `header`.

    Raises:
        CorruptRecordError: It is none, or that of another record.
    """
    reason, length = check_header(header, expected_sequence)
    if reason is not None:
        raise CorruptRecordError(None, 0, reason)
    return RECORD_HEADER_SIZE + length


def check_header(
    buffer: memoryview, expected_sequence: int | None = None
) -> tuple[str | None, int]:
    """Look at the record header at the beginning of `buffer`.

    Returns:
        What is wrong with it (None: nothing), and the payload's length when nothing is.
    """
    if len(buffer) < RECORD_HEADER_SIZE:
        return f"only {len(buffer)} bytes where a header should be", 0
    magic, header_crc, _, _, _, length, sequence, _, _, _ = HEADER.unpack_from(buffer)
    if magic != MAGIC:
        return "no record begins here", 0
    if crc32c(buffer[8:RECORD_HEADER_SIZE]) != header_crc:
        return "header checksum does not match", 0
    if expected_sequence is not None and sequence != expected_sequence:
        return f"sequence {sequence} where {expected_sequence} was expected", 0
    return None, length


def pack_segment_header(segment: SegmentHeader) -> bytes:
    """Return a segment's first record, padded to the alignment."""
    payload = (
        _SEGMENT.pack(
            FORMAT_VERSION,
            (_RECYCLED if segment.recycled else 0)
            | (_WITH_KEY_ID if segment.key_id else 0)
            | (_PREALLOCATED if segment.preallocated else 0),
            segment.alignment,
            segment.number,
            segment.previous,
            segment.first_sequence,
            segment.created_ms,
        )
        + segment.key_id
    )
    header = pack_header(
        crc32c(payload), KIND_SEGMENT, len(payload), 0, segment.committed, segment.owner
    )
    size = round_up(RECORD_HEADER_SIZE + len(payload), segment.alignment)
    return (header + payload).ljust(size, b"\0")


def parse_segment_header(buffer: memoryview) -> SegmentHeader:
    """Return the segment header that is at the beginning of `buffer`.

    Raises:
        CorruptRecordError: It is not one, or of a format that this version does not read.
    """
    payload = parse_record(buffer, expected_sequence=0)
    _, _, _, kind, _, length, _, committed, owner, _ = HEADER.unpack_from(buffer)
    if kind != KIND_SEGMENT or length < _SEGMENT.size:
        raise CorruptRecordError(None, 0, "no segment header at the beginning")
    fields = _SEGMENT.unpack_from(payload)
    version, flags, alignment, number, previous, first_sequence, created_ms = fields
    if version != FORMAT_VERSION:
        raise CorruptRecordError(
            None, 0, f"format version {version}; this version reads {FORMAT_VERSION}"
        )
    return SegmentHeader(
        number=number,
        previous=previous,
        alignment=alignment,
        first_sequence=first_sequence,
        committed=committed,
        created_ms=created_ms,
        owner=owner,
        recycled=bool(flags & _RECYCLED),
        size=round_up(RECORD_HEADER_SIZE + length, alignment),
        key_id=bytes(payload[_SEGMENT.size :]) if flags & _WITH_KEY_ID else b"",
        preallocated=bool(flags & _PREALLOCATED),
    )


def pack_trailer(trailer: Trailer) -> bytes:
    """Return the last 64 bytes of a closed segment."""
    body = _TRAILER_BODY.pack(
        trailer.end_offset,
        trailer.record_count,
        trailer.first_sequence,
        trailer.committed,
        trailer.owner,
        0,
    )
    return _HEADER_FRONT.pack(_TRAILER_MAGIC, crc32c(body)) + body


def parse_trailer(buffer: bytes) -> Trailer | None:
    """Return the trailer in these 64 bytes, None when they are none."""
    if len(buffer) != TRAILER_SIZE:
        return None
    magic, crc, end_offset, count, first_sequence, committed, owner, _ = _TRAILER.unpack(buffer)
    if magic != _TRAILER_MAGIC or crc32c(buffer[8:]) != crc:
        return None
    return Trailer(end_offset, count, first_sequence, committed, owner)
