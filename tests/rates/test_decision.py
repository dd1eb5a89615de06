"""Whose limit holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.rates import RateSource
from penstock.rates.decision import RateLimits, decide
from penstock.rates.memory import RateMemory
from penstock.settings import Settings

NOTHING = RateLimits.of(Settings())
BACKPRESSURE = replace(NOTHING, has_backpressure=True)


def test_nobody_limits_by_default() -> None:
    found = decide(RateMemory(), NOTHING, None)
    assert (found.records, found.source) == (None, RateSource.UNLIMITED)
    assert (found.bytes, found.byte_source) == (None, RateSource.UNLIMITED)


@pytest.mark.parametrize(
    ("user", "most", "share", "estimate", "lowest"),
    [
        (10, 20, 30, 40, RateSource.USER),
        (50, 20, 30, 40, RateSource.MAX_RATE),
        (50, 50, 30, 40, RateSource.GROUP),
        (50, 50, 50, 40, RateSource.ESTIMATOR),
        (None, None, None, 40, RateSource.ESTIMATOR),
        (None, 50, None, None, RateSource.MAX_RATE),
    ],
)
def test_the_lowest_holds(
    user: float | None,
    most: float | None,
    share: float | None,
    estimate: float | None,
    lowest: RateSource,
) -> None:
    memory = RateMemory(records_per_second=user, estimate=estimate)
    found = decide(memory, replace(BACKPRESSURE, max_rate=most), share)
    assert found.source is lowest
    known = [rate for rate in (user, most, share, estimate) if rate is not None]
    assert found.records == min(known)


def test_bytes_are_limited_by_user_and_settings() -> None:
    limits = replace(NOTHING, byte_rate=1000.0)
    assert decide(RateMemory(), limits, None).byte_source is RateSource.MAX_RATE
    found = decide(RateMemory(bytes_per_second=10), limits, None)
    assert (found.bytes, found.byte_source) == (10, RateSource.USER)
    assert decide(RateMemory(bytes_per_second=1e6), limits, None).bytes == 1000.0


class TestTheFirstRate:
    def test_without_backpressure_the_initial_rate_holds_until_the_user_asks(self) -> None:
        limits = replace(NOTHING, initial_rate=20)
        assert decide(RateMemory(), limits, None).source is RateSource.INITIAL
        asked = decide(RateMemory(records_per_second=500), limits, None)
        assert (asked.records, asked.source) == (500, RateSource.USER)

    def test_with_backpressure_it_holds_until_the_estimator_knows(self) -> None:
        limits = replace(BACKPRESSURE, initial_rate=20)
        assert decide(RateMemory(records_per_second=500), limits, None).records == 20
        assert decide(RateMemory(estimate=700), limits, None).records == 700

    def test_without_a_known_rate_the_start_is_slow(self) -> None:
        found = decide(RateMemory(), BACKPRESSURE, None)
        assert (found.records, found.source) == (1000, RateSource.SLOW_START)
        assert decide(RateMemory(slow_start=4000), BACKPRESSURE, None).records == 4000

    def test_a_largest_rate_is_a_known_one_as_in_spark(self) -> None:
        found = decide(RateMemory(), replace(BACKPRESSURE, max_rate=9000), None)
        assert (found.records, found.source) == (9000, RateSource.MAX_RATE)


def test_limits_are_those_of_the_settings() -> None:
    limits = RateLimits.of(
        Settings.from_pairs(
            [
                ("spark.streaming.receiver.maxRate", "300"),
                ("spark.penstock.receiver.rate", "12000/minute"),
                ("spark.penstock.receiver.byteRate", "5000/second"),
                ("spark.streaming.backpressure.enabled", "true"),
                ("spark.streaming.backpressure.initialRate", "50"),
                ("spark.penstock.backpressure.slowStartRate", "7/second"),
            ]
        )
    )
    assert limits == RateLimits(200.0, 5000.0, 50, 7.0, True)


def test_limits_of_receivers_are_not_those_of_direct_streams() -> None:
    limits = replace(NOTHING, max_rate=10.0, byte_rate=10.0, initial_rate=20.0)
    direct = RateMemory(has_receiver=False)
    found = decide(direct, limits, None)
    assert (found.records, found.bytes, found.source) == (None, None, RateSource.UNLIMITED)
    with_backpressure = replace(limits, has_backpressure=True)
    assert decide(direct, with_backpressure, None).source is RateSource.INITIAL
    direct.estimate = 7.0
    assert decide(direct, with_backpressure, None).records == 7


def test_a_direct_stream_with_limits_of_its_own_does_not_start_slowly() -> None:
    assert decide(RateMemory(has_receiver=False), BACKPRESSURE, None).source is (
        RateSource.SLOW_START
    )
    bounded = RateMemory(has_receiver=False, is_bounded=True)
    assert decide(bounded, BACKPRESSURE, None).records is None
