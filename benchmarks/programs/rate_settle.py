"""From a cold start to the speed that the batches can do: how soon, with how much queued up.

The batch function takes exactly records / speed, so what is best is known; the source has four
times as much. Settled is the stream when three batches on end are, on average over three, within
5 % of the speed, and none of them waits for an interval or more.
"""

from __future__ import annotations

import os
import sys

from benchmarks.programs._backpressure import observe
from benchmarks.programs._program import tell

SPEED = 20_000
SOURCE_PER_S = 80_000
SECONDS = 100.0
BATCH_S = 1.0
_NEAR = 0.05
_STEADY = 3


def settle_s(batches):
    """Return when it was settled, in seconds since the first batch; None when it never was."""
    for place in range(len(batches) - 2 * _STEADY + 1):
        starts = range(place, place + _STEADY)
        windows = [batches[start : start + _STEADY] for start in starts]
        means = [sum(found.records for found in window) / _STEADY for window in windows]
        near = all(abs(mean / BATCH_S / SPEED - 1) <= _NEAR for mean in means)
        on_time = all(
            found.waited_s is not None and found.waited_s < BATCH_S
            for window in windows
            for found in window
        )
        if near and on_time:
            return batches[place].at_s
    return None


def queued(batches):
    """Return the most records that waited, at any batch's time: its own, and of those before it.

    Of a batch that runs counts what is left.
    """
    most = 0.0
    for now in batches:
        waiting = (_left(found, now.at_s) for found in batches if found.at_s <= now.at_s)
        most = max(most, sum(waiting))
    return most


def _left(found, at_s):
    if found.took_s is None:
        return found.records
    end_s = found.at_s + found.waited_s + found.took_s
    return found.records * min(1.0, max(0.0, end_s - at_s) / max(found.took_s, 1e-3))


def utilisation(batches, since_s, until_s):
    """Return the records that were done, of those that could be, in a part of the run."""
    done = sum(
        found.records
        for found in batches
        if found.took_s is not None
        and since_s < found.at_s + found.waited_s + found.took_s <= until_s
    )
    return done / SPEED / (until_s - since_s)


def main(side, estimator):
    batches = observe(side, estimator, lambda _: SPEED, source_per_s=SOURCE_PER_S, seconds=SECONDS)
    settled = settle_s(batches)
    last_s = batches[-1].at_s
    figures = {
        # One that never settles counts as long as it was watched.
        "settle_s": SECONDS if settled is None else max(settled, BATCH_S),
        "has_settled": float(settled is not None),
        "queued_batches": queued(batches) / SPEED / BATCH_S,
        "utilisation": utilisation(batches, last_s / 2, last_s),
        "batches": len(batches),
    }
    notes = {"records": [found.records for found in batches]}
    tell({"figures": figures, "notes": notes})
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main("penstock", "pid")
