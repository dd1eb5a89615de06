"""Sinks that are down for up to an hour, clocks as far off, pauses of minutes: all is exact.

Each with states, windows and a restart, in programs of `random_runs`; `test_time` has the files.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.streaming.restarts.random_runs import Event, Plan, judge

pytestmark = pytest.mark.slow

_HOUR = 3600
_for_long = pytest.mark.parametrize(
    "seconds", [_HOUR // 12, pytest.param(_HOUR, marks=pytest.mark.exhaustive)]
)
_OUTPUTS = (
    ("state", ("left",), 0),
    ("inverse", ("left",), 5, 1, 0),
    ("window", ("state", ("right",), 3), 3, 2),
    ("mapped", ("right",), 0, 4),
    ("snapshots", ("sums", ("left",), 6, 2), 0, 0),
)
_ALL = len(_OUTPUTS)


def batches(count: int) -> Iterator[Event]:
    """Yield what happens in that many batches, of which every third has records."""
    for number in range(count):
        if number % 3 == 0:
            yield ("receive", 0, ("abc"[number % 7 % 3], number % 9 + 1))
        if number % 3 == 1:
            yield ("receive", 1, ("abc"[number % 5 % 3], number % 8 + 1))
        yield ("advance", 1)


def exact(*events: Event) -> None:
    plan = Plan(_OUTPUTS, (*batches(8), *events, *batches(8)))
    assert judge(plan) == []


RESTARTS = {
    "goes on": (),
    "is killed": (("crash",), ("start",)),
    "is killed for a minute": (("crash",), ("advance", 60), ("start",)),
    "is stopped": (("stop", True), ("start",)),
}
each_restart = pytest.mark.parametrize("restart", RESTARTS.values(), ids=RESTARTS)


@pytest.mark.long
@each_restart
@pytest.mark.parametrize("runs_jobs", [False, True])
def test_sinks_that_are_down_for_minutes(restart: tuple[Event, ...], runs_jobs: bool) -> None:
    exact(("down", _ALL, runs_jobs), *batches(60), *restart, *batches(3), ("up",))


@pytest.mark.long
@_for_long
@pytest.mark.timeout(1200)
def test_sinks_that_are_down_for_long(seconds: int) -> None:
    exact(("down", _ALL, True), *batches(seconds), ("crash",), ("start",), *batches(3), ("up",))


@pytest.mark.long
@each_restart
def test_a_driver_that_was_paused_for_two_minutes(restart: tuple[Event, ...]) -> None:
    exact(("pause", 120), *restart)


@pytest.mark.long
@each_restart
def test_a_driver_that_is_killed_while_it_catches_up(restart: tuple[Event, ...]) -> None:
    exact(("crash at", 60), ("pause", 120), ("start",), *restart)


@each_restart
def test_a_clock_that_is_set_forward_and_back_by_minutes(restart: tuple[Event, ...]) -> None:
    _forward_and_back(60, restart)


@pytest.mark.long
@_for_long
@pytest.mark.timeout(1200)
def test_a_clock_that_is_set_forward_and_back_for_long(seconds: int) -> None:
    _forward_and_back(seconds, RESTARTS["is killed"])


def _forward_and_back(seconds: int, restart: tuple[Event, ...]) -> None:
    forward, back = ("clock", 1000 * seconds), ("clock", -1000 * seconds)
    exact(forward, *batches(5), *restart, *batches(5), back, *batches(9), *restart)


@each_restart
def test_a_clock_that_is_set_back_by_an_hour(restart: tuple[Event, ...]) -> None:
    exact(("clock", -1000 * _HOUR), *batches(9), *restart)
