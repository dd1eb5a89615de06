"""Receivers that share a log: their processes, drivers and, where it has one, its store are killed.

And requests to a store go wrong on their way, a thousand times.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest

from penstock.wal import check
from tests.programs import kill_one
from tests.services.http_faults import FaultyHttp
from tests.services.object_stores import ObjectServer, files_of, make_server
from tests.system.driver_process import DriverProcess
from tests.system.leftovers import await_that, memory_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RECEIVERS = 8
LAST = 300
SEED = int(os.environ.get("PENSTOCK_KILLS_SEED", "1"))
DRIVERS = int(os.environ.get("PENSTOCK_KILLS_DRIVERS", "2"))
FAULTS = {"lost": 0.06, "twice": 0.06, "cut": 0.06, "short": 0.04, "slow": 0.04, "busy": 0.04}
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


class Disk:
    """A folder of this host in the place of a store; it survives what its host loses at a kill."""

    def __init__(self, folder: Path) -> None:
        self.authority = str(folder)

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def stop(self) -> None: ...


def seen(folder: Path) -> dict[int, list[int]]:
    """Return the numbers of each receiver, in the order of the batches."""
    found: dict[int, list[int]] = {number: [] for number in range(RECEIVERS)}
    for path in sorted(path for path in folder.iterdir() if path.suffix == ""):
        for number, numbers in json.loads(path.read_text()).items():
            found[int(number)].extend(numbers)
    return found


def count(folder: Path) -> int:
    return sum(map(len, seen(folder).values()))


def logs(server: ObjectServer | Disk) -> set[str]:
    if isinstance(server, Disk):
        names = os.listdir(f"{server.authority}/app/receivedData")
        return {name for name in names if name.startswith("process-")}
    found = obstore.list(server.store(), prefix="app/receivedData").collect()
    return {entry["path"].split("/")[2] for entry in found}


def kill_store_or_receivers(
    chance: random.Random, pids: Path, server: ObjectServer | Disk, driver: DriverProcess
) -> None:
    """Kill the store, or the process of some receivers."""
    if chance.random() < 0.3:
        server.kill()
        time.sleep(chance.random())
        server.start()
        return
    # The number of one that has ended may be another's.
    running = driver.processes()
    kill_one({int(path.read_text()) for path in pids.glob("pid-*")} & running.keys(), chance)


@pytest.mark.long
@pytest.mark.parametrize("drivers", [1, pytest.param(DRIVERS, marks=pytest.mark.exhaustive)])
def test_kills_at_any_moment_lose_and_double_nothing_of_any_receiver(
    tmp_path: Path, server: ObjectServer, drivers: int
) -> None:
    kill(tmp_path, server, drivers, KILLS)


@pytest.mark.long
def test_kills_lose_and_double_nothing_of_a_log_on_a_disk(tmp_path: Path) -> None:
    kill(tmp_path, Disk(tmp_path / "disk"), DRIVERS - 1, KILLS)


def kill(tmp_path: Path, server: ObjectServer | Disk, drivers: int, kills: int) -> None:
    chance = random.Random(SEED)
    batches, pids = tmp_path / "batches", tmp_path / "pids"
    batches.mkdir()
    pids.mkdir()
    last = LAST * (drivers + 1)
    for number in range(drivers + 1):
        local = tmp_path / f"local-{number}"
        config = config_of(server, tmp_path, local, last)
        with DriverProcess(tmp_path, config, module="tests.system.process_log_program") as driver:
            conf = driver.wait_until_started()["conf"]
            for _ in range(kills):
                await_more(batches, chance.randrange(20, 400), driver, last)
                kill_store_or_receivers(chance, pids, server, driver)
            if number == drivers:
                await_more(batches, RECEIVERS * last, driver, last)
                # Those that were killed had logs of their own, which go with what they held.
                await_that("the logs of killed processes go", lambda: are_few(server, pids), 120.0)
                driver.stop()
        # All its processes are killed by SIGKILL, and its host has nothing any more.
        shutil.rmtree(local, ignore_errors=True)
        for name in memory_files(conf["spark.app.id"]):
            os.unlink(f"/dev/shm/{name}")
    assert_exact(server, batches, last)


def config_of(server: ObjectServer | Disk, folder: Path, local: Path, last: int) -> dict[str, Any]:
    return {
        "receivers": RECEIVERS,
        "last": last,
        "batch_s": 1,
        "checkpoint": f"{server.authority}/app",
        "batches": str(folder / "batches"),
        "pids": str(folder / "pids"),
        # The host's name is another one after a restart, and what is on its disk is its name's.
        "settings": {"spark.local.dir": str(local)}
        | ({} if isinstance(server, Disk) else {"spark.driver.host": "127.0.0.1"}),
    }


def assert_exact(server: ObjectServer | Disk, batches: Path, last: int) -> None:
    assert not [path for path in batches.iterdir() if path.suffix == ".other"]
    assert seen(batches) == {number: list(range(last)) for number in range(RECEIVERS)}
    left = logs(server)
    assert all(name.startswith("process-") for name in left)
    for name in left:
        if isinstance(server, Disk):
            found = check(f"{server.authority}/app/receivedData/{name}")
        else:
            found = check(f"/app/receivedData/{name}", fs=files_of(server))
        assert not found.damages


def are_few(server: ObjectServer | Disk, pids: Path) -> bool:
    """Tell whether there is one log for each process that has receivers."""
    return len(logs(server)) <= len({path.read_text() for path in pids.glob("pid-*")})


def await_more(batches: Path, more: int, driver: DriverProcess, last: int) -> None:
    wanted = min(count(batches) + more, RECEIVERS * last)
    await_that("records", lambda: count(batches) >= wanted, 300.0, driver.report)


@pytest.mark.long
def test_requests_that_go_wrong_lose_and_double_nothing(
    tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturb(tmp_path, server, monkeypatch, 60, 5.0)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_a_thousand_requests_that_go_wrong_lose_and_double_nothing(
    tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturb(tmp_path, server, monkeypatch, 1000, 60.0)


def disturb(
    tmp_path: Path,
    server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
    faults: int,
    busy_s: float,
) -> None:
    """Let so many requests go wrong over three drivers, and then all for a while."""
    batches, pids = tmp_path / "batches", tmp_path / "pids"
    batches.mkdir()
    pids.mkdir()
    way = FaultyHttp(server.client_port, SEED)
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.url)
        way.faults = FAULTS
        for number in range(DRIVERS + 1):
            config = config_of(server, tmp_path, tmp_path / f"local-{number}", 10**9)
            module = "tests.system.process_log_program"
            with DriverProcess(tmp_path, config, module=module) as driver:
                driver.wait_until_started()
                wanted = faults * (number + 1) // (DRIVERS + 1)

                def went_wrong(wanted: int = wanted, driver: DriverProcess = driver) -> bool:
                    assert driver.process.poll() is None, driver.report()
                    return sum(way.done.values()) >= wanted

                await_that("faults", went_wrong, 900.0, lambda: f"{way.done} {driver.report()}")
                if number == DRIVERS:
                    done = dict(way.done)
                    way.be_busy(busy_s)
                    time.sleep(busy_s)
                    way.faults = {}
                    last = 100 + max(map(len, seen(batches).values()))
                    (tmp_path / "new").write_text(str(last))
                    (tmp_path / "new").rename(tmp_path / "pids-last")
                    await_more(batches, RECEIVERS * last, driver, last)
                    await_that("logs go", lambda: are_few(server, pids), 120.0)
                    driver.stop()
                elif number % 2:
                    driver.stop()
    finally:
        way.close()
    assert sum(done.values()) >= faults
    assert all(done[fault] for fault in FAULTS), done
    assert_exact(server, batches, last)
    print(f"{sum(done.values())} faults: {done}, {RECEIVERS * last} records")
