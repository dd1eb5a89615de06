"""How long threads have waited, those that wait now included."""

from __future__ import annotations

import pytest

from penstock.runtime.clock import ManualClock, WaitClock


def test_a_wait_counts_while_it_lasts() -> None:
    clock = ManualClock()
    waits = WaitClock(clock.monotonic_s)
    clock.advance(5000)
    assert waits.read() == 0
    with waits:
        clock.advance(1500)
        assert waits.read() == 1.5
        clock.advance(500)
    clock.advance(7000)
    assert waits.read() == 2.0


def test_the_waits_of_several_threads_are_added() -> None:
    clock = ManualClock()
    waits = WaitClock(clock.monotonic_s)
    with waits:
        clock.advance(1000)
        with waits:
            clock.advance(1000)
        clock.advance(1000)
    assert waits.read() == 4.0


def test_a_wait_that_fails_is_over() -> None:
    clock = ManualClock()
    waits = WaitClock(clock.monotonic_s)

    def fail() -> None:
        with waits:
            clock.advance(1000)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    clock.advance(1000)
    assert waits.read() == 1.0
