"""`RateMemory`: what a stream knows of its rate, apart from the settings."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.rates.estimator import RateEstimator


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
    """Plain values that are on the stream's node, so that a checkpoint of the graph has them.

    Guarded by the lock of the context's `RateBook`.

    Attributes:
        records_per_second: What the program asks for, or None.
        bytes_per_second: The same in bytes.
        estimate: What the estimator last found, in records per second, or None.
        slow_start: The bound of slow start, once it has grown.
        estimator: The estimator with its state; None before the first start.
        group: The group that it belongs to.
        has_receiver: Whether a receiver takes its records, and not the batches themselves.
        is_bounded: Whether it has limits beside these.
    """

    records_per_second: float | None = None
    bytes_per_second: float | None = None
    estimate: float | None = None
    slow_start: float | None = None
    estimator: RateEstimator | None = None
    group: GroupPlan | None = None
    has_receiver: bool = True
    is_bounded: bool = False
