"""The same program on `pyspark.streaming` and here, with the same batches: the same results."""

from __future__ import annotations

import operator
import threading
import warnings
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.streaming import StreamingContext
from tests.bounds import HANG_S
from tests.streaming.batches import BATCH_MS, Batches

WAIT_S = HANG_S

NUMBERS: list[list[Any]] = [[1, 2, 3, 4], [5], [], [2, 2]]
PAIRS: list[list[Any]] = [[("a", 1), ("b", 2)], [("a", 3), ("a", 4)], [("c", None)], []]
OTHERS: list[list[Any]] = [[("b", 10), ("c", 20)], [], [("a", 30)], [("c", 40)]]


def extend(total: Any, state: Any) -> Any:
    found = (state or 0) + sum(x or 0 for x in total)
    return found if found != 7 else None


Program = Callable[[Any, Any, Any], Any]

PROGRAMS: dict[str, Program] = {
    "map": lambda n, p, o: n.map(lambda x: x + 1),
    "flatMap": lambda n, p, o: n.flatMap(range),
    "filter": lambda n, p, o: n.filter(lambda x: x > 1),
    "chain": lambda n, p, o: n.map(str).filter(bool).flatMap(list).map(int),
    "mapPartitions": lambda n, p, o: n.mapPartitions(lambda it: [sum(it)]),
    "mapPartitionsWithIndex": lambda n, p, o: n.mapPartitionsWithIndex(
        lambda i, it: [(i, sum(it))]
    ),
    "glom": lambda n, p, o: n.glom(),
    "count": lambda n, p, o: n.count(),
    "reduce": lambda n, p, o: n.reduce(operator.add),
    "countByValue": lambda n, p, o: n.countByValue(),
    "mapValues": lambda n, p, o: p.mapValues(str),
    "flatMapValues": lambda n, p, o: p.flatMapValues(lambda v: [v, v]),
    "reduceByKey": lambda n, p, o: p.reduceByKey(lambda a, b: (a or 0) + (b or 0)),
    "reduceByKey placed": lambda n, p, o: o.reduceByKey(operator.add, 3).glom(),
    "combineByKey": lambda n, p, o: p.combineByKey(
        lambda v: [v], lambda c, v: [*c, v], operator.add
    ).mapValues(len),
    "groupByKey": lambda n, p, o: p.groupByKey().mapValues(lambda vs: sorted(map(str, vs))),
    "partitionBy": lambda n, p, o: o.partitionBy(3).glom(),
    "union": lambda n, p, o: p.union(o),
    "context union": lambda n, p, o: p.context().union(p, o),
    "join": lambda n, p, o: p.join(o),
    "leftOuterJoin": lambda n, p, o: p.leftOuterJoin(o),
    "rightOuterJoin": lambda n, p, o: p.rightOuterJoin(o),
    "fullOuterJoin": lambda n, p, o: p.fullOuterJoin(o),
    "cogroup": lambda n, p, o: p.cogroup(o).mapValues(lambda vs: tuple(map(list, vs))),
    "transform": lambda n, p, o: n.transform(lambda rdd: rdd.map(str)),
    "transform to None": lambda n, p, o: n.transform(lambda rdd: None),
    "transformWith": lambda n, p, o: p.transformWith(lambda a, b: a.subtractByKey(b), o),
    "context transform": lambda n, p, o: p.context().transform(
        [p, o], lambda rdds: rdds[0].union(rdds[1])
    ),
    "repartition": lambda n, p, o: (
        n.repartition(3).mapPartitions(lambda it: [len(list(it))]).count()
    ),
    "window": lambda n, p, o: n.window(3),
    "window with slide": lambda n, p, o: n.window(3, 2),
    "countByWindow": lambda n, p, o: n.countByWindow(2, 1),
    "reduceByWindow": lambda n, p, o: n.reduceByWindow(operator.add, None, 2, 1),
    "countByValueAndWindow": lambda n, p, o: n.countByValueAndWindow(2, 1),
    "groupByKeyAndWindow": lambda n, p, o: o.groupByKeyAndWindow(2, 1).mapValues(
        lambda vs: sorted(vs)
    ),
    "reduceByKeyAndWindow": lambda n, p, o: o.reduceByKeyAndWindow(operator.add, None, 3),
    "reduceByKeyAndWindow inverse": lambda n, p, o: o.reduceByKeyAndWindow(
        operator.add, operator.sub, 2, 1
    ),
    "updateStateByKey": lambda n, p, o: p.updateStateByKey(extend),
    "updateStateByKey initial": lambda n, p, o: p.updateStateByKey(
        extend, initialRDD=[("z", 1), ("a", 5)]
    ),
}

Results = dict[str, dict[int, list[str]]]

# PySpark pickles the functions of a program that has a checkpoint directory: what they keep is
# reached through functions of this module, which are pickled by name.
_results: Results = {}
_times: list[datetime] = []
_finished = threading.Semaphore(0)


def begin(time: datetime, rdd: Any) -> None:
    _times.append(time)


def keep(name: str, time: datetime, rdd: Any) -> None:
    number = round((time - _times[0]).total_seconds())
    if number < len(NUMBERS):
        _results[name][number] = sorted(map(repr, rdd.collect()))


def keeper(name: str) -> Callable[[datetime, Any], None]:
    return lambda time, rdd: keep(name, time, rdd)


def finish(rdd: Any) -> None:
    _finished.release()


def register(ssc: Any, names: Sequence[str]) -> None:
    """Build these programs in one context; each result is kept by the number of its batch."""
    _times.clear()
    _results.clear()
    numbers, pairs, others = (ssc.queueStream(batch) for batch in (NUMBERS, PAIRS, OTHERS))
    numbers.foreachRDD(begin)
    for name in names:
        _results[name] = {}
        output = PROGRAMS[name](numbers, pairs, others)
        output.foreachRDD(keeper(name))
    numbers.foreachRDD(finish)


def run_pyspark(sc: Any, checkpoint: Path, names: Sequence[str]) -> Results:
    from pyspark.streaming import StreamingContext as SparkStreamingContext

    # Its batches come as ours do, or it would make a batch each second while one is being run.
    conf = sc._jsc.sc().conf()
    conf.set("spark.streaming.clock", "org.apache.spark.util.ManualClock")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        ssc = SparkStreamingContext(sc, 1)
    try:
        ssc.checkpoint(str(checkpoint))
        register(ssc, names)
        ssc.start()
        for _ in NUMBERS:
            ssc._jssc.ssc().scheduler().clock().advance(BATCH_MS)
            assert _finished.acquire(timeout=WAIT_S)
    finally:
        ssc.stop(stopSparkContext=False)
        conf.remove("spark.streaming.clock")
    return dict(_results)


def run_penstock(sc: Any, checkpoint: Path, names: Sequence[str]) -> Results:
    run = Batches(sc)
    try:
        run.ssc.checkpoint(str(checkpoint))
        register(run.ssc, names)
        run.run(len(NUMBERS))
    finally:
        run.ssc.stop(stopSparkContext=False)
    return dict(_results)


PARTS = 6
"""Of the programs, of which CI runs one."""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.exhaustive) for part in range(1, PARTS))]
)
def test_results_are_those_of_pyspark(sc: Any, tmp_path: Path, part: int) -> None:
    names = list(PROGRAMS)[part::PARTS]
    expected = run_pyspark(sc, tmp_path / "pyspark", names)
    found = run_penstock(sc, tmp_path / "penstock", names)
    assert StreamingContext.getActive() is None
    different = {
        name: (found[name], expected[name]) for name in names if found[name] != expected[name]
    }
    assert different == {}
