"""Keys, and the encryption of one log's records: AES-256-GCM (NIST SP 800-38D).

One *master key* of 32 bytes; the rest is derived from it (HKDF-Expand with SHA-256, RFC 5869), so
that no key is ever written, not even in an encrypted form::

    key of a segment = HKDF-Expand(master, "penstock log key" | 0 | salt | name of the log)
    key id           = HKDF-Expand(master, "penstock key id"), 8 bytes

The salt is what stands in bytes 40 to 64 of each record's header: the log id, the number of the
segment, and 8 random bytes of the segment. So a record can be decrypted by itself, wherever it came
from. The name of the log (`EncryptionKey.cipher`) makes that a record of another log does not
decrypt in its place.

*Nonces.* The nonce of a record is its sequence. A segment is written by one writer, each of its
sequences once: a failed write ends the segment, and the sequence that is given again is in the
next one. A new process, a file that is used again, and a folder that is written again also begin
new segments. So no nonce is used twice with a key. `SegmentSealer` refuses to do so all the same.

*What is bound.* The header from byte 12 on (kind, flags, length, sequence, committed, salt) is the
associated data. Both checksums of the header are over what is on the disk, so that damage is
found, and a log be checked, repaired and cleaned, without any key.

*On the way to the disk.* The records of one write are encrypted into one page-aligned buffer, which
is written as it is. A block's slot stays readable in memory: it gets a header of its own, and only
the copy is encrypted. So encryption costs one copy, and memory for the largest single write.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import MissingPackageError
from penstock.hkdf import derived_key
from penstock.runtime.checksum import crc32c
from penstock.runtime.reused_memory import ReusedMemory
from penstock.wal._errors import CorruptRecordError
from penstock.wal._segments.layout import (
    FLAG_ENCRYPTED,
    KEY_SALT_SIZE,
    RECORD_HEADER_SIZE,
    AppendUnit,
    RecordPlace,
    UnitRecord,
    pack_bound,
    pack_header,
    round_up,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from typing_extensions import Buffer

KEY_VARIABLE = "PENSTOCK_ENCRYPTION_KEY"
KEY_COMMAND_VARIABLE = "PENSTOCK_ENCRYPTION_KEY_COMMAND"
"""Variables of the driver's environment in which users give a key; see `penstock.streaming`."""

KEY_ID_SIZE = 8
TAG_SIZE = 16
"""Bytes by which a payload is longer on the disk."""

_KEY_SIZE = 32
_SALT_SIZE = 24
SEAL_SIZE = _SALT_SIZE + TAG_SIZE
"""Bytes by which what `LogCipher.seal` returns is longer."""
_SALT_AT = 40
_BOUND_FROM = 12
_HEADER_SIZE = 64
_NONCE_SIZE = 12

_SMALLEST_BUFFER = 1 << 20


