"""The rate limiter: I8, accuracy, new rates, bytes, stopping."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from penstock.errors import IllegalStateError
from penstock.receiver.door import ReceiverStoppedError
from penstock.receiver.rate_limiter import RateLimiter
from penstock.runtime.clock import ManualClock
from penstock.settings import Settings
from tests.bounds import HANG_S


class WaitingClock(ManualClock):
    """Time passes exactly when somebody waits for it."""

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        if not event.is_set():
            self.advance(max(1, round(timeout_s * 1000)))
        return event.is_set()


def passed_in(limiter: RateLimiter, clock: ManualClock, seconds: float, wanted: int) -> int:
    """Let pass what the limiter allows, without a pause, for some time."""
    end_s = clock.monotonic_s() + seconds
    passed = 0
    while (remaining_s := end_s - clock.monotonic_s()) > 0:
        passed += limiter.lease(wanted, remaining_s)
    return passed


# -- I8 --------------------------------------------------------------------------------------


@dataclass
class Passage:
    at_s: float
    records: int


@dataclass
class RateSpan:
    from_s: float
    rate: float
    burst: float


@dataclass
class Lessee:
    unused: int = 0


@dataclass
class Passages:
    """What really passed, and what the rates were, for a check by brute force."""

    passages: list[Passage] = field(default_factory=list)
    spans: list[RateSpan] = field(default_factory=list)

    def allowed(self, from_s: float, to_s: float) -> float:
        """Rate x time, plus the burst of the time when the window begins."""
        allowed = 0.0
        burst = 0.0
        for index, span in enumerate(self.spans):
            following = self.spans[index + 1 :]
            end_s = following[0].from_s if following else to_s
            allowed += span.rate * max(0.0, min(end_s, to_s) - max(span.from_s, from_s))
            if span.from_s <= from_s <= end_s:
                burst = max(burst, span.burst)
        return allowed + burst

    def check(self) -> None:
        for first, start in enumerate(self.passages):
            records = 0
            for passage in self.passages[first:]:
                records += passage.records
                allowed = self.allowed(start.at_s, passage.at_s)
                assert records <= allowed + 1e-6, (
                    f"{records} records passed from {start.at_s} to {passage.at_s} s, "
                    f"but {allowed} were allowed"
                )


class TheRateHolds(RuleBasedStateMachine):
    """I8: in no window do more records pass than rate x window plus one burst.

    The windows are of any length, also much shorter than a second. Lessees keep permits as long
    as they like, report, give back, and let what they hold pass in one instant.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.burst_s = 1.0
        self.limiter = RateLimiter(10, clock=self.clock)
        self.passed = Passages(spans=[RateSpan(0.0, 10.0, 10.0)])
        self.lessees = [Lessee() for _ in range(3)]

    def let_pass(self, records: int) -> None:
        if records:
            self.passed.passages.append(Passage(self.clock.monotonic_s(), records))

    @rule(milliseconds=st.one_of(st.integers(1, 50), st.sampled_from([100, 999, 1000, 3000])))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    @rule(who=st.integers(0, 2), wanted=st.integers(1, 40), in_hand=st.sampled_from([1, 3, 40]))
    def lease(self, who: int, wanted: int, in_hand: int) -> None:
        lessee = self.lessees[who]
        self.let_pass(lessee.unused)
        granted = self.limiter.lease(wanted, 0, in_hand=in_hand, lessee=who)
        assert 0 <= granted <= wanted
        at_once = min(granted, in_hand)
        self.let_pass(at_once)
        lessee.unused = granted - at_once

    @rule(who=st.integers(0, 2), share=st.floats(0, 1))
    def use(self, who: int, share: float) -> None:
        lessee = self.lessees[who]
        records = round(lessee.unused * share)
        self.let_pass(records)
        lessee.unused -= records

    @rule(who=st.integers(0, 2), share=st.floats(0, 1))
    def give_back(self, who: int, share: float) -> None:
        lessee = self.lessees[who]
        permits = round(lessee.unused * share)
        self.limiter.give_back(permits, lessee=who)
        lessee.unused -= permits

    @rule()
    def all_that_can_pass_does(self) -> None:
        for lessee in self.lessees:
            self.let_pass(lessee.unused)
            lessee.unused = 0
        while granted := self.limiter.lease(1000, 0, in_hand=1000, lessee=0):
            self.let_pass(granted)

    @rule(rate=st.sampled_from([0.5, 1, 3, 10, 25, 100, 333.25]), give_back=st.booleans())
    def set_rate(self, rate: float, give_back: bool) -> None:
        # As the block generator does: the lease is given up, whether it is handed back or not.
        for who, lessee in enumerate(self.lessees):
            if give_back:
                self.limiter.give_back(lessee.unused, lessee=who)
            lessee.unused = 0
        self.limiter.set_rate(rate)
        in_force = self.limiter.rate
        assert in_force is not None
        assert in_force == pytest.approx(rate)
        burst = max(1.0, in_force * self.burst_s)
        self.passed.spans.append(RateSpan(self.clock.monotonic_s(), in_force, burst))

    def teardown(self) -> None:
        self.all_that_can_pass_does()
        self.passed.check()


