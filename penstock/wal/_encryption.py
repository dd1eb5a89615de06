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
sequences once: a failed write ends the segment, and the sequence that is given again lies in the
next one. A new process, a file that is used again, and a folder that is written again begin new
segments, too. So no nonce is used twice with a key. `penstock.wal._sealing` refuses to do so all
the same.

*What is bound.* The header from byte 12 on (kind, flags, length, sequence, committed, salt) is the
associated data. Both checksums of the header are over what lies on the disk, so that damage is
found, and a log be checked, repaired and cleaned, without any key.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.wal._errors import CorruptRecordError, EncryptionNotInstalledError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = [
    "KEY_COMMAND_VARIABLE",
    "KEY_ID_SIZE",
    "KEY_VARIABLE",
    "SEAL_SIZE",
    "TAG_SIZE",
    "EncryptionKey",
    "LogCipher",
    "nonce_of",
]

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
        """Eight bytes that tell keys apart and nothing about them; written into logs."""
        return hmac.digest(self.secret, b"penstock key id\x01", "sha256")[:KEY_ID_SIZE]

    def cipher(self, name: str) -> LogCipher:
        """Return what encrypts and decrypts the records of one log.

        Args:
            name: Tells the log from others of the same key; the same for its writer and readers.

        Raises:
            EncryptionNotInstalledError: The package ``cryptography`` is missing.
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
        info = b"penstock log key\0" + salt + self._name + b"\x01"
        made = self._aead_type(hmac.digest(self._secret, info, "sha256"))
        # One assignment: readers on other threads see the old pair or the new one.
        self._last = salt, made
        return made

    def open(self, header: memoryview, payload: memoryview) -> memoryview:
        """Decrypt a record's payload.

        Args:
            header: Its 64 bytes.
            payload: As it lies on the disk, the tag at its end.

        Returns:
            The payload, in memory of its own.

        Raises:
            CorruptRecordError: It is not what was written there with this key.
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
        raise EncryptionNotInstalledError from error
    return AESGCM
