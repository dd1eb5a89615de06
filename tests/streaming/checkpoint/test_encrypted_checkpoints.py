"""Encrypted checkpoints: nothing in clear, no other key, and nothing that is not one."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.serializers import AutoBatchedSerializer

from penstock.clock import SystemClock
from penstock.streaming import CheckpointReadError
from penstock.streaming.checkpoint.folder import CheckpointFolder
from penstock.streaming.checkpoint.graph_pickling import dump, load
from penstock.streaming.checkpoint.writer import CheckpointWriter
from penstock.streaming.dstream.rdd_files import RDDFile, RDDFiles, checkpoint_file, save_copy
from penstock.streaming.kernels.encrypted_rdds import EncryptedPickles, encrypted
from penstock.wal import EncryptionKey, EncryptionMismatchError, WalError, WrongKeyError
from tests.streaming.checkpoint.test_checkpoint import checkpoint

KEY = EncryptionKey.generate()
OTHER = EncryptionKey.generate()
MARK = b"what nobody may find on a disk"


def folder_of(path: Path, key: EncryptionKey | None = KEY) -> CheckpointFolder:
    return CheckpointFolder(str(path), encryption=key)


def bytes_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_what_is_written_is_read_and_lies_there_in_no_other_form(tmp_path: Path) -> None:
    wanted = checkpoint(3000, MARK, conf=(("spark.password", MARK.decode()),))
    folder_of(tmp_path).write(wanted)
    assert folder_of(tmp_path).read_newest() == wanted
    assert [*folder_of(tmp_path).headers().values()] == [wanted.header]
    written = bytes_below(tmp_path)
    assert MARK[:10] not in written
    assert KEY.secret not in written


def test_every_changed_byte_is_found_and_an_older_one_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    folder = folder_of(tmp_path)
    folder.write(checkpoint(1))
    folder.write(checkpoint(2))
    path = tmp_path / "checkpoint-2"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        folder.check_encryption()
        found = folder.read_newest()
        assert found is not None
        assert found.header.last_batch_ms == 1
    path.write_bytes(whole[:10])
    (tmp_path / "checkpoint-1").unlink()
    with pytest.raises(CheckpointReadError):
        folder.read_newest()


def test_an_older_checkpoint_does_not_pass_for_a_newer_one(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.write(checkpoint(1))
    folder.write(checkpoint(2))
    os.replace(tmp_path / "checkpoint-1", tmp_path / "checkpoint-3")
    found = folder.read_newest()
    assert found is not None
    assert found.header.last_batch_ms == 2


@pytest.mark.parametrize(
    ("written", "read", "error"),
    [
        (KEY, OTHER, WrongKeyError),
        (KEY, None, EncryptionMismatchError),
        (None, KEY, EncryptionMismatchError),
    ],
)
def test_what_has_another_key_or_none_is_refused_and_stays(
    tmp_path: Path,
    written: EncryptionKey | None,
    read: EncryptionKey | None,
    error: type[WalError],
) -> None:
    folder_of(tmp_path, written).write(checkpoint(1))
    (tmp_path / "checkpoint-2.new").write_bytes(b"unfinished")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    folder = folder_of(tmp_path, read)
    writer = CheckpointWriter(
        folder,
        RDDFiles(),
        on_error=lambda failure: None,
        patience_s=1,
        clock=SystemClock(),
    )
    for use in (folder.read_newest, folder.headers, folder.check_encryption, writer.start):
        with pytest.raises(error):
            use()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_key_is_in_no_graph(sc: Any) -> None:
    file = RDDFile("somewhere", AutoBatchedSerializer(EncryptedPickles(KEY)))
    pickled = dump({"file": file, "key": KEY})
    assert KEY.secret not in pickled
    streaming_context: Any = None
    found = load(pickled, sc, streaming_context, OTHER)
    assert found["key"] == OTHER
    assert found["file"] == RDDFile("somewhere", AutoBatchedSerializer(EncryptedPickles(OTHER)))
    assert repr(KEY.secret)[2:-1] not in repr(file)


@pytest.mark.slow
def test_a_saved_rdd_is_encrypted_and_is_as_it_was(sc: Any, tmp_path: Path) -> None:
    sc.setCheckpointDir(str(tmp_path))
    pairs = [(number % 7, MARK.decode() + str(number)) for number in range(200)]
    placed = sc.parallelize(pairs, 2).partitionBy(2)
    made = encrypted(placed, KEY)
    assert made.partitioner == placed.partitioner
    made.persist()
    made.checkpoint()
    # What is made of it is read through the cache, and by another serializer.
    assert sorted(made.map(list).map(tuple).collect()) == sorted(pairs)
    file = checkpoint_file(made)
    assert file is not None
    assert sorted(file.read(sc).collect()) == sorted(pairs)
    made.unpersist()
    saved = save_copy(sc.parallelize(pairs, 2), KEY)
    assert sorted(saved.read(sc).collect()) == sorted(pairs)
    assert MARK not in bytes_below(tmp_path)
    assert len(bytes_below(tmp_path)) > len(pairs) * len(MARK)
