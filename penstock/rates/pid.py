"""`PIDRateEstimator`: Spark's own, operation by operation."""

from __future__ import annotations

import math

from penstock.rates.estimator import RateEstimator


class PIDRateEstimator(RateEstimator):
    """A PID controller of the rate (Spark's ``PIDRateEstimator.scala``).

    The error is the rate minus the speed at which the batch was processed; its integral is what the
    batch had to wait for, seen as records that came too early; its derivative is its change per
    second since the last batch. The results equal those of Spark's class to the last bit, so each
    step is in the order and the precision of the original.

    The first batch only tells its speed. A batch without records, without a processing time or not
    later than the one before tells nothing.

    Args:
        batch_ms: The batch interval, above 0.
        proportional: Weight of the error, at least 0.
        integral: Weight of the integral, at least 0.
        derivative: Weight of the derivative, at least 0.
        min_rate: The lowest rate, above 0, in records per second.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        batch_ms: int,
        proportional: float = 1.0,
        integral: float = 0.2,
        derivative: float = 0.0,
        min_rate: float = 100.0,
    ) -> None:
        _require(batch_ms > 0, f"Specified batch interval {batch_ms} is invalid.")
        _require(proportional >= 0, f"Proportional term {proportional} should be >= 0.")
        _require(integral >= 0, f"Integral term {integral} should be >= 0.")
        _require(derivative >= 0, f"Derivative term {derivative} should be >= 0.")
        _require(min_rate > 0, "Minimum rate should be > 0")
        self._batch_ms = batch_ms
        self._proportional = float(proportional)
        self._integral = float(integral)
        self._derivative = float(derivative)
        self._min_rate = float(min_rate)
        self._is_first = True
        self._latest_ms = -1
        self._latest_rate = -1.0
        self._latest_error = -1.0

    def compute(
        self,
        time_ms: int,
        elements: int,
        processing_delay_ms: int,
        scheduling_delay_ms: int,
        queue_fill: float = 0.0,
    ) -> float | None:
        """Return the next rate; `queue_fill` plays no part."""
        if time_ms <= self._latest_ms or elements <= 0 or processing_delay_ms <= 0:
            return None
        # Both sides of a quotient become doubles first, as in the original: Python's quotient of
        # two ints is rounded only once, which may be another number.
        since_update_s = float(time_ms - self._latest_ms) / 1000
        processing_rate = float(elements) / processing_delay_ms * 1000
        error = self._latest_rate - processing_rate
        historical_error = float(scheduling_delay_ms) * processing_rate / self._batch_ms
        error_change = (error - self._latest_error) / since_update_s
        rate = (
            self._latest_rate
            - self._proportional * error
            - self._integral * historical_error
            - self._derivative * error_change
        )
        # Not a number stays what it is, as with Java's max.
        if not math.isnan(rate):
            rate = max(rate, self._min_rate)
        self._latest_ms = time_ms
        if self._is_first:
            self._is_first = False
            self._latest_rate = processing_rate
            self._latest_error = 0.0
            return None
        self._latest_rate = rate
        self._latest_error = error
        return rate


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(f"PIDRateEstimator: {message}")
