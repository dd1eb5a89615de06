"""`RateEstimator`: makes a rate of what a batch tells."""

from __future__ import annotations

from abc import ABC, abstractmethod


class RateEstimator(ABC):
    """Estimates how many records per second can be processed (Spark's ``RateEstimator``).

    Asked by one thread, once for each completed batch in which the stream has records. It is
    pickled with the graph, so that a driver that is started again goes on where it was.
    """

    @abstractmethod
    def compute(
        self,
        time_ms: int,
        elements: int,
        processing_delay_ms: int,
        scheduling_delay_ms: int,
        queue_fill: float = 0.0,
    ) -> float | None:
        """Return the records per second to go on with, or None to leave them as they are.

        Args:
            time_ms: When the batch ended, ms since the epoch.
            elements: The stream's records in it.
            processing_delay_ms: From the start of its first job to the end of its last.
            scheduling_delay_ms: How long it waited for that start.
            queue_fill: How full the receiver's queue of blocks was at most since the batch before,
                0 to 1.
        """
