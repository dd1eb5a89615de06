"""A program that is upgraded: ``python -m tests.system.upgraded JSON``.

Each version counts and sums the numbers of its streams, by stream. For each batch it writes what
the batch has and what the states are then, each to a file of the batch's time.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.streaming import StateSpec, StreamingContext, StreamingContextState
from tests.system.program import Tell, obey, say
from tests.system.receivers import NumberedLines
from tests.system.running import SMALL

BATCH_S = 3
"""A busy machine keeps up with that, also after a downtime."""


class Write:
    """Writes what a batch has to the file of its time, whole, and beside a first one that differs.

    Args:
        folder: Where.
        name: Of the files.
        fails: Whether it cannot.
    """

    def __init__(self, folder: str, name: str, fails: bool) -> None:
        self.folder = folder
        self.name = name
        self.fails = fails

    def __call__(self, time: Any, rdd: Any) -> None:
        if self.fails:
            raise OSError("this version cannot write")
        made = json.dumps(sorted(rdd.collect()))
        path = Path(self.folder, f"{self.name}-{round(time.timestamp() * 1000)}")
        if path.exists() and path.read_text() != made:
            path = path.with_suffix(".other")
        temporary = path.with_suffix(f".{os.getpid()}.new")
        temporary.write_text(made)
        temporary.rename(path)


class OfStream:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, line: Any) -> tuple[str, int]:
        return self.name, int(line)


def add(values: Iterable[int], state: int | None) -> int:
    return sum(values) + (state or 0)


def count_and_add(values: Iterable[int], state: Any) -> list[int]:
    # What the version before kept is told by its form.
    count, total = state if isinstance(state, list) else (0, state or 0)
    found = list(values)
    return [count + len(found), total + sum(found)]


def map_count_and_add(key: str, value: int, state: Any) -> None:
    state.update(count_and_add([value], state.getOption()))


def sums_of(pairs: Any, update: str) -> Any:
    """Return the pairs of streams and what the program knows of them."""
    if update == "map":
        spec = StateSpec.function(map_count_and_add)
        mapped = pairs.mapWithState(spec).named("sums")
        mapped.checkpoint(2 * BATCH_S)
        return mapped.stateSnapshots()
    function = add if update == "add" else count_and_add
    return pairs.updateStateByKey(function, 2).named("sums").checkpoint(2 * BATCH_S)


def build(config: dict[str, Any]) -> StreamingContext:
    conf = SparkConf().setMaster("local[4]").setAppName("penstock-upgrade-test")
    plain = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.default.parallelism": "2",
        "spark.penstock.blockServer.lease": "3s",
        "spark.streaming.receiver.maxRate": "500",
        "spark.streaming.gracefulStopTimeout": "300s",
        "spark.log.level": "OFF",
    }
    for key, value in {**SMALL, **plain, **config.get("settings", {})}.items():
        conf.set(key, value)
    ssc = StreamingContext(SparkContext(conf=conf), BATCH_S)
    fails = config.get("fails", ())
    streams = []
    for name, address in config["streams"].items():
        lines = ssc.receiverStream(NumberedLines(tuple(address), positions=True), name=name)
        pairs = lines.map(OfStream(name))
        pairs.foreachRDD(Write(config["results"], name, name in fails))
        streams.append(pairs)
    sums = sums_of(ssc.union(*streams), config["update"])
    sums.foreachRDD(Write(config["results"], "sums", "sums" in fails))
    return ssc


def main(config: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    ssc = StreamingContext.getOrCreate(
        config["checkpoint"], lambda: build(config), version=config["version"]
    )
    ssc.addStreamingListener(Tell())
    ssc.start()
    say("started")
    threading.Thread(target=obey, args=(ssc,), daemon=True).start()
    while ssc.getState() is not StreamingContextState.STOPPED:
        try:
            ssc.awaitTermination()
        except Exception as error:  # noqa: BLE001  # a batch that failed; the program goes on
            say("failed", error=str(error))
            threading.Event().wait(0.2)
    say("ended")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
