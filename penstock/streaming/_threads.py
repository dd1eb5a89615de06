"""Threads that call functions of the program, and waits that a signal can always end."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable

__all__ = ["InheritingThread", "wait_for"]

_STEP_S = 1.0


def wait_for(
    changed: threading.Condition, holds: Callable[[], bool], timeout_s: float | None
) -> bool:
    """Wait like `Condition.wait_for`, but in steps.

    A signal that comes just before the main thread goes to sleep does not wake it, and Python runs
    the signal's handler only when that thread goes on: here after a step.
    """
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    while not holds():
        left_s = _STEP_S if end_s is None else min(end_s - time.monotonic(), _STEP_S)
        if left_s <= 0:
            return False
        changed.wait(left_s)
    return True


class InheritingThread(threading.Thread):
    """A thread that runs in a copy of the context variables of the thread that starts it.

    So what a batch prints in a notebook goes to the cell that started the streams, and not to the
    one that was run last: IPython's kernel keeps the cell in a context variable.
    """

    _inherited: contextvars.Context | None = None

    def start(self) -> None:
        self._inherited = contextvars.copy_context()
        super().start()

    def run(self) -> None:
        inherited, self._inherited = self._inherited, None
        if inherited is None:
            super().run()
        else:
            inherited.run(super().run)
