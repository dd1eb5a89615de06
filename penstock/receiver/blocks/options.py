"""How blocks are made, and what becomes of records for which there is no room."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.settings.values import RecordBudget


class WhenFull(enum.Enum):
    """What becomes of records that come faster than they pass. Names are read in any case."""

    BLOCK = "block"
    DROP_NEW = "dropNew"
    DROP_OLD = "dropOld"
    SPILL = "spill"

    @classmethod
    def _missing_(cls, value: object) -> WhenFull | None:
        known = {policy.value.lower(): policy for policy in cls}
        return known.get(value.strip().lower()) if isinstance(value, str) else None

    @property
    def drops(self) -> bool:
        """Whether records may be lost by it."""
        return self in (WhenFull.DROP_NEW, WhenFull.DROP_OLD)


@dataclass(frozen=True)
class BlockGeneratorOptions:
    """How blocks are made.

    Attributes:
        first_block_number: Block ids count up from here.
        block_interval_s: Seconds after which the open block is sealed.
        queue_size: Sealed blocks that may wait for the log, and again for the tracker.
        schema: Arrow schema of the records, or None.
        position_bytes: How large a position may be.
        splits: Those whose places positions are; None: they are not of splits.
        report_bytes: How large the blocks' metadata of one report to the tracker may be.
        validate: Says which records are discarded, see `Receiver.validate`; None: none.
        dead_letter_budget: How much may be discarded until `on_error` gets a
            `DeadLetterBudgetError`, or None.
        pauses_over_budget: Whether that error is to pause the stream; else it ends the receiver.
        trace_every: One block in this many is traced; 0: none.
        when_full: What becomes of records that come faster than they pass.
        waiting_bytes: How many bytes of them may wait, unless it is `store` that waits.
        seals_early: Whether the open block is sealed as soon as those before it are reported.
        one_thread: Whether one thread does all for the blocks; not with `seals_early`.
    """

    first_block_number: int = 0
    block_interval_s: float = 0.2
    queue_size: int = 10
    schema: pa.Schema | None = None
    validate: Callable[[Any], Any] | None = None
    position_bytes: int = 64 << 10
    splits: frozenset[str] | None = None
    report_bytes: int = 1 << 20
    dead_letter_budget: RecordBudget | None = None
    pauses_over_budget: bool = False
    trace_every: int = 0
    when_full: WhenFull = WhenFull.BLOCK
    waiting_bytes: int = 8 << 20
    seals_early: bool = False
    one_thread: bool = False