TestTheRateHolds = TheRateHolds.TestCase
TestTheRateHolds.settings = hypothesis_settings(
    max_examples=100, stateful_step_count=40, deadline=None
)


def test_i8_a_lease_that_is_kept_does_not_let_the_bucket_fill_beside_it() -> None:
    clock = ManualClock()
    limiter = RateLimiter(100, clock=clock)
    clock.advance(60_000)
    kept = limiter.lease(20, 0) - 1
    clock.advance(60_000)
    passed = kept
    while granted := limiter.lease(100, 0, in_hand=100, lessee="another"):
        passed += granted
    assert passed == 100


def test_i8_a_lease_holds_no_more_than_a_share_of_the_burst_that_it_has_no_records_for() -> None:
    clock = ManualClock()
    limiter = RateLimiter(100, clock=clock)
    clock.advance(60_000)
    assert limiter.lease(100, 0) == 25
    assert limiter.lease(100, 0, in_hand=60) == 60


def test_i8_permits_that_are_used_late_count_until_then() -> None:
    clock = ManualClock()
    limiter = RateLimiter(100, clock=clock)
    clock.advance(60_000)
    used_late = limiter.lease(25, 0) - 1
    clock.advance(60_000)
    assert used_late + passed_at_once(limiter) == 100


def test_i8_returned_permits_let_the_bucket_fill_again() -> None:
    clock = ManualClock()
    limiter = RateLimiter(100, clock=clock)
    clock.advance(60_000)
    assert limiter.lease(25, 0) == 25
    assert limiter.permits_out == 24
    limiter.give_back(24)
    assert limiter.permits_out == 0
    assert limiter.permits == 1
    clock.advance(60_000)
    assert passed_at_once(limiter) == 100


def passed_at_once(limiter: RateLimiter) -> int:
    passed = 0
    while granted := limiter.lease(1000, 0, in_hand=1000):
        passed += granted
    return passed


def test_i8_threads_together_pass_no_more_than_one_would() -> None:
    began_s = time.monotonic()
    limiter = RateLimiter(20_000, burst_s=0.1)

    def take(lessee: int) -> int:
        passed = 0
        while passed < 1500:
            passed += limiter.lease(100, 10.0, in_hand=50, lessee=lessee)
        return passed

    with ThreadPoolExecutor(4) as threads:
        passed = sum(threads.map(take, range(4)))
    elapsed_s = time.monotonic() - began_s
    assert passed <= 20_000 * elapsed_s + 2000
    assert limiter.permits == passed


# -- rates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "wanted"), [(1_000, 1), (1_000, 1000), (10_000, 1), (10_000, 1000), (100_000, 1000)]
)
def test_ten_seconds_let_pass_what_the_rate_says_within_one_percent(rate: int, wanted: int) -> None:
    clock = WaitingClock()
    limiter = RateLimiter(rate, clock=clock)
    assert passed_in(limiter, clock, 10.0, wanted) == pytest.approx(10 * rate, rel=0.01)


