"""What a process learns of the DataNodes: how long writes may take, how new files fare."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

_FIRST_LIMIT_S = 8.0
_LONGEST_LIMIT_S = 60.0
_FEWER_COPIES_S = 60.0


class WriteLimit:
    """How long the DataNodes may take for a write, besides the time for its bytes.

    It is short, so that a DataNode that dies holds no one up for long. Where it was too short, as
    on disks that are too busy, it grows until writes keep it, and shrinks again when they are
    quick. The files of a process share one.

    Attributes:
        now_s: The limit, in seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now_s = _FIRST_LIMIT_S

    def passed(self, limit_s: float) -> None:
        """Take note of a write that took longer than this limit."""
        with self._lock:
            # Of several that waited for the same DataNode one counts.
            self.now_s = max(self.now_s, min(2 * limit_s, _LONGEST_LIMIT_S))

    def kept(self, took_s: float) -> None:
        """Take note of how long a write took."""
        if self.now_s > _FIRST_LIMIT_S and took_s < self.now_s / 4:
            with self._lock:
                self.now_s = max(self.now_s / 2, _FIRST_LIMIT_S)


class NewFiles:
    """How new files fare: whether the DataNodes that the NameNode gives out for them take them.

    The NameNode gives out a dead DataNode until it misses it, which takes ten minutes by default,
    and the client cannot tell it which one to leave out. Of fewer it may be none. One lock guards
    all.

    Args:
        clock: Returns the time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = 0
        self._last_s = -math.inf

    def failed(self) -> None:
        """Take note of a file that the DataNodes did not take."""
        with self._lock:
            self._failed += 1
            self._last_s = self._clock()

    def began(self) -> None:
        """Take note of a file that was taken with all its copies."""
        with self._lock:
            self._failed = 0

    @property
    def copies_left_out(self) -> int:
        """How many copies fewer the next file should begin with."""
        with self._lock:
            is_recent = self._clock() - self._last_s < _FEWER_COPIES_S
            return self._failed // 2 if is_recent else 0
