"""What a program implements to be notified of receivers, batches and output operations."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence

from penstock.listeners.events import (
    UNKNOWN,
    BatchCompleted,
    BatchInfo,
    BatchStarted,
    BatchSubmitted,
    OutputOperationCompleted,
    OutputOperationStarted,
    ReceiverError,
    ReceiverStarted,
    ReceiverStopped,
    StreamingStarted,
)


class StreamingListener:
    """Override the methods for what you want to hear of.

    They are called in one thread of the context, one event after the other, in the order
    ``onBatchSubmitted``, ``onBatchStarted``, (``onOutputOperationStarted``,
    ``onOutputOperationCompleted``) for each operation, ``onBatchCompleted``. An exception is
    logged and the next listener is called. A slow listener delays the events and nothing else.
    `StreamingContext.stop` must not be called from here: it raises `IllegalStateError`. After
    the context has stopped no event comes any more.

    The facts of an event are method calls, as PySpark has them:
    ``completed.batchInfo().numRecords()``.
    """

    def onStreamingStarted(self, streamingStarted: StreamingStarted) -> None:
        """Called when the context has started."""

    def onReceiverStarted(self, receiverStarted: ReceiverStarted) -> None:
        """Called when a receiver has started."""

    def onReceiverError(self, receiverError: ReceiverError) -> None:
        """Called when a receiver has reported an error."""

    def onReceiverStopped(self, receiverStopped: ReceiverStopped) -> None:
        """Called when a receiver has stopped."""

    def onBatchSubmitted(self, batchSubmitted: BatchSubmitted) -> None:
        """Called when the jobs of a batch wait to be run."""

    def onBatchStarted(self, batchStarted: BatchStarted) -> None:
        """Called when the first job of a batch starts."""

    def onBatchCompleted(self, batchCompleted: BatchCompleted) -> None:
        """Called when all jobs of a batch have ended, well or not."""

    def onOutputOperationStarted(self, outputOperationStarted: OutputOperationStarted) -> None:
        """Called when a job of a batch starts."""

    def onOutputOperationCompleted(
        self, outputOperationCompleted: OutputOperationCompleted
    ) -> None:
        """Called when a job of a batch has ended, well or not."""


_PERCENTILES = (0, 5, 10, 25, 50, 75, 90, 95, 100)

_log = logging.getLogger("penstock.streaming.stats")


class StatsReportListener(StreamingListener):
    """After each batch, logs total delay and processing time of the last batches at level INFO.

    The logger is ``penstock.streaming.stats``. Each of the two has two lines: count, mean,
    standard deviation, maximum and minimum, and the percentiles; all in milliseconds.

    Args:
        numBatchInfos: How many batches are looked at.
    """

    def __init__(self, numBatchInfos: int = 10) -> None:
        if numBatchInfos < 1:
            raise ValueError(f"numBatchInfos must be at least 1, not {numBatchInfos}")
        self.batchInfos: deque[BatchInfo] = deque(maxlen=numBatchInfos)

    def onBatchCompleted(self, batchCompleted: BatchCompleted) -> None:
        self.batchInfos.append(batchCompleted.batchInfo())
        self.printStats()

    def printStats(self) -> None:
        """Log the figures of the batches that are known."""
        _show("Total delay", [info.totalDelay() for info in self.batchInfos])
        _show("Processing time", [info.processingDelay() for info in self.batchInfos])


def _show(heading: str, times_ms: Sequence[int]) -> None:
    known = sorted(ms for ms in times_ms if ms != UNKNOWN)
    if not known:
        return
    mean = sum(known) / len(known)
    deviation = math.sqrt(sum((ms - mean) ** 2 for ms in known) / len(known))
    _log.info(
        "%s: (count: %d, mean: %.6f, stdev: %.6f, max: %.6f, min: %.6f)",
        heading,
        len(known),
        mean,
        deviation,
        known[-1],
        known[0],
    )
    marks = [f"{p}%: {_percentile(known, p)} ms" for p in _PERCENTILES]
    _log.info("%s: %s", heading, ", ".join(marks))


def _percentile(ordered: Sequence[int], percent: int) -> int:
    # As in Spark's `Distribution`: the value at that part of the way, never beyond the last.
    return ordered[min(percent * len(ordered) // 100, len(ordered) - 1)]
