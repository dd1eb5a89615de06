"""When a receiver that died is started again: at once the first time, then ever later."""

from __future__ import annotations

import random

__all__ = ["BASE_DELAY_S", "RestartBackoff"]

BASE_DELAY_S = 0.5
"""The shortest time between two starts after the first restart."""


class RestartBackoff:
    """The pauses before the restarts of one receiver. Used by one thread.

    The first restart is immediate. After that two starts are a distance apart, which is drawn
    between 0.5 s and three times the one before, up to the maximum: "decorrelated jitter" (M.
    Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015), which about doubles it
    and keeps receivers that died together from coming back together. So one that fails at once
    waits ever longer, and one that ran for longer than that and lost its executor does not wait.
    A good run starts it all over.
    """

    def __init__(
        self, max_delay_s: float, reset_s: float, *, chance: random.Random | None = None
    ) -> None:
        """Make the pauses.

        Args:
            max_delay_s: The longest distance between two starts.
            reset_s: A run of this length counts as good.
            chance: Where the jitter comes from.
        """
        self._max_delay_s = max_delay_s
        self._reset_s = reset_s
        self._chance = chance or random.Random()
        self._last_s: float | None = None

    def next_delay_s(self, ran_s: float) -> float:
        """Return the pause before the next start, after a run of `ran_s` seconds."""
        if ran_s >= self._reset_s:
            self._last_s = None
        if self._last_s is None:
            self._last_s = 0.0
            return 0.0
        high = max(BASE_DELAY_S, 3 * max(self._last_s, BASE_DELAY_S))
        self._last_s = min(self._max_delay_s, self._chance.uniform(BASE_DELAY_S, high))
        return max(0.0, self._last_s - ran_s)
