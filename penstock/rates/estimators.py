"""Estimators of a rate from what batches report: Spark's PID controller, AIMD, and the choice."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from penstock.settings import Settings


class RateEstimator(ABC):
    """Estimates how many records per second can be processed (Spark's ``RateEstimator``).

    Asked by one thread, once for each completed batch in which the stream has records. It is
    pickled with the graph, so that a driver that is started again goes on where it was.
    """

    @abstractmethod
    def compute(
        self,
        time_ms: int,
        elements: int,
        processing_delay_ms: int,
        scheduling_delay_ms: int,
        queue_fill: float = 0.0,
    ) -> float | None:
        """Return the records per second to go on with, or None to leave them as they are.

        Args:
            time_ms: When the batch ended, ms since the epoch.
            elements: The stream's records in it.
            processing_delay_ms: From the start of its first job to the end of its last.
            scheduling_delay_ms: How long it waited for that start.
            queue_fill: How full the receiver's queue of blocks was at most since the batch before,
                0 to 1.
        """


class PIDRateEstimator(RateEstimator):
    """A PID controller of the rate (Spark's ``PIDRateEstimator.scala``).

    The error is the rate minus the speed at which the batch was processed; its integral is what the
    batch had to wait for, seen as records that came too early; its derivative is its change per
    second since the last batch. The results equal Spark's to the last bit, so each step is in the
    order and the precision of the original.

    The first batch only shows its speed. A batch without records, without a processing time or not
    later than the one before shows nothing.

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


_FULL_BATCH = 0.99
"""A batch that takes more of its interval than this has no room left."""
_SAFE = 0.95
"""A batch that takes this much of its interval is as good as full."""
_ROOM = 0.5
"""A batch that takes less of its interval than this leaves room for as much again."""
_FULL_QUEUE = 0.8
_QUEUE_CUT = 0.85
_USED = 0.8
"""A source that used less of the rate than this says nothing about a higher one."""
_DEEPEST_CUT = 0.5
"""One batch never costs more than half of the rate: it may have been slow by chance."""
_CAUGHT_UP = 0.1
"""A batch that waited for less of an interval than this is not behind."""
_CATCHING_UP = 10
"""The number of batches, about, in which what waits is to be caught up with."""


class AIMDRateEstimator(RateEstimator):
    """Additive increase, multiplicative decrease, as TCP's congestion control has it.

    A batch is *late* when it took longer than its interval, or when the receiver's queue of blocks
    was nearly full. Then the rate becomes `decrease` times the lower of itself and the batch's
    speed, but not less than half of itself. The speed is known, so the cut need not be deep; a full
    queue does not show how much is too much, and costs 15 % at least. The next decrease below the
    speed waits for a batch that was received wholly at the new rate, as before that nothing can be
    known of it. A batch that took less than half of its interval doubles the rate: that is the slow
    start, and the way back after a cut that went too deep. Another one that is not late raises the
    rate by half of what its time left room for, and by `increase` times the higher of itself and
    the rate that was too high last at least. Nothing is raised while batches wait, nor when the
    source used less than four fifths of the rate. While batches wait, the rate that is given out is
    lowered further, by a tenth for each interval that they wait and down to a half.

    So, unlike PID, a slow source does not pull the rate down: when it has much to send all at once,
    it passes at the last rate that was good. In turn the rate always swings a little below what is
    possible.

    Sources: Chiu and Jain, "Analysis of the increase and decrease algorithms for congestion
    avoidance", Computer Networks and ISDN Systems 17 (1989); Jacobson, "Congestion avoidance and
    control", SIGCOMM 1988 (slow start); RFC 7661 (a rate that was not used is not raised).

    Args:
        batch_ms: The batch interval, above 0.
        increase: Part of a rate, between 0 and 1.
        decrease: Factor, between 0 and 1.
        min_rate: The lowest rate, above 0, in records per second.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        batch_ms: int,
        *,
        increase: float = 0.02,
        decrease: float = 0.95,
        min_rate: float = 100.0,
    ) -> None:
        if batch_ms <= 0 or not 0 < increase < 1 or not 0 < decrease < 1 or min_rate <= 0:
            raise ValueError(
                "AIMDRateEstimator needs a batch interval and a minimum rate above 0, and an "
                f"increase and a decrease between 0 and 1, not {batch_ms} ms, {min_rate}, "
                f"{increase} and {decrease}"
            )
        self._batch_ms = batch_ms
        self._increase = increase
        self._decrease = decrease
        self._min_rate = min_rate
        self._rate: float | None = None
        self._given = 0.0
        self._too_high = 0.0
        self._cut_ms: int | None = None
        self._latest_ms = -1

    def compute(
        self,
        time_ms: int,
        elements: int,
        processing_delay_ms: int,
        scheduling_delay_ms: int,
        queue_fill: float = 0.0,
    ) -> float | None:
        """Return the next rate."""
        if time_ms <= self._latest_ms or elements <= 0 or processing_delay_ms <= 0:
            return None
        self._latest_ms = time_ms
        arrived = elements * 1000 / self._batch_ms
        rate = max(self._min_rate, arrived) if self._rate is None else self._rate
        waited = scheduling_delay_ms / self._batch_ms
        if processing_delay_ms > _FULL_BATCH * self._batch_ms or queue_fill >= _FULL_QUEUE:
            begun_ms = time_ms - processing_delay_ms - scheduling_delay_ms - self._batch_ms
            is_new = self._cut_ms is None or begun_ms >= self._cut_ms
            factor = min(self._decrease, _QUEUE_CUT if queue_fill >= _FULL_QUEUE else 1.0)
            speed = elements * 1000 / processing_delay_ms
            rate = self._cut(time_ms, rate, factor * (min(rate, speed) if is_new else speed))
        elif waited <= _CAUGHT_UP and arrived >= _USED * self._given:
            rate += self._step(rate, processing_delay_ms / self._batch_ms)
        self._rate = rate
        self._given = rate
        if waited > _CAUGHT_UP:
            part = max(_DEEPEST_CUT, 1 - waited / _CATCHING_UP)
            self._given = max(self._min_rate, rate * part)
        return self._given

    def _step(self, rate: float, share: float) -> float:
        """Return what a batch that took `share` of its interval lets the rate grow by."""
        if share < _ROOM:
            return rate
        return max(self._increase * max(rate, self._too_high), rate * (_SAFE / share - 1) / 2)

    def _cut(self, time_ms: int, rate: float, wanted: float) -> float:
        """Return a lower rate.

        Args:
            time_ms: Now.
            rate: The rate that may be too high.
            wanted: What to go down to. What a batch says of the machine's speed holds at whatever
                rate it was received; what it says of a rate, only if it was received at that.
        """
        lower = max(self._min_rate, _DEEPEST_CUT * rate, wanted)
        if lower >= rate:
            return rate
        self._cut_ms = time_ms
        self._too_high = rate
        return lower


def create_rate_estimator(settings: Settings, batch_ms: int) -> RateEstimator:
    """Return the estimator that ``spark.streaming.backpressure.rateEstimator`` names."""
    if settings.rate_estimator == "aimd":
        return AIMDRateEstimator(
            batch_ms,
            increase=settings.aimd_increase,
            decrease=settings.aimd_decrease,
            min_rate=settings.aimd_min_rate,
        )
    return PIDRateEstimator(
        batch_ms,
        settings.pid_proportional,
        settings.pid_integral,
        settings.pid_derived,
        settings.pid_min_rate,
    )
