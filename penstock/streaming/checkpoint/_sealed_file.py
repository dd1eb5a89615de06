"""A checkpoint as an encrypted file.

Layout, integers little-endian::

    magic "PENSTKCE" | format version u32 | key id, 8 bytes | CRC-32C u32 | sealed content

The content is the file that a checkpoint in clear would be, encrypted as a whole (`LogCipher.seal`)
and bound to the name of the file, so that an older checkpoint cannot pose as a newer one. The
checksum covers everything but itself: damage is found before anything is decrypted. What decrypts
was written by somebody who has the key, so that who may write to the folder cannot have code run.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from penstock.streaming.checkpoint.errors import CheckpointVersionError, DamagedCheckpointError
from penstock.wal import CorruptRecordError, EncryptionKey, EncryptionMismatchError, WrongKeyError

_MAGIC = b"PENSTKCE"
_MAGIC_IN_CLEAR = b"PENSTKCP"
_FORMAT = 1
_PREFIX = struct.Struct("<8sI8s")
_CRC = struct.Struct("<I")
_HEAD_SIZE = _PREFIX.size + _CRC.size


class FileSealer:
    """Encrypts and decrypts the checkpoints of a folder, or sees to it that they are in clear.

    Args:
        folder: The folder, for errors.
        key: The key; None: they are in clear.
    """

    HEAD_SIZE = _HEAD_SIZE
    """As many bytes of a file are enough for `fits`."""

    def __init__(self, folder: str, key: EncryptionKey | None) -> None:
        self._folder = folder
        self._cipher = None if key is None else key.cipher("checkpoints")

    def seal(self, name: str, parts: list[bytes]) -> Sequence[bytes]:
        """Return what is written for a file of this content."""
        if self._cipher is None:
            return parts
        prefix = _PREFIX.pack(_MAGIC, _FORMAT, self._cipher.key_id)
        sealed = self._cipher.seal(b"".join(parts), prefix + name.encode())
        return [prefix, _CRC.pack(crc32c(sealed, crc32c(prefix))), sealed]

    def fits(self, head: bytes) -> bool:
        """Tell by the beginning of a file whether it can be what is expected here."""
        if self._cipher is None:
            return head[:8] != _MAGIC
        return head[: _PREFIX.size] == _PREFIX.pack(_MAGIC, _FORMAT, self._cipher.key_id)

    def open(self, name: str, data: bytes) -> bytes:
        """Return the content of a file.

        Raises:
            DamagedCheckpointError: It is torn, or its checksum is wrong, or it does not decrypt.
            CheckpointVersionError: The format is another.
            EncryptionMismatchError: It is encrypted and should not be, or the reverse.
            WrongKeyError: It was encrypted with another key.
        """
        is_sealed = data[:8] == _MAGIC
        if is_sealed is (self._cipher is None) and data[:8] in (_MAGIC, _MAGIC_IN_CLEAR):
            raise EncryptionMismatchError(f"{self._folder}/{name}", is_sealed)
        if self._cipher is None:
            return data
        if not is_sealed or len(data) < _HEAD_SIZE:
            raise DamagedCheckpointError("it does not begin like an encrypted checkpoint")
        _, version, key_id = _PREFIX.unpack_from(data)
        sealed = memoryview(data)[_HEAD_SIZE:]
        prefix = data[: _PREFIX.size]
        if crc32c(sealed, crc32c(prefix)) != _CRC.unpack_from(data, _PREFIX.size)[0]:
            raise DamagedCheckpointError("its checksum is wrong")
        if version != _FORMAT:
            raise CheckpointVersionError(
                self._folder, "encrypted checkpoint format", str(version), str(_FORMAT)
            )
        if key_id != self._cipher.key_id:
            raise WrongKeyError(f"{self._folder}/{name}", key_id, self._cipher.key_id)
        try:
            return self._cipher.unseal(sealed, prefix + name.encode())
        except CorruptRecordError as error:
            raise DamagedCheckpointError(error.reason) from None
