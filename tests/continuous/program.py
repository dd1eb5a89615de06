"""A program of some continuous streams, to be killed: ``python -m tests.continuous.program JSON``.

One writes Parquet files by two tasks, or three, one a SQLite database, one a file for each epoch by
a function, and one counts by key. With ``kafka`` there are two others instead, which write to
topics, one by two tasks or three. With ``kills`` it also kills itself at random steps of an epoch:
a task's process around `prepare` and `commit`, and the driver around what it logs.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkConf, SparkContext

from penstock.streaming import (
    DatabaseSink,
    Epoch,
    FileSink,
    FunctionSink,
    KafkaSink,
    KeyedState,
    Sink,
    StreamingContext,
)
from penstock.tracker.places import Places
from tests.sql.sources import numbers
from tests.system.program import obey, say
from tests.system.running import SMALL

KEYS = 50
STREAMS = ("files", "database", "function", "state")
TOPICS = ("wide", "narrow")
WIDE = ("files", "wide")


def parsed(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": [int(value) for value in batch.column(0).to_pylist()]})


def counted(batch: pa.RecordBatch, state: KeyedState) -> pa.RecordBatch:
    """Say of each number which one it is of its key."""
    counts = []
    for key in batch["key"].to_pylist():
        state[key] = state.get(key, 0) + 1
        counts.append(state[key])
    return pa.RecordBatch.from_pydict({"n": batch["n"], "count": counts})


class Connect:
    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60.0)


class Write:
    """Writes an epoch to a file of its name; one that is there is left."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def __call__(self, epoch: Epoch, table: pa.Table) -> None:
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"{epoch.name}.json"
        if not path.exists():
            unnamed = self.folder / f".{epoch.name}.{epoch.attempt}"
            unnamed.write_text(json.dumps(table.column("n").to_pylist()))
            unnamed.rename(path)


class Killing(Sink):
    """Another sink, whose process is killed at some of its steps."""

    def __init__(self, sink: Sink, seed: int, chance: float, tally: str) -> None:
        self.sink = sink
        self.tally = tally
        self.seed = seed
        self.chance = chance

    def open(self, source: str, task: int) -> None:
        self.random = random.Random(f"{self.seed} {task} {time.time()}")
        self.sink.open(source, task)

    def prepare(self, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> None:
        self._step("before prepare")
        self.sink.prepare(epoch, batches)
        self._step("prepared")

    def commit(self, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> None:
        self._step("before commit")
        self.sink.commit(epoch, batches)
        self._step("committed")

    def close(self) -> None:
        self.sink.close()

    def _step(self, what: str) -> None:
        if self.random.random() < self.chance:
            with open(self.tally, "a") as tally:
                tally.write(f"{what}\n")
            os.kill(os.getpid(), signal.SIGKILL)


def kill_driver_at(method: str, at: int, before: bool) -> None:
    """Kill this process with the call of that number of a method of `Places`, or after it."""
    plain: Callable[..., Any] = getattr(Places, method)
    calls = iter(range(1, 1 << 30))

    def call(self: Places, *arguments: Any) -> Any:
        is_it = next(calls) == at
        if is_it and before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = plain(self, *arguments)
        if is_it:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(Places, method, call)


def main(config: dict[str, Any]) -> None:
    folder = Path(config["folder"])
    os.environ["SPARK_WORKER_DIR"] = str(folder / "work")
    conf = SparkConf().setMaster(config["master"]).setAppName("continuous")
    settings = {
        **SMALL,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.streaming.blockInterval": "10ms",
        "spark.penstock.wal.dir": str(folder / "log"),
    }
    for key, value in settings.items():
        conf.set(key, value)
    sc = SparkContext(conf=conf)
    sc.setLogLevel("OFF")
    ssc = StreamingContext(sc, 1)
    sinks: dict[str, Sink]
    if "kafka" in config:
        address = {"bootstrap.servers": config["kafka"]}
        sinks = {name: KafkaSink(config[name], address, value="n") for name in TOPICS}
    else:
        sinks = {
            "files": FileSink(folder / "files"),
            "database": DatabaseSink(
                Connect(str(folder / "numbers.db")), "INSERT INTO numbers VALUES (?)"
            ),
            "function": FunctionSink(Write(str(folder / "function"))),
            "state": FileSink(folder / "state"),
        }
    for name, sink in sinks.items():
        pid_file = str(folder / f"receiver-{name}")
        keys = KEYS if name == "state" else 0
        source = numbers(config["count"], block_s=config["block_s"], pid_file=pid_file, keys=keys)
        ssc.receiverStream(source, name).continuous(
            counted if keys else parsed,
            sink=Killing(sink, config["seed"], config["kills"], str(folder / "kills")),
            epoch=0.05,
            parallelism=config["parallelism"] if name in WIDE else 2 if keys else 1,
            key_by="key" if keys else None,
        )
    if config.get("driver_at"):
        kill_driver_at(*config["driver_at"])
    ssc.start()
    say("started")
    threading.Thread(target=obey, args=(ssc,), daemon=True).start()
    ssc.awaitTermination()
    say("ended")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