@pytest.mark.parametrize("rate", [0.5, 1, 3.7])
def test_a_low_rate_gives_each_record_as_soon_as_its_time_has_come(rate: float) -> None:
    clock = WaitingClock()
    limiter = RateLimiter(rate, clock=clock)
    for n in range(5):
        assert limiter.lease(1000) == 1
        assert clock.monotonic_s() == pytest.approx(n / rate, abs=0.01)


@pytest.mark.parametrize("is_set_later", [False, True])
def test_the_first_record_passes_at_once_and_the_next_when_its_time_has_come(
    is_set_later: bool,
) -> None:
    """As by Guava's `RateLimiter`, which is Spark's: an hour's rate is no hour without a record."""
    clock = ManualClock()
    hourly = 1 / 3600
    limiter = RateLimiter(None if is_set_later else hourly, clock=clock)
    if is_set_later:
        limiter.set_rate(hourly)
    assert limiter.lease(5, 0) == 1
    clock.advance(3_599_000)
    assert limiter.lease(5, 0) == 0
    clock.advance(2_000)
    assert limiter.lease(5, 0) == 1
    for rate in (None, hourly, 2 * hourly):
        limiter.set_rate(rate)
        assert rate is None or limiter.lease(5, 0) == 0, "there is one first record only"


def test_records_that_come_just_at_the_rate_never_wait() -> None:
    clock = WaitingClock()
    limiter = RateLimiter(1, clock=clock)
    for _ in range(20):
        clock.advance(1001)
        assert limiter.lease(1, 0) == 1
    assert limiter.for_rate.read() == 0


def test_it_starts_with_one_permit_and_an_idle_source_saves_up_one_burst() -> None:
    clock = ManualClock()
    limiter = RateLimiter(1000, clock=clock)
    assert limiter.lease(1000, 0) == 1
    assert limiter.lease(1000, 0) == 0
    clock.advance(3_600_000)
    assert passed_at_once(limiter) == 1000
    longer = RateLimiter(1000, burst_s=3.0, clock=clock)
    assert (longer.burst, longer.burst_s) == (3000, 3.0)
    clock.advance(3_600_000)
    assert passed_at_once(longer) == 3000


def test_without_a_limit_everything_passes_at_once() -> None:
    limiter = RateLimiter(clock=ManualClock())
    assert (limiter.rate, limiter.byte_rate, limiter.burst) == (None, None, None)
    assert limiter.lease(123_456_789) == 123_456_789
    limiter.charge_bytes(1 << 40)
    assert limiter.bytes_charged == 1 << 40


def test_a_lift_of_the_limit_and_a_new_one_keep_nothing_saved_up() -> None:
    clock = ManualClock()
    limiter = RateLimiter(100, clock=clock)
    clock.advance(1000)
    limiter.set_rate(None)
    assert limiter.lease(5000) == 5000
    limiter.give_back(5000)
    limiter.set_rate(100)
    assert limiter.lease(1, 0) == 0


def test_a_new_rate_keeps_what_was_saved_up_as_far_as_the_new_burst_allows() -> None:
    clock = ManualClock()
    limiter = RateLimiter(100, clock=clock)
    clock.advance(500)
    limiter.set_rate(1000)
    assert passed_at_once(limiter) == 51
    clock.advance(1000)
    limiter.set_rate(10)
    assert passed_at_once(limiter) == 10


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    limiter = RateLimiter()
    with pytest.raises(ValueError, match="a rate must be above 0"):
        limiter.set_rate(rate)
    with pytest.raises(ValueError, match="a rate must be above 0"):
        limiter.set_byte_rate(rate)


def test_bad_amounts_are_refused() -> None:
    limiter = RateLimiter()
    with pytest.raises(ValueError, match="wanted must be at least 1"):
        limiter.lease(0)
    with pytest.raises(ValueError, match="permits must not be negative"):
        limiter.give_back(-1)
    with pytest.raises(ValueError, match="size must not be negative"):
        limiter.charge_bytes(-1)
    with pytest.raises(ValueError, match="burst_s must be above 0"):
        RateLimiter(burst_s=0)


# -- waiting ---------------------------------------------------------------------------------


