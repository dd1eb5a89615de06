"""More than one host: placing, reading from another host, and hosts that are cut off or lost."""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.wal import KEY_VARIABLE, EncryptionKey
from tests.services.hosts import Host, HostCluster, hosts_are_impossible
from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.hosts_program import OCCUPIED
from tests.system.leftovers import await_that
from tests.system.test_killed_executor import executor_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ONE_COPY, TWO_COPIES = "MEMORY_AND_DISK", "MEMORY_AND_DISK_2"

CUT_S = 22.0
"""Longer than a connection is taken for alive without a word (20 s)."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostCluster]:
    if reason := hosts_are_impossible():
        pytest.skip(f"platform: {reason}")
    made = HostCluster(tmp_path_factory.mktemp("hosts"), hosts=2)
    try:
        made.start(cores=3)
        yield made
    finally:
        made.stop()


def racks_of(cluster: HostCluster) -> dict[str, str]:
    return {host.address: f"/rack-{number}" for number, host in enumerate(cluster.hosts)}


@contextmanager
def program(
    cluster: HostCluster,
    folder: Path,
    *,
    batch_s: int,
    levels: Sequence[str] = (ONE_COPY, ONE_COPY),
    settings: Mapping[str, str] | None = None,
    servers: int = 2,
) -> Iterator[tuple[DriverProcess, list[Feeder]]]:
    """Run a program with a receiver for each of the levels, until hosts have block servers."""
    racks = folder / "racks"
    # A colon would end the name.
    lines = {host.replace(":", r"\:"): rack for host, rack in racks_of(cluster).items()}
    racks.write_text("".join(f"{host}={rack}\n" for host, rack in lines.items()))
    with ExitStack() as stack:
        feeders = [stack.enter_context(Feeder(host=cluster.driver_address)) for _ in levels]
        config = {
            "master": cluster.master,
            "driver": cluster.driver_address,
            "data": str(cluster.data / folder.name),
            "batch_s": batch_s,
            "feeders": [feeder.address for feeder in feeders],
            "settings": dict(settings or {}),
            "levels": levels,
            "racks": str(racks),
            "hosts": len(cluster.hosts),
        }
        driver = stack.enter_context(
            DriverProcess(folder, config, module="tests.system.hosts_program")
        )
        assert driver.wait_until_started()["racks"] == racks_of(cluster)
        told = [f"block server of {host.address}: " for host in cluster.hosts]
        await_that(
            f"{servers} block servers",
            lambda: sum(one in driver.log() for one in told) >= servers,
            report=driver.report,
        )
        yield driver, feeders


def host_of(feeder: Feeder, cluster: HostCluster) -> Host:
    """Return the host that the feeder's last receiver runs on."""
    return next(host for host in cluster.hosts if feeder.pids[-1] in host.processes())


def all_were_read_on(host: Host, lay_on: Host) -> Any:
    def test(event: dict[str, Any]) -> bool:
        return set(event["lay_on"]) == {lay_on.address} and set(event["read_on"]) == {host.address}

    return test


def await_processed(driver: DriverProcess, feeders: Sequence[Feeder]) -> None:
    """Wait until all that is acknowledged by then, and some more, was processed."""
    for feeder in feeders:
        feeder.await_acknowledged(1000)
    goals = [feeder.acknowledged for feeder in feeders]
    for number, goal in enumerate(goals):
        await_that(
            f"the first {goal} numbers of stream {number}",
            lambda number=number, goal=goal: len(driver.numbers(number)) >= goal,
            report=driver.report,
        )


def assert_exact(driver: DriverProcess, feeders: Sequence[Feeder]) -> None:
    """End it all, and check that each record was processed once and in order."""
    totals = [feeder.finish() for feeder in feeders]
    driver.stop()
    for number, total in enumerate(totals):
        assert driver.numbers(number) == list(range(total))


