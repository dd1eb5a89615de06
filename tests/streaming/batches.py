"""Runs streams batch by batch on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext

from penstock.blockstore import BlockKind, BlockStore
from penstock.runtime.clock import ManualClock
from penstock.streaming import DStream, StreamingContext
from penstock.wire.messages import ReceivedBlockInfo
from tests.bounds import HANG_S
from tests.doubles import Events

BATCH_MS = 1000
WAIT_S = HANG_S


class Batches:
    """A streaming context whose batches come when `run` is called."""

    def __init__(self, sc: SparkContext, batch_s: float = 1) -> None:
        self.sc = sc
        self.clock = ManualClock(1_700_000_000_500)
        self.ssc = StreamingContext(sc, batch_s, clock=self.clock)
        self.events = Events()
        self.ssc.addStreamingListener(self.events)
        self._batch_ms = round(batch_s * 1000)
        self._expected = 0

    def collect(self, stream: DStream[Any]) -> list[list[Any]]:
        """Return a list that gets the records of each batch of `stream`."""
        found: list[list[Any]] = []
        stream.foreachRDD(lambda rdd: found.append(rdd.collect()))
        return found

    def start(self) -> None:
        self.ssc.start()

    def run(self, count: int) -> None:
        """Let `count` batches come, each when the one before is complete."""
        if self.ssc.getState().name == "INITIALIZED":
            self.start()
        for _ in range(count):
            self._expected += 1
            self.clock.advance(self._batch_ms)
            self.events.wait_for("batch", count=self._expected)


def forget_checkpoint_directory(sc: SparkContext) -> None:
    """Make a shared SparkContext as one that never had a checkpoint directory."""
    context: Any = sc
    none = getattr(context._jvm.scala, "None$")
    getattr(context._jsc.sc(), "checkpointDir_$eq")(getattr(none, "MODULE$"))


@contextmanager
def batches(sc: SparkContext, batch_s: float = 1) -> Iterator[Batches]:
    run = Batches(sc, batch_s)
    try:
        yield run
    finally:
        run.ssc.stop(stopSparkContext=False)


def outcome(
    sc: SparkContext,
    inputs: list[list[Any]],
    operation: Callable[[DStream[Any]], DStream[Any]],
) -> list[list[Any]]:
    """Return what `operation` makes of each batch of `inputs`."""
    with batches(sc) as run:
        found = run.collect(operation(run.ssc.queueStream(inputs)))
        run.run(len(inputs))
        return found


def stored(store: BlockStore, name: str, lines: list[bytes]) -> ReceivedBlockInfo:
    """Store a block of lines and return what is known of it."""
    builder = store.open_block(BlockKind.LINES)
    builder.append_lines(b"".join(line + b"\n" for line in lines), len(lines))
    return store.put(builder.seal(name, 0.0))
