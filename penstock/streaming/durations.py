"""Durations and batch times as programs give and get them.

Public API takes durations in seconds and hands out batch times as naive local `datetime`, as
PySpark does. Inside, both are int milliseconds.
"""

from __future__ import annotations

import math
from datetime import datetime


def to_milliseconds(seconds: float, name: str) -> int:
    """Return a duration in milliseconds, to the nearest.

    PySpark truncates, so that 2.01 s become 2009 ms in it.

    Args:
        seconds: The duration in seconds.
        name: What it is called in an error.

    Raises:
        ValueError: It is not a number of seconds above zero.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {type(seconds).__name__}")
    if not math.isfinite(seconds):
        raise ValueError(f"{name} must be a number of seconds, not {seconds}")
    milliseconds = round(seconds * 1000)
    if milliseconds <= 0:
        raise ValueError(f"{name} must be at least a millisecond, not {seconds} s")
    return milliseconds


def batch_datetime(time_ms: int) -> datetime:
    """Return a batch time as the naive local `datetime` that PySpark passes to functions."""
    return datetime.fromtimestamp(time_ms / 1000.0)


def time_milliseconds(moment: datetime | float) -> int:
    """Return milliseconds since the epoch of a local `datetime` or of seconds since the epoch.

    In the hour that comes twice when clocks are set back, `fold` says which one it is.
    """
    return round((moment.timestamp() if isinstance(moment, datetime) else moment) * 1000)


def next_multiple(time_ms: int, period_ms: int) -> int:
    """Return the first multiple of `period_ms` after `time_ms`."""
    return (time_ms // period_ms + 1) * period_ms
