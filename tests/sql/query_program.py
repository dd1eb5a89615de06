"""Queries of received numbers, to be killed: ``python -m tests.sql.query_program JSON``.

Three queries read one stream: into Parquet files, and into a file for each batch by `foreachBatch`,
from the earliest record and from the latest. A fourth one reads that stream and another one, as one
source, into a file for each batch. A batch that is made again writes its file again; one
that differs from the first is kept beside it, as a broken promise. One batch of one query can be
held before it is complete: that into Parquet files in a task, the others after they have written.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from penstock.sql import ReceiverHost
from tests.sql.sources import numbers
from tests.system.program import say
from tests.system.running import SMALL

QUERIES = ("parquet", "earliest", "latest", "both")
STREAMS = ("numbers", "others")

_NO_PROCESSOR = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to begin; on a busy machine it is started again."""

_PAUSE_S = 10.0
"""At most so long after the first time, and longer each time: processes that came too late begin
all the same, and those of four queries at once would keep each other from it."""


def keep(folder: Path, hold: dict[str, Any] | None, held: Path) -> Callable[[Any, int], None]:
    """Return what writes a batch to a file, and then waits if it is to be held."""
    folder.mkdir(exist_ok=True)

    def write(frame: Any, batch: int) -> None:
        found = sorted(int(row[0]) for row in frame.collect())
        path = folder / f"{batch}.json"
        if path.exists() and json.loads(path.read_text()) != found:
            path = folder / f"{batch}.differs.json"
        unnamed = path.with_suffix(".tmp")
        unnamed.write_text(json.dumps(found))
        unnamed.rename(path)
        wait_if(hold, folder.name, batch, held)

    return write


def holding(hold: dict[str, Any] | None, held: Path) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return what gives batches of Arrow as they come, in a task that waits if it is to be held."""

    def pass_on(batches: Iterable[Any]) -> Iterator[Any]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        wait_if(hold, "parquet", int(context.getLocalProperty("streaming.sql.batchId")), held)

    return pass_on


def wait_if(hold: dict[str, Any] | None, query: str, batch: int, held: Path) -> None:
    """Wait to be killed, in the query that is to be held, from one of its batches on.

    A batch that a sink of files has completed before a kill is not run again.
    """
    if hold is not None and hold["query"] == query and batch >= hold["batch"]:
        held.touch()
        time.sleep(600)


def least(host: ReceiverHost) -> int:
    """Return how many records each stream has at least."""
    return min(stream.records for stream in host.streams().values())


def main(config: dict[str, Any]) -> None:
    folder = Path(config["folder"])
    # Where a cluster on this machine would otherwise write into the environment.
    os.environ["SPARK_WORKER_DIR"] = str(folder / "work")
    builder = SparkSession.builder.master(config["master"]).appName("queries")
    for key, value in {**SMALL, "spark.ui.enabled": "false"}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    host = ReceiverHost(spark, folder / "host")
    # The query from the latest record on needs some behind its first offset, which it may not have
    # logged before a kill.
    go_on = folder / f"go-on-{os.getpid()}"
    for name in STREAMS:
        pid_file = str(folder / f"receiver-{name}")
        source = numbers(
            config["count"], block_s=config["block_s"], pid_file=pid_file, go_on=str(go_on)
        )
        # Queries that start slowly find no more than this, and so numbers are left for later runs.
        host.stream(name, source, retention=config["retention"], maxBacklog="16k")
    host.start()

    def load(**options: Any) -> Any:
        reader = spark.readStream.format("penstock")
        return reader.options(maxRecordsPerTrigger=config["batch"], **options).load()

    hold, held = config.get("hold"), Path(config.get("held") or folder / "held")

    into_files = load(stream="numbers")
    into_files = into_files.mapInArrow(holding(hold, held), into_files.schema)
    into_files = into_files.writeStream.format("parquet").option("path", str(folder / "parquet"))
    writers = {"parquet": into_files}
    both = load(streams=",".join(STREAMS), metadataColumns="_stream")
    # Even numbers are of the one stream, odd ones of the other.
    both = both.selectExpr(f"CAST(value AS BIGINT) * 2 + CAST(_stream = '{STREAMS[1]}' AS INT)")
    frames = {name: load(stream="numbers", startingOffsets=name) for name in ("earliest", "latest")}
    for name, frame in {**frames, "both": both}.items():
        writers[name] = frame.writeStream.foreachBatch(keep(folder / name, hold, held))
    for name, writer in writers.items():
        writer.option("checkpointLocation", str(folder / f"cp-{name}"))
    # These first: what the others have passed is released before one that comes late has asked.
    # The streams wait after their first hundred, so that all ask before there is more to pass.
    first = ("both", "earliest", "parquet")
    queries = {name: writers[name].start() for name in first}
    while not all((folder / f"cp-{name}" / "offsets" / "0").exists() for name in first):
        for name in first:
            if not queries[name].isActive:
                queries[name] = writers[name].start()
        time.sleep(0.1)
    queries["latest"] = writers["latest"].start()
    say("started")

    def finish(name: str) -> None:
        while True:
            if not queries[name].isActive:
                queries[name] = writers[name].start()
            try:
                # It may return for a trigger that had asked for the end of the stream before this
                # call: such a one is over when the second call begins.
                queries[name].processAllAvailable()
                queries[name].processAllAvailable()
            except StreamingQueryException as error:
                if _NO_PROCESSOR not in str(error):
                    raise
                time.sleep(random.uniform(0, _PAUSE_S))
            else:
                queries[name].stop()
                return

    is_held = reads = False
    late = dict.fromkeys(queries, 0)
    again_s: dict[str, float] = {}
    while not config["ends"] or least(host) < config["count"]:
        for name, query in queries.items():
            if query.isActive:
                continue
            if name not in again_s:
                again_s[name] = time.monotonic()
                if _NO_PROCESSOR in str(query.exception()):
                    late[name] += 1
                    again_s[name] += random.uniform(0, _PAUSE_S * late[name])
                else:
                    say("failed", query=name, error=str(query.exception()))
                    if not config["parts"]:
                        os._exit(1)
            if time.monotonic() >= again_s[name]:
                del again_s[name]
                queries[name] = writers[name].start()
        if not reads and any(query.recentProgress for query in queries.values()):
            reads = True
            say("reads")
        latest = queries["latest"]
        if latest.recentProgress or "Waiting for data" in latest.status["message"]:
            go_on.touch()
        if not is_held and held.exists():
            is_held = True
            say("held")
        time.sleep(0.1)
    for name in queries:
        finish(name)
    stream = host.streams()["numbers"]
    host.stop()
    found = [int(row[0]) for row in spark.read.parquet(str(folder / "parquet")).collect()]
    (folder / "parquet.json").write_text(json.dumps(sorted(found)))
    say("done", records=stream.records, first=stream.first, next=stream.next)
    spark.stop()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(2)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main(json.loads(sys.argv[1]))
