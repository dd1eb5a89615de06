"""Blocks that stay in the receivers' logs after their batch: all of them, over a killed driver."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.blockstore.reading.reader import parse_block
from penstock.errors import SettingError
from penstock.tracker import ReceivedBlockTracker
from penstock.wal import LogReader
from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.mounts import own_mounts
from tests.system.receivers import NumberedLines
from tests.system.running import run_on

LEASE_S = 3


def numbers_in_logs(checkpoint: Path) -> list[int]:
    """Read all records that the ledger knows of from the segments alone."""
    ledger = ReceivedBlockTracker.read(str(checkpoint / "receivedBlockMetadata"))
    numbers: list[int] = []
    for segment in ledger.logged_segments(0):
        reader = LogReader.open(segment.folder)
        for record in reader.segment_records(segment.number):
            if any(first <= record.sequence <= last for first, last in segment.runs):
                numbers.extend(map(int, parse_block(record.payload).records()))
    return numbers


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(720)
def test_what_was_processed_is_still_in_the_logs_also_of_a_killed_driver(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    config = {
        "master": "local[3]",
        "checkpoint": str(checkpoint),
        "settings": {
            "spark.penstock.blockServer.lease": f"{LEASE_S}s",
            "spark.penstock.wal.segmentSize": "1m",
            "spark.penstock.block.maxSize": "512k",
            "spark.penstock.wal.retention": "1h",
        },
    }
    with Feeder(line_bytes=1000) as feeder:
        for is_last in (False, True):
            with DriverProcess(tmp_path, {**config, "feeders": [feeder.address]}) as driver:
                driver.wait_until_started()
                feeder.await_acknowledged(3000)
                if is_last:
                    sent = feeder.finish()
                    driver.stop()
                else:
                    # Several batches were cleaned up by then.
                    driver.wait_for("batch", count=6)
                    driver.kill()
                driver.assert_no_process_left(LEASE_S + 30)
    found = numbers_in_logs(checkpoint)
    assert set(found) == set(range(sent))
    ledger = ReceivedBlockTracker.read(str(checkpoint / "receivedBlockMetadata"))
    assert len(ledger._state.retained) > 1


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_disk_that_runs_short_takes_the_oldest_and_holds_nothing_up(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with (
        Feeder(line_bytes=1000) as feeder,
        own_mounts(f"mount -t tmpfs -o size=32m tmpfs {folder}") as (command, holder),
    ):
        config = {
            "master": "local[3]",
            "feeders": [feeder.address],
            "settings": {
                "spark.penstock.wal.dir": str(folder),
                "spark.penstock.wal.segmentSize": "2m",
                "spark.penstock.block.maxSize": "512k",
                "spark.penstock.memory.size": "4m",
                "spark.penstock.wal.retention": "1h",
                # Room for what comes between two looks at the disk.
                "spark.penstock.receiver.byteRate": "1500000/second",
            },
        }
        with DriverProcess(tmp_path, config, command) as driver:
            driver.wait_until_started()
            feeder.await_acknowledged(45_000)
            driver.stop()
            first = driver.numbers()
            assert "retained blocks go before their time, the oldest first" in driver.log()
            assert "No space left" not in driver.log()
            assert "LogFullError" not in driver.log()
        # Something else fills the disk until no receiver can begin its log.
        inside = Path(f"/proc/{holder}/root{folder}")
        free = os.statvfs(inside)
        with open(inside / "other", "wb") as other:
            os.posix_fallocate(other.fileno(), 0, free.f_bavail * free.f_frsize - (1500 << 10))
        with DriverProcess(tmp_path, config, command) as driver:
            driver.wait_until_started()
            feeder.await_acknowledged(10_000)
            total = feeder.finish()
            driver.stop()
            assert "LogFullError" in driver.log()
            assert first + driver.numbers() == list(range(total))


def test_a_retention_without_a_folder_that_outlives_the_program_is_refused(sc: Any) -> None:
    with (
        Feeder() as feeder,
        run_on(sc, {"spark.penstock.wal.retention": "24h"}) as run,
    ):
        run.process(NumberedLines(feeder.address))
        with pytest.raises(SettingError, match=r"wal\.retention.*outlive the application"):
            run.start()
