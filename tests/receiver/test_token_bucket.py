"""The token bucket: what passes, and what is saved up."""

from __future__ import annotations

import pytest

from penstock.receiver.rate_limiter import TokenBucket
from penstock.runtime.clock import ManualClock


def hit(bucket: TokenBucket, cost: int = 1) -> bool:
    """Take so many tokens if they are all there."""
    return bucket.take(cost, cost) > 0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time_ms=1_000_000)


@pytest.fixture
def bucket(clock: ManualClock) -> TokenBucket:
    return TokenBucket(10.0, 1.0, clock)


def test_it_starts_empty_and_fills_to_one_burst(bucket: TokenBucket, clock: ManualClock) -> None:
    assert not hit(bucket)
    clock.advance(99)
    assert not hit(bucket)
    clock.advance(1)
    assert bucket.count() >= 1
    assert hit(bucket)
    assert not hit(bucket)
    clock.advance(60_000)
    assert bucket.count() == 10
    assert not hit(bucket, cost=11)
    assert hit(bucket, cost=10)
    assert bucket.count() < 1


@pytest.mark.parametrize(("rate", "burst_s", "capacity"), [(10, 2.5, 25), (1 / 3600, 1, 1)])
def test_the_burst_is_a_span_of_the_rate_and_one_token_at_least(
    clock: ManualClock, rate: float, burst_s: float, capacity: float
) -> None:
    bucket = TokenBucket(rate, burst_s, clock)
    clock.advance(10_000_000)
    assert bucket.count() == bucket.capacity == capacity


def test_bulk_takes_what_is_there_within_bounds(bucket: TokenBucket, clock: ManualClock) -> None:
    clock.advance(500)
    assert bucket.take(6, 9) == 0
    assert bucket.take(1, 3) == 3
    assert bucket.take(1, 9) == 2


def test_permits_that_are_held_keep_the_bucket_from_filling(
    bucket: TokenBucket, clock: ManualClock
) -> None:
    clock.advance(1000)
    assert bucket.take(1, 4) == 4
    clock.advance(60_000)
    assert bucket.count(held=4) == 6
    assert bucket.take(1, 100, held=4) == 6


def test_what_is_given_at_first_is_bounded_by_what_is_held(clock: ManualClock) -> None:
    assert TokenBucket(10.0, 1.0, clock, tokens=100.0, held=4).count(held=4) == 6
    assert TokenBucket(10.0, 1.0, clock, tokens=-5.0).count() == -5


def test_a_debt_is_paid_before_anything_passes(bucket: TokenBucket, clock: ManualClock) -> None:
    bucket.add(-20)
    clock.advance(2000)
    assert not hit(bucket)
    clock.advance(100)
    assert hit(bucket)
