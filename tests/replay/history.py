"""The folder of a program that has received, and cleaned up, three streams."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.receiver import receiver
from penstock.tracker import ReceivedBlockTracker
from tests.bounds import HANG_S
from tests.system.running import run_on

COUNT = 3000
STREAMS = ("rows", "texts", "pickles")


@receiver(schema=pa.schema([("n", pa.int64()), ("data", pa.binary())]))
def rows(ctx: Any) -> Iterator[dict[str, Any]]:
    for n in range(COUNT):
        yield {"n": n, "data": b"\xff" * 700}
    ctx.stopped.wait()


@receiver
def texts(ctx: Any) -> Iterator[str]:
    for n in range(COUNT):
        yield f"é{n}"
    ctx.stopped.wait()


@receiver
def pickles(ctx: Any) -> Iterator[Any]:
    for n in range(COUNT):
        yield (n, "pair")
    ctx.stopped.wait()


def number(record: Any) -> int:
    found = record["n"] if isinstance(record, dict) else record[0]
    return int(record[1:]) if isinstance(record, str) else int(found)


def make_history(sc: Any, folder: Path) -> Path:
    """Make the checkpoint directory of a program that has cleaned up its batches and ended."""
    settings = {
        "spark.penstock.wal.retention": "1h",
        "spark.penstock.wal.segmentSize": "1m",
        "spark.penstock.block.maxSize": "256k",
        "spark.penstock.receiver.rate": "2000/second",
    }
    with run_on(sc, settings, checkpoint=str(folder)) as run:
        for function in (rows, texts, pickles):
            run.process(function, number)
        run.start()
        run.await_processed(len(STREAMS) * COUNT)
        end_s = time.monotonic() + HANG_S
        while not retained(folder):
            assert time.monotonic() < end_s
            time.sleep(0.2)
        run.stop()
    return folder


def retained(folder: Path) -> int:
    ledger = ReceivedBlockTracker.read(str(folder / "receivedBlockMetadata"))
    return len(ledger._state.retained)


def numbers(folder: Path) -> dict[str, int]:
    ledger = ReceivedBlockTracker.read(str(folder / "receivedBlockMetadata"))
    return dict(zip(STREAMS, sorted(ledger.stream_numbers().values()), strict=True))
