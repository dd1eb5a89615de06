"""Programs that are stopped in the middle and made again from their checkpoints, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from penstock.runtime.clock import ManualClock
from penstock.streaming import DStream, StreamingContext
from penstock.streaming.dstream.graph import DStreamGraph
from penstock.streaming.dstream.inputs.input_streams import InputDStream
from penstock.streaming.recovery import recover_context
from tests.doubles import Events
from tests.streaming.batches import WAIT_S

BATCH_MS = 1000
ZERO_MS = 1_700_000_000_000


class Listed(InputDStream):
    """The records of each batch from a list; unlike those of a queue they are in checkpoints."""

    def __init__(self, graph: DStreamGraph, batches: Sequence[Sequence[Any]]) -> None:
        super().__init__(graph)
        self.batches = [list(batch) for batch in batches]

    def compute(self, time_ms: int) -> Any:
        assert self.zero_ms is not None
        number = (time_ms - self.zero_ms) // self.slide_ms - 1
        records = self.batches[number] if number < len(self.batches) else []
        return self.graph.spark_context.parallelize(records, 2)


class Keep:
    """An output operation that writes the records of each batch to a file of that batch."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name

    def __call__(self, time: Any, rdd: Any) -> None:
        number = (round(time.timestamp() * 1000) - ZERO_MS) // BATCH_MS
        path = self.folder / f"{self.name}-{number}"
        with path.open("a") as file:
            file.write(json.dumps(sorted(rdd.collect())) + "\n")


class Program:
    """A program and its runs, one after the other.

    Args:
        sc: The Spark context.
        folder: Checkpoints and results are below it.
        build: Makes streams of a context; each result is kept by `keep`.
    """

    def __init__(
        self, sc: SparkContext, folder: Path, build: Callable[[Program, StreamingContext], None]
    ) -> None:
        self.sc = sc
        self.checkpoint = folder / "checkpoint"
        self.results = folder / "results"
        self.results.mkdir()
        self.build = build
        self.clock = ManualClock(ZERO_MS + 500)
        self.ssc: StreamingContext | None = None
        self.events = Events()

    def keep(self, stream: DStream[Any], name: str = "out") -> None:
        stream.foreachRDD(Keep(self.results, name))

    def result(self, number: int, name: str = "out") -> list[list[Any]]:
        """Return what an output operation wrote for a batch, once for each time that it ran."""
        path = self.results / f"{name}-{number}"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def times(self, numbers: Sequence[int], name: str = "out") -> list[int]:
        """Return how often the operation ran for each of these batches."""
        return [len(self.result(number, name)) for number in numbers]

    def open(self) -> StreamingContext:
        """Make the context: the first time anew, then from its checkpoint."""
        ssc = recover_context(StreamingContext, str(self.checkpoint), self.clock)
        if ssc is None:
            ssc = StreamingContext(self.sc, BATCH_MS / 1000, clock=self.clock)
            self.build(self, ssc)
            ssc.checkpoint(str(self.checkpoint))
        self.events = Events()
        ssc.addStreamingListener(self.events)
        self.ssc = ssc
        return ssc

    def run(self, batches: int, *, again: int = 0) -> None:
        """Start, let batches come one by one, and end without a last checkpoint.

        Args:
            batches: How many come by time.
            again: How many are made at the start before.
        """
        ssc = self.open()
        ssc.start()
        try:
            self.events.wait_for("batch", count=again)
            for number in range(batches):
                self.clock.advance(BATCH_MS)
                self.events.wait_for("batch", count=again + number + 1)
            self.settle()
        finally:
            self.stop()

    def settle(self) -> None:
        """Wait until nothing is left to write."""
        assert self.ssc is not None
        engine = self.ssc._engine
        assert engine is not None
        assert engine._generator._loop.drain(WAIT_S)
        assert engine._writer is not None
        assert engine._writer.flush(WAIT_S)
        assert engine._generator._loop.drain(WAIT_S)

    def stop(self, *, graceful: bool = False) -> None:
        if self.ssc is not None:
            self.ssc.stop(stopSparkContext=False, stopGraceFully=graceful)
            self.ssc = None

    def listed(self, ssc: StreamingContext, batches: Sequence[Sequence[Any]]) -> DStream[Any]:
        return ssc._stream(Listed(ssc._graph, batches))


Build = Callable[[Program, StreamingContext], None]
ProgramOf = Callable[[Build], Program]
