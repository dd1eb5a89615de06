"""Count the payments of each card in windows of ten seconds, a moment after a window is over.

    python examples/windowed_count.py /tmp/counts

A payment may come late, by two seconds at most; then its window is closed. The counts are in files
below the folder, each window once, also when the program is killed and started again.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkConf, SparkContext

from penstock.receiver import ReceiverContext, receiver
from penstock.streaming import (
    ExpiredTimers,
    FileSink,
    KeyedState,
    StreamingContext,
    Timers,
    Watermark,
)

WINDOW_MS = 10_000
WATERMARK = Watermark("at", delay="2 seconds")


@receiver(schema="card bigint, at timestamp")
def payments(ctx: ReceiverContext) -> Iterator[dict[str, Any]]:
    while not ctx.stopped.wait(0.01):
        late = timedelta(seconds=random.expovariate(4))
        yield {"card": random.randint(1, 5), "at": datetime.now(timezone.utc) - late}


def count(batch: pa.RecordBatch, state: KeyedState, timers: Timers) -> None:
    for payment in batch.to_pylist():
        start_ms = int(payment["at"].timestamp() * 1000) // WINDOW_MS * WINDOW_MS
        window = f"{payment['card']} {start_ms}"
        state[window] = state.get(window, 0) + 1
        timers.event_time.register(window, start_ms + WINDOW_MS)


def close(expired: ExpiredTimers, state: KeyedState, timers: Timers) -> pa.RecordBatch:
    """Write the windows that the watermark has passed: no record of them comes any more."""
    rows = []
    for window in expired.keys:
        card, start_ms = map(int, str(window).split())
        start = datetime.fromtimestamp(start_ms / 1000, timezone.utc)
        rows.append({"card": card, "start": start, "count": state.pop(window)})
    return pa.RecordBatch.from_pylist(rows)


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: windowed_count.py FOLDER [SECONDS]")
    folder = Path(sys.argv[1]).absolute()
    conf = SparkConf().setIfMissing("spark.master", "local[3]").setAppName("windowed count")
    conf.set("spark.ui.showConsoleProgress", "false").set("spark.log.level", "ERROR")
    ssc = StreamingContext(SparkContext(conf=conf), 1)
    ssc.checkpoint(str(folder / "checkpoint"))
    ssc.receiverStream(payments, "payments").continuous(
        count,
        on_timer=close,
        watermark=WATERMARK,
        key_by="card",
        sink=FileSink(folder / "counts", "jsonl"),
    )
    ssc.run(timeout=float(sys.argv[2]) if len(sys.argv) == 3 else None)


if __name__ == "__main__":
    main()
