"""Batch times as programs get them, and back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest

from penstock.streaming.durations import batch_datetime, time_milliseconds

SET_BACK_MS = round(datetime(2026, 10, 25, 1, tzinfo=timezone.utc).timestamp() * 1000)
"""When clocks in Berlin are set back, from three to two."""


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_a_batch_time_of_the_hour_that_comes_twice_is_told_from_the_other_one() -> None:
    times = range(SET_BACK_MS - 2 * 3_600_000, SET_BACK_MS + 2 * 3_600_000, 250 * 1001)
    assert [time_milliseconds(batch_datetime(time_ms)) for time_ms in times] == list(times)
    assert batch_datetime(SET_BACK_MS) == batch_datetime(SET_BACK_MS - 3_600_000)


@pytest.mark.parametrize("time_ms", [0, 1, 999, 1_700_000_000_001, 1_700_000_000_999])
def test_a_batch_time_keeps_its_milliseconds(time_ms: int) -> None:
    assert time_milliseconds(batch_datetime(time_ms)) == time_ms
    assert time_milliseconds(datetime.fromtimestamp(time_ms / 1000, timezone.utc)) == time_ms
    assert time_milliseconds(time_ms / 1000) == time_ms
