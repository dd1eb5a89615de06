"""The steady part of a run, and quantiles."""

from __future__ import annotations

import pytest

from benchmarks.batches import Batch, TooFewBatchesError, keeps_up, quantile, steady_part


def batch(ended: float, records: int) -> Batch:
    return Batch(ended - 0.5, records, ended - 0.2, ended, 0.5)


def test_records_count_from_the_end_of_the_first_batch_in_the_window() -> None:
    batches = [batch(second, 100) for second in range(10)]
    steady = steady_part(batches, 2.5, 8.5)
    assert [found.ended for found in steady.batches] == [4, 5, 6, 7, 8]
    assert (steady.begin, steady.end) == (3, 8)
    assert steady.records_per_s == 100


def test_an_uneven_end_does_not_change_the_rate() -> None:
    batches = [batch(second, 100) for second in range(10)]
    for end in (8.0, 8.4, 8.99):
        assert steady_part(batches, 2.5, end).records_per_s == 100


@pytest.mark.parametrize(
    "batches",
    [[], [batch(1, 5), batch(2, 5)], [batch(1, 5), batch(2, 0), batch(3, 0)]],
    ids=["none", "two", "nothing after the first"],
)
def test_too_little_to_measure_is_an_error(batches: list[Batch]) -> None:
    with pytest.raises(TooFewBatchesError, match="--seconds"):
        steady_part(batches, 0, 10)


def test_quantiles_are_values_that_were_measured() -> None:
    values = [float(value) for value in range(1, 101)]
    assert quantile(values, 0.5) == 50
    assert quantile(values, 0.99) == 99
    assert quantile(values, 1) == 100
    assert quantile([7.0], 0.99) == 7
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


@pytest.mark.parametrize(
    ("delays", "backlog_growth_s", "is_good"),
    [
        ([0.08] * 30, 0.0, True),
        ([0.08] * 30, 0.3, True),
        ([0.35] * 30, 0.0, False),
        ([0.05] * 10 + [0.12] * 10 + [0.2] * 10, 0.0, False),
        # Batches are on time, and the receiver is not: what waits before it counts.
        ([0.08] * 30, 0.5, False),
    ],
    ids=["on time", "noise", "late", "later and later", "backlog"],
)
def test_it_keeps_up_when_nothing_queues_up(
    delays: list[float], backlog_growth_s: float, is_good: bool
) -> None:
    assert keeps_up(delays, backlog_growth_s, 0.1, 20.0) is is_good
