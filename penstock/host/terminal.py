"""`TerminalLines`: what a program says on its terminal while it runs.

A line is also a log line of level INFO. It is written at once and whole, and no line is rewritten,
so that `pprint`, the program's own output and Spark's can stand between. What goes wrong is not
said here: warnings and errors reach the terminal by themselves.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from penstock.runtime.rate_limited_log import RateLimitedLog

_ERASE_LINE = "\r\x1b[K"

SHOWN_STREAMS = 5
"""How many streams are named in one line."""


class TerminalLines:
    """Says lines. Any thread may come.

    Args:
        log: Where they are logged.
        mode: ``on``, ``off``, or ``auto``: on where standard error is a terminal.
        stream: Where to write; None: standard error.

    Attributes:
        is_shown: Whether they are written, and not only logged.
    """

    def __init__(self, log: logging.Logger, mode: str, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.is_shown = mode == "on" or (mode == "auto" and _is_terminal(self._stream))
        self._lines = RateLimitedLog(_Lines(log, self.write if self.is_shown else None))

    def say(self, line: str, like: Hashable | None = None) -> None:
        """Say a line; one like it within a minute is only counted.

        Args:
            line: The line.
            like: What makes lines alike; None: their text.
        """
        self._lines.log(line, like=like, level=logging.INFO)

    def write(self, line: str) -> None:
        """Write a line that is not logged."""
        # A terminal that went away is no reason to stop.
        with contextlib.suppress(OSError, ValueError):
            erase = _ERASE_LINE if _is_terminal(self._stream) else ""
            self._stream.write(f"{erase}{line}\n")
            self._stream.flush()


def started_line(name: str, location: str, executor_id: str) -> str:
    """Return what is said of a receiver that runs."""
    executor = "" if executor_id == "driver" else f", executor {executor_id}"
    return f"Receiver {name} runs on {location}{executor}"


def stopped_line(name: str, message: str, error: str) -> str:
    """Return what is said of a receiver that stopped; empty: the tracker warns of it already."""
    # With an error, or to be started again.
    is_told = error or message.startswith("Restarting")
    return "" if is_told else f"Receiver {name} stopped: {message}"


def some_of(names: Sequence[str]) -> str:
    """Return the names of streams for a line that people read: of many the first ones."""
    if len(names) <= SHOWN_STREAMS:
        return ", ".join(names)
    shown = names[: SHOWN_STREAMS - 1]
    return f"{', '.join(shown)} and {len(names) - len(shown)} other streams"


if TYPE_CHECKING:
    from collections.abc import Callable

    _LoggerAdapter = logging.LoggerAdapter[logging.Logger]
else:  # It takes no parameter before Python 3.11.
    _LoggerAdapter = logging.LoggerAdapter


class _Lines(_LoggerAdapter):
    """Logs, and writes what the program's own logging does not show."""

    def __init__(self, log: logging.Logger, write: Callable[[str], None] | None) -> None:
        super().__init__(log, {})
        self._write = write

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        super().log(level, msg, *args, **kwargs)
        is_shown = self.logger.isEnabledFor(level) and self.logger.hasHandlers()
        if self._write is not None and not is_shown:
            self._write(str(msg) % args)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False  # It is closed.
