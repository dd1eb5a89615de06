"""Records of classes that only the user's script knows, from one process to another."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.blockstore import BlockAccess, BlockKind, read_block
from penstock.blockstore.building import record_pickles
from penstock.blockstore.building.builder import join_binary
from penstock.blockstore.building.record_pickles import (
    MAX_DEFINITIONS_BYTES,
    definitions,
    learn,
    pickle_record,
)
from penstock.wire.messages import ReceivedBlockInfo
from tests.blockstore.test_blocks import make_store
from tests.bounds import HANG_S

SCRIPT = """
import enum
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.blockstore import BlockKind
from penstock.blockstore.building.record_pickles import pickle_record
from penstock.blockstore.building.builder import join_binary
from tests.blockstore.test_blocks import make_store


class Colour(enum.Enum):
    RED = 1


class Place(NamedTuple):
    x: int
    y: int


@dataclass
class Reading:
    sensor: str
    value: float
    colour: Colour
    place: Place

    def twice(self):
        return UNIT * 2 * self.value


UNIT = 1
store = make_store(Path(sys.argv[1]))
builder = store.open_block(BlockKind.PICKLED)
readings = [Reading("a", n, Colour.RED, Place(n, 1)) for n in range(1000)]
builder.append(*join_binary([pickle_record(reading) for reading in [*readings, {"plain": 1}]]))
info = store.put(builder.seal("input-3-1", 0.0))
Path(sys.argv[1], "info").write_bytes(msgspec.msgpack.encode(info))
store.close()
"""


def records_of_script(folder: Path) -> tuple[ReceivedBlockInfo, list[Any]]:
    subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], check=True, timeout=HANG_S)
    info = msgspec.msgpack.decode((folder / "info").read_bytes(), type=ReceivedBlockInfo)
    with read_block(info, BlockAccess()) as block:
        return info, list(block.records())


def test_records_of_a_class_in_the_users_script_are_read_where_it_is_not_known(tmp_path):
    info, records = records_of_script(tmp_path)
    *readings, plain = records
    assert plain == {"plain": 1}
    assert [(r.sensor, r.value, r.colour.name, r.place.x) for r in readings] == [
        ("a", n, "RED", n) for n in range(1000)
    ]
    assert readings[2].twice() == 4
    assert len({type(reading) for reading in readings}) == 1
    # The class is in the block once, and not with each record.
    assert info.num_bytes < 1000 * 250


def test_what_can_be_imported_is_pickled_as_ever(tmp_path):
    record = {"path": tmp_path, "numbers": [1, 2.5, None]}
    assert pickle_record(record) == pickle.dumps(record, protocol=pickle.HIGHEST_PROTOCOL)


def test_what_cannot_be_pickled_is_an_error_that_says_so():
    with pytest.raises(TypeError, match="pickle"):
        pickle_record({"lock": threading.Lock()})


def test_functions_and_local_classes_are_records_too():
    def make() -> Any:
        class Local:
            def __init__(self, n: int) -> None:
                self.n = n

        return Local(3)

    assert pickle.loads(pickle_record(lambda: 5))() == 5
    assert pickle.loads(pickle_record([make()]))[0].n == 3


def test_a_class_that_is_defined_while_a_block_is_filled_up_leaves_it_sealable(tmp_path):
    store = make_store(tmp_path)
    builder = store.open_block(BlockKind.PICKLED)
    joined, lengths = join_binary([b"x" * builder.room(1)])
    made = type("MadeMeanwhile", (), {"text": "x" * 1000, "__module__": "__main__"})
    before = len(definitions())
    pickle_record(made())  # by another thread, between the two
    assert len(definitions()) > before
    builder.append(joined, lengths)
    sealed = builder.seal("input-3-1", 0.0)
    assert sealed.num_records == 1
    store.close()


def test_classes_without_end_do_not_fill_blocks_with_their_definitions_I7():
    for number in range(200):
        made = type(f"Made{number}", (), {"text": "x" * 1000, "__module__": "__main__"})
        assert type(pickle.loads(pickle_record(made()))).__name__ == f"Made{number}"
    assert len(definitions()) <= MAX_DEFINITIONS_BYTES


def test_a_reader_keeps_so_many_definitions_and_forgets_the_oldest_I7(monkeypatch):
    monkeypatch.setattr(record_pickles, "_MAX_LEARNED", 3)
    monkeypatch.setattr(record_pickles, "_learned", {})
    for number in range(10):
        learn(pickle.dumps({b"class %d" % number: b"", b"another": b""}))
    assert list(record_pickles._learned) == [b"class 8", b"class 9", b"another"]
