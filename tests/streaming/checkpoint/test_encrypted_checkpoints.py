"""Encrypted checkpoints: nothing in clear, no other key, and nothing that is not one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.serializers import AutoBatchedSerializer

from penstock.streaming.checkpoint.graph_pickling import dump, load
from penstock.streaming.dstream.states.rdd_files import RDDFile, checkpoint_file, save_copy
from penstock.streaming.kernels.encrypted_rdds import EncryptedPickles, encrypted
from penstock.wal import EncryptionKey

KEY = EncryptionKey.generate()
OTHER = EncryptionKey.generate()
MARK = b"what nobody may find on a disk"


def bytes_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


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
