"""How many records a second a continuous function is given, beside the same function in batches.

``python -m benchmarks.full_speed`` receives record batches as fast as each way takes them, on
``local[4]`` with both logs synced: a continuous function with a sink that keeps nothing, and
``stream.arrow.map`` of it, counted. The time is that from the start of the receiver to the last
record's committed epoch, or batch. Each way has a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkConf, SparkContext

from benchmarks.keyed_state import keys, seconds_of
from benchmarks.machine import describe
from penstock.streaming import FunctionSink, StreamingContext

_WAYS = ("continuous", "batches")


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with another column."""
    return batch.append_column("doubled", pc.multiply(batch["key"], 2))


def run(way: str, count: int, folder: Path) -> float:
    """Return how many seconds it took."""
    conf = SparkConf().set("spark.ui.enabled", "false").set("spark.log.level", "ERROR")
    sc = SparkContext("local[4]", way, conf=conf)
    ssc = StreamingContext(sc, 1)
    ssc.checkpoint(str(folder / "checkpoint"))
    stream = ssc.receiverStream(keys(count, 1_000_000), "keys")
    mapped = None
    if way == "continuous":
        stream.continuous(doubled, sink=FunctionSink(lambda epoch, table: None))
    else:
        mapped = stream.arrow.map(doubled).records()
    return seconds_of(ssc, stream, mapped, count, 600)


def main() -> None:
    """Run both ways and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--folder", help="where the logs lie; a temporary folder when left out")
    parser.add_argument("--way", choices=_WAYS, help="one way, no table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        if options.way is not None:
            print(run(options.way, options.records, Path(name)))
            return
        print(", ".join(f"{what}: {text}" for what, text in describe(name).items()))
        for way in _WAYS:
            command = [sys.executable, "-m", "benchmarks.full_speed", f"--way={way}"]
            command += [f"--records={options.records}", f"--folder={name}"]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            took_s = float(ended.stdout.split()[-1])
            print(f"{way:14}{took_s:8.1f} s{options.records / took_s:12.0f} records/s", flush=True)


if __name__ == "__main__":
    main()
