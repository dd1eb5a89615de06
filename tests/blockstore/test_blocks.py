"""Blocks from building to reading, through real files."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import re
import subprocess
import sys
import uuid
from collections import namedtuple
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import Row

from penstock.blockstore import (
    BlockAccess,
    BlockKind,
    BlockNotFoundError,
    BlockStore,
    read_block,
)
from penstock.blockstore.building.builder import (
    batch_to_schema,
    join_binary,
    join_text,
    rows_to_batch,
)
from penstock.blockstore.building.record_pickles import pickle_record
from penstock.blockstore.reading.reader import _is_lost
from penstock.blockstore.store import BlockStoreOptions
from penstock.wal import LogOptions, SyncPolicy, segment_path
from tests.bounds import HANG_S

ACCESS = BlockAccess()
OPTIONS = BlockStoreOptions(
    memory_bytes=4 << 20, block_max_bytes=256 << 10, log=LogOptions(segment_size=1 << 20)
)


def make_store(folder: Path, **changes: object) -> BlockStore:
    attempt = uuid.uuid4().hex
    return BlockStore(
        stream_id=3,
        attempt=attempt,
        host="here",
        log_folder=str(folder / f"3-{attempt}"),
        options=replace(OPTIONS, memory_dir=str(folder), **changes),
    )


@pytest.fixture
def store(tmp_path):
    store = make_store(tmp_path)
    yield store
    store.close()


def put(store: BlockStore, kind: BlockKind, records: list, number: int = 1):
    builder = store.open_block(kind)
    joined, lengths = join_text(records) if kind is BlockKind.STRING else join_binary(records)
    builder.append(joined, lengths)
    return store.put(builder.seal(f"input-3-{number}", 0.0))


def records_of(info) -> list:
    with read_block(info, ACCESS) as block:
        records = list(block.records())
        assert block.num_records == info.num_records
    return records


def without_memory(info):
    return msgspec.structs.replace(info, memory=None)


@given(st.lists(st.binary(max_size=50), max_size=100))
@settings(max_examples=30, deadline=None)
def test_bytes_come_back_as_they_were_from_memory_and_from_the_segment(tmp_path_factory, records):
    store = make_store(tmp_path_factory.mktemp("store"))
    try:
        info = put(store, BlockKind.BINARY, records)
        assert records_of(info) == records
        assert records_of(without_memory(info)) == records
    finally:
        store.close()


def test_text_comes_back_as_text_and_more_than_one_chunk_of_it(store):
    records = [f"line {number} ü" for number in range(5000)]
    assert records_of(put(store, BlockKind.STRING, records)) == records


def test_bytes_that_are_no_text_come_out_with_replacement_characters(store):
    builder = store.open_block(BlockKind.STRING)
    builder.append(*join_binary([b"good", b"b\xffd", b""]))
    info = store.put(builder.seal("input-3-1", 0.0))
    assert records_of(info) == ["good", "b\ufffdd", ""]
    with read_block(info, ACCESS) as block:
        assert block.column().to_pylist() == ["good", "b\ufffdd", ""]


_READ = """
import pickle, sys
from penstock.blockstore import BlockAccess, read_block
for info in pickle.load(sys.stdin.buffer):
    with read_block(info, BlockAccess()) as block:
        print(len(list(block.records())), "pandas" in sys.modules)
