"""Twenty receivers on two cores: their processes are killed, and one ends its own.

Prints as JSON what batches saw, by receiver and in order, and the processes that receivers had.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import defaultdict
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.receiver import Receiver
from penstock.streaming import StreamingContext
from tests.system.leftovers import await_that, is_running
from tests.system.running import SMALL, WAIT_S

RECEIVERS = 20
LAST = 60
EXITS = 7
"""This receiver ends its process once, in the middle."""


class Numbers(Receiver):
    """Stores 0, 1, 2, … with their positions, and says in a file in which processes it was."""

    def __init__(self, number: int, folder: Path) -> None:
        super().__init__()
        self.number, self.folder = number, folder
        self.slots = 1 / RECEIVERS if number % 2 else None  # The others have it from the setting.

    def onStart(self) -> None:
        with open(self.folder / f"pids-{self.number}", "a") as file:
            file.write(f"{os.getpid()}\n")
        threading.Thread(target=self.feed, name="numbers", daemon=True).start()

    def onStop(self) -> None: ...

    def feed(self) -> None:
        begin = 0 if self.lastPosition is None else self.lastPosition + 1
        for at in range(begin, LAST):
            if self.number == EXITS and at == LAST // 2 and not (self.folder / "exited").exists():
                # Of one whose process ends before its start, the first would be another one.
                await_that("the start of all", self.have_all_begun, WAIT_S)
                (self.folder / "exited").touch()
                os._exit(7)
            if self.isStopped():
                return
            self.store([f"{self.number} {at}"], position=at)

    def have_all_begun(self) -> bool:
        return all(pids(self.folder, number) for number in range(RECEIVERS))


def pids(folder: Path, number: int) -> list[int]:
    path = folder / f"pids-{number}"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def main() -> None:
    folder = Path(sys.argv[1])
    conf = SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false")
    for key, value in {**SMALL, "spark.penstock.receivers.perSlot": "20"}.items():
        conf.set(key, value)
    sc = SparkContext(conf=conf)
    ssc = StreamingContext(sc, 0.5)
    seen: dict[int, list[int]] = defaultdict(list)

    def keep(rdd: Any) -> None:
        for number, at in rdd.map(lambda line: tuple(map(int, line.split()))).collect():
            seen[number].append(at)

    ssc.union(*(ssc.receiverStream(Numbers(n, folder)) for n in range(RECEIVERS))).foreachRDD(keep)
    ssc.start()

    def all_have(count: int) -> bool:
        return all(len(seen[number]) >= count for number in range(RECEIVERS))

    for count in (5, 15):
        await_that("records of all", partial(all_have, count), WAIT_S)
        # All may have more than 15 at the first kill already, and the next process not begun.
        await_that("a process to kill", lambda: is_running(pids(folder, 0)[-1]), WAIT_S)
        with suppress(ProcessLookupError):  # It may be the one that ends itself, just then.
            os.kill(pids(folder, 0)[-1], signal.SIGKILL)
    await_that("all records", lambda: all_have(LAST), WAIT_S)
    states = [(status.state, status.attempts) for status in ssc.receivers()]
    ssc.stop(stopSparkContext=True, stopGraceFully=True)
    where = {number: pids(folder, number) for number in range(RECEIVERS)}
    print(json.dumps({"seen": seen, "states": states, "pids": where}))


if __name__ == "__main__":
    main()
