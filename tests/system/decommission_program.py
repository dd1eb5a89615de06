"""A driver on ``local-cluster`` whose receiver's executor is decommissioned while records flow.

Arguments: a folder, and ``alone``, or ``shared`` for two receivers in a slot. Says what
happened in one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.receiver import Receiver
from penstock.streaming import StreamingContext, StreamingListener
from penstock.streaming.scheduler.executor_allocation import SparkExecutors
from tests.system.leftovers import await_that
from tests.system.running import SMALL, WAIT_S


class Numbers(Receiver):
    def onStart(self) -> None:
        threading.Thread(target=self.feed, name="numbers", daemon=True).start()

    def onStop(self) -> None: ...

    def feed(self) -> None:
        number = self.lastPosition or 0
        pause = threading.Event()
        while not self.isStopped():
            self.store([number + n for n in range(5)], position=number + 5)
            number += 5
            pause.wait(0.02)


class Told(StreamingListener):
    def __init__(self) -> None:
        self.executors: list[str] = []
        self.errors: list[str] = []

    def onReceiverStarted(self, receiverStarted: Any) -> None:
        self.executors.append(receiverStarted.receiverInfo().executorId())

    def onReceiverError(self, receiverError: Any) -> None:
        self.errors.append(receiverError.receiverInfo().lastErrorMessage())


def main(folder: str, is_shared: bool) -> None:
    conf = SparkConf().setMaster("local-cluster[2,2,1024]").setAppName("penstock-decommission")
    for key, value in {
        **SMALL,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.decommission.enabled": "true",
        "spark.penstock.receivers.perSlot": "2" if is_shared else "1",
    }.items():
        conf.set(key, value)
    sc = SparkContext(conf=conf)
    sc.setLogLevel("OFF")
    executors = SparkExecutors(sc, True)
    ssc = StreamingContext(sc, 0.5)
    ssc.checkpoint(folder)
    told = Told()
    ssc.addStreamingListener(told)
    seen: list[int] = []
    beside: list[int] = []
    ssc.receiverStream(Numbers()).foreachRDD(Keep(seen))
    if is_shared:
        ssc.receiverStream(Numbers()).foreachRDD(Keep(beside))
    ssc.start()

    await_that("records", lambda: len(seen) > 100, WAIT_S)
    await_that("both executors", lambda: len(executors.executor_ids()) == 2, WAIT_S)
    first = told.executors[0]
    assert executors.remove(first)
    starts = 2 + 2 * is_shared
    await_that("receivers elsewhere", lambda: len(told.executors) == starts, WAIT_S)
    await_that("the end of the executor", lambda: first not in executors.executor_ids(), WAIT_S)
    count = len(seen)
    await_that("records from there", lambda: len(seen) > count + 100, WAIT_S)
    ssc.stop(stopSparkContext=True, stopGraceFully=True)
    result = {
        "exact": seen == list(range(len(seen))) and beside == list(range(len(beside))),
        "elsewhere": told.executors.count(first) == len(told.executors) / 2,
        "starts": len(told.executors),
        "errors": told.errors,
    }
    print(json.dumps(result), flush=True)


class Keep:
    """Keeps what batches have; of the driver alone, so that it is in no checkpoint."""

    def __init__(self, seen: list[int]) -> None:
        self.seen = seen

    def __call__(self, rdd: Any) -> None:
        self.seen.extend(rdd.collect())

    def __reduce__(self) -> tuple[Any, ...]:
        return Keep, ([],)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "shared")
