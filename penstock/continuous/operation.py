"""`ContinuousOperation`: what a program asks for with `ReceiverDStream.continuous`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock._arguments import as_count, refused
from penstock._setting_values import Time
from penstock.continuous.sinks import Sink

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_TASKS = 1024
_LONGEST_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class ContinuousOperation:
    """A function that is called with the blocks of a stream as they come, and its sink.

    Attributes:
        function: The function.
        sink: Where its output goes.
        epoch_ms: How long an epoch is.
        parallelism: How many tasks call it.
        timeout_s: How long one call of the function or the sink may take.
        attempts: After that many failures without an epoch between, it is given up.
        dead_letters: Whether records for which the function raises are dead letters.
        key_by: The column by whose keys the records are shared among the tasks, each of which has a
            `KeyedState`; None: they are shared by blocks, without state.
    """

    function: Callable[..., pa.RecordBatch | None]
    sink: Sink
    epoch_ms: int = 100
    parallelism: int = 1
    timeout_s: float = 60.0
    attempts: int = 10
    dead_letters: bool = False
    key_by: str | None = None

    @staticmethod
    def of(
        function: Any,
        sink: Any,
        epoch: Any,
        parallelism: Any,
        timeout: Any,
        attempts: Any,
        dead_letters: Any = False,
        key_by: Any = None,
    ) -> ContinuousOperation:
        """Return what a program's arguments ask for.

        Raises:
            TypeError, ValueError: One is not accepted.
        """
        if not callable(function):
            accepted = "a function that takes a pyarrow.RecordBatch and returns one, or None"
            raise TypeError(refused("function", function, accepted))
        if not (key_by is None or (isinstance(key_by, str) and key_by)):
            raise TypeError(refused("key_by", key_by, "the name of a column, or None"))
        given = "batch" if key_by is None else "batch, state"
        try:
            inspect.signature(function).bind(*given.split(", "))
        except ValueError:
            pass  # One of C says nothing of its arguments.
        except TypeError as error:
            is_why = "without key_by" if key_by is None else "with key_by"
            raise TypeError(
                f"the function is called as function({given}) {is_why}, and cannot be: {error}"
            ) from None
        if not isinstance(sink, Sink):
            raise TypeError(refused("sink", sink, "a penstock.streaming.Sink, such as FileSink"))
        if not isinstance(dead_letters, bool):
            raise TypeError(refused("dead_letters", dead_letters, "True or False"))
        if key_by is not None and dead_letters:
            raise ValueError(
                "dead_letters=True and key_by do not go together: what the function had changed of "
                "its state before it raised would stay. Let it catch what it raises"
            )
        return ContinuousOperation(
            function,
            sink,
            _milliseconds(epoch, "epoch"),
            as_count(parallelism, "parallelism", "tasks", 1, _MOST_TASKS),
            _milliseconds(timeout, "timeout") / 1000,
            as_count(attempts, "attempts", "attempts", 1),
            dead_letters,
            key_by,
        )


def _milliseconds(value: Any, name: str) -> int:
    kind = Time(minimum_ms=1)
    accepted = "a time such as '100 ms' or '5 s', or a number of seconds, at most a day"
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError(refused(name, value, accepted))
    try:
        text = "".join(value.split()) if isinstance(value, str) else f"{round(value * 1000)}ms"
        milliseconds = kind.read(text)
    except (ValueError, OverflowError):
        raise ValueError(refused(name, value, accepted)) from None
    # A number counts seconds, and Spark's text without a unit milliseconds: which is meant?
    if text.isdigit() or milliseconds > _LONGEST_MS:
        raise ValueError(refused(name, value, accepted))
    return milliseconds
