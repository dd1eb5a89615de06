"""A host with three receivers on several machines, and a query: ``... query_hosts_program JSON``.

Log, checkpoint and what the query writes are on HDFS. Each receiver stores so many numbered lines;
after the first half of them it waits until the driver has made a file. The program says where the
receivers run, and how many rows were written, and ends when all are.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.receiver import receiver
from penstock.sql import ReceiverHost
from tests.system.program import say
from tests.system.running import SMALL

LINE_BYTES = 100
_LINES = 500
"""Of each `store`."""


@receiver(positions=True, schema="line string")
class Lines:
    """Numbered lines up to `count`; no more than half of them before the file `half` is there."""

    def __init__(self, count: int, half: str) -> None:
        self.count = count
        self.half = half

    def run(self, context: Any) -> Iterator[tuple[list[dict[str, str]], int]]:
        number = context.last_position or 0
        while number < self.count and not context.stopped.is_set():
            if number >= self.count // 2 and not os.path.exists(self.half):
                context.stopped.wait(0.1)
                continue
            lines = [{"line": f"{each:0{LINE_BYTES}d}"} for each in range(number, number + _LINES)]
            number += _LINES
            yield lines, number
        context.stopped.wait()


def session(config: dict[str, Any]) -> SparkSession:
    plain = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": config["driver"],
        "spark.driver.bindAddress": config["driver"],
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        # What crosses the network is then what was stored.
        "spark.penstock.wal.compression.codec": "none",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    builder = SparkSession.builder.master(config["master"]).appName("penstock-query-hosts")
    for key, value in {**SMALL, **plain}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(config: dict[str, Any]) -> None:
    spark = session(config)
    spark.sparkContext.setLogLevel("OFF")
    names = [f"lines-{number}" for number in range(config["receivers"])]
    host = ReceiverHost(spark, config["hdfs"] + "/host")
    for name in names:
        host.stream(name, Lines(config["count"], config["half"]))
    host.start()

    def load(name: str) -> DataFrame:
        reader = spark.readStream.format("penstock").option("stream", name)
        return reader.option("metadataColumns", "_stream").load()

    query = (
        functools.reduce(DataFrame.union, map(load, names))
        .writeStream.format("parquet")
        .option("path", config["hdfs"] + "/out")
        .option("checkpointLocation", config["hdfs"] + "/checkpoint")
        .start()
    )
    pause = threading.Event()
    wanted = config["receivers"] * config["count"]

    def wait(what: str, is_so: Callable[[], bool]) -> None:
        while not is_so():
            assert query.isActive, query.exception()
            pause.wait(0.05)
        places = {found.stream_id: found.host for found in host.receivers()}
        say(what, hosts=[places[number] for number in sorted(places)])

    def stored() -> int:
        return sum(stream.records for stream in host.streams().values())

    wait("half", lambda: sum(each["numInputRows"] for each in query.recentProgress) * 2 >= wanted)
    wait("more", lambda: stored() > 0.6 * wanted)
    wait("stored", lambda: stored() == wanted)
    query.processAllAvailable()
    query.stop()
    host.stop()
    rows = spark.read.parquet(config["hdfs"] + "/out")
    rows = rows.selectExpr("_stream", "CAST(line AS BIGINT) AS number")
    found = rows.groupBy("_stream").agg({"number": "count", "*": "count"}).collect()
    distinct = dict(rows.distinct().groupBy("_stream").count().collect())
    largest = dict(rows.groupBy("_stream").max("number").collect())
    say(
        "done",
        rows={row["_stream"]: row["count(1)"] for row in found},
        distinct=distinct,
        largest=largest,
    )
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
