"""`StopSignals`: Ctrl-C and SIGTERM, for a main thread that waits and asks now and then."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Takes signals, while entered: the first is noted, the second ends the process.

    Nothing is broken off by the first, so that no call to the JVM is left with half an answer.
    Outside the main thread signals cannot be taken, and nothing is changed.

    Args:
        prefix: Stands before what is said.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._asked_s: float | None = None
        # An event's lock may be held by the code that a signal breaks into.
        self._asked: SimpleQueue[int] = SimpleQueue()
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self.listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            # None: it was not set by Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def listen(self) -> None:
        """Take them, also from handlers that others have set since."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                previous = signal.signal(number, self._take)
                self._previous.setdefault(number, previous)

    @property
    def is_asked(self) -> bool:
        """Whether one came."""
        return self._asked_s is not None

    def wait(self, timeout_s: float) -> bool:
        """Wait for the first one; whether it came."""
        try:
            self._asked.get(timeout=timeout_s)
        except Empty:
            return self.is_asked
        return True

    def _take(self, number: int, frame: FrameType | None) -> None:
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        if self._asked_s is not None:
            if time.monotonic() - self._asked_s < SAME_SIGNAL_S:
                return
            say_of_signal(f"{self._prefix}{name}: ending the process")
            os._exit(128 + number)
        self._asked_s = time.monotonic()
        self._asked.put(number)
        say_of_signal(f"{self._prefix}{name}: stopping gracefully; once more ends the process")


SAME_SIGNAL_S = 1.0
"""Signals within that time are one: ``timeout``, among others, sends each twice."""

_STANDARD_ERROR = 2


def say_of_signal(line: str) -> None:
    """Write a line to the terminal, out of a signal's handler. Never blocks, never raises.

    Not by `print`: a signal may come in the middle of another one. Always to the file 2, which is
    the terminal whatever became of `sys.stderr`; a notebook's kernel shows it in the cell. Where
    no one reads it just now (a pager that waits, Ctrl-S), it is left out, for a handler that waits
    there would keep the next signal from ending the process.
    """
    try:
        if select.select([], [_STANDARD_ERROR], [], 0)[1]:
            os.write(_STANDARD_ERROR, f"\n{line}\n".encode())
    except OSError:
        return
