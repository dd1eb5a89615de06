"""`StopReport`: what a stop gave up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.host.terminal import SHOWN_STREAMS, some_of


@dataclass(frozen=True)
class GivenUpBatch:
    """A batch that was made and whose output operations have not all run to their end.

    Attributes:
        time_ms: The batch time.
        records: How many records each stream has in it, where it is known.
    """

    time_ms: int
    records: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StopReport:
    """What `StreamingContext.stop` gave up; nothing, if all went well.

    Attributes:
        graceful: Whether the stop was to process everything first.
        given_up: The batches that were not processed to the end.
        batches_not_made: How many batch times had come whose batches were not made.
        waiting_records: How many records of each stream were stored and are in no batch.
        are_kept: Whether a folder keeps them, so that the next start processes them.
        duration_s: How long the stop took.
        ran_s: How long the context ran, without the stop.
        batches: How many batches were processed to the end.
        failed_batches: In how many of them an output operation failed.
        records: How many records those batches had.
    """

    graceful: bool = False
    given_up: tuple[GivenUpBatch, ...] = ()
    batches_not_made: int = 0
    waiting_records: Mapping[str, int] = field(default_factory=dict)
    are_kept: bool = False
    duration_s: float = 0.0
    ran_s: float = 0.0
    batches: int = 0
    failed_batches: int = 0
    records: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether nothing was given up."""
        return not (self.given_up or self.batches_not_made or self.waiting_records)

    @property
    def summary(self) -> str:
        """What became of everything, in one line."""
        failed = f" ({self.failed_batches:,} with an error)" if self.failed_batches else ""
        given_up = len(self.given_up) + self.batches_not_made
        parts = [
            f"{_count(self.batches, 'batch')}{failed} with {_count(self.records, 'record')} done",
            f"{_count(given_up, 'batch') if given_up else 'none'} given up",
        ]
        waiting = sum(self.waiting_records.values())
        parts.append(f"{_count(waiting, 'record') if waiting else 'no record'} left waiting")
        how = "gracefully" if self.graceful else "at once"
        return (
            f"Stopped {how} after {self.ran_s:,.1f} s, in {self.duration_s:.1f} s: "
            f"{', '.join(parts)}"
        )

    @property
    def given_up_records(self) -> Mapping[str, int]:
        """How many records of each stream are in the batches that were given up."""
        total: Counter[str] = Counter()
        for batch in self.given_up:
            total.update(batch.records)
        return dict(total)

    def __str__(self) -> str:
        if self.is_complete:
            return "The stop gave up nothing"
        parts = []
        if self.given_up or self.batches_not_made:
            count = len(self.given_up) + self.batches_not_made
            what = "batch" if count == 1 else "batches"
            parts.append(f"{count} {what}{self._of_batches()}")
        if self.waiting_records:
            parts.append(f"{_records(self.waiting_records)} that no batch has")
        given_up = f"The stop gave up {' and '.join(parts)}"
        if not (self.are_kept or self._has_records):
            return given_up
        then = (
            "the next start processes them"
            if self.are_kept
            else "they are lost, because no checkpoint directory and no spark.penstock.wal.dir "
            "keeps them"
        )
        return f"{given_up}; {then}"

    @property
    def _has_records(self) -> bool:
        return bool(self.given_up_records or self.batches_not_made or self.waiting_records)

    def _of_batches(self) -> str:
        if self.given_up_records:
            return f" with {_records(self.given_up_records)}"
        if self.batches_not_made:
            return ", whose records are not counted yet"
        # Those of a queue or a folder are known only to the jobs.
        return " without received records"


def _count(count: int, what: str) -> str:
    plural = "es" if what == "batch" else "s"
    return f"{count:,} {what if count == 1 else what + plural}"


def _records(by_stream: Mapping[str, int]) -> str:
    if len(by_stream) > SHOWN_STREAMS:
        return f"{_count(sum(by_stream.values()), 'record')} of {some_of(list(by_stream))}"
    return ", ".join(f"{_count(count, 'record')} of {name}" for name, count in by_stream.items())
