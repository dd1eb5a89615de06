"""What the commands print: tables of plain text that fit a width."""

from __future__ import annotations

import datetime
import unicodedata
from collections.abc import Sequence
from typing import Any

Status = dict[str, Any]

_GAP = "  "
_ERRORS_SHOWN = 3


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], width: int) -> list[str]:
    """Return lines, none longer than `width`: the last column gives way.

    A head that begins with ``>`` is of a column of numbers.
    """
    cells = [[clean(cell) for cell in row] for row in rows]
    names = [head.removeprefix(">") for head in heads]
    sizes = [max([len(name), *(len(row[at]) for row in cells)]) for at, name in enumerate(names)]

    def line(parts: Sequence[str]) -> str:
        padded = [
            part.rjust(size) if head.startswith(">") else part.ljust(size)
            for part, size, head in zip(parts, sizes, heads, strict=True)
        ]
        return cut(_GAP.join(padded).rstrip(), width)

    return [line(names), *(line(row) for row in cells)]


def clean(value: object) -> str:
    """Return a value in one line, without what a terminal would take for a command."""
    if value is None:
        return ""
    text = " ".join(str(value).split())
    return "".join(letter for letter in text if not unicodedata.category(letter).startswith("C"))


def cut(line: str, width: int) -> str:
    """Return a line that is not longer than `width`."""
    return line if len(line) <= width else f"{line[: max(0, width - 1)]}…"


def count_text(value: float | None) -> str:
    """Return a number that is easy to read: ``12.3k``, ``4.0M``."""
    if value is None:
        return ""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if sign == 'k' else size):.1f}{sign}"
    return f"{value:,.0f}"


def receivers_table(status: Status, width: int) -> list[str]:
    """Return the receivers, one a line."""
    rows = [
        (
            found["name"],
            found["state"],
            found["host"],
            count_text(found["recordsPerSecond"]),
            count_text(found["limitPerSecond"]),
            count_text(found["records"]),
            found["attempts"],
            "; ".join(found["troubles"]) or found["waitsFor"] or found["lastError"],
        )
        for found in status["receivers"]
    ]
    heads = ("RECEIVER", "STATE", "HOST", ">REC/S", ">LIMIT", ">RECORDS", ">STARTS", "WAITS FOR")
    return table(heads, rows, width)


def batches_table(batches: Sequence[dict[str, Any]], width: int) -> list[str]:
    """Return batches, one a line."""
    rows = [
        (
            time_text(found["id"]),
            found["status"].lower(),
            count_text(found["records"]),
            found["schedulingDelayMs"],
            found["processingMs"],
            found["totalDelayMs"],
            f"{found['operationsDone']}/{found['operationsTotal']}",
            found["error"],
        )
        for found in batches
    ]
    heads = ("BATCH", "STATUS", ">RECORDS", ">DELAY MS", ">TOOK MS", ">TOTAL MS", "OPS", "ERROR")
    return table(heads, rows, width)


def queries_table(status: Status, width: int) -> list[str]:
    """Return what is kept of each stream for queries, and its readers, one a line."""
    rows: list[tuple[object, ...]] = []
    for stream in status["kept"]:
        held = (count_text(stream["bytes"]), count_text(stream["records"]))
        for query in stream["queries"] or [{"recordsBehind": None, "consumer": "(no query)"}]:
            rows.append(
                (stream["name"], *held, count_text(query["recordsBehind"]), query["consumer"])
            )
    return table(("STREAM", ">KEPT BYTES", ">RECORDS", ">BEHIND", "QUERY"), rows, width)


def epochs_table(status: Status, width: int) -> list[str]:
    """Return how far the function of each continuous stream is, one a line."""
    rows = [
        (
            found["name"],
            found["logged"],
            found["committed"],
            found["ageMs"],
            count_text(found["records"]),
            found["failures"],
            found["waitsFor"],
        )
        for found in status["epochs"]
    ]
    heads = (">LOGGED", ">COMMITTED", ">AGE MS", ">RECORDS", ">FAILURES", "WAITS FOR")
    return table(("EPOCHS OF", *heads), rows, width)


def events_lines(events: Sequence[dict[str, Any]], width: int) -> list[str]:
    """Return events, one a line."""
    return [cut(f"{time_text(found['atMs'])}  {clean(found['text'])}", width) for found in events]


def top_lines(status: Status, width: int) -> list[str]:
    """Return all of it at a glance."""
    totals = status["totals"]
    has_batches = status["application"]["batchMs"] is not None
    name = clean(status["application"]["name"])
    lines = [
        cut(f"{name}  {time_text(status['nowMs'])}  {clean(status['sentence'])}", width),
    ]
    if has_batches:
        batches = (
            f"batches: {totals['waitingBatches']} wait, {totals['runningBatches']} run, "
            f"{totals['completedBatches']:,} done, {totals['failedBatches']:,} failed; records: "
            f"{count_text(totals['processedRecords'])} processed{_of_dropped(totals)}"
        )
        lines.append(cut(batches, width))
    if status["receivers"]:
        lines += ["", *receivers_table(status, width)]
        logs = [(found["name"], found["log"]) for found in status["receivers"] if found.get("log")]
        if logs:
            rows = [
                (
                    each,
                    count_text(log["bytes"]),
                    log["segments"],
                    "" if log["syncMs"] is None else f"{log['syncMs']:.1f}",
                    f"{log['slowestSyncMs']:.1f}",
                    count_text(log["freeBytes"]),
                )
                for each, log in logs
            ]
            heads = ("LOG", ">BYTES", ">SEGMENTS", ">SYNC MS", ">SLOWEST MS", ">FREE BYTES")
            lines += ["", *table(heads, rows, width)]
        listening = [(each["name"], ", ".join(each["addresses"])) for each in status["receivers"]]
        if places := [(each, where) for each, where in listening if where]:
            lines += ["", *table(("RECEIVER", "LISTENS AT"), places, width)]
    if status["kept"]:
        lines += ["", *queries_table(status, width)]
    if status["epochs"]:
        lines += ["", *epochs_table(status, width)]
    if has_batches:
        lines += ["", *batches_table(status["batches"][:5], width)]
    errors = [event for event in status["events"] if event["isError"]][-_ERRORS_SHOWN:]
    if errors:
        lines += ["", "ERRORS", *events_lines(errors, width)]
    return lines


def _of_dropped(totals: Status) -> str:
    dropped = totals["droppedEvents"]
    return f"; {dropped:,} events dropped" if dropped else ""


def time_text(time_ms: int | None) -> str:
    """Return a time of day of this host, with milliseconds where it has some."""
    if time_ms is None:
        return ""
    moment = datetime.datetime.fromtimestamp(time_ms / 1000)
    return f"{moment:%H:%M:%S}" + (f".{time_ms % 1000:03d}" if time_ms % 1000 else "")
