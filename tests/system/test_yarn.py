"""An application on YARN, in client mode, one of whose containers is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.jars import JarsMissingError
from tests.services.yarn import Yarn
from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.leftovers import await_that, block_servers, is_running
from tests.system.test_killed_executor import executor_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(720)]

_ROOT = str(Path(__file__).parents[2])


@pytest.fixture
def yarn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yarn]:
    folder = tmp_path / "yarn"
    folder.mkdir()
    made = Yarn(folder)
    try:
        made.start()
        monkeypatch.setenv("HADOOP_CONF_DIR", str(made.conf_dir))
        yield made
    except JarsMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    finally:
        made.stop()


# `test_killed_executor.py` kills an executor of a standalone cluster.
@pytest.mark.exhaustive
def test_what_a_container_stored_is_processed_once_after_it_was_killed(
    yarn: Yarn, tmp_path: Path
) -> None:
    settings = {
        **yarn.settings,
        "spark.executor.instances": "2",
        "spark.executor.cores": "2",
        "spark.executorEnv.PYTHONPATH": _ROOT,
        "spark.penstock.wal.dir": str(tmp_path / "log"),
    }
    with (
        Feeder() as feeder,
        DriverProcess(
            tmp_path,
            {
                "master": "yarn",
                "feeders": [feeder.address],
                "positions": [0],
                "settings": settings,
            },
        ) as driver,
    ):
        application = driver.wait_until_started()["application"]
        feeder.await_acknowledged(3000)
        await_that("one block server", lambda: len(block_servers(application)) == 1)
        servers = block_servers(application)
        worker = feeder.pids[-1]
        executor = executor_of(worker)
        container = os.readlink(f"/proc/{executor}/cwd")
        # As a NodeManager does it.
        os.killpg(os.getpgid(executor), signal.SIGKILL)
        feeder.await_connection(2)
        feeder.await_acknowledged(3000)
        await_that("the worker has ended", lambda: not is_running(worker))
        await_that("the container's folder is gone", lambda: not os.path.exists(container))
        # It was started in that container, and outlives it.
        assert block_servers(application) == servers
        total = feeder.finish()
        driver.stop()
        assert driver.numbers() == list(range(total))
        driver.assert_no_process_left(30)
