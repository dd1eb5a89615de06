"""Fused narrow operations: right, lazy, and never silently short."""

from __future__ import annotations

import operator
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streaming.kernels import combine, shuffle
from penstock.streaming.kernels.combine import Combiner
from penstock.streaming.kernels.fusion import (
    FilterOperation,
    FlatMapOperation,
    FlatMapValuesOperation,
    FusedFunction,
    MapOperation,
    MapValuesOperation,
    PartitionOperation,
    split_inlined,
)
from penstock.user_errors import as_user_sees_it
from tests.bounds import HANG_S

_MAPPED = """
import mmap
import sys

from penstock.streaming.kernels.shuffle import used_memory_mb

before_mb = used_memory_mb()
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
assert mapped.find(b"x") == -1, "each page has been read"
assert used_memory_mb() < before_mb + 32, (before_mb, used_memory_mb())
own = bytearray(b"x") * (64 << 20)
assert used_memory_mb() > before_mb + 32, (before_mb, used_memory_mb())
"""


def stop_at_two(x: int) -> Any:
    if x == 2:
        raise StopIteration
    return [x]


def thousand(x: int) -> list[tuple[str, int]]:
    return [("key", x)] * 1000


def half_a_million(x: int) -> Iterator[tuple[str, int]]:
    for number in range(500_000):
        yield "key", number


