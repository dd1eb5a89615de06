"""The times whose batches are not made yet: in order, each once, and in little room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.streaming.scheduler.job_generator import DueTimes

PERIOD_MS = 10


@given(st.lists(st.one_of(st.none(), st.integers(1, 3)), max_size=40))
def test_times_come_out_as_they_went_in(steps: list[int | None]) -> None:
    due, model, last_ms = DueTimes(PERIOD_MS), [], 0
    for gap in steps:
        if gap is None:
            assert due.pop() == (model.pop(0) if model else None)
        else:
            last_ms += gap * PERIOD_MS
            due.add(last_ms)
            model.append(last_ms)
        assert len(due) == len(model)
    due.clear()
    assert due.pop() is None


def test_an_hour_of_times_takes_no_room() -> None:
    due = DueTimes(100)
    for time_ms in range(0, 3_600_000, 100):
        due.add(time_ms)
    assert len(due) == 36_000
    assert len(due._runs) == 1
