"""How a record begins, for people."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any

_START = 64
"""About how many characters of a record are shown."""

_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = _START
_shortened.maxlevel = 3


class Unreadable:
    """Stands for a record that cannot be made again, or shown."""

    def __init__(self, error: Exception) -> None:
        self._error = type(error).__name__

    def __repr__(self) -> str:
        return f"nothing that can be shown ({self._error})"

    def __reduce__(self) -> str:
        raise TypeError("there is nothing to pickle")


def start_of(record: Any) -> str:
    """Show the start of a record, whatever its size."""
    if isinstance(record, (bytes, bytearray, memoryview)):
        is_all = len(record) <= _START
        return repr(bytes(record[:_START])) + ("" if is_all else "...")
    return _shortened.repr(record)


def start_shown(record: Callable[[], Any]) -> str:
    """Show the start of the record that is returned, or what it raises; never raises."""
    try:
        return start_of(record())
    except Exception as error:  # noqa: BLE001 - making and showing it may raise what they like
        return repr(Unreadable(error))
