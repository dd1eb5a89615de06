"""`RateMemory`: what a stream knows of its rate, apart from the settings."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.rates.estimators import RateEstimator


class RateSource(enum.Enum):
    """Where the rate in force comes from."""

    UNLIMITED = "unlimited"
    """No one limits it."""
    USER = "user"
    """``set_rate`` or ``set_byte_rate``."""
    MAX_RATE = "maxRate"
    """``spark.streaming.receiver.maxRate``, ``spark.penstock.receiver.rate`` or ``.byteRate``."""
    GROUP = "group"
    """The stream's share of its group's total."""
    INITIAL = "initial"
    """``spark.streaming.backpressure.initialRate``."""
    SLOW_START = "slowStart"
    """Rates follow batches or queries, and nothing is known yet."""
    ESTIMATOR = "estimator"
    """Backpressure."""
    QUERY = "query"
    """The slowest query that reads the stream."""
    BACKLOG = "backlog"
    """Nothing passes before queries have read some of what is kept."""
    PAUSED = "paused"
    """The stream is paused: nothing passes."""


@dataclass
class GroupPlan:
    """A total that several streams share.

    Attributes:
        total: Records per second, or bytes.
        streams: Their numbers.
        in_bytes: Whether it is bytes.
    """

    total: float
    streams: tuple[int, ...]
    in_bytes: bool = False


@dataclass
class RateMemory:
    """Plain values: a `StreamingContext` has them on the stream's node, so in its checkpoints.

    Guarded by the lock of the program's `RateBook`.

    Attributes:
        records_per_second: What the program asks for, or None.
        bytes_per_second: The same in bytes.
        estimate: What the estimator last found, in records per second, or None.
        slow_start: The bound of slow start, once it has grown.
        estimator: The estimator with its state; None before the first start.
        group: The group that it belongs to.
        has_receiver: Whether a receiver takes its records, and not the batches themselves.
        is_bounded: Whether it has limits beside these.
        of_queries: What the queries that read it can do, and whose rate that is; None: it does not
            follow queries.
    """

    records_per_second: float | None = None
    bytes_per_second: float | None = None
    estimate: float | None = None
    slow_start: float | None = None
    estimator: RateEstimator | None = None
    group: GroupPlan | None = None
    has_receiver: bool = True
    is_bounded: bool = False
    of_queries: tuple[float | None, RateSource] | None = None


@dataclass(frozen=True)
class GroupRate:
    """A group at one moment, in records per second, or in bytes where it divides these.

    Attributes:
        total: What all may take together.
        shares: What each stream may take, by its number; they add up to `total` at most.
        used: What passes in each, from its receiver's reports; streams without one are left out.
    """

    total: float
    shares: Mapping[int, float]
    used: Mapping[int, float]
