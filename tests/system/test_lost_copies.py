"""Copies of blocks that are made again on a third host, before the second is lost, too.

A module of its own: a process has one cluster of hosts at a time.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.services.hosts import HostCluster, hosts_are_impossible
from tests.system.leftovers import await_that
from tests.system.test_hosts import TWO_COPIES, assert_exact, await_processed, host_of, program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.long
def test_a_copy_that_was_lost_is_made_again_before_the_other_is_lost_too(tmp_path: Path) -> None:
    """Of blocks that wait, and of those of batches that were made before: these find it as well."""
    if reason := hosts_are_impossible():
        pytest.skip(f"platform: {reason}")
    (tmp_path / "cluster").mkdir()
    (tmp_path / "program").mkdir()
    cluster = HostCluster(tmp_path / "cluster", hosts=3)
    settings = {"spark.penstock.blockServer.lease": "5s"}
    levels = (TWO_COPIES,)
    try:
        cluster.start(cores=3)
        with program(
            cluster, tmp_path / "program", batch_s=3, levels=levels, settings=settings
        ) as (driver, feeders):
            driver.wait_for("read", lambda event: event["copied"])
            driver.hold.touch()
            feeders[0].await_acknowledged(3000)
            lost = [host_of(feeders[0], cluster)]
            lost[0].kill()
            shutil.rmtree(cluster.data_of(lost[0]))
            again = re.compile(r"[0-9]+ blocks have another copy again, on (\S+)")
            await_that("other copies", lambda: again.search(driver.log()), report=driver.report)
            made = again.search(driver.log())
            assert made is not None
            feeders[0].await_connection(2)
            feeders[0].await_acknowledged(1000)
            goal = feeders[0].acknowledged
            assert len(driver.numbers()) < goal - 3000
            # Now the host that has had the second copy all the time.
            (third,) = (host for host in cluster.hosts if host.address == made[1])
            (second,) = (host for host in cluster.hosts if host not in (third, *lost))
            second.kill()
            shutil.rmtree(cluster.data_of(second))
            driver.hold.unlink()
            await_processed(driver, feeders)
            assert_exact(driver, feeders)
            assert not [event for event in driver.events if event["what"] == "failed"]
    finally:
        cluster.stop()


@pytest.mark.long
def test_a_host_that_is_back_with_an_empty_disk_gets_its_blocks_from_the_other(
    tmp_path: Path,
) -> None:
    """Long before it would count as lost; then the other host is lost with its disk."""
    if reason := hosts_are_impossible():
        pytest.skip(f"platform: {reason}")
    (tmp_path / "cluster").mkdir()
    (tmp_path / "program").mkdir()
    cluster = HostCluster(tmp_path / "cluster", hosts=2)
    settings = {"spark.penstock.blockServer.lease": "600s"}
    try:
        cluster.start(cores=3)
        with program(
            cluster, tmp_path / "program", batch_s=3, levels=(TWO_COPIES,), settings=settings
        ) as (driver, feeders):
            driver.wait_for("read", lambda event: event["copied"])
            driver.hold.touch()
            feeders[0].await_acknowledged(3000)
            back = host_of(feeders[0], cluster)
            back.kill()
            shutil.rmtree(cluster.data_of(back))
            cluster.data_of(back).mkdir()
            cluster.start_again(back)
            again = f"blocks have another copy again, on {back.address}"
            await_that("other copies", lambda: again in driver.log(), report=driver.report)
            assert f"{back.address} is back without " in driver.log()
            feeders[0].await_connection(2)
            feeders[0].await_acknowledged(1000)
            (other,) = (host for host in cluster.hosts if host is not back)
            other.kill()
            shutil.rmtree(cluster.data_of(other))
            driver.hold.unlink()
            await_processed(driver, feeders)
            assert_exact(driver, feeders)
            assert not [event for event in driver.events if event["what"] == "failed"]
    finally:
        cluster.stop()
