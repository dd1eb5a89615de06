"""Operations on columns give what the same operations on Python objects give."""

from __future__ import annotations

import re
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timezone
from decimal import Context, Decimal, localcontext
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row

from penstock.blockstore import Block, BlockAccess, BlockKind, BlockRDD, BlockStore
from penstock.streaming import StreamingContext
from penstock.streaming.kernels import arrow
from penstock.streaming.kernels.arrow import (
    BatchesOfRecords,
    CountValues,
    MapBatches,
    SplitColumn,
    SumValues,
    batches_of,
    count_parts,
    records_of,
    split_records,
)
from penstock.streaming.kernels.combine import EXACT_ADDITION
from tests.streaming.batches import stored

SEPARATORS = [" ", ",", "\n", "ab", ", ", "ü"]
TYPES = [
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.string_view(),
]
texts = st.lists(
    st.none()
    | st.lists(st.sampled_from([*SEPARATORS, "a", "word", "日本"]), max_size=6).map("".join),
    max_size=20,
)


def batch_of(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(c) for c in columns.values()], list(columns))


def values(batches: Iterable[pa.RecordBatch]) -> list[Any]:
    return list(records_of(0, batches))


@settings(deadline=None)
@given(texts, st.sampled_from(TYPES), st.sampled_from(SEPARATORS), st.integers(0, 5))
def test_parts_are_those_of_python(
    found: list[str | None], kind: pa.DataType, separator: str, start: int
) -> None:
    is_text = kind not in (pa.binary(), pa.large_binary())
    column = pa.array(
        [text if text is None or is_text else text.encode() for text in found],
        kind if is_text or kind == pa.binary() else pa.large_binary(),
    )
    batch = pa.RecordBatch.from_arrays([column], ["line"]).slice(start)
    parts = values(SplitColumn("line", separator)(0, [batch, batch]))
    wanted = [part for text in found[start:] if text is not None for part in text.split(separator)]
    assert parts == 2 * (wanted if is_text else [part.encode() for part in wanted])


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("has_null", [False, True])
def test_parts_of_a_slice_are_those_of_its_own_rows(
    kind: pa.DataType, separator: str, has_null: bool
) -> None:
    lines = [f"{number}{separator}{number}x" * number for number in range(1, 8)]
    given = [None if has_null and number == 3 else line for number, line in enumerate(lines)]
    column = pa.array(given, pa.binary() if pa.types.is_large_binary(kind) else None).cast(kind)
    batch = pa.RecordBatch.from_arrays([column], ["line"]).slice(2, 3)
    wanted = [part for line in given[2:5] if line is not None for part in line.split(separator)]
    found = values(SplitColumn("line", separator)(0, [batch]))
    assert [part if isinstance(part, str) else part.decode() for part in found] == wanted


def test_what_is_null_throughout_has_no_parts() -> None:
    nothing = batch_of(value=[None, None])
    assert values(SplitColumn("value", " ")(0, [nothing, batch_of(value=["a b"])])) == ["a", "b"]


