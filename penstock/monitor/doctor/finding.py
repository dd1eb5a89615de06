"""`Finding`: what was found, how bad it is, and what to change."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """A program runs, slower or with less room than it might have."""
    PROBLEM = "problem"
    """A program does not run, or not for long."""


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        check: What was looked at, in a word or two.
        level: How bad it is.
        found: What is there.
        change: What to change; empty where nothing need be.
    """

    check: str
    level: Level
    found: str
    change: str = ""
