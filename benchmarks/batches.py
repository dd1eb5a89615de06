"""Completed batches as the programs tell of them, and the steady part of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Batch", "Steady", "TooFewBatchesError", "quantile", "steady_part"]

_FEWEST = 3


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
