"""Receivers that share a log on an object store: processes, drivers and the store are killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest

from penstock.wal import check, locate
from tests.services.object_stores import ObjectServer, make_server
from tests.system.driver_process import DriverProcess, driver_process
from tests.system.leftovers import await_that, memory_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RECEIVERS = 8
LAST = 300
SEED = int(os.environ.get("PENSTOCK_KILLS_SEED", "1"))
DRIVERS = int(os.environ.get("PENSTOCK_KILLS_DRIVERS", "2"))
KILLS = 3
"""Of each driver's processes and of its store, before it is killed itself."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    made = make_server("s3", tmp_path / "store")
    made.start()
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    yield made
    made.stop()


def seen(folder: Path) -> dict[int, list[int]]:
    """Return the numbers of each receiver, in the order of the batches."""
    found: dict[int, list[int]] = {number: [] for number in range(RECEIVERS)}
    for path in sorted(path for path in folder.iterdir() if path.suffix == ""):
        for number, numbers in json.loads(path.read_text()).items():
            found[int(number)].extend(numbers)
    return found


def count(folder: Path) -> int:
    return sum(map(len, seen(folder).values()))


def logs(server: ObjectServer) -> set[str]:
    found = obstore.list(server.store(), prefix="app/receivedData").collect()
    return {entry["path"].split("/")[2] for entry in found}


def kill_one(chance: random.Random, pids: Path, server: ObjectServer) -> None:
    """Kill the store, or the process of some receivers."""
    if chance.random() < 0.3:
        server.kill()
        time.sleep(chance.random())
        server.start()
        return
    receiver = chance.randrange(RECEIVERS)
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((pids / f"pid-{receiver}").read_text()), signal.SIGKILL)


@pytest.mark.long
def test_kills_at_any_moment_lose_and_double_nothing_of_any_receiver(
    tmp_path: Path, server: ObjectServer
) -> None:
    chance = random.Random(SEED)
    batches, pids = tmp_path / "batches", tmp_path / "pids"
    batches.mkdir()
    pids.mkdir()
    last = LAST * (DRIVERS + 1)
    for number in range(DRIVERS + 1):
        local = tmp_path / f"local-{number}"
        config: dict[str, Any] = {
            "receivers": RECEIVERS,
            "last": last,
            "batch_s": 1,
            "checkpoint": f"{server.authority}/app",
            "batches": str(batches),
            "pids": str(pids),
            "settings": {"spark.local.dir": str(local), "spark.driver.host": "127.0.0.1"},
        }
        with driver_process(tmp_path, config, module="tests.system.process_log_program") as driver:
            conf = driver.wait_until_started()["conf"]
            for _ in range(KILLS):
                await_more(batches, chance.randrange(20, 400), driver, last)
                kill_one(chance, pids, server)
            if number == DRIVERS:
                await_more(batches, RECEIVERS * last, driver, last)
                # Those that were killed had logs of their own, which go with what they held.
                await_that("the logs of killed processes go", lambda: are_few(server, pids), 120.0)
                driver.stop()
        # All its processes are killed by SIGKILL, and its host has nothing any more.
        shutil.rmtree(local, ignore_errors=True)
        for name in memory_files(conf["spark.app.id"]):
            os.unlink(f"/dev/shm/{name}")
    assert not [path for path in batches.iterdir() if path.suffix == ".other"]
    assert seen(batches) == {number: list(range(last)) for number in range(RECEIVERS)}
    left = logs(server)
    assert all(name.startswith("process-") for name in left)
    for name in left:
        fs, path = locate(f"{server.authority}/app/receivedData/{name}")
        assert not check(path, fs=fs).damages


def are_few(server: ObjectServer, pids: Path) -> bool:
    """Tell whether there is one log for each process that has receivers."""
    return len(logs(server)) <= len({path.read_text() for path in pids.iterdir()})


def await_more(batches: Path, more: int, driver: DriverProcess, last: int) -> None:
    wanted = min(count(batches) + more, RECEIVERS * last)
    await_that("records", lambda: count(batches) >= wanted, 300.0, driver.report)
