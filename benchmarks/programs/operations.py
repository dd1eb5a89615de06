"""The operations of streams, beside those of `pyspark.streaming`.

What is measured is the operation and nothing else: its input lies in Spark's cache, a million
records, and is the same for both sides and every batch. A stream waits at a gate until its last
batch is done, so that no batch is made while another is measured; the ticks that pass meanwhile
cost nothing. The time of an operation is that of the Spark job that asks for its result, which is
counted in the JVM. That of windows and states is a whole batch, from the gate to the end, because
their work is also in what they keep. The time of an empty batch is that, too.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
import time
import warnings
from operator import add, sub
from statistics import median

from pyspark import RDD

from benchmarks.programs._program import ProgramOptions, spark_context, tell

RECORDS = 1_000_000
FEW = 100_000
WORDS = 10_000
BATCH_S = 0.05
WARM_UP = 2
MEASURED = 9
TOGETHER = 7
"""Operations in one context."""
WINDOW = 6
"""Batches until a window is full."""
EMPTY_BATCHES = 40
SIDES = ("pyspark", "penstock")


def total(values, state):
    return (state or 0) + sum(values)


def extended(x):
    return (x, x + 1)


def is_even(x):
    return x & 1 == 0


def joined(kind):
    return lambda s: getattr(s.unique, kind)(s.few)


# Each takes the streams and returns what is asked for.
OPERATIONS = {
    "map": lambda s: s.numbers.map(extended),
    "flatMap": lambda s: s.numbers.flatMap(extended),
    "filter": lambda s: s.numbers.filter(is_even),
    "map, filter, map": lambda s: s.numbers.map(extended).filter(all).map(len),
    "mapPartitions": lambda s: s.numbers.mapPartitions(lambda records: [sum(records)]),
    "mapPartitionsWithIndex": lambda s: s.numbers.mapPartitionsWithIndex(
        lambda index, records: [(index, sum(records))]
    ),
    "mapValues": lambda s: s.pairs.mapValues(extended),
    "flatMapValues": lambda s: s.pairs.flatMapValues(extended),
    "glom": lambda s: s.numbers.glom(),
    "count": lambda s: s.numbers.count(),
    "reduce": lambda s: s.numbers.reduce(add),
    "countByValue": lambda s: s.words.countByValue(),
    "word count": lambda s: s.words.map(lambda word: (word, 1)).reduceByKey(add),
    "reduceByKey": lambda s: s.pairs.reduceByKey(add),
    "reduceByKey of as many keys": lambda s: s.unique.reduceByKey(max),
    "combineByKey": lambda s: s.pairs.combineByKey(
        lambda value: [value], lambda found, value: [value], lambda a, b: a
    ),
    "groupByKey": lambda s: s.pairs.groupByKey(),
    "partitionBy": lambda s: s.pairs.partitionBy(4),
    "repartition": lambda s: s.numbers.repartition(3),
    "union": lambda s: s.pairs.union(s.unique),
    "cogroup": lambda s: s.unique.cogroup(s.few),
    "join": joined("join"),
    "leftOuterJoin": joined("leftOuterJoin"),
    "rightOuterJoin": joined("rightOuterJoin"),
    "fullOuterJoin": joined("fullOuterJoin"),
    "transform": lambda s: s.numbers.transform(lambda rdd: rdd.map(extended)),
    "transformWith": lambda s: s.numbers.transformWith(lambda a, b: a.union(b), s.words),
}

KEPT = {
    "window": lambda s: s.pairs.mapValues(extended).window(3 * BATCH_S, BATCH_S),
    "countByWindow": lambda s: s.numbers.countByWindow(WINDOW * BATCH_S, BATCH_S),
    "reduceByWindow": lambda s: s.numbers.reduceByWindow(max, None, WINDOW * BATCH_S, BATCH_S),
    "countByValueAndWindow": lambda s: s.words.countByValueAndWindow(WINDOW * BATCH_S, BATCH_S),
    "groupByKeyAndWindow": lambda s: s.pairs.groupByKeyAndWindow(2 * BATCH_S, BATCH_S),
    "reduceByKeyAndWindow": lambda s: s.pairs.reduceByKeyAndWindow(
        add, None, WINDOW * BATCH_S, BATCH_S
    ),
    "reduceByKeyAndWindow with inverse": lambda s: s.pairs.reduceByKeyAndWindow(
        add, sub, WINDOW * BATCH_S, BATCH_S
    ),
    "the same with a million keys": lambda s: s.unique.reduceByKeyAndWindow(
        add, sub, WINDOW * BATCH_S, BATCH_S
    ),
    "updateStateByKey": lambda s: s.pairs.updateStateByKey(total),
    "updateStateByKey, a million keys": lambda s: s.unique.updateStateByKey(total),
}
SLIDING = "reduceByKeyAndWindow with inverse"
STATE = "updateStateByKey, a million keys"


def mapped_with_state(s):
    from penstock.streaming import StateSpec

    return s.pairs.mapWithState(StateSpec.function(count_of_key))


def count_of_key(key, value, state):
    state.update((state.getOption() or 0) + value)
    return (key, state.get())


EMPTY = {
    "empty batch": lambda rdd: None,
    "empty batch, collected": lambda rdd: bool(rdd.collect()) or None,
}

ALONE = {"mapWithState": mapped_with_state}
"""What `pyspark.streaming` has not."""


class NotWritten:
    """Of a context with a checkpoint directory PySpark pickles the functions, and what they keep.

    Nobody reads it.
    """

    def __reduce__(self):
        return (str, ())


class Inputs(NotWritten):
    """The RDDs that all operations read, in Spark's cache."""

    def __init__(self, sc):
        self.sc = sc
        numbers = sc.parallelize(range(RECORDS), 4)
        self.numbers = kept(numbers.map(lambda number: number))
        self.words = kept(numbers.map(lambda number: f"word-{number % WORDS}"))
        self.pairs = kept(numbers.map(lambda number: (f"word-{number % WORDS}", 1)))
        self.unique = kept(numbers.map(lambda number: (number, 1)))
        self.few = kept(sc.parallelize(range(FEW), 4).map(lambda number: (number, 2)))
        self.nothing = sc.emptyRDD()

    def view(self, name):
        """Return an RDD of its own with the same partitions: a stream forgets it when it is old."""
        rdd = getattr(self, name)
        return RDD(rdd._jrdd.coalesce(4), rdd.ctx, rdd._jrdd_deserializer)


