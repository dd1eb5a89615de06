"""Whose limit holds: the lowest."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock._html import table_of
from penstock.rates.memory import RateMemory, RateSource
from penstock.settings import Settings
from penstock.settings.values import rate_per_second


@dataclass(frozen=True)
class StreamRate:
    """The rates of a stream at one moment. All in records or bytes per second.

    Attributes:
        stream_id: The stream.
        asked: What ``set_rate`` asked for, or None.
        effective: The rate in force, or None when there is no limit; 0 while nothing passes.
        source: Whose rate that is.
        asked_bytes: What ``set_byte_rate`` asked for, or None.
        effective_bytes: The bytes per second in force, or None when there is no limit.
        byte_source: Whose that is.
        estimate: What the estimator last found, whether it is the lowest or not; None before.
        used: Records per second that pass, from the receiver's reports; None while none runs.
        is_confirmed: Whether the receiver has said that these rates are in force. Those of a
            stream without one are with its next batch.
    """

    stream_id: int
    asked: float | None
    effective: float | None
    source: RateSource
    asked_bytes: float | None
    effective_bytes: float | None
    byte_source: RateSource
    estimate: float | None
    used: float | None
    is_confirmed: bool

    def _repr_html_(self) -> str:
        return table_of("Rates", [self])


@dataclass(frozen=True)
class RateLimits:
    """What the settings say of rates; None is no limit.

    Attributes:
        max_rate: The lower of Spark's and of our limit of records.
        byte_rate: Bytes per second.
        initial_rate: What a receiver starts with.
        slow_start_rate: The same, with backpressure and no other rate known.
        has_backpressure: Whether rates follow the batches.
    """

    max_rate: float | None
    byte_rate: float | None
    initial_rate: float | None
    slow_start_rate: float
    has_backpressure: bool

    @classmethod
    def of(cls, settings: Settings) -> RateLimits:
        """Read them out of the settings."""
        return cls(
            settings.max_records_per_second,
            settings.max_bytes_per_second,
            settings.backpressure_initial_rate,
            rate_per_second(settings.slow_start_rate),
            settings.backpressure_enabled,
        )


@dataclass(frozen=True)
class Decision:
    """The rates in force and whose they are."""

    records: float | None
    source: RateSource
    bytes: float | None
    byte_source: RateSource


def decide(
    memory: RateMemory, limits: RateLimits, share: float | None, *, share_in_bytes: bool = False
) -> Decision:
    """Return the lowest of all limits.

    The initial rate stands in for one that is not known: with backpressure until the estimator has
    its first, without it (where Spark lets it hold for good) until the program asks for another.
    Limits of receivers do not hold for a stream that has none; as in Spark, backpressure does.
    A stream that follows queries has theirs in place of both.

    Args:
        memory: What the stream knows.
        limits: The settings.
        share: The stream's share of its group, or None.
        share_in_bytes: Whether that is bytes per second, and not records.
    """
    if not memory.has_receiver:
        limits = replace(limits, max_rate=None, byte_rate=None)
    records: list[tuple[float | None, RateSource]] = [
        (memory.records_per_second, RateSource.USER),
        (limits.max_rate, RateSource.MAX_RATE),
    ]
    if memory.of_queries is not None:
        records.append(memory.of_queries)
    elif limits.has_backpressure:
        records.append(_of_backpressure(memory, limits))
    elif memory.records_per_second is None and memory.has_receiver:
        records.append((limits.initial_rate, RateSource.INITIAL))
    sizes = [
        (memory.bytes_per_second, RateSource.USER),
        (limits.byte_rate, RateSource.MAX_RATE),
    ]
    (sizes if share_in_bytes else records).append((share, RateSource.GROUP))
    return Decision(*_lowest(records), *_lowest(sizes))


def _of_backpressure(memory: RateMemory, limits: RateLimits) -> tuple[float | None, RateSource]:
    if memory.estimate is not None:
        return memory.estimate, RateSource.ESTIMATOR
    if limits.initial_rate is not None:
        return limits.initial_rate, RateSource.INITIAL
    if limits.max_rate is not None or memory.is_bounded:
        return None, RateSource.INITIAL  # that is where Spark starts
    return memory.slow_start or limits.slow_start_rate, RateSource.SLOW_START


def _lowest(
    found: list[tuple[float | None, RateSource]],
) -> tuple[float | None, RateSource]:
    lowest: tuple[float | None, RateSource] = (None, RateSource.UNLIMITED)
    for limit, source in found:
        if limit is not None and (lowest[0] is None or limit < lowest[0]):
            lowest = (limit, source)
    return lowest