@pytest.mark.exhaustive
def test_receivers_are_spread_and_blocks_are_read_where_they_lie_or_by_the_network(
    cluster: HostCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With encryption: from another host comes what is in memory there, or is encrypted."""
    key = base64.b64encode(EncryptionKey.generate().secret).decode()
    monkeypatch.setenv(KEY_VARIABLE, key)
    encrypted = {"spark.io.encryption.enabled": "true"}
    with program(cluster, tmp_path, batch_s=1, settings=encrypted) as (driver, feeders):
        for feeder in feeders:
            feeder.await_acknowledged(2000)
        first, second = (host_of(feeder, cluster) for feeder in feeders)
        assert first is not second
        driver.wait_for("read", all_were_read_on(first, first))
        driver.wait_for("read", all_were_read_on(second, second))
        # With no core left there, its blocks can only be read on the other host.
        driver.tell(f"occupy {first.address}")
        held = [cluster.data_of(first) / tmp_path.name / name for name in OCCUPIED]
        await_that("its cores are held", lambda: all(path.exists() for path in held))
        read_elsewhere = all_were_read_on(second, first)
        driver.wait_for("read", read_elsewhere)
        # What has only its log's copy comes as that is, and is decrypted where it is read.
        memory = Path(f"/proc/{feeders[0].pids[-1]}/root/dev/shm")
        for path in [*memory.glob("penstock-*")]:
            path.unlink()
        so_far = sum(event["what"] == "read" and read_elsewhere(event) for event in driver.events)
        driver.wait_for("read", read_elsewhere, count=so_far + 3)
        for path in held:
            path.unlink()

        # The executor is killed; the host and its block server live.
        os.kill(executor_of(feeders[1].pids[-1]), signal.SIGKILL)
        feeders[1].await_connection(2)
        feeders[1].await_acknowledged(2000)
        assert len(feeders[0].pids) == 1
        assert_exact(driver, feeders)


@pytest.mark.long
def test_a_host_that_is_lost_for_good_loses_no_block_that_has_a_second_copy(
    cluster: HostCluster, tmp_path: Path
) -> None:
    # The second host has no receiver: a task starts its block server.
    with program(cluster, tmp_path, batch_s=4, levels=(TWO_COPIES,)) as (driver, feeders):
        driver.wait_for("read", lambda event: event["copied"])
        lost = host_of(feeders[0], cluster)
        # What is acknowledged now is waiting for a batch, as a rule.
        feeders[0].await_acknowledged(1000)
        lost.kill()
        for path in cluster.data_of(lost).iterdir():
            shutil.rmtree(path)
        try:
            feeders[0].await_connection(2)
            await_processed(driver, feeders)
            # All that was acknowledged, in order and once, and nothing else.
            assert_exact(driver, feeders)
        finally:
            cluster.start_again(lost)
        assert not [event for event in driver.events if event["what"] == "failed"]
        assert "other hosts cannot read its blocks" not in driver.log()
        # The receiver runs on the host that is left, with one copy, and says so.
        assert "Blocks have no copy on another host" in driver.log()


@pytest.mark.exhaustive
def test_a_host_that_comes_back_is_waited_for_and_nothing_is_lost(
    cluster: HostCluster, tmp_path: Path
) -> None:
    settings = {"spark.penstock.lostBlocks": "wait:10m"}
    with program(cluster, tmp_path, batch_s=2, settings=settings) as (driver, feeders):
        await_processed(driver, feeders)
        away = host_of(feeders[0], cluster)
        feeders[0].await_acknowledged(1000)
        away.kill()
        await_that("a task that waits", lambda: "whose host is away" in driver.log())
        cluster.start_again(away)
        await_processed(driver, feeders)
        assert_exact(driver, feeders)
        assert not [event for event in driver.events if event["what"] == "failed"]


# `test_faulty_network` cuts connections, and the test of a lost host loses one.
@pytest.mark.exhaustive
def test_a_host_that_is_cut_off_loses_nothing_and_one_that_is_lost_is_named(
    cluster: HostCluster, tmp_path: Path
) -> None:
    # Long batches, so that few are waiting when the host is lost, and fail one by one.
    # The second stream has copies on the host that is lost, and misses nothing.
    levels = (ONE_COPY, TWO_COPIES)
    with program(cluster, tmp_path, batch_s=2, levels=levels) as (driver, feeders):
        await_processed(driver, feeders)
        cut = host_of(feeders[0], cluster)
        cut.cut_off()
        try:
            await_that(
                "a warning that names the receiver and its host",
                lambda: f"receiver 0 on {cut.address} is out of reach" in driver.log(),
                CUT_S + 10,
                driver.report,
            )
        finally:
            cut.join()
        await_that("its return", lambda: "receiver 0 is connected again" in driver.log())
        await_processed(driver, feeders)
        for number, feeder in enumerate(feeders):
            # What stored all the time was never started a second time, and no batch failed.
            assert len(feeder.pids) == 1
            found = driver.numbers(number)
            assert found == list(range(len(found)))
        assert not [event for event in driver.events if event["what"] == "failed"]

        # Now it is lost for good, with what was not processed yet.
        cut.kill()
        failed = driver.wait_for("failed")["message"]
        assert re.search(r"batch of .* \(\d+ ms\) failed", failed)
        assert re.search(rf"block input-0-\d+ is in none of its places: .*{cut.address}", failed)
        said = f"the block server of {cut.address} is gone; no receiver there can start one"
        await_that(said, lambda: said in driver.log())
        # The stream goes on elsewhere after its last position; the other one missed nothing.
        feeders[0].await_connection(2)
        await_processed(driver, feeders)
        totals = [feeder.finish() for feeder in feeders]
        driver.stop()
        assert driver.numbers(1) == list(range(totals[1]))
        assert len(feeders[1].pids) == 1
        assert "Receiver 1: Blocks have no copy on another host" in driver.log()
        found = driver.numbers(0)
        assert found == sorted(set(found))
        # One gap: from the first lost block to the end of the last batch that had one.
        missing = sorted(set(range(totals[0])) - set(found))
        assert missing == list(range(missing[0], missing[-1] + 1))
        assert missing[0] < feeders[0].starts[1]