@pytest.mark.parametrize("kind", [pa.null(), pa.string(), pa.binary(), pa.large_binary()])
def test_no_parts_are_of_the_type_of_the_column_or_text(kind: pa.DataType) -> None:
    nothing = batch_of(value=pa.array([None, None], kind))
    (parts,) = SplitColumn("value", " ")(0, [nothing])
    assert parts.num_rows == 0
    assert parts.schema.field("value").type == (pa.string() if kind == pa.null() else kind)


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.lists(st.none() | st.integers(-3, 3)),
            st.lists(st.none() | st.text("ab", max_size=2)),
            st.lists(st.booleans()),
        )
    ),
    st.sampled_from([1, 1 << 19]),
)
def test_counts_are_those_of_python(batches: list[list[Any]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "MAX_KEYS", most)
        counts: Counter[Any] = Counter()
        for value, number in CountValues("n")(0, (batch_of(n=batch) for batch in batches)):
            assert number > 0
            counts[value] += number
    assert counts == Counter(value for batch in batches for value in batch)


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(-9, 9)))
    ),
    st.sampled_from([1, 1 << 19]),
)
def test_sums_are_those_of_python(batches: list[list[tuple[Any, Any]]], most: int) -> None:
    schema = pa.schema([("key", pa.string()), ("n", pa.int64())])
    made = [
        pa.RecordBatch.from_pylist([{"key": key, "n": number} for key, number in rows], schema)
        for rows in batches
    ]
    wanted: dict[Any, int] = defaultdict(int)
    for rows in batches:
        for key, number in rows:
            wanted[key] += number or 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "MAX_KEYS", most)
        found: dict[Any, int] = defaultdict(int)
        for key, number in SumValues("key", "n")(0, made):
            found[key] += number
    assert found == wanted


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (pa.int64(), [2**62, 2**62, None]),
        (pa.int64(), [-(2**63), -1]),
        (pa.uint64(), [2**64 - 1, 2**64 - 1]),
        (pa.int32(), [2**31 - 1, 2**31 - 1]),
        (pa.int64(), [None, None]),
    ],
)
def test_sums_do_not_overflow(kind: pa.DataType, numbers: list[int | None]) -> None:
    batch = batch_of(key=["a"] * len(numbers), n=pa.array(numbers, kind))
    wanted = sum(number or 0 for number in numbers)
    assert list(SumValues("key", "n")(0, [batch, batch])) == [("a", 2 * wanted)]
    [(_, found)] = SumValues("key", "n")(0, [batch])
    assert type(found) is int


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [(1, 2, 3), (2**63, 1, 2**63 + 1), (0.5, 0.25, 0.75), (Decimal("0.1"), 2, Decimal("2.1"))],
)
def test_sums_of_several_batches_are_of_the_type_of_their_parts(
    left: Any, right: Any, wanted: Any
) -> None:
    found = EXACT_ADDITION.merge_combiners(left, right)
    assert (found, type(found)) == (wanted, type(wanted))


def test_sums_of_decimals_and_floats_by_a_time() -> None:
    times = [datetime(2026, 1, day) for day in (1, 2, 1)]
    exact = batch_of(at=times, n=[Decimal("0.1"), Decimal("1.5"), Decimal("0.2")])
    assert dict(SumValues("at", "n")(0, [exact])) == {
        times[0]: Decimal("0.3"),
        times[1]: Decimal("1.5"),
    }
    assert dict(SumValues("at", "n")(0, [batch_of(at=times, n=[0.5, 2.0, 0.25])])) == {
        times[0]: 0.75,
        times[1]: 2.0,
    }


@pytest.mark.parametrize("kind", [pa.decimal128(38, 2), pa.decimal256(70, 2)])
def test_sums_of_decimals_keep_all_their_digits(kind: pa.DataType) -> None:
    most = Decimal("9" * (kind.precision - 2) + ".99")
    batch = batch_of(key=["a", "a", "a"], n=pa.array([most, most, Decimal("0.01")], kind))
    with localcontext(Context(prec=200)):
        twice = 2 * most
        wanted = 2 * (twice + Decimal("0.01"))
        beyond = Decimal("9" * 70)
    assert list(SumValues("key", "n")(0, [batch, batch])) == [("a", wanted)]
    assert EXACT_ADDITION.merge_combiners(most, most) == twice
    few = batch_of(key=["a"] * 12, n=pa.array([Decimal(1)] * 12, pa.decimal256(76, 2)))
    assert list(SumValues("key", "n")(0, [few])) == [("a", Decimal(12))]
    many = batch_of(key=["a"] * 99_999, n=pa.array([beyond] * 99_999, pa.decimal256(76, 2)))
    with pytest.raises(OverflowError, match="the sum of column 'n' may have more than 76 digits"):
        list(SumValues("key", "n")(0, [many]))


