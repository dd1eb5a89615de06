"""A driver whose receivers share the splits of a source, in a folder that says what happened.

Arguments: the folder, the master, the numbers of each split, and settings as JSON, with ``level``
for the storage level. Each split is a lease (a locked file) and the numbers from 0 on. A receiver
that finds the lease of one of its splits taken says so in ``violations``. Which records a batch had
is in ``batches/<time>``, written once more by a driver that repeats it. Files that a test makes ask
for more: ``slow`` has the seconds that each start of a receiver takes, and ``die-<n>`` is taken by
a task of a batch, which kills its process in the middle.

Lines on stdin ask for another number of receivers, or ``decommission <n>`` for the end of an
executor; the end of it for a graceful stop.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.errors import PenstockError
from penstock.receiver import Receiver
from penstock.streaming import StreamingContext
from penstock.streaming.scheduler.executor_allocation import SparkExecutors
from tests.system.running import SMALL

SPLITS = 7
MOST = 4
AT_ONCE = 5
FAILED = 7
"""The exit code when a batch fails."""
NAME = "queues"


class Queues(Receiver):
    """Stores the numbers of its splits, each with who stored it, while it has their leases."""

    def __init__(self, folder: Path, last: int, level: str) -> None:
        super().__init__(level)
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

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # In the executor: before the receiver registers.
        if str(os.getpid()) != (self.folder / "driver").read_text():
            with suppress(FileNotFoundError):
                time.sleep(float((self.folder / "slow").read_text()))

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


def make(folder: Path, master: str, last: int, settings: dict[str, str]) -> StreamingContext:
    conf = SparkConf().setMaster(master).setAppName("penstock-splits")
    for key, value in {
        **SMALL,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        **settings,
    }.items():
        conf.set(key, value)
    ssc = StreamingContext(SparkContext(conf=conf), 0.5)
    queues = Queues(folder, last, settings.get("level", "MEMORY_AND_DISK_2"))
    stream = ssc.receiverStream(queues, NAME, numReceivers=2, maxReceivers=MOST)

    def keep(time_ms: Any, rdd: Any) -> None:
        records = rdd.mapPartitions(functools.partial(read, folder)).collect()
        if records:
            name = str(time_ms.timestamp())
            (folder / f"new-{name}").write_text("\n".join(records))
            os.replace(folder / f"new-{name}", folder / "batches" / name)
        if (counted := rdd.count()) != len(records):
            with open(folder / "violations", "a") as file:
                file.write(f"counted {counted} of {len(records)} in {time_ms}\n")

    stream.foreachRDD(keep)
    return ssc


def read(folder: Path, records: Iterable[str]) -> Iterator[str]:
    """Runs in a task, which may be asked to die in the middle."""
    dies = False
    for asked in folder.glob("die-*"):
        with suppress(FileNotFoundError):
            asked.rename(asked.with_name(f"died-{time.monotonic_ns()}"))
            dies = True
            break
    for number, record in enumerate(records):
        if dies and number == AT_ONCE:
            os.kill(os.getpid(), signal.SIGKILL)
        yield record


def end_with(ssc: StreamingContext) -> None:
    """End when a batch fails."""
    try:
        ssc.awaitTermination()
    except PenstockError:
        traceback.print_exc()
        os._exit(FAILED)


def main() -> None:
    folder, master, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    settings = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
    (folder / "driver").write_text(str(os.getpid()))
    ssc = StreamingContext.getOrCreate(
        str(folder / "checkpoint"), lambda: make(folder, master, last, settings)
    )
    ssc.sparkContext.setLogLevel("OFF")
    ssc.start()
    threading.Thread(target=end_with, args=(ssc,), daemon=True).start()
    stream = ssc.splitStream(NAME)
    print("started", flush=True)
    most = 0
    for line in sys.stdin:
        command, _, number = line.strip().rpartition(" ")
        if command:
            executors = SparkExecutors(ssc.sparkContext, True)
            if found := sorted(executors.executor_ids()):
                executors.remove(found[int(number) % len(found)])
                # Spark starts another one in its place; one that is about to come is not found.
                most = max(most, len(found))
                executors.request_total(most)
        else:
            stream.scale(int(number))
        print("scaled", flush=True)
    ssc.stop(stopSparkContext=True, stopGraceFully=True)


if __name__ == "__main__":
    main()
