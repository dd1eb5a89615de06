"""A day of the tracker with 64 receivers and 2,000 blocks a batch: memory, log and allocation."""

from __future__ import annotations

import gc
import json
import re
import shutil
import sys
import tempfile
import tracemalloc
from pathlib import Path
from statistics import median

from benchmarks.programs._program import tell
from benchmarks.programs._simulated_day import SimulatedDay

HOURS = 24
RECEIVERS = 64
EXECUTORS = 8
BLOCKS = 2000
BATCH_S = 30
BATCHES_PER_HOUR = 3600 // BATCH_S
TRACED = range(2, 8)
"""Hours in which Python's objects are traced: that takes three times as long."""
MIB = 1 << 20


def memory_mib():
    found = re.search(r"^RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) / 1024


def main():
    folder = tempfile.mkdtemp(prefix="tracker-day-", dir=json.loads(sys.argv[1])["folder"])
    try:
        with SimulatedDay(
            folder,
            receivers=RECEIVERS,
            executors=EXECUTORS,
            blocks_per_batch=BLOCKS,
            batch_s=BATCH_S,
        ) as day:
            tell(measure(day))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(day):
    """Run the day.

    The number of Python's objects is known for nothing, after each hour. What they take is traced
    for some hours only; the times are those of hours in which nothing is traced.
    """
    memory, objects, traced = [], [], []
    for hour in range(1, HOURS + 1):
        if hour == TRACED.start:
            tracemalloc.start()
        day.batches(BATCHES_PER_HOUR)
        day.lose_executor(hour)
        gc.collect()
        memory.append(memory_mib())
        objects.append(sys.getallocatedblocks())
        if tracemalloc.is_tracing():
            traced.append(tracemalloc.get_traced_memory()[0] / MIB)
        if hour == TRACED[-1]:
            tracemalloc.stop()
        tell({"progress": f"hour {hour}, {memory[-1]:.0f} MiB, {objects[-1]:,} objects"})
    first, last = day.allocation_s[:BATCHES_PER_HOUR], day.allocation_s[-BATCHES_PER_HOUR:]
    figures = {
        "memory_growth_mib": memory[-1] - memory[0],
        "traced_growth_mib": traced[-1] - traced[0],
        "objects_growth": objects[-1] / objects[0] - 1,
        "memory_mib": memory[-1],
        "most_log_mib": day.most_log_bytes / MIB,
        "most_log_files": day.most_log_files,
        "allocation_ms": median(last) * 1000,
        "longest_allocation_ms": max(last) * 1000,
        "allocation_us_per_block": median(last) / BLOCKS * 1e6,
        "allocation_ms_first_hour": median(first) * 1000,
        "blocks": day.blocks,
        "attempts_known": len(day.tracker.ledger.attempts),
    }
    notes = {
        "blocks": f"{day.blocks:,} in {len(day.allocation_s):,} batches",
        "memory after hours 1, 2, 12 and 24, MiB": ", ".join(
            f"{memory[hour - 1]:.1f}" for hour in (1, 2, 12, 24)
        ),
        "objects after hours 1, 2, 12 and 24": ", ".join(
            f"{objects[hour - 1]:,}" for hour in (1, 2, 12, 24)
        ),
        f"traced at the ends of hours {TRACED[0]} to {TRACED[-1]}, MiB": ", ".join(
            f"{mib:.2f}" for mib in traced
        ),
        "receivers started again": str(day.removed),
    }
    return {"figures": figures, "notes": notes}


if __name__ == "__main__":
    main()
