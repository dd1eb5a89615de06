"""``python -m benchmarks.rate_chart``: PID and AIMD on the same load, drawn for docs/rates.md."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from typing import Any

from benchmarks.child import Child
from benchmarks.programs.rate_steps import PHASE_S, STALL_S, speed
from benchmarks.streaming_run import shared_memory
from penstock.progress import Progress

_CHART = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs")
_ESTIMATORS = ("pid", "aimd")
_BOUND_S = 400.0
_INK = "#333333"
_COLOURS = {"pid": "#1f6f8b", "aimd": "#c9a227"}


def main() -> int:
    """Run both estimators, one after the other, and draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rate_chart", description=__doc__)
    parser.add_argument("--output", default=os.path.join(_CHART, "rates.png"), metavar="FILE")
    given = parser.parse_args()
    series = {}
    with Progress() as progress:
        for name in _ESTIMATORS:
            series[name] = _run(name, lambda state, name=name: progress.show(f"{name}: {state}"))
            progress.print(f"{name}: {len(series[name])} batches")
    draw(given.output, series)
    print(f"written: {os.path.relpath(given.output)}")
    return 0


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
