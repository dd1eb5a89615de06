"""`QueryRates` with queries whose speed is known."""

from __future__ import annotations

import pytest

from penstock.rates import RateBook, RateLimits, RateMemory
from penstock.runtime.clock import SystemClock
from penstock.settings import Settings
from penstock.sql._query_rates import BatchOfQuery, FollowedStream, QueryRates
from penstock.wire.messages import ReportRateStatus


class Plant:
    """A query, by default without a trigger interval, and a source that always has something."""

    def __init__(self, speed: float, fixed_s: float, trigger_s: float = 0, **settings: str) -> None:
        self.speed, self.fixed_s, self.trigger_s = speed, fixed_s, trigger_s
        self.there = 0.0
        self.read = 0.0
        self.now_s = 1000.0
        self.sent: list[float | None] = []
        self.asked = 0
        known = Settings.from_pairs(settings.items())
        memories = {0: RateMemory(), 1: RateMemory()}
        self.book = RateBook(lambda: memories, lambda: RateLimits.of(known), SystemClock())
        self.rates = QueryRates(
            {"epoch": FollowedStream(0, "numbers")},
            known,
            lambda stream_id: int(self.there),
            self.book,
            SystemClock(),
        )
        self.book.start(known, None, self.send)
        self.sent.clear()

    def send(self, stream_id: int, records: float | None, size: float | None, **_: bool) -> int:
        self.sent.append(records)
        return 1

    @property
    def rate(self) -> float | None:
        return self.book.rate(0).effective

    def trigger_ms(self) -> int | None:
        self.asked += 1
        return round(self.trigger_s * 1000) or None

    def receive(self, span_s: float) -> None:
        self.there += (1e5 if self.rate is None else self.rate) * span_s

    def batch(self, run: str = "run") -> float:
        records, begun_s = int(self.there - self.read), self.now_s
        self.read += records
        took_s = self.fixed_s + records / self.speed
        self.receive(took_s)
        self.now_s += took_s
        read = {"epoch": (records, int(self.read))}
        self.rates.completed(
            BatchOfQuery(run, run, int(begun_s * 1000), int(took_s * 1000), 0, read),
            self.trigger_ms,
        )
        if took_s < self.trigger_s:
            self.receive(self.trigger_s - took_s)
            self.now_s += self.trigger_s - took_s
        return took_s

    def tell(self, records: int, took_ms: int, begun_ms: int, unread: int = 0) -> float:
        """Tell of a batch; return the rate that holds then."""
        self.there = self.read + unread
        read = {"epoch": (records, int(self.read))}
        self.rates.completed(
            BatchOfQuery("run", "query", begun_ms, took_ms, 0, read), self.trigger_ms
        )
        assert self.rate is not None
        return self.rate


@pytest.mark.parametrize("estimator", ["pid", "aimd"])
@pytest.mark.parametrize("speed", [1000, 20_000])
def test_batches_come_to_take_about_a_second(estimator: str, speed: int) -> None:
    plant = Plant(speed, 0.2, **{"spark.streaming.backpressure.rateEstimator": estimator})
    plant.rates.began("run")
    assert plant.sent == [1000.0]
    plant.receive(1)
    took = [plant.batch() for _ in range(60)]
    assert all(0.4 < found < 2.5 for found in took[-20:]), took
    assert all(0.4 * speed < (rate or 0) < 1.3 * speed for rate in plant.sent[-20:]), plant.sent


@pytest.mark.parametrize("estimator", ["pid", "aimd"])
@pytest.mark.parametrize("fixed_s", [4, 20])
@pytest.mark.parametrize("unread_s", [1, 600])
def test_a_query_whose_small_batches_take_long_gets_larger_ones(
    estimator: str, fixed_s: float, unread_s: float
) -> None:
    speed = 1000
    plant = Plant(speed, fixed_s, **{"spark.streaming.backpressure.rateEstimator": estimator})
    plant.rates.began("run")
    plant.there += speed * unread_s
    took = [plant.batch() for _ in range(80)]
    assert all(1.5 * fixed_s < found < 2.7 * fixed_s for found in took[-20:]), took
    assert all(0.4 * speed < (rate or 0) < 0.8 * speed for rate in plant.sent[-20:]), plant.sent


def test_a_query_that_catches_up_has_short_batches_afterwards() -> None:
    plant = Plant(1000, 0.2)
    plant.rates.began("run")
    plant.there += 3_600_000
    took = [plant.batch() for _ in range(80)]
    assert all(found < 2.5 for found in took[-20:]), took


@pytest.mark.parametrize("estimator", ["pid", "aimd"])
def test_after_a_night_without_records_the_rate_is_what_the_first_batch_can_do(
    estimator: str,
) -> None:
    plant = Plant(20_000, 0.0, **{"spark.streaming.backpressure.rateEstimator": estimator})
    plant.receive(0.1)
    for _ in range(60):
        plant.batch()
    plant.there = plant.read
    plant.now_s += 12 * 3600
    plant.there += 3000
    plant.batch()
    assert (plant.sent[-1] or 0) > 10_000, plant.sent[-3:]


def test_the_slowest_decides_and_the_last_that_ends_lifts_the_rate() -> None:
    plant = Plant(1000, 0.1)
    plant.receive(0.01)
    for run in ("a", "b"):
        plant.rates.completed(
            BatchOfQuery(run, run, 1, 1000, 0, {"epoch": (2000 if run == "a" else 3000, 0)}),
            lambda: None,
        )
    found = plant.rates.rates()["numbers"]
    assert (found.query, found.effective, found.source) == ("a", 2000.0, "query")
    plant.rates.ended("a")
    assert plant.rates.rates()["numbers"].effective == 3000.0
    plant.rates.ended("b")
    assert plant.sent[-1] is None
    plant.book.stop()
    plant.rates.began("c")
    assert plant.sent[-1] is None


