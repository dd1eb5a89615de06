"""Blocks whose log lies on a real HDFS: from memory, and from HDFS when memory is short or gone."""

from __future__ import annotations

import os
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.blockstore import (
    BlockAccess,
    BlockKind,
    BlockNotFoundError,
    BlockStore,
    read_block,
)
from penstock.blockstore._compression import BlockCompression
from penstock.blockstore.building.builder import BlockBuilder
from penstock.wal import EncryptionKey, LogOptions, SyncPolicy, WalError, locate, segment_path
from tests.blockstore.test_blocks import OPTIONS, put, records_of, without_memory
from tests.bounds import HANG_S
from tests.services.hdfs import Hdfs

pytestmark = pytest.mark.slow


@pytest.fixture
def store(hdfs: Hdfs, tmp_path: Path) -> Iterator[BlockStore]:
    attempt = uuid.uuid4().hex
    made = BlockStore(
        stream_id=3,
        attempt=attempt,
        host="here",
        log_folder=f"{hdfs.new_folder()}/3-{attempt}",
        host_folder=str(tmp_path / f"3-{attempt}"),
        options=replace(OPTIONS, memory_dir=str(tmp_path), memory_bytes=1 << 20),
    )
    yield made
    made.close()


@contextmanager
def store_in_memory(hdfs: Hdfs, key: EncryptionKey | None, **options: Any) -> Iterator[BlockStore]:
    attempt = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        yield BlockStore(
            stream_id=3,
            attempt=attempt,
            host="here",
            log_folder=f"{hdfs.new_folder()}/3-{attempt}",
            host_folder=f"{memory}/3-{attempt}",
            options=replace(OPTIONS, memory_dir=memory, encryption=key, **options),
        )


@pytest.mark.long
def test_an_encrypted_block_is_read_from_hdfs_and_lies_there_in_no_other_form(hdfs: Hdfs) -> None:
    key = EncryptionKey.generate()
    mark = b"what nobody may find on a disk"
    with store_in_memory(hdfs, key) as store:
        info: Any = put(store, BlockKind.BINARY, [mark] * 100)
        store.close()
        with read_block(without_memory(info), BlockAccess(encryption=key)) as block:
            assert list(block.records()) == [mark] * 100
    fs, path = locate(info.segment.folder)
    file = fs.open(segment_path(path, info.segment.segment))
    assert mark[:10] not in file.read(0, file.size)
    file.close()


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_compressed_block_is_read_from_hdfs_and_from_memory(hdfs: Hdfs, encrypted: bool) -> None:
    key = EncryptionKey.generate() if encrypted else None
    access = BlockAccess(encryption=key)
    blocks = [[b"the same"] * 1000, [os.urandom(8000)], [b"another"] * 1000]
    with store_in_memory(hdfs, key, compression="lz4") as store:
        infos: list[Any] = [
            put(store, BlockKind.BINARY, block, number) for number, block in enumerate(blocks)
        ]
        for info, block in zip(infos, blocks, strict=True):
            with read_block(info, access) as found:
                assert list(found.records()) == block
        store.close()
        for info, block in zip(infos, blocks, strict=True):
            with read_block(without_memory(info), access) as found:
                assert list(found.records()) == block
        shares = [info.segment.length / info.num_bytes for info in infos]
        assert [share < 0.5 for share in shares] == [True, False, True]


def test_a_level_without_a_log_keeps_no_compressed_block(hdfs: Hdfs) -> None:
    level = {"use_disk": False, "log": LogOptions(sync=SyncPolicy.NONE), "compression": "lz4"}
    with store_in_memory(hdfs, None, **level) as store:
        builder = store.open_block(BlockKind.BINARY)
        builder.append(b"the same" * 1000, [8] * 1000)
        sealed = builder.seal("input-3-1", 0.0)
        store.begin(sealed)
        info = store.put(sealed)
        assert info.segment is None
        assert records_of(info) == [b"the same"] * 1000
        assert not store._compressing
        store.close()


def evicted(store: BlockStore) -> int:
    return store._arena.statistics().evicted


def test_memory_is_given_away_only_for_blocks_that_hdfs_gives_back(store: BlockStore) -> None:
    records = [[b"%d " % number * 30_000] for number in range(40)]
    infos = []
    for number, block in enumerate(records):
        infos.append(put(store, BlockKind.BINARY, block, number))
        # All of them, at any time: none is only in a segment that is still open.
        if number % 10 == 9:
            assert [records_of(info) for info in infos] == records[: number + 1]
    assert evicted(store) > 10


def test_blocks_that_fill_the_memory_before_the_log_has_them_make_way_for_the_next(
    store: BlockStore,
) -> None:
    """Nobody releases them. When memory ran short there was no segment yet that could be closed."""
    blocks = []
    while (slot := store._arena.reserve(OPTIONS.block_max_bytes, timeout_s=0)) is not None:
        builder = BlockBuilder(slot, BlockKind.BINARY)
        # So large that no two leave room for a third slot.
        builder.append(b"x" * 200_000, np.array([200_000], np.int32))
        blocks.append(builder)
    opened = []
    waiting = threading.Thread(
        target=lambda: opened.append(store.open_block(BlockKind.BINARY, timeout_s=HANG_S))
    )
    waiting.start()
    waiting.join(1.0)
    assert not opened
    for number, builder in enumerate(blocks):
        store.put(builder.seal(f"input-3-{number}", 0.0))
    waiting.join(HANG_S)
    assert opened


def test_a_block_whose_compression_failed_once_is_compressed_when_it_is_put_again(
    hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = BlockCompression._piece

    def short_once(compression: BlockCompression, data: memoryview) -> Any:
        monkeypatch.setattr(BlockCompression, "_piece", piece)
        raise MemoryError

    monkeypatch.setattr(BlockCompression, "_piece", short_once)
    with store_in_memory(hdfs, None, compression="lz4") as store:
        builder = store.open_block(BlockKind.BINARY)
        builder.append(b"the same" * 1000, np.full(1000, 8, np.int32))
        sealed = builder.seal("input-3-1", 0.0)
        store.begin(sealed)
        with pytest.raises(MemoryError):
            store.put(sealed)
        info = store.put(sealed)
        store.close()
        assert records_of(without_memory(info)) == [b"the same"] * 1000


def test_a_segment_that_its_writer_left_open_is_read_and_the_writer_goes_on(
    store: BlockStore,
) -> None:
    first = put(store, BlockKind.BINARY, [b"one"])
    # What a lost host leaves; but this one lives, and writes on in another segment.
    assert records_of(without_memory(first)) == [b"one"]
    builder = store.open_block(BlockKind.BINARY)
    builder.append(b"two", [3])
    sealed = builder.seal("input-3-2", 0.0)
    with pytest.raises(WalError):
        store.put(sealed)
    second = store.put(sealed)
    assert second.segment.segment > first.segment.segment
    assert [records_of(info) for info in (first, second)] == [[b"one"], [b"two"]]
    assert records_of(without_memory(second)) == [b"two"]


def test_a_block_that_is_nowhere_says_where_it_was_looked_for(
    store: BlockStore, hdfs: Hdfs
) -> None:
    info: Any = put(store, BlockKind.BINARY, [b"one"])
    os.unlink(store.memory_path)
    fs, path = locate(info.segment.folder)
    for name in fs.list_folder(path):
        fs.remove(f"{path}/{name}")
    with pytest.raises(BlockNotFoundError, match=hdfs.address):
        records_of(info)
