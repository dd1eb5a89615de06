"""A query of receivers on three hosts, of which one is lost for good; the log is on HDFS."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.services.hdfs import Hdfs
from tests.services.hosts import Host, HostCluster, hosts_are_impossible
from tests.sql.query_hosts_program import LINE_BYTES
from tests.system.driver_process import DriverProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

HOSTS = 3
COUNT = 40_000
"""Lines of each receiver."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostCluster]:
    if reason := hosts_are_impossible():
        pytest.skip(f"platform: {reason}")
    made = HostCluster(tmp_path_factory.mktemp("hosts"), hosts=HOSTS)
    try:
        # A receiver each, and after the loss of one host two on one, and still tasks.
        made.start(cores=3)
        yield made
    finally:
        made.stop()


def crossed(hosts: list[Host]) -> tuple[int, int]:
    """Return the bytes that have come to hosts over the network, and those that have left them."""
    counted = [host.traffic() for host in hosts]
    return sum(came for came, _ in counted), sum(left for _, left in counted)


# `tests/system/test_hosts.py` loses a host, `test_killed_queries` what a query reads from.
@pytest.mark.exhaustive
def test_a_query_is_exact_when_a_host_of_its_receivers_is_lost_for_good(
    cluster: HostCluster,
    tmp_path: Path,
    start_hdfs: Callable[..., AbstractContextManager[Hdfs]],
    record_property: Callable[[str, object], None],
) -> None:
    """Log and checkpoint are on HDFS; what crosses the network until then is told."""
    (tmp_path / "hdfs").mkdir()
    half = tmp_path / "half"
    with start_hdfs(tmp_path / "hdfs", host=cluster.driver_address) as hdfs:
        config = {
            "master": cluster.master,
            "driver": cluster.driver_address,
            "hdfs": hdfs.new_folder(),
            "receivers": HOSTS,
            "count": COUNT,
            "half": str(half),
        }
        with DriverProcess(tmp_path, config, module="tests.sql.query_hosts_program") as driver:
            told = driver.wait_for("half")
            assert len(set(told["hosts"])) == HOSTS, "each host has a receiver"
            came, left = crossed(cluster.hosts)
            stored = HOSTS * COUNT // 2 * LINE_BYTES
            network = f"{came / stored:.2f} bytes in and {left / stored:.2f} out for each stored"
            record_property("network", network)
            print(network)
            # Each byte went to HDFS, and most had to come back for the task that read it.
            assert left > stored

            half.touch()
            # What comes now is waiting for a batch, as a rule.
            driver.wait_for("more")
            lost = cluster.host(told["hosts"][0])
            lost.kill()
            for path in cluster.data_of(lost).iterdir():
                shutil.rmtree(path)
            done = driver.wait_for("done")
        every = {f"lines-{number}": COUNT for number in range(HOSTS)}
        assert done["rows"] == every
        assert done["distinct"] == every
        assert done["largest"] == dict.fromkeys(every, COUNT - 1)
