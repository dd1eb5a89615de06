"""`ContinuousOperation`: what a program asks for with `ReceiverDStream.continuous`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from penstock._arguments import as_count, refused
from penstock.continuous.sinks import Sink
from penstock.settings.values import Time

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_TASKS = 1024
_DAY_MS = 24 * 3600 * 1000
_YEAR_MS = 365 * _DAY_MS
_WORD = "(milli)?(second|minute|hour|day)s?$"


@dataclass(frozen=True)
class Watermark:
    """How far event time has come, as the records say; see `penstock.continuous.timers`.

    Attributes:
        column: The column of timestamps that has their event times. One without a zone is in UTC;
            a record without a time is never late.
        delay: How much earlier than the latest one before it a record may be, as Spark writes
            times, or in seconds.
        sources: A column of integers, text or bytes that says which source a record is from, such
            as a partition; None: all are from one.
        idle: A source that has had no record for this long does not hold the others back; None: it
            does for ever.
        late: What becomes of records that are earlier: ``drop``, or ``keep``, which gives them to
            the function all the same. Both are counted.

    Raises:
        TypeError, ValueError: One is not accepted.
    """

    column: str
    delay: str | float
    sources: str | None = None
    idle: str | float | None = None
    late: Literal["drop", "keep"] = "drop"

    def __post_init__(self) -> None:
        _check_column(self.column, "column")
        if self.sources is not None:
            _check_column(self.sources, "sources")
        if self.late not in ("drop", "keep"):
            raise ValueError(refused("late", self.late, "'drop' or 'keep'"))
        if self.idle is not None and self.sources is None:
            raise ValueError("idle needs sources: with one, no other is held back")
        assert self.delay_ms >= 0
        assert self.idle_ms is None or self.idle_ms > 0

    @property
    def delay_ms(self) -> int:
        """The delay, in milliseconds."""
        return _milliseconds(self.delay, "delay", 0, _YEAR_MS, "a year")

    @property
    def idle_ms(self) -> int | None:
        """After how many milliseconds a source is idle."""
        return None if self.idle is None else _milliseconds(self.idle, "idle")


def _check_column(column: Any, name: str) -> None:
    if not (isinstance(column, str) and column):
        raise TypeError(refused(name, column, "the name of a column"))


@dataclass(frozen=True)
class ContinuousOperation:
    """A function that is called with the blocks of a stream as they come, and its sink.

    Attributes:
        function: The function.
        sink: Where its output goes.
        epoch: How long an epoch is, as Spark writes times, or in seconds.
        parallelism: How many tasks call it.
        timeout: How long one call of the function or the sink may take.
        attempts: After that many failures without an epoch between, it is given up.
        dead_letters: Whether records for which the function raises are dead letters.
        key_by: The column by whose keys the records are shared among the tasks, each of which has a
            `KeyedState`; None: they are shared by blocks, without state.
        on_timer: Is called with the timers that have expired; None: there are none.
        watermark: Where event time comes from; None: there is none.
        deliver: When the function is called: with blocks that are ``durable``, or already when they
            are ``stored``.

    Raises:
        TypeError, ValueError: One is not accepted.
    """

    function: Callable[..., pa.RecordBatch | None]
    sink: Sink
    epoch: str | float = "100 ms"
    parallelism: int = 1
    timeout: str | float = "60 s"
    attempts: int = 10
    dead_letters: bool = False
    key_by: str | None = None
    on_timer: Callable[..., pa.RecordBatch | None] | None = None
    watermark: Watermark | None = None
    deliver: Literal["durable", "stored"] = "durable"

    def __post_init__(self) -> None:
        _check(self)
        # Read once: they are asked for in each epoch.
        _ = self.epoch_ms, self.timeout_s
        # As plain numbers, whatever counts was given.
        tasks = as_count(self.parallelism, "parallelism", "tasks", 1, _MOST_TASKS)
        object.__setattr__(self, "parallelism", tasks)
        object.__setattr__(self, "attempts", as_count(self.attempts, "attempts", "attempts", 1))

    @cached_property
    def epoch_ms(self) -> int:
        """How long an epoch is, in milliseconds."""
        return _milliseconds(self.epoch, "epoch")

    @cached_property
    def timeout_s(self) -> float:
        """How long one call may take, in seconds."""
        return _milliseconds(self.timeout, "timeout") / 1000


def _check(asked: Any) -> None:
    if not callable(asked.function):
        accepted = "a function that takes a pyarrow.RecordBatch and returns one, or None"
        raise TypeError(refused("function", asked.function, accepted))
    if not (asked.key_by is None or (isinstance(asked.key_by, str) and asked.key_by)):
        raise TypeError(refused("key_by", asked.key_by, "the name of a column, or None"))
    if asked.on_timer is not None and not callable(asked.on_timer):
        accepted = "a function that is called as on_timer(expired, state, timers), or None"
        raise TypeError(refused("on_timer", asked.on_timer, accepted))
    if not (asked.watermark is None or isinstance(asked.watermark, Watermark)):
        accepted = "a penstock.streaming.Watermark, such as Watermark('at', '10 s'), or None"
        raise TypeError(refused("watermark", asked.watermark, accepted))
    if asked.key_by is None and (asked.on_timer is not None or asked.watermark is not None):
        what = "watermark" if asked.on_timer is None else "on_timer"
        raise ValueError(f"{what} needs key_by: timers and watermark are kept with its state")
    with_timers = "" if asked.on_timer is None else ", timers"
    given = "batch" if asked.key_by is None else f"batch, state{with_timers}"
    why = "without key_by" if asked.key_by is None else "with key_by"
    why += " and on_timer" if asked.on_timer is not None else ""
    _check_signature(asked.function, "the function", "function", given, why)
    if asked.on_timer is not None:
        given = "expired, state, timers"
        _check_signature(asked.on_timer, "on_timer", "on_timer", given, "then")
    if not isinstance(asked.sink, Sink):
        accepted = "a penstock.streaming.Sink, such as FileSink"
        raise TypeError(refused("sink", asked.sink, accepted))
    if not isinstance(asked.dead_letters, bool):
        raise TypeError(refused("dead_letters", asked.dead_letters, "True or False"))
    if asked.key_by is not None and asked.dead_letters:
        raise ValueError(
            "dead_letters=True and key_by do not go together: what the function had changed of "
            "its state before it raised would stay. Let it catch what it raises"
        )
    if asked.deliver not in ("durable", "stored"):
        raise ValueError(refused("deliver", asked.deliver, "'durable' or 'stored'"))
    if asked.key_by is not None and asked.deliver == "stored":
        raise ValueError(
            "deliver='stored' and key_by do not go together: the state would have what was "
            "never logged when a receiver dies. Leave deliver out"
        )


def _check_signature(function: Any, what: str, name: str, given: str, why: str) -> None:
    try:
        inspect.signature(function).bind(*given.split(", "))
    except ValueError:
        pass  # One of C says nothing of its arguments.
    except TypeError as error:
        raise TypeError(
            f"{what} is called as {name}({given}) {why}, and cannot be: {error}"
        ) from None


def _milliseconds(
    value: Any, name: str, least_ms: int = 1, most_ms: int = _DAY_MS, most: str = "a day"
) -> int:
    kind = Time(minimum_ms=least_ms)
    accepted = f"a time such as '100 ms' or '5 s', or a number of seconds, at most {most}"
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError(refused(name, value, accepted))
    try:
        text = "".join(value.split()) if isinstance(value, str) else f"{round(value * 1000)}ms"
        # As in Spark's SQL and its withWatermark: "10 seconds".
        text = re.sub(_WORD, lambda found: "ms" if found[1] else found[2][0], text)
        milliseconds = kind.read(text)
    except (ValueError, OverflowError):
        raise ValueError(refused(name, value, accepted)) from None
    # A number counts seconds, and Spark's text without a unit milliseconds: which is meant?
    if text.isdigit() or milliseconds > most_ms:
        raise ValueError(refused(name, value, accepted))
    return milliseconds