@pytest.mark.parametrize(("scale", "number"), [(76, "0.9"), (75, "9"), (72, "-999"), (76, "-0.9")])
def test_sums_of_decimals_never_wrap_whatever_their_scale(scale: int, number: str) -> None:
    def batch(rows: int) -> pa.RecordBatch:
        numbers = pa.array([Decimal(number)] * rows, pa.decimal256(76, scale))
        return batch_of(key=["a"] * rows, n=numbers)

    assert list(SumValues("key", "n")(0, [batch(1), batch(1)])) == [("a", 2 * Decimal(number))]
    with pytest.raises(OverflowError, match="may have more than 76 digits"):
        list(SumValues("key", "n")(0, [batch(12)]))


def test_the_largest_decimal_is_found_with_all_its_digits() -> None:
    # Three times what its first 28 digits say has 76 digits, three times itself has 77.
    number = Decimal("3" * 75 + "4")
    batch = batch_of(key=["a"] * 3, n=pa.array([number] * 3, pa.decimal256(76, 0)))
    with pytest.raises(OverflowError):
        list(SumValues("key", "n")(0, [batch]))


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [(pa.float16(), 3.5), (pa.bool_(), 2), (pa.decimal128(4, 1), Decimal("3.5")), (pa.null(), 0)],
)
def test_all_kinds_of_numbers_are_summed(kind: pa.DataType, wanted: Any) -> None:
    numbers = {pa.bool_(): [True, True], pa.null(): [None, None]}.get(kind, [1.5, 2.0])
    if pa.types.is_decimal(kind):
        numbers = [Decimal(str(number)) for number in numbers]
    batch = batch_of(key=["a", "a"], n=pa.array(numbers, kind))
    [(_, found)] = SumValues("key", "n")(0, [batch])
    assert found == wanted


def test_what_cannot_be_summed_or_counted_is_named() -> None:
    batch = batch_of(key=["a"], n=["b"], some=[[1]])
    with pytest.raises(TypeError, match="sums needs numbers; the column 'n' is of string"):
        list(SumValues("key", "n")(0, [batch]))
    with pytest.raises(TypeError, match="the column 'some' is of list"):
        list(SumValues("some", "n")(0, [batch_of(some=[[1]], n=[1])]))
    with pytest.raises(TypeError, match=r"value_counts needs values .* the column 'some' is of"):
        list(CountValues("some")(0, [batch]))


@pytest.mark.parametrize("records", [["a", 1], [{"a": 1}, 2], [{"a": 1}, {"a": "b"}], [1 << 70]])
def test_records_that_fit_no_column_are_told(records: list[Any]) -> None:
    with pytest.raises(TypeError, match="records do not fit into columns of Arrow"):
        list(BatchesOfRecords()(0, records))


AT = datetime(2020, 1, 1, 5)
AWARE = AT.replace(tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "records",
    [
        [date(2020, 1, 1), AT],
        [AT, AWARE],
        [AWARE, None, AT],
        ["a", b"a"],
        [b"a", "a"],
        [2.5, True],
        [time(1, tzinfo=timezone.utc)],
        [pd.Timestamp(1)],
        [pd.Timedelta(1)],
        ["\ud800"],
        [pd.NaT],
        [Decimal("Infinity")],
        [{"a": 1}, None],
        [None, {"a": 1}],
        [{b"a": 1, "a": 2}],
        [{"a": date(2020, 1, 1)}, {"a": AT}],
        [{"a": [{"b": "x"}]}, {"a": [{"b": b"x"}]}],
        [[AT], [AWARE]],
        [{"a": Row(b=1, c=2)}, {"a": Row(c=2, b=1)}],
        [[Row(b=1, c=2)]],
    ],
    ids=repr,
)
def test_records_that_a_column_would_change_are_refused(records: list[Any]) -> None:
    with pytest.raises(TypeError, match=r"do not fit into columns of Arrow .* must be of one kind"):
        list(BatchesOfRecords()(0, records))