def wait_until_someone_waits(limiter: RateLimiter) -> None:
    end_s = time.monotonic() + HANG_S
    while not limiter._waiting:
        assert time.monotonic() < end_s, "nobody came to wait for the limiter"
        time.sleep(0.001)


def test_a_new_rate_takes_effect_on_who_waits() -> None:
    limiter = RateLimiter(0.001)
    assert limiter.lease(1, 0) == 1
    with ThreadPoolExecutor(1) as thread:
        leased = thread.submit(limiter.lease, 100)
        wait_until_someone_waits(limiter)
        assert not leased.done()
        limiter.set_rate(1_000_000)
        assert leased.result(timeout=HANG_S) >= 1
    assert limiter.for_rate.read() > 0


def test_nothing_passes_while_it_is_paused_and_who_waits_goes_on_after_it() -> None:
    limiter = RateLimiter()
    limiter.set_paused(True)
    assert limiter.lease(5, timeout_s=0) == 0
    with ThreadPoolExecutor(1) as thread:
        leased = thread.submit(limiter.lease, 100)
        wait_until_someone_waits(limiter)
        limiter.set_rate(1_000_000)
        assert limiter.lease(5, timeout_s=0.3) == 0
        assert not leased.done()
        assert limiter.for_rate.read() > 0.2
        limiter.set_paused(False)
        assert leased.result(timeout=HANG_S) >= 1


def test_it_tells_whether_anything_passes_within_a_second() -> None:
    clock = ManualClock()
    limiter = RateLimiter(0.25, clock=clock)
    assert limiter.passes_soon, "the first record passes at once"
    assert limiter.lease(1) == 1
    told = []
    for _ in range(5):
        told.append(limiter.passes_soon)
        clock.advance(1000)
    assert told == [False, False, False, True, True]
    limiter.set_paused(True)
    assert not limiter.passes_soon
    limiter.set_paused(False)
    assert limiter.passes_soon
    limiter.set_byte_rate(100)
    limiter.owe_bytes(250)
    assert limiter.bytes_charged == 250
    told = []
    for _ in range(3):
        told.append(limiter.passes_soon)
        clock.advance(1000)
    assert told == [False, False, True]
    assert RateLimiter(clock=clock).passes_soon


def test_a_lifted_limit_lets_who_waits_go() -> None:
    limiter = RateLimiter(0.001, bytes_per_second=0.001)
    assert limiter.lease(1, 0) == 1
    with ThreadPoolExecutor(2) as threads:
        leased = threads.submit(limiter.lease, 100)
        charged = threads.submit(limiter.charge_bytes, 100)
        wait_until_someone_waits(limiter)
        limiter.set_rate(None)
        limiter.set_byte_rate(None)
        assert leased.result(timeout=HANG_S) == 100
        charged.result(timeout=HANG_S)


def test_permits_that_are_given_back_go_to_who_waits() -> None:
    clock = ManualClock()
    limiter = RateLimiter(8, clock=clock)
    clock.advance(1000)
    assert limiter.lease(8, in_hand=8, lessee="first") == 8
    with ThreadPoolExecutor(1) as thread:
        leased = thread.submit(limiter.lease, 1, lessee="second")
        wait_until_someone_waits(limiter)
        limiter.give_back(3, lessee="first")
        assert leased.result(timeout=HANG_S) == 1


@pytest.mark.parametrize("unit", ["records", "bytes"])
def test_stopping_frees_who_waits_and_lets_nothing_pass_any_more(unit: str) -> None:
    limiter = RateLimiter(0.001, bytes_per_second=0.001)
    assert limiter.lease(1, 0) == 1
    call = limiter.lease if unit == "records" else limiter.charge_bytes
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(call, 1)
        wait_until_someone_waits(limiter)
        limiter.stop()
        with pytest.raises(ReceiverStoppedError):
            waiting.result(timeout=HANG_S)
    with pytest.raises(IllegalStateError, match="stopped"):
        call(1)
    limiter.stop()
    assert not limiter._waiting


