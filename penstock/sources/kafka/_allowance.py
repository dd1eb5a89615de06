"""How many records a rate allows a batch, and each of its partitions, in whole records.

A rate is a real number, and so is each partition's part of it. Rounded by partition and batch, a
hundred partitions could take twice what was asked, or nothing at all. So a batch is allowed what
the rate allows until its time, less what it allowed until the time of the one before; and of that
the partitions get the whole parts, and those with the largest fractions one more (the
largest-remainder method). Both depend on nothing but their arguments: nothing has to be remembered
over a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeVar

_Key = TypeVar("_Key")


def allowed(rate: float, time_ms: int, span_ms: int) -> int:
    """Return the records that a batch may take; the sum over batches is exact to one record.

    Args:
        rate: Records per second.
        time_ms: The batch's time.
        span_ms: The time since the batch before.
    """
    per_ms = Fraction(rate) / 1000
    return int(per_ms * time_ms) - int(per_ms * (time_ms - span_ms))


def divided(total: int, lags: Mapping[_Key, int]) -> dict[_Key, int]:
    """Divide a number of records in proportion to what there is to catch up on.

    Args:
        total: The records.
        lags: What each partition has; at least one has something.

    Returns:
        What each may take. The sum is `total`.
    """
    whole = sum(lags.values())
    shares = {each: divmod(total * lag, whole) for each, lag in lags.items()}
    left = total - sum(share for share, _ in shares.values())
    by_rest = sorted(shares, key=lambda each: shares[each][1], reverse=True)
    more = set(by_rest[:left])
    return {each: share + (each in more) for each, (share, _) in shares.items()}
