"""All runs of all rounds, pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.batches import TooFewBatchesError
from benchmarks.cases import SUBJECTS, Case, Check, Subject
from benchmarks.child import ChildFailedError
from benchmarks.lone_run import run_alone
from benchmarks.results import Figures, medians
from benchmarks.streaming_run import StreamingRun, Window, run_streaming

__all__ = ["Results", "run_rounds", "subjects_of"]


@dataclass
class Results:
    """What came out.

    Attributes:
        figures: For each subject, by round. A run that failed has none.
        notes: What a subject noted beside its figures, in its last round.
        failures: What failed, with the reason.
    """

    figures: dict[str, dict[int, Figures]] = field(default_factory=dict)
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def of(self, name: str) -> Figures:
        """Return the medians of a subject; empty when it never succeeded."""
        return medians(list(self.figures.get(name, {}).values()))

    def by_round(self, name: str, figure: str) -> list[float]:
        """Return a figure of a subject, of each round that has it."""
        return [found[figure] for found in self.figures.get(name, {}).values() if figure in found]

    def value(self, case: Case, check: Check) -> float | None:
        """Return what the check is about: a figure, or the median of the rounds' comparisons."""
        if case.beside is None or not check.is_relative:
            figures = self.by_round(case.ours, check.figure)
            return median(figures) if figures else None
        found = self.comparisons(case, check)
        return median(found) if found else None

    def comparisons(self, case: Case, check: Check) -> list[float]:
        """Return ours divided by that of the subject beside it, round by round.

        For a check of how much more it is, the differences.
        """
        ours, theirs = self.figures.get(case.ours, {}), self.figures.get(case.beside or "", {})
        is_more = check.more_at_most is not None
        return [
            ours[number][check.figure] - theirs[number][check.figure]
            if is_more
            else ours[number][check.figure] / theirs[number][check.figure]
            for number in sorted(ours.keys() & theirs.keys())
            if check.figure in ours[number] and theirs[number].get(check.figure)
        ]


def subjects_of(cases: Sequence[Case]) -> list[Subject]:
    """Return what the cases need, each once, what is compared next to each other."""
    names: dict[str, None] = {}
    for case in cases:
        for name in (case.beside, case.ours, *case.also):
            if name is not None:
                names[name] = None
    return [SUBJECTS[name] for name in names]


def run_rounds(
    cases: Sequence[Case],
    rounds: int,
    window: Window,
    folder: str,
    show: Callable[[str], None],
    told: Callable[[str], None],
) -> Results:
    """Run everything `rounds` times, every second round backwards.

    Args:
        cases: What is asked for.
        rounds: How often.
        window: When is measured.
        folder: For logs and checkpoints.
        show: Told how far it is.
        told: Told of every run that ended.
    """
    results = Results()
    subjects = subjects_of(cases)
    for number in range(rounds):
        for place, subject in enumerate(subjects if number % 2 == 0 else subjects[::-1]):
            head = f"round {number + 1}/{rounds}, run {place + 1}/{len(subjects)}, {subject.name}"
            try:
                figures = _run(subject, window, folder, _shower(show, head), results)
            except (ChildFailedError, TooFewBatchesError) as error:
                results.failures.append(f"{subject.name}: {error}")
                told(f"{head}: FAILED: {error}")
                continue
            results.figures.setdefault(subject.name, {})[number] = figures
            told(f"{head}: {_in_short(figures)}")
    return results


def _shower(show: Callable[[str], None], head: str) -> Callable[[str], None]:
    return lambda state: show(f"{head}: {state}")


def _run(
    subject: Subject, window: Window, folder: str, show: Callable[[str], None], results: Results
) -> Figures:
    show("starting")
    if isinstance(subject.run, StreamingRun):
        return run_streaming(subject.run, window, folder, show)
    figures, results.notes[subject.name] = run_alone(subject.run, window, folder, show)
    return figures


def _in_short(figures: Figures) -> str:
    return ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
