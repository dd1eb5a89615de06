"""Two receivers that are generators, on live input: this machine's kernel counters.

An async generator yields how busy each processor was, as rows of a schema; batches of it are
DataFrames. A plain generator follows a file with positions, so that each line comes exactly once,
also after a crash; batches of it are counted.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkConf
from pyspark.sql import DataFrame, SparkSession

from penstock.receiver import ReceiverContext, receiver
from penstock.streaming import StreamingContext

BUSY = pa.schema([("cpu", pa.string()), ("user", pa.int64()), ("total", pa.int64())])


@receiver(schema=BUSY)
async def processors() -> AsyncIterator[dict[str, Any]]:
    """Yield the ticks of each processor since the last look, ten times a second."""
    before: dict[str, list[int]] = {}
    while True:
        for line in Path("/proc/stat").read_text().splitlines():
            name, *numbers = line.split()
            if name.startswith("cpu") and name != "cpu":
                ticks = [int(number) for number in numbers[:8]]
                if name in before:
                    spent = [now - then for now, then in zip(ticks, before[name], strict=True)]
                    yield {"cpu": name, "user": spent[0] + spent[1], "total": sum(spent)}
                before[name] = ticks
        await asyncio.sleep(0.1)


def follow(path: str) -> Any:
    """Return a receiver of the lines of a file that grows."""

    @receiver(positions=True)
    def lines(ctx: ReceiverContext) -> Iterator[tuple[str, int]]:
        with open(path, "rb") as file:
            place = ctx.last_position or 0
            file.seek(place)
            while not ctx.stopped.wait(0.1):
                while (line := file.readline()).endswith(b"\n"):
                    place += len(line)
                    yield line.decode(errors="replace").rstrip(), place
                file.seek(place)  # the last line has no end yet

    return lines


def show_load(ticks: DataFrame, time: datetime) -> None:
    ticks.groupBy("cpu").sum("user", "total").createOrReplaceTempView("ticks")
    rows = ticks.sparkSession.sql(
        "SELECT cpu, 100 * `sum(user)` / `sum(total)` AS busy FROM ticks ORDER BY cpu"
    ).collect()
    if rows:
        busy = "  ".join(f"{row.cpu} {row.busy or 0:.0f} %" for row in rows)
        print(f"{time:%H:%M:%S}  user load: {busy}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15, help="how long to run")
    parser.add_argument("--follow", metavar="FILE", help="count the lines of this file, too")
    options = parser.parse_args()

    conf = SparkConf().setIfMissing("spark.master", "local[4]").setAppName("generators")
    conf.set("spark.ui.showConsoleProgress", "false").set("spark.log.level", "FATAL")
    conf.set("spark.streaming.gracefulStopTimeout", "60s")
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    ssc = StreamingContext(session.sparkContext, 1)
    ssc.receiverStream(processors).foreachBatch(show_load)
    if options.follow:
        ssc.receiverStream(follow(options.follow)).count().pprint()
    ssc.start()
    try:
        ssc.awaitTerminationOrTimeout(options.seconds)
    except KeyboardInterrupt:
        print("Stopping.")
    finally:
        ssc.stop(stopSparkContext=True, stopGraceFully=True)


if __name__ == "__main__":
    main()
