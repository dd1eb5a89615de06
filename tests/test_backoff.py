"""The pauses between tries."""

from __future__ import annotations

from penstock.runtime.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 1.0)
    assert [backoff.next_s() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_after_a_change_they_begin_with_the_first() -> None:
    backoff = Backoff(0.5, 4.0)
    assert [backoff.next_s() for _ in range(3)] == [0.5, 1.0, 2.0]
    backoff.reset()
    assert [backoff.next_s() for _ in range(2)] == [0.5, 1.0]
