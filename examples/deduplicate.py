"""Pass on each message once, though its sender repeats some, as an at-least-once one does.

    python examples/deduplicate.py /tmp/messages

A message is known by its id for a minute of event time. So there is no end to the ids, and one to
the memory: a timer forgets each of them (Spark's ``dropDuplicatesWithinWatermark``).
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

KNOWN = timedelta(minutes=1)
WATERMARK = Watermark("at", delay="10 seconds")


@receiver(schema="id string, at timestamp, text string")
def messages(ctx: ReceiverContext) -> Iterator[dict[str, Any]]:
    number = 0
    while not ctx.stopped.wait(0.01):
        now = datetime.now(timezone.utc)
        message = {"id": f"{now:%H%M%S}-{number}", "at": now, "text": f"message {number}"}
        number += 1
        yield message
        if random.random() < 0.3:
            yield message


def unknown(batch: pa.RecordBatch, state: KeyedState, timers: Timers) -> pa.RecordBatch:
    is_new = []
    for name, at in zip(batch["id"].to_pylist(), batch["at"].to_pylist(), strict=True):
        is_new.append(name not in state)
        if name not in state:
            state[name] = True
            timers.event_time.register(name, at + KNOWN)
    return batch.filter(pa.array(is_new, pa.bool_()))


def forget(expired: ExpiredTimers, state: KeyedState, timers: Timers) -> None:
    for name in expired.keys:
        del state[name]


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: deduplicate.py FOLDER [SECONDS]")
    folder = Path(sys.argv[1]).absolute()
    conf = SparkConf().setIfMissing("spark.master", "local[3]").setAppName("deduplicate")
    conf.set("spark.ui.showConsoleProgress", "false").set("spark.log.level", "ERROR")
    ssc = StreamingContext(SparkContext(conf=conf), 1)
    ssc.checkpoint(str(folder / "checkpoint"))
    ssc.receiverStream(messages, "messages").continuous(
        unknown,
        on_timer=forget,
        watermark=WATERMARK,
        key_by="id",
        sink=FileSink(folder / "messages", "jsonl"),
    )
    ssc.run(timeout=float(sys.argv[2]) if len(sys.argv) == 3 else None)


if __name__ == "__main__":
    main()
