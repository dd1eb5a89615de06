"""`Delays`: how often something took how long, since the start."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 900.0, 3600.0),
)
"""The upper bounds of the buckets, in seconds; the last one has none."""


class Delays:
    """A histogram with fixed bounds. Not for several threads at once.

    Attributes:
        sum_s: All of it together, in seconds.
    """

    def __init__(self) -> None:
        self.sum_s = 0.0
        self._counts = [0] * (len(BOUNDS_S) + 1)

    def add(self, duration_ms: int | None) -> None:
        """Count a duration; one that is not known is none."""
        if duration_ms is None:
            return
        duration_s = max(0.0, duration_ms / 1000)
        self.sum_s += duration_s
        self._counts[bisect_left(BOUNDS_S, duration_s)] += 1

    def copy(self) -> Delays:
        """Return one that does not change any more."""
        found = Delays()
        found.sum_s = self.sum_s
        found._counts = list(self._counts)
        return found

    def buckets(self) -> list[tuple[str, float]]:
        """Return how many took at most each bound, as Prometheus writes it."""
        found: list[tuple[str, float]] = []
        count = 0
        for bound, more in zip((*BOUNDS_S, None), self._counts, strict=True):
            count += more
            found.append(("+Inf" if bound is None else str(bound), count))
        return found
