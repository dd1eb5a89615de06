"""A query of Structured Streaming's socket source: a count of every batch, or a word count in SQL.

It tells of each batch by its progress, as `foreachBatch` would make another query of the count.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from pyspark.sql.streaming.listener import StreamingQueryListener

from benchmarks.programs._program import options, spark_context, tell
from benchmarks.programs.query_reader import session, start

given = options()


class Tell(StreamingQueryListener):
    def onQueryStarted(self, event):
        tell({"started": time.monotonic()})

    def onQueryProgress(self, event):
        if event.progress.numInputRows:
            taken_s = event.progress.durationMs["triggerExecution"] / 1000
            ended = time.monotonic()
            tell(
                {
                    "batch": time.time() - taken_s,
                    "records": event.progress.numInputRows,
                    "begun": ended - taken_s,
                    "ended": ended,
                    "delay_s": taken_s,
                    "latencies_ms": (),
                }
            )

    def onQueryIdle(self, event):
        pass

    def onQueryTerminated(self, event):
        pass


spark = session(spark_context(given), given.cores)
spark.streams.addListener(Tell())
lines = (
    spark.readStream.format("socket").option("host", "127.0.0.1").option("port", given.port).load()
)
query = start(lines, {"query": given.variant, "folder": given.folder})
sys.stdin.read()
threading.Timer(10, os._exit, (1,)).start()
query.stop()
os._exit(0)
