"""Progress: one changing line on a terminal, seldom whole lines elsewhere."""

from __future__ import annotations

import io
import re

import pytest

from examples.progress import Progress
from penstock.runtime.clock import ManualClock


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and tells what a person would see on it."""

    def isatty(self) -> bool:
        return True

    def seen(self) -> list[str]:
        lines = []
        for line in self.getvalue().split("\n"):
            parts = re.split(r"\r", line)
            lines.append(parts[-1].replace("\x1b[K", ""))
        return lines


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_terminal_shows_one_line_that_changes(clock: ManualClock) -> None:
    terminal = Terminal()
    with Progress(terminal, clock=clock) as progress:
        progress.show("1 of 3")
        clock.advance(100)
        progress.show("2 of 3")
        assert terminal.seen() == ["2 of 3"]
        progress.show("3 of 3")
        assert terminal.seen() == ["2 of 3"]
    assert terminal.seen() == ["3 of 3", ""]


def test_a_file_gets_whole_lines_and_few_of_them(clock: ManualClock) -> None:
    log = io.StringIO()
    with Progress(log, clock=clock) as progress:
        for n in range(1, 26):
            progress.show(f"{n} of 25")
            clock.advance(1000)
    assert log.getvalue().splitlines() == ["1 of 25", "11 of 25", "21 of 25", "25 of 25"]
    assert "\r" not in log.getvalue()


def test_lines_that_stay_stand_above_the_one_that_changes(clock: ManualClock) -> None:
    terminal = Terminal()
    log = io.StringIO()
    for stream in (terminal, log):
        with Progress(stream, clock=clock) as progress:
            progress.print("begun")
            progress.show("half")
            progress.print("killed the receiver")
    assert terminal.seen() == ["begun", "killed the receiver", "half", ""]
    assert log.getvalue().splitlines() == ["begun", "half", "killed the receiver"]


def test_a_long_state_is_cut_so_that_it_can_be_rewritten(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    Progress(terminal, clock=clock).show("x" * 50 + "\nand more")
    assert terminal.seen() == ["x" * 19]


def test_after_closing_nothing_is_shown_any_more(clock: ManualClock) -> None:
    log = io.StringIO()
    progress = Progress(log, clock=clock)
    progress.close()
    progress.close()
    progress.show("late")
    assert log.getvalue() == ""
