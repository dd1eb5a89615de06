"""Encryption of blocks: which cipher a block's log has, and what must then not be on a disk."""

from __future__ import annotations

import os

from penstock.blockstore.building.memory import ArenaError
from penstock.wal import (
    CorruptRecordError,
    EncryptionKey,
    LogCipher,
    parse_record,
    record_length,
)

_MOUNTS = "/proc/self/mountinfo"
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs", "devtmpfs"})


def block_cipher(key: EncryptionKey | None, attempt: str) -> LogCipher | None:
    """Return the cipher of a receiver attempt's log; None without a key.

    Raises:
        MissingPackageError: The package ``cryptography`` is missing.
    """
    return None if key is None else key.cipher(f"blocks of {attempt}")


def sealed_copy(cipher: LogCipher, block_id: str, payload: memoryview) -> memoryview:
    """Encrypt a block for the log of another host, whose writer has no key."""
    return memoryview(cipher.seal(payload, block_id.encode()))


def opened_copy(
    cipher: LogCipher | None,
    block_id: str,
    payload: memoryview,
    log_cipher: LogCipher | None = None,
    sequence: int = -1,
) -> memoryview:
    """Return the payload of a block from that of its copy on another host.

    Args:
        cipher: Decrypts what the receiver sent; None: copies are in clear.
        block_id: The block.
        payload: That of its copy.
        log_cipher: Decrypts the record in the receiver's log, which the copy may be as a whole.
        sequence: That of this record.

    Raises:
        CorruptRecordError: It is not the copy of this block.
    """
    if cipher is None:
        return payload
    if log_cipher is not None and _is_record(payload, sequence):
        return parse_record(payload, expected_sequence=sequence, cipher=log_cipher)
    return memoryview(cipher.unseal(payload, block_id.encode()))


def _is_record(payload: memoryview, sequence: int) -> bool:
    try:
        record_length(payload, expected_sequence=sequence)
    except CorruptRecordError:
        return False
    return True


def check_in_memory(folder: str) -> None:
    """Make sure that a folder is on a file system in memory: slots hold records in clear.

    Raises:
        ArenaError: It is not, or it is not known.
    """
    try:
        kind = _file_system_kind(folder)
    except OSError as error:
        raise ArenaError(folder, f"cannot be looked at: {error.strerror}") from error
    if kind not in _IN_MEMORY:
        raise ArenaError(
            folder,
            f"it is on {kind or 'an unknown file system'}, which is not in memory",
        )


def _file_system_kind(folder: str) -> str | None:
    """Return the type of the file system that a folder is on, None when it is not known."""
    device = os.stat(folder).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(_MOUNTS) as mounts:
            lines = [line.split() for line in mounts]
    except OSError:
        return None
    # The type stands behind a dash, see proc_pid_mountinfo(5).
    found = [fields[fields.index("-") + 1] for fields in lines if fields[2] == name]
    return found[-1] if found else None
