"""RDDs that are made when something asks for them, and those without records."""

from __future__ import annotations

import operator
from typing import Any

from pyspark.core.rdd import Partitioner, portable_hash

from penstock.streaming.kernels.deferred import Content, DeferredRDD, content_of, no_partitions
from penstock.streaming.kernels.shuffle import place_by_key
from tests.streaming.batches import batches


def test_an_output_that_looks_at_nothing_makes_nothing_in_the_jvm(sc: Any) -> None:
    seen: list[Any] = []
    with batches(sc) as run:
        words = run.ssc.queueStream([["a b"]]).flatMap(str.split)
        words.map(lambda word: (word, 1)).reduceByKey(operator.add).foreachRDD(seen.append)
        run.run(1)
    [rdd] = seen
    assert rdd._jrdd_val is None
    assert rdd.source._java_rdd is None
    assert sorted(rdd.collect()) == [("a", 1), ("b", 1)]
    assert rdd._jrdd_val is not None
    assert rdd.source._make is None


def test_an_rdd_of_a_batch_is_an_rdd_of_pyspark(sc: Any) -> None:
    seen: list[Any] = []
    with batches(sc) as run:
        pairs = run.ssc.queueStream([[("a", 1), ("b", 2), ("a", 3)]])
        pairs.partitionBy(2).foreachRDD(seen.append)
        pairs.reduceByKey(operator.add, 2).foreachRDD(seen.append)
        run.run(1)
        placed, reduced = seen
        assert placed.getNumPartitions() == reduced.getNumPartitions() == 2
        assert sorted(placed.mapValues(str).collect()) == [("a", "1"), ("a", "3"), ("b", "2")]
        assert dict(placed.join(reduced).groupByKey().mapValues(len).collect()) == {"a": 2, "b": 1}
        assert reduced.cache().count() == 2
        assert reduced.map(lambda pair: pair[1]).sum() == 6
        assert placed.cache().filter(lambda pair: pair[1] > 2).first() == ("a", 3)
        assert placed.zipWithIndex().count() == 3
        assert sorted(reduced.toLocalIterator()) == [("a", 4), ("b", 2)]
        assert reduced.id() != placed.id()


def jobs_so_far(sc: Any) -> int:
    return int(sc._jsc.sc().dagScheduler().nextJobId())


def test_batches_without_records_run_no_jobs(sc: Any, tmp_path: Any) -> None:
    found: list[Any] = []
    with batches(sc) as run:
        run.ssc.checkpoint(str(tmp_path))
        idle = run.ssc.queueStream([], default=sc.emptyRDD())
        pairs = idle.flatMap(str.split).map(lambda word: (word, 1))
        outputs = [
            idle.union(idle),
            pairs.reduceByKey(operator.add),
            pairs.join(pairs.groupByKey()),
            pairs.window(3).countByValue(),
            pairs.reduceByKeyAndWindow(operator.add, operator.sub, 5, 1),
            pairs.reduceByKeyAndWindow(operator.add, None, 5, 1).mapValues(str),
            pairs.cache().cogroup(pairs, 3),
        ]
        for output in outputs:
            output.foreachRDD(lambda rdd: found.append((rdd.collect(), rdd.count(), rdd.take(1))))
            output.foreachRDD(lambda rdd: found.append(rdd.isEmpty()))
        before = jobs_so_far(sc)
        run.run(7)
        assert jobs_so_far(sc) == before
    assert found == [([], 0, []), True] * len(outputs) * 7


def test_a_function_of_a_partition_may_make_records_of_nothing(sc: Any) -> None:
    with batches(sc) as run:
        idle = run.ssc.queueStream([], default=sc.emptyRDD())
        reduced = idle.map(lambda x: (x, 1)).reduceByKey(operator.add, 2)
        ones = run.collect(reduced.mapPartitions(lambda records: [1]))
        counts = run.collect(reduced.count())
        none = run.collect(idle.mapPartitions(lambda records: [1]))
        run.run(1)
    assert ones == [[1, 1]]
    assert counts == [[0]]
    assert none == [[]]


def test_what_is_joined_is_there_whichever_side_has_no_records(sc: Any) -> None:
    with batches(sc) as run:
        left, right = run.ssc.queueStream([[("a", 1)]]), run.ssc.queueStream([[("a", 2)]])
        idle = run.ssc.queueStream([], default=sc.emptyRDD()).map(lambda x: (x, 1))
        both = run.collect(left.join(right, 2))
        first = run.collect(left.leftOuterJoin(idle, 2))
        second = run.collect(idle.rightOuterJoin(right, 2))
        none = run.collect(idle.fullOuterJoin(idle, 2))
        run.run(1)
    assert both == [[("a", (1, 2))]]
    assert first == [[("a", (1, None))]]
    assert second == [[("a", (None, 2))]]
    assert none == [[]]


def test_what_is_not_known_is_asked(sc: Any) -> None:
    assert content_of(sc.emptyRDD()) is Content.UNKNOWN
    empty = no_partitions(sc)
    assert isinstance(empty, DeferredRDD)
    assert empty.getNumPartitions() == 0
    assert empty.map(str).collect() == []
    assert empty.union(sc.parallelize([1])).collect() == [1]


def test_a_partitioner_stays_with_functions_that_leave_keys_where_they_are(sc: Any) -> None:
    seen: list[Any] = []
    with batches(sc) as run:
        pairs = run.ssc.queueStream([[("a", 1), ("b", 2), ("a", 3)]])
        placed = pairs.partitionBy(2)
        placed.foreachRDD(seen.append)
        reduced = pairs.reduceByKey(operator.add, 2)
        reduced.foreachRDD(seen.append)
        reduced.mapValues(str).foreachRDD(seen.append)
        placed.reduceByKey(operator.add, 2).foreachRDD(seen.append)
        reduced.map(lambda pair: (pair[1], pair[0])).foreachRDD(seen.append)
        run.run(1)
    kept = Partitioner(2, portable_hash)
    assert [rdd.partitioner == kept for rdd in seen] == [True] * 4 + [False]
    assert seen[-1].partitioner is None
    # What is where it belongs is not shuffled again, and what is not, is.
    assert place_by_key(seen[0], 2) is seen[0]
    assert place_by_key(seen[4], 2) is not seen[4]
    assert place_by_key(seen[0], 3).partitioner == Partitioner(3, portable_hash)
