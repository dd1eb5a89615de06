"""`batches_by_hand`: streams whose batches come when a test says so."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import SparkContext

from penstock.runtime.clock import ManualClock
from penstock.streaming import DStream, StreamingContext, StreamingListener
from penstock.testing.driver import ReceiverTestError

_FIRST_MS = 1_700_000_000_000
_WAIT_S = 300.0


class _Completed(StreamingListener):
    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.count = 0

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        with self.changed:
            self.count += 1
            self.changed.notify_all()


class BatchesByHand:
    """A streaming context on a clock that a test moves. Made by `batches_by_hand`.

    Attributes:
        ssc: The context; its batches begin at 2023-11-14 22:13:20 UTC.
        clock: Its clock.
    """

    def __init__(self, ssc: StreamingContext, clock: ManualClock, batch_ms: int) -> None:
        self.ssc = ssc
        self.clock = clock
        self._batch_ms = batch_ms
        self._completed = _Completed()
        self._due = 0
        ssc.addStreamingListener(self._completed)

    def collect(self, stream: DStream[Any]) -> list[list[Any]]:
        """Return a list that gets a list of the records of each batch of a stream."""
        found: list[list[Any]] = []
        stream.foreachRDD(lambda rdd: found.append(rdd.collect()))
        return found

    def run(self, count: int = 1, timeout_s: float = _WAIT_S) -> None:
        """Let batches come, each when the one before is complete; the first call starts.

        Raises:
            ReceiverTestError: One was not complete within `timeout_s` seconds.
        """
        if self.ssc.getState().name == "INITIALIZED":
            self.ssc.start()
        for _ in range(count):
            self._due += 1
            self.clock.advance(self._batch_ms)
            with self._completed.changed:
                if not self._completed.changed.wait_for(
                    lambda: self._completed.count >= self._due, timeout_s
                ):
                    raise ReceiverTestError(
                        f"batch no. {self._due} was not complete within {timeout_s:g} s"
                    )

    def run_until(self, holds: Callable[[], bool], timeout_s: float = _WAIT_S) -> None:
        """Let batches come until something holds: that all records of a receiver came, say.

        Raises:
            ReceiverTestError: It did not within `timeout_s` seconds.
        """
        end_s = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > end_s:
                raise ReceiverTestError(f"it did not hold after {self._due} batches")
            self.run(timeout_s=timeout_s)


@contextlib.contextmanager
def batches_by_hand(sc: SparkContext, batchDuration: float = 1) -> Iterator[BatchesByHand]:
    """Give a streaming context whose batches come by call, and stop it at the end of the `with`.

    Args:
        sc: The Spark context, which goes on.
        batchDuration: Seconds between two batches, by the clock that is moved.

    Raises:
        IllegalStateError: Another streaming context is active in this process.
    """
    clock = ManualClock(_FIRST_MS + 1)
    ssc = StreamingContext(sc, batchDuration, clock=clock)
    try:
        yield BatchesByHand(ssc, clock, round(batchDuration * 1000))
    finally:
        ssc.stop(stopSparkContext=False)
