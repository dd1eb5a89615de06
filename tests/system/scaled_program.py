"""A driver on a standalone cluster whose batches are short, and then long.

Arguments: the master and a folder. Says what happened in one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.receiver import Receiver
from penstock.streaming import StreamingContext, StreamingListener
from penstock.streaming.scheduler.executor_allocation import SparkExecutors
from tests.bounds import HANG_S

WAIT_S = HANG_S


class Steady(Receiver):
    def onStart(self) -> None:
        threading.Thread(target=self.run, name="steady", daemon=True).start()

    def onStop(self) -> None:
        pass

    def run(self) -> None:
        pause = threading.Event()
        while not self.isStopped():
            self.store(b"record")
            pause.wait(0.05)


class Starts(StreamingListener):
    def __init__(self) -> None:
        self.executors: list[str] = []
        self.records = 0

    def onReceiverStarted(self, receiverStarted: Any) -> None:
        self.executors.append(receiverStarted.receiverInfo().executorId())

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        self.records += batchCompleted.batchInfo().numRecords()


def main(master: str, folder: str) -> None:
    conf = SparkConf().setMaster(master).setAppName("penstock-scaled")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.streaming.blockInterval": "1s",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.penstock.memory.size": "16m",
        "spark.penstock.block.maxSize": "4m",
        "spark.streaming.gracefulStopTimeout": "60s",
        "spark.penstock.wal.dir": folder,
        "spark.streaming.dynamicAllocation.enabled": "true",
        "spark.streaming.dynamicAllocation.scalingInterval": "1s",
        # Far apart, and high: on a busy machine a batch without a job takes its time, too.
        "spark.streaming.dynamicAllocation.scalingUpRatio": "3.0",
        "spark.streaming.dynamicAllocation.scalingDownRatio": "2.0",
        "spark.streaming.dynamicAllocation.minExecutors": "2",
        "spark.streaming.dynamicAllocation.maxExecutors": "3",
    }.items():
        conf.set(key, value)
    sc = SparkContext(conf=conf)
    sc.setLogLevel("OFF")
    executors = SparkExecutors(sc, False)
    deadline = time.monotonic() + WAIT_S
    seen: list[int] = []
    counts: list[int] = []

    def wait_for(count: int) -> None:
        while (now := len(executors.executor_ids())) != count:
            counts.append(now)
            assert time.monotonic() < deadline, (seen, executors.executor_ids())
            time.sleep(0.05)
        seen.append(count)

    wait_for(3)
    counts.clear()
    is_slow = threading.Event()
    ssc = StreamingContext(sc, 1)
    starts = Starts()
    ssc.addStreamingListener(starts)

    def take(rdd: Any) -> None:
        # No job: on a busy machine new executors take seconds for their first.
        if is_slow.is_set():
            time.sleep(3.2)

    ssc.receiverStream(Steady()).foreachRDD(take)
    ssc.start()
    wait_for(2)
    is_slow.set()
    wait_for(3)
    is_slow.clear()
    least = min(counts)
    held = starts.executors[-1] in executors.executor_ids()
    ssc.stop(stopSparkContext=True, stopGraceFully=True)
    result = {
        "executors": seen,
        "starts": len(starts.executors),
        "least": least,
        "held": held,
        "records": starts.records,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
