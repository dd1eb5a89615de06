"""Figures over time, in memory that does not grow."""

from __future__ import annotations

import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.monitor.history import COARSE_POINTS, FINE_POINTS, History, points_of

NOW_S = 1_700_000_000


def test_ten_minutes_are_there_second_by_second() -> None:
    history = History(["a", "b"])
    for second in range(700):
        history.add(NOW_S + second, [second, None])
    points = history.points(NOW_S + 100, NOW_S + 699)
    assert [point.at_s - NOW_S for point in points] == list(range(100, 700))
    assert points[0].values == (100, None)
    assert history.points(NOW_S, NOW_S + 99) == []


def test_a_day_is_there_in_steps_of_ten_seconds_as_their_means() -> None:
    history = History(["a"])
    for second in range(2000):
        history.add(NOW_S + second, [second % 10])
    points = history.points(NOW_S, NOW_S + 1999)
    assert [point.at_s - NOW_S for point in points] == list(range(0, 2000, 10))
    assert {point.values for point in points} == {(4.5,)}


def test_what_is_older_than_a_day_is_gone() -> None:
    history = History(["a"])
    for step in range(COARSE_POINTS + 5):
        history.add(NOW_S + 10 * step, [step])
    points = history.points(0, NOW_S + 20 * COARSE_POINTS)
    assert len(points) == COARSE_POINTS
    assert points[0].values == (5.0,)


def test_a_gap_is_no_figure_and_a_clock_that_is_set_back_no_harm() -> None:
    history = History(["a"])
    history.add(NOW_S, [1])
    history.add(NOW_S + 5, [2])
    history.add(NOW_S - 3, [3])
    found = [(point.at_s - NOW_S, point.values) for point in history.points(0, 0) or []]
    assert found == []
    found = [(p.at_s - NOW_S, p.values) for p in history.points(NOW_S - 10, NOW_S + 10)]
    assert found == [(-3, (3.0,)), (0, (1.0,)), (5, (2.0,))]


def test_percentages_take_a_byte_and_may_be_unknown() -> None:
    history = History(["a", "b", "c"], "uint8")
    history.add(NOW_S, [99.6, 0.4, None])
    assert history.points(NOW_S, NOW_S)[0].values == (100.0, 0.0, None)


def test_points_that_are_further_apart_are_means_and_the_first_is_told_whole() -> None:
    history = History(["a", "b"], "uint8")
    for second in range(20):
        history.add(NOW_S + second, [second, None if second < 16 else 7])
    first_s = NOW_S // 8 * 8  # Points lie on steps of eight seconds since the epoch.
    points = history.points(first_s, NOW_S + 19, 8)
    expected: dict[int, list[int]] = {}
    for second in range(20):
        expected.setdefault((NOW_S + second) // 8 * 8, []).append(second)
    means = [round(sum(found) / len(found), 3) for found in expected.values()]
    assert [point.at_s for point in points] == list(expected)
    assert [point.values[0] for point in points] == means
    assert points[0].values[1] is None
    assert points[-1].values[1] == 7
    coarse = history.points(NOW_S, NOW_S + 19, 20)
    assert [point.at_s for point in coarse] == [NOW_S]
    assert abs((coarse[0].values[0] or 0) - 9.5) <= 0.5


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 590), max_size=30), min_size=1, max_size=4),
    *(st.integers(0, 600), st.integers(0, 600), st.sampled_from([1, 4, 7, 10, 30])),
)
def test_of_several_each_has_what_it_has_alone(
    seconds: list[list[int]], since: int, until: int, step_s: int
) -> None:
    histories = [History(["a", "b"]) for _ in seconds]
    for at, (history, told) in enumerate(zip(histories, seconds, strict=True)):
        for second in sorted(told):
            history.add(NOW_S + second, [second, None if second % 3 else at])
    span = NOW_S + since, NOW_S + until, step_s
    lock = threading.Lock()
    together = points_of(histories, *span, lock)
    assert not lock.locked()
    assert together == [history.points(*span) for history in histories]
    is_fine = step_s < 10
    for found, told in zip(together, seconds, strict=True):
        rows = {NOW_S + (second if is_fine else second // 10 * 10) for second in told}
        there = {row // step_s * step_s for row in rows if span[0] <= row <= span[1]}
        assert [point.at_s for point in found] == sorted(there)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3000), st.floats(0, 1e6, width=32)), max_size=50))
def test_the_last_word_on_a_second_is_the_mean_of_what_came_in_a_row(
    told: list[tuple[int, float]],
) -> None:
    history = History(["a"])
    expected: dict[int, list[float]] = {}
    last = None
    for second, value in told:
        history.add(NOW_S + second, [value])
        if second != last:
            # A later second of the same place in the ring takes it over.
            expected = {at: found for at, found in expected.items() if (at - second) % FINE_POINTS}
            expected[second] = []
        expected[second].append(value)
        last = second
    for second, values in expected.items():
        (point,) = history.points(NOW_S + second, NOW_S + second)
        (mean,) = point.values
        assert mean is not None
        assert abs(mean - sum(values) / len(values)) <= 1e-3 + 1e-6 * abs(mean)
