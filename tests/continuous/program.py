"""A program of some continuous streams, to be killed: ``python -m tests.continuous.program JSON``.

One writes Parquet files by two tasks, or three, one a SQLite database, one a file for each epoch by
a function, and one counts by key. With ``kafka`` there are two others instead, which write to
topics, one by two tasks or three; with ``postgres`` there are five others, which write Arrow by two
tasks or three, JSON lines, and PostgreSQL, and one that sends to another, which writes to a SQLite
database; with ``timers`` there is one alone, which counts in windows and in sessions. With ``host``
the streams are those of a `ReceiverHost`; with ``query`` there is one stream alone, which a query
reads, too. Those in ``stored`` are delivered when they are stored. With ``kills`` it also kills
itself at random steps of an epoch: a task's process around `prepare` and `commit`, a receiver's
between a block's showing and its log, and the driver around what it logs.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from penstock.receiver import receiver
from penstock.sources.http import HttpReceiver
from penstock.sql import ReceiverHost
from penstock.streaming import (
    DatabaseSink,
    Epoch,
    ExpiredTimers,
    FileSink,
    FunctionSink,
    HttpSink,
    KafkaSink,
    KeyedState,
    Sink,
    StreamingContext,
    Timers,
    Watermark,
)
from penstock.tracker.ledger.places import Places
from tests.sql.sources import numbers
from tests.system.program import obey, say
from tests.system.running import SMALL

KEYS = 50
WINDOW_MS = 1000
"""A window of a key has so many numbers, divided by `KEYS`: their event time is one each ms."""
SESSION_MS = 300
STREAMS = ("files", "database", "function", "state")
TOPICS = ("wide", "narrow")
OTHERS = ("arrow", "jsonl", "postgres", "onward")
WIDE = ("files", "wide", "arrow")
STORED = ("files", "database")
QUERIED = "database"


def parsed(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": [int(value) for value in batch.column(0).to_pylist()]})


def received(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return what an `HttpSink` has sent."""
    return pa.RecordBatch.from_pylist([json.loads(row) for row in batch.column(0).to_pylist()])


def counted(batch: pa.RecordBatch, state: KeyedState) -> pa.RecordBatch:
    """Say of each number which one it is of its key."""
    counts = []
    for key in batch["key"].to_pylist():
        state[key] = state.get(key, 0) + 1
        counts.append(state[key])
    return pa.RecordBatch.from_pydict({"n": batch["n"], "count": counts})


