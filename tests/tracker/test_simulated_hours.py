"""Hours of a tracker whose clock is driven by hand: what it holds does not grow.

`python -m benchmarks --case tracker-day` is a whole day with more receivers.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path

import pytest

from benchmarks.programs._simulated_day import REMEMBERED, SimulatedDay
from penstock.tracker.ledger._driver_log import SnapshotRule
from tests.bounds import HANG_S
from tests.tracker.place_cases import Case

RECEIVERS = 16
EXECUTORS = 4
BLOCKS = 64
BATCHES = 60
WAIT_S = HANG_S


@pytest.mark.long
@pytest.mark.slow
def test_neither_objects_nor_the_driver_log_grow_with_time_I7(tmp_path: Path) -> None:
    objects = []
    with SimulatedDay(
        str(tmp_path),
        receivers=RECEIVERS,
        executors=EXECUTORS,
        blocks_per_batch=BLOCKS,
        batch_s=20,
        adds_per_batch=2,
    ) as day:
        for number in range(3):
            day.lose_executor(number)
            day.batches(BATCHES)
            # An attempt ends when its job and its connection are both known to be over.
            end_s = time.monotonic() + WAIT_S
            while len(day.tracker.ledger.attempts) > RECEIVERS:
                assert time.monotonic() < end_s, "ended attempts are not forgotten"
                day.batches(1)
            gc.collect()
            objects.append(sys.getallocatedblocks())
        ledger = day.tracker.ledger
        added = sum(ledger.received(stream)[1] for stream in range(RECEIVERS))
        assert added == day.blocks >= 3 * BATCHES * BLOCKS
        assert not ledger.has_unallocated_blocks
        assert len(ledger.batch_times_ms) <= REMEMBERED + 1
        assert ledger._driver_log.snapshots >= 3
    # Each third of the time has thousands of blocks, and each block is several objects.
    assert objects[2] - objects[1] < BATCHES * BLOCKS // 2, objects
    assert day.most_log_files <= 4, day.most_log_files


def test_a_queue_that_two_queries_read_is_as_small_after_an_hour_as_after_a_minute(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, count=0, snapshots=SnapshotRule(age_s=60))
    sizes, held = [], []
    for _ in range(60):
        for _ in range(60):
            case.add(5)
            case.clock.advance(1000)
            end = case.ledger.places.stream(0).next
            case.commit(end - 5, "slow")
            case.commit(end, "quick")
        case.release()
        found = case.ledger.places.stream(0)
        held.append(found.next - found.first)
        sizes.append(sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))
    assert case.ledger.places.stream(0).next == 18_000
    assert set(held) == {5}
    assert max(sizes[30:]) <= max(sizes[:30]), sizes
