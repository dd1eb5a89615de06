"""Which block numbers of one receiver attempt are in the ledger.

An attempt numbers its blocks upwards, one by one, from the number it was given. So "is this block
known?" needs no set of ids, only the next number and the gaps that were jumped over. That is what
makes `AddBlock` idempotent at no cost (I2), also for blocks that were released long ago.
"""

from __future__ import annotations

from penstock.tracker.errors import LedgerError
from penstock.tracker.ledger.events import GapState

NUMBER_BITS = 32
"""An attempt's numbers are its counter, shifted by this many bits, plus 0, 1, 2, …"""

MAXIMUM_GAPS = 1024
"""Numbers are meant to be consecutive; more gaps than this are a broken receiver, not bad luck."""


class BlockNumbers:
    """The numbers of one attempt. Not locked: belongs to the ledger's state.

    Attributes:
        next: The lowest number above every accepted one.
        gaps: Numbers below `next` that were never accepted, with the segments they may be in.
    """

    __slots__ = ("gaps", "next")

    def __init__(self, next_number: int, gaps: tuple[GapState, ...] = ()) -> None:
        self.next = next_number
        self.gaps = gaps

    @classmethod
    def first_number(cls, counter: int) -> int:
        """Return the first block number of the attempt with this counter."""
        return counter << NUMBER_BITS

    def copy(self) -> BlockNumbers:
        """Return numbers that can be changed without changing these."""
        return BlockNumbers(self.next, self.gaps)

    def is_known(self, number: int) -> bool:
        """Return whether the number was accepted before."""
        if number >= self.next:
            return False
        return not any(gap.first <= number <= gap.last for gap in self.gaps)

    def accept(self, number: int, segment: int, newest_segment: int) -> None:
        """Count a number that is not known yet as accepted.

        Args:
            number: The block's number.
            segment: The segment that holds the block, or -1.
            newest_segment: The highest segment of the blocks accepted before, or -1.

        Raises:
            LedgerError: When the attempt has jumped over numbers too often.
        """
        if number == self.next:
            self.next = number + 1
            return
        if number > self.next:
            if len(self.gaps) >= MAXIMUM_GAPS:
                raise LedgerError(
                    f"block number {number} leaves out {self.next} to {number - 1}, and "
                    f"{MAXIMUM_GAPS} such gaps are open already: an attempt must number its "
                    f"blocks one by one"
                )
            self.gaps += (GapState(self.next, number - 1, newest_segment, segment),)
            self.next = number + 1
            return
        self.gaps = tuple(
            piece
            for gap in self.gaps
            for piece in (
                _split(gap, number, segment) if gap.first <= number <= gap.last else (gap,)
            )
        )

    def may_lie_in(self, segment: int) -> bool:
        """Return whether a block that is still missing may be in this segment."""
        return any(gap.segment_low <= segment <= gap.segment_high for gap in self.gaps)


def _split(gap: GapState, number: int, segment: int) -> tuple[GapState, ...]:
    low = GapState(gap.first, number - 1, gap.segment_low, segment)
    high = GapState(number + 1, gap.last, segment, gap.segment_high)
    return tuple(piece for piece in (low, high) if piece.first <= piece.last)
