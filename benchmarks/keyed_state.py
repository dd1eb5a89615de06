"""How many updates of a state by key a second: `key_by` beside `mapWithState`, in one run.

``python -m benchmarks.keyed_state`` receives records of random keys as fast as each way takes them,
on ``local[4]`` with both logs synced, and counts them by key: two tasks of a continuous function in
their states, and batches in `mapWithState`, whose states are in memory. The time is that from the
start of the receiver to the last record's committed epoch, or batch: of few records it is largely
that of the start, so run it with two numbers of them. Each way has a process of its
own; both must have counted all records.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import SparkConf, SparkContext

from benchmarks.machine import describe
from penstock.receiver import receiver
from penstock.streaming import FunctionSink, KeyedState, StateSpec, StreamingContext

_EACH = 5000


def keys(count: int, of: int) -> Any:
    """Return a source of so many random keys."""

    @receiver(schema="key bigint")
    def drawn(context: Any) -> Iterator[pa.RecordBatch]:
        chance = np.random.default_rng(1)
        for at in range(0, count, _EACH):
            if context.stopped.is_set():
                return
            yield pa.RecordBatch.from_pydict(
                {"key": chance.integers(0, of, min(_EACH, count - at))}
            )
        context.stopped.wait()

    return drawn


def count_in_state(batch: pa.RecordBatch, state: KeyedState) -> pa.RecordBatch:
    """Count, and return a row for each key of the batch."""
    found, added = np.unique(batch["key"].to_numpy(), return_counts=True)
    counts = []
    for key, more in zip(found.tolist(), added.tolist(), strict=True):
        state[key] = count = state.get(key, 0) + more
        counts.append(count)
    return pa.RecordBatch.from_pydict({"key": found, "count": counts})


def count_in_batch(key: int, value: int | None, state: Any) -> tuple[int, int]:
    """Count one record."""
    state.update((state.getOption() or 0) + value)
    return key, state.get()


def seconds_of(ssc: Any, received: Any, made: Any, count: int, most_s: float) -> float:
    """Run a program until so many records are in it; return how many seconds that took.

    Args:
        ssc: Its context, which is stopped.
        received: The stream of its receiver, whose function has an epoch for each of them.
        made: A stream whose batches have them instead; None: there is none.
        count: How many.
        most_s: After so long it is given up.
    """
    done = [0]

    def add(rdd: Any) -> None:
        done[0] += rdd.count()

    if made is not None:
        made.foreachRDD(add)
    ssc.start()
    begun_s = time.monotonic()
    while True:
        epochs = received.epochs
        found = done[0] if epochs is None else epochs.records
        if found >= count:
            break
        if time.monotonic() - begun_s > most_s:
            sys.exit(f"{found} of {count} records after {most_s:g} s")
        time.sleep(0.02)
    took_s = time.monotonic() - begun_s
    ssc.stop(stopSparkContext=True)
    return took_s


def run(way: str, count: int, of: int, folder: Path) -> float:
    """Return how many seconds it took."""
    conf = SparkConf().set("spark.ui.enabled", "false").set("spark.log.level", "ERROR")
    conf.set("spark.driver.memory", "4g")
    sc = SparkContext("local[4]", way, conf=conf)
    ssc = StreamingContext(sc, 1)
    ssc.checkpoint(str(folder / "checkpoint"))
    stream = ssc.receiverStream(keys(count, of), "keys")
    counts = None
    if way == "key_by":
        sink = FunctionSink(lambda epoch, table: None)
        stream.continuous(count_in_state, sink=sink, key_by="key", parallelism=2)
    else:
        pairs = stream.map(lambda row: (row["key"], 1))
        counts = pairs.mapWithState(StateSpec.function(count_in_batch))
    return seconds_of(ssc, stream, counts, count, 1800)


def main() -> None:
    """Run both ways and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--folder", help="where the logs lie; a temporary folder when left out")
    parser.add_argument("--way", choices=["key_by", "mapWithState"], help="one way, no table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        if options.way is not None:
            print(run(options.way, options.records, options.keys, Path(name)))
            return
        print(", ".join(f"{what}: {text}" for what, text in describe(name).items()))
        print(f"{options.records} records of {options.keys} keys:")
        for way in ("key_by", "mapWithState"):
            command = [sys.executable, "-m", "benchmarks.keyed_state", f"--way={way}"]
            command += [f"--records={options.records}", f"--keys={options.keys}"]
            command += [f"--folder={name}"]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            took_s = float(ended.stdout.split()[-1])
            print(f"{way:14}{took_s:8.1f} s{options.records / took_s:10.0f} records/s", flush=True)


if __name__ == "__main__":
    main()
