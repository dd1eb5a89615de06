"""Completed batches as the programs tell of them, and the steady part of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "Batch",
    "Steady",
    "TooFewBatchesError",
    "growth",
    "keeps_up",
    "quantile",
    "steady_part",
]

_FEWEST = 3

_BACKLOG_NOISE = 0.02
"""What waits is not the same at the two ends of a window, by about so much of it."""


@dataclass(frozen=True)
class Batch:
    """One batch that ran to its end.

    Attributes:
        time_s: The batch time, in seconds since the epoch.
        records: Records in it.
        begun: When the user's function was called (`time.monotonic`).
        ended: When it returned.
        delay_s: From the batch time to the end.
        latencies_ms: From send to the user's function, for each record that carried its time.
    """

    time_s: float
    records: int
    begun: float
    ended: float
    delay_s: float
    latencies_ms: tuple[float, ...] = ()


class TooFewBatchesError(RuntimeError):
    """Too few batches ended in the window to say anything."""


@dataclass(frozen=True)
class Steady:
    """The batches that count, and the seconds that they stand for.

    The first batch only marks the beginning: its records came before it.
    """

    begin: float
    end: float
    batches: tuple[Batch, ...]

    @property
    def seconds(self) -> float:
        """Wall seconds from the end of the batch before to the end of the last one."""
        return self.end - self.begin

    @property
    def records(self) -> int:
        """Records of the batches."""
        return sum(batch.records for batch in self.batches)

    @property
    def records_per_s(self) -> float:
        """Processed records per wall second."""
        return self.records / self.seconds


def steady_part(batches: Sequence[Batch], begin: float, end: float) -> Steady:
    """Return the batches that ended between two moments.

    Raises:
        TooFewBatchesError: Fewer than three ended there, or they had no records.
    """
    inside = sorted(
        (batch for batch in batches if begin <= batch.ended <= end), key=lambda batch: batch.ended
    )
    if len(inside) < _FEWEST or not any(batch.records for batch in inside[1:]):
        raise TooFewBatchesError(
            f"{len(inside)} batches with {sum(batch.records for batch in inside)} records ended in "
            f"the {end - begin:.0f} s of the window; make it longer with --seconds"
        )
    return Steady(inside[0].ended, inside[-1].ended, tuple(inside[1:]))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` of all values do not exceed (nearest rank)."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    rank = -int(-share * len(ordered) // 1)
    return ordered[max(0, min(len(ordered) - 1, rank - 1))]


def growth(delays: Sequence[float]) -> float:
    """Return how much longer batches took at the end of the window than at its beginning."""
    third = max(1, len(delays) // 3)
    return quantile(delays[-third:], 0.5) - quantile(delays[:third], 0.5)


def keeps_up(
    delays: Sequence[float], backlog_growth_s: float, batch_s: float, seconds: float
) -> bool:
    """Tell whether nothing queues up, in batches or before them.

    Batches end within three intervals, which is what the feeder's bound of records on the way
    allows at most, and no later and later. And what was sent and is not processed, also what still
    waits in sockets and receivers, has not grown by two intervals or more.

    Args:
        delays: Of the batches, from their time to their end.
        backlog_growth_s: By how much what waits has grown, in seconds of the measured rate.
        batch_s: The batch interval.
        seconds: Of the window.
    """
    return (
        quantile(delays, 0.5) < 3 * batch_s
        and growth(delays) < batch_s
        and backlog_growth_s < max(2 * batch_s, _BACKLOG_NOISE * seconds)
    )
