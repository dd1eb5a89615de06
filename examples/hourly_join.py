"""Give payments their amount in euros, by a table of rates that is loaded again each hour.

    echo '{"USD": 0.9, "GBP": 1.2, "EUR": 1.0}' > /tmp/rates.json
    python examples/hourly_join.py /tmp/rates.json /tmp/euros

The table is part of the state: records that are computed again after a crash find the rates that
they had, whatever the file has by then. The timer is of processing time, and expires with or
without payments.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkConf, SparkContext

from penstock.receiver import ReceiverContext, receiver
from penstock.streaming import ExpiredTimers, FileSink, KeyedState, StreamingContext, Timers

HOUR_MS = 3_600_000
TABLE = 0
"""The key of the table: currencies are text."""


@receiver(schema="currency string, amount double")
def payments(ctx: ReceiverContext) -> Iterator[dict[str, Any]]:
    while not ctx.stopped.wait(0.01):
        currency = random.choice(["EUR", "USD", "GBP"])
        yield {"currency": currency, "amount": random.expovariate(0.02)}


class Rates:
    """Loads the rates from a file.

    Args:
        path: Where that is, on each host.
        period_ms: How often.
    """

    def __init__(self, path: Path, period_ms: int = HOUR_MS) -> None:
        self.path = path
        self.period_ms = period_ms

    def in_euros(self, batch: pa.RecordBatch, state: KeyedState, timers: Timers) -> pa.RecordBatch:
        if TABLE not in state:
            self._load(state, timers)
        rates = state[TABLE]
        rows = [
            {**payment, "euros": payment["amount"] * rates.get(payment["currency"], 0.0)}
            for payment in batch.to_pylist()
        ]
        return pa.RecordBatch.from_pylist(rows)

    def load_again(self, expired: ExpiredTimers, state: KeyedState, timers: Timers) -> None:
        self._load(state, timers)

    def _load(self, state: KeyedState, timers: Timers) -> None:
        state[TABLE] = json.loads(self.path.read_text())
        next_one = timers.processing_time.now_ms // self.period_ms + 1
        timers.processing_time.register(TABLE, next_one * self.period_ms)


def main() -> None:
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: hourly_join.py RATES FOLDER [SECONDS]")
    rates, folder = Rates(Path(sys.argv[1]).absolute()), Path(sys.argv[2]).absolute()
    conf = SparkConf().setIfMissing("spark.master", "local[3]").setAppName("hourly join")
    conf.set("spark.ui.showConsoleProgress", "false").set("spark.log.level", "ERROR")
    ssc = StreamingContext(SparkContext(conf=conf), 1)
    ssc.checkpoint(str(folder / "checkpoint"))
    ssc.receiverStream(payments, "payments").continuous(
        rates.in_euros,
        on_timer=rates.load_again,
        key_by="currency",
        sink=FileSink(folder / "euros", "jsonl"),
    )
    ssc.run(timeout=float(sys.argv[3]) if len(sys.argv) == 4 else None)


if __name__ == "__main__":
    main()
