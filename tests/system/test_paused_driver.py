"""A driver that stands still for longer than the lease, and then goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.leftovers import await_that, block_servers, is_running, keeps_memory

pytestmark = pytest.mark.slow


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_driver_that_was_paused_for_longer_than_the_lease_loses_nothing(tmp_path: Path) -> None:
    """Without a folder: then the logs, too, are only the living application's."""
    config = {
        "master": "local[3]",
        "positions": [0],
        # Long enough for blocks of before the pause to be read after it.
        "batch_s": 4,
        "settings": {
            "spark.penstock.blockServer.lease": "3s",
            "spark.penstock.askTimeout": "10s",
            "spark.streaming.gracefulStopTimeout": "200s",
        },
    }
    with (
        Feeder() as feeder,
        DriverProcess(tmp_path, {**config, "feeders": [feeder.address]}) as driver,
    ):
        application = driver.wait_until_started()["application"]

        def serving() -> list[int]:
            return [pid for pid in block_servers(application) if keeps_memory(pid, application)]

        await_that("a block server that is registered", serving, report=driver.report)
        (server,) = serving()
        feeder.await_acknowledged(5000)
        os.kill(driver.process.pid, signal.SIGSTOP)
        try:
            # The receiver gives its driver up: by then the lease is over.
            await_that("the receiver ends", lambda: not feeder.is_connected, 120)
            acknowledged = feeder.acknowledged
            processed = set(driver.numbers())
            assert is_running(server)
        finally:
            os.kill(driver.process.pid, signal.SIGCONT)
        assert processed < set(range(acknowledged)), "nothing waits: the test shows nothing"
        feeder.await_acknowledged(1000)
        assert is_running(server)
        sent = feeder.finish()
        driver.stop()
        assert driver.numbers() == list(range(sent))
        driver.assert_no_process_left(60)
