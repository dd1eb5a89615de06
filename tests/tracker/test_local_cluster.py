"""Receivers on executors of their own, and an executor's JVM that is killed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyspark
import pytest

from tests.programs import run_to_end

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.exhaustive  # tests/system/test_hosts.py has the same between hosts.
@pytest.mark.timeout(720)
def test_receivers_are_spread_and_one_whose_executor_is_killed_goes_on_elsewhere(
    tmp_path: Path,
) -> None:
    done = run_to_end(
        *("-m", "tests.tracker.local_cluster_application", tmp_path),
        SPARK_HOME=os.path.dirname(pyspark.__file__),
        # local-cluster tells its workers apart from the driver by nothing else.
        SPARK_LOCAL_IP="127.0.0.1",
    )
    said = json.loads(done.stdout.splitlines()[-1])
    counts = said.pop("counts")
    assert said == {"apart": True, "moved": True, "restarted": [0], "complete": [True, True]}
    # Ten by each attempt that stored anything.
    assert counts[0] >= 20
    assert counts[1] >= 10
    assert list((tmp_path / "receivedData").glob("*")) == []
