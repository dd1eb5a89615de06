"""Encrypting what is appended to a segment, on its way to the disk.

The records of one write are encrypted into one page-aligned buffer, which is written as it is. A
block's slot stays readable in memory: it gets a header of its own, and only the copy is encrypted.
So encryption costs one copy, and memory for the largest single write.
"""

from __future__ import annotations

import mmap
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crc32c import crc32c

from penstock.wal._encryption import TAG_SIZE, LogCipher, nonce_of
from penstock.wal._layout import (
    FLAG_ENCRYPTED,
    KEY_SALT_SIZE,
    RECORD_HEADER_SIZE,
    RecordPlace,
    pack_bound,
    pack_header,
    round_up,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from typing_extensions import Buffer

    from penstock.wal._segment_writer import AppendUnit, UnitRecord

__all__ = ["LogSealer", "SegmentSealer"]

_SMALLEST_BUFFER = 1 << 20


class LogSealer:
    """What the segments of one writer are encrypted with. For the writer's leader only.

    Attributes:
        key_id: For the segments' headers.
    """

    def __init__(self, cipher: LogCipher) -> None:
        self._cipher = cipher
        self._buffer: mmap.mmap | None = None
        self.key_id = cipher.key_id

    def segment(self, number: int, owner: bytes) -> SegmentSealer:
        """Return what encrypts the records of a new segment."""
        salt = secrets.token_bytes(KEY_SALT_SIZE)
        return SegmentSealer(
            self, self._cipher.aead(owner + salt), number, owner, int.from_bytes(salt, "little")
        )

    def room(self, size: int) -> memoryview:
        """Return page-aligned memory, which is the same each time."""
        if self._buffer is None or len(self._buffer) < size:
            self._buffer = mmap.mmap(-1, max(size, _SMALLEST_BUFFER))
        return memoryview(self._buffer)[:size]


class SegmentSealer:
    """Encrypts the records of one segment, each sequence once."""

    def __init__(
        self, log: LogSealer, aead: AESGCM, number: int, owner: bytes, key_salt: int
    ) -> None:
        self._log = log
        self._aead = aead
        self._number = number
        self._owner = owner
        self._key_salt = key_salt
        self._last_sequence = 0
        # Newer versions of `cryptography` can encrypt into memory that is there.
        self._encrypt_into = getattr(aead, "encrypt_into", None)

    def place(
        self,
        units: Sequence[AppendUnit],
        offset: int,
        sequence: int,
        committed: int,
        alignment: int,
    ) -> tuple[list[tuple[int, list[Buffer]]], int, int]:
        """Encrypt the records of units and give each its place; see `SegmentWriter._place`."""
        room = self._log.room(sum(unit.size for unit in units))
        at = 0
        for unit in units:
            places = []
            for record in unit.records:
                length = RECORD_HEADER_SIZE + record.length
                end = at + round_up(length, alignment)
                self._seal(record, unit.slot, room[at : at + length], sequence, committed)
                # Nothing of an earlier write goes along.
                room[at + length : end] = bytes(end - at - length)
                places.append(RecordPlace(self._number, offset + at, length, sequence))
                sequence += 1
                at = end
            unit.places = places
        return [(offset, [room[:at]])], offset + at, sequence

    def _seal(
        self,
        record: UnitRecord,
        slot: memoryview | None,
        target: memoryview,
        sequence: int,
        committed: int,
    ) -> None:
        if sequence <= self._last_sequence:
            raise AssertionError(f"sequence {sequence} was encrypted before with the same key")
        self._last_sequence = sequence
        payload: Buffer
        if slot is None:
            buffers = record.buffers
            payload = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        else:
            size = record.length - TAG_SIZE
            # It is read by those who map it: in clear, as all that is in memory.
            slot[:RECORD_HEADER_SIZE] = pack_header(
                record.crc, record.kind, size, sequence, committed, self._owner
            )
            payload = slot[RECORD_HEADER_SIZE : RECORD_HEADER_SIZE + size]
        bound = pack_bound(
            record.kind, record.length, sequence, committed, self._owner, self._key_salt
        )
        body = target[RECORD_HEADER_SIZE:]
        if self._encrypt_into is not None:
            self._encrypt_into(nonce_of(sequence), payload, bound, body)
        else:
            body[:] = self._aead.encrypt(nonce_of(sequence), memoryview(payload), bound)
        target[:RECORD_HEADER_SIZE] = pack_header(
            crc32c(body),
            record.kind,
            record.length,
            sequence,
            committed,
            self._owner,
            flags=FLAG_ENCRYPTED,
            key_salt=self._key_salt,
        )
