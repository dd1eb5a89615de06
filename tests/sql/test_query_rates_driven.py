"""`QueryRates` with queries whose speed is known."""

from __future__ import annotations

import pytest

from penstock.clock import SystemClock
from penstock.settings import Settings
from penstock.sql._query_rates import BatchOfQuery, FollowedStream, QueryRates


class Plant:
    """A query without a trigger interval, and a source that always has something."""

    def __init__(self, speed: float, fixed_s: float, **settings: str) -> None:
        self.speed, self.fixed_s = speed, fixed_s
        self.there = 0.0
        self.read = 0.0
        self.now_s = 1000.0
        self.sent: list[float | None] = []
        self.rates = QueryRates(
            {"epoch": FollowedStream(0, "numbers")},
            Settings.from_pairs(settings.items()),
            lambda stream_id: int(self.there),
            self.send,
            SystemClock(),
        )

    def send(self, stream_id: int, records: float | None, size: float | None, /) -> int:
        self.sent.append(records)
        return 1

    def receive(self, span_s: float) -> None:
        rate = self.sent[-1] if self.sent else None
        self.there += (1e5 if rate is None else rate) * span_s

    def batch(self, run: str = "run") -> float:
        records, begun_s = int(self.there - self.read), self.now_s
        self.read += records
        took_s = self.fixed_s + records / self.speed
        self.receive(took_s)
        self.now_s += took_s
        read = {"epoch": (records, int(self.read))}
        self.rates.completed(
            BatchOfQuery(run, run, int(begun_s * 1000), int(took_s * 1000), 0, read), lambda: None
        )
        return took_s


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
    found = plant.rates.rates()[0]
    assert (found.query, found.effective, found.source) == ("a", 2000.0, "query")
    plant.rates.ended("a")
    assert plant.rates.rates()[0].effective == 3000.0
    plant.rates.ended("b")
    assert plant.sent[-1] is None
    plant.rates.close()
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
