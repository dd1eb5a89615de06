"""Keeps a Python worker from looking through its modules after every task.

PySpark's worker calls `gc.collect` after each task (`pyspark/daemon.py`). With Arrow, NumPy and
this package imported that takes 20 to 40 ms of CPU, many times what a task over a block takes.
Objects that were there before are no garbage; `gc.freeze` takes them out of its sight.
"""

from __future__ import annotations

import gc

__all__ = ["freeze_modules"]

_TASKS = 3
"""The first tasks of a worker still import modules. Later ones freeze nothing: what is frozen and
becomes garbage in a cycle stays for ever, and a worker may run tasks for months."""

_tasks = 0


def freeze_modules() -> None:
    """Call this at the start of a task; it does something in the first few of a process."""
    global _tasks
    if _tasks < _TASKS:
        _tasks += 1
        gc.freeze()
