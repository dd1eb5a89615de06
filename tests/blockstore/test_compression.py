"""Compressed blocks: smaller where that is worth it, the same again, or said to be damaged."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.blockstore._compression import BlockCompression, expanded
from penstock.wal import CorruptRecordError

CODECS = ("lz4", "zstd")


def written(codec: str, block: bytes) -> bytes | None:
    compression = BlockCompression(codec)
    try:
        pieces = compression.begin(memoryview(block)).result()
    finally:
        compression.close()
    return None if pieces is None else b"".join(map(bytes, map(memoryview, pieces)))


@pytest.mark.parametrize("codec", CODECS)
@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5), st.integers(1, 2000))
@settings(max_examples=50, deadline=None)
def test_a_compressed_block_comes_back_as_it_was(codec, parts, repeats):
    block = b"".join(parts) * repeats
    found = written(codec, block)
    if found is not None:
        assert len(found) <= 0.9 * len(block)
        assert bytes(expanded(memoryview(found))) == block


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (3 << 20) + 17])
def test_a_block_of_several_pieces_comes_back_as_it_was(codec, size):
    chance = random.Random(size)
    block = (chance.randbytes(5000) + bytes(5000)) * (size // 10_000 + 1)
    found = written(codec, block[:size])
    assert len(found) < 0.9 * size
    assert bytes(expanded(memoryview(found))) == block[:size]


@pytest.mark.parametrize("codec", CODECS)
def test_what_repeats_itself_is_compressed_and_noise_is_not(codec):
    assert len(written(codec, b"the same line\n" * 1000)) < 1400
    assert written(codec, random.Random(1).randbytes(100_000)) is None
    assert written(codec, b"") is None


def test_a_block_that_is_not_compressed_is_not_copied():
    block = memoryview(b"PBK1 and so on")
    assert expanded(block) is block


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_said_to_be_damage(codec):
    block = b"the same line\n" * 1000
    found = bytearray(written(codec, block))
    for damaged in (
        found[:10],
        found[: len(found) // 2],
        found[:4] + struct.pack("<H", 9) + found[6:],
        found[:8] + struct.pack("<Q", len(block) - 1) + found[16:],
        found[:8] + struct.pack("<Q", 1 << 62) + found[16:],
        found[:16] + struct.pack("<I", 0) + found[20:],
        found[:16] + struct.pack("<I", 100) + found[20:],
        found[:20] + struct.pack("<I", 1) + found[24:],
    ):
        with pytest.raises(CorruptRecordError):
            expanded(memoryview(bytes(damaged)))
