"""Lets Python's garbage collector look through a task's objects less often.

With its defaults the collector looks through new objects after every few hundred, and again and
again through those that stay. Records and the lists and dicts that they are grouped in are no
garbage: with a million keys, looking for it took three quarters of a task's time. Reference
counting frees what a task lets go; PySpark's worker collects cycles after each task.
"""

from __future__ import annotations

import gc

_THRESHOLDS = (50_000, 20, 10)
"""A full collection after ten million new containers at the earliest. What a program's function
leaves in cycles waits so long."""


def collect_less() -> None:
    """Call this at the start of a task; it holds for the worker process.

    A program that has set a higher threshold, or none, keeps it.
    """
    if 0 < gc.get_threshold()[0] < _THRESHOLDS[0]:
        gc.set_threshold(*_THRESHOLDS)