def kept(rdd):
    rdd.cache().count()
    return rdd


class Streams:
    """The input streams of one context."""

    def __init__(self, ticks, inputs):
        self.ticks = ticks
        self._inputs = inputs

    def __getattr__(self, name):
        inputs = self._inputs
        return self.ticks.transform(lambda _: inputs.view(name))


class Run(NotWritten):
    """A context that makes one batch at a time, each when it is told to."""

    def __init__(self, side, inputs, folder=None):
        if side == "penstock":
            from penstock.streaming import StreamingContext
        else:
            from pyspark.streaming import StreamingContext
        self.side = side
        self.taken = {}
        self._permits = threading.Semaphore(0)
        self._done = threading.Semaphore(0)
        self._open = False
        self._passed = 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            self._ssc = StreamingContext(inputs.sc, BATCH_S)
        if folder is not None:
            self._ssc.checkpoint(folder)
        ticks = self._ssc.queueStream([], default=inputs.nothing)
        self.streams = Streams(ticks, inputs)
        # The first output: its function of the RDD is called before those of the others.
        ticks.transform(lambda rdd: self._wait(rdd)).foreachRDD(lambda rdd: None)

    def _wait(self, rdd):
        if not self._open:
            self._permits.acquire()
        self._passed = time.perf_counter()
        return rdd

    def time_job(self, name, stream):
        """Time the job that counts a stream."""
        self.taken[name] = []

        def run(rdd):
            begun = time.perf_counter()
            rdd._jrdd.rdd().count()
            self.taken[name].append(time.perf_counter() - begun)

        stream.foreachRDD(run)

    def time_batch(self, name, streams, act):
        """Time batches as a whole, in which `act` is done with the RDD of each stream."""
        self.taken[name] = []
        for stream in streams:
            stream.foreachRDD(act)

        def end(_):
            self.taken[name].append(time.perf_counter() - self._passed)

        self.streams.ticks.foreachRDD(end)

    def batches(self, count):
        """Run so many batches, then stop."""
        self.streams.ticks.foreachRDD(lambda _: self._done.release())
        self._ssc.start()
        try:
            for _ in range(count):
                self._permits.release()
                if not self._done.acquire(timeout=300):
                    raise TimeoutError(f"{self.side}: {', '.join(self.taken)} took too long")
        finally:
            self._open = True
            self._permits.release()
            self._ssc.stop(stopSparkContext=False)


