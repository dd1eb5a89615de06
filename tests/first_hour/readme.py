"""The programs of the README, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["is_batch", "programs"]

README = Path(__file__).resolve().parents[2] / "README.md"
_CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
_STARTS = re.compile(r"\bssc\.(run|start)\(")
_BATCH = re.compile(r"[1-9]\d* records$|Time: ")


def programs() -> list[str]:
    """Return the README's programs; what stands before a start belongs to it."""
    found = []
    parts: list[str] = []
    for block in _CODE.findall(README.read_text()):
        parts.append(block)
        if _STARTS.search(block):
            found.append("\n\n".join(parts))
            parts = []
    return found


def is_batch(line: str) -> bool:
    """Tell whether a line is the result of a batch."""
    return _BATCH.match(line) is not None
