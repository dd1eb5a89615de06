"""What a program says when a signal comes."""

from __future__ import annotations

import os
import select

SAME_SIGNAL_S = 1.0
"""Signals within that time are one: ``timeout``, among others, sends each twice."""

_STANDARD_ERROR = 2


def say_of_signal(line: str) -> None:
    """Write a line to the terminal, out of a signal's handler. Never blocks, never raises.

    Not by `print`: a signal may come in the middle of another one. Always to the file 2, which is
    the terminal whatever became of `sys.stderr`; a notebook's kernel shows it in the cell. Where
    nobody reads it just now (a pager that waits, Ctrl-S), it is left out, for a handler that waits
    there would keep the next signal from ending the process.
    """
    try:
        if select.select([], [_STANDARD_ERROR], [], 0)[1]:
            os.write(_STANDARD_ERROR, f"\n{line}\n".encode())
    except OSError:
        return
