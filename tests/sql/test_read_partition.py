"""What a task gives Spark of its partition, from real blocks and without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from penstock.blockstore import BlockKind, BlockStore, read_block
from penstock.sql import SourceError
from penstock.sql.source import _tasks
from penstock.sql.source._options import METADATA_COLUMNS, SourceOptions
from penstock.sql.source._tasks import packed, read_partition
from penstock.wire.messages import ReceivedBlockInfo
from tests.blockstore.test_blocks import ACCESS, make_store, put

VALUE = StructType([StructField("value", StringType())])
METADATA = StructType(
    [
        *VALUE,
        StructField("_stream", StringType(), nullable=False),
        StructField("_place", LongType(), nullable=False),
        StructField("_received_at", TimestampType(), nullable=False),
        StructField("_position", StringType()),
        StructField("_watermark", TimestampType()),
    ]
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockStore]:
    store = make_store(tmp_path)
    yield store
    store.close()


def batches(
    infos: list[ReceivedBlockInfo],
    schema: StructType = VALUE,
    names: dict[int, str] | None = None,
    **options: Any,
) -> Iterator[pa.RecordBatch]:
    times = [1000 * number for number in range(1, 1 + len(infos))]
    (part,) = packed(
        infos,
        range(7, 7 + len(infos)),
        times,
        {},
        min_partitions=1,
        parallelism=1,
        names=names or {},
    )
    return read_partition(part, ACCESS, SourceOptions("clicks", **options), schema)


def rows(*of: Any, **options: Any) -> list[dict[str, Any]]:
    return [row for batch in batches(*of, **options) for row in batch.to_pylist()]


def test_records_come_in_order_each_with_the_facts_of_its_block(store: BlockStore) -> None:
    first = put(store, BlockKind.STRING, ["a", "b"], 1)
    position = msgspec.msgpack.encode({"day": 3, "watermark": 5000})
    second = msgspec.structs.replace(put(store, BlockKind.STRING, ["c"], 2), position=position)
    # It holds nothing but a position, which has no columns.
    empty = msgspec.structs.replace(first, num_records=0, kind="", memory=None, segment=None)

    def at(ms: int) -> datetime:
        return datetime.fromtimestamp(ms / 1000, timezone.utc)

    def row(value: str, place: int, position: str | None, watermark: datetime | None) -> Any:
        facts = ("clicks", place, at(1000 * (place - 6)), position, watermark)
        return {"value": value, **dict(zip(METADATA_COLUMNS, facts, strict=True))}

    assert rows([first, empty, second], METADATA, metadata=METADATA_COLUMNS) == [
        row("a", 7, None, None),
        row("b", 7, None, None),
        row("c", 9, '{"day":3,"watermark":5000}', at(5000)),
    ]
    wanted = StructType([VALUE[0], METADATA[2]])
    assert rows([first, second], wanted, metadata=("_place",)) == [
        {"value": "a", "_place": 7},
        {"value": "b", "_place": 7},
        {"value": "c", "_place": 8},
    ]


def test_a_block_of_several_streams_names_its_own(store: BlockStore) -> None:
    mine = put(store, BlockKind.STRING, ["a"], 1)
    other = msgspec.structs.replace(put(store, BlockKind.STRING, ["b"], 2), stream_id=5)
    wanted = StructType([VALUE[0], METADATA[1]])
    names = {3: "clicks", 5: "views"}
    assert rows([mine, other, mine], wanted, names, metadata=("_stream",)) == [
        {"value": "a", "_stream": "clicks"},
        {"value": "b", "_stream": "views"},
        {"value": "a", "_stream": "clicks"},
    ]


def test_what_has_no_columns_or_others_is_an_error_that_names_the_block(store: BlockStore) -> None:
    pickled = put(store, BlockKind.PICKLED, [b"\x80\x04N."], 1)
    with pytest.raises(SourceError, match=f"{pickled.block_id} of stream 'clicks' holds pickled"):
        rows([pickled])
    text = put(store, BlockKind.STRING, ["a"], 2)
    for other in (StructField("name", StringType()), StructField("value", LongType())):
        with pytest.raises(SourceError, match=f"{text.block_id} .* other columns .* the place 7,"):
            rows([text], StructType([other]))


def test_a_block_that_is_lost_is_named_by_its_place(store: BlockStore) -> None:
    there = put(store, BlockKind.STRING, ["a"], 1)
    lost = msgspec.structs.replace(there, memory=None, segment=None)
    for fails in (True, False):
        # Without a task there is no last try, after which it is left out.
        with pytest.raises(SourceError, match="place 8 of stream 'clicks' is lost"):
            rows([there, lost], fails_on_loss=fails)


def test_few_blocks_are_open_at_a_time_and_all_are_read(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tasks, "_MOST_OPEN", 8)
    monkeypatch.setattr(_tasks, "_MERGED_BYTES", 1500)  # More than so many blocks have.
    lines = [[b"%d of %d" % (line, number) for line in range(3)] for number in range(50)]

    def stored(number: int) -> ReceivedBlockInfo:
        builder = store.open_block(BlockKind.LINES)
        builder.append_lines(b"".join(line + b"\n" for line in lines[number]), len(lines[number]))
        return store.put(builder.seal(f"input-3-{number}", 0.0))

    def times_open() -> int:
        descriptors = Path("/proc/self/fd").iterdir()
        return sum(os.path.realpath(fd) == store.memory_path for fd in descriptors)

    infos = [stored(number) for number in range(50)]
    with read_block(infos[0], ACCESS):
        pass  # From now on this process has the memory mapped.
    before = times_open()
    most = count = 0
    found = []
    for batch in batches(infos, StructType([VALUE[0], METADATA[2]]), metadata=("_place",)):
        most = max(most, times_open() - before)
        count += 1
        found += list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    assert times_open() == before
    assert found == [
        (line.decode(), 7 + number) for number, of_block in enumerate(lines) for line in of_block
    ]
    assert most == 8
    assert count == 7
