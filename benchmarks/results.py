"""What came out of the runs."""

from __future__ import annotations

from statistics import median

__all__ = ["Figures", "medians"]

Figures = dict[str, float]
"""Figures of one run by name; names end in their unit."""


def medians(rounds: list[Figures]) -> Figures:
    """Return the median of each figure over the rounds in which it was taken."""
    names = {name: None for figures in rounds for name in figures}
    return {name: median(figures[name] for figures in rounds if name in figures) for name in names}
