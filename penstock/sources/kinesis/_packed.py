"""Records that a producer of Kinesis packed into one (KPL aggregation), unpacked.

Source: awslabs/amazon-kinesis-producer, "aggregation-format.md": four magic bytes, a message of
Protocol Buffers, and the MD5 of that. The message has a table of partition keys (1), a table of
explicit hash keys (2), and records (3) of: index of the partition key (1), index of the explicit
hash key (2), data (3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST = 16


class Packed(NamedTuple):
    """One of the records within a record."""

    partition_key: str
    hash_key: int
    """The explicit one, or the MD5 of the partition key: it says which shard it belongs to."""
    data: bytes


def unpack(data: bytes) -> list[Packed] | None:
    """Return the records that were packed; None: it is a record of its own.

    What begins as if it were packed and is not, by its digest or its form, is a record of its own,
    too: that is how Amazon's client takes it.
    """
    if not data.startswith(_MAGIC) or len(data) < len(_MAGIC) + _DIGEST:
        return None
    message, digest = data[len(_MAGIC) : -_DIGEST], data[-_DIGEST:]
    if hashlib.md5(message, usedforsecurity=False).digest() != digest:
        return None
    try:
        return _records(message)
    except (IndexError, ValueError):
        return None


def _records(message: bytes) -> list[Packed]:
    keys: list[str] = []
    hashes: list[int] = []
    found: list[tuple[int, int | None, bytes]] = []
    for number, value in _fields(message):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            keys.append(value.decode())
        elif number == 2:
            hashes.append(int(value))
        elif number == 3:
            record = dict(_fields(value))
            key, explicit, data = record.get(1, 0), record.get(2), record.get(3, b"")
            if not isinstance(key, int) or isinstance(explicit, bytes) or isinstance(data, int):
                raise ValueError("a field is of another type")
            found.append((key, explicit, data))
    return [
        Packed(keys[key], hash_of(keys[key]) if explicit is None else hashes[explicit], data)
        for key, explicit, data in found
    ]


def hash_of(partition_key: str) -> int:
    """Return the hash key by which Kinesis chooses a shard."""
    digest = hashlib.md5(partition_key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message of Protocol Buffers: numbers and bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint(message, at)
        if size is None or at + size > len(message):
            raise ValueError("it ends too early, or is of another form")
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
