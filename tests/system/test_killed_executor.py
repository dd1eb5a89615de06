"""SIGKILL of the JVM of the executor that a receiver runs in, on a Spark with two executors."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.leftovers import await_that, block_servers, command_of, is_running, parent_of

pytestmark = pytest.mark.slow
MANY = pytest.mark.exhaustive


def executor_of(worker: int) -> int:
    """Return the JVM above a Python worker: worker, its daemon, executor."""
    pid = worker
    while "CoarseGrainedExecutorBackend" not in command_of(pid):
        pid = parent_of(pid)
        assert pid > 1, "the worker has no executor"
    return pid


def kill_the_executor(feeder: Feeder, application: str) -> None:
    """Kill it while records flow, and wait until they flow again from another process."""
    feeder.await_acknowledged(3000)
    connections = len(feeder.pids)
    worker = feeder.pids[-1]
    await_that("one block server", lambda: len(block_servers(application)) == 1)
    servers = block_servers(application)
    executor = executor_of(worker)
    os.kill(executor, signal.SIGKILL)
    feeder.await_connection(connections + 1)
    feeder.await_acknowledged(3000)
    await_that("the executor's worker has ended", lambda: not is_running(worker))
    assert not is_running(executor)
    # It was started by a process of that executor, and outlives it.
    assert block_servers(application) == servers


@pytest.mark.long
@pytest.mark.timeout(720)
@pytest.mark.parametrize(
    "victims", [("positioned",), pytest.param(("acknowledged", "positioned"), marks=MANY)], ids=len
)
def test_a_killed_executor_loses_nothing_and_with_positions_doubles_nothing(
    tmp_path: Path, victims: tuple[str, ...]
) -> None:
    with (
        Feeder() as acknowledged,
        Feeder() as positioned,
        DriverProcess(
            tmp_path,
            {
                "master": "local-cluster[2,2,1024]",
                "feeders": [acknowledged.address, positioned.address],
                "positions": [1],
            },
        ) as driver,
    ):
        application = driver.wait_until_started()["application"]
        feeders = {"acknowledged": acknowledged, "positioned": positioned}
        for victim in victims:
            kill_the_executor(feeders[victim], application)
        totals = [feeder.finish() for feeder in (acknowledged, positioned)]
        driver.stop()
        assert set(driver.numbers(0)) == set(range(totals[0]))
        assert driver.numbers(1) == list(range(totals[1]))
        driver.assert_no_process_left(30)
