"""How long a record takes from `store` to a continuous function, and to its committed sink.

``python -m benchmarks.low_latency`` stores records at a fixed rate for some seconds on
``local[3]``, with both logs synced, and prints p50, p90, p99 and the slowest, all records counted,
also those of the first epochs. A bare 4 KiB write with `fdatasync` on the same disk stands beside
them, and with ``--peers`` the same of `benchmarks.low_latency_peers`, one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkConf, SparkContext

from benchmarks.machine import describe
from penstock.receiver import receiver
from penstock.streaming import Epoch, FileSink, StreamingContext

PEERS = {
    "loop": "Kafka to a Python consumer",
    "realtime": "Spark's real-time mode, Kafka",
    "batches": "Structured Streaming to files",
}


class TimedFileSink(FileSink):
    """Notes when each file had its name, beside it."""

    def commit(self, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> None:
        """Commit, and note when."""
        super().commit(epoch, batches)
        if batches:
            os.utime(self._path(epoch))


def paced(rate: int, seconds: float) -> Any:
    """Return a source of the times at which its records are stored, in ns since the epoch."""

    @receiver(schema="stored bigint")
    def times(context: Any) -> Iterator[list[dict[str, int]]]:
        begun_s, stored = time.monotonic(), 0
        while (since_s := time.monotonic() - begun_s) < seconds:
            due = int(since_s * rate)
            for _ in range(due - stored):
                yield {"stored": time.time_ns()}  # type: ignore[misc]
            stored = due
            time.sleep(0.0005)

    return times


def seen(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return each record's time, and that of the function's call."""
    return batch.append_column("seen", pa.array([time.time_ns()] * batch.num_rows, pa.int64()))


def told(name: str, milliseconds: list[float]) -> str:
    """Return a line of a table."""
    found = sorted(milliseconds)
    at = [found[min(len(found) - 1, int(part * len(found)))] for part in (0.5, 0.9, 0.99)]
    return f"{name:34}" + "".join(f"{value:9.1f}" for value in (*at, found[-1]))


def syncs_of(folder: Path, count: int = 500) -> list[float]:
    """Return how long bare synced writes of 4 KiB take, ms."""
    took = []
    with open(folder / "bare", "wb", buffering=0) as file:
        for _ in range(count):
            begun_s = time.monotonic()
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
            took.append((time.monotonic() - begun_s) * 1000)
    return took


def main() -> None:
    """Run it and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000, help="records per second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--block", default="200ms", help="the block interval")
    parser.add_argument("--peers", action="store_true", help="what others do, too")
    parser.add_argument("--epoch", default="100 ms")
    parser.add_argument("--deliver", default="durable", choices=("durable", "stored"))
    parser.add_argument("--folder", help="where the logs lie; a temporary folder when left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        conf = SparkConf().set("spark.ui.enabled", "false").set("spark.log.level", "ERROR")
        conf.set("spark.streaming.blockInterval", options.block)
        sc = SparkContext("local[3]", "low latency", conf=conf)
        ssc = StreamingContext(sc, 1)
        ssc.checkpoint(str(folder / "checkpoint"))
        stream = ssc.receiverStream(paced(options.rate, options.seconds))
        stream.continuous(
            seen,
            sink=TimedFileSink(folder / "out"),
            epoch=options.epoch,
            deliver=options.deliver,
        )
        ssc.start()
        while not ssc.receivers()[0].records:
            time.sleep(0.1)
        time.sleep(options.seconds + 2)
        ssc.stop(stopSparkContext=True, stopGraceFully=True)
        to_function: list[float] = []
        to_sink: list[float] = []
        for path in (folder / "out").glob("part-*"):
            table = pq.ParquetFile(str(path)).read()
            committed = path.stat().st_mtime_ns
            stored = table["stored"].to_pylist()
            pairs = zip(stored, table["seen"].to_pylist(), strict=True)
            to_function += [(when - begun) / 1e6 for begun, when in pairs]
            to_sink += [(committed - begun) / 1e6 for begun in stored]
        print(", ".join(f"{what}: {text}" for what, text in describe(name).items()))
        print(
            f"{len(to_function)} records at {options.rate} a second, blocks of at most "
            f"{options.block}, epochs of {options.epoch}, {options.deliver}; milliseconds:"
        )
        print(f"{'':34}{'p50':>9}{'p90':>9}{'p99':>9}{'slowest':>9}")
        print(told("store to the function", to_function))
        print(told("store to the committed file", to_sink))
        print(told("a bare fdatasync of 4 KiB", syncs_of(folder)), flush=True)
    for way, words in PEERS.items() if options.peers else ():
        command = [sys.executable, "-m", "benchmarks.low_latency_peers", way]
        command += [f"--rate={options.rate}", f"--seconds={options.seconds}"]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        at = json.loads(ended.stdout.splitlines()[-1])["milliseconds"]
        print(f"{words:34}" + "".join(f"{value:9.1f}" for value in at), flush=True)


if __name__ == "__main__":
    main()
