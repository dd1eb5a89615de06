"""What `crash_test` draws, counts and shows; the rounds themselves are a model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from penstock.testing import CRASH_POINTS, ClaimNotHeldError, ReceiverTestError, crash_test
from penstock.testing import crashes as module
from penstock.testing.crashes import STOPPED, Kill, _Outcome, _told


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[Kill]]]:
    """Let a function of a round's plan say what is lost and doubled; the plans that were run."""

    def model(
        wrong: Callable[[list[Kill]], tuple[list[Any], list[Any]]], kills: bool = True
    ) -> Any:
        plans: list[list[Kill]] = []

        class Trial:
            def __init__(self, *_: Any) -> None:
                pass

            def run(self, plan: list[Kill]) -> _Outcome:
                plans.append(plan)
                killed = [point for point, _ in plan if point != STOPPED] if kills else []
                story = tuple(_told(kill, kills) for kill in plan)
                return _Outcome(story, killed, 10, *wrong(plan), ("first line\nand more",))

        monkeypatch.setattr(module, "_Trial", Trial)
        return plans

    return model


def run(claim: Any = "exactly once", **named: Any) -> Any:
    return crash_test(lambda source: None, contextlib.nullcontext, claim=claim, **named)


def nothing(plan: list[Kill]) -> tuple[list[Any], list[Any]]:
    return [], []


def test_each_step_is_drawn_and_each_kill_counted(rounds: Any) -> None:
    plans = rounds(nothing)
    report = run(kills=60, seed=1)
    assert set(report.kills) == set(CRASH_POINTS)
    assert 60 <= sum(report.kills.values()) < 63
    assert (report.rounds, report.records, report.seed) == (len(plans), 10 * len(plans), 1)
    assert {times for plan in plans for _, times in plan} == {1, 2, 3, 4}
    stopped = [sum(point == STOPPED for point, _ in plan) for plan in plans]
    assert stopped == [1, 0] * (len(plans) // 2) + [1] * (len(plans) % 2)
    assert report.stops == sum(stopped)


def test_a_seed_draws_the_same_kills_again_and_another_one_others(rounds: Any) -> None:
    drawn = []
    for seed in (5, 5, 6, None, None):
        plans = rounds(nothing)
        run(kills=20, seed=seed)
        drawn.append([list(plan) for plan in plans])
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[3] != drawn[4]


@pytest.mark.parametrize("point", [*CRASH_POINTS, STOPPED])
def test_the_fewest_kills_and_the_earliest_times_are_shown(rounds: Any, point: str) -> None:
    plans = rounds(lambda plan: (["lost"] if point in dict(plan) else [], []))
    with pytest.raises(ClaimNotHeldError) as raised:
        run(kills=200, seed=2)
    assert plans[-1] == [(point, 1)] or [(point, 1)] in plans
    (shown,) = raised.value.kills
    assert "1" in shown
    assert ("stopped gracefully" if point == STOPPED else repr(point)) in shown
    assert (raised.value.missing, raised.value.doubled) == (("lost",), ())
    assert "it reported: first line" in str(raised.value)
    assert "and more" not in str(raised.value)


def test_what_takes_two_kills_in_their_order_is_shown_by_these(rounds: Any) -> None:
    def wrong(plan: list[Kill]) -> Any:
        points = [point for point, _ in plan]
        both = "synced" in points and "sealed" in points
        return [], ["twice"] if both and points.index("synced") < points.index("sealed") else []

    rounds(wrong)
    with pytest.raises(ClaimNotHeldError) as raised:
        run(kills=500, seed=3)
    first, second = raised.value.kills
    assert "'synced', the time no. 1" in first
    assert "'sealed', the time no. 1" in second


def test_what_comes_twice_breaks_one_claim_and_is_counted_with_the_other(rounds: Any) -> None:
    rounds(lambda plan: ([], ["twice", "twice"]))
    report = run("at least once", kills=5)
    assert report.doubled == 2 * report.rounds
    with pytest.raises(ClaimNotHeldError, match="2 doubled: 'twice', 'twice'\n  without a kill"):
        run("exactly once", kills=5)


@pytest.mark.parametrize("claim", ["at least once", "exactly once"])
def test_what_is_lost_breaks_either_claim(rounds: Any, claim: str) -> None:
    rounds(lambda plan: (list(range(12)), []))
    with pytest.raises(ClaimNotHeldError, match=r"12 missing: 0, 1, .*, 9 …"):
        run(claim, kills=5)


def test_a_receiver_that_comes_to_no_step_is_told_and_not_run_for_ever(rounds: Any) -> None:
    plans = rounds(nothing, kills=False)
    with pytest.raises(ReceiverTestError, match="does its source give records"):
        run(kills=5)
    assert len(plans) == 11
