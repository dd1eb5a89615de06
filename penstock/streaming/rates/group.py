"""`RateGroup`: a total that several streams share, as a program sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.streaming.rates.memory import GroupPlan

if TYPE_CHECKING:
    from penstock.streaming.rates.book import RateBook


@dataclass(frozen=True)
class GroupRate:
    """A group at one moment, in records per second, or in bytes where it divides these.

    Attributes:
        total: What all may take together.
        shares: What each stream may take, by its number; they add up to `total` at most.
        used: What passes in each, from its receiver's reports; streams without one are left out.
    """

    total: float
    shares: Mapping[int, float]
    used: Mapping[int, float]


class RateGroup:
    """A handle on a group of streams; made by `StreamingContext.rateGroup`.

    The driver divides the total again up to ten times a second, by what each receiver uses: who
    does not need its part leaves it to those who wait. The shares that are in force never add up
    to more than the total.
    """

    def __init__(self, book: RateBook, plan: GroupPlan) -> None:
        self._book = book
        self._plan = plan

    @property
    def rate(self) -> GroupRate:
        """The group as it is now."""
        return self._book.group_rate(self._plan)

    def set_rate(self, rate: str | float) -> None:
        """Change the total, also while the context runs.

        Args:
            rate: Such as ``"300000/second"``; a number counts records per second, or bytes.

        Raises:
            ValueError: It is not one rate above 0.
        """
        self._book.set_group_rate(self._plan, rate)
