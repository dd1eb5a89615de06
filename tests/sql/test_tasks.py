"""Blocks are packed in order into partitions of like bytes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from penstock.blockstore import BlockAccess
from penstock.sql import SourceError
from penstock.sql.source import _tasks
from penstock.sql.source._batch_reader import BatchReader
from penstock.sql.source._options import SourceOptions
from penstock.sql.source._reader import PlaceReader
from penstock.sql.source._tasks import _watermark_us, packed
from penstock.sql.source.data_source import StreamsReader
from penstock.wire.messages import ReceivedBlockInfo
from tests.tracker.ledger_cases import attempt_name, block

SERVERS = {"host": ("127.0.0.1", 1)}
MIB = 1 << 20


def sized(sizes: list[int]) -> list[ReceivedBlockInfo]:
    return [
        msgspec.structs.replace(block(0, attempt_name(1), n), num_bytes=size)
        for n, size in enumerate(sizes)
    ]


def sizes_of(sizes: list[int], *, least: int = 1, parallelism: int = 4) -> list[list[int]]:
    found = packed(
        sized(sizes),
        range(7, 7 + len(sizes)),
        [5] * len(sizes),
        SERVERS,
        min_partitions=least,
        parallelism=parallelism,
    )
    assert [place for part in found for place in part.places] == list(range(7, 7 + len(sizes)))
    assert all(len(part.blocks) == len(part.places) == len(part.added_ms) for part in found)
    return [[sizes[place - 7] for place in part.places] for part in found]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=st.lists(st.integers(0, 80 * MIB), max_size=60),
    least=st.integers(1, 20),
    parallelism=st.integers(1, 16),
)
def test_every_block_is_in_one_partition_in_order(
    sizes: list[int], least: int, parallelism: int
) -> None:
    found = sizes_of(sizes, least=least, parallelism=parallelism)
    assert [size for part in found for size in part] == sizes
    assert all(found)
    assert len(found) >= min(least, len(sizes))


@pytest.mark.parametrize(
    ("position", "expected_us"),
    [
        (None, None),
        (17, None),
        ({"offset": 17}, None),
        ({"watermark": None}, None),
        ({"watermark": 0}, 0),
        ({"offset": 17, "watermark": 1_700_000_000_000}, 1_700_000_000_000_000),
    ],
)
def test_a_position_may_state_a_watermark(position: Any, expected_us: int | None) -> None:
    assert _watermark_us(positioned(position), SourceOptions("clicks")) == expected_us


@pytest.mark.parametrize("stated", [True, 1.5, "2026-01-31", [1], 1 << 62])
def test_a_watermark_that_is_no_time_is_an_error_that_names_the_block(stated: Any) -> None:
    info = positioned({"watermark": stated})
    with pytest.raises(SourceError, match=f"block {info.block_id} .* milliseconds"):
        _watermark_us(info, SourceOptions("clicks"))


def positioned(position: Any) -> ReceivedBlockInfo:
    encoded = None if position is None else msgspec.msgpack.encode(position)
    return block(0, attempt_name(1), 1, position=encoded)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 30), max_size=4), max_size=60))
def test_small_batches_are_merged_while_their_blocks_are_open(blocks: list[list[int]]) -> None:
    opened: set[int] = set()
    most_open = 0
    found: list[list[int]] = []

    @contextmanager
    def block(number: int) -> Iterator[None]:
        opened.add(number)
        yield
        opened.remove(number)

    def look(batches: Iterator[pa.RecordBatch]) -> None:
        for batch in batches:
            rows = batch.column(0).to_pylist()
            # What it is made of is still open.
            assert set(rows) <= opened
            found.append(rows)

    with pytest.MonkeyPatch.context() as patch, _tasks._Merged() as merged:
        patch.setattr(_tasks, "_ROWS_PER_BATCH", 20)
        patch.setattr(_tasks, "_MERGED_BYTES", 200)
        patch.setattr(_tasks, "_MOST_OPEN", 5)
        for number, batches in enumerate(blocks):
            merged.open(block(number), 8 * sum(batches))
            most_open = max(most_open, len(opened))
            for rows in batches:
                arrays = [pa.array([number] * rows, pa.int64())]
                look(merged.add(pa.RecordBatch.from_arrays(arrays, ["n"])))
            look(merged.end_block())
        look(merged.flush())
        assert not opened
    assert [n for rows in found for n in rows] == [
        number for number, batches in enumerate(blocks) for rows in batches for _ in range(rows)
    ]
    assert most_open <= 5
    batches_of = [rows for batches in blocks for rows in batches]
    assert all(len(rows) <= max(20, *batches_of) for rows in found)
    # None has room in the one before, but where blocks were closed meanwhile.
    assert len(found) <= 1 + sum(batches_of) // 10 + len(blocks) // 5


def test_many_small_blocks_are_one_task() -> None:
    assert len(sizes_of([1000] * 500)) == 1


def test_a_large_batch_takes_all_slots_with_like_bytes() -> None:
    found = sizes_of([MIB] * 40, parallelism=4)
    assert [len(part) for part in found] == [10] * 4


def test_no_task_is_much_larger_than_is_good() -> None:
    found = sizes_of([MIB] * 1000, parallelism=4)
    assert max(map(sum, found)) <= 65 * MIB


def test_there_are_as_many_partitions_as_are_asked_for_and_not_more_than_blocks() -> None:
    assert len(sizes_of([1000] * 50, least=12)) == 12
    assert len(sizes_of([1000] * 5, least=12)) == 5


def test_a_task_begins_where_its_reader_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    # In `read` the worker would have waited for the partition already.
    begun: list[None] = []
    monkeypatch.setattr(_tasks, "begin_task", lambda: begun.append(None))
    options, columns = SourceOptions("clicks"), StructType()
    readers = (
        PlaceReader(BlockAccess(), options, columns),
        StreamsReader(BlockAccess(), options, columns),
        BatchReader(fail, BlockAccess(), options, columns),
    )
    assert not begun
    for number, reader in enumerate(readers, 1):
        again = pickle.loads(pickle.dumps(reader))
        assert len(begun) == number
        assert vars(again).keys() == vars(reader).keys()


def fail() -> Any:
    raise AssertionError("nobody asks in a task")
