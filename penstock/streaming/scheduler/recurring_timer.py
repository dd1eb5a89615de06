"""Batch times: multiples of the batch interval, each once, in order, none left out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.runtime.clock import Clock
from penstock.runtime.threads import OwnedThread
from penstock.streaming.durations import next_multiple

_log = logging.getLogger("penstock.streaming")


class RecurringTimer:
    """Calls back at every multiple of a period, in a thread of its own.

    A time comes when wall time has reached it (I14). A callback that takes long makes the next
    ones late, and they follow back to back with their nominal times.

    No time comes twice, so where wall time was set back, the next ones are ahead of it. Then they
    come at half their pace, one every two periods, until wall time has caught up: neither do they
    stand still for as long as it was set back, nor do they stay ahead.

    Args:
        clock: The clock.
        period_ms: The period.
        callback: Called with each time, in milliseconds since the epoch.
        name: Names the thread.
        on_error: Notified of what the callback raises; the next time comes all the same.
    """

    def __init__(
        self,
        clock: Clock,
        period_ms: int,
        callback: Callable[[int], None],
        name: str,
        *,
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._clock = clock
        self._period_ms = period_ms
        self._callback = callback
        self._stopping = threading.Event()
        self._thread = OwnedThread(self._run, name, on_error=on_error, again=True)
        self._next_ms = 0
        self._last_tick_s = 0.0
        self._is_ahead = False

    def first_time(self, origin_ms: int = 0, after_ms: int | None = None) -> int:
        """Return the first time after now that is a multiple of the period from `origin_ms` on.

        Args:
            origin_ms: See above.
            after_ms: It is also after this time, which is later than now where wall time was set
                back.
        """
        now_ms = self._clock.time_ms()
        if after_ms is not None:
            now_ms = max(now_ms, after_ms)
        return next_multiple(now_ms - origin_ms, self._period_ms) + origin_ms

    def start(self, first_ms: int) -> None:
        """Begin to call back, at `first_ms` first."""
        self._next_ms = first_ms
        self._last_tick_s = self._clock.monotonic_s()
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Call back no more; wait for a callback that runs now."""
        self._stopping.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            ahead_ms = self._next_ms - self._clock.time_ms()
            now_s = self._clock.monotonic_s()
            if ahead_ms > 0:
                latest_s = self._last_tick_s + 2 * self._period_ms / 1000
                wait_s = min(ahead_ms / 1000, latest_s - now_s)
                if wait_s > 0:
                    if self._clock.wait(self._stopping, wait_s):
                        return
                    continue
            if self._stopping.is_set():
                return
            self._last_tick_s = now_s
            self._tell_if_ahead(ahead_ms)
            time_ms = self._next_ms
            self._next_ms += self._period_ms
            self._callback(time_ms)

    def _tell_if_ahead(self, ahead_ms: int) -> None:
        if ahead_ms > 0 and not self._is_ahead:
            _log.warning(
                "Batch times are %.1f s ahead of the clock, which was set back; there is one every "
                "%.1f s until it has caught up, for about %.0f s",
                ahead_ms / 1000,
                2 * self._period_ms / 1000,
                2 * ahead_ms / 1000,
            )
        elif ahead_ms <= 0 and self._is_ahead:
            _log.info("The clock has caught up with the batch times")
        self._is_ahead = ahead_ms > 0
