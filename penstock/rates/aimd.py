"""`AIMDRateEstimator`: a little more after each good batch, a good deal less after a bad one."""

from __future__ import annotations

from penstock.rates.estimator import RateEstimator

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
    queue does not tell how much is too much, and costs 15 % at least. The next decrease below the
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
