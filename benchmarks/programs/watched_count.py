"""Lines from a socket, counted in every batch, while somebody looks at the program.

A process beside it listens to the events that its page listens to, and scrapes its metrics.
"""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.programs._program import LEVEL, options, reporting, run, spark_context
from penstock.streaming import StreamingContext

given = options()


def on_batch(time, rdd):
    with reporting(time) as report:
        report.records = rdd.count()


sc = spark_context(given)
ssc = StreamingContext(sc, given.batch_s)
ssc.checkpoint(given.checkpoint or given.folder + "/checkpoint")
ssc.socketTextStream("127.0.0.1", given.port, LEVEL).foreachRDD(on_batch)
watcher = subprocess.Popen([sys.executable, "-m", "benchmarks.programs._watcher", str(os.getpid())])
try:
    run(ssc)
finally:
    watcher.kill()
    watcher.wait()
