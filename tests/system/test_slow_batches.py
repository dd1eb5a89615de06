"""I7: batches that cannot keep up hold the source back, and memory stays under its bound."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark import StorageLevel

from tests.system.feeder import Feeder
from tests.system.leftovers import await_that, memory_files
from tests.system.receivers import NumberedLines
from tests.system.running import Run, run_on
from tests.system.test_bad_records import peak_memory, reset_peak

pytestmark = pytest.mark.slow

MB = 1 << 20
ARENA = 8 * MB
SETTINGS = {"spark.penstock.memory.size": "8m", "spark.penstock.block.maxSize": "1m"}
ENDLESS = 1 << 40
"""A window of the feeder that holds nothing back."""


class InMemory(NumberedLines):
    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, positions=True)
        self.storageLevel = StorageLevel.MEMORY_ONLY


def block_batches(run: Run) -> threading.Event:
    """Let no batch end before the event is set."""
    go_on = threading.Event()
    run.streams[0].foreachRDD(lambda rdd: go_on.wait(60))
    return go_on


def shared_memory_of(run: Run) -> int:
    """Return the bytes of memory that the blocks of a run take."""
    return sum(
        Path("/dev/shm", name).stat().st_blocks * 512 for name in memory_files(run.application_id)
    )


@pytest.mark.long
def test_blocks_that_are_kept_in_memory_only_hold_the_source_back(sc: Any) -> None:
    with Feeder(line_bytes=1000, window=ENDLESS) as feeder, run_on(sc, SETTINGS) as run:
        run.process(InMemory(feeder.address))
        go_on = block_batches(run)
        run.start()
        pid = feeder.await_connection(1)
        feeder.await_acknowledged(2000)
        reset_peak(pid)
        begin = peak_memory(pid)
        held_at = await_standstill(feeder)
        assert shared_memory_of(run) <= ARENA
        assert peak_memory(pid) - begin < ARENA + 32 * MB
        # What is in memory, and in the sockets between.
        assert held_at * 1000 < ARENA + 16 * MB
        go_on.set()
        feeder.await_acknowledged(20_000)
        total = feeder.finish()
        run.stop()
        assert run.processed == list(range(total))


@pytest.mark.long
def test_blocks_that_are_on_disk_leave_memory_and_are_read_from_there(sc: Any) -> None:
    with Feeder(line_bytes=1000, window=20_000) as feeder, run_on(sc, SETTINGS) as run:
        run.process(NumberedLines(feeder.address, positions=True))
        go_on = block_batches(run)
        run.start()
        pid = feeder.await_connection(1)
        feeder.await_acknowledged(2000)
        reset_peak(pid)
        begin = peak_memory(pid)
        # Eight times the memory, while no batch ends.
        feeder.await_acknowledged(64_000)
        assert shared_memory_of(run) <= ARENA
        assert peak_memory(pid) - begin < ARENA + 32 * MB
        go_on.set()
        total = feeder.finish()
        run.stop()
        assert run.processed == list(range(total))


def await_standstill(feeder: Feeder) -> int:
    """Wait until the feeder can send nothing more; return how many records it has sent."""
    seen = [-1]

    def stands() -> bool:
        # The feeder's thread is in `sendall`, and got no further for a second.
        before, seen[0] = seen[0], feeder.sent
        return not threading.Event().wait(1.0) and before == feeder.sent

    await_that("the feeder is held back", stands)
    return feeder.sent
