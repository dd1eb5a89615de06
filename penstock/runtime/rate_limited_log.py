"""A log line that may come again and again: shown once, counted, and shown again in a while."""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from penstock.runtime.clock import Clock, SystemClock

_NUMBER = re.compile(r"[0-9a-f]{32}|\d+")
"""Also ids: each attempt of a receiver has a folder of its own."""

_INTERVAL_S = 60.0
"""The least time between two lines of a kind."""

_KINDS = 256
"""Kinds of lines that are remembered; beyond that, the one silent for longest is dropped."""


@dataclass
class _Kind:
    shown_s: float
    unshown: int = 0


class RateLimitedLog:
    """Logs the first of many like events and counts the others, so that a flood fills no disk.

    The next one after the interval says how many there were. Any thread may log.

    Args:
        logger: Where to.
        clock: Monotonic time.
    """

    def __init__(
        self,
        logger: logging.Logger | logging.LoggerAdapter[logging.Logger],
        clock: Clock | None = None,
    ) -> None:
        self._logger = logger
        self._clock: Clock = SystemClock() if clock is None else clock
        self._lock = threading.Lock()
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()

    def log(
        self,
        message: str,
        *,
        like: Hashable = None,
        about: Hashable = None,
        level: int = logging.WARNING,
        error: BaseException | None = None,
        trace: str = "",
    ) -> None:
        """Log `message` unless another of its kind was logged within the interval.

        Args:
            message: The line.
            like: Its kind; None: lines that differ only in numbers and ids are of one.
            about: Whom it is about, such as a stream: lines about different ones are never alike.
            level: The level.
            error: Its traceback is also logged, the first time.
            trace: In place of `error`, a traceback as text.
        """
        if like is None:
            like = _NUMBER.sub("#", message)
        like = (about, like)
        with self._lock:
            now_s = self._clock.monotonic_s()
            kind = self._kinds.pop(like, None)
            is_first = kind is None
            if kind is None:
                kind = _Kind(now_s)
            self._kinds[like] = kind
            if len(self._kinds) > _KINDS:
                self._kinds.popitem(last=False)
            if not is_first and now_s < kind.shown_s + _INTERVAL_S:
                kind.unshown += 1
                return
            count, span_s = kind.unshown + 1, now_s - kind.shown_s
            kind.shown_s, kind.unshown = now_s, 0
        if count > 1:
            message = f"{message} … {count} times in the last {_span(span_s)}"
        if is_first and trace:
            message = f"{message}\n{trace.rstrip()}"
        self._logger.log(level, "%s", message, exc_info=error if is_first else None)


def _span(seconds: float) -> str:
    if seconds < 90:
        return "minute" if seconds >= 50 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes"
