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
    """States of a batch cannot be saved.

    It waits, and is tried again; or a stop gave it up meanwhile, before its operations.

    Attributes:
        time_ms: The batch.
        reason: Why not, as the file system or Spark says it.
        is_given_up: Whether a stop gave it up.
    """

    def __init__(
        self, time_ms: int, cause: str, reason: str, patience_s: float | None = None
    ) -> None:
        what = (
            f"the batch of {time_ms} ms was given up by the stop while its states waited to be "
            f"saved, because {cause}"
            if patience_s is None
            else f"the states of the batch of {time_ms} ms cannot be saved for {patience_s:g} s "
            f"now, because {cause}; it waits with those after it and is tried again"
        )
        super().__init__(f"{what}: {reason}")
        self.time_ms = time_ms
        self.reason = reason
        self.is_given_up = patience_s is None