def each_alone(side, inputs, outputs):
    """Time the job of each output, all in one context."""
    run = Run(side, inputs)
    for name, output in outputs.items():
        run.time_job(name, output(run.streams))
    run.batches(WARM_UP + MEASURED)
    return run


def with_memory(side, inputs, name, output, folder):
    """Time batches of an output that keeps something from batch to batch."""
    run = Run(side, inputs, folder)

    run.time_batch(name, [output(run.streams)], counted)
    run.batches(WINDOW + MEASURED)
    return run


def counted(rdd):
    # PySpark takes what a function returns for an RDD.
    rdd._jrdd.rdd().count()


def word_counts(lines):
    return lines.flatMap(str.split).map(lambda word: (word, 1)).reduceByKey(add)


def without_data(side, inputs, name, act):
    """Time batches without data, with ten output operations."""
    run = Run(side, inputs)
    run.time_batch(name, [word_counts(run.streams.ticks) for _ in range(10)], act)
    run.batches(EMPTY_BATCHES)
    return run


def main():
    given = json.loads(sys.argv[1])
    wanted = given.get("only")
    folder = tempfile.mkdtemp(prefix="operations-", dir=given["folder"])
    try:
        seconds = {side: measure(side, wanted, folder) for side in SIDES}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    tell(summary(seconds["pyspark"], seconds["penstock"]))


def measure(side, wanted, folder):
    """Return the seconds of what is wanted, by name, in a Spark context with its own workers."""

    def chosen(table):
        return {name: op for name, op in table.items() if wanted is None or name in wanted}

    seconds = {}

    def keep(run, skipped):
        for name, times in run.taken.items():
            seconds[name] = median(times[skipped:])
            tell({"progress": f"{side}: {name}: {seconds[name]:.4f} s"})

    sc = spark_context(ProgramOptions(side=side, folder=folder, cores=2))
    inputs = Inputs(sc)
    together = list(chosen(OPERATIONS).items())
    for first in range(0, len(together), TOGETHER):
        keep(each_alone(side, inputs, dict(together[first : first + TOGETHER])), WARM_UP)
    for name, output in chosen(KEPT if side == "pyspark" else {**KEPT, **ALONE}).items():
        keep(with_memory(side, inputs, name, output, folder), WINDOW)
    for name, act in chosen(EMPTY).items():
        keep(without_data(side, inputs, name, act), EMPTY_BATCHES // 4)
    sc.stop()
    return seconds


def summary(peer, ours):
    """Return how many times as fast ours are, all of them and those that matter most."""
    ratios = {name: peer[name] / ours[name] for name in ours if name in peer}
    operations = [ratio for name, ratio in ratios.items() if name not in EMPTY]
    figures = {"least_ratio": min(operations, default=0.0)}
    for figure, name in (("sliding_ratio", SLIDING), ("state_ratio", STATE)):
        if name in ratios:
            figures[figure] = ratios[name]
    shares = [1 / ratios[name] for name in EMPTY if name in ratios]
    if shares:
        figures["empty_share"] = max(shares)
    notes = {
        name: f"{ratio:.2f} ({peer[name]:.4f}, {ours[name]:.4f})" for name, ratio in ratios.items()
    }
    notes |= {name: f"- ({ours[name]:.4f} here)" for name in ours if name not in peer}
    return {"figures": figures, "notes": notes}


main()
