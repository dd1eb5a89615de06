"""Logs and checkpoints on a real HDFS; drivers, receivers and nodes are killed with SIGKILL."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.services.hdfs import Hdfs
from tests.system.feeder import Feeder
from tests.system.leftovers import await_that, block_servers, memory_files
from tests.system.receivers import NumberedLines
from tests.system.running import Run, run_on

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def lose_the_host(run: Run, receiver_pid: int) -> None:
    """Take away all that a receiver's host had: its process, its memory, its block server."""
    servers = block_servers(run.application_id)
    kill(receiver_pid)
    for pid in servers:
        kill(pid)
    for name in memory_files(run.application_id):
        os.unlink(f"/dev/shm/{name}")


@pytest.mark.exhaustive
def test_blocks_of_a_lost_host_are_read_from_hdfs(sc: Any, hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    with Feeder() as feeder, run_on(sc, {"spark.penstock.wal.dir": folder}) as run:
        run.process(NumberedLines(feeder.address, positions=True))
        run.start()
        pid = feeder.await_connection(1)
        feeder.await_acknowledged(5000)
        lose_the_host(run, pid)
        feeder.await_connection(2)
        feeder.await_acknowledged(5000)
        total = feeder.finish()
        run.stop()
        assert run.processed == list(range(total))
        assert len(set(feeder.pids)) == 2


@pytest.mark.exhaustive  # `tests/wal/test_hdfs.py` has appends that wait for it.
def test_nothing_is_lost_while_the_name_node_is_started_again(sc: Any, hdfs: Hdfs) -> None:
    with Feeder() as feeder, run_on(sc, checkpoint=hdfs.new_folder()) as run:
        run.process(NumberedLines(feeder.address))
        run.start()
        feeder.await_acknowledged(2000)
        hdfs.kill_name_node()
        hdfs.start_name_node()
        feeder.await_acknowledged(4000)
        total = feeder.finish()
        run.stop()
        # The receiver lived on, so nothing was stored twice.
        assert run.processed == list(range(total))
        assert len(feeder.pids) == 1


@pytest.mark.exhaustive  # `test_full_disk`, and a quota in `tests/wal/test_hdfs.py`.
def test_a_full_hdfs_makes_the_receiver_wait(sc: Any, hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    hdfs.client().mkdirs(hdfs.path(folder))
    # Numbers compress so well that it would take long until the block of HDFS is full.
    values = {"spark.penstock.wal.dir": folder, "spark.penstock.wal.compression.codec": "none"}
    with Feeder() as feeder, run_on(sc, values) as run:
        run.process(NumberedLines(feeder.address))
        run.start()
        feeder.await_acknowledged(2000)
        hdfs.set_space_quota(hdfs.path(folder), 1)
        # What fits into the blocks of HDFS that are there is still taken.
        error = run.events.wait_for("error", lambda info: "no space left" in info.lastError())
        assert "no space left" in error.lastError()
        hdfs.set_space_quota(hdfs.path(folder), -1)
        feeder.await_acknowledged(4000)
        total = feeder.finish()
        run.stop()
        assert run.processed == list(range(total))


@pytest.mark.long
def test_old_segments_go(sc: Any, hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    values = {
        "spark.penstock.wal.dir": folder,
        "spark.penstock.wal.compression.codec": "none",
        "spark.penstock.wal.segmentSize": "512k",
        "spark.penstock.block.maxSize": "128k",
        "spark.penstock.memory.size": "1m",
    }
    with Feeder() as feeder, run_on(sc, values) as run:
        run.process(NumberedLines(feeder.address))
        run.start()
        pid = feeder.await_connection(1)
        feeder.await_acknowledged(20_000)
        client = hdfs.client()
        root = hdfs.path(folder) + "/receivedData"

        def first_numbers() -> list[str]:
            return sorted(
                min(file.path for file in client.list_status(found.path) if "segment" in file.path)
                for found in client.list_status(root)
            )

        await_that(
            "the first segment of the living receiver is gone",
            lambda: not first_numbers()[0].endswith("000001.log"),
        )
        attempts = [found.path for found in client.list_status(root)]
        kill(pid)
        feeder.await_connection(2)
        feeder.await_acknowledged(5000)
        await_that(
            "the folder of the killed receiver is gone",
            lambda: attempts[0] not in [found.path for found in client.list_status(root)],
        )
        total = feeder.finish()
        run.stop()
        assert set(run.processed) == set(range(total))
