"""Which of the blocks in a program's logs are read again: segment by segment, without Spark."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.__main__ import main
from penstock.replay import HistoryError, ReplayReceiver, cli
from penstock.replay._history import History, Window, blocks_of
from penstock.replay._read import first_schema, tables
from penstock.wal import LogReader, segment_path
from tests.replay.stored import BEGIN_MS, Stored


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Stored]:
    made = Stored(tmp_path)
    yield made
    made.close()


def segments(stored: Stored) -> Any:
    return History(str(stored.folder)).segments(0)


def records(stored: Stored, start_ms: int = 0, end_ms: int | None = None) -> list[bytes]:
    window = Window(start_ms, end_ms)
    return [
        record
        for segment in segments(stored)
        for _, block in blocks_of(segment, window, None)
        for record in block.records()
    ]


def replayed(stored: Stored, position: Any = None) -> list[tuple[list[bytes], Any]]:
    context: Any = SimpleNamespace(last_position=position, stopped=threading.Event())
    return list(ReplayReceiver(stored.folder, 0).run(context))


def test_a_block_of_the_millisecond_in_which_the_next_segment_began_is_of_one_window(
    stored: Stored,
) -> None:
    stored.put(b"1")
    at_ms = BEGIN_MS + 1000
    stored.put(b"2", sealed_ms=at_ms)
    stored.begin_segment()
    stored.put(b"3")
    assert len(segments(stored)) == 2
    assert records(stored, end_ms=at_ms) == [b"1"]
    assert records(stored, start_ms=at_ms) == [b"2", b"3"]
    assert records(stored, start_ms=at_ms + 1) == []


def test_a_block_that_waited_for_the_log_is_of_the_time_at_which_it_was_sealed(
    stored: Stored,
) -> None:
    stored.put(b"1")
    stored.begin_segment(60_000)
    stored.put(b"2", sealed_ms=BEGIN_MS + 1)
    stored.put(b"3")
    assert records(stored, end_ms=BEGIN_MS + 2) == [b"1", b"2"]
    assert records(stored, start_ms=BEGIN_MS + 2) == [b"3"]


def test_a_segment_behind_which_the_clock_was_set_back_is_read(stored: Stored) -> None:
    hour_ms = 3_600_000
    stored.clock.set_wall_time(3 * hour_ms)
    stored.begin_attempt()
    stored.put(b"1")
    stored.begin_segment()
    stored.clock.set_wall_time(hour_ms)
    stored.put(b"2")
    assert len(segments(stored)) == 2
    assert records(stored, start_ms=2 * hour_ms) == [b"1"]
    assert records(stored, end_ms=2 * hour_ms) == [b"2"]


def test_blocks_without_a_time_are_of_the_window_with_their_segment(stored: Stored) -> None:
    for number in range(3):
        stored.put(b"%d" % number, b"%d" % number, sealed_ms=0)
        stored.begin_segment()
    both = [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert records(stored) == both
    assert records(stored, start_ms=BEGIN_MS + 1500) == both[2:]
    assert records(stored, end_ms=BEGIN_MS + 1500) == both[:4]


@pytest.mark.parametrize("damage", ["it is gone", "it is torn", "it is another"])
def test_what_is_damaged_at_the_end_of_a_segment_is_not_taken_for_its_end(
    stored: Stored, damage: str
) -> None:
    for number in range(3):
        stored.put(b"record %d" % number)
    (segment,) = segments(stored)
    stored.close()
    last = list(LogReader.open(segment.folder).records())[-1].place
    path = Path(segment_path(segment.folder, segment.number))
    data = path.read_bytes()
    if damage == "it is another":
        path.write_bytes(data.replace(b"record 2", b"RECORD 2"))
    else:
        os.truncate(path, last.offset + (last.length // 2 if damage == "it is torn" else 0))
    found = (
        record for _, block in blocks_of(segment, Window(), None) for record in block.records()
    )
    assert [next(found), next(found)] == [b"record 0", b"record 1"]
    with pytest.raises(HistoryError, match=f"segment {segment.number}, .* cannot be read here"):
        next(found)


class TestReplay:
    @pytest.mark.parametrize("piece_bytes", [1 << 20, 10, 1])
    def test_all_attempts_are_read_and_it_goes_on_in_the_one_where_it_was_to_the_record(
        self, stored: Stored, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
    ) -> None:
        monkeypatch.setattr("penstock.replay._receiver._PIECE_BYTES", piece_bytes)
        records = [b"%d%d%d%d" % (n // 18, n // 9 % 2, n // 3 % 3, n % 3) for n in range(54)]
        # Of each of three attempts two segments with three blocks of three records.
        for number in range(18):
            if number and not number % 6:
                stored.begin_attempt()
            elif number and not number % 3:
                stored.begin_segment()
            stored.put(*records[3 * number :][:3])
        assert len(segments(stored)) == 6
        pieces = replayed(stored)
        assert len(pieces) == {1 << 20: 18, 10: 36, 1: 54}[piece_bytes]
        assert [record for piece, _ in pieces for record in piece] == records
        done = 0
        for piece, position in pieces:
            done += len(piece)
            left = [record for piece, _ in replayed(stored, position) for record in piece]
            assert left == records[done:]


class TestColumns:
    def test_that_they_changed_is_told_and_each_part_is_read_by_its_times(
        self, stored: Stored
    ) -> None:
        batches = [
            pa.record_batch({"n": pa.array([1], pa.int64()), "m": pa.array([2], pa.int64())}),
            pa.record_batch({"n": pa.array([3], pa.int64()), "m": pa.array(["x"])}),
            pa.record_batch({"m": pa.array([4], pa.int64()), "n": pa.array([5], pa.int64())}),
        ]
        for batch in batches:
            stored.put_rows(batch)
            stored.begin_segment()
        made = segments(stored)
        schema = first_schema(made, Window(), None)
        assert schema == batches[0].schema
        assert list(tables(made[0], Window(), None, schema)) == batches[:1]
        for segment, named in zip(made[1:], ("n int64, m string", "m int64, n int64"), strict=True):
            told = f"segment {segment.number} on the columns are others: {named}, and not n int64"
            with pytest.raises(HistoryError, match=told):
                list(tables(segment, Window(), None, schema))
        for number, batch in enumerate(batches):
            begin_ms = BEGIN_MS + 1000 * number
            window = Window(begin_ms, begin_ms + 1000)
            found = [
                each for segment in made for each in tables(segment, window, None, batch.schema)
            ]
            assert found == [batch]

    def test_a_large_batch_comes_in_parts_and_a_block_without_records_not_at_all(
        self, stored: Stored, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("penstock.replay._read._ROWS_PER_BATCH", 3)
        batch = pa.record_batch({"n": list(range(8))})
        # A block that carries only a position has no columns.
        stored.put()
        stored.put_rows(batch)
        stored.put()
        (segment,) = segments(stored)
        assert first_schema([segment], Window(), None) == batch.schema
        found = list(tables(segment, Window(), None, batch.schema))
        assert [each["n"].to_pylist() for each in found] == [[0, 1, 2], [3, 4, 5], [6, 7]]

    def test_the_parts_of_a_parquet_file_have_each_record_once(
        self, stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cli, "_POOL_ROWS", 2)
        for number in range(5):
            stored.put(b"%d" % number)
        output = tmp_path / "records"
        command = ["replay", str(stored.folder), "--stream", "0", "--format", "parquet"]
        assert main([*command, "--output", str(output)]) == 0
        assert pq.ParquetFile(output).num_row_groups == 3
        assert pq.read_table(output)["value"].to_pylist() == [b"%d" % n for n in range(5)]
