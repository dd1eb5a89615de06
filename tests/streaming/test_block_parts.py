"""Large blocks are cut for shuffles: all cores are busy, and every record counts once."""

from __future__ import annotations

import operator
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import TaskContext

from penstock.blockstore import Block, BlockAccess, BlockKind, BlockRDD, BlockStore
from penstock.blockstore.building.builder import join_binary
from penstock.blockstore.building.record_pickles import pickle_record
from penstock.blockstore.reading import dataframe
from penstock.streaming.dstream.derived_streams import union_of
from tests.streaming.batches import batches, stored

LINES = [b"line %d" % number for number in range(2000)]


def lines_block(lines: list[bytes]) -> Block:
    data = b"".join(line + b"\n" for line in lines)
    return Block(BlockKind.LINES, len(lines), memoryview(data), memoryview(b""))


def binary_block(records: list[bytes]) -> Block:
    ends = [0]
    for record in records:
        ends.append(ends[-1] + len(record))
    offsets = b"".join(end.to_bytes(4, "little") for end in ends)
    data = memoryview(b"".join(records))
    return Block(BlockKind.BINARY, len(records), data, memoryview(offsets))


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=6).map(lambda record: record.replace(b"\n", b"")), max_size=20),
    st.integers(1, 9),
    st.sampled_from([lines_block, binary_block]),
)
def test_the_parts_of_a_block_have_its_records_in_order(
    records: list[bytes], parts: int, make: Any
) -> None:
    block = make(records)
    cut = [block.part(number, parts) for number in range(parts)]
    assert [record for part in cut for record in part.records()] == list(block.records())
    assert [part.num_records for part in cut] == [len(list(part.records())) for part in cut]


def test_a_part_of_a_block_of_pickles_has_the_definitions_that_they_name() -> None:
    block = binary_block([b"one", b"two"])
    pickles = Block(BlockKind.PICKLED, 2, block.data, block.offsets, memoryview(b"definitions"))
    assert [bytes(pickles.part(number, 2).definitions) for number in (0, 1)] == [b"definitions"] * 2


@pytest.mark.slow
def test_a_large_block_is_read_by_several_tasks_where_nobody_sees_it(
    sc: Any, store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataframe, "_LEAST_PART_BYTES", 1 << 10)
    infos = [stored(store, "input-0-0", LINES), stored(store, "input-0-1", [b"a", b"b"])]
    whole = BlockRDD(sc, infos, BlockAccess())
    lines = [line.decode() for line in LINES] + ["a", "b"]
    assert whole.glom().map(len).collect() == [2000, 2]
    assert whole.in_parts().collect() == lines
    assert whole.in_parts().getNumPartitions() > 3
    # Each part reads all of its block: more cores do not make ever more of them.
    with monkeypatch.context() as many_cores:
        many_cores.setattr(dataframe, "_TASKS_OF_CORE", 100)
        assert whole.in_parts().getNumPartitions() == 8 + 1
    elsewhere = [
        msgspec.structs.replace(info, host=host)
        for info, host in zip(infos, ("host1", "host2"), strict=True)
    ]
    placed: Any = BlockRDD(sc, elsewhere, BlockAccess()).in_parts()
    java_rdd = placed._prev_jrdd.rdd()
    hosts = [java_rdd.preferredLocations(part).mkString(" ") for part in java_rdd.partitions()]
    assert hosts == ["host1"] * (len(hosts) - 1) + ["host2"]
    assert len(hosts) > 3
    # A block that may be left out is left out whole.
    assert BlockRDD(sc, infos, BlockAccess(skip_after=2)).in_parts().getNumPartitions() == 2

    def task(_: Any) -> tuple[int, int]:
        return (TaskContext.get().partitionId(), 1)  # type: ignore[union-attr]

    with batches(sc) as run:
        stream = run.ssc.queueStream([whole])
        cut = run.collect(stream.map(task).reduceByKey(operator.add, 1))
        uncut = run.collect(
            stream.mapPartitions(lambda it: map(task, it)).reduceByKey(operator.add, 1)
        )
        mixed = run.collect(
            stream.map(len).mapPartitions(lambda it: map(task, it)).reduceByKey(operator.add, 1)
        )
        letters = run.collect(stream.mapOrDeadLetter(task).reduceByKey(operator.add, 1))
        counted = run.collect(stream.arrow.split(" ").value_counts(numPartitions=1))
        reduced = run.collect(stream.map(len).reduce(operator.add))
        run.run(1)
    assert len(cut[0]) > 3
    assert sum(number for _, number in cut[0]) == len(lines)
    assert dict(uncut[0]) == dict(mixed[0]) == dict(letters[0]) == {0: 2000, 1: 2}
    assert dict(counted[0]) == {"line": 2000, "a": 1, "b": 1} | {
        str(number): 1 for number in range(2000)
    }
    assert reduced[0] == [sum(map(len, lines))]


