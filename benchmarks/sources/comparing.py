"""A receiver beside a bare loop of its client: how both are timed, and what is printed."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.testing import run_receiver

_BOUND_S = 1800.0


def received_s(
    receiver: object, count: int, *, until: Callable[[], object] = lambda: None
) -> float:
    """Return the seconds in which a receiver has stored so many records.

    Args:
        receiver: It is started within that time.
        count: How many records its source gives.
        until: Waits for what belongs to it after the last record, such as its acknowledgement.
    """
    began_s = time.perf_counter()
    with run_receiver(receiver) as running:
        # Not by the records themselves, which would be read back each time.
        running._wait_for(lambda: running._driver.count >= count, _BOUND_S, "last record")
        until()
        return time.perf_counter() - began_s


def show(case: str, count: int, bare_s: float, ours_s: float) -> None:
    """Print how many records a second the bare loop and the receiver took, and the ratio."""
    print(
        f"{case}: bare {count / bare_s:,.0f}/s, "
        f"received {count / ours_s:,.0f}/s ({bare_s / ours_s:.2f})",
        flush=True,
    )
