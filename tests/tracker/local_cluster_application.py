"""A driver on ``local-cluster``: two receivers, one of whose executors is killed with SIGKILL.

Argument 1 is a folder. Says what happened in one line of JSON.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.blockstore import BlockRDD
from penstock.receiver import BlockLogs, Receiver
from penstock.settings import Settings
from penstock.tracker import ReceiverTracker, SparkCluster
from tests.bounds import HANG_S
from tests.tracker.tracker_cases import Events, open_in


def executor_pid() -> int:
    """The executor's JVM: the parent of the daemon that is this worker's parent."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    found = re.search(r"^PPid:\s*(\d+)", status, re.MULTILINE)
    assert found is not None
    return int(found.group(1))


class Numbers(Receiver):
    def onStart(self) -> None:
        self.reportError(f"executor {executor_pid()}")
        threading.Thread(target=self.run, name="numbers", daemon=True).start()

    def onStop(self) -> None:
        pass

    def run(self) -> None:
        begin = number = int(self.lastPosition or 0)
        pause = threading.Event()
        while not self.isStopped():
            self.store([str(number + n).encode() for n in range(10)], position=number + 10)
            if number == begin:
                # What is stored as a whole is known to the driver when `store` returns.
                self.reportError("stored")
            number += 10
            pause.wait(0.1)


def main(folder: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = SparkConf().setMaster("local-cluster[3,1,1024]").setAppName("penstock-kill")
    conf.set("spark.ui.enabled", "false").set("spark.executor.memory", "512m")
    conf.set("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
    conf.set("spark.driver.memory", "512m")
    # Receivers never end, which must not look like a slow task.
    conf.set("spark.speculation", "true").set("spark.speculation.interval", "50ms")
    sc = SparkContext(conf=conf)
    sc.setLogLevel("OFF")
    events = Events()
    tracker = ReceiverTracker(
        SparkCluster(sc),
        {n: (Numbers(), f"Numbers [{n}]") for n in range(2)},
        Settings(memory_bytes=16 << 20, block_max_bytes=1 << 20, block_interval_ms=500),
        ledger=open_in(folder, range(2)),
        logs=BlockLogs(
            os.path.join(folder, "receivedData"),
            "none",
            are_removed=True,
            application_id=str(sc.applicationId),
        ),
        events=events,
    )
    tracker.start()
    try:
        result = run(sc, tracker, events)
    finally:
        tracker.stop(graceful=True, timeout_s=20)
        sc.stop()
    print(json.dumps(result), flush=True)


def run(sc: SparkContext, tracker: ReceiverTracker, events: Events) -> dict[str, Any]:
    pids: dict[int, int] = {}
    reports = 0
    started: list[int] = []
    deadline = time.monotonic() + HANG_S

    def follow(starts: int, stored: list[int]) -> None:
        """Wait for so many starts, and until these streams have each stored something, again."""
        nonlocal reports
        waiting = set(stored)
        while len(started) < starts or reports < starts or waiting:
            assert time.monotonic() < deadline
            kind, info = events._told.get(timeout=HANG_S)
            if kind == "started":
                started.append(info.stream_id)
            if kind != "error":
                continue
            if info.last_error_message == "stored":
                waiting.discard(info.stream_id)
            found = re.fullmatch(r"executor (\d+)", info.last_error_message)
            if found:
                pids[info.stream_id] = int(found.group(1))
                reports += 1

    follow(2, [0, 1])
    first = dict(pids)
    os.kill(pids[0], signal.SIGKILL)
    follow(3, [0])
    tracker.stop_receiving(True, 20)
    tracker.allocate_blocks_to_batch(1000)
    numbers = {}
    for stream_id in (0, 1):
        blocks = tracker.get_blocks_of_batch_and_stream(1000, stream_id)
        numbers[stream_id] = [int(x) for x in BlockRDD(sc, blocks, tracker.block_access).collect()]
    return {
        "apart": first[0] != first[1],
        "moved": pids[0] != first[0],
        "restarted": started[2:],
        "complete": [found == list(range(len(found))) for found in numbers.values()],
        "counts": [len(found) for found in numbers.values()],
    }


if __name__ == "__main__":
    main(sys.argv[1])
