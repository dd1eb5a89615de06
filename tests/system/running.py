"""A streaming context in this process, its listener's events, and the numbers it processed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext

from penstock.runtime.clock import Clock
from penstock.streaming import DStream, StreamingContext
from tests.bounds import HANG_S
from tests.doubles import Events
from tests.system.leftovers import assert_nothing_left, threads

WAIT_S = HANG_S

SMALL = {
    "spark.streaming.blockInterval": "100ms",
    "spark.penstock.memory.size": "32m",
    "spark.penstock.block.maxSize": "4m",
    "spark.penstock.wal.segmentSize": "16m",
    "spark.penstock.receiver.maxRestartDelay": "1s",
    "spark.streaming.gracefulStopTimeout": "60s",
}
"""Settings that keep a test small."""


class Run:
    """One streaming context, from its making to the check that it left nothing.

    Attributes:
        processed: What reached the output operation, in its order.
        streams: The streams that `process` made.
    """

    def __init__(
        self, sc: SparkContext, *, batch_s: float = 0.5, clock: Clock | None = None
    ) -> None:
        self.sc = sc
        self.application_id = str(sc.applicationId)
        self.ssc = StreamingContext(sc, batch_s, clock=clock)
        self.events = Events()
        self.ssc.addStreamingListener(self.events)
        self._changed = threading.Condition()
        self.processed: list[Any] = []
        self.streams: list[DStream[Any]] = []

    def process(self, receiver: Any, convert: Callable[[Any], Any] = int) -> None:
        """Add a stream whose records, each converted in a task, go to `processed`."""

        def keep(rdd: Any) -> None:
            found = rdd.map(convert).collect()
            with self._changed:
                self.processed.extend(found)
                self._changed.notify_all()

        stream = self.ssc.receiverStream(receiver)
        stream.foreachRDD(keep)
        self.streams.append(stream)

    def __reduce__(self) -> tuple[Any, ...]:
        # Its output operation goes to checkpoints, from which no test here makes it again.
        return _not_made_again, ()

    def start(self) -> None:
        self.ssc.start()

    def await_processed(self, count: int, timeout_s: float = WAIT_S) -> None:
        with self._changed:
            done = self._changed.wait_for(lambda: len(self.processed) >= count, timeout_s)
            assert done, f"{len(self.processed)} of {count} records after {timeout_s:g} s"

    def await_last(self, last: Any, timeout_s: float = WAIT_S) -> None:
        with self._changed:
            done = self._changed.wait_for(
                lambda: bool(self.processed) and self.processed[-1] == last, timeout_s
            )
            assert done, f"{self.processed[-1:]} is the last, not {last}, after {timeout_s:g} s"

    def stop(self, *, graceful: bool = True) -> None:
        self.ssc.stop(stopSparkContext=False, stopGraceFully=graceful)


def _not_made_again() -> Run:
    raise AssertionError("a run of this process cannot be made again from a checkpoint")


@contextmanager
def settings(sc: SparkContext, values: Mapping[str, str]) -> Iterator[None]:
    """Let contexts that start within it see these settings, on top of `SMALL`."""
    conf = sc.getConf()
    for key, value in {**SMALL, **values}.items():
        conf.set(key, value)
    sc.getConf = lambda: conf  # type: ignore[method-assign]  # this one context's only
    try:
        yield
    finally:
        del sc.getConf


@contextmanager
def run_on(
    sc: SparkContext,
    values: Mapping[str, str] | None = None,
    *,
    batch_s: float = 0.5,
    clock: Clock | None = None,
    checkpoint: str | None = None,
) -> Iterator[Run]:
    """Make a `Run`; at its end it is stopped, and nothing of it may be left."""
    with settings(sc, values or {}):
        before = threads()
        run = Run(sc, batch_s=batch_s, clock=clock)
        if checkpoint is not None:
            run.ssc.checkpoint(checkpoint)
        try:
            yield run
        finally:
            run.stop(graceful=False)
        assert_nothing_left(run.application_id, before)
