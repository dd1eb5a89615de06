"""Threads that call functions of the program, and see what the thread that started them sees."""

from __future__ import annotations

import contextvars
import threading

__all__ = ["InheritingThread"]


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
