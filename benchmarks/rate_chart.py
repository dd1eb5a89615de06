"""``python -m benchmarks.rate_chart``: PID and AIMD on one load, in docs/rates.png and rates.md."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from types import FrameType
from typing import Any

from benchmarks.child import Child
from benchmarks.programs.rate_steps import PHASE_S, STALL_S, speed
from benchmarks.streaming_run import shared_memory
from examples.progress import Progress

_HERE = os.path.dirname(os.path.abspath(__file__))
_DOCS = os.path.join(os.path.dirname(_HERE), "docs")
_CHART, _PAGE = "rates.png", "rates.md"
_BEGIN, _END = "<!-- rate chart: begin -->", "<!-- rate chart: end -->"
_NEAR = 0.05
_LAST_S = 10.0
"""The end of a phase, where it is looked how much is used."""
_ESTIMATORS = ("pid", "aimd")
_BOUND_S = 400.0
_INK = "#333333"
_COLOURS = {"pid": "#1f6f8b", "aimd": "#c9a227"}


def main() -> int:
    """Run both estimators, one after the other, and draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rate_chart", description=__doc__)
    parser.add_argument("--output", metavar="FOLDER", help="with a rates.md in it")
    given = parser.parse_args()
    # An end by a signal ends the programs, too.
    signal.signal(signal.SIGTERM, _as_interrupt)
    series = {}
    with Progress() as progress:
        for name in _ESTIMATORS:
            series[name] = _run(name, lambda state, name=name: progress.show(f"{name}: {state}"))
            progress.print(f"{name}: {len(series[name])} batches")
    chart = os.path.join(given.output or _DOCS, _CHART)
    page = os.path.join(given.output or _HERE, _PAGE)
    draw(chart, series)
    write_section(page, section(series))
    print(f"written: {os.path.relpath(chart)} and a section of {os.path.relpath(page)}")
    return 0


def _as_interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(estimator: str, show: Any) -> list[dict[str, Any]]:
    folder = tempfile.mkdtemp(prefix="penstock-benchmark-")
    memory_folder = tempfile.mkdtemp(prefix="penstock-benchmark-", dir=shared_memory())
    heard: list[dict[str, Any]] = []

    def hear(message: dict[str, Any]) -> None:
        if "progress" in message:
            show(message["progress"])
        else:
            heard.append(message)

    options = {"folder": folder, "memory_folder": memory_folder, "estimator": estimator}
    child = Child("benchmarks.programs.rate_steps", options, hear, {"TMPDIR": folder})
    try:
        child.wait("batches", lambda: bool(heard), _BOUND_S)
        found: list[dict[str, Any]] = heard[-1]["series"]
        return found
    finally:
        child.end()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(memory_folder, ignore_errors=True)


@dataclass(frozen=True)
class Part:
    """What an estimator made of one part of the load.

    Attributes:
        near_s: Seconds from its begin until three batches together were within 5 % of what was
            possible and began on time; None when that never was.
        used: Records of the last ten seconds, by what was possible.
        delay_s: The longest time from a batch's time to its end.
    """

    near_s: float | None
    used: float
    delay_s: float


def part_of(batches: list[dict[str, Any]], begin_s: float, end_s: float) -> Part:
    """Look at the batches of a part of the load, from its begin to before its end."""
    inside = [batch for batch in batches if begin_s <= batch["at_s"] < end_s]
    done = [batch for batch in inside if batch["took_s"] is not None]
    near = (
        three[0]["at_s"] - begin_s
        for three in zip(done, done[1:], done[2:], strict=False)
        if abs(sum(each["records"] for each in three) / 3 / speed(end_s - 1) - 1) <= _NEAR
        and all(each["waited_s"] < 1.0 for each in three)
    )
    last = [batch["records"] for batch in inside if batch["at_s"] >= end_s - _LAST_S]
    return Part(
        next(near, None),
        sum(last) / max(1, len(last)) / speed(end_s - 1),
        max((batch["waited_s"] + batch["took_s"] for batch in done), default=0.0),
    )


def section(series: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table in Markdown."""
    stalled_s = 4 * PHASE_S - 5
    parts = {
        "cold start, 20,000 records/s possible": (0.0, PHASE_S),
        "step up to 40,000": (PHASE_S, 2 * PHASE_S),
        "step down to 10,000": (2 * PHASE_S, 3 * PHASE_S),
        "step up to 20,000": (3 * PHASE_S, stalled_s),
        f"a batch that stalls for {STALL_S:g} s, and what follows": (stalled_s, 5 * PHASE_S),
    }
    lines = [
        "| batches of 1 s | estimator | within 5 % after | used at its end | longest delay |",
        "| --- | --- | --- | --- | --- |",
    ]
    for title, (begin_s, end_s) in parts.items():
        for name, batches in series.items():
            part = part_of(batches, begin_s, end_s)
            near = "not within it" if part.near_s is None else f"{part.near_s:.0f} s"
            lines.append(
                f"| {title} | `{name}` | {near} | {part.used:.0%} | {part.delay_s:.1f} s |"
            )
    return "\n".join(lines)


def write_section(path: str, text: str) -> None:
    """Put the section into the page, between its marks."""
    with open(path, encoding="utf-8") as file:
        page = file.read()
    before, rest = page.split(_BEGIN)
    after = rest.split(_END)[1]
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{_BEGIN}\n{text}\n{_END}{after}")


def draw(path: str, series: dict[str, list[dict[str, Any]]]) -> None:
    """Write the chart as PNG: received per batch, and the delay of each batch."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(
        2, 1, figsize=(9, 5.5), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    end_s = max(batch["at_s"] for batches in series.values() for batch in batches)
    seconds = [second / 2 for second in range(int(end_s * 2) + 1)]
    possible = [speed(second) / 1000 for second in seconds]
    above.plot(seconds, possible, color=_INK, linestyle=":", linewidth=1, label="possible")
    for name, batches in series.items():
        done = [batch for batch in batches if batch["took_s"] is not None]
        above.plot(
            [batch["at_s"] for batch in batches],
            [batch["records"] / 1000 for batch in batches],
            color=_COLOURS[name],
            linewidth=1.4,
            label=name,
        )
        below.plot(
            [batch["at_s"] for batch in done],
            [batch["waited_s"] + batch["took_s"] for batch in done],
            color=_COLOURS[name],
            linewidth=1.4,
            label=name,
        )
    above.set_title("Thousand records in each batch of 1 s", fontsize=9, loc="left", color=_INK)
    below.set_title("Seconds from batch time to its end", fontsize=9, loc="left", color=_INK)
    below.set_xlabel("seconds", fontsize=8, color=_INK)
    stalled_s = 4 * PHASE_S - 5
    below.axvline(stalled_s, color=_INK, linewidth=0.6)
    below.text(
        stalled_s,
        0.92,
        f" a batch stalls for {STALL_S:g} s",
        transform=below.get_xaxis_transform(),
        fontsize=7,
        color=_INK,
    )
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        axes.tick_params(labelsize=7)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    above.legend(fontsize=8, frameon=False, ncols=3)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
