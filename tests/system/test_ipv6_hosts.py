"""Hosts that have addresses of IPv6 only; Spark writes them in brackets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.hosts import HostCluster, hosts_are_impossible
from tests.system.hosts_program import OCCUPIED
from tests.system.leftovers import await_that
from tests.system.test_hosts import (
    ONE_COPY,
    TWO_COPIES,
    all_were_read_on,
    assert_exact,
    host_of,
    program,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(720)]


@pytest.mark.exhaustive  # `test_hosts` does it with IPv4.
def test_blocks_are_copied_and_read_between_hosts_that_have_ipv6_only(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """With TLS, whose certificate names no host."""
    if reason := hosts_are_impossible(ipv6=True):
        pytest.skip(f"platform: {reason}")
    cluster = HostCluster(tmp_path_factory.mktemp("hosts"), hosts=2, ipv6=True)
    settings = {"spark.penstock.tls.enabled": "true"}
    levels = (ONE_COPY, TWO_COPIES)
    try:
        cluster.start(cores=3)
        with program(cluster, tmp_path, batch_s=1, levels=levels, settings=settings) as running:
            driver, feeders = running
            first, second = (host_of(feeder, cluster) for feeder in feeders)
            assert first is not second
            driver.wait_for("read", lambda event: event["stream"] == 1 and event["copied"])
            # With no core left there, its blocks can only be read on the other host.
            driver.tell(f"occupy {first.address}")
            held = [cluster.data_of(first) / tmp_path.name / name for name in OCCUPIED]
            await_that("its cores are held", lambda: all(path.exists() for path in held))
            driver.wait_for("read", all_were_read_on(second, first))
            for path in held:
                path.unlink()
            assert_exact(driver, feeders)
    finally:
        cluster.stop()
