"""Tells how far long work is: a line that rewrites itself on a terminal, plain lines otherwise.

A terminal gets one line that changes in place. A file or a pipe gets whole lines, seldom, so that
a log stays readable. The last word is always written, and so are lines that are to stay.
"""

from __future__ import annotations

import shutil
import sys
import threading
from types import TracebackType
from typing import TextIO

from penstock.runtime.clock import Clock, SystemClock

__all__ = ["Progress"]

_TERMINAL_INTERVAL_S = 0.1
_PLAIN_INTERVAL_S = 10.0
_ERASE_TO_END = "\x1b[K"


class Progress:
    """Writes the state of long work. Safe for use by several threads; a context manager.

    Args:
        stream: Where to write; None is standard error.
        interval_s: The least time between two states; None is 0.1 s on a terminal and 10 s
            elsewhere. States between are dropped, except the last one.
        clock: Monotonic time.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        interval_s: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        if interval_s is None:
            interval_s = _TERMINAL_INTERVAL_S if self._is_terminal else _PLAIN_INTERVAL_S
        self._interval_s = interval_s
        self._clock: Clock = SystemClock() if clock is None else clock
        self._lock = threading.Lock()
        self._state = ""
        self._written = ""
        self._next_s: float | None = None
        self._is_closed = False

    def show(self, state: str) -> None:
        """Show how far the work is, in one line, unless the last such line is too recent."""
        with self._lock:
            if self._is_closed:
                return
            self._state = " ".join(state.splitlines())
            now_s = self._clock.monotonic_s()
            if self._next_s is None or now_s >= self._next_s:
                self._next_s = now_s + self._interval_s
                self._write_state()

    def print(self, line: str) -> None:
        """Write a line that stays, above the one that changes."""
        with self._lock:
            if self._is_terminal and self._written:
                self._stream.write(f"\r{_ERASE_TO_END}{line}\n")
                self._write_state()
            else:
                self._stream.write(f"{line}\n")
                self._stream.flush()

    def close(self) -> None:
        """Write the last state, and leave the line. Idempotent; later states are dropped."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._state != self._written:
                self._write_state()
            if self._is_terminal and self._written:
                self._stream.write("\n")
            self._stream.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _write_state(self) -> None:
        self._written = self._state
        if self._is_terminal:
            # A line that wraps could not be rewritten.
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r{self._state[:width]}{_ERASE_TO_END}")
        else:
            self._stream.write(f"{self._state}\n")
        self._stream.flush()
