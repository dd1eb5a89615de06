"""`Trend`: how a receiver has been in the last minutes, which no single look tells."""

from __future__ import annotations

from collections import deque

from penstock.monitor.records import Lately

STOPS_S = 600
DISCARDS_S = 300
LAG_S = 60
"""A lag grows when all of it that was seen for so long is above all that was seen for as long
before."""
_STEP_S = 5
_STOPS = 1_000
"""Stops that are counted at most."""


class Trend:
    """Remembers a receiver's stops, discards and lag for some minutes. Not for several threads."""

    def __init__(self) -> None:
        self._stops: deque[int] = deque(maxlen=_STOPS)
        self._discards: deque[tuple[int, int]] = deque([(0, 0)])
        self._lags: deque[tuple[int, int]] = deque()

    def stopped(self, at_s: int) -> None:
        """Take note that it stopped."""
        self._stops.append(at_s)

    def look(self, at_s: int, discarded: int, lag: int | None) -> Lately:
        """Take note of how it is, once a second, and return how it has been.

        Args:
            at_s: When, seconds since the epoch.
            discarded: How many records it discarded in this run.
            lag: How many records its source has that are not stored; None: that is not known.
        """
        while self._stops and self._stops[0] <= at_s - STOPS_S:
            self._stops.popleft()
        # The last of those that are older stays: from it on is counted.
        _add(self._discards, at_s, discarded)
        while len(self._discards) > 1 and self._discards[1][0] <= at_s - DISCARDS_S:
            self._discards.popleft()
        if lag is not None:
            _add(self._lags, at_s, lag)
        while self._lags and self._lags[0][0] <= at_s - 2 * LAG_S:
            self._lags.popleft()
        return Lately(
            len(self._stops), max(0, discarded - self._discards[0][1]), lag, self._before(at_s)
        )

    def _before(self, at_s: int) -> int | None:
        since_s = at_s - LAG_S
        old = [lag for taken_s, lag in self._lags if taken_s <= since_s]
        new = [lag for taken_s, lag in self._lags if taken_s > since_s]
        is_long = bool(old) and self._lags[0][0] <= at_s - 2 * LAG_S + 2 * _STEP_S
        return max(old) if is_long and new and min(new) > max(old) else None


def _add(points: deque[tuple[int, int]], at_s: int, value: int) -> None:
    if not points or at_s >= points[-1][0] + _STEP_S:
        points.append((at_s, value))
