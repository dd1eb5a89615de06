"""SIGKILL of the JVM of the executor that a receiver runs in, on a Spark with two executors."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.system.driver_process import DriverProcess, driver_process
from tests.system.feeder import Feeder
from tests.system.leftovers import await_that, block_servers, command_of, is_running, parent_of

pytestmark = pytest.mark.slow


def executor_of(worker: int) -> int:
    """Return the JVM above a Python worker: worker, its daemon, executor."""
    pid = worker
    while "CoarseGrainedExecutorBackend" not in command_of(pid):
        pid = parent_of(pid)
        assert pid > 1, "the worker has no executor"
    return pid


def kill_the_executor(feeder: Feeder, driver: DriverProcess) -> None:
    """Kill it while records flow, and wait until they flow again from another process."""
    application = driver.wait_until_started()["application"]
    worker = feeder.await_connection(1)
    feeder.await_acknowledged(3000)
    await_that("one block server", lambda: len(block_servers(application)) == 1)
    servers = block_servers(application)
    executor = executor_of(worker)
    os.kill(executor, signal.SIGKILL)
    feeder.await_connection(2)
    feeder.await_acknowledged(3000)
    await_that("the executor's worker has ended", lambda: not is_running(worker))
    assert not is_running(executor)
    # It was started by a process of that executor, and outlives it.
    assert block_servers(application) == servers


@pytest.mark.timeout(240)
@pytest.mark.parametrize("positions", [False, True], ids=["acknowledged", "positions"])
def test_a_killed_executor_loses_nothing(tmp_path: Path, positions: bool) -> None:
    with (
        Feeder() as feeder,
        driver_process(
            tmp_path,
            {
                "master": "local-cluster[2,2,1024]",
                "feeders": [feeder.address],
                "positions": positions,
            },
        ) as driver,
    ):
        kill_the_executor(feeder, driver)
        total = feeder.finish()
        driver.stop()
        numbers = driver.numbers()
        if positions:
            assert numbers == list(range(total))
        else:
            assert set(numbers) == set(range(total))
        driver.assert_no_process_left(30)
