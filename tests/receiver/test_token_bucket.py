"""The token bucket: what passes, and what is saved up."""

from __future__ import annotations

import threading
import time

import pytest
from limits import parse

from penstock.clock import ManualClock
from penstock.receiver.token_bucket import TokenBucket

TEN = parse("10/second")


def hit(bucket: TokenBucket, name: str = "source", cost: int = 1) -> bool:
    """Take so many tokens if they are all there."""
    return bucket.take(TEN, name, least=cost, most=cost) > 0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time_ms=1_000_000)


@pytest.fixture
def bucket(clock: ManualClock) -> TokenBucket:
    return TokenBucket(clock=clock)


def test_it_starts_empty_and_fills_to_one_burst(bucket: TokenBucket, clock: ManualClock) -> None:
    assert not hit(bucket)
    clock.advance(99)
    assert not hit(bucket)
    clock.advance(1)
    assert bucket.count(TEN, "source") >= 1
    assert hit(bucket)
    assert not hit(bucket)
    clock.advance(60_000)
    assert bucket.count(TEN, "source") == 10
    assert not hit(bucket, "source", cost=11)
    assert hit(bucket, "source", cost=10)
    assert bucket.count(TEN, "source") < 1


def test_each_identifier_has_its_own_bucket(bucket: TokenBucket, clock: ManualClock) -> None:
    for name in ("a", "b"):
        bucket.count(TEN, name)
    clock.advance(100)
    assert hit(bucket, "a")
    assert not hit(bucket, "a")
    assert hit(bucket, "b")


def test_clearing_forgets_what_was_saved_up(bucket: TokenBucket, clock: ManualClock) -> None:
    bucket.count(TEN, "source")
    clock.advance(1000)
    bucket.clear(TEN, "source")
    assert not hit(bucket)


@pytest.mark.parametrize(
    ("item", "rate"),
    [("10000/second", 10_000), ("600000/minute", 10_000), ("36000 per 2 hours", 5), ("1/day", 0)],
)
def test_the_librarys_item_syntax_gives_the_rate(
    bucket: TokenBucket, item: str, rate: float
) -> None:
    assert bucket.rate(parse(item)) == pytest.approx(rate, abs=1e-4)
    assert bucket.capacity(parse(item)) == max(1.0, rate)


def test_the_burst_is_a_span_of_the_rate(clock: ManualClock) -> None:
    bucket = TokenBucket(burst_s=2.5, clock=clock)
    bucket.count(TEN, "source")
    clock.advance(60_000)
    assert bucket.count(TEN, "source") == 25


def test_bulk_takes_what_is_there_within_bounds(bucket: TokenBucket, clock: ManualClock) -> None:
    bucket.count(TEN, "source")
    clock.advance(500)
    assert bucket.take(TEN, "source", least=6, most=9) == 0
    assert bucket.take(TEN, "source", least=1, most=3) == 3
    assert bucket.take(TEN, "source", least=1, most=9) == 2


def test_permits_that_are_held_keep_the_bucket_from_filling(
    bucket: TokenBucket, clock: ManualClock
) -> None:
    bucket.count(TEN, "source")
    clock.advance(1000)
    assert bucket.take(TEN, "source", least=1, most=4) == 4
    clock.advance(60_000)
    assert bucket.count(TEN, "source", held=4) == 6
    assert bucket.take(TEN, "source", least=1, most=100, held=4) == 6


def test_a_debt_is_paid_before_anything_passes(bucket: TokenBucket, clock: ManualClock) -> None:
    bucket.add(TEN, "source", amount=-20)
    clock.advance(2000)
    assert not hit(bucket)
    clock.advance(100)
    assert hit(bucket)


def test_threads_together_take_no_more_than_is_there(clock: ManualClock) -> None:
    item = parse("1000/second")
    bucket = TokenBucket(clock=clock)
    bucket.count(item, "source")
    clock.advance(1000)
    taken: list[int] = []

    def take() -> None:
        mine = 0
        while got := bucket.take(item, "source", least=1, most=3):
            mine += got
        taken.append(mine)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sum(taken) == 1000


def test_i8_a_clock_reading_that_is_late_fills_the_bucket_no_second_time() -> None:
    """Of two threads the one that read the clock first may come second."""

    class Late(ManualClock):
        def monotonic_s(self) -> float:
            return readings.pop(0)

    readings = [0.0, 5.0, 0.0, 5.0, 6.0]
    bucket = TokenBucket(burst_s=10.0, clock=Late())
    taken = [bucket.take(TEN, "source", least=1, most=100) for _ in range(5)]
    assert taken == [0, 50, 0, 0, 10]


def test_i8_threads_that_share_a_bucket_pass_together_what_its_rate_says() -> None:
    """With real time, of which each thread has read another moment."""
    item = parse("2000/second")
    bucket = TokenBucket(burst_s=0.01)
    bucket.count(item, "source")
    began_s = time.monotonic()
    passed: list[int] = []

    def take() -> None:
        mine = 0
        while time.monotonic() < began_s + 0.5:
            mine += bucket.take(item, "source", least=1, most=1)
        passed.append(mine)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sum(passed) <= 2000 * (time.monotonic() - began_s) + 20
