"""Executors that are let go and asked for by a program on a real standalone cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bounds import HANG_S
from tests.services.standalone import StandaloneCluster

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = StandaloneCluster(folder)
    try:
        made.start(workers=1, cores=3, memory="2g")
        yield made
    finally:
        made.stop()


# `tests/streaming/scheduler/test_executor_allocation.py` has what is decided.
@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(720)
def test_executors_follow_the_batches_and_the_receiver_stays_where_it_is(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.scaled_program", cluster.address, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said.pop("records") > 50
    assert said == {"executors": [3, 2, 3], "least": 2, "starts": 1, "held": True}
