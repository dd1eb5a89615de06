"""What the measured programs share: options, Spark, telling of batches, waiting for the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pyspark import SparkConf, SparkContext, StorageLevel

__all__ = ["LEVEL", "BatchReport", "ProgramOptions", "options", "reporting", "run", "spark_context"]

LEVEL = StorageLevel.MEMORY_AND_DISK
"""For both sides. With its log on Spark itself advises against a level with a replica."""

_END_BOUND_S = 10.0


@dataclass(frozen=True)
class ProgramOptions:
    """What a program is told.

    Attributes:
        side: ``penstock`` or ``pyspark``: from where `StreamingContext` is imported.
        variant: Which of its ways a program goes, if it has several.
        port: Of the feeder.
        folder: For logs and checkpoints.
        cores: N of ``local[N]``.
        batch_s: Seconds between two batches.
        block_ms: The block interval.
        record_bytes: Bytes of a record (with its newline, where it has one).
        settings: More Spark settings.
        checkpoint: The checkpoint directory; empty for one in `folder`.
        watched: How somebody looks at it from outside: ``page`` (its page and its metrics),
            ``tap``; empty: nobody does.
    """

    side: str
    folder: str
    variant: str = ""
    port: int = 0
    cores: int = 4
    batch_s: float = 1.0
    block_ms: int = 200
    record_bytes: int = 100
    settings: tuple[tuple[str, str], ...] = ()
    checkpoint: str = ""
    watched: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return them as JSON wants them."""
        return asdict(self)


def options() -> ProgramOptions:
    """Return the options that this process was started with."""
    return ProgramOptions(**json.loads(sys.argv[1]))


def spark_context(given: ProgramOptions) -> SparkContext:
    """Start Spark; the settings are the same for both sides, which ignore each other's."""
    conf = (
        SparkConf()
        .setMaster(f"local[{given.cores}]")
        .setAppName("penstock-benchmark")
        .set("spark.ui.enabled", "false")
        .set("spark.ui.showConsoleProgress", "false")
        .set("spark.driver.memory", "4g")
        .set("spark.driver.host", "127.0.0.1")
        .set("spark.driver.bindAddress", "127.0.0.1")
        .set("spark.local.dir", os.path.join(given.folder, "spark"))
        .set("spark.log.level", "ERROR")
        .set("spark.streaming.blockInterval", f"{given.block_ms}ms")
        .set("spark.streaming.receiver.writeAheadLog.enable", "true")
        .set("spark.penstock.wal.dir", os.path.join(given.folder, "log"))
    )
    for key, value in given.settings:
        conf.set(key, value)
    return SparkContext(conf=conf)


@dataclass
class BatchReport:
    """What a program says of a batch."""

    records: int = 0
    latencies_ms: tuple[float, ...] = ()


@contextmanager
def reporting(batch_time: datetime) -> Iterator[BatchReport]:
    """Tell the harness of the batch that the block works on."""
    begun = time.monotonic()
    report = BatchReport()
    yield report
    at = batch_time.timestamp()
    tell(
        {
            "batch": at,
            "records": report.records,
            "begun": begun,
            "ended": time.monotonic(),
            "delay_s": time.time() - at,
            "latencies_ms": report.latencies_ms,
        }
    )


def tell(message: dict[str, Any]) -> None:
    """Write one JSON line for the harness."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def run(ssc: Any) -> None:
    """Run a streaming context until the harness closes standard input; then end at once."""
    ssc.start()
    tell({"started": time.monotonic()})
    how = options().watched
    if how:
        # It ends when this process does.
        watcher = [sys.executable, "-m", "benchmarks.programs._watcher", str(os.getpid()), how]
        subprocess.Popen(watcher)
    sys.stdin.read()
    # A context that hangs while it stops is not what is measured.
    threading.Timer(_END_BOUND_S, os._exit, (1,)).start()
    ssc.stop(stopSparkContext=True, stopGraceFully=False)
    os._exit(0)
