"""Rates of direct streams in whole records: nothing is rounded away, and nothing up."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.kafka import PerPartitionConfig
from penstock.sources.kafka.direct_stream import DirectKafkaInputDStream, allowed, divided
from penstock.sources.kafka.records import TopicPartition

NOW_MS = 1_795_000_000_000


def counts(
    partitions: int, rate: float | None, batch_ms: int, *, batches: int = 1, **limits: int
) -> list[list[int]]:
    """Return what batches take of partitions that have enough."""
    stream: Any = SimpleNamespace(
        _options=SimpleNamespace(limits=PerPartitionConfig(**limits)),
        current_offsets={TopicPartition("t", number): 0 for number in range(partitions)},
        rate_limit=rate,
        slide_ms=batch_ms,
    )
    latest = dict.fromkeys(stream.current_offsets, 1_000_000)
    found = []
    for number in range(batches):
        time_ms = NOW_MS + number * batch_ms
        until = DirectKafkaInputDStream._clamp(stream, latest, time_ms)
        found.append([until[each] - at for each, at in stream.current_offsets.items()])
        stream.current_offsets = until
    return found


def test_a_rate_below_one_record_per_partition_is_kept_in_long_batches() -> None:
    assert counts(100, 60, 10_000) == [[6] * 100]


@pytest.mark.parametrize(
    ("partitions", "rate", "batch_ms", "batches", "total"),
    [
        (100, 150, 1000, 1, 150),
        (100, 149.5, 1000, 4, 598),
        (7, 0.5, 1000, 20, 10),
        (3, 10, 1500, 10, 150),
        (64, 1000, 250, 8, 2000),
    ],
)
def test_what_batches_take_together_is_what_the_rate_allows(
    partitions: int, rate: float, batch_ms: int, batches: int, total: int
) -> None:
    found = counts(partitions, rate, batch_ms, batches=batches, min_rate=0)
    assert sum(map(sum, found)) == total
    # As much of each as of the others: no partition waits for ever.
    each = [sum(column) for column in zip(*found, strict=True)]
    assert max(each) - min(each) <= 1


def test_limits_per_partition_are_kept_over_batches_shorter_than_a_second() -> None:
    found = counts(2, None, 500, batches=4, max_rate=3)
    assert [sum(column) for column in zip(*found, strict=True)] == [6, 6]
    assert counts(2, 1000, 500, batches=2, max_rate=2) == [[1, 1], [1, 1]]


def test_the_least_of_each_partition_is_taken_in_any_case() -> None:
    assert counts(3, 1, 1000, min_rate=5) == [[5, 5, 5]]


@given(
    st.floats(0.001, 1e9),
    st.integers(1, 3_600_000),
    st.integers(1, 50),
    st.integers(0, 2_000_000_000_000),
)
def test_batches_one_after_the_other_are_allowed_what_the_time_allows(
    rate: float, span_ms: int, batches: int, begin_ms: int
) -> None:
    got = sum(
        allowed(rate, begin_ms + number * span_ms, span_ms) for number in range(1, batches + 1)
    )
    assert abs(got - Fraction(rate) * batches * span_ms / 1000) < 1


@given(
    st.integers(0, 10**9),
    st.dictionaries(st.integers(), st.integers(0, 10**12), min_size=1).filter(
        lambda lags: any(lags.values())
    ),
)
def test_partitions_get_their_parts_to_less_than_one_record(
    total: int, lags: dict[int, int]
) -> None:
    shares = divided(total, lags)
    assert sum(shares.values()) == total
    whole = sum(lags.values())
    for each, lag in lags.items():
        assert abs(shares[each] - Fraction(total * lag, whole)) < 1
