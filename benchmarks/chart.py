"""The chart: records per second of each pair, and latencies."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.cases import SUBJECTS, Case
from benchmarks.rounds import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_OURS = "#1f6f8b"
_OURS_TOO = "#8fbccb"
_PEER = "#c9a227"
_INK = "#333333"
_BAR = 0.38


def draw(path: str, cases: Sequence[Case], results: Results, machine: Mapping[str, str]) -> None:
    """Write the chart as PNG.

    Args:
        path: The file.
        cases: What was run; those without figures are left out.
        results: What came out.
        machine: For the line below the chart.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rates = [case for case in cases if case.main and _has(case, results, "records_per_s", False)]
    latencies = [case for case in cases if case.main and _has(case, results, "p99_ms", True)]
    heights = [max(1.5, len(rates)), max(1.5, 2 * len(latencies))]
    figure, (above, below) = pyplot.subplots(
        2, 1, figsize=(9, 1.8 + 0.62 * sum(heights)), height_ratios=heights, layout="constrained"
    )
    _rates(above, rates, results)
    _latencies(below, latencies, results)
    figure.text(
        0.01,
        -0.02,
        f"{machine['CPU']}; {machine['memory']}; {machine['disk']}; {machine['date']}; "
        f"commit {machine['commit']}",
        fontsize=7,
        color=_INK,
    )
    figure.savefig(path, dpi=130, bbox_inches="tight")
    pyplot.close(figure)


def _has(case: Case, results: Results, figure: str, is_latency: bool) -> bool:
    figures = results.of(case.ours)
    return figure in figures and ("p99_ms" in figures) == is_latency


def _rates(axes: Axes, cases: Sequence[Case], results: Results) -> None:
    labels = []
    for place, case in enumerate(cases):
        for offset, name, colour in _pair(case):
            value = results.of(name).get("records_per_s")
            if value:
                _bar(axes, place + offset, value / 1e6, f" {value / 1e6:.3g} M", colour)
        labels.append(_plain(case.title))
    _finish(axes, labels, "Million records per second; 1 s batches, log on")


def _latencies(axes: Axes, cases: Sequence[Case], results: Results) -> None:
    labels = []
    place = 0
    for case in cases:
        for figure in ("p50_ms", "p99_ms"):
            for offset, name, colour in _pair(case):
                value = results.of(name).get(figure)
                if value:
                    _bar(axes, place + offset, value, f" {value:,.0f} ms", colour)
            batches = "100 ms" if "100" in case.ours else "200 ms"
            labels.append(f"{batches} batches, {figure[:3]}")
            place += 1
    _finish(axes, labels, "Milliseconds from send to foreachRDD; 10,000 records/s")


def _pair(case: Case) -> list[tuple[float, str, str]]:
    pair = [(-_BAR / 2, case.ours, _OURS)]
    if case.beside is not None:
        beside = SUBJECTS[case.beside]
        pair.append((_BAR / 2, beside.name, _PEER if beside.peer else _OURS_TOO))
    return pair


def _bar(axes: Axes, place: float, value: float, text: str, colour: str) -> None:
    axes.barh(place, value, _BAR, color=colour)
    axes.annotate(text, (value, place), va="center", fontsize=8, color=_INK)


def _finish(axes: Any, labels: Sequence[str], title: str) -> None:
    from matplotlib.patches import Patch

    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    # From zero, not logarithmic: the length of a bar is what it says.
    axes.margins(x=0.12)
    axes.set_title(title, fontsize=9, loc="left", color=_INK)
    axes.tick_params(axis="x", labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if labels:
        handles = [Patch(color=_OURS, label="Penstock"), Patch(color=_PEER, label="peer")]
        axes.legend(
            handles=handles,
            fontsize=8,
            frameon=False,
            loc="lower right",
            bbox_to_anchor=(1, 1),
            ncols=2,
            borderaxespad=0,
        )


def _plain(title: str) -> str:
    text = title.replace("`", "")
    return textwrap.fill(text, 44)
