"""Arrow batches of any types, and of sizes within bytes of a block's: what is stored comes back."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from penstock.blockstore import BlockAccess, BlockKind, BlockStore, read_block
from penstock.blockstore.arrow_frames import compacted
from penstock.blockstore.store import BlockStoreOptions
from penstock.receiver.blocks.assembler import BlockAssembler, RecordTooLargeError
from penstock.runtime.clock import ManualClock
from penstock.wal import LogOptions, SyncPolicy

BLOCK = 16 << 10


class Bench:
    """An assembler over a real block store; blocks are stored as they are sealed."""

    def __init__(self, folder: Path, schema: pa.Schema | None = None) -> None:
        self.folder = folder
        self.store = BlockStore(
            stream_id=0,
            attempt=uuid.uuid4().hex,
            host="here",
            log_folder=str(folder / uuid.uuid4().hex),
            options=BlockStoreOptions(
                memory_dir=str(folder),
                memory_bytes=64 * BLOCK,
                block_max_bytes=BLOCK,
                log=LogOptions(segment_size=1 << 20, sync=SyncPolicy.NONE),
            ),
        )
        self.sealed: list[tuple[BlockKind, list[pa.RecordBatch]]] = []
        self.discarded: list[BaseException] = []
        self.assembler = BlockAssembler(
            self.store,
            schema,
            block_id=lambda: f"input-0-{len(self.sealed) + 1}",
            clock=ManualClock(),
            sealed=self._keep,
            discard=lambda error, start: self.discarded.append(error) or start(),
            tell=lambda message, error: None,
            give_up=lambda: False,
        )

    def _keep(self, block: Any) -> None:
        info = self.store.put(block)
        with read_block(info, BlockAccess()) as found:
            batches = []
            for batch in found.batches():
                batch.validate(full=True)
                # A copy: what was read lies in the block's memory.
                batches.append(copied(batch))
            assert sum(batch.num_rows for batch in batches) == info.num_records
            self.sealed.append((found.kind, batches))
        self.store.release([block.block_id], [])

    def batches(self) -> list[pa.RecordBatch]:
        self.assembler.seal()
        return [batch for _, batches in self.sealed for batch in batches]

    def close(self) -> None:
        self.store.close()
        Path(self.store.memory_path).unlink()


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return next(iter(pa.ipc.open_stream(sink.getvalue())))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


class Celsius(pa.ExtensionType):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(pa.float64(), "penstock.test.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Celsius:
        return cls()


@pytest.fixture(autouse=True, scope="module")
def known_celsius() -> Iterator[None]:
    """Arrow reads a type that nobody registered as its storage."""
    pa.register_extension_type(Celsius())
    yield
    pa.unregister_extension_type("penstock.test.celsius")


texts = st.text(st.characters(max_codepoint=0x2FF, exclude_categories=("Cs",)), max_size=40)
leaves = st.sampled_from(
    [
        (pa.null(), st.none()),
        (pa.bool_(), st.booleans()),
        (pa.int8(), st.integers(-128, 127)),
        (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
        (pa.float64(), st.floats(allow_nan=False)),
        (pa.decimal128(20, 3), st.decimals(-10, 10, places=3)),
        (pa.date32(), st.dates()),
        (pa.timestamp("us", "UTC"), st.none()),
        (pa.binary(7), st.binary(min_size=7, max_size=7)),
        (pa.binary(), st.binary(max_size=40)),
        (pa.large_string(), texts),
        (pa.string(), texts),
        (pa.string_view(), texts),
        (pa.binary_view(), st.binary(max_size=40)),
        (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", "longer than twelve"])),
        (pa.dictionary(pa.int32(), pa.string()), texts),
        (pa.dictionary(pa.int16(), pa.int64()), st.integers(0, 9)),
    ]
)


def nested(inner: Any) -> Any:
    return inner.flatmap(
        lambda found: st.sampled_from(
            [
                (pa.list_(found[0]), st.lists(found[1], max_size=3)),
                (pa.large_list(found[0]), st.lists(found[1], max_size=3)),
                (pa.list_view(found[0]), st.lists(found[1], max_size=3)),
                (pa.list_(found[0], 2), st.lists(found[1], min_size=2, max_size=2)),
                (pa.struct([("a", found[0])]), st.fixed_dictionaries({"a": found[1]})),
                (pa.struct([]), st.just({})),
                (
                    pa.map_(pa.string(), found[0]),
                    st.lists(st.tuples(st.text("xyz", max_size=3), found[1]), max_size=2),
                ),
            ]
        )
    )


kinds = st.recursive(leaves, nested, max_leaves=3)


@st.composite
def columns(draw: Any, rows: int, kind: Any) -> pa.Array:
    arrow, values = kind
    found = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
    made = pa.array(found, arrow)
    try:
        made.validate(full=True)
    except pa.ArrowInvalid:
        # Of nulls alone in a struct Arrow makes indices into an empty dictionary.
        reject()
    return made


def as_union(array: pa.Array, dense: bool) -> pa.Array:
    if dense:
        order = pa.array(range(len(array)), pa.int32())
        return pa.UnionArray.from_dense(pa.array([0] * len(array), pa.int8()), order, [array])
    return pa.UnionArray.from_sparse(pa.array([0] * len(array), pa.int8()), [array])


wrappers = st.sampled_from(["plain", "dense", "sparse", "runs", "extension"])


def wrapped(how: str, array: pa.Array) -> pa.Array:
    if how == "dense":
        return as_union(array, True)
    if how == "sparse":
        return as_union(array, False)
    if how == "runs" and array.type in (pa.string(), pa.int64(), pa.bool_()):
        return pc.run_end_encode(array)
    if how == "extension" and array.type == pa.float64():
        return pa.ExtensionArray.from_storage(Celsius(), array)
    return array


@st.composite
def streams_of_batches(draw: Any) -> list[pa.RecordBatch]:
    """Batches of one schema, some of them cut from larger ones, their values differing."""
    shapes = draw(st.lists(st.tuples(kinds, wrappers), max_size=4))
    found = []
    for rows in draw(st.lists(st.integers(0, 30), min_size=1, max_size=4)):
        if not shapes:
            struct = pa.array([{}] * rows, pa.struct([]))
            batch = pa.RecordBatch.from_struct_array(struct)
        else:
            arrays = [wrapped(how, draw(columns(rows, kind))) for kind, how in shapes]
            batch = pa.RecordBatch.from_arrays(arrays, [f"c{n}" for n in range(len(arrays))])
        start = draw(st.integers(0, rows))
        found += [batch] * draw(st.integers(1, 6)) + [batch.slice(start)]
    return found


@given(batches=streams_of_batches(), together=st.booleans())
@settings(max_examples=60, deadline=None)
def test_batches_of_any_types_come_back_equal_and_in_order_I5(tmp_path_factory, batches, together):
    bench = Bench(tmp_path_factory.mktemp("bench"))
    try:
        if together:
            bench.assembler.append_together(batches[:3])
            batches = batches[:3]
        else:
            for batch in batches:
                if batch.num_rows:
                    bench.assembler.append_batch(batch)
        stored = bench.batches()
        assert bench.discarded == []
        rows = [row for batch in stored for row in batch.to_pylist()]
        assert rows == [row for batch in batches for row in batch.to_pylist()]
        assert all(batch.schema == batches[0].schema for batch in stored)
    finally:
        bench.close()


def of_size(size: int) -> pa.RecordBatch:
    """A batch of one row whose message is as large as asked for, to the padding of Arrow."""
    return pa.record_batch({"data": [b"x" * size]})


@given(
    st.lists(st.integers(BLOCK - 1200, BLOCK + 200) | st.integers(0, 2000), min_size=1, max_size=8),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_within_bytes_of_a_block_a_batch_is_stored_or_discarded_and_told_I11(
    tmp_path_factory, sizes, categorical
):
    bench = Bench(tmp_path_factory.mktemp("bench"))
    try:
        batches = [of_size(size) for size in sizes]
        if categorical:
            batches = [
                pa.RecordBatch.from_arrays([b.column(0).dictionary_encode()], ["data"])
                for b in batches
            ]
        kept = []
        for size, batch in zip(sizes, batches, strict=True):
            before = len(bench.discarded)
            bench.assembler.append_batch(batch)
            if len(bench.discarded) == before:
                kept.append(size)
        assert [len(row["data"]) for b in bench.batches() for row in b.to_pylist()] == kept
        assert all(isinstance(error, RecordTooLargeError) for error in bench.discarded)
        assert set(sizes) - set(kept) <= set(range(BLOCK - 1200, BLOCK + 201))
    finally:
        bench.close()


def test_dictionaries_that_end_a_block_are_stored_in_the_next_one(bench: Bench) -> None:
    """Each batch brings a dictionary of its own, which Arrow counts in no size of a batch."""
    batches = []
    for number in range(40):
        values = [f"value {number} {n} of the dictionary" for n in range(60)]
        batches.append(pa.RecordBatch.from_arrays([pa.array(values).dictionary_encode()], ["name"]))
    for batch in batches:
        bench.assembler.append_batch(batch)
    assert [b.to_pylist() for b in bench.batches()] == [b.to_pylist() for b in batches]
    assert len(bench.sealed) > 5
    assert bench.discarded == []


def test_a_first_batch_that_is_too_large_leaves_the_block_to_the_next(bench: Bench) -> None:
    wide = pa.record_batch({f"c{n}": [n] for n in range(400)})
    bench.assembler.append_batch(wide)
    assert isinstance(bench.discarded[0], RecordTooLargeError)
    small = pa.record_batch({"n": [1, 2]})
    bench.assembler.append_batch(small)
    assert bench.batches() == [small]


def test_a_batch_that_arrow_cannot_write_leaves_nothing(bench: Bench) -> None:
    good = pa.record_batch({"n": [1, 2]})
    bench.assembler.append_batch(good)
    type_ids = pa.array([0, 0], pa.int8())
    bad = pa.RecordBatch.from_arrays(
        [pa.array([3, 4]), pa.UnionArray.from_sparse(type_ids, [pa.array([1, 2])])], ["n", "u"]
    )
    builder = bench.assembler._open
    assert builder is not None
    with pytest.raises(pa.ArrowInvalid):
        builder.append_batch(bad)
    bench.assembler.append_batch(good)
    assert bench.batches() == [good, good]


def test_a_compacted_column_is_never_one_that_arrow_calls_invalid() -> None:
    kind = pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))])
    column = pa.StructArray.from_arrays(
        [pa.array(["x", "x", "y"]).dictionary_encode().cast(kind.field("a").type)],
        fields=[kind.field("a")],
        mask=pa.array([True, True, False]),
    )
    nulls = pa.RecordBatch.from_arrays([column], ["c"]).slice(0, 2)
    small = compacted(nulls)
    small.validate(full=True)
    assert small.to_pylist() == nulls.to_pylist()


def test_an_empty_block_of_batches_can_carry_a_position(bench: Bench) -> None:
    bench.assembler.append_batch(pa.record_batch({"data": [b"x" * 2 * BLOCK]}))
    bench.assembler.mark(b"\x01", None)
    assert [batch.num_rows for batch in bench.batches()] == [0]


@pytest.mark.parametrize(
    "kind",
    [pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.string_view())],
    ids=str,
)
def test_rows_of_a_column_that_shares_its_values_are_cut_with_what_they_need(
    bench: Bench, kind: pa.DataType
) -> None:
    values = [f"a value that is shared by all rows {n}" for n in range(4000)]
    rows = [[value] for value in values] if pa.types.is_list(kind) else values
    batch = pa.RecordBatch.from_arrays([pa.array(rows, kind)], ["name"])
    bench.assembler.append_batch(batch)
    assert [row["name"] for b in bench.batches() for row in b.to_pylist()] == rows
    assert len(bench.sealed) < 40
