"""A streaming program on several hosts: ``python -m tests.system.hosts_program JSON``.

As `tests.system.program`, and it says with each batch on which host its blocks lay and on which
they were read. Lines on its standard input: ``stop``, and ``occupy HOST``, which holds the two
cores of that host that a receiver leaves, until the files `OCCUPIED` that it makes are removed.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark import SparkConf, SparkContext, StorageLevel

from penstock.errors import PenstockError
from penstock.streaming import StreamingContext
from penstock.tracker.cluster import HostLocation, SparkCluster
from tests.bounds import HANG_S
from tests.services.hosts import HOST_VARIABLE
from tests.system.program import Tell, say
from tests.system.receivers import NumberedLines
from tests.system.running import SMALL

OCCUPIED = ("occupied-0", "occupied-1")


class Keep:
    """Appends a batch's numbers to a file, and says where they were read.

    It waits before while the file `hold` is there.
    """

    def __init__(self, stream: int, path: str, hold: str) -> None:
        self.stream = stream
        self.path = path
        self.hold = hold

    def __call__(self, time_: Any, rdd: Any) -> None:
        while os.path.exists(self.hold):
            time.sleep(0.05)
        parts = rdd.mapPartitions(read).collect()
        if not parts:
            return
        with open(self.path, "a") as file:
            file.write(" ".join(str(n) for _, numbers in parts for n in numbers) + "\n")
        read_on = [host for host, _ in parts]
        lay_on = [block.host for block in rdd.blocks]
        copied = all(block.replicas for block in rdd.blocks)
        say("read", stream=self.stream, lay_on=lay_on, read_on=read_on, copied=copied)


def read(records: Iterable[Any]) -> Iterator[tuple[str, list[int]]]:
    """Runs in a task."""
    yield os.environ[HOST_VARIABLE], [int(record) for record in records]


def wait_for_removal(host: str, path: str, _: Iterable[Any]) -> Iterator[bool]:
    """Runs in a task: holds its core while the file is there (each host has its own)."""
    if os.environ[HOST_VARIABLE] != host:
        return iter((False,))
    with open(path, "w"):
        pass
    pause = threading.Event()
    while os.path.exists(path):
        pause.wait(0.05)
    return iter((True,))


def occupy(sc: SparkContext, host: str, path: str) -> None:
    """Hold one core; a place is only a wish, so it may take more than one try."""
    rdd = SparkCluster(sc).placed([0], [[HostLocation(host)]])
    while rdd.mapPartitions(functools.partial(wait_for_removal, host, path)).collect() != [True]:
        pass


def obey(ssc: StreamingContext, data: str) -> None:
    for line in sys.stdin:
        command, _, host = line.strip().partition(" ")
        if command == "occupy":
            for name in OCCUPIED:
                arguments = (ssc.sparkContext, host, os.path.join(data, name))
                threading.Thread(target=occupy, args=arguments, daemon=True).start()
        else:
            ssc.stop(stopSparkContext=True, stopGraceFully=True)
            say("ended")
            return
    os._exit(3)


def main(config: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    conf = SparkConf().setMaster(config["master"]).setAppName("penstock-hosts")
    plain = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": config["driver"],
        "spark.driver.bindAddress": config["driver"],
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.locality.wait": "1s",
        "spark.task.maxFailures": "2",
        "spark.storage.replication.topologyMapper": (
            "org.apache.spark.storage.FileBasedTopologyMapper"
        ),
        "spark.storage.replication.topologyFile": config["racks"],
        "spark.streaming.blockInterval": "500ms",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.penstock.wal.dir": config["data"],
    }
    for key, value in {**SMALL, **plain, **config.get("settings", {})}.items():
        conf.set(key, value)
    sc = SparkContext(conf=conf)
    sc.setLogLevel("OFF")
    ssc = StreamingContext(sc, config["batch_s"])
    ssc.addStreamingListener(Tell())
    for number, (address, level) in enumerate(
        zip(config["feeders"], config["levels"], strict=True)
    ):
        level = getattr(StorageLevel, level)
        receiver = NumberedLines(tuple(address), positions=True, level=level)
        keep = Keep(number, f"{config['numbers']}-{number}", f"{config['numbers']}-hold")
        ssc.receiverStream(receiver).foreachRDD(keep)
    ssc.start()
    end_s = time.monotonic() + HANG_S
    # Executors may come up after the first of them has the receivers.
    while len(racks := SparkCluster(sc).racks()) < config["hosts"] and time.monotonic() < end_s:
        time.sleep(0.1)
    say("started", application=str(sc.applicationId), racks=racks)
    obeying = threading.Thread(target=obey, args=(ssc, config["data"]))
    obeying.start()
    try:
        ssc.awaitTermination()
    except PenstockError as error:
        say("failed", message=str(error))
    obeying.join()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
