"""The token bucket as a strategy of the `limits` library."""

from __future__ import annotations

import pickle
import threading
import time

import pytest
from limits import parse
from limits.storage import MemcachedStorage, MemoryStorage, storage_from_string
from limits.strategies import RateLimiter as RateLimitStrategy

from penstock.clock import ManualClock
from penstock.receiver.token_bucket import TokenBucket, TokenBucketSupport, UnsupportedStorageError

TEN = parse("10/second")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time_ms=1_000_000)


@pytest.fixture
def bucket(clock: ManualClock) -> TokenBucket:
    return TokenBucket(MemoryStorage(), clock=clock)


def test_it_is_a_strategy_of_the_library_over_its_storages(bucket: TokenBucket) -> None:
    assert isinstance(bucket, RateLimitStrategy)
    assert isinstance(TokenBucket(storage_from_string("memory://")), RateLimitStrategy)


def test_it_starts_empty_and_fills_to_one_burst(bucket: TokenBucket, clock: ManualClock) -> None:
    assert not bucket.hit(TEN, "source")
    clock.advance(99)
    assert not bucket.hit(TEN, "source")
    clock.advance(1)
    assert bucket.test(TEN, "source")
    assert bucket.hit(TEN, "source")
    assert not bucket.hit(TEN, "source")
    clock.advance(60_000)
    assert bucket.get_window_stats(TEN, "source").remaining == 10
    assert not bucket.hit(TEN, "source", cost=11)
    assert bucket.hit(TEN, "source", cost=10)
    assert not bucket.test(TEN, "source")


def test_testing_takes_nothing(bucket: TokenBucket, clock: ManualClock) -> None:
    bucket.test(TEN, "source")
    clock.advance(100)
    assert all(bucket.test(TEN, "source") for _ in range(5))
    assert bucket.hit(TEN, "source")


def test_a_cost_of_nothing_always_passes(bucket: TokenBucket) -> None:
    assert bucket.hit(TEN, "source", cost=0)
    assert bucket.test(TEN, "source", cost=0)


def test_window_stats_tell_what_is_there_and_when_the_bucket_is_full(
    bucket: TokenBucket, clock: ManualClock
) -> None:
    bucket.hit(TEN, "source")
    clock.advance(450)
    stats = bucket.get_window_stats(TEN, "source")
    assert stats.remaining == 4
    assert stats.reset_time == pytest.approx(1000.450 + 0.550)


def test_each_identifier_has_its_own_bucket(bucket: TokenBucket, clock: ManualClock) -> None:
    for name in ("a", "b"):
        bucket.test(TEN, name)
    clock.advance(100)
    assert bucket.hit(TEN, "a")
    assert not bucket.hit(TEN, "a")
    assert bucket.hit(TEN, "b")


def test_clearing_forgets_what_was_saved_up(bucket: TokenBucket, clock: ManualClock) -> None:
    bucket.test(TEN, "source")
    clock.advance(1000)
    bucket.clear(TEN, "source")
    assert not bucket.hit(TEN, "source")


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
    bucket = TokenBucket(MemoryStorage(), burst_s=2.5, clock=clock)
    bucket.test(TEN, "source")
    clock.advance(60_000)
    assert bucket.get_window_stats(TEN, "source").remaining == 25


def test_two_strategies_on_one_storage_share_their_buckets(clock: ManualClock) -> None:
    storage = MemoryStorage()
    first, second = TokenBucket(storage, clock=clock), TokenBucket(storage, clock=clock)
    first.test(TEN, "source")
    clock.advance(100)
    assert first.hit(TEN, "source")
    assert not second.hit(TEN, "source")
    assert not TokenBucket(MemoryStorage(), clock=clock).test(TEN, "source")


def test_bulk_takes_what_is_there_within_bounds(bucket: TokenBucket, clock: ManualClock) -> None:
    bucket.test(TEN, "source")
    clock.advance(500)
    assert bucket.take(TEN, "source", least=6, most=9) == 0
    assert bucket.take(TEN, "source", least=1, most=3) == 3
    assert bucket.take(TEN, "source", least=1, most=9) == 2


def test_permits_that_are_held_keep_the_bucket_from_filling(
    bucket: TokenBucket, clock: ManualClock
) -> None:
    bucket.test(TEN, "source")
    clock.advance(1000)
    assert bucket.take(TEN, "source", least=1, most=4) == 4
    clock.advance(60_000)
    assert bucket.count(TEN, "source", held=4) == 6
    assert bucket.take(TEN, "source", least=1, most=100, held=4) == 6


def test_a_debt_is_paid_before_anything_passes(bucket: TokenBucket, clock: ManualClock) -> None:
    bucket.add(TEN, "source", amount=-20)
    clock.advance(2000)
    assert not bucket.hit(TEN, "source")
    clock.advance(100)
    assert bucket.hit(TEN, "source")


def test_a_storage_that_offers_buckets_holds_them_itself(clock: ManualClock) -> None:
    class SharedStorage(MemoryStorage):
        """As one outside this process would be; it sees wall time."""

        STORAGE_SCHEME = None

        def take_tokens(
            self, key: str, rate: float, capacity: float, now_s: float, least: int, most: int
        ) -> int:
            seen.append((key, rate, capacity, now_s))
            return most

        def add_tokens(
            self, key: str, rate: float, capacity: float, now_s: float, amount: float
        ) -> None:
            raise AssertionError

        def count_tokens(self, key: str, rate: float, capacity: float, now_s: float) -> float:
            return capacity

        def clear_tokens(self, key: str) -> None:
            raise AssertionError

    seen: list[tuple[str, float, float, float]] = []
    storage = SharedStorage()
    assert isinstance(storage, TokenBucketSupport)
    bucket = TokenBucket(storage, clock=clock)
    assert bucket.hit(TEN, "source", cost=3)
    assert seen == [(TEN.key_for("source"), 10.0, 10.0, 1000.0)]


def test_a_storage_that_cannot_hold_buckets_is_refused_with_a_way_out() -> None:
    storage = MemcachedStorage.__new__(MemcachedStorage)
    with pytest.raises(UnsupportedStorageError, match=r"MemcachedStorage .*memory://") as caught:
        TokenBucket(storage)
    assert pickle.loads(pickle.dumps(caught.value)).storage == "MemcachedStorage"


def test_threads_together_take_no_more_than_is_there(clock: ManualClock) -> None:
    item = parse("1000/second")
    bucket = TokenBucket(MemoryStorage(), clock=clock)
    bucket.test(item, "source")
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
    buckets = TokenBucket(MemoryStorage(), clock=ManualClock())._buckets
    buckets.count_tokens("source", 10.0, 100.0, 0.0)
    assert buckets.take_tokens("source", 10.0, 100.0, 5.0, 1, 100) == 50
    assert buckets.take_tokens("source", 10.0, 100.0, 0.0, 1, 100) == 0
    assert buckets.take_tokens("source", 10.0, 100.0, 5.0, 1, 100) == 0
    assert buckets.take_tokens("source", 10.0, 100.0, 6.0, 1, 100) == 10


def test_i8_threads_that_share_a_bucket_pass_together_what_its_rate_says() -> None:
    """With real time, of which each thread has read another moment."""
    item = parse("2000/second")
    bucket = TokenBucket(MemoryStorage(), burst_s=0.01)
    bucket.test(item, "source")
    began_s = time.monotonic()
    passed: list[int] = []

    def take() -> None:
        mine = 0
        while time.monotonic() < began_s + 0.5:
            mine += bucket.hit(item, "source")
        passed.append(mine)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sum(passed) <= 2000 * (time.monotonic() - began_s) + 20
