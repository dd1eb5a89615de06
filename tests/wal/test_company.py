"""Who waits for whom, so that one write serves all, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from penstock.runtime.clock import ManualClock
from penstock.wal._company import Company

INTERVAL_S = 1.0


class Arrivals(threading.Condition):
    """A condition on which a wait takes its time at once.

    Attributes:
        waits: How long each was to be at most, in seconds.
        comes: Called in a wait, tells how long it took; None: nobody comes.
    """

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.waits: list[float] = []
        self.comes: Callable[[], float] | None = None

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        assert timeout > 0
        self.waits.append(timeout)
        took_s = timeout if self.comes is None else self.comes()
        self.clock.advance(round(took_s * 1000))
        return True


class Table:
    """A company, its clock, and who waits."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.company = Company(INTERVAL_S, clock=self.clock)
        self.arrived = Arrivals(self.clock)

    def serve(self, *members: str) -> list[float]:
        """Let members come, the first of them wait for the others, and be served."""
        for member in members:
            self.company.came(member)
        self.arrived.waits = []
        with self.arrived:
            self.company.wait_for(self.arrived, lambda: False)
        for member in members:
            self.company.served(member)
        return self.arrived.waits

    def later(self, time_s: float) -> None:
        self.clock.advance(round(time_s * 1000))


@pytest.fixture
def table() -> Table:
    return Table()


def test_who_is_alone_never_waits(table: Table) -> None:
    for _ in range(5):
        assert table.serve("a") == []
        table.later(INTERVAL_S)


def test_who_comes_with_the_others_waits_for_those_who_are_due_until_they_are_there(
    table: Table,
) -> None:
    assert table.serve("a", "b", "c") == []
    table.later(INTERVAL_S)

    def comes() -> float:
        table.company.came("b" if len(table.arrived.waits) == 1 else "c")
        return 0.1

    table.arrived.comes = comes
    assert table.serve("a") == pytest.approx([0.5, 0.4])


def test_who_does_not_come_is_waited_for_half_an_interval_and_once_or_twice(table: Table) -> None:
    table.serve("a", "gone")
    waits = []
    for _ in range(5):
        table.later(INTERVAL_S)
        waits.append(table.serve("a"))
        table.later(-sum(waits[-1]))
    assert waits == [[0.5], [0.5], [], [], []]


@pytest.mark.parametrize(
    ("ago_s", "is_due"), [(0.4, False), (0.5, True), (1.5, True), (2.1, False)]
)
def test_who_was_there_just_now_or_long_ago_is_not_expected(
    table: Table, ago_s: float, is_due: bool
) -> None:
    table.serve("other")
    table.later(ago_s)
    assert table.serve("a") == ([0.5] if is_due else [])


def test_who_was_served_is_expected_again(table: Table) -> None:
    table.serve("a", "b")
    table.later(INTERVAL_S)
    assert table.serve("a", "b") == []
    table.later(INTERVAL_S)
    assert table.serve("a") == [0.5]


def test_nobody_waits_when_it_is_enough(table: Table) -> None:
    table.serve("a", "b")
    table.later(INTERVAL_S)
    table.company.came("a")
    with table.arrived:
        table.company.wait_for(table.arrived, lambda: True)
    assert table.arrived.waits == []
