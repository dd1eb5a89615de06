"""`RateController`: lets the rate of a stream follow its batches."""

from __future__ import annotations

import logging

from penstock.listeners.events import BatchCompleted
from penstock.listeners.listener import StreamingListener
from penstock.rates import RateBook, RateEstimator

_log = logging.getLogger("penstock.streaming.rates")


class RateController(StreamingListener):
    """Lets one stream's rate follow its batches (Spark's ``RateController``).

    Called on the listener bus's thread; publishing does not wait for anything.

    Args:
        stream_id: The stream.
        estimator: Makes rates.
        book: Takes them.
    """

    def __init__(self, stream_id: int, estimator: RateEstimator, book: RateBook) -> None:
        self.stream_id = stream_id
        self._estimator = estimator
        self._book = book
        self._latest: float | None = None

    @property
    def latest_rate(self) -> float | None:
        """What was published last, in records per second; None before the first."""
        return self._latest

    def onBatchCompleted(self, batchCompleted: BatchCompleted) -> None:
        """Make a rate of the batch, if it says enough: Spark's condition is the same."""
        batch = batchCompleted.batchInfo()
        inputs = batch.streamIdToInputInfo()
        if self.stream_id not in inputs or batch.totalDelay() < 0:
            return
        elements = inputs[self.stream_id].numRecords()
        rate = self._estimator.compute(
            batch.processingEndTime(),
            elements,
            batch.processingDelay(),
            batch.schedulingDelay(),
            self._book.take_queue_fill(self.stream_id),
        )
        if rate is None:
            if self._latest is None and elements > 0:
                self._book.no_estimate(self.stream_id, elements)
            return
        whole = float(int(rate))
        if whole <= 0:
            return
        self._latest = whole
        _log.debug("stream %d: %d records per second", self.stream_id, whole)
        self._book.publish(self.stream_id, whole)
