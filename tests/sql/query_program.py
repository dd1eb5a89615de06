"""Queries of received numbers, to be killed: ``python -m tests.sql.query_program JSON``.

Three queries read one stream: into Parquet files, and into a file for each batch by `foreachBatch`,
from the earliest record and from the latest. A batch that is made again writes its file again; one
that differs from the first is kept beside it, as a broken promise.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.sql import ReceiverHost
from tests.sql.sources import numbers
from tests.system.program import say
from tests.system.running import SMALL


def keep(folder: Path, config: dict[str, Any]) -> Callable[[Any, int], None]:
    """Return what writes a batch to a file; at the batch `hold_at` it waits to be killed."""
    folder.mkdir(exist_ok=True)

    def write(frame: Any, batch: int) -> None:
        found = sorted(int(row[0]) for row in frame.collect())
        path = folder / f"{batch}.json"
        if path.exists() and json.loads(path.read_text()) != found:
            path = folder / f"{batch}.differs.json"
        unnamed = path.with_suffix(".tmp")
        unnamed.write_text(json.dumps(found))
        unnamed.rename(path)
        if config.get("hold_at") == batch and not config["held"]:
            config["held"] = True
            say("held", batch=batch)
            time.sleep(600)

    return write


def main(config: dict[str, Any]) -> None:
    folder = Path(config["folder"])
    builder = SparkSession.builder.master("local[4]").appName("queries")
    for key, value in {**SMALL, "spark.ui.enabled": "false"}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    host = ReceiverHost(spark, folder / "host")
    source = numbers(config["count"], block_s=config["block_s"])
    host.stream("numbers", source, retention=config["retention"])
    host.start()

    def load(**options: Any) -> Any:
        reader = spark.readStream.format("penstock").option("stream", "numbers")
        return reader.options(maxRecordsPerTrigger=config["batch"], **options).load()

    config["held"] = False
    queries = [
        load()
        .writeStream.format("parquet")
        .option("path", str(folder / "parquet"))
        .option("checkpointLocation", str(folder / "cp-parquet"))
        .start(),
        load()
        .writeStream.foreachBatch(keep(folder / "earliest", config))
        .option("checkpointLocation", str(folder / "cp-earliest"))
        .start(),
        load(startingOffsets="latest")
        .writeStream.foreachBatch(keep(folder / "latest", {}))
        .option("checkpointLocation", str(folder / "cp-latest"))
        .start(),
    ]
    say("started")
    while host.streams()["numbers"].records < config["count"]:
        for query in queries:
            if not query.isActive:
                say("failed", error=str(query.exception()))
                os._exit(1)
        time.sleep(0.1)
    for query in queries:
        query.processAllAvailable()
        query.stop()
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
