"""What `receiverStream` and `continuous` take: their types, and whether it can be sent."""

from __future__ import annotations

import io
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark import cloudpickle

from penstock._arguments import as_count
from penstock.continuous.state import StateError, check_key_column
from penstock.continuous.timers import check_time_columns
from penstock.host.unpicklable import find_unpicklable
from penstock.tracker.errors import ReceiverPickleError

if TYPE_CHECKING:
    from penstock.continuous import ContinuousOperation
    from penstock.receiver import Receiver, ReceiverContext

T = TypeVar("T")

MOST_RECEIVERS = 10_000
"""That one stream may have."""

if TYPE_CHECKING:
    Source = Callable[[], Iterator[T] | AsyncIterator[T]]
    SourceOfContext = Callable[[ReceiverContext], Iterator[T] | AsyncIterator[T]]
    BulkSource = Callable[[], Iterator[list[T]] | AsyncIterator[list[T]]]
    BulkSourceOfContext = Callable[[ReceiverContext], Iterator[list[T]] | AsyncIterator[list[T]]]
    CoroutineSource = Callable[[], Awaitable[None]] | Callable[[ReceiverContext], Awaitable[None]]


class Runs(Protocol):
    """A class, or an object, with `run`."""

    @property
    def run(self) -> Callable[..., Any]: ...


def check_picklable(receiver: Receiver, name: str, stream_id: int) -> None:
    """Check that a receiver can be sent to an executor.

    Args:
        receiver: The receiver.
        name: What it is called in the error.
        stream_id: The number that its stream will have.

    Raises:
        ReceiverPickleError: It cannot; names the function, its line and the variable.
    """
    reason = why_unpicklable(receiver)
    if reason:
        raise ReceiverPickleError(stream_id, name, reason)


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


def numbers_of_receivers(
    receiver: Receiver, wanted: int | None, most: int | None
) -> tuple[int, int] | None:
    """Return how many receivers are to share a source, and how many may; None: it is one alone.

    Raises:
        TypeError: A number is no whole number.
        ValueError: There is none that is wanted, there are more than there may be, or the receiver
            declares no splits.
    """
    if wanted is None:
        if most is not None:
            raise ValueError("maxReceivers needs numReceivers, how many there are at first")
        return None
    wanted = as_count(wanted, "numReceivers", "receivers", 1, MOST_RECEIVERS)
    most = as_count(
        wanted if most is None else most, "maxReceivers", "receivers", wanted, MOST_RECEIVERS
    )
    if receiver.splits is None:
        raise ValueError(
            f"numReceivers={wanted} needs a receiver that declares splits(), the parts of its "
            f"source that receivers share; {receiver._receiver_type()} does not, and each receiver "
            "would read all of it. Declare @receiver(splits=...), or the method in a subclass of "
            "Receiver; or make a stream for each part and unite them"
        )
    return wanted, most


def why_unpicklable(thing: Any) -> str:
    """Return why something cannot be sent to an executor, with the way to it; empty if it can."""
    try:
        _dump(thing)
    except Exception:  # noqa: BLE001  # whatever pickling runs into in the author's objects
        found = find_unpicklable(thing, _dump)
        way = " -> ".join(part for part in (found.function, found.variable) if part)
        return f"{way}: {found.reason}" if way else found.reason
    return ""


class _Pickler(cloudpickle.CloudPickler):
    """Refuses an open file: cloudpickle would send a copy of what is in it now."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, io.TextIOWrapper) and thing not in (sys.stdout, sys.stderr):
            raise TypeError("an open file cannot be sent; open it in the function that reads it")
        return super().reducer_override(thing)  # type: ignore[no-untyped-call]


def _dump(thing: Any) -> bytes:
    with io.BytesIO() as file:
        pickler: Any = _Pickler
        pickler(file).dump(thing)
        return file.getvalue()
