"""Several receivers in one process that log on an object store; goes on after any kill.

``python -m tests.system.process_log_program JSON`` writes what each batch has, by receiver and in
order, to a file of the batch's time, as `tests.system.recoverable` does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.receiver import Receiver
from penstock.streaming import StreamingContext
from tests.system import recoverable
from tests.system.recoverable import Write
from tests.system.running import SMALL


class Numbers(Receiver):
    """Stores 0, 1, 2, … with positions, and says in which process it is.

    Args:
        number: Which receiver; of the odd ones several numbers come at once.
        folder: For its process.
        last: Where it ends; sooner, if a file beside the folder, ``…-last``, says so.
    """

    def __init__(self, number: int, folder: str, last: int) -> None:
        super().__init__()
        self.number, self.folder, self.last = number, folder, last

    def onStart(self) -> None:
        # Whole or not at all: who kills reads it at any moment.
        path = Path(self.folder, f"new-{self.number}")
        path.write_text(str(os.getpid()))
        path.rename(path.with_name(f"pid-{self.number}"))
        threading.Thread(target=self.feed, name="numbers", daemon=True).start()

    def onStop(self) -> None: ...

    def feed(self) -> None:
        at = 0 if self.lastPosition is None else self.lastPosition + 1
        many = 1 + 4 * (self.number % 2)
        while at < (last := self.end()) and not self.isStopped():
            end = min(at + many, last)
            self.store([f"{self.number} {n}" for n in range(at, end)], position=end - 1)
            at = end
            threading.Event().wait(0.01)

    def end(self) -> int:
        path = Path(f"{self.folder}-last")
        return int(path.read_text()) if path.exists() else self.last


def of_batch(lines: list[str]) -> dict[str, Any]:
    seen: dict[str, list[int]] = {}
    for line in lines:
        number, at = line.split()
        seen.setdefault(number, []).append(int(at))
    return seen


def build(config: dict[str, Any]) -> StreamingContext:
    conf = SparkConf().setMaster("local[3]").setAppName("process-log-test")
    plain = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.default.parallelism": "2",
        "spark.penstock.blockServer.lease": "3s",
        "spark.penstock.receivers.perSlot": str(config["receivers"]),
        "spark.streaming.receiver.writeAheadLog.rollingIntervalSecs": "2",
        "spark.log.level": "OFF",
    }
    for key, value in {**SMALL, **plain, **config.get("settings", {})}.items():
        conf.set(key, value)
    ssc = StreamingContext(SparkContext(conf=conf), config["batch_s"])
    receivers = [Numbers(n, config["pids"], config["last"]) for n in range(config["receivers"])]
    streams = [ssc.receiverStream(receiver) for receiver in receivers]
    ssc.union(*streams).foreachRDD(Write(config["batches"], of_batch))
    return ssc


if __name__ == "__main__":
    from tests.system import process_log_program

    recoverable.CONFIG.update(json.loads(sys.argv[1]))
    recoverable.main(process_log_program.build)
