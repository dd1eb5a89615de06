"""Encrypted blocks: in clear in memory, never on a disk; read by whoever has the key."""

from __future__ import annotations

import os
import pickle
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as replaced

from penstock.blockstore import (
    BlockAccess,
    BlockKind,
    BlockNotFoundError,
    BlockStore,
    BlockUnavailableError,
    read_block,
    shown_block,
)
from penstock.blockstore._encryption import block_cipher, check_in_memory
from penstock.blockstore.building.memory import ArenaError
from penstock.blockstore.reading.fetch import fetch
from penstock.wal import CorruptRecordError, EncryptionKey, LogOptions, LogWriter, segment_path
from penstock.wire import ApplicationLink
from penstock.wire.messages import ReceivedBlockInfo, ShownBlock
from tests.blockstore.test_blocks import OPTIONS, put, without_memory
from tests.blockstore.test_server import APPLICATION, ATTEMPT, WAIT_S, Host

KEY = EncryptionKey.generate()
MARK = b"what nobody may find on a disk"
RECORDS = [MARK, b"", MARK * 3]


@pytest.fixture
def memory() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield folder


@pytest.fixture
def store(tmp_path: Path, memory: str) -> Iterator[BlockStore]:
    attempt = uuid.uuid4().hex
    made = BlockStore(
        stream_id=3,
        attempt=attempt,
        host="here",
        log_folder=str(tmp_path / f"3-{attempt}"),
        options=replace(OPTIONS, memory_dir=memory, encryption=KEY),
    )
    yield made
    made.close()


def records_of(info: ReceivedBlockInfo, key: EncryptionKey | None = KEY) -> list[Any]:
    with read_block(info, BlockAccess(encryption=key)) as block:
        return list(block.records())


def test_a_block_that_is_shown_before_it_is_logged_is_not_sent_in_clear(
    store: BlockStore,
) -> None:
    builder = store.open_block(BlockKind.BINARY)
    builder.append(b"secret", np.array([6], np.int32))
    block = builder.seal("input-3-0", 0.0)
    shown = ShownBlock(3, store.attempt, block.block_id, store.payload_of(block))
    store.put(block)
    assert b"secret" not in shown.payload
    assert list(shown_block(shown, BlockAccess(encryption=KEY)).records()) == [b"secret"]
    with pytest.raises(CorruptRecordError):
        shown_block(replaced(shown, block_id="input-3-1"), BlockAccess(encryption=KEY))


def bytes_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_blocks_are_read_from_memory_and_from_the_segment_and_lie_nowhere_in_clear(
    store: BlockStore, tmp_path: Path
) -> None:
    infos = [put(store, BlockKind.BINARY, [b"%d" % n, *RECORDS], n) for n in range(20)]
    for number, info in enumerate(infos):
        wanted = [b"%d" % number, *RECORDS]
        assert records_of(info) == wanted
        assert records_of(without_memory(info)) == wanted
        # Who maps the slot needs no key.
        assert records_of(info, None) == wanted
    written = bytes_below(tmp_path)
    assert MARK not in written
    assert MARK[:10] not in written
    assert KEY.secret not in written


def test_without_the_key_a_block_is_not_read(store: BlockStore) -> None:
    info = without_memory(put(store, BlockKind.BINARY, RECORDS))
    with pytest.raises(BlockUnavailableError, match="encryption is off"):
        records_of(info, None)
    with pytest.raises(BlockNotFoundError, match="does not decrypt"):
        records_of(info, EncryptionKey.generate())


def test_a_block_of_another_attempt_does_not_pass_for_this_one(
    store: BlockStore, tmp_path: Path
) -> None:
    info = without_memory(put(store, BlockKind.BINARY, RECORDS))
    with LogWriter.create(
        str(tmp_path / "other"),
        options=LogOptions(segment_size=1 << 20),
        cipher=block_cipher(KEY, uuid.uuid4().hex),
    ) as log:
        log.append(1, bytes(info.num_bytes))
    # The same number, place and length.
    os.replace(segment_path(str(tmp_path / "other"), 1), segment_path(str(info.segment.folder), 1))
    with pytest.raises(BlockNotFoundError, match="does not decrypt"):
        records_of(info)


def test_what_travels_to_tasks_does_not_show_the_key() -> None:
    access = BlockAccess(link=ApplicationLink(b"other"), encryption=KEY)
    assert repr(KEY.secret)[2:-1] not in repr(access)
    assert KEY.secret.hex() not in repr(access)
    assert pickle.loads(pickle.dumps(access)) == access


def test_records_in_clear_do_not_go_to_a_disk_for_want_of_memory(
    tmp_path: Path, memory: str
) -> None:
    def make(**options: Any) -> None:
        BlockStore(
            stream_id=3,
            attempt=ATTEMPT,
            host="here",
            log_folder=str(tmp_path / "log"),
            options=replace(OPTIONS, encryption=KEY, **options),
        )

    too_large = os.statvfs(memory).f_bavail * os.statvfs(memory).f_frsize
    for options in (
        {"memory_dir": memory, "block_max_bytes": too_large},
        {"memory_dir": str(tmp_path / "missing")},
        {"memory_dir": "/proc"},
    ):
        with pytest.raises(ArenaError, match=r"spark\.penstock\.memory\.dir"):
            make(**options)
    assert {path.name[:7] for path in (tmp_path / "log").iterdir()} == {"LOCK", "segment"}
    with pytest.raises(ArenaError, match="it is on proc"):
        check_in_memory("/proc")
    check_in_memory(memory)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


def test_a_block_of_another_host_comes_from_memory_or_encrypted_and_no_other(
    host: Host, memory: str
) -> None:
    store = BlockStore(
        stream_id=3,
        attempt=ATTEMPT,
        host="there",
        log_folder=str(host.log_folder()),
        options=replace(
            OPTIONS,
            memory_dir=memory,
            memory_prefix=f"penstock-{APPLICATION}-",
            encryption=KEY,
        ),
    )
    info = put(store, BlockKind.BINARY, RECORDS)
    store.close()
    server = host.start(memory_folder=memory)
    cipher = block_cipher(KEY, ATTEMPT)

    def fetched(block: ReceivedBlockInfo) -> bytes:
        return bytes(fetch(server.address, host.secret, block, WAIT_S, cipher=cipher))

    in_clear = fetched(info)
    assert MARK in in_clear
    assert fetched(without_memory(info)) == in_clear
    os.unlink(store.memory_path)
    assert fetched(info) == in_clear
    with pytest.raises(CorruptRecordError, match="does not decrypt"):
        fetch(
            server.address,
            host.secret,
            info,
            WAIT_S,
            cipher=block_cipher(KEY, "another"),
        )
    # Somebody who has no key puts a block in clear in its place.
    place = info.segment
    with LogWriter.create(
        str(host.root / "forged"), options=LogOptions(segment_size=1 << 20)
    ) as log:
        log.append(1, in_clear)
    os.replace(segment_path(str(host.root / "forged"), 1), segment_path(place.folder, 1))
    with pytest.raises(Exception, match="not found"):
        fetched(info)
