"""A log line that a stranger can cause, at most once in a while."""

from __future__ import annotations

import logging

from penstock.clock import Clock

__all__ = ["Complaints"]


class Complaints:
    """Logs the first of many like events and counts the others, so that a flood fills no disk.

    It belongs to one thread.
    """

    def __init__(self, logger: logging.Logger, clock: Clock, interval_s: float = 10.0) -> None:
        self._logger = logger
        self._clock = clock
        self._interval_s = interval_s
        self._next_s = clock.monotonic_s()
        self._suppressed = 0

    def log(self, message: str) -> None:
        """Log `message` as a warning unless another was logged within the interval."""
        now = self._clock.monotonic_s()
        if now < self._next_s:
            self._suppressed += 1
            return
        self._next_s = now + self._interval_s
        if self._suppressed:
            message = f"{message} ({self._suppressed} like it before, not shown)"
            self._suppressed = 0
        self._logger.warning(message)
