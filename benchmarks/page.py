"""The tables: on the terminal, and as Markdown in the page of the documentation."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence

from benchmarks.cases import SUBJECTS, Case, Check
from benchmarks.rounds import Results
from benchmarks.streaming_run import StreamingRun

__all__ = [
    "ALSO_HEADS",
    "MAIN_HEADS",
    "also_rows",
    "main_rows",
    "markdown",
    "marks",
    "replace_section",
    "terminal",
    "write_page",
]

_NONE = "-"

_NOTE_HEADS = {
    "operations": ("operation", "times as fast (seconds a batch there and here)"),
    "kafka-reading": ("way", "records/s"),
    "hdfs-log": ("side, or codec", "records/s of each round"),
    "killed-executor": ("side", "seconds of each kill"),
    "rate-settle": ("what", "in each batch"),
    "rate-settle-aimd": ("what", "in each batch"),
    "rate-group": ("what", "records/s of each receiver"),
    "tracker-many": ("what", "found"),
    "tracker-day": ("what", "found"),
    "many": ("what", "found"),
    "query-reading": ("query, way", "rows/s"),
    "query-latency": ("what", "found"),
    "query-trigger": ("what", "found"),
    "query-many": ("what", "found"),
}

MAIN_HEADS = (
    "case",
    "what",
    "records/s",
    "MB/s",
    "CPU s per million",
    "peak MiB",
    "batch delay s",
    "p50 ms",
    "p99 ms",
    "ratio",
    "to reach",
    "reached",
)
ALSO_HEADS = ("also shown", "figure", "value", "to reach", "reached")

Row = tuple[str, ...]


def main_rows(cases: Sequence[Case], results: Results) -> list[Row]:
    """Return the main table: for each case ours, then what it is set beside."""
    rows: list[Row] = []
    for case in cases:
        if not case.main:
            continue
        ratio, goal, reached = _verdict(case, results)
        title = case.title
        names = (case.ours, case.beside, *case.also)
        for place, name in enumerate(name for name in names if name is not None):
            verdict = (ratio, goal, reached) if place == 0 else ("", "", "")
            rows.append(
                (
                    title if place == 0 else "",
                    SUBJECTS[name].title + _record_size(case, name),
                    *_columns(results, name),
                    *verdict,
                )
            )
    return rows


def also_rows(cases: Sequence[Case], results: Results) -> list[Row]:
    """Return the second table: figures that stand beside nothing, or in one program."""
    rows: list[Row] = []
    for case in cases:
        for check in () if case.main else case.checks:
            value = results.value(case, check)
            rows.append(
                (
                    case.title,
                    check.title,
                    _NONE
                    if value is None
                    else _number(value) + _spread(_values(case, check, results)),
                    _goal(check),
                    _reached(check, value),
                )
            )
    return rows


def _record_size(case: Case, name: str) -> str:
    """A subject of another case says so."""
    owner = name == case.ours or name in case.also or name.endswith(case.ours)
    return "" if owner else " (socket text, count)" if "count" in name else ""


def _values(case: Case, check: Check, results: Results) -> list[float]:
    if case.beside is not None and check.is_relative:
        return results.comparisons(case, check)
    return results.by_round(case.ours, check.figure)


def _spread(values: Sequence[float]) -> str:
    """Return what the rounds were between, for behind their median; empty for one round."""
    return f" ({_number(min(values))} to {_number(max(values))})" if len(values) > 1 else ""


def _columns(results: Results, name: str) -> Row:
    figures = results.of(name)
    if not figures:
        return ("failed", *[_NONE] * 6)

    def spread(figure: str) -> str:
        return _number(figures[figure]) + _spread(results.by_round(name, figure))

    return (
        spread("records_per_s"),
        _number(figures["mb_per_s"]),
        _number(figures["cpu_s_per_million"]),
        _number(figures["peak_memory_mib"]),
        _number(figures["batch_delay_s"]),
        spread("p50_ms") if "p50_ms" in figures else _NONE,
        spread("p99_ms") if "p99_ms" in figures else _NONE,
    )


def _verdict(case: Case, results: Results) -> Row:
    ratios, goals, verdicts = [], [], []
    for check in case.checks:
        value = results.value(case, check)
        several = f"{check.title} " if len(case.checks) > 1 else ""
        ratios.append(several + _ratio(case, check, results, value))
        goals.append(_goal(check))
        verdicts.append(_reached(check, value))
    return tuple("; ".join(part for part in parts if part) for parts in (ratios, goals, verdicts))


def _ratio(case: Case, check: Check, results: Results, value: float | None) -> str:
    if value is None:
        return _NONE
    if check.figure == "keeps_up":
        return "yes" if value else "no"
    found = results.comparisons(case, check)
    spread = f" ({min(found):.2g} to {max(found):.2g})" if len(found) > 1 else ""
    if check.more_at_most is not None:
        return f"{value:+.2g}{spread}"
    return f"{value:.2f}x{spread}"


def _goal(check: Check) -> str:
    if check.figure == "keeps_up":
        return "keeps up"
    if check.times_at_least is not None:
        return f"≥ {check.times_at_least:g}x"
    if check.times_at_most is not None:
        return f"≤ {check.times_at_most:g}x"
    if check.more_at_most is not None:
        return f"≤ {check.more_at_most:+g}"
    if check.at_least is not None:
        return f"≥ {_number(check.at_least)}"
    if check.at_most is not None:
        return f"≤ {_number(check.at_most)}"
    return "stated"


def _reached(check: Check, value: float | None) -> str:
    if _goal(check) == "stated":
        return ""
    if value is None:
        return "failed"
    return "yes" if check.is_reached(value) else "no"


def _number(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def terminal(heads: Row, rows: Sequence[Row]) -> str:
    """Return the table in columns."""
    table = [heads, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _table(heads: Row, rows: Sequence[Row]) -> list[str]:
    return [
        "| " + " | ".join(heads) + " |",
        "| " + " | ".join("---" for _ in heads) + " |",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def markdown(
    cases: Sequence[Case],
    results: Results,
    machine: Mapping[str, str],
    how: Mapping[str, str],
    chart: str | None,
) -> str:
    """Return the section of the page that a run writes.

    Args:
        cases: What was run.
        results: What came out.
        machine: The machine and the versions.
        how: Rounds, seconds and so on.
        chart: The chart's file, as the page names it.
    """
    lines = [
        "| | |",
        "| --- | --- |",
        *(f"| {key} | {value} |" for key, value in {**machine, **how}.items()),
        "",
    ]
    if chart is not None:
        lines += [f"![Penstock beside its peers]({chart})", ""]
    for heads, rows in (
        (MAIN_HEADS, main_rows(cases, results)),
        (ALSO_HEADS, also_rows(cases, results)),
    ):
        if rows:
            lines += [*_table(heads, rows), ""]
    lines += _backlog(cases, results)
    names = {case.ours for case in cases}
    for name, notes in results.notes.items():
        if notes and name in names:
            lines += [f"Of `{name}`, in the last round:", ""]
            heads = _NOTE_HEADS.get(name, ("way", "MB/s"))
            lines += [*_table(heads, [(key, _note(notes[key])) for key in notes]), ""]
    if results.failures:
        lines += ["Runs that failed:", ""]
        lines += [f"- {failure.partition(chr(10))[0]}" for failure in results.failures]
    return "\n".join(lines).rstrip() + "\n"


def _note(value: object) -> str:
    return _number(value) if isinstance(value, float) else str(value)


def _backlog(cases: Sequence[Case], results: Results) -> list[str]:
    rows = []
    names = {
        name
        for case in cases
        for name in (case.ours, case.beside, *case.also)
        if name and isinstance(SUBJECTS[name].run, StreamingRun)
    }
    for name in SUBJECTS:
        figures = results.of(name) if name in names else {}
        if "batch_delay_growth_s" in figures:
            backlog = figures.get("backlog_growth")
            rows.append(
                (
                    name,
                    "yes" if figures["keeps_up"] else "no",
                    _number(figures["batch_delay_s"]),
                    f"{figures['batch_delay_growth_s']:+.2f}",
                    _NONE if backlog is None else f"{backlog:+.1%}",
                )
            )
    if not rows:
        return []
    heads = ("run", "keeps up", "batch delay s", "its growth s", "growth of the backlog")
    return ["Whether the batches kept up:", "", *_table(heads, rows), ""]


def marks(name: str) -> tuple[str, str]:
    """Return the lines between which a section of the page stands."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def replace_section(page: str, name: str, section: str) -> str:
    """Return the page with the section between its two marks replaced.

    Raises:
        ValueError: The page has not both marks, in their order.
    """
    first, last = marks(name)
    head, begin, rest = page.partition(first)
    _, end, tail = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the page has no section between {first} and {last}")
    return f"{head}{first}\n\n{section}\n{last}{tail}"


def write_page(path: str, sections: Mapping[str, str]) -> str:
    """Put sections, by their names, into the page's file: all or nothing. Return the page."""
    with open(path, encoding="utf-8") as file:
        page = file.read()
    for name, section in sections.items():
        page = replace_section(page, name, section)
    with tempfile.NamedTemporaryFile(
        "w", dir=os.path.dirname(path), delete=False, encoding="utf-8"
    ) as new:
        new.write(page)
    os.chmod(new.name, 0o644)
    os.replace(new.name, path)
    return page