@dataclass(frozen=True)
class EncryptionKey:
    """A master key. It is pickled with its bytes, and never shown.

    Attributes:
        secret: 32 random bytes; not in the repr.
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != _KEY_SIZE:
            raise ValueError(f"a key has {_KEY_SIZE} bytes, not {len(self.secret)}")

    @classmethod
    def generate(cls) -> EncryptionKey:
        """Make a new one."""
        return cls(secrets.token_bytes(_KEY_SIZE))

    @classmethod
    def from_text(cls, text: str) -> EncryptionKey:
        """Read one as text: the base64 of 32 bytes; white space around it does not count.

        Raises:
            ValueError: It is none. The text is not in the message.
        """
        try:
            decoded = base64.b64decode(text.strip(), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("it is not base64") from None
        return cls(decoded)

    @property
    def key_id(self) -> bytes:
        """Eight bytes that tell keys apart and reveal nothing about them; written into logs."""
        return derived_key(self.secret, b"penstock key id")[:KEY_ID_SIZE]

    def cipher(self, name: str) -> LogCipher:
        """Return what encrypts and decrypts the records of one log.

        Args:
            name: Distinguishes the log from others of the same key; the same for its writer and
                readers.

        Raises:
            MissingPackageError: The package ``cryptography`` is missing.
        """
        return LogCipher(self, name)


class LogCipher:
    """Encrypts and decrypts the records of one log. Made by `EncryptionKey.cipher`.

    Attributes:
        key_id: `EncryptionKey.key_id`.
    """

    def __init__(self, key: EncryptionKey, name: str) -> None:
        self._aead_type = _aead_type()
        self._secret = key.secret
        self._name = name.encode()
        self._last: tuple[bytes, AESGCM] | None = None
        self.key_id = key.key_id

    def aead(self, salt: bytes) -> AESGCM:
        """Return AES-GCM with the key of one segment, or of another thing with such a salt.

        Args:
            salt: 24 bytes. Never the same for two things that are encrypted.
        """
        known = self._last
        if known is not None and known[0] == salt:
            return known[1]
        info = b"penstock log key\0" + salt + self._name
        made = self._aead_type(derived_key(self._secret, info))
        # One assignment: readers on other threads see the old pair or the new one.
        self._last = salt, made
        return made

    def open(self, header: memoryview, payload: memoryview) -> memoryview:
        """Decrypt a record's payload.

        Args:
            header: Its 64 bytes.
            payload: As it is on the disk, the tag at its end.

        Returns:
            The payload, in memory of its own.

        Raises:
            CorruptRecordError: It is not what was written with this key.
        """
        sequence = int.from_bytes(header[24:32], "little")
        salt = bytes(header[_SALT_AT:_HEADER_SIZE])
        bound = header[_BOUND_FROM:_HEADER_SIZE]
        return memoryview(self._decrypt(salt, nonce_of(sequence), payload, bound))

    def seal(self, content: bytes | memoryview, bound: bytes = b"") -> bytes:
        """Encrypt something as a whole, such as a file, with a key of its own.

        Args:
            content: What.
            bound: What must be given again for it to decrypt.

        Returns:
            Salt, encrypted content and tag: 40 bytes more.
        """
        salt = secrets.token_bytes(_SALT_SIZE)
        return salt + self.aead(salt).encrypt(nonce_of(0), content, bound)

    def unseal(self, sealed: bytes | memoryview, bound: bytes = b"") -> bytes:
        """Return the content again.

        Raises:
            CorruptRecordError: It is not what `seal` returned, or `bound` is not the same.
        """
        return self._decrypt(bytes(sealed[:_SALT_SIZE]), nonce_of(0), sealed[_SALT_SIZE:], bound)

    def _decrypt(
        self,
        salt: bytes,
        nonce: bytes,
        encrypted: bytes | memoryview,
        bound: bytes | memoryview,
    ) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return self.aead(salt).decrypt(nonce, encrypted, bound)
        except InvalidTag:
            raise CorruptRecordError(
                None, 0, "it does not decrypt: it was changed or moved, or has another key"
            ) from None


def nonce_of(sequence: int) -> bytes:
    """Return the nonce of a record."""
    return sequence.to_bytes(_NONCE_SIZE, "little")


def _aead_type() -> type[AESGCM]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        what = "the package cryptography in the driver and on every host"
        raise MissingPackageError("spark.io.encryption.enabled", what, "encryption") from error
    return AESGCM


class LogSealer:
    """What the segments of one writer are encrypted with. For the writer's leader only.

    Attributes:
        key_id: For the segments' headers.
    """

    def __init__(self, cipher: LogCipher) -> None:
        self._cipher = cipher
        self._memory = ReusedMemory()
        self.key_id = cipher.key_id

    def segment(self, number: int, owner: bytes) -> SegmentSealer:
        """Return what encrypts the records of a new segment."""
        salt = secrets.token_bytes(KEY_SALT_SIZE)
        return SegmentSealer(
            self, self._cipher.aead(owner + salt), number, owner, int.from_bytes(salt, "little")
        )

    def room(self, size: int) -> memoryview:
        """Return page-aligned memory; the same as before once no write looks into it any more."""
        return self._memory.take(max(size, _SMALLEST_BUFFER))[:size]


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
        # Newer versions of `cryptography` can encrypt into given memory.
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
