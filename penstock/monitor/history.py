"""`History`: some figures over time, in memory that does not grow.

Two rings of rows, one a second for ten minutes and one for every ten seconds of a day. The row of
ten seconds is the mean of what came in them. Pages that no row has touched yet take no memory.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.monitor.records import Lately

FINE_S = 1
FINE_POINTS = 600
COARSE_S = 10
COARSE_POINTS = 8640

_NEVER = -1
_DECIMALS = 3
_AT_ONCE = 8192
"""Rows that are made points at a time: of many streams for a few seconds, or of one for a day."""


@dataclass(frozen=True)
class Point:
    """Figures of one moment.

    Attributes:
        at_s: The moment at which its second, or its ten seconds, began; seconds since the epoch.
        values: A figure for each name of the history; None where none was known.
    """

    at_s: int
    values: tuple[float | None, ...]


class History:
    """The figures of a few names over a day. Not for several threads at once.

    Args:
        names: What the figures are.
        dtype: How they are kept: numbers as ``float32``, percentages as ``uint8``.
    """

    def __init__(self, names: Sequence[str], dtype: str = "float32") -> None:
        self.names = tuple(names)
        self._fine = _Ring(FINE_S, FINE_POINTS, len(self.names), dtype)
        self._coarse = _Ring(COARSE_S, COARSE_POINTS, len(self.names), dtype)

    def add(self, at_s: int, values: Sequence[float | None]) -> None:
        """Take the figures of a second; what came for it before is then part of the mean.

        A time before the last one, as after the clock was set back, replaces what the ring had for
        it.
        """
        row = np.array([np.nan if value is None else value for value in values], np.float64)
        self._fine.add(at_s, row)
        self._coarse.add(at_s, row)

    def points(self, since_s: int, until_s: int, step_s: int = FINE_S) -> list[Point]:
        """Return what is known from one moment to another: by seconds where the ring has all of it.

        Args:
            since_s: Seconds since the epoch.
            until_s: The same; its own second is included.
            step_s: Each point is the mean of that many seconds, counted from the epoch.
        """
        (found,) = points_of([self], since_s, until_s, step_s, contextlib.nullcontext())
        return found

    def ring(self, *, is_fine: bool) -> _Ring:
        """Return the figures by the second, or by ten seconds."""
        return self._fine if is_fine else self._coarse


def points_of(
    histories: Sequence[History],
    since_s: int,
    until_s: int,
    step_s: int,
    lock: contextlib.AbstractContextManager[object],
) -> list[list[Point]]:
    """Return what `History.points` does of each of several histories with the same names.

    Those of many streams are asked for every second: together they take a fraction of the time.

    Args:
        histories: Which.
        since_s: As of `History.points`.
        until_s: The same.
        step_s: The same.
        lock: Held while what they have is copied, of some at a time.
    """
    is_fine = until_s - since_s <= FINE_S * FINE_POINTS and step_s < COARSE_S
    rings = [history.ring(is_fine=is_fine) for history in histories]
    if not rings:
        return []
    starts = _Ring.starts(rings, since_s, until_s)
    if not len(starts):
        return [[] for _ in rings]
    some = max(1, _AT_ONCE // len(starts))
    found: list[list[Point]] = []
    for at in range(0, len(rings), some):
        found += _Ring.points(rings[at : at + some], starts, step_s, lock)
    return found


class _Ring:
    def __init__(self, step_s: int, size: int, width: int, dtype: str) -> None:
        self._step_s = step_s
        self._size = size
        self._starts = np.full(size, _NEVER, np.int64)
        self._newest_s = _NEVER
        self._is_whole = np.issubdtype(np.dtype(dtype), np.integer)
        self._none = np.iinfo(dtype).max if self._is_whole else np.nan
        self._rows: npt.NDArray[np.generic] = np.empty((size, width), dtype)
        # Of the row that is being filled.
        self._start_s = _NEVER
        self._sums = np.zeros(width)
        self._counts = np.zeros(width, np.int64)

    def add(self, at_s: int, row: npt.NDArray[np.float64]) -> None:
        start_s = at_s // self._step_s * self._step_s
        if start_s != self._start_s:
            self._start_s = start_s
            self._sums[:] = 0
            self._counts[:] = 0
        known = ~np.isnan(row)
        self._sums[known] += row[known]
        self._counts[known] += 1
        mean = np.full(len(row), self._none, np.float64)
        np.divide(self._sums, self._counts, out=mean, where=self._counts > 0)
        place = start_s // self._step_s % self._size
        self._starts[place] = start_s
        self._newest_s = max(self._newest_s, start_s)
        self._rows[place] = np.rint(mean) if self._is_whole else mean

    @staticmethod
    def starts(rings: Sequence[_Ring], since_s: int, until_s: int) -> npt.NDArray[np.int64]:
        """Return the times for which rings of one kind may have rows."""
        step_s = rings[0]._step_s
        last_s = min(until_s, max(ring._newest_s for ring in rings))
        oldest_s = (last_s // step_s - rings[0]._size + 1) * step_s
        return np.arange(max(-(-since_s // step_s) * step_s, oldest_s), last_s + 1, step_s)

    @staticmethod
    def points(
        rings: Sequence[_Ring],
        starts: npt.NDArray[np.int64],
        step_s: int,
        lock: contextlib.AbstractContextManager[object],
    ) -> list[list[Point]]:
        """Return the points of rings of one kind, of what they have of some times."""
        first = rings[0]
        places = starts // first._step_s % first._size
        with lock:
            is_there = np.stack([ring._starts[places] for ring in rings]) == starts
            rows = np.stack([ring._rows[places] for ring in rings])
        rows[~is_there] = first._none
        found = rows.astype(np.float64)
        if first._is_whole:
            found[found == first._none] = np.nan
        if step_s > first._step_s:
            starts = starts // step_s * step_s
            firsts = np.flatnonzero(np.diff(starts, prepend=_NEVER))
            starts, found = starts[firsts], _means(found, firsts)
            is_there = np.logical_or.reduceat(is_there, firsts, axis=1)
        # All of it at once: one by one, the figures of many streams would take seconds.
        told = np.round(found, _DECIMALS).astype(object)
        told[np.isnan(found)] = None
        times = starts.tolist()
        return [
            [
                Point(at_s, tuple(row))
                for at_s, row, is_one in zip(times, *of_one, strict=True)
                if is_one
            ]
            for of_one in zip(told.tolist(), is_there.tolist(), strict=True)
        ]


def _means(rows: npt.NDArray[np.float64], firsts: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    known = ~np.isnan(rows)
    sums = np.add.reduceat(np.where(known, rows, 0.0), firsts, axis=1)
    counts = np.add.reduceat(known.astype(np.int64), firsts, axis=1)
    means = np.full(sums.shape, np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return means


STOPS_S = 600
DISCARDS_S = 300
LAG_S = 60
"""A lag grows when all of it seen for this long is above all that was seen for as long before."""
_STEP_S = 5
_STOPS = 1_000
"""Stops that are counted at most."""


class Trend:
    """Remembers a receiver's stops, discards and lag for some minutes. Not for several threads."""

    def __init__(self) -> None:
        self._stops: deque[int] = deque(maxlen=_STOPS)
        self._discards: deque[tuple[int, int]] = deque([(0, 0)])
        self._drops: deque[tuple[int, int]] = deque([(0, 0)])
        self._lags: deque[tuple[int, int]] = deque()

    def stopped(self, at_s: int) -> None:
        """Take note that it stopped."""
        self._stops.append(at_s)

    def look(self, at_s: int, discarded: int, lag: int | None, dropped: int = 0) -> Lately:
        """Take note of how it is, once a second, and return how it has been.

        Args:
            at_s: When, seconds since the epoch.
            discarded: How many records it discarded in this run.
            lag: How many records its source has that are not stored; None: that is not known.
            dropped: How many records it dropped in this run.
        """
        while self._stops and self._stops[0] <= at_s - STOPS_S:
            self._stops.popleft()
        if lag is not None:
            _add(self._lags, at_s, lag)
        while self._lags and self._lags[0][0] <= at_s - 2 * LAG_S:
            self._lags.popleft()
        return Lately(
            len(self._stops),
            _lately(self._discards, at_s, discarded),
            lag,
            self._before(at_s),
            _lately(self._drops, at_s, dropped),
        )

    def _before(self, at_s: int) -> int | None:
        since_s = at_s - LAG_S
        old = [lag for taken_s, lag in self._lags if taken_s <= since_s]
        new = [lag for taken_s, lag in self._lags if taken_s > since_s]
        is_long = bool(old) and self._lags[0][0] <= at_s - 2 * LAG_S + 2 * _STEP_S
        return max(old) if is_long and new and min(new) > max(old) else None


def _lately(points: deque[tuple[int, int]], at_s: int, count: int) -> int:
    """Take note of a count that only grows, and return by how much it grew lately."""
    _add(points, at_s, count)
    # The last of those that are older stays: from it on is counted.
    while len(points) > 1 and points[1][0] <= at_s - DISCARDS_S:
        points.popleft()
    return max(0, count - points[0][1])


def _add(points: deque[tuple[int, int]], at_s: int, value: int) -> None:
    if not points or at_s >= points[-1][0] + _STEP_S:
        points.append((at_s, value))
