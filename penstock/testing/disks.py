"""Disks that are full by call: logs below a folder take nothing until it is freed."""

from __future__ import annotations

import functools
import threading
from typing import Any

from penstock.wal import LogFullError, LogWriter

_full: set[str] = set()
_lock = threading.Lock()
_is_watched = False


def fill(folder: str) -> None:
    """Let the logs of this process below a folder find no space, as on a full disk."""
    global _is_watched
    with _lock:
        _full.add(folder)
        if not _is_watched:
            for name in ("append", "append_many", "append_slot"):
                _watch(name)
            _is_watched = True


def free(folder: str) -> None:
    """End that."""
    with _lock:
        _full.discard(folder)


def _watch(name: str) -> None:
    function = getattr(LogWriter, name)

    @functools.wraps(function)
    def appending(log: LogWriter, *args: Any, **named: Any) -> Any:
        with _lock:
            is_full = any(log.folder.startswith(f"{folder}/") for folder in _full)
        if is_full:
            raise LogFullError(log.folder, 0)
        return function(log, *args, **named)

    setattr(LogWriter, name, appending)