def divide(x: int) -> Any:
    return (1 // x, 1)


def apply(operations: list[Any], records: Any) -> list[Any]:
    return list(FusedFunction(operations)(0, records))


class TestFusedFunction:
    def test_operations_apply_in_order(self) -> None:
        operations = [
            MapOperation(lambda x: x + 1),
            FilterOperation(lambda x: x % 2),
            FlatMapOperation(lambda x: [x] * x),
            MapOperation(lambda x: (x, x)),
            MapValuesOperation(str),
            FlatMapValuesOperation(lambda v: [v, v]),
            PartitionOperation(lambda i, it: [i, *it]),
        ]
        assert apply(operations, [0, 1, 2]) == [0, (1, "1"), (1, "1"), *[(3, "3")] * 6]

    def test_nothing_is_read_before_it_is_needed(self) -> None:
        read: list[int] = []

        def source() -> Iterator[int]:
            for i in range(10):
                read.append(i)
                yield i

        result = FusedFunction([MapOperation(str), FilterOperation(bool)])(0, source())
        assert read == []
        assert next(result) == "0"
        assert read == [0]

    @pytest.mark.parametrize(
        "operation",
        [
            MapOperation(stop_at_two),
            FlatMapOperation(stop_at_two),
            FilterOperation(stop_at_two),
            MapValuesOperation(stop_at_two),
            FlatMapValuesOperation(stop_at_two),
        ],
        ids=lambda operation: type(operation).__name__,
    )
    @pytest.mark.parametrize("last", [2, 3], ids=["at the end", "in the middle"])
    def test_a_leaked_stop_iteration_is_an_error(self, operation: Any, last: int) -> None:
        pairs = isinstance(operation, (MapValuesOperation, FlatMapValuesOperation))
        records: list[Any] = [(i, i) if pairs else i for i in range(last + 1)]
        with pytest.raises(RuntimeError, match="StopIteration"):
            apply([MapOperation(lambda x: x), operation, MapOperation(lambda x: x)], records)

    @pytest.mark.parametrize(
        "following",
        [
            MapValuesOperation(lambda value: value),
            FlatMapValuesOperation(lambda value: [value]),
            PartitionOperation(lambda _, records: records),
        ],
        ids=lambda operation: type(operation).__name__,
    )
    @pytest.mark.parametrize("is_last", [True, False], ids=["last", "with others behind it"])
    def test_one_that_leaks_in_the_middle_is_an_error_whatever_follows(
        self, following: Any, is_last: bool
    ) -> None:
        others = [] if is_last else [MapOperation(lambda x: x), following]
        for leaking in (MapOperation, FlatMapOperation, FilterOperation):
            chain_of = [leaking(lambda pair: stop_at_two(pair[0])), following, *others]
            with pytest.raises(RuntimeError, match="StopIteration"):
                apply(chain_of, [(2, 2), (1, 1)])

    def test_the_error_names_the_functions(self) -> None:
        with pytest.raises(RuntimeError, match="stop_at_two, str"):
            apply([MapOperation(stop_at_two), MapOperation(str)], [1, 2])

    def test_an_operation_that_reads_only_in_part_is_no_error(self) -> None:
        first_two = PartitionOperation(lambda _, it: [next(it), next(it)])
        assert apply([MapOperation(str), first_two, MapOperation(int)], [1, 2, 3]) == [1, 2]

    def test_an_inner_iterator_may_end(self) -> None:
        assert apply([FlatMapOperation(lambda x: iter([x]))], [1, 2]) == [1, 2]

    def test_other_errors_pass_unchanged(self) -> None:
        with pytest.raises(ZeroDivisionError):
            apply([MapOperation(lambda x: 1 // x)], [1, 0])

    @given(st.lists(st.integers(-3, 3)), st.lists(st.sampled_from("mfgv"), max_size=6))
    def test_it_equals_step_by_step(self, records: list[int], kinds: list[str]) -> None:
        steps: dict[str, tuple[Any, Any]] = {
            "m": (MapOperation(lambda x: x + 1), lambda xs: [x + 1 for x in xs]),
            "f": (FilterOperation(lambda x: x > 0), lambda xs: [x for x in xs if x > 0]),
            "g": (FlatMapOperation(lambda x: [x, -x]), lambda xs: [y for x in xs for y in (x, -x)]),
            "v": (PartitionOperation(lambda _, it: reversed(list(it))), lambda xs: xs[::-1]),
        }
        expected = records
        for kind in kinds:
            expected = steps[kind][1](expected)
        assert apply([steps[kind][0] for kind in kinds], records) == expected

    def test_partitioning_is_kept_only_if_all_keep_it(self) -> None:
        keeping = MapValuesOperation(str, preserves_partitioning=True)
        assert FusedFunction([keeping]).preserves_partitioning
        assert not FusedFunction([keeping, MapOperation(str)]).preserves_partitioning


@pytest.fixture(scope="module")
def _fixed_hashes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "0")  # as Spark sets it for its workers
        yield


def written(writer: Any, records: list[Any], partitions: int) -> list[dict[Any, Any]]:
    """Return what the reduce side merges for each partition."""
    chunks = list(writer(0, iter(records)))
    pickler = shuffle.PIECES
    parts: list[list[Any]] = [[] for _ in range(partitions)]
    for number, data in zip(chunks[::2], chunks[1::2], strict=True):
        parts[int.from_bytes(number, "big")].extend(pickler.loads(data))
    merge = combine.MergeCombiners(combine.ADDITION, 1e9, pickler)
    return [dict(merge(0, part)) for part in parts]


@pytest.mark.usefixtures("_fixed_hashes")
class TestCombining:
    pairs = st.lists(st.tuples(st.sampled_from(["a", "b", None, 1, (1, "x")]), st.integers()))

    @given(pairs, st.integers(1, 3))
    def test_combined_pairs_add_up(self, pairs: list[Any], partitions: int) -> None:
        expected: dict[Any, int] = {}
        for key, value in pairs:
            expected[key] = expected.get(key, 0) + value
        combiner = Combiner(None, operator.add, operator.add)
        writer = combine.WriteCombined(combiner.add_values, 1e9, partitions)
        found = written(writer, pairs, partitions)
        assert {k: v for part in found for k, v in part.items()} == expected
        assert sum(map(len, found)) == len(expected)

    @given(
        st.lists(st.integers(-9, 9)),
        st.lists(st.sampled_from("mfgvw"), max_size=12),
        st.booleans(),
        st.sampled_from([1, 3, 1 << 19]),
    )
    def test_one_loop_makes_what_the_operations_make_one_by_one(
        self, records: list[int], kinds: list[str], creates: bool, most: int
    ) -> None:
        steps: dict[str, Any] = {
            "m": MapOperation(lambda pair: (pair[1] % 3, pair[0])),
            "f": FilterOperation(lambda pair: pair[1] > 0),
            "g": FlatMapOperation(lambda pair: [pair, (pair[1], pair[0])]),
            "v": MapValuesOperation(lambda value: value + 1),
            "w": FlatMapValuesOperation(lambda value: (value, 2)),
        }
        first, inlined = split_inlined(
            [MapOperation(lambda x: (x % 4, x)), *(steps[kind] for kind in kinds)]
        )
        create = (lambda value: -value) if creates else None
        combiner = Combiner(create, lambda a, b: min(a, b), min)
        pairs = apply([*first, *inlined], records)
        expected: dict[Any, Any] = {}
        combiner.add_values(expected, pairs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(combine, "MAX_KEYS", most)
            loop = combine._CombineInOneLoop(inlined, combiner, 1e9, 2)
            chunks = list(loop(0, iter(apply(first, records))))
        found: dict[Any, Any] = {}
        for data in chunks[1::2]:
            for key, value in shuffle.PIECES.loads(data):
                if most > 3:
                    assert key not in found
                found[key] = min(found[key], value) if key in found else value
        if not creates or most > 3:
            assert found == expected

    @pytest.mark.parametrize(
        "operation",
        [
            MapOperation(stop_at_two),
            FlatMapOperation(stop_at_two),
            FilterOperation(stop_at_two),
        ],
        ids=lambda operation: type(operation).__name__,
    )
    def test_a_stop_iteration_in_the_loop_is_an_error(self, operation: Any) -> None:
        loop = combine._CombineInOneLoop((operation,), combine.ADDITION, 1e9, 1)
        with pytest.raises(RuntimeError, match="StopIteration left one of the functions stop_at"):
            list(loop(0, [2]))

    def test_errors_have_the_frames_of_the_program_only(self) -> None:
        loop = combine._CombineInOneLoop((MapOperation(divide),), combine.ADDITION, 1e9, 1)
        with pytest.raises(ZeroDivisionError) as raised:
            list(loop(0, [0]))
        assert "one loop" in "".join(traceback.format_exception(raised.value))
        shown = "".join(traceback.format_exception(as_user_sees_it(raised.value)))
        assert "one loop" not in shown
        assert "in divide" in shown

    def test_long_chains_are_inlined_in_part(self) -> None:
        plain = [MapOperation(str)] * 30
        first, inlined = split_inlined([*plain, PartitionOperation(str), *plain])
        assert (len(first), len(inlined)) == (53, 8)
        assert split_inlined([PartitionOperation(str), *plain[:2]])[1] == tuple(plain[:2])
        flat = [FlatMapOperation(lambda pair: [pair])] * 8
        [_, data] = combine._CombineInOneLoop(tuple(flat), combine.ADDITION, 1e9, 1)(0, [(1, 2)])
        assert shuffle.PIECES.loads(data) == [(1, 2)]

    @pytest.mark.parametrize("creates", [False, True], ids=["reduced", "combined"])
    def test_one_loop_writes_before_it_has_too_many_keys(
        self, creates: bool, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(combine, "MAX_KEYS", 15)
        combiner = Combiner(abs if creates else None, operator.add, operator.add)
        flat = FlatMapOperation(lambda x: [(x * 50 + i, 1) for i in range(50)])
        chunks = list(combine._CombineInOneLoop((flat,), combiner, 1e9, 1)(0, range(2)))
        sizes = [len(shuffle.PIECES.loads(data)) for data in chunks[1::2]]
        assert sizes == [15, 15, 15, 15, 15, 15, 10]

    @pytest.mark.parametrize("bound", ["keys", "memory"])
    @pytest.mark.parametrize("side", ["one loop", "writer"])
    def test_what_was_written_over_the_bound_is_not_written_again(
        self, side: str, bound: str, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(shuffle, "_STRETCH", 10)
        monkeypatch.setattr(combine, "MAX_KEYS", 15 if bound == "keys" else 1 << 19)
        monkeypatch.setattr(combine, "_FEWEST_RECORDS", 10)
        used_mb = 2 if bound == "memory" else 0
        monkeypatch.setattr(combine, "used_memory_mb", lambda: used_mb)
        monkeypatch.setattr(shuffle, "used_memory_mb", lambda: used_mb)
        records = [(i % 100, 1) for i in range(1000)]
        writer = (
            combine.WriteCombined(combine.ADDITION.add_values, 1, 2)
            if side == "writer"
            else combine._CombineInOneLoop((), combine.ADDITION, 1, 2)
        )
        chunks = list(writer(0, iter(records)))
        pairs = [pair for data in chunks[1::2] for pair in shuffle.PIECES.loads(data)]
        assert len(pairs) > 100, "it was written in parts"
        assert sum(number for _, number in pairs) == 1000
        assert dict.fromkeys(range(100), 10) == {
            key: value for part in written(writer, records, 2) for key, value in part.items()
        }

    @pytest.mark.parametrize(
        ("func", "count"),
        [(thousand, 500), (half_a_million, 1)],
        ids=["many records", "one record of a generator"],
    )
    def test_memory_is_looked_at_the_sooner_the_more_is_made_of_a_record(
        self, func: Any, count: int, monkeypatch: Any
    ) -> None:
        looks = 0
        combined: list[list[int]] = []

        def used_mb() -> int:
            nonlocal looks
            looks += 1
            return len(combined[-1]) // 1000 if combined else 0

        def create(value: int) -> list[int]:
            combined.append([value])
            return combined[-1]

        def merge(values: list[int], value: int) -> list[int]:
            values.append(value)
            return values

        def longest(func: Any, records: range) -> int:
            first, inlined = split_inlined([FlatMapOperation(func)])
            loop = combine._CombineInOneLoop(inlined, Combiner(create, merge, operator.add), 80, 1)
            combined.clear()
            for _ in loop(0, FusedFunction(first)(0, records)):
                pass
            return max(map(len, combined))

        monkeypatch.setattr(combine, "used_memory_mb", used_mb)
        # The bound, and what is made between the two looks before it is seen to be reached.
        assert longest(func, range(count)) <= 160_000
        assert sum(map(len, combined)) == 500_000
        # Where it does not grow, there are few looks.
        looks = 0
        longest(lambda x: [(x % 10, x)], range(70_000))
        assert looks < 25

    def test_memory_of_a_receiver_that_a_worker_has_mapped_is_not_its_own(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "memory"
        path.write_bytes(bytes(64 << 20))
        # In a process of its own: what other tests left is freed here at any time.
        subprocess.run(
            [sys.executable, "-c", _MAPPED, str(path)], check=True, timeout=HANG_S, text=True
        )

    def test_memory_is_bounded_by_writing_early(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(shuffle, "_STRETCH", 10)
        monkeypatch.setattr(combine, "MAX_KEYS", 15)
        largest = 0

        def add(combined: dict[Any, Any], pairs: Any) -> None:
            nonlocal largest
            Combiner(None, operator.add, operator.add).add_values(combined, pairs)
            largest = max(largest, len(combined))

        records = [(i % 100, 1) for i in range(1000)]
        [found] = written(combine.WriteCombined(add, 1e9, 1), records, 1)
        assert largest < 25
        assert found == dict.fromkeys(range(100), 10)

    def test_the_merging_side_spills_to_disk(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(shuffle, "_STRETCH", 10)
        monkeypatch.setattr(combine, "_MAX_MERGED_KEYS", 15)
        merge = combine.MergeCombiners(Combiner(None, max, max), 1e9, shuffle.PIECES)
        found = dict(merge(0, [(i % 100, i) for i in range(1000)]))
        assert found == {i: 900 + i for i in range(100)}

    @pytest.mark.parametrize("most", [15, 1 << 23])
    def test_pairs_that_lie_where_they_belong_are_combined_there(
        self, most: int, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(shuffle, "_STRETCH", 10)
        monkeypatch.setattr(combine, "_MAX_MERGED_KEYS", most)

        def add(values: list[int], value: int) -> list[int]:
            values.append(value)
            return values

        lists = Combiner(lambda value: [value], add, operator.add)
        local = combine._CombineInPlace(lists, 1e9, shuffle.PIECES)
        found = dict(local(0, [(i % 100, i) for i in range(1000)]))
        assert found == {i: list(range(i, 1000, 100)) for i in range(100)}
        merge = combine.MergeCombiners(lists, 1e9, shuffle.PIECES)
        assert dict(merge(0, [(i % 100, [i]) for i in range(1000)])) == found

    def test_a_stop_iteration_of_a_merge_function_is_an_error(self) -> None:
        def stop(a: Any, b: Any) -> Any:
            raise StopIteration

        writer: Any = combine._CombineInOneLoop((), Combiner(None, stop, stop), 1e9, 1)
        with pytest.raises(RuntimeError, match="StopIteration"):
            list(writer(0, [(1, 1), (1, 1)]))
        merge = combine.MergeCombiners(Combiner(None, stop, stop), 1e9, None)
        with pytest.raises(RuntimeError, match="StopIteration"):
            list(merge(0, [(1, 1), (1, 1)]))
        with pytest.raises(RuntimeError, match="StopIteration"):
            list(combine._WriteReduced(stop)(0, [1, 2]))