@pytest.mark.parametrize(
    "records",
    [
        [date(2020, 1, 1), None],
        [AT, pd.Timestamp(AT)],
        [AWARE, AWARE.astimezone(ZoneInfo("Europe/Berlin"))],
        [time(1, 2, 3, 4)],
        [1, 2.5],
        [1, Decimal("1.5")],
        [b"a", bytearray(b"b")],
        [{"a": [{"b": AT}], "c": {}}, {"a": None, "c": None}],
    ],
    ids=repr,
)
def test_records_of_one_kind_keep_their_values(records: list[Any]) -> None:
    assert values(BatchesOfRecords()(0, records)) == records


def test_times_of_day_that_python_has_not_are_refused_and_not_counted_as_one() -> None:
    batch = batch_of(value=pa.array([1, 2], pa.time64("ns")), n=[1, 2])
    for operation in (CountValues("value"), SumValues("value", "n"), records_of):
        with pytest.raises(pa.ArrowInvalid, match="would lose data"):
            list(operation(0, [batch]))  # type: ignore[operator]
    whole = batch_of(value=pa.array([1000, 2000], pa.time64("ns")))
    assert values([whole]) == [time(0, 0, 0, 1), time(0, 0, 0, 2)]


def test_columns_of_dictionaries_keep_their_values_or_are_refused() -> None:
    assert values([batch_of(value=pa.array(["a", "b", "a"]).dictionary_encode())]) == [
        "a",
        "b",
        "a",
    ]
    times = pa.array([1000, 2000, 1000], pa.time64("ns")).dictionary_encode()
    first, second = time(0, 0, 0, 1), time(0, 0, 0, 2)
    assert values([batch_of(value=times)]) == [first, second, first]
    with pytest.raises(pa.ArrowInvalid, match="would lose data"):
        values([batch_of(value=pa.array([1], pa.time64("ns")).dictionary_encode())])


