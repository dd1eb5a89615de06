"""Pairs that are no tuples of two are taken as PySpark takes them."""

from __future__ import annotations

import operator
from collections import namedtuple
from typing import Any

import pytest
from pyspark.sql import Row

from penstock.streaming.kernels.combine import Combiner
from penstock.streaming.kernels.fusion import (
    FlatMapValuesOperation,
    FusedFunction,
    MapValuesOperation,
)
from penstock.streaming.kernels.grouping import Spill, _Cogroup, _Join
from penstock.streaming.kernels.shuffle import PIECES, _WritePairs
from penstock.streaming.kernels.slide import SlideWindow
from tests.streaming.batches import batches
from tests.streaming.kernels.test_grouping import ENOUGH, NONE, over

Named = namedtuple("Named", "key value")
ODD = [Row(key="a", value=1), Named("a", 2), ["b", 3], "cd", ("e", 5)]
TRIPLES = [("a", 1, "x"), ["b", 3, "y"]]


@pytest.mark.parametrize("records", [ODD, TRIPLES])
def test_values_are_mapped_by_the_first_two_items(records: list[Any]) -> None:
    mapped = FusedFunction([MapValuesOperation(str)])(0, records)
    assert list(mapped) == [(pair[0], str(pair[1])) for pair in records]
    mapped = FusedFunction([FlatMapValuesOperation(lambda value: [value, 0])])(0, records)
    assert list(mapped) == [(pair[0], x) for pair in records for x in (pair[1], 0)]


def test_what_is_placed_are_tuples_of_two() -> None:
    [_, data] = _WritePairs(1, lambda key: 0)(0, ODD)
    placed = PIECES.loads(data)
    assert placed == [tuple(pair) for pair in ODD]
    assert {type(pair) for pair in placed} == {tuple}
    with pytest.raises(ValueError, match="too many values to unpack"):
        list(_WritePairs(1, lambda key: 0)(0, TRIPLES))


@pytest.mark.parametrize("spill", [ENOUGH, NONE])
def test_joins_and_cogroups_take_the_first_two_items(spill: Spill) -> None:
    left, right = [[("a", 1, "x"), ["b", 2]]], [[("a", 3), ["b", 4, "y"]]]
    assert sorted(over(_Join((False, False), spill, False, False), right, left)) == [
        ("a", (1, 3)),
        ("b", (2, 4)),
    ]
    grouped = over(_Cogroup((False, False), spill), left, right)
    assert sorted((key, list(vs), list(ws)) for key, (vs, ws) in grouped) == [
        ("a", [1], [3]),
        ("b", [2], [4]),
    ]


@pytest.mark.parametrize("spill", [ENOUGH, NONE])
def test_nothing_is_taken_away_where_what_left_is_none(spill: Spill) -> None:
    combiner = Combiner(None, lambda a, b: a, lambda a, b: a)
    func = SlideWindow(combiner, operator.sub, None, spill)
    assert over(func, [], [[("a", None), ("b", 1)]], [[("a", 5), ("b", 5)]]) == [("a", 5), ("b", 4)]


@pytest.mark.exhaustive  # `test_oracle` compares pairs with PySpark.
@pytest.mark.slow
def test_rdds_of_odd_pairs_give_what_those_of_pyspark_give(sc: Any) -> None:
    other = [("a", 7, "more"), ["b", 8], ("c", 9)]
    odd, others = sc.parallelize(ODD, 2), sc.parallelize(other, 2)

    def texts(records: list[Any]) -> list[str]:
        return sorted(repr(record) for record in records)

    def double_key(pair: Any) -> Any:
        return pair[0] * 2, pair[1]

    expected = [
        odd.mapValues(str),
        odd.partitionBy(2),
        odd.leftOuterJoin(others, 2),
        odd.fullOuterJoin(others, 2),
        odd.cogroup(others, 2).mapValues(lambda both: [sorted(values) for values in both]),
        others.mapValues(lambda value: [value]).reduceByKey(operator.add, 2),
        # Keys that change, and that stay, between two shuffles to as many partitions.
        odd.partitionBy(2).map(double_key).reduceByKey(operator.add, 2),
        odd.partitionBy(2).mapValues(str).reduceByKey(operator.add, 2),
    ]
    with batches(sc) as run:
        stream, rest = run.ssc.queueStream([odd]), run.ssc.queueStream([others])
        found = [
            run.collect(stream.mapValues(str)),
            run.collect(stream.partitionBy(2)),
            run.collect(stream.leftOuterJoin(rest, 2)),
            run.collect(stream.fullOuterJoin(rest, 2)),
            run.collect(
                stream.cogroup(rest, 2).mapValues(lambda both: [sorted(vs) for vs in both])
            ),
            run.collect(rest.groupByKeyAndWindow(1, 1, 2).mapValues(list)),
            run.collect(stream.partitionBy(2).map(double_key).reduceByKey(operator.add, 2)),
            run.collect(stream.partitionBy(2).mapValues(str).reduceByKey(operator.add, 2)),
        ]
        run.run(1)
    for ours, theirs in zip(found, expected, strict=True):
        [batch] = ours
        assert texts(batch) == texts(theirs.collect())


@pytest.mark.slow
def test_a_key_has_one_state_however_often_the_initial_rdd_has_it(sc: Any, tmp_path: Any) -> None:
    initial = [("a", 1), ("a", 1), ("b", 2, "more"), Row(key="c", value=3)]
    with batches(sc) as run:
        run.ssc.checkpoint(str(tmp_path))
        pairs = run.ssc.queueStream([[("a", 10)], [("c", 10)]])

        def add(values: Any, state: Any) -> Any:
            return sum(values) + (state or 0)

        rdd = sc.parallelize(initial, 3)
        found = run.collect(pairs.updateStateByKey(add, 2, rdd))
        run.run(2)
    assert [sorted(batch) for batch in found] == [
        [("a", 11), ("b", 2), ("c", 3)],
        [("a", 11), ("b", 2), ("c", 13)],
    ]
