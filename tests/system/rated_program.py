"""A program whose rates are set while it runs: ``python -m tests.system.rated_program JSON``.

With ``set`` in its configuration it sets them; a later run on the same checkpoint does not.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.receiver import Receiver
from penstock.streaming import StreamingContext, StreamingListener
from tests.system.program import obey, say
from tests.system.running import SMALL

BATCH_S = 0.5


class Fast(Receiver):
    """Stores as fast as it is let."""

    def onStart(self) -> None:
        threading.Thread(target=self.run, daemon=True).start()

    def onStop(self) -> None:
        pass

    def run(self) -> None:
        while not self.isStopped():
            self.store(b"record")


class Tell(StreamingListener):
    def onBatchCompleted(self, batchCompleted: Any) -> None:
        info = batchCompleted.batchInfo()
        counts = {n: found.numRecords() for n, found in info.streamIdToInputInfo().items()}
        say("batch", counts=[counts.get(stream, 0) for stream in range(2)])


def nothing(rdd: Any) -> None:
    """Run no job: what a batch has is known without one."""


def build(config: dict[str, Any]) -> StreamingContext:
    conf = SparkConf().setMaster("local[4]").setAppName("penstock-rates-test")
    plain = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.penstock.blockServer.lease": "3s",
        # Until the program sets its own.
        "spark.streaming.backpressure.initialRate": "100",
        "spark.log.level": "OFF",
    }
    for key, value in {**SMALL, **plain}.items():
        conf.set(key, value)
    ssc = StreamingContext(SparkContext(conf=conf), BATCH_S)
    streams = [ssc.receiverStream(Fast()) for _ in range(2)]
    ssc.union(*streams).foreachRDD(nothing)
    if "group" in config:
        ssc.rateGroup(config["group"], streams[1:])
    return ssc


def main(config: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    ssc = StreamingContext.getOrCreate(config["checkpoint"], lambda: build(config))
    ssc.addStreamingListener(Tell())
    ssc.start()
    if "set" in config:
        ssc.receivedStream(0).set_rate(config["set"])
        ssc.receivedStream(0).set_byte_rate(config["set_bytes"])
    pause = threading.Event()
    while not all(rate.is_confirmed for rate in ssc.rates().values()):
        pause.wait(0.02)
    rates = ssc.rates()
    say(
        "rates",
        effective=[rates[stream].effective for stream in range(2)],
        sources=[rates[stream].source.value for stream in range(2)],
        asked=rates[0].asked,
        effective_bytes=rates[0].effective_bytes,
    )
    threading.Thread(target=obey, args=(ssc,), daemon=True).start()
    ssc.awaitTermination()


if __name__ == "__main__":
    # Its functions belong to the module, not to `__main__`.
    from tests.system import rated_program

    rated_program.main(json.loads(sys.argv[1]))
