"""Records as tables of HTML, for notebooks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from html import escape
from typing import Any


def table(title: str, heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table; everything in it is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_shown(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<div><b>{escape(title)}</b><table><tr>{head}</tr>{body}</table></div>"


def table_of(title: str, records: Iterable[Any]) -> str:
    """Return a table of frozen records of one type, a row for each."""
    found = list(records)
    names = [field.name for field in dataclasses.fields(found[0])] if found else []
    return table(
        title,
        [name.replace("_", " ") for name in names],
        [[getattr(record, name) for name in names] for record in found],
    )


def _shown(cell: object) -> str:
    if cell is None:
        return ""
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
