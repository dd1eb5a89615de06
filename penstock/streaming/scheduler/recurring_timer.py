"""Batch times: multiples of the batch interval, each once, in order, none left out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.clock import Clock
from penstock.streaming.durations import next_multiple

__all__ = ["RecurringTimer"]

_LARGEST_CORRECTION_MS = 1000

_log = logging.getLogger("penstock.streaming")


class RecurringTimer:
    """Calls back at every multiple of a period, in a thread of its own.

    A callback that takes long makes the next ones late, and they follow back to back with their
    nominal times. When wall time is set back by more than a second, the timer goes on at its pace
    instead of standing still until wall time has caught up; smaller corrections are followed.

    Args:
        clock: The clock.
        period_ms: The period.
        callback: Called with each time, in milliseconds since the epoch.
        name: Names the thread.
    """

    def __init__(
        self, clock: Clock, period_ms: int, callback: Callable[[int], None], name: str
    ) -> None:
        self._clock = clock
        self._period_ms = period_ms
        self._callback = callback
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"penstock-{name}", daemon=True)
        self._offset_ms = clock.time_ms() - clock.monotonic_s() * 1000
        self._next_ms = 0

    def not_before(self, time_ms: int) -> None:
        """Go on from this time if wall time is earlier, because it was set back."""
        elapsed_ms = self._clock.monotonic_s() * 1000
        self._offset_ms = max(self._offset_ms, time_ms - elapsed_ms)

    def first_time(self, origin_ms: int = 0) -> int:
        """Return the first time after now that is a multiple of the period from `origin_ms` on."""
        now_ms = int(self._now_ms())
        return next_multiple(now_ms - origin_ms, self._period_ms) + origin_ms

    def start(self, first_ms: int) -> None:
        """Begin to call back, at `first_ms` first."""
        self._next_ms = first_ms
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Call back no more; wait for a callback that runs now."""
        self._stopping.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            wait_ms = self._next_ms - self._now_ms()
            if wait_ms > 0:
                if self._clock.wait(self._stopping, wait_ms / 1000):
                    return
                continue
            if self._stopping.is_set():
                return
            time_ms = self._next_ms
            self._next_ms += self._period_ms
            self._callback(time_ms)

    def _now_ms(self) -> float:
        """Wall time, except that it never goes back far."""
        elapsed_ms = self._clock.monotonic_s() * 1000
        wall_ms = self._clock.time_ms()
        now_ms = elapsed_ms + self._offset_ms
        behind_ms = now_ms - wall_ms
        if behind_ms > _LARGEST_CORRECTION_MS:
            if not self._told_of_step:
                self._told_of_step = True
                _log.warning(
                    "Wall time was set back by %.1f s; batch times go on at their pace",
                    behind_ms / 1000,
                )
            return now_ms
        self._told_of_step = False
        self._offset_ms = wall_ms - elapsed_ms
        return wall_ms

    _told_of_step = False