def test_a_lease_that_does_not_come_in_time_is_none() -> None:
    clock = WaitingClock()
    limiter = RateLimiter(1, clock=clock)
    assert limiter.lease(1, 0) == 1
    assert limiter.lease(5, 0.9) == 0
    assert clock.monotonic_s() == pytest.approx(0.9)
    assert limiter.lease(5, 0.5) == 1


# -- bytes -----------------------------------------------------------------------------------


def test_bytes_pass_at_their_rate() -> None:
    clock = WaitingClock()
    limiter = RateLimiter(bytes_per_second=1_000_000, clock=clock)
    charged = 0
    while clock.monotonic_s() < 10:
        limiter.charge_bytes(13_000)
        charged += 13_000
    assert charged == pytest.approx(10_000_000, rel=0.01)
    assert limiter.bytes_charged == charged


def test_more_bytes_than_a_burst_pass_alone_and_what_follows_waits_for_them() -> None:
    clock = WaitingClock()
    limiter = RateLimiter(bytes_per_second=1000, clock=clock)
    limiter.charge_bytes(5000)
    assert clock.monotonic_s() == pytest.approx(1.0, abs=0.01)
    limiter.charge_bytes(1)
    assert clock.monotonic_s() == pytest.approx(5.0, abs=0.01)


def test_bytes_that_do_not_pass_in_time_are_not_counted() -> None:
    clock = WaitingClock()
    limiter = RateLimiter(bytes_per_second=1000, clock=clock)
    assert not limiter.charge_bytes(1000, 0.5)
    assert clock.monotonic_s() == 0.5
    assert limiter.bytes_charged == 0
    assert limiter.charge_bytes(500, 0)
    assert limiter.charge_bytes(0)
    assert limiter.bytes_charged == 500


def test_a_new_byte_rate_keeps_the_debt() -> None:
    clock = WaitingClock()
    limiter = RateLimiter(bytes_per_second=100, clock=clock)
    limiter.charge_bytes(10_100)
    limiter.set_byte_rate(1_000_000)
    before_s = clock.monotonic_s()
    limiter.charge_bytes(1)
    assert clock.monotonic_s() - before_s == pytest.approx(0.01, abs=0.002)


# -- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "rate"),
    [
        ({}, None),
        ({"spark.streaming.receiver.maxRate": "100"}, 100),
        ({"spark.streaming.receiver.maxRate": "0"}, None),
        ({"spark.streaming.backpressure.initialRate": "20"}, 20),
        (
            {
                "spark.streaming.receiver.maxRate": "100",
                "spark.streaming.backpressure.initialRate": "20",
            },
            20,
        ),
        (
            {
                "spark.streaming.receiver.maxRate": "100",
                "spark.streaming.backpressure.initialRate": "2000",
            },
            100,
        ),
        ({"spark.penstock.receiver.rate": "600000/minute"}, 10_000),
        ({"spark.penstock.receiver.rate": "30 per minute"}, 0.5),
        (
            {
                "spark.penstock.receiver.rate": "50/second",
                "spark.streaming.receiver.maxRate": "100",
            },
            50,
        ),
    ],
)
def test_the_smallest_rate_that_is_set_holds(pairs: dict[str, str], rate: float | None) -> None:
    assert RateLimiter.from_settings(Settings.from_pairs(pairs.items())).rate == rate


def test_a_rate_update_stays_below_the_most_that_is_set() -> None:
    settings = Settings.from_pairs(
        [
            ("spark.streaming.receiver.maxRate", "100"),
            ("spark.streaming.backpressure.initialRate", "20"),
        ]
    )
    limiter = RateLimiter.from_settings(settings)
    limiter.set_rate(5000)
    assert limiter.rate == 100
    limiter.set_rate(70)
    assert limiter.rate == 70
    limiter.set_rate(None)
    assert limiter.rate == 100


def test_byte_rate_and_burst_come_from_the_settings() -> None:
    settings = Settings.from_pairs(
        [
            ("spark.penstock.receiver.byteRate", "50000000/second"),
            ("spark.penstock.receiver.burst", "250ms"),
        ]
    )
    limiter = RateLimiter.from_settings(settings)
    assert limiter.byte_rate == 50_000_000
    assert limiter.burst_s == 0.25
    assert limiter.rate is None
