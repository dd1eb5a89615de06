"""An estimator's life: start, step up, step down, a stalled batch, recovery; for `rate_chart`."""

from __future__ import annotations

import json
import os
import sys

from benchmarks.programs._backpressure import observe
from benchmarks.programs._program import tell

__all__ = ["PHASE_S", "STALL_S", "speed"]

PHASE_S = 25.0
STALL_S = 4.0


def speed(at_s):
    """Return what batches can do at a time, in records per second."""
    return (20_000, 40_000, 10_000, 20_000)[min(3, int(at_s / PHASE_S))]


if __name__ == "__main__":
    found = observe(
        "penstock",
        json.loads(sys.argv[1])["estimator"],
        speed,
        source_per_s=100_000,
        seconds=5 * PHASE_S,
        stall=(4 * PHASE_S - 5, STALL_S),
    )
    tell({"series": [batch.as_dict() for batch in found]})
    sys.stdin.read()
    os._exit(0)
