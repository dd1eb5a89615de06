"""What a program gives `continuous`, of a `StreamingContext` and of a `ReceiverHost`."""

from __future__ import annotations

from penstock.continuous import ContinuousOperation
from penstock.continuous.state import StateError, check_key_column
from penstock.continuous.timers import check_time_columns
from penstock.host.receiver_arguments import why_unpicklable
from penstock.receiver import Receiver


def check_operation(operation: ContinuousOperation, name: str, receiver: Receiver) -> None:
    """Check that a stream can have a continuous function.

    Args:
        operation: What is asked for.
        name: The stream.
        receiver: Its receiver.

    Raises:
        TypeError: The function or the sink cannot be sent to an executor.
        ValueError: The schema that the receiver declares has no such column of keys, or times.
    """
    import pyarrow as pa

    for what in ("function", "sink", "on_timer"):
        if reason := why_unpicklable(getattr(operation, what)):
            raise TypeError(
                f"the {what} of continuous stream {name!r} cannot be pickled: {reason}. "
                "Make connections, locks and models where it runs: at the first call of the "
                "function, in open of the sink"
            )
    schema = getattr(receiver, "schema", None)
    if operation.key_by is not None and isinstance(schema, pa.Schema):
        try:
            check_key_column(schema, operation.key_by)
            if operation.watermark is not None:
                check_time_columns(schema, operation.watermark)
        except StateError as error:
            raise ValueError(f"stream {name!r}: {error}") from None
