"""Random programs with random lives give what each batch must give, or say why they cannot.

``make soak-restarts`` runs 10,000.
"""

from __future__ import annotations

import pytest

from tests.streaming.restarts.random_runs import draw, judge, shrink

_TOGETHER = 10
_PROGRAMS = 300
_IN_CI = 10


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.exhaustive] if first >= _IN_CI else [])
        for first in range(0, _PROGRAMS, _TOGETHER)
    ],
)
def test_every_batch_gives_what_it_must_whatever_happens(first: int) -> None:
    for seed in range(first, first + _TOGETHER):
        plan = draw(seed)
        if judge(plan):
            smaller = shrink(plan)
            pytest.fail(f"seed {seed}, made smaller:\n{smaller}\n" + "\n".join(judge(smaller)))
