"""The page's first table: what a reader asks first, each row in its own unit.

It is made of what the tables of results.md say, so that it has no figure of its own, and a run of
single cases leaves the rows of the others as they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.cases import CASES, SUBJECTS

__all__ = ["headline"]

_SEPARATOR = re.compile(r"^\|(?: -+ \|)+$")
_TITLES = {case.name: case.title for case in CASES}


@dataclass(frozen=True)
class _Pair:
    """A row of the main table beside another one.

    Attributes:
        what: The headline's words for it.
        case: The case's name.
        ours: The subject's name, of Penstock.
        beside: The subject's name, of what it is set beside.
        unit: The unit of `figure`.
        figure: A column of the main table.
        ratio: What the ratio of these two begins with in the case's cell.
    """

    what: str
    case: str
    ours: str
    beside: str
    unit: str
    figure: str = "records/s"
    ratio: str = ""


@dataclass(frozen=True)
class _Alone:
    """A row of the second table.

    Attributes:
        what: The headline's words for it.
        case: The case's name.
        figure: The figure's title there.
        form: How its value is shown.
        column: Whether it is Penstock's figure or a ratio.
    """

    what: str
    case: str
    figure: str
    form: str = "{}"
    column: str = "ours"


@dataclass(frozen=True)
class _Ways:
    """Two rows of a case's table of ways.

    Attributes:
        what: The headline's words for it.
        subject: The subject's name.
        ours: The way, of Penstock.
        beside: The way that it is set beside.
        peer: The name of that side.
        unit: The unit of both.
        case: The case's name.
        ratio: The title of the figure that is their ratio.
    """

    what: str
    subject: str
    ours: str
    beside: str
    peer: str
    unit: str
    case: str
    ratio: str


_ROWS: tuple[_Pair | _Alone | _Ways, ...] = (
    _Pair(
        "Word count in plain Python functions",
        "words",
        "words",
        "peer-words",
        "lines/s",
    ),
    _Pair(
        'Word count by columns: `lines.arrow.split(" ").value_counts()`',
        "words-columns",
        "arrow-words",
        "peer-words",
        "lines/s",
    ),
    _Pair(
        "Word count in SQL over `foreachBatch`",
        "sql-words",
        "sql-words",
        "structured-sql-words",
        "lines/s",
    ),
    _Pair("Lines of 100 bytes from a socket, counted", "count", "count", "peer-count", "lines/s"),
    _Pair("Lines of 1 kB, the same", "count-1kb", "count-1kb", "peer-count-1kb", "lines/s"),
    _Ways(
        "Kafka, 100-byte values, direct stream counted in Python",
        "kafka-reading",
        "direct with confluent-kafka",
        "structured with confluent-kafka",
        "Structured Streaming",
        "records/s",
        "kafka",
        "direct stream, times Structured Streaming",
    ),
    _Pair(
        "Median time from send to `foreachRDD`, 200 ms batches",
        "latency",
        "latency-200",
        "peer-latency-200",
        "ms",
        "p50 ms",
        "p50 ",
    ),
    _Pair(
        "99th percentile of it",
        "latency",
        "latency-200",
        "peer-latency-200",
        "ms",
        "p99 ms",
        "p99 ",
    ),
    _Alone(
        "Lines counted with logs on HDFS",
        "hdfs-log",
        "records/s, times the original's",
        "{}x",
        "ratio",
    ),
    _Alone(
        "Time until records flow again after a receiver's executor was killed",
        "killed-executor",
        "time, share of the original's",
        "{}x",
        "ratio",
    ),
    _Alone(
        "Time until backpressure has settled after a cold start",
        "rate-settle",
        "time to within 5 %, of the peer's",
        "{}x",
        "ratio",
    ),
    _Alone("A ledger of one million blocks read back", "recovery", "seconds", "{} s"),
    _Alone("Memory of a receiver whose source outruns the batches", "memory", "peak", "{} MiB"),
    _Alone(
        "Blocks that a tracker takes, of 1,000 receivers",
        "tracker-many",
        "blocks a minute, at most",
        "{} a minute",
    ),
)


def headline(page: str) -> str:
    """Return the section, of what stands in the page's tables.

    Args:
        page: The page's text.
    """
    tables = list(_tables(page))
    main, also, late = _main(tables), _also(tables), _late(tables)
    lines = ["| | Penstock | beside it | ratio |", "| --- | --- | --- | --- |"]
    for row in _ROWS:
        cells = _cells(row, main, also, late, page)
        if cells is not None:
            lines.append("| " + " | ".join((row.what, *cells)) + " |")
    if any("\\*" in line for line in lines):
        lines += ["", "\\* Its batches did not keep up with what came."]
    short = _short(tables)
    if short:
        lines += ["", "Short of their aim:", "", *(f"- {line}" for line in short)]
    return "\n".join(lines) + "\n"


def _cells(
    row: _Pair | _Alone | _Ways,
    main: dict[tuple[str, str], dict[str, str]],
    also: dict[tuple[str, str], str],
    late: set[str],
    page: str,
) -> tuple[str, str, str] | None:
    if isinstance(row, _Alone):
        found = [
            value
            for (case, figure), value in also.items()
            if case == _TITLES[row.case] and figure.startswith(row.figure)
        ]
        if not found:
            return None
        value, spread = _parts(found[0])
        shown = row.form.format(value) + spread
        return (shown, "", "") if row.column == "ours" else ("", "", shown)
    if isinstance(row, _Ways):
        ways = _ways(page, row.subject)
        if row.ours not in ways or row.beside not in ways:
            return None
        times = also.get((_TITLES[row.case], row.ratio), "")
        return (
            f"{ways[row.ours]} {row.unit}",
            f"{ways[row.beside]} {row.unit} ({row.peer})",
            "{}x{}".format(*_parts(times)) if times else "",
        )
    ours = main.get((_TITLES[row.case], SUBJECTS[row.ours].title))
    beside = main.get((_TITLES[row.case], SUBJECTS[row.beside].title))
    if ours is None or beside is None:
        return None
    parts = [part.strip() for part in ours["ratio"].split(";")]
    ratio = next((p.removeprefix(row.ratio) for p in parts if p.startswith(row.ratio)), "")
    return (
        _shown(ours[row.figure], row.unit, row.ours in late),
        _shown(beside[row.figure], row.unit, row.beside in late)
        + f" ({SUBJECTS[row.beside].title})",
        ratio,
    )


def _parts(cell: str) -> tuple[str, str]:
    """Return the value, and what its rounds were between; empty for one round."""
    value, opening, rest = cell.partition(" (")
    return value, opening + rest


def _shown(cell: str, unit: str, is_late: bool) -> str:
    value, spread = _parts(cell)
    return f"{value} {unit}" + "\\*" * is_late + spread


def _tables(page: str) -> Iterator[list[list[str]]]:
    """Yield the tables of a text, as rows of cells with the heads first."""
    table: list[list[str]] = []
    for line in [*page.splitlines(), ""]:
        if line.startswith("|"):
            if not _SEPARATOR.match(line):
                table.append([cell.strip() for cell in line.strip("|").split("|")])
        elif table:
            yield table
            table = []


def _main(tables: Sequence[list[list[str]]]) -> dict[tuple[str, str], dict[str, str]]:
    """Return the rows of the main table by case and side."""
    rows = {}
    for heads, *lines in tables:
        if heads[:2] == ["case", "what"]:
            case = ""
            for line in lines:
                case = line[0] or case
                rows[case, line[1]] = dict(zip(heads, line, strict=True))
    return rows


def _also(tables: Sequence[list[list[str]]]) -> dict[tuple[str, str], str]:
    """Return the values of the second tables by case and figure."""
    return {
        (line[0], line[1]): line[2]
        for heads, *lines in tables
        if heads[0] == "also shown"
        for line in lines
    }


def _late(tables: Sequence[list[list[str]]]) -> set[str]:
    """Return the subjects whose batches did not keep up."""
    return {
        line[0]
        for heads, *lines in tables
        if heads[:2] == ["run", "keeps up"]
        for line in lines
        if line[1] == "no"
    }


def _ways(page: str, subject: str) -> dict[str, str]:
    """Return the table of ways that a case has."""
    _, found, rest = page.partition(f"Of `{subject}`, ")
    if not found:
        return {}
    return {line[0]: line[1] for line in next(_tables(rest))[1:]}


def _short(tables: Sequence[list[list[str]]]) -> list[str]:
    """Return what has not reached its aim."""
    found = []
    for heads, *lines in tables:
        if heads[-1] != "reached":
            continue
        for line in lines:
            of = dict(zip(heads, line, strict=True))
            values = of["ratio"] if "ratio" in of else f"{of['figure']} {of['value']}"
            for value, goal, reached in zip(
                values.split(";"), of["to reach"].split(";"), of["reached"].split(";"), strict=False
            ):
                if reached.strip() in ("no", "failed"):
                    found.append(f"{line[0]}: {value.strip()}, to reach {goal.strip()}")
    return found