"""


@pytest.mark.skipif(
    int(pa.__version__.partition(".")[0]) < 26, reason="platform: lists are slow before PyArrow 26"
)
def test_a_task_that_reads_records_imports_no_pandas(store):
    infos = [
        put(store, BlockKind.STRING, ["a", "b"], 1),
        put(store, BlockKind.BINARY, [b"a", b"b", b"c"], 2),
        put(store, BlockKind.PICKLED, [pickle.dumps(1)], 3),
        put_lines(store, BlockKind.LINES, [b"a"]),
    ]
    ended = subprocess.run(
        [sys.executable, "-c", _READ],
        input=pickle.dumps(infos),
        capture_output=True,
        timeout=HANG_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.decode().splitlines() == ["2 False", "3 False", "1 False", "1 False"]


line_lists = st.lists(
    st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=60
)


def put_lines(store: BlockStore, kind: BlockKind, lines: list[bytes]):
    builder = store.open_block(kind)
    builder.append_lines(b"".join(line + b"\n" for line in lines), len(lines))
    return store.put(builder.seal("input-3-1", 0.0))


@given(line_lists)
@settings(max_examples=30, deadline=None)
def test_lines_come_back_as_text_as_bytes_and_as_columns(tmp_path_factory, lines):
    store = make_store(tmp_path_factory.mktemp("store"))
    text = [line.decode("utf-8", "replace") for line in lines]
    try:
        for kind, expected in ((BlockKind.LINES, text), (BlockKind.BYTE_LINES, lines)):
            info = put_lines(store, kind, lines)
            assert info.num_records == len(lines)
            assert records_of(info) == expected
            with read_block(info, ACCESS) as block:
                assert block.column().to_pylist() == expected
    finally:
        store.close()


def test_lines_longer_and_shorter_than_a_piece_come_back_whole(tmp_path):
    store = make_store(tmp_path, block_max_bytes=2 << 20, log=LogOptions(segment_size=4 << 20))
    lines = [b"a" * 300_000, b"", *[b"b" * (n % 70) for n in range(20_000)], b"c" * 131_072]
    try:
        assert records_of(put_lines(store, BlockKind.BYTE_LINES, lines)) == lines
    finally:
        store.close()


def test_a_column_from_a_segment_stays_right_when_the_next_block_is_read(store):
    first = without_memory(put(store, BlockKind.STRING, ["a"] * 1000, 1))
    second = without_memory(put(store, BlockKind.STRING, ["b"] * 1000, 2))
    with read_block(first, ACCESS) as block:
        column = block.column()
    assert records_of(second) == ["b"] * 1000
    assert column.to_pylist() == ["a"] * 1000


def test_blocks_from_segments_are_read_into_the_same_memory(store):
    info = without_memory(put(store, BlockKind.STRING, ["a"] * 1000))
    places = []
    for _ in range(3):
        with read_block(info, ACCESS) as block:
            places.append(np.frombuffer(block.data, np.uint8).ctypes.data)
    assert len(set(places)) == 1


def test_a_block_is_no_longer_readable_when_its_context_has_ended(store):
    info = put(store, BlockKind.STRING, ["a"])
    with read_block(info, ACCESS) as block:
        pass
    with pytest.raises(ValueError, match="released"):
        list(block.records())


def test_pickles_come_back_as_objects(store):
    records = [{"a": 1}, (1, 2), None, 3.5, Row(x=1)]
    info = put(store, BlockKind.PICKLED, [pickle_record(record) for record in records])
    assert records_of(info) == records


def test_arrow_batches_come_back_as_batches_and_as_rows(store):
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    batches = [
        pa.RecordBatch.from_pylist([{"id": n, "name": str(n)} for n in range(k)], schema)
        for k in (3, 0, 2)
    ]
    builder = store.open_block(BlockKind.ARROW, schema)
    for batch in batches:
        assert builder.append_batch(batch)
    info = store.put(builder.seal("input-3-1", 0.0))
    assert pa.ipc.read_schema(pa.py_buffer(info.schema)) == schema
    with read_block(info, ACCESS) as block:
        assert list(block.batches()) == batches
    assert records_of(info) == [row for batch in batches for row in batch.to_pylist()]


def test_a_block_of_no_records_can_carry_a_position(store):
    builder = store.open_block(BlockKind.BINARY)
    builder.position = b"p"
    info = store.put(builder.seal("input-3-1", 0.0))
    assert (info.num_records, info.position) == (0, b"p")
    assert records_of(info) == []


def test_a_slot_that_was_given_to_another_block_is_not_read_the_segment_is(store):
    first = put(store, BlockKind.BINARY, [b"first"])
    store.release([first.block_id], [])
    second = put(store, BlockKind.BINARY, [b"other"], 2)
    assert second.memory.offset == first.memory.offset
    assert records_of(first) == [b"first"]
    assert records_of(second) == [b"other"]


def test_a_damaged_slot_is_not_read_the_segment_is(store):
    info = put(store, BlockKind.BINARY, [b"right"])
    with open(info.memory.path, "r+b") as memory:
        memory.seek(info.memory.offset + 64 + 64)
        memory.write(b"W")
    assert records_of(info) == [b"right"]


@pytest.mark.parametrize("shared", [False, True])
def test_a_block_in_none_of_its_places_is_an_error_that_names_them(store, shared, monkeypatch):
    monkeypatch.setattr("penstock.blockstore.reading.reader.is_shared", lambda folder: shared)
    info = put(store, BlockKind.BINARY, [b"gone"])
    os.unlink(info.memory.path)
    path = segment_path(info.segment.folder, info.segment.segment)
    with open(path, "r+b") as segment:
        segment.seek(info.segment.offset + 64 + 64)
        segment.write(b"W")
    with pytest.raises(BlockNotFoundError) as caught:
        records_of(info)
    assert caught.value.block_id == "input-3-1"
    assert info.memory.path in str(caught.value)
    where = f"segment {info.segment.segment} at offset {info.segment.offset}"
    assert f"corrupt record in {where} of {info.segment.folder}" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.block_id, again.tried) == (caught.value.block_id, caught.value.tried)


def test_a_reader_in_the_middle_of_a_block_keeps_it_while_memory_is_wanted(store):
    info = put(store, BlockKind.BINARY, [b"x" * 1000] * 200)
    with read_block(info, ACCESS) as block:
        store.release([info.block_id], [])
        # Memory for fourteen blocks is used again and again meanwhile.
        for number in range(2, 40):
            put(store, BlockKind.BINARY, [b"y" * 1000] * 200, number)
        # Looked at in its place: records that were made before would be copies.
        assert bytes(block.data) == b"x" * 200_000


def test_when_memory_runs_short_blocks_are_read_from_the_log_I7(store):
    infos = [
        put(store, BlockKind.BINARY, [bytes([n]) * 1000] * 200, number=n) for n in range(1, 60)
    ]
    assert store._arena.statistics().used <= OPTIONS.memory_bytes
    assert store._arena.statistics().evicted > 0
    for n, info in enumerate(infos, start=1):
        assert records_of(info) == [bytes([n]) * 1000] * 200


def test_a_memory_level_needs_no_disk_and_waits_instead_of_evicting(tmp_path):
    store = make_store(
        tmp_path, use_disk=False, log=LogOptions(segment_size=1 << 20, sync=SyncPolicy.NONE)
    )
    try:
        infos = [put(store, BlockKind.BINARY, [b"x" * 100_000] * 2, n) for n in range(1, 21)]
        assert {info.segment for info in infos} == {None}
        with pytest.raises(Exception, match="no memory for a block"):
            store.open_block(BlockKind.BINARY, timeout_s=0.05)
        assert records_of(infos[0]) == [b"x" * 100_000] * 2
        store.release([info.block_id for info in infos[:2]], [])
        store.discard(store.open_block(BlockKind.BINARY, timeout_s=20))
    finally:
        store.close()


def test_a_disk_level_keeps_no_memory(tmp_path):
    store = make_store(tmp_path, use_memory=False)
    try:
        info = put(store, BlockKind.BINARY, [b"x"])
        assert info.memory is None
        assert store._arena.statistics().slots == 0
        assert records_of(info) == [b"x"]
    finally:
        store.close()


def test_without_shared_memory_blocks_are_built_in_the_log_folder_and_it_is_said(tmp_path, caplog):
    store = make_store(tmp_path, memory_bytes=2 << 20)
    store.close()
    attempt = uuid.uuid4().hex
    store = BlockStore(
        stream_id=3,
        attempt=attempt,
        host="here",
        log_folder=str(tmp_path / attempt),
        options=replace(OPTIONS, memory_dir=str(tmp_path / "missing")),
    )
    try:
        assert "no shared memory" in caplog.text
        assert store.memory_path.startswith(str(tmp_path / attempt))
        assert records_of(put(store, BlockKind.BINARY, [b"x"])) == [b"x"]
    finally:
        store.close()


def test_released_segments_are_deleted_but_never_those_of_other_folders(store):
    infos = [put(store, BlockKind.BINARY, [b"x" * 1000] * 200, n) for n in range(1, 16)]
    first, last = infos[0].segment, infos[-1].segment
    assert first.segment < last.segment
    path = segment_path(first.folder, first.segment)
    store.release([], [("/elsewhere", first.segment)])
    assert os.path.exists(path)
    store.release([], [(first.folder, first.segment)])
    assert not os.path.exists(path)
    assert records_of(infos[-1]) == [b"x" * 1000] * 200


@dataclass
class Point:
    x: int
    y: int


def test_rows_of_any_common_shape_become_a_batch():
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    rows = [{"x": 1, "y": 2}, Row(x=1, y=2), Point(1, 2), (1, 2)]
    assert rows_to_batch(rows, schema).to_pylist() == [{"x": 1, "y": 2}] * 4
    assert rows_to_batch([7], pa.schema([("v", pa.int64())])).to_pylist() == [{"v": 7}]


@pytest.mark.parametrize("row", [{"x": "no"}, {"z": 1}, (1, 2, 3), 5, {"x": 1 << 70}])
def test_a_row_that_does_not_fit_the_schema_is_refused(row):
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    with pytest.raises((ValueError, TypeError, OverflowError, pa.ArrowException)):
        rows_to_batch([{"x": 1, "y": 1}, row], schema)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"x": "no"}, "column x (int64): Could not convert 'no'"),
        ({"x": 1, "y": 1 << 70}, "column y (int64): "),
        ({"z": 1}, "no column of the schema is named z"),
        ((1, 2, 3), "a tuple of 3 is no row of the schema's 2 columns"),
        (5, "'int' is no row of the schema's 2 columns"),
        ({"y": 1}, "column x must not be null"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_the_column(row, reason):
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False), ("y", pa.int64())])
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(reason)}"):
        rows_to_batch([row], schema)


AT = datetime(2020, 1, 1, 5)
EAST = timezone(timedelta(hours=2))
PAIR = pa.struct([("a", pa.int64()), ("b", pa.int64())])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 1.5),
        (pa.int64(), Decimal("1.5")),
        (pa.decimal128(5, 2), Decimal("1e-77")),
        (pa.decimal128(38, 0), Decimal("1e-39")),  # and makes 0 of this one
        (pa.float32(), 1e300),
        (pa.float32(), 3.4028236e38),
        (pa.float64(), True),
        # Likely seconds, as of `time.time()`.
        (pa.timestamp("us"), 1577836800.5),
        (pa.timestamp("us", "UTC"), 1577836800.0),
        (pa.date32(), 1.5),
        (pa.time64("us"), 1.5),
        (pa.duration("us"), 1.5),
        (pa.duration("us"), Decimal("1.5")),
        # In a year of UTC of which Python would make no time again.
        (pa.timestamp("us", "UTC"), datetime.min.replace(tzinfo=EAST)),
        (pa.timestamp("us", "UTC"), datetime.max.replace(tzinfo=timezone(timedelta(hours=-2)))),
        (pa.date32(), AT),
        (pa.date64(), AT),
        (pa.time64("us"), time(1, tzinfo=timezone.utc)),
        (pa.timestamp("us"), AT.replace(tzinfo=EAST)),
        (pa.struct([("b", pa.int64())]), {"b": 1, "c": 2}),
        (pa.struct([("b", pa.int64())]), {"b": 1.5}),
        (pa.map_(pa.string(), pa.int64()), {"b": 1.5}),
        (pa.list_(pa.int64()), [1, 1.5]),
        (pa.dictionary(pa.int8(), pa.int64()), 1.5),
        (pa.float16(), 2049),
        (PAIR, Row(b=1, a=2)),
        (PAIR, namedtuple("Pair", "b a")(1, 2)),
        (pa.list_(PAIR), [Row(a=2, b=1), Row(b=1, a=2)]),
    ],
)
def test_a_value_that_a_column_would_change_is_refused(kind, value):
    schema = pa.schema([("x", kind)])
    with pytest.raises(ValueError, match=rf"^column x \({re.escape(str(kind))}\): .* would be ch"):
        rows_to_batch([{"x": None}, {"x": value}], schema)


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        (pa.int64(), 2.0, 2),
        (pa.float32(), 0.5, 0.5),
        (pa.float32(), 3.4028235e38, float.fromhex("0x1.fffffep+127")),
        (pa.float32(), float("inf"), float("inf")),
        (pa.timestamp("us"), 1_000_000, datetime(1970, 1, 1, 0, 0, 1)),
        (pa.timestamp("us", "UTC"), datetime.min, datetime.min.replace(tzinfo=timezone.utc)),
        (pa.date32(), datetime(2020, 1, 1), date(2020, 1, 1)),
        (pa.timestamp("ms"), AT.replace(microsecond=1999), AT.replace(microsecond=1000)),
        (pa.timestamp("us"), AT.replace(tzinfo=timezone.utc), AT),
        (pa.timestamp("us", "UTC"), AT, AT.replace(tzinfo=timezone.utc)),
        (pa.timestamp("us", "UTC"), AT.replace(tzinfo=EAST), AT.replace(tzinfo=EAST)),
        (pa.struct([("b", pa.int64())]), (1,), {"b": 1}),
        (PAIR, Row(a=2, b=1), {"a": 2, "b": 1}),
        (pa.float64(), pa.scalar(0.1), 0.1),
        (pa.float16(), 2048, 2048.0),
        (pa.map_(pa.string(), pa.int64()), {"b": 1}, [("b", 1)]),
        (pa.string(), b"a", "a"),
        (pa.decimal128(5, 2), Decimal("1.5"), Decimal("1.5")),
    ],
)
def test_a_declared_type_may_say_what_a_value_means(kind, value, kept):
    schema = pa.schema([("x", kind)])
    assert rows_to_batch([(value,), (None,)], schema).to_pylist() == [{"x": kept}, {"x": None}]


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array([AT]), pa.date32()),
        (pa.array([AT]), pa.time64("us")),
        (pa.array([5]), pa.bool_()),
        (pa.array([0.5]), pa.bool_()),
        (pa.array([{"a": 1, "b": 2}]), pa.struct([("a", pa.int64())])),
        (pa.array([[AT]]), pa.list_(pa.date32())),
        (
            pa.array([[("a", AT)]], pa.map_(pa.string(), pa.timestamp("us"))),
            pa.map_(pa.string(), pa.date32()),
        ),
        (pa.array([AT]).dictionary_encode(), pa.dictionary(pa.int8(), pa.date32())),
        (pa.array([1.0, None, 1e300]), pa.float32()),
        (pa.array([70000.0]), pa.float16()),
        (pa.array([2049]), pa.float16()),
        (pa.array([0.123]), pa.decimal128(5, 2)),
        (pa.array([[0.5], None, [1e300]]), pa.list_(pa.float32())),
        (pa.array([{"a": 1e300}]), pa.struct([("a", pa.float32())])),
        (
            pa.array([[("a", 1e300)]], pa.map_(pa.string(), pa.float64())),
            pa.map_(pa.string(), pa.float32()),
        ),
    ],
)
def test_a_column_that_a_cast_would_change_is_refused(column, wanted):
    batch = pa.RecordBatch.from_arrays([column], ["x"])
    with pytest.raises(ValueError, match=r"^column x .* loses something"):
        batch_to_schema(batch, pa.schema([("x", wanted)]))


def test_a_batch_takes_the_columns_of_a_declared_schema():
    schema = pa.schema([("x", pa.int32()), ("y", pa.string())])
    assert batch_to_schema(pa.RecordBatch.from_pydict({"x": [1, 2]}), schema).to_pylist() == [
        {"x": 1, "y": None},
        {"x": 2, "y": None},
    ]
    swapped = pa.RecordBatch.from_pydict({"y": ["a"], "x": [1]})
    assert batch_to_schema(swapped, schema).schema == schema
    for column, reason in [("z", "is named z"), ("x", "column x (int32): ")]:
        with pytest.raises(ValueError, match=re.escape(reason)):
            batch_to_schema(pa.RecordBatch.from_pydict({column: [1 << 40]}), schema)


def test_offsets_are_those_of_arrow(store):
    info = put(store, BlockKind.BINARY, [b"ab", b"", b"c"])
    with read_block(info, ACCESS) as block:
        assert np.frombuffer(block.offsets, np.int32).tolist() == [0, 2, 2, 3]
        assert bytes(block.data) == b"abc"


def test_a_memory_file_that_was_removed_is_mapped_no_longer_once_another_is_read(tmp_path):
    first, second = make_store(tmp_path), make_store(tmp_path)
    try:
        assert records_of(put(first, BlockKind.BINARY, [b"one"])) == [b"one"]
        gone = os.path.basename(first.memory_path)
        first.close()
        os.unlink(first.memory_path)
        assert records_of(put(second, BlockKind.BINARY, [b"two"])) == [b"two"]
        # The writer's own mapping ends with it.
        del first
        gc.collect()
        assert gone not in Path("/proc/self/maps").read_text()
        assert os.path.basename(second.memory_path) in Path("/proc/self/maps").read_text()
    finally:
        second.close()


def test_a_block_that_cannot_be_sealed_for_want_of_memory_can_be_sealed_later(store):
    """What is behind the data has its pages when the data come: sealing asks for none."""
    builder = store.open_block(BlockKind.PICKLED)
    builder.append(*join_binary([pickle_record(n) for n in range(10)]))
    pages = os.stat(store.memory_path).st_blocks
    block = builder.seal("input-3-1", 0.0)
    assert os.stat(store.memory_path).st_blocks == pages
    assert records_of(store.put(block)) == list(range(10))


def test_a_block_begins_behind_what_the_one_before_has_used_though_it_is_not_stored_yet(tmp_path):
    """Or it would reserve the whole of a largest block for each: memory, and the time it takes."""
    sizes = {"memory_bytes": 256 << 20, "block_max_bytes": 16 << 20}
    store = make_store(tmp_path, **sizes, log=LogOptions(segment_size=64 << 20))
    blocks = []
    for number in range(10):
        builder = store.open_block(BlockKind.BINARY)
        builder.append(*join_binary([b"%d" % number]))
        blocks.append(builder.seal(f"input-3-{number}", 0.0))
    assert os.stat(store.memory_path).st_blocks * 512 < 16 << 20
    stored = [store.put(block) for block in blocks]
    assert [records_of(info) for info in stored] == [[b"%d" % number] for number in range(10)]
    store.close()


def test_a_slots_pages_are_there_before_they_are_written_to(tmp_path):
    """So a memory file system that is full is an error, and never a SIGBUS."""
    sizes = {
        "memory_bytes": 24 << 20,
        "block_max_bytes": 8 << 20,
        "log": LogOptions(segment_size=32 << 20),
    }
    store = make_store(tmp_path, **sizes)
    builder = store.open_block(BlockKind.BINARY)
    builder.slot.grow_to(7 << 20)
    assert os.stat(store.memory_path).st_blocks * 512 >= 7 << 20
    store.close()


def test_after_a_batch_that_did_not_fit_a_block_takes_none_and_can_be_read(store):
    schema = pa.schema([("text", pa.string())])

    def rows(count: int, size: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"text": "x" * size}] * count, schema=schema)

    builder = store.open_block(BlockKind.ARROW, schema)
    assert builder.append_batch(rows(2, 10))
    assert not builder.append_batch(rows(1, OPTIONS.block_max_bytes))
    # Half of it is in the slot, behind what counts.
    assert not builder.append_batch(rows(1, 10))
    info = store.put(builder.seal("input-3-1", 0.0))
    with read_block(info, BlockAccess()) as block:
        assert list(block.records()) == [{"text": "x" * 10}] * 2


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array([0.1, None, float("inf"), float("nan")]), pa.float32()),
        (pa.array([0.1, -2.5, None]), pa.decimal128(5, 2)),
        (pa.array([2048, None]), pa.float16()),
        (pa.array([Decimal("1.55")]), pa.float64()),
        (pa.array([[0.1], None, []]).slice(1), pa.list_(pa.float32())),
        (pa.array([{"b": 1, "a": 0.1}]), pa.struct([("a", pa.float32()), ("b", pa.int8())])),
        (pa.array([0.5]).dictionary_encode(), pa.float32()),
        (
            pa.array([[("a", 1e300)], [("b", 0.5)]], pa.map_(pa.string(), pa.float64())).slice(1),
            pa.map_(pa.string(), pa.float32()),
        ),
    ],
)
def test_a_column_that_a_cast_keeps_is_taken(column, wanted):
    batch = pa.RecordBatch.from_arrays([column], ["x"])
    assert batch_to_schema(batch, pa.schema([("x", wanted)])).num_rows == len(column)


@pytest.mark.parametrize(
    ("error", "is_local", "is_lost"),
    [
        (FileNotFoundError(errno.ENOENT, "none"), True, True),
        (OSError(errno.EIO, "a sector that cannot be read"), True, True),
        (OSError(errno.EIO, "of a service that did not say more"), False, False),
        (PermissionError(errno.EACCES, "not yours"), True, False),
        (OSError(errno.EMFILE, "no descriptor"), True, False),
    ],
)
def test_a_block_is_lost_where_its_place_says_so(
    error: OSError, is_local: bool, is_lost: bool
) -> None:
    assert _is_lost(error, is_local=is_local) == is_lost
