"""``python -m benchmarks``: run the cases, print the tables, write page and chart."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from benchmarks import chart, machine, page
from benchmarks.cases import CASES, CORES, Case
from benchmarks.headline import headline
from benchmarks.rounds import Results, run_rounds, subjects_of
from benchmarks.streaming_run import Window
from examples.progress import Progress

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_DOCS = os.path.join(_ROOT, "docs")
_RAW = os.path.join(_ROOT, "benchmarks", "results")
_CHART = "benchmarks.png"
_PAGE = os.path.join(_DOCS, "benchmarks.md")
_RESULTS = os.path.join(_ROOT, "benchmarks", "results.md")

_ROUNDS = 3
_QUICK = Window(6.0, 8.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 1 when a run failed."""
    given = _parser().parse_args(arguments)
    if given.list:
        for case in CASES:
            print(f"{case.name:<14} {case.title}")
        return 0
    cases = _chosen(given.case)
    if given.case and not cases:
        return 2
    signal.signal(signal.SIGTERM, _as_interrupt)
    plan = Window() if not given.quick else _QUICK
    window = Window(
        plan.warm_up_s if given.warm_up is None else given.warm_up,
        plan.seconds if given.seconds is None else given.seconds,
    )
    rounds = given.rounds or (1 if given.quick else _ROUNDS)
    folder = given.folder or tempfile.gettempdir()
    os.makedirs(folder, exist_ok=True)
    found = machine.describe(folder)
    how = {
        "how": f"{rounds} rounds, median; {window.seconds:g} s measured after {window.warm_up_s:g}"
        f" s of warm-up; `local[{CORES}]`; everybody's log on"
    }
    earlier = None if given.add is None else _read_raw(given.add)
    if earlier is not None and (other := _difference(earlier, {**found, **how})):
        print(f"{given.add} cannot be added to: {other}", file=sys.stderr)
        return 2
    with Progress() as progress:
        try:
            results = run_rounds(cases, rounds, window, folder, progress.show, progress.print)
        except KeyboardInterrupt:
            progress.print("interrupted; nothing is left behind")
            return 130
    print()
    if any(case.main for case in cases):
        print(page.terminal(page.MAIN_HEADS, page.main_rows(cases, results)), end="\n\n")
    if any(not case.main for case in cases):
        print(page.terminal(page.ALSO_HEADS, page.also_rows(cases, results)), end="\n\n")
    if earlier is not None:
        results = _added(earlier, results)
        cases = [
            case for case in CASES if all(s.name in results.figures for s in subjects_of([case]))
        ]
    found["date"] = machine.now()
    output = os.path.abspath(
        given.output or (_DOCS if not given.case and not given.quick else _RAW)
    )
    _write(output, cases, results, found, how)
    return 1 if results.failures else 0


def _read_raw(path: str) -> dict[str, Any]:
    with open(path) as file:
        raw: dict[str, Any] = json.load(file)
    return raw


def _difference(earlier: Mapping[str, Any], now: Mapping[str, str]) -> str:
    """Return in what an earlier run is another one than that of now; empty: in its time only."""
    before = {**earlier["machine"], "how": earlier["how"]}
    return "; ".join(
        f"its {key} is {before.get(key)}, and not {told}"
        for key, told in now.items()
        if key != "date" and before.get(key) != told
    )


def _added(earlier: Mapping[str, Any], results: Results) -> Results:
    """Return what an earlier run found, with what this one found in its place."""
    before = {
        name: {int(number): figures for number, figures in rounds.items()}
        for name, rounds in earlier["figures"].items()
    }
    return Results(
        {**before, **results.figures},
        {**earlier["notes"], **results.notes},
        [*earlier["failures"], *results.failures],
    )


def _write(
    output: str,
    cases: Sequence[Case],
    results: Results,
    found: Mapping[str, str],
    how: Mapping[str, str],
) -> None:
    os.makedirs(_RAW, exist_ok=True)
    raw = {"machine": found, **how, "figures": results.figures, "notes": results.notes}
    with open(os.path.join(_RAW, "latest.json"), "w") as file:
        json.dump({**raw, "failures": results.failures}, file, indent=1)
    os.makedirs(output, exist_ok=True)
    picture = os.path.join(output, _CHART)
    has_chart = any(_is_on_chart(case) for case in cases)
    if has_chart:
        chart.draw(picture, cases, results, found)
    # The documentation has the figures in short; all of them stand beside the benchmarks.
    path = _RESULTS if output == _DOCS else os.path.join(output, "results.md")
    shown_chart = os.path.relpath(picture, os.path.dirname(path))
    sections = {}
    for name in {case.section: None for case in cases}:
        chosen = [case for case in cases if case.section == name]
        shown = shown_chart if any(_is_on_chart(case) for case in chosen) else None
        sections[name] = page.markdown(chosen, results, found, how, shown)
    if path != _RESULTS or not os.path.exists(path):
        with open(path, "w") as file:
            file.writelines("\n".join((*page.marks(name), "")) for name in sections)
    written = page.write_page(path, sections)
    if path == _RESULTS:
        page.write_page(_PAGE, {"headline": headline(written)})
    print(f"written: {os.path.relpath(path)}" + (f", {os.path.relpath(picture)}" * has_chart))


def _is_on_chart(case: Case) -> bool:
    """The chart belongs to the first section: a run of others leaves it as it is."""
    return case.main and case.section == Case.section


def _chosen(names: Sequence[str]) -> list[Case]:
    known = {case.name for case in CASES}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no case {', '.join(unknown)}; --list shows what there is", file=sys.stderr)
        return []
    return [case for case in CASES if not names or case.name in names]


def _as_interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Penstock beside pyspark.streaming: same programs, same feeder, same cores.",
        epilog="A full run takes a bit more than an hour and writes benchmarks/results.md, "
        "docs/benchmarks.md and its chart; with --case or --quick they go to benchmarks/results.",
    )
    parser.add_argument("--list", action="store_true", help="show the cases and end")
    parser.add_argument(
        "--case", action="append", default=[], metavar="NAME", help="only this one; may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"default {_ROUNDS}")
    parser.add_argument("--seconds", type=float, metavar="S", help="of each window, default 20")
    parser.add_argument("--warm-up", type=float, metavar="S", help="left out, default 12")
    parser.add_argument("--folder", help="where logs go; default the system's temporary folder")
    parser.add_argument("--output", help="folder for page and chart")
    parser.add_argument(
        "--add",
        metavar="FILE",
        help="figures of an earlier run of the same commit on this machine (its "
        "benchmarks/results/latest.json), in whose tables those of this run take their places",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
