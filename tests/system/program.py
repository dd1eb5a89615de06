"""A streaming program of a user, for tests that kill it: ``python -m tests.system.program JSON``.

It writes the numbers of each receiver to a file, a line per batch, and says what happens in lines
of JSON on its standard output. The line ``stop`` on its standard input stops it gracefully; the
end of its standard input ends it, so that nothing outlives a test that dies.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.streaming import StreamingContext, StreamingListener
from tests.system.receivers import NumberedLines
from tests.system.running import SMALL

_lock = threading.Lock()


def say(what: str, **facts: Any) -> None:
    with _lock:
        sys.stdout.write(json.dumps({"what": what, **facts}) + "\n")
        sys.stdout.flush()


class Tell(StreamingListener):
    def onReceiverStarted(self, receiverStarted: Any) -> None:
        self._tell("receiver started", receiverStarted)

    def onReceiverError(self, receiverError: Any) -> None:
        self._tell("receiver error", receiverError)

    def onReceiverStopped(self, receiverStopped: Any) -> None:
        self._tell("receiver stopped", receiverStopped)

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        info = batchCompleted.batchInfo()
        say("batch", records=info.numRecords())

    def _tell(self, what: str, event: Any) -> None:
        info = event.receiverInfo()
        say(
            what,
            message=info.lastErrorMessage(),
            error=info.lastError(),
            location=info.location(),
            executor=info.executorId(),
        )


class Keep:
    """Appends what a batch has to a file, after so many seconds of other work."""

    def __init__(self, path: str, work_s: float) -> None:
        self.path = path
        self.work_s = work_s

    def __call__(self, rdd: Any) -> None:
        threading.Event().wait(self.work_s)
        found = rdd.map(int).collect()
        if found:
            with open(self.path, "a") as file:
                file.write(" ".join(map(str, found)) + "\n")


def obey(ssc: StreamingContext) -> None:
    for line in sys.stdin:
        if line.strip() == "stop":
            ssc.stop(stopSparkContext=True, stopGraceFully=True)
    os._exit(3)


def main(config: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    conf = SparkConf().setMaster(config["master"]).setAppName("penstock-system-test")
    plain = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for key, value in {**plain, **SMALL, **config.get("settings", {})}.items():
        conf.set(key, value)
    sc = SparkContext(conf=conf)
    sc.setLogLevel(config.get("spark_log", "OFF"))
    ssc = StreamingContext(sc, config.get("batch_s", 0.5))
    if config.get("checkpoint"):
        ssc.checkpoint(config["checkpoint"])
    ssc.addStreamingListener(Tell())
    for number, address in enumerate(config["feeders"]):
        positions = number in config.get("positions", ())
        receiver = NumberedLines(tuple(address), positions=positions)
        keep = Keep(f"{config['numbers']}-{number}", config.get("work_s", 0.0))
        ssc.receiverStream(receiver).foreachRDD(keep)
    ssc.start()
    java: Any = sc._jvm
    say(
        "started",
        application=str(sc.applicationId),
        jvm=int(java.java.lang.ProcessHandle.current().pid()),
    )
    threading.Thread(target=obey, args=(ssc,), daemon=True).start()
    if config.get("stop_at_interrupt"):
        try:
            ssc.awaitTermination()
        except KeyboardInterrupt:
            say("interrupted")
            ssc.stop(stopSparkContext=True, stopGraceFully=True)
    else:
        ssc.awaitTermination()
    say("ended")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
