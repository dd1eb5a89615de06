"""What a program implements to be told of receivers, batches and output operations."""

from __future__ import annotations

from penstock.streaming.listeners.events import (
    BatchCompleted,
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
