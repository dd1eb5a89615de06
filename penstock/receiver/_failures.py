"""`Failures`: what a receiver fails of again and again, and when that is enough."""

from __future__ import annotations

from penstock.receiver.block_generator import PositionTooLargeError, PositionTypeError

__all__ = ["Failures"]

_HOPELESS = (ImportError, NameError, SyntaxError, TypeError, AttributeError)
"""Before the first record these are mistakes in the program: the next start ends the same way."""
_BUGS = (*_HOPELESS, ArithmeticError, AssertionError, LookupError, ValueError)
"""What points to a mistake in the program. Anything else may come from a source that is down or
sends nonsense, for any length of time."""

_REFUSED = (PositionTooLargeError, PositionTypeError)
"""A source that begins after the last position that was accepted gives the refused one again: the
second time in a row nothing but the program's change can help. (Others may go on with the next.)"""

_DOUBLINGS = 16


class Failures:
    """Counts bugs between which no record was stored. Used by the supervisor's thread only.

    Args:
        most: After so many bugs in a row it is enough.
        max_delay_ms: The longest pause.
    """

    def __init__(self, most: int, max_delay_ms: int) -> None:
        self._most = most
        self._max_delay_ms = max_delay_ms
        self._records = -1
        self._count = 0

    def note(self, error: BaseException, records: int) -> None:
        """Take note of a failure, after so many stored records."""
        if not isinstance(error, _BUGS):
            self._count = 0
        else:
            self._count = self._count + 1 if records == self._records else 1
        self._records = records

    @property
    def count(self) -> int:
        """How many in a row there were."""
        return self._count

    def delay_ms(self, delay_ms: int) -> int:
        """Return the pause before the next start: it doubles with each bug in a row."""
        grown = delay_ms << min(max(0, self._count - 1), _DOUBLINGS)
        return max(delay_ms, min(grown, self._max_delay_ms))

    def is_enough(self, error: BaseException, *, is_new: bool) -> bool:
        """Tell whether there is no point in another start.

        Args:
            error: The last failure.
            is_new: The stream has no record yet.
        """
        if is_new and isinstance(error, _HOPELESS):
            return True
        most = min(self._most, 2) if isinstance(error, _REFUSED) else self._most
        return isinstance(error, _BUGS) and self._count >= most
