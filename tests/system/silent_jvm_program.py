"""A program whose JVM is stopped (SIGSTOP): ``python -m tests.system.silent_jvm_program JSON``.

`when` is "at stop", "at graceful stop" or "at start". It says how long its stop took. Or the JVM
dies, `when` "dies at start"; it says what `start` raised.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.host.spark import ending
from penstock.streaming import StreamingContext, _engine, context
from tests.system.program import say
from tests.system.running import SMALL

_BOUND_S = 3.0
"""In place of the longest bounds, all of which are waited for here."""


def main(when: str) -> None:
    ending._SPARK_ENDS_S = context._START_ENDS_S = _BOUND_S
    _engine._RECEIVERS_END_S = _engine._RECEIVERS_CANCEL_S = _BOUND_S
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    settings = {**SMALL, "spark.streaming.gracefulStopTimeout": "5s", "spark.ui.enabled": "false"}
    conf = SparkConf().setMaster("local[2]").setAppName("penstock-silent-jvm")
    sc = SparkContext(conf=conf.setAll(list(settings.items())))
    sc.setLogLevel("OFF")
    gateway: Any = sc._gateway
    ssc = StreamingContext(sc, 0.5)
    stream = ssc.socketStream("127.0.0.1", 1, lambda _: iter(()))
    run = threading.Event()
    stream.foreachRDD(lambda rdd: (rdd.count(), run.set()))
    if when == "dies at start":
        ssc._make_engine = _kill_after(ssc._make_engine, gateway.proc)  # type: ignore[method-assign]
        try:
            ssc.start()
        except Exception as error:  # noqa: BLE001  # whatever it is, the test looks at it
            say("failed", error=f"{type(error).__name__}: {error}")
        return
    if when == "at start":
        os.kill(gateway.proc.pid, signal.SIGSTOP)
        threading.Thread(target=ssc.start, name="starter", daemon=True).start()
        while ssc._starting is None:
            time.sleep(0.01)
    else:
        ssc.start()
        run.wait()
        os.kill(gateway.proc.pid, signal.SIGSTOP)
    say("silent", jvm=gateway.proc.pid)
    began_s = time.monotonic()
    ssc.stop(stopGraceFully=when == "at graceful stop")
    say("stopped", took_s=time.monotonic() - began_s)


def _kill_after(step: Callable[[], Any], jvm: Any) -> Callable[[], Any]:
    def run() -> Any:
        made = step()
        jvm.kill()
        jvm.wait()
        return made

    return run


if __name__ == "__main__":
    main(json.loads(sys.argv[1])["when"])
