"""Grouping, joining, sliding and updating one partition, in memory and when memory ends."""

from __future__ import annotations

import operator
import pickle
import tracemalloc
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import serializers as _untyped_serializers
from pyspark.core.rdd import portable_hash

from penstock.streaming.kernels.combine import Combiner
from penstock.streaming.kernels.grouping import Spill, _Cogroup, _Group, _Join
from penstock.streaming.kernels.sections import _OverSections
from penstock.streaming.kernels.shuffle import PIECES, BucketWriter, _Deal
from penstock.streaming.kernels.slide import SlideWindow, UpdateStates

serializers: Any = _untyped_serializers
SERIALIZER = serializers.AutoBatchedSerializer(PIECES)
ENOUGH = Spill(1e9, SERIALIZER)
NONE = Spill(0, SERIALIZER)

pieces = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 3)), max_size=4))
unique = st.dictionaries(st.sampled_from("abcd"), st.integers(-3, 3)).map(
    lambda found: [list(found.items())]
)
spills = st.sampled_from([ENOUGH, NONE])

Pieces = list[list[Any]]


def grouped(found: Pieces) -> Pieces:
    """Return the pieces as the shuffle has them: each with lists of values by key."""
    result = []
    for piece in found:
        lists = defaultdict(list)
        for key, value in piece:
            lists[key].append(value)
        result.append(list(lists.items()))
    return result


def over(func: Any, *sections: Pieces) -> list[Any]:
    """Call a function of sections as a task does."""

    def read() -> Iterator[Any]:
        for number, section in enumerate(sections):
            if number:
                yield None
            yield from pickle.loads(pickle.dumps(section))

    return list(_OverSections(func, len(sections), 1)(0, read()))


def lists_of(found: Pieces) -> dict[str, list[int]]:
    lists: dict[str, list[int]] = defaultdict(list)
    for piece in found:
        for key, value in piece:
            lists[key].append(value)
    return lists


@given(pieces, spills, st.booleans())
def test_group(found: Pieces, spill: Spill, is_grouped: bool) -> None:
    given_pieces = grouped(found) if is_grouped else found
    result = over(_Group(is_grouped, spill), given_pieces)
    assert len(dict(result)) == len(result)
    expected = {key: sorted(values) for key, values in lists_of(found).items()}
    assert {key: sorted(values) for key, values in result} == expected


@given(pieces, pieces, spills, st.booleans(), st.booleans())
def test_cogroup(left: Pieces, right: Pieces, spill: Spill, a: bool, b: bool) -> None:
    sections = (grouped(left) if a else left, grouped(right) if b else right)
    result = over(_Cogroup((a, b), spill), *sections)
    lefts, rights = lists_of(left), lists_of(right)
    assert {key: (sorted(vs), sorted(ws)) for key, (vs, ws) in result} == {
        key: (sorted(lefts[key]), sorted(rights[key])) for key in {*lefts, *rights}
    }
    assert len(dict(result)) == len(result)


@given(pieces, pieces, spills, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_join(
    left: Pieces, right: Pieces, spill: Spill, a: bool, b: bool, outer: bool, other: bool
) -> None:
    sections = (grouped(right) if b else right, grouped(left) if a else left)
    result = over(_Join((b, a), spill, outer, other), *sections)
    lefts, rights = lists_of(left), lists_of(right)
    expected = []
    for key in {*lefts, *rights}:
        vs: list[Any] = lefts[key] or ([None] if other else [])
        ws: list[Any] = rights[key] or ([None] if outer else [])
        expected += [(key, (v, w)) for v in vs for w in ws]
    assert sorted(map(repr, result)) == sorted(map(repr, expected))


def test_a_join_passes_its_pairs_on_while_it_makes_them() -> None:
    """One key with many values on both sides: their product is never held as a whole."""
    many = [[("a", number) for number in range(600)]]
    tracemalloc.start()
    try:
        made = sum(1 for _ in _Join((False, False), ENOUGH, False, False)([iter(many), iter(many)]))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made == 600 * 600
    # As a whole it would be 40 MB.
    assert most < 8 << 20


@given(pieces, pieces, unique, spills, st.booleans())
def test_slide(came: Pieces, left: Pieces, last: Pieces, spill: Spill, filtered: bool) -> None:
    combiner = Combiner(None, operator.add, operator.add)
    wanted = (lambda pair: pair[1] > 0) if filtered else None
    func = SlideWindow(combiner, operator.sub, wanted, spill)
    result = over(func, came, left, last)
    expected = dict(last[0])
    for key, values in lists_of(left).items():
        if key in expected:
            expected[key] -= sum(values)
    for key, values in lists_of(came).items():
        expected[key] = expected.get(key, 0) + sum(values)
    if filtered:
        expected = {key: value for key, value in expected.items() if value > 0}
    assert len(result) == len(expected)
    assert dict(result) == expected


@given(pieces, unique, spills, st.booleans())
def test_update(came: Pieces, last: Pieces, spill: Spill, is_grouped: bool) -> None:
    calls = []

    def update(values: list[int], state: int | None) -> int | None:
        calls.append((sorted(values), state))
        total = sum(values) + (state or 0)
        return total or None

    func = UpdateStates(update, is_grouped, spill)
    result = over(func, grouped(came) if is_grouped else came, last)
    new, states = lists_of(came), dict(last[0])
    expected_calls = [(sorted(new[key]), states.get(key)) for key in {*new, *states}]
    assert sorted(map(repr, calls)) == sorted(map(repr, expected_calls))
    totals = {key: sum(new[key]) + states.get(key, 0) for key in {*new, *states}}
    assert dict(result) == {key: total for key, total in totals.items() if total}


def test_each_call_of_an_update_has_a_list_of_its_own() -> None:
    def keep(values: list[int], state: list[int] | None) -> list[int]:
        values.append(1)
        return values

    func = UpdateStates(keep, False, ENOUGH)
    assert over(func, [], [[("a", []), ("b", [])]]) == [("a", [1]), ("b", [1])]


def test_a_stop_iteration_of_an_update_is_an_error() -> None:
    def stop(values: list[int], state: Any) -> Any:
        raise StopIteration

    for sections in (([[("a", 1)]], []), ([], [[("a", 1)]])):
        with pytest.raises(RuntimeError, match="StopIteration"):
            over(UpdateStates(stop, False, ENOUGH), *sections)


def test_rdds_that_are_not_placed_alike_are_noticed() -> None:
    func = _OverSections(lambda sections: [], 2, 3)
    with pytest.raises(RuntimeError, match="partition 3 of 3"):
        func(3, iter([]))


@given(st.lists(st.integers(), max_size=50), st.integers(1, 4), st.integers(0, 5))
def test_records_are_dealt_evenly(records: list[int], partitions: int, split: int) -> None:
    written = list(_Deal(partitions)(split, records))
    dealt: list[list[int]] = [[] for _ in range(partitions)]
    for number, data in zip(written[::2], written[1::2], strict=True):
        dealt[int.from_bytes(number, "big")].extend(PIECES.loads(data))
    assert sorted(x for part in dealt for x in part) == sorted(records)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


def test_plain_keys_are_placed_as_pyspark_places_them(monkeypatch: Any) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    keys = ["a", b"b", 1, -2, 1.5, True, None, (1, "x"), (None,), frozenset([1])]
    written = list(BucketWriter(5).write((key, 0) for key in keys))
    for number, data in zip(written[::2], written[1::2], strict=True):
        for key, _ in PIECES.loads(data):
            assert portable_hash(key) % 5 == int.from_bytes(number, "big")
