"""What goes wrong in a streaming program, as errors that name the way out."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.streaming.durations import batch_datetime


class JobGenerationError(PenstockError):
    """The jobs of a batch could not be made. The cause is the error that stopped it.

    Attributes:
        batch_time_ms: The batch, milliseconds since the epoch.
    """

    def __init__(self, batch_time_ms: int, what: str) -> None:
        super().__init__(f"Error generating jobs for time {batch_time_ms} ms: {what}")
        self.batch_time_ms = batch_time_ms


class OutputOperationError(PenstockError):
    """An output operation of a batch failed. The cause is the error that it raised.

    Attributes:
        batch_time_ms: The batch, milliseconds since the epoch.
        output_op_id: The operation, counted from 0 in the order of the program.
    """

    def __init__(self, batch_time_ms: int, output_op_id: int, name: str, what: str) -> None:
        super().__init__(
            f"output operation {output_op_id} ({name}) of the batch of "
            f"{batch_datetime(batch_time_ms)} ({batch_time_ms} ms) failed: {what}"
        )
        self.batch_time_ms = batch_time_ms
        self.output_op_id = output_op_id


class SparkEndedError(PenstockError):
    """Spark is gone, so that no batch can run any more; the context has stopped.

    The cause is the first error that came of it.

    Attributes:
        reason: What is gone: the JVM, or only its SparkContext.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the streams have ended because Spark has: {reason}; start the program again, by "
            "StreamingContext.getOrCreate to go on where it was"
        )
        self.reason = reason


class StateSavingError(PenstockError):
    """States could not be saved for longer than `patience_s`; the batch waits, and is tried again.

    Attributes:
        time_ms: The batch.
        reason: Why not, as the file system says it.
    """

    def __init__(self, time_ms: int, patience_s: float, cause: str, reason: str) -> None:
        super().__init__(
            f"the states of the batch of {time_ms} ms cannot be saved for {patience_s:g} s now, "
            f"because {cause}; it waits with those after it and is tried again: {reason}"
        )
        self.time_ms = time_ms
        self.reason = reason


class StateNotSavedError(PenstockError):
    """A batch whose states were not saved yet was given up by a stop, before its operations.

    Attributes:
        time_ms: The batch.
        reason: Why they were not, as the file system or Spark says it.
    """

    def __init__(self, time_ms: int, cause: str, reason: str) -> None:
        super().__init__(
            f"the batch of {time_ms} ms was given up by the stop while its states waited to be "
            f"saved, because {cause}: {reason}"
        )
        self.time_ms = time_ms
        self.reason = reason
