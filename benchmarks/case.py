"""What a case is: subjects, what they are set beside, and what their figures are to reach."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.streaming_run import StreamingRun

__all__ = ["Case", "Check", "Subject"]


@dataclass(frozen=True)
class Subject:
    """One thing that is run in every round.

    Attributes:
        name: Its name.
        title: What it is, for people.
        peer: Whether it is somebody else's.
        run: A streaming program, or the module of a program that measures by itself.
    """

    name: str
    title: str
    run: StreamingRun | str
    peer: bool = False


@dataclass(frozen=True)
class Check:
    """What a figure is to reach. Exactly one of the bounds is set.

    Attributes:
        figure: Name of the figure.
        times_at_least: It, divided by that of the subject beside it.
        times_at_most: The same.
        more_at_most: It, less that of the subject beside it.
        at_least: The figure itself.
        at_most: The same.
        title: What it is, for people.
    """

    figure: str
    times_at_least: float | None = None
    times_at_most: float | None = None
    more_at_most: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    title: str = "records/s"

    @property
    def is_relative(self) -> bool:
        """Whether it is beside something."""
        return self.at_least is None and self.at_most is None

    def is_reached(self, value: float) -> bool:
        """Tell whether a value, or what a relative check makes of it, is good enough."""
        low = self.times_at_least if self.times_at_least is not None else self.at_least
        highs = (self.times_at_most, self.more_at_most, self.at_most)
        high = next((bound for bound in highs if bound is not None), None)
        return (low is None or value >= low) and (high is None or value <= high)


@dataclass(frozen=True)
class Case:
    """A row of figures.

    Attributes:
        name: For ``--case``.
        title: For the table.
        ours: Name of the subject.
        beside: Name of the subject that it is set beside, or None.
        checks: What is to be reached; without one, the figures are only stated.
        also: Subjects that are shown with it.
        main: Whether it is one of the table's rows; else it is "also shown".
        section: Which section of the page it is in.
    """

    name: str
    title: str
    ours: str
    beside: str | None = None
    checks: tuple[Check, ...] = ()
    also: tuple[str, ...] = field(default=())
    main: bool = True
    section: str = "results"
