"""Compression of blocks in a log that is written over the network.

A log on HDFS goes through the network, and through a DataNode for each copy, which costs more for a
byte than to compress it. Only the log's copy is compressed: the slot in memory is what tasks map.
A block is compressed in pieces, by a few threads at a time, from the moment it is sealed: so while
those before it are written.

A compressed payload, little-endian::

    0   magic "PCB1"
    4   codec u16: 1 LZ4 block, 2 Zstandard
    6   reserved u16
    8   bytes of the block u64
    16  bytes of a piece u32; the last one may have less
    20  bytes of each piece when it is compressed, u32
    ..  the compressed pieces
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.wal import CorruptRecordError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_HEAD = struct.Struct("<4sHHQI")
_MAGIC = b"PCB1"
_CODES = {"lz4": 1, "zstd": 2}
_ZSTD_LEVEL = 1
"""Higher levels take more time than the bytes that they save."""
_PIECE = 1 << 20
_MOST_THREADS = 4
_WORTH = 0.9
"""A block that compresses to more than this share of its size is stored uncompressed."""


def _codec(name: str) -> pa.Codec:
    return pa.Codec("lz4_raw") if name == "lz4" else pa.Codec("zstd", _ZSTD_LEVEL)


@dataclass(frozen=True)
class Compressing:
    """A block that is being compressed.

    Attributes:
        codec: As in `BlockCompression`.
        size: Bytes of the block.
        pieces: What becomes of its pieces, in order.
    """

    codec: str
    size: int
    pieces: Sequence[Future[pa.Buffer]]

    def result(self) -> list[Buffer] | None:
        """Wait until it is done.

        Returns:
            What is to be written, in pieces; None when that is hardly less than the block.

        Raises:
            CancelledError: The `BlockCompression` was closed.
        """
        pieces = [piece.result() for piece in self.pieces]
        lengths = [piece.size for piece in pieces]
        head = _HEAD.pack(_MAGIC, _CODES[self.codec], 0, self.size, _PIECE)
        head += struct.pack(f"<{len(lengths)}I", *lengths)
        return [head, *pieces] if len(head) + sum(lengths) < _WORTH * self.size else None


class BlockCompression:
    """Compresses the blocks of one log. Safe to use from any thread; `close` ends its own.

    Args:
        codec: ``lz4`` or ``zstd``.
    """

    def __init__(self, codec: str) -> None:
        self._name = codec
        self._threads = ThreadPoolExecutor(
            min(_MOST_THREADS, len(os.sched_getaffinity(0))), thread_name_prefix="penstock-compress"
        )

    def begin(self, payload: memoryview) -> Compressing:
        """Begin to compress a block, which must not change until that is done or `close`."""
        pieces = (payload[at : at + _PIECE] for at in range(0, len(payload), _PIECE))
        return Compressing(
            self._name, len(payload), [self._threads.submit(self._piece, each) for each in pieces]
        )

    def _piece(self, piece: memoryview) -> pa.Buffer:
        # A codec of its own: the library does not say that threads can share one.
        return _codec(self._name).compress(pa.py_buffer(piece))

    def close(self) -> None:
        """End the threads; what they have not begun is left."""
        self._threads.shutdown(cancel_futures=True)


def expanded(payload: memoryview) -> memoryview:
    """Return a block from what the log holds of it; nothing is copied when it is not compressed.

    Raises:
        CorruptRecordError: It is not what was written.
    """
    if payload[: len(_MAGIC)] != _MAGIC:
        return payload
    try:
        return _expanded(payload)
    except (struct.error, ValueError, pa.ArrowException, OSError) as error:
        raise CorruptRecordError(None, 0, f"a block that cannot be expanded: {error}") from error


def _expanded(payload: memoryview) -> memoryview:
    _, code, _, size, piece = _HEAD.unpack_from(payload)
    names = [name for name, known in _CODES.items() if known == code]
    if not names or not piece:
        raise ValueError(f"codec {code}, pieces of {piece} bytes")
    count = -(-size // piece)
    lengths = struct.unpack_from(f"<{count}I", payload, _HEAD.size)
    codec = _codec(names[0])
    block = bytearray()
    at = _HEAD.size + 4 * count
    for number, length in enumerate(lengths):
        wanted = min(piece, size - number * piece)
        block += codec.decompress(pa.py_buffer(payload[at : at + length]), wanted)
        at += length
    return memoryview(block)
