"""The pauses between tries: each twice the one before, up to a longest."""

from __future__ import annotations


class Backoff:
    """The pauses of one thread that tries something again. It waits itself, as it has to."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        """Begin with the first pause.

        Args:
            first_s: The first pause, in seconds.
            longest_s: The longest one.
        """
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def next_s(self) -> float:
        """Return how long to wait before the next try, in seconds."""
        pause_s = self._next_s
        self._next_s = min(self._longest_s, 2 * pause_s)
        return pause_s

    def reset(self) -> None:
        """Begin again with the first pause: something has changed."""
        self._next_s = self._first_s