def test_a_query_of_other_sources_does_not_hold_the_stream_up() -> None:
    plant = Plant(1000, 0.1)
    plant.rates.began("other")
    plant.rates.completed(BatchOfQuery("other", "other", 1, 100, 0, {}), lambda: None)
    assert plant.sent == [1000.0, None]
    plant.rates.began("idle")
    plant.rates.has_nothing("idle")
    assert plant.sent == [1000.0, None, 1000.0, None]


@pytest.mark.parametrize("estimator", ["pid", "aimd"])
def test_batches_come_to_take_about_the_trigger_interval_which_is_asked_for_once(
    estimator: str,
) -> None:
    plant = Plant(1000, 0.2, 4, **{"spark.streaming.backpressure.rateEstimator": estimator})
    plant.rates.began("run")
    plant.receive(4)
    took = [plant.batch() for _ in range(60)]
    assert all(2 < found < 6 for found in took[-20:]), took
    assert plant.asked == 1


def test_before_a_query_has_a_rate_the_settings_decide() -> None:
    plant = Plant(
        1000,
        0.1,
        **{
            "spark.streaming.backpressure.initialRate": "500",
            "spark.penstock.receiver.byteRate": "2000000/second",
        },
    )
    found = plant.rates.rates()["numbers"]
    assert (found.effective, found.source, found.query) == (500.0, "initial", "")
    plant.rates.began("run")
    assert plant.sent == []  # It is the rate that the receiver begins with.
    plant.tell(2000, 1000, 1)
    plant.rates.ended("run")
    assert plant.sent == [2000.0, 500.0]


@pytest.mark.parametrize(
    ("key", "limit"),
    [
        ("spark.streaming.receiver.maxRate", "300"),
        ("spark.penstock.receiver.rate", "300/second"),
    ],
)
def test_a_limit_of_the_receiver_holds_where_a_query_could_do_more(key: str, limit: str) -> None:
    plant = Plant(1000, 0.1, **{key: limit})
    plant.rates.began("run")
    assert plant.sent == []  # No slow start: there is a limit.
    found = plant.rates.rates()["numbers"]
    assert (found.effective, found.source) == (300.0, "maxRate")
    plant.tell(2000, 1000, 1)
    found = plant.rates.rates()["numbers"]
    assert (found.effective, found.source, found.query) == (300.0, "maxRate", "query")
    assert found.estimates == {"query": 2000.0}
    plant.tell(200, 1000, 1001)
    plant.tell(200, 1000, 2001)
    found = plant.rates.rates()["numbers"]
    assert (found.effective, found.source) == (found.estimates["query"], "query")


def test_a_query_with_more_unread_gets_less_and_up_to_a_bound_only() -> None:
    def rate(unread: int) -> float:
        plant = Plant(1000, 0.1)
        plant.tell(1000, 1000, 1)
        return plant.tell(1000, 1000, 1001, unread)

    none, interval, some, much, night = map(rate, (0, 1000, 2000, 10_000, 10_000_000))
    assert none == interval  # What comes in an interval always waits.
    assert some < none
    assert night == much >= none / 3


def test_a_batch_without_records_changes_nothing_and_lets_nobody_wait() -> None:
    plant = Plant(1000, 0.1)
    plant.tell(1000, 1000, 1)
    assert plant.tell(0, 5000, 1001) == 1000.0
    assert plant.tell(0, 0, 6001) == 1000.0
    plant.rates.began("other")
    plant.rates.ended("run")
    assert plant.sent[-1] == 1000.0  # Slow start: of the other one nothing is known.
    plant.rates.completed(
        BatchOfQuery("other", "other", 1, 100, 0, {"epoch": (0, 0)}), plant.trigger_ms
    )
    assert plant.sent[-1] == 1000.0
    plant.rates.has_nothing("other")
    assert plant.sent[-1] is None


def test_a_full_queue_of_the_receiver_costs_a_part_of_the_rate_once() -> None:
    def rates(fill: float, stream_id: int = 0) -> list[float]:
        plant = Plant(1000, 0.1, **{"spark.streaming.backpressure.rateEstimator": "aimd"})
        plant.tell(1000, 700, 1)
        for at_s, queue_fill in enumerate((fill, 0.0)):
            plant.book.on_rate_status(
                ReportRateStatus(stream_id, "a", 1, 0, 0.0, False, queue_fill, at_s)
            )
        return [plant.tell(1000, 700, 1001 + 1000 * number) for number in range(2)]

    cut, after = rates(1.0)
    free = rates(0.0)
    assert cut < free[0]
    assert after >= cut
    assert rates(1.0, stream_id=1) == free


@pytest.mark.parametrize(
    ("estimator", "key"),
    [
        ("pid", "spark.streaming.backpressure.pid.minRate"),
        ("aimd", "spark.penstock.backpressure.aimd.minRate"),
    ],
)
def test_a_rate_that_is_the_lowest_for_long_batches_is_told_with_the_way_out(
    estimator: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    plant = Plant(10, 0.0, 2, **{"spark.streaming.backpressure.rateEstimator": estimator})
    for number in range(20):
        plant.tell(200, 20_000, 1 + 20_000 * number, unread=1000)
    assert plant.sent[-1] == 100.0
    (told, *_) = [each.getMessage() for each in caplog.records]
    assert "stream numbers has the lowest rate, 100 records per second" in told
    assert "batches of query query take 20000 ms, and their interval is 2000 ms" in told
    assert told.endswith(f"or lower {key}")
    assert len(caplog.records) == 1