def windows(batch: pa.RecordBatch, state: KeyedState, timers: Timers) -> None:
    """Collect the numbers of a window of a key, and count those of a session of it."""
    ends_ms = timers.processing_time.now_ms + SESSION_MS
    for key, n in zip(batch["key"].to_pylist(), batch["n"].to_pylist(), strict=True):
        window = f"{key} {n // WINDOW_MS}"
        state[window] = [*state.get(window, []), n]
        timers.event_time.register(window, (n // WINDOW_MS + 1) * WINDOW_MS)
        before_ms, count = state.get(key, (0, 0))
        timers.processing_time.delete(key, before_ms or ends_ms)
        timers.processing_time.register(key, ends_ms)
        state[key] = (ends_ms, count + 1)


def over(expired: ExpiredTimers, state: KeyedState, timers: Timers) -> pa.RecordBatch:
    rows = []
    for key in expired.keys:
        if expired.is_event_time:
            numbers = state.pop(key)
            rows += [{"n": n, "count": len(numbers)} for n in numbers]
        else:
            ends_ms, count = state.pop(key)
            rows.append({"n": -1, "count": count if ends_ms == expired.time_ms else -1})
    return pa.RecordBatch.from_pylist(rows)


def timed_numbers(count: int, block_s: float, pid_file: str) -> Any:
    """Return a source as `numbers`, with a key and an event time, a little out of order."""

    @receiver(positions=True, schema="key bigint, n bigint, at timestamp")
    def count_up(context: Any) -> Iterator[tuple[Any, int]]:
        import datetime
        import pathlib

        pathlib.Path(pid_file).write_text(str(os.getpid()))
        # The last one only moves the watermark to the end of the window before.
        for number in range(context.last_position or 0, count + 1):
            if context.stopped.is_set():
                return
            n = number ^ 1 if number < count else number
            at_s = (n if n < count else n + 10) / 1000
            at = datetime.datetime.fromtimestamp(at_s, datetime.timezone.utc)
            yield {"key": n % KEYS, "n": n, "at": at}, number + 1
            if number % 100 == 99:
                context.stopped.wait(block_s)
        context.stopped.wait()

    return count_up


def dying(source: Any, chance: float, tally: str) -> Any:
    """Return a source whose process is killed at some blocks that were shown, and before the log.

    Others of the process are, too.
    """

    @receiver(positions=True)
    def count_up(context: Any) -> Iterator[tuple[Any, int]]:
        from penstock.blockstore import BlockStore

        plain: Any = BlockStore.put

        def put(self: BlockStore, block: Any) -> Any:
            if block.num_records and random.random() < chance:
                with open(tally, "a") as lines:
                    lines.write("shown\n")
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(self, block)

        BlockStore.put = put  # type: ignore[method-assign]
        yield from source(context)

    return count_up


class Connect:
    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60.0)


class ConnectPostgres:
    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo

    def __call__(self) -> Any:
        import psycopg

        return psycopg.connect(self.conninfo)


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


def query_of(spark: SparkSession, folder: Path) -> Any:
    """Return what has a query write what the stream of one function has, too."""
    frame = spark.readStream.format("penstock").option("stream", QUERIED).load()
    writer = frame.writeStream.format("parquet").option("path", str(folder / "query"))
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


def obey_as_host(host: ReceiverHost) -> None:
    for line in sys.stdin:
        if line.strip() == "stop":
            host._ask_to_stop(True)  # As `penstock stop` does.
    os._exit(3)


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
    host = ReceiverHost(SparkSession(sc)) if "host" in config else None

    def continuous(source: Any, name: str, function: Any, **options: Any) -> None:
        if host is None:
            ssc.receiverStream(source, name).continuous(function, **options)
        else:
            # Queries begin when the function has committed some.
            host.stream(name, source, retention="1 hour" if "query" in config else 0)
            host.continuous(name, function, **options)

    sinks: dict[str, Sink]
    in_sqlite = DatabaseSink(Connect(str(folder / "numbers.db")), "INSERT INTO numbers VALUES (?)")
    if "kafka" in config:
        address = {"bootstrap.servers": config["kafka"]}
        sinks = {name: KafkaSink(config[name], address, value="n") for name in TOPICS}
    elif "postgres" in config:
        sinks = {
            "arrow": FileSink(folder / "arrow", "arrow"),
            "jsonl": FileSink(folder / "jsonl", "jsonl"),
            "postgres": DatabaseSink(
                ConnectPostgres(config["postgres"]), "INSERT INTO numbers (n) VALUES (%s)"
            ),
            "sent": HttpSink(f"http://127.0.0.1:{config['port']}"),
            "onward": in_sqlite,
        }
    else:
        sinks = {
            "files": FileSink(folder / "files"),
            "database": in_sqlite,
            "function": FunctionSink(Write(str(folder / "function"))),
            "state": FileSink(folder / "state"),
        }
    if "timers" in config:
        sinks = {}
        source = timed_numbers(config["count"], config["block_s"], str(folder / "receiver-timers"))
        continuous(
            source,
            "timers",
            windows,
            on_timer=over,
            watermark=Watermark("at", "10 ms"),
            sink=Killing(
                FileSink(folder / "timers"),
                config["seed"],
                config["kills"],
                str(folder / "kills"),
            ),
            epoch=0.05,
            parallelism=2,
            key_by="key",
        )
    if "query" in config:
        sinks = {QUERIED: sinks[QUERIED]}
    for name, sink in sinks.items():
        pid_file = str(folder / f"receiver-{name}")
        keys = KEYS if name == "state" else 0
        source = numbers(config["count"], block_s=config["block_s"], pid_file=pid_file, keys=keys)
        if name in config.get("stored", ()):
            source = dying(source, config["kills"], str(folder / "kills"))
        if name == "onward":
            source = HttpReceiver(config["port"], "127.0.0.1")
        continuous(
            source,
            name,
            received if name == "onward" else counted if keys else parsed,
            sink=Killing(sink, config["seed"], config["kills"], str(folder / "kills")),
            epoch=0.05,
            parallelism=config["parallelism"] if name in WIDE else 2 if keys else 1,
            key_by="key" if keys else None,
            deliver="stored" if name in config.get("stored", ()) else "durable",
        )
    if config.get("driver_at"):
        kill_driver_at(*config["driver_at"])
    # It may kill itself within its start.
    say("started")
    if host is not None:
        host.start()
        threading.Thread(target=obey_as_host, args=(host,), daemon=True).start()
        host.run(*([query_of(SparkSession(sc), folder)] if "query" in config else []))
        return
    ssc.start()
    threading.Thread(target=obey, args=(ssc,), daemon=True).start()
    ssc.awaitTermination()
    say("ended")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