@pytest.mark.long
@pytest.mark.slow
def test_blocks_of_any_kind_count_once_and_what_is_cached_is_read_from_there(
    sc: Any, store: BlockStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataframe, "_LEAST_PART_BYTES", 1 << 10)
    cached = BlockRDD(sc, [stored(store, "input-0-0", LINES)], BlockAccess()).cache()
    rows = pa.RecordBatch.from_pydict({"value": [f"row {number}" for number in range(2000)]})
    builder = store.open_block(BlockKind.ARROW, rows.schema)
    assert builder.append_batch(rows)
    batch = BlockRDD(sc, [store.put(builder.seal("input-0-1", 0.0))], BlockAccess())

    builder = store.open_block(BlockKind.PICKLED)
    pickled, lengths = join_binary([pickle_record(f"row {number}") for number in range(2000)])
    # A block brings the definitions of its process along, which other tests may have made.
    assert builder.room(len(lengths)) >= len(pickled)
    builder.append(pickled, lengths)
    pickles = BlockRDD(sc, [store.put(builder.seal("input-0-2", 0.0))], BlockAccess())

    def counts(of: BlockRDD, word: str) -> tuple[int, int]:
        with batches(sc) as run:
            stream = run.ssc.queueStream([of])
            reduced = run.collect(stream.map(len).map(lambda _: 1).reduce(operator.add))
            counted = run.collect(stream.arrow.split(" ").value_counts(numPartitions=1))
            run.run(1)
        return reduced[0][0], dict(counted[0])[word]

    assert counts(batch, "row") == counts(pickles, "row") == (2000, 2000)
    assert cached.count() == 2000
    store.close()
    shutil.rmtree(tmp_path)
    assert counts(cached, "line") == (2000, 2000)


# -- small blocks ----------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from("ab")), max_size=40),
    st.integers(1, 8),
    st.integers(0, 60),
)
def test_small_blocks_are_packed_in_order_by_host_and_up_to_a_size(
    blocks: list[tuple[int, str]], tasks: int, most_bytes: int
) -> None:
    sizes, hosts = [size for size, _ in blocks], [host for _, host in blocks]
    runs = dataframe.pack(sizes, hosts, tasks, most_bytes)
    assert [at for run in runs for at in range(len(blocks))[run]] == list(range(len(blocks)))
    for run in runs:
        assert len(set(hosts[run])) == 1
        assert len(sizes[run]) == 1 or sum(sizes[run]) <= most_bytes + max(sizes)


def test_many_small_blocks_have_about_as_many_tasks_as_run_at_a_time() -> None:
    assert len(dataframe.pack([1000] * 10_000, ["a"] * 10_000, 2, 8 << 20)) == 2
    assert len(dataframe.pack([0] * 100, ["a"] * 100, 4, 8 << 20)) == 4
    assert 60 < len(dataframe.pack([5 << 20] * 100, ["a"] * 100, 4, 8 << 20)) < 100
    assert len(dataframe.pack([8 << 20] * 100, ["a"] * 100, 4, 8 << 20)) == 100
    assert len(dataframe.pack([1000] * 100, ["a"] * 100, 2, 0)) == 100


@pytest.mark.slow
def test_packed_blocks_give_their_records_in_order_and_dead_letters_the_same_names(
    sc: Any, store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    infos = [stored(store, f"input-0-{at}", [b"%d a" % at, b"%d b" % at]) for at in range(40)]
    records = [f"{at} {letter}" for at in range(40) for letter in "ab"]
    packed = BlockRDD(sc, infos, BlockAccess(), 8 << 20)
    assert packed.getNumPartitions() == sc.defaultParallelism < 40
    assert packed.collect() == records
    assert packed.count() == 80
    assert packed.map_parts(lambda block: iter([block.num_records])).collect() == [2] * 40
    assert BlockRDD(sc, infos, BlockAccess()).getNumPartitions() == 40
    # A large one among them is cut, and the small ones are packed all the same.
    monkeypatch.setattr(dataframe, "_LEAST_PART_BYTES", 1 << 10)
    mixed = BlockRDD(sc, [*infos, stored(store, "input-0-40", LINES)], BlockAccess(), 8 << 20)
    assert mixed.in_parts().collect() == records + [line.decode() for line in LINES]
    assert 3 < mixed.in_parts().getNumPartitions() <= 8
    elsewhere = [
        msgspec.structs.replace(info, host=f"host{at // 20}") for at, info in enumerate(infos)
    ]
    placed: Any = BlockRDD(sc, elsewhere, BlockAccess(), 8 << 20)
    java_rdd = placed._prev_jrdd.rdd()
    hosts = [java_rdd.preferredLocations(part).mkString(" ") for part in java_rdd.partitions()]
    assert sorted(set(hosts)) == ["host0", "host1"]
    assert len(hosts) < 40

    def task(_: Any) -> tuple[int, int]:
        return (TaskContext.get().partitionId(), 1)  # type: ignore[union-attr]

    with batches(sc) as run:
        stream = run.ssc.queueStream([packed])
        tasks = run.collect(stream.map(task).reduceByKey(operator.add, 1))
        letters = run.collect(stream.mapOrDeadLetter(task).reduceByKey(operator.add, 1))
        run.run(1)
    assert len(tasks[0]) == sc.defaultParallelism
    # Named by block and place, whatever cores there are when a later run makes the batch again.
    assert dict(letters[0]) == dict.fromkeys(range(40), 2)


@pytest.mark.slow
def test_united_blocks_of_many_streams_are_packed_together_in_their_order(
    sc: Any, store: BlockStore
) -> None:
    streams = [
        [stored(store, f"input-{stream}-{at}", [b"%d %d" % (stream, at)]) for at in range(3)]
        for stream in range(20)
    ]
    batches = [BlockRDD(sc, infos, BlockAccess(), 8 << 20) for infos in streams]
    records = [f"{stream} {at}" for stream in range(20) for at in range(3)]
    united: Any = union_of(sc, batches)
    assert united.getNumPartitions() == sc.defaultParallelism
    assert united.collect() == records
    assert united.count() == 60
    assert united.map(str.upper).collect() == records
    # Each is there by itself, too.
    assert batches[1].map(str.split).collect() == [["1", str(at)] for at in range(3)]
    # What Spark keeps, or what was made of blocks, is united as ever.
    batches[0].cache()
    assert union_of(sc, batches).collect() == records
    assert union_of(sc, [batches[1], batches[2].map(str)]).collect() == records[3:9]
