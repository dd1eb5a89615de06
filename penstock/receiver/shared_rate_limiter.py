"""`SharedRateLimiter`: a receiver's own limits, and one that it shares with other applications."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import replace

from penstock.receiver.rate_limiter import RateLimiter, RateLimiterStatistics
from penstock.receiver.shared_rate import SharedRate

__all__ = ["SharedRateLimiter"]


class SharedRateLimiter(RateLimiter):
    """A `RateLimiter` whose permits are also taken from a `SharedRate`, the last.

    Attributes:
        shared: The shared rate; None until it is set, which is before the first lease.
    """

    shared: SharedRate | None = None

    def lease(
        self,
        wanted: int,
        timeout_s: float | None = None,
        *,
        in_hand: int = 1,
        lessee: Hashable = None,
    ) -> int:
        """See `RateLimiter.lease`; leases in advance are small, as shared permits do not keep."""
        shared = self.shared
        if shared is None:
            return super().lease(wanted, timeout_s, in_hand=in_hand, lessee=lessee)
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        most = min(wanted, max(in_hand, shared.most_in_hand))
        granted = super().lease(most, timeout_s, in_hand=in_hand, lessee=lessee)
        if not granted:
            return 0
        passed = 0
        try:
            left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
            passed = shared.take(granted, left_s)
        finally:
            if passed < granted:
                self.give_back(granted - passed, lessee=lessee)
        return passed

    def stop(self) -> None:
        """See `RateLimiter.stop`."""
        super().stop()
        if self.shared is not None:
            self.shared.stop()

    def statistics(self) -> RateLimiterStatistics:
        """See `RateLimiter.statistics`; threads that wait for the shared rate are counted, too."""
        own = super().statistics()
        if self.shared is None:
            return own
        return replace(
            own,
            waiting=own.waiting + self.shared.waiting,
            waited_for_shared_rate_s=self.shared.waits.read(),
        )
