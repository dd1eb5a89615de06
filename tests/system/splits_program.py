"""A driver whose receivers share the splits of a source, in a folder that says what happened.

Arguments: the folder and the master. Each split is a lease (a locked file) and the numbers from 0
on. A receiver that finds the lease of one of its splits taken says so in ``violations``. Which
records a batch had is in ``batches/<time>``, written once more by a driver that repeats it.

Lines on stdin ask for another number of receivers; the end of it for a graceful stop.
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.receiver import Receiver
from penstock.streaming import StreamingContext
from tests.system.running import SMALL

SPLITS = 7
MOST = 4
AT_ONCE = 5
NAME = "queues"


class Queues(Receiver):
    """Stores the numbers of its splits, each with who stored it, while it has their leases."""

    def __init__(self, folder: Path, last: int) -> None:
        super().__init__()
        self.folder, self.last = folder, last

    def splits(self) -> list[str]:
        return [f"q{number}" for number in range(SPLITS)]

    def onStart(self) -> None:
        self.thread = threading.Thread(target=self.feed, name="queues", daemon=True)
        self.thread.start()

    def onStop(self) -> None:
        self.thread.join(5)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "thread"}

    def feed(self) -> None:
        start = f"{os.getpid()}.{time.monotonic_ns()}"
        (self.folder / "pids" / str(os.getpid())).touch()
        leases = []
        try:
            for split in self.assignedSplits:
                leases.append(open(self.folder / f"lease-{split}", "a"))  # noqa: SIM115
                try:
                    fcntl.flock(leases[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    with open(self.folder / "violations", "a") as file:
                        file.write(f"{split} {start} {time.time()}\n")
                    return
            at = {split: self.lastPosition.get(split, 0) for split in self.assignedSplits}
            while not self.isStopped():
                for split, begin in at.items():
                    end = min(begin + AT_ONCE, self.last)
                    if end > begin:
                        numbers = [f"{split} {number} {start}" for number in range(begin, end)]
                        self.store(numbers, position={split: end}, ack=lambda: None)
                        at[split] = end
                time.sleep(0.02)
        finally:
            for lease in leases:
                lease.close()


def make(folder: Path, master: str, last: int) -> StreamingContext:
    conf = SparkConf().setMaster(master).setAppName("penstock-splits")
    for key, value in {
        **SMALL,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
    }.items():
        conf.set(key, value)
    ssc = StreamingContext(SparkContext(conf=conf), 0.5)
    stream = ssc.receiverStream(Queues(folder, last), NAME, numReceivers=2, maxReceivers=MOST)

    def keep(time_ms: Any, rdd: Any) -> None:
        records = rdd.collect()
        if records:
            name = str(time_ms.timestamp())
            (folder / f"new-{name}").write_text("\n".join(records))
            os.replace(folder / f"new-{name}", folder / "batches" / name)

    stream.foreachRDD(keep)
    return ssc


def main() -> None:
    folder, master, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    ssc = StreamingContext.getOrCreate(
        str(folder / "checkpoint"), lambda: make(folder, master, last)
    )
    ssc.sparkContext.setLogLevel("OFF")
    ssc.start()
    stream = ssc.splitStream(NAME)
    print("started", flush=True)
    for line in sys.stdin:
        stream.scale(int(line))
        print("scaled", flush=True)
    ssc.stop(stopSparkContext=True, stopGraceFully=True)


if __name__ == "__main__":
    main()
