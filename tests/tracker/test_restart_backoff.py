"""The pauses between restarts."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.tracker.receivers.jobs import BASE_DELAY_S, RestartBackoff


@given(seed=st.integers(), max_delay_s=st.floats(0.5, 120))
def test_the_first_restart_is_immediate_and_then_pauses_grow_up_to_the_maximum(
    seed: int, max_delay_s: float
) -> None:
    backoff = RestartBackoff(max_delay_s, 60, chance=random.Random(seed))
    delays = [backoff.next_delay_s(0.0) for _ in range(40)]
    assert delays[0] == 0
    assert all(BASE_DELAY_S <= delay <= max_delay_s for delay in delays[1:])
    for before, after in itertools.pairwise(delays[1:]):
        assert after <= max(3 * before, BASE_DELAY_S)


def test_the_time_that_it_ran_counts_as_pause() -> None:
    waits = [RestartBackoff(30, 60, chance=random.Random(1)) for _ in range(2)]
    for backoff in waits:
        backoff.next_delay_s(0.0)
    for ran_s in (0.1, 0.4, 3.0, 20.0, 31.0):
        whole, rest = waits[0].next_delay_s(0.0), waits[1].next_delay_s(ran_s)
        assert rest == max(0.0, whole - ran_s)


def test_a_good_run_starts_all_over() -> None:
    backoff = RestartBackoff(30, 60, chance=random.Random(1))
    for _ in range(5):
        backoff.next_delay_s(0.1)
    assert backoff.next_delay_s(60.0) == 0
    assert backoff.next_delay_s(0.1) <= 3 * BASE_DELAY_S


def test_receivers_that_died_together_do_not_come_back_together() -> None:
    pauses = []
    for seed in (1, 2):
        backoff = RestartBackoff(30, 60, chance=random.Random(seed))
        pauses.append([backoff.next_delay_s(0) for _ in range(5)])
    assert pauses[0] != pauses[1]
