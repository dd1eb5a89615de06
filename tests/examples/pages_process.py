"""Runs pages' programs as they stand, one page after the other, in one JVM.

Usage: ``pages_process.py PAGE...``; each PAGE is a JSON file, ``{"name", "argv", "blocks"}``. The
blocks of a page share their names. A program that waits for its streams is stopped gracefully, as
another thread of it may do, when each of its receivers has stored records and two batches are done
since.
"""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from typing import Any

from pyspark import SparkContext

from penstock.streaming import StreamingContext

BOUND_S = 300.0


class Stops:
    """Stops each context that is started, when it has been fed; until `end` is set."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.unfed: list[str] = []
        self._thread = threading.Thread(target=self._run, name="stops", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.end.set()
        self._thread.join(BOUND_S)

    def _run(self) -> None:
        while not self.end.wait(0.1):
            context = StreamingContext.getActive()
            if context is not None:
                self._feed(context)
                context.stop(stopSparkContext=False, stopGraceFully=True)

    def _feed(self, context: StreamingContext) -> None:
        limit = time.monotonic() + BOUND_S
        done: int | None = None
        while time.monotonic() < limit and StreamingContext.getActive() is context:
            batches = context.statistics().completed_batches
            receivers = context.receivers()
            if done is None and receivers and all(receiver.records for receiver in receivers):
                done = batches
            if done is not None and batches >= done + 2:
                return
            time.sleep(0.1)
        if StreamingContext.getActive() is context:
            self.unfed.append(str(context.receivers()))


def print_whole(*values: object, **others: Any) -> None:
    """Print in one write, which what other threads and the JVM print does not come between."""
    line = io.StringIO()
    print(*values, **{**others, "file": line, "flush": False})
    sys.stdout.write(line.getvalue())
    sys.stdout.flush()


def main(pages: list[str]) -> None:
    stops = Stops()
    for file in pages:
        with open(file, encoding="utf-8") as stored:
            page = json.load(stored)
        sys.argv = page["argv"]
        names: dict[str, object] = {"__name__": "__main__", "print": print_whole}
        for number, block in enumerate(page["blocks"], 1):
            exec(compile(block, f"{page['name']}, block {number}", "exec"), names)
            # What waits for nothing goes on until it has been fed.
            limit = time.monotonic() + BOUND_S
            while StreamingContext.getActive() is not None and time.monotonic() < limit:
                time.sleep(0.1)
        active = SparkContext._active_spark_context
        if active is not None:
            active.stop()
        print(f"{page['name']} has run", flush=True)
    stops.close()
    if stops.unfed:
        sys.exit("not fed: " + "; ".join(stops.unfed))


if __name__ == "__main__":
    main(sys.argv[1:])
