"""`PIDRateEstimator`: Spark's own suite of tests, and Spark's own class as the oracle."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.rates import PIDRateEstimator

Batch = tuple[int, int, int, int]
"""The arguments of `compute`: time, elements, processing delay, scheduling delay."""

weights = st.one_of(
    st.sampled_from([0.0, 0.1, 0.2, 1.0]),
    st.floats(0, 10, allow_nan=False),
    st.floats(0, 1e300, allow_nan=False),
)
parameters = st.tuples(
    st.integers(1, 600_000),
    weights,
    weights,
    weights,
    st.one_of(st.just(100.0), st.floats(1e-9, 1e9)),
)
counts = st.one_of(st.integers(-1, 3), st.integers(0, 10_000_000), st.integers(0, 2**62))
delays = st.one_of(st.integers(-1, 3), st.integers(0, 100_000), st.integers(0, 2**62))


@st.composite
def traces(draw: st.DrawFn) -> list[Batch]:
    """Batches one after the other; some at the same time or out of order."""
    time_ms = draw(st.sampled_from([-1, 0, 1, 1_700_000_000_000]))
    trace = []
    for _ in range(draw(st.integers(1, 25))):
        time_ms += draw(st.one_of(st.just(1000), st.integers(-5, 5), st.integers(0, 1_000_000)))
        trace.append((time_ms, draw(counts), draw(delays), draw(delays)))
    return trace


def bits(rate: float | None) -> object:
    """Return a rate so that equal means equal to the last bit."""
    if rate is None:
        return None
    return "nan" if math.isnan(rate) else rate.hex()


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(parameters, traces())
def test_it_equals_sparks_class_to_the_last_bit(
    sc: Any, given_parameters: tuple[int, float, float, float, float], trace: list[Batch]
) -> None:
    rate_package = sc._jvm.org.apache.spark.streaming.scheduler.rate
    original = rate_package.PIDRateEstimator(*given_parameters)
    ours = PIDRateEstimator(*given_parameters)
    for batch in trace:
        expected = original.compute(*batch)
        rate = expected.get() if expected.isDefined() else None
        assert bits(ours.compute(*batch)) == bits(rate)


class TestRanges:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((0, 1, 2, 3, 10), "batch interval"),
            ((100, -1, 2, 3, 10), "Proportional"),
            ((100, 0, -1, 3, 10), "Integral"),
            ((100, 0, 0, -1, 10), "Derivative"),
            ((100, 0, 0, 0, 0), "Minimum rate"),
            ((100, 0, 0, 0, -10), "Minimum rate"),
        ],
    )
    def test_what_is_out_of_range_is_refused(self, arguments: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            PIDRateEstimator(*arguments)

    def test_zero_weights_are_in_range(self) -> None:
        PIDRateEstimator(100, 0, 0, 0, 1)


class TestGuards:
    @pytest.fixture
    def estimator(self) -> PIDRateEstimator:
        return PIDRateEstimator(20, 1, 0, 0, 10)

    def test_the_first_batch_gives_no_rate_and_the_second_does(
        self, estimator: PIDRateEstimator
    ) -> None:
        assert estimator.compute(0, 10, 10, 0) is None
        assert estimator.compute(10, 10, 10, 0) == 1000.0

    def test_no_rate_without_a_later_time(self, estimator: PIDRateEstimator) -> None:
        assert estimator.compute(0, 10, 10, 0) is None
        assert estimator.compute(5, 10, 10, 0) is not None
        assert estimator.compute(5, 10, 10, 0) is None

    def test_no_rate_without_records(self, estimator: PIDRateEstimator) -> None:
        assert [estimator.compute(t, 0, 10, 0) for t in (0, 10, 20)] == [None] * 3

    def test_no_rate_without_a_processing_delay(self, estimator: PIDRateEstimator) -> None:
        assert [estimator.compute(t, 10, 0, 0) for t in (0, 10, 20)] == [None] * 3

    def test_never_below_the_least_rate(self) -> None:
        estimator = PIDRateEstimator(20, 1, 1, 0, 5)
        rates = [estimator.compute(20 * n, 1, 20, 100) for n in range(50)]
        assert rates == [None] + [5.0] * 49


class TestFollowing:
    """The three cases of Spark's suite where the speed changes and the weight of what waits is 1.

    The batch waits so long that there is never a reason to give more than is processed.
    """

    def rates(self, speeds: list[int], waits: list[int], weight: float = 1.0) -> list[float]:
        estimator = PIDRateEstimator(20, 1, weight, 0, 10)
        found = [
            estimator.compute(20 * n, speed, 20, wait)
            for n, (speed, wait) in enumerate(zip(speeds, waits, strict=True), 1)
        ]
        assert found[0] is None
        return [rate for rate in found[1:] if rate is not None]

    def test_without_integral_it_follows_the_speed(self) -> None:
        speeds = [random.Random(17).randrange(1000) + 10 for _ in range(50)]
        found = self.rates(speeds, [0] * 50, weight=0.0)
        assert found == [speed / 20 * 1000 for speed in speeds[1:]]

    def test_with_integral_it_follows_the_speed_when_nothing_waits(self) -> None:
        speeds = [random.Random(18).randrange(1000) + 10 for _ in range(50)]
        assert self.rates(speeds, [0] * 50) == [speed / 20 * 1000 for speed in speeds[1:]]

    def test_with_integral_it_stays_below_the_speed_when_something_waits(self) -> None:
        chance = random.Random(19)
        speeds = [chance.randrange(1000) + 10 for _ in range(50)]
        waits = [chance.randrange(19) + 1 for _ in range(50)]
        found = self.rates(speeds, waits)
        assert len(found) == 49
        for rate, speed in zip(found, speeds[1:], strict=True):
            assert rate < speed / 20 * 1000 or rate == 10.0