@pytest.mark.parametrize(
    ("kind", "wrap"),
    [
        (pa.list_(pa.time64("ns")), lambda value: [value]),
        (pa.large_list(pa.time64("ns")), lambda value: [value]),
        (pa.list_(pa.time64("ns"), 1), lambda value: [value]),
        (pa.map_(pa.string(), pa.time64("ns")), lambda value: [("a", value)]),
        (pa.struct([("a", pa.list_(pa.time64("ns")))]), lambda value: {"a": [value]}),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_times_of_day_within_others_are_not_cut_either(kind: pa.DataType, wrap: Any) -> None:
    with pytest.raises(pa.ArrowInvalid, match="would lose data"):
        values([batch_of(value=pa.array([wrap(1)], kind))])
    assert values([batch_of(value=pa.array([wrap(1000)], kind))]) == [wrap(time(0, 0, 0, 1))]


@settings(deadline=None)
@given(
    st.lists(
        st.lists(
            st.sampled_from([b"a", b"word", b" ", b"  ", b",", b"\xff", b"\xc3", b"\x85"])
            | st.sampled_from(["ü", "\u2028", "\u00a0"]).map(str.encode),
            max_size=8,
        ).map(b"".join),
        max_size=30,
    ),
    st.sampled_from([" ", ",", "a", "ab", "ü", "\n"]),
    st.sampled_from([1, 20, 1 << 20]),
    st.sampled_from([BlockKind.LINES, BlockKind.BYTE_LINES]),
)
def test_a_block_of_lines_is_split_as_its_lines_are(
    lines: list[bytes], separator: str, size: int, kind: BlockKind
) -> None:
    data = b"".join(line + b"\n" for line in lines)
    block = Block(kind, len(lines), memoryview(data), memoryview(b""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "_PIECE_BYTES", size)
        split = SplitColumn("value", separator)
        batches = list(arrow._SplitBlock(split)(block))
        counts: Counter[Any] = Counter()
        for part, number in arrow._CountParts(split)(block):
            counts[part] += number
    assert {batch.schema.field(0).type for batch in batches} <= {pa.string(), pa.binary()}
    wanted: list[Any]
    if kind is BlockKind.LINES:
        wanted = [
            part for line in lines for part in line.decode("utf-8", "replace").split(separator)
        ]
    else:
        wanted = [part for line in lines for part in line.split(separator.encode())]
    assert values(batches) == wanted
    assert counts == Counter(wanted)


def test_blocks_give_what_their_records_give(sc: Any, store: BlockStore) -> None:
    lines = ["a b", "", "b c b"]
    info = stored(store, "input-0-0", [line.encode() for line in lines])
    split = SplitColumn("value", " ")
    for rdd in (BlockRDD(sc, [info], BlockAccess()), sc.parallelize(lines, 1)):
        assert batches_of(rdd).mapPartitions(lambda some: records_of(0, some)).collect() == lines
        parts = split_records(rdd, split).mapPartitions(lambda some: records_of(0, some)).collect()
        assert parts == ["a", "b", "", "b", "c", "b"]
        counts: Counter[str] = Counter()
        for part, number in count_parts(rdd, split).collect():
            counts[part] += number
        assert counts == Counter(parts)


def test_a_split_of_lines_names_the_column_that_is_not_there() -> None:
    block = Block(BlockKind.LINES, 1, memoryview(b"a\n"), memoryview(b""))
    with pytest.raises(KeyError, match="there is no column 'm'; there are value"):
        list(arrow._SplitBlock(SplitColumn("m", " "))(block))


def test_parts_that_are_all_different_are_counted_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = b"".join(b"%d again\n" % number for number in range(5000))
    block = Block(BlockKind.LINES, 5000, memoryview(data), memoryview(b""))
    monkeypatch.setattr(arrow, "_PIECE_BYTES", 1000)
    monkeypatch.setattr(arrow, "_ROWS", 7)
    counts: Counter[str] = Counter()
    repeated = 0
    for part, number in arrow._CountParts(SplitColumn("value", " "))(block):
        repeated += part in counts
        counts[part] += number
    assert counts == Counter({str(number): 1 for number in range(5000)} | {"again": 5000})
    # Only a value that comes in more than a few pieces comes again.
    assert 0 < repeated < len(data) // 1000


@pytest.mark.parametrize("kind", [BlockKind.BINARY, BlockKind.STRING])
def test_a_line_end_in_a_record_ends_no_part(kind: BlockKind) -> None:
    offsets = b"".join(end.to_bytes(4, "little") for end in (0, 5, 7))
    block = Block(kind, 2, memoryview(b"a b\nca\n"), memoryview(offsets))
    counts = dict(arrow._CountParts(SplitColumn("value", " "))(block))
    wanted = {b"a": 1, b"b\nc": 1, b"a\n": 1}
    if kind is BlockKind.STRING:
        assert counts == {part.decode(): number for part, number in wanted.items()}
    else:
        assert counts == wanted


def test_counting_keeps_no_python_objects_of_parts_that_are_all_different(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = b"".join(b"%d %d\n" % (number, -number) for number in range(1, 10_000))
    block = Block(BlockKind.LINES, data.count(b"\n"), memoryview(data), memoryview(b""))
    monkeypatch.setattr(arrow, "_ROWS", 100)
    tracemalloc.start()
    try:
        pairs = sum(1 for _ in arrow._CountParts(SplitColumn("value", " "))(block))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert pairs == 19_998
    # NumPy's places of the ends are traced as well: 8 bytes for each, and what marks them.
    assert most < 8 * len(data)


def test_blocks_come_in_pieces_of_some_size(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [b"%d %s" % (number, b"x" * (number % 50)) for number in range(500)]
    data = b"".join(line + b"\n" for line in lines)
    block = Block(BlockKind.BYTE_LINES, len(lines), memoryview(data), memoryview(b""))
    assert values(arrow._batches_of_block(block)) == lines
    monkeypatch.setattr(arrow, "_PIECE_BYTES", 1000)
    batches = list(arrow._batches_of_block(block))
    assert len(batches) > 5
    assert values(batches) == lines
    monkeypatch.setattr(arrow, "_PIECE_BYTES", 1)
    assert values(arrow._batches_of_block(block)) == lines


def test_records_of_any_kind_become_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_ROWS", 2)
    make = BatchesOfRecords()
    for records in (["a", "b", "c"], [1, None, 3], [{"a": 1, "b": "x"}, {"a": 2, "b": None}], []):
        assert values(make(0, records)) == records


def test_rows_of_spark_are_rows() -> None:
    inner = Row(b=1)
    (batch,) = BatchesOfRecords()(0, [Row(a="x", of=inner), Row(a="y", of=None)])
    assert batch.to_pylist() == [{"a": "x", "of": {"b": 1}}, {"a": "y", "of": None}]
    (without_names,) = BatchesOfRecords()(0, [Row("x", "y")])
    assert without_names.to_pylist() == [{"value": ["x", "y"]}]


def test_rows_have_the_columns_of_all_rows_of_their_batch() -> None:
    make = BatchesOfRecords()
    rows = [{"b": 1}, MappingProxyType({"a": 2}), {}]
    assert values(make(0, rows)) == [
        {"b": 1, "a": None},
        {"b": None, "a": 2},
        {"b": None, "a": None},
    ]
    assert values(make(0, [{}, {"a": 2}])) == [{"a": None}, {"a": 2}]
    with pytest.raises(TypeError, match="some are rows with names, others are not"):
        values(make(0, [{"a": 1}, "no row"]))


def test_functions_of_batches_may_return_what_arrow_has() -> None:
    batch = batch_of(n=[1, 2, 3])

    def made_of(f: Any) -> list[Any]:
        return values(MapBatches(f)(0, [batch, batch.slice(3)]))

    assert made_of(lambda batch: batch.slice(1)) == [{"n": 2}, {"n": 3}]
    assert made_of(lambda batch: batch.column(0)) == [1, 2, 3]
    assert made_of(lambda batch: pa.table({"m": [batch.num_rows]})) == [{"m": 3}]
    with pytest.raises(TypeError, match="must return a RecordBatch, a Table or an Array, not list"):
        made_of(lambda batch: batch.to_pylist())


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        (SplitColumn("m", " "), "there is no column 'm'; there are n, text"),
        (SplitColumn("n", " "), "split needs text or bytes; the column 'n' is of int64"),
        (CountValues("m"), "there is no column 'm'; there are n, text"),
        (SumValues("text", "m"), "there is no column 'm'; there are n, text"),
    ],
)
def test_columns_that_do_not_fit_are_named(operation: Any, told: str) -> None:
    with pytest.raises((KeyError, TypeError), match=re.escape(told)):
        list(operation(0, [batch_of(n=[1], text=["a b"])]))


@pytest.fixture
def ssc(sc: Any) -> Iterator[StreamingContext]:
    made = StreamingContext(sc, 1)
    yield made
    made.stop(stopSparkContext=False)


def test_arguments_are_refused_in_the_call(ssc: StreamingContext) -> None:
    lines = ssc.socketTextStream("localhost", 9999).arrow
    for bad in ("", None, b" ", 5):
        with pytest.raises(ValueError, match=re.escape(f"separator={bad!r} is not accepted")):
            lines.split(bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="f"):
        lines.map(lambda a, b: a)  # type: ignore[arg-type, misc]
    for name in (1, None, b"value"):
        called: list[tuple[str, Callable[[], object]]] = [
            ("column", lambda name=name: lines.split(column=name)),
            ("column", lambda name=name: lines.value_counts(name)),
            ("key", lambda name=name: lines.sums(name, "n")),
            ("column", lambda name=name: lines.sums("key", name)),
        ]
        for argument, call in called:
            with pytest.raises(TypeError, match=re.escape(f"{argument}={name!r} is not accepted")):
                call()
    assert "ArrowStream of" in repr(lines)


def test_sums_of_whole_numbers_are_whole_numbers_and_those_of_decimals_exact() -> None:
    assert type(EXACT_ADDITION.merge_combiners(1, 2)) is int
    large = Decimal("1e60")
    for pair in ((large, 1), (1, large), (large, Decimal(1))):
        assert str(EXACT_ADDITION.merge_combiners(*pair)) == f"1{'0' * 59}1"
