"""`AIMDRateEstimator`, fed by a queue of batches whose speed is known."""

from __future__ import annotations

import pytest

from penstock.rates import AIMDRateEstimator

BATCH_MS = 1000


class Plant:
    """Batches that are processed at `speed` records per second, one after the other."""

    def __init__(self, estimator: AIMDRateEstimator, speed: float, rate: float = 1000) -> None:
        self.estimator = estimator
        self.speed = speed
        self.rate = rate
        self.source = float("inf")
        self.now_ms = 0
        self.free_ms = 0.0
        self.rates: list[float] = []
        self.waits: list[float] = []
        self._due: list[tuple[float, float]] = []

    def batch(self, fill: float = 0.0, stalled_ms: int = 0) -> None:
        """Receive for one interval, then process; rates change when a batch ends."""
        self.now_ms += BATCH_MS
        for due in [due for due in self._due if due[0] <= self.now_ms - BATCH_MS]:
            self.rate = due[1]
            self._due.remove(due)
        elements = int(min(self.rate, self.source) * BATCH_MS / 1000)
        begin = max(self.now_ms, self.free_ms)
        took = max(1, int(elements / self.speed * 1000)) + stalled_ms
        self.free_ms = begin + took
        wait = int(begin - self.now_ms)
        found = self.estimator.compute(int(self.free_ms), elements, took, wait, fill)
        if found is not None:
            self._due.append((self.free_ms, found))
        self.rates.append(self.rate)
        self.waits.append(wait)

    def run(self, batches: int) -> None:
        for _ in range(batches):
            self.batch()


def test_it_doubles_while_there_is_room_and_settles_below_the_speed() -> None:
    plant = Plant(AIMDRateEstimator(BATCH_MS), 50_000)
    plant.run(40)
    assert max(plant.rates) < 2 * 50_000
    settled = plant.rates[21:]
    assert all(0.9 * 50_000 < rate < 1.05 * 50_000 for rate in settled)
    assert max(plant.waits) < BATCH_MS


def test_it_stays_within_5_percent_and_uses_95() -> None:
    plant = Plant(AIMDRateEstimator(BATCH_MS), 20_000)
    plant.run(200)
    means = [sum(plant.rates[at : at + 3]) / 3 for at in range(20, 198)]
    assert max(abs(mean / 20_000 - 1) for mean in means) <= 0.06
    assert sum(plant.rates[20:]) / 180 >= 0.97 * 20_000
    assert max(plant.waits[20:]) < 0.2 * BATCH_MS


@pytest.mark.parametrize("speed", [12_500, 25_000, 200_000])
def test_it_follows_another_speed(speed: float) -> None:
    plant = Plant(AIMDRateEstimator(BATCH_MS), 50_000)
    plant.run(30)
    plant.speed = speed
    plant.run(60)
    assert all(0.7 * speed < rate < 1.1 * speed for rate in plant.rates[-10:])
    assert max(plant.waits[-10:]) < BATCH_MS


def test_what_has_queued_up_is_caught_up_with() -> None:
    plant = Plant(AIMDRateEstimator(BATCH_MS), 50_000)
    plant.run(30)
    plant.speed = 10_000
    plant.run(60)
    # A fifth of the speed is noticed late: a batch takes five intervals by then.
    assert max(plant.waits) > 20 * BATCH_MS
    assert plant.waits[-1] < plant.waits[-10] - 4 * BATCH_MS
    plant.run(30)
    assert plant.waits[-1] < BATCH_MS
    assert plant.rates[-1] > 0.7 * 10_000


def test_one_slow_batch_costs_half_at_most_and_is_caught_up_with() -> None:
    plant = Plant(AIMDRateEstimator(BATCH_MS), 50_000)
    plant.run(30)
    before = plant.rates[-1]
    plant.batch(stalled_ms=5000)
    plant.run(40)
    # The stall is one cut of half; the batches that wait behind it may cost some more.
    assert min(plant.rates[30:]) > before / 8
    assert plant.waits[-1] < BATCH_MS
    assert plant.rates[-1] > 0.75 * 50_000


def test_slow_first_batches_do_not_end_the_slow_start() -> None:
    """The first jobs of a Spark take seconds, whatever they have to do."""
    plant = Plant(AIMDRateEstimator(BATCH_MS), 50_000)
    for _ in range(4):
        plant.batch(stalled_ms=1500)
    plant.run(40)
    assert all(0.7 * 50_000 < rate < 1.1 * 50_000 for rate in plant.rates[-10:])


def test_a_slow_source_does_not_pull_the_rate_down() -> None:
    plant = Plant(AIMDRateEstimator(BATCH_MS), 50_000)
    plant.run(30)
    known = plant.rates[-1]
    plant.source = 10
    plant.run(30)
    assert plant.rates[-1] >= 0.8 * known
    # Nor does what was never used become a rate.
    assert plant.rates[-1] <= 1.2 * known


def test_a_full_queue_lowers_the_rate_although_batches_are_fast() -> None:
    plant = Plant(AIMDRateEstimator(BATCH_MS), 50_000)
    plant.run(30)
    known = plant.rates[-1]
    for _ in range(12):
        plant.batch(fill=0.9)
    assert plant.rates[-1] < 0.6 * known


def test_never_below_the_least_rate() -> None:
    estimator = AIMDRateEstimator(BATCH_MS, min_rate=70)
    found = [estimator.compute(10_000 * n, 5, 5000, 4000) for n in range(1, 50)]
    assert min(rate for rate in found if rate is not None) == 70


def test_what_says_nothing_gives_no_rate() -> None:
    estimator = AIMDRateEstimator(BATCH_MS)
    assert estimator.compute(1000, 0, 10, 0) is None
    assert estimator.compute(1000, 10, 0, 0) is None
    assert estimator.compute(1000, 500, 10, 0) == 1000
    assert estimator.compute(1000, 500, 10, 0) is None


@pytest.mark.parametrize(
    "wrong", [{"increase": 0}, {"increase": 1}, {"decrease": 0}, {"decrease": 1}, {"min_rate": 0}]
)
def test_what_is_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="AIMDRateEstimator needs"):
        AIMDRateEstimator(BATCH_MS, **wrong)
    with pytest.raises(ValueError, match="AIMDRateEstimator needs"):
        AIMDRateEstimator(0)
