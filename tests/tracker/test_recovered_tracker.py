"""A tracker whose batches are made again under their times: each keeps its blocks (I3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.wire.messages import Ok
from tests.tracker.ledger_cases import block
from tests.tracker.tracker_cases import running_tracker


def test_batches_of_the_run_before_keep_their_blocks(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        attempt.register()
        name = attempt.launch.attempt
        blocks = [
            block(0, name, attempt.first + number, position=b"%d" % number) for number in range(3)
        ]
        assert attempt.add(*blocks[:2]) == Ok()
        assert tracker.last_allocated_ms() == -1
        tracker.allocate_blocks_to_batch(1000)
        assert attempt.add(blocks[2]) == Ok()
    with running_tracker(tmp_path, keep_batches=True) as (tracker, cluster, _):
        assert tracker.last_allocated_ms() == 1000
        assert tracker.get_blocks_of_batch_and_stream(1000, 0) == tuple(blocks[:2])
        assert tracker.has_unallocated_blocks()
        again = cluster.next_attempt()
        assert again.register().last_position == b"2"
        tracker.allocate_blocks_to_batch(2000)
        assert tracker.get_blocks_of_batch_and_stream(2000, 0) == (blocks[2],)


def test_blocks_that_cannot_be_there_any_more_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        attempt.register()
        name = attempt.launch.attempt
        attempt.add(block(0, name, attempt.first))
        tracker.allocate_blocks_to_batch(1000)
        attempt.add(block(0, name, attempt.first + 1))
    with (
        caplog.at_level("WARNING", "penstock.tracker"),
        running_tracker(tmp_path, keep_batches=True, remove_files=True) as found,
    ):
        tracker, cluster, _ = found
        assert "Some blocks could not be recovered" in caplog.text
        again = cluster.next_attempt()
        again.register()
        new = block(0, again.launch.attempt, again.first)
        assert again.add(new) == Ok()
        tracker.allocate_blocks_to_batch(2000)
        assert tracker.get_blocks_of_batch_and_stream(1000, 0) == ()
        assert tracker.get_blocks_of_batch_and_stream(2000, 0) == (new,)
