"""The batch times that have come and whose batches are not made yet."""

from __future__ import annotations

import threading
from collections import deque


class DueTimes:
    """Times in order, kept as runs of one a period: hours of them take no room.

    Any thread may call; one lock guards the runs.

    Args:
        period_ms: The time between two that follow each other.
    """

    def __init__(self, period_ms: int) -> None:
        self._period_ms = period_ms
        self._lock = threading.Lock()
        self._runs: deque[range] = deque()

    def add(self, time_ms: int) -> None:
        """Take a time that has come; it is the last one."""
        with self._lock:
            end_ms = time_ms + self._period_ms
            if self._runs and self._runs[-1].stop == time_ms:
                self._runs[-1] = range(self._runs[-1].start, end_ms, self._period_ms)
            else:
                self._runs.append(range(time_ms, end_ms, self._period_ms))

    def pop(self) -> int | None:
        """Return the first time and forget it; None when there is none."""
        with self._lock:
            if not self._runs:
                return None
            run = self._runs.popleft()
            if len(run) > 1:
                self._runs.appendleft(run[1:])
            return run.start

    def put_back(self, time_ms: int) -> None:
        """Let a time be the first again that `pop` returned last."""
        with self._lock:
            self._runs.appendleft(range(time_ms, time_ms + self._period_ms, self._period_ms))

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._runs.clear()

    def __len__(self) -> int:
        with self._lock:
            return sum(len(run) for run in self._runs)
