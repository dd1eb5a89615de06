"""Executors that are let go and asked for by a program on a real standalone cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs import run_to_end
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
    done = run_to_end("-m", "tests.system.scaled_program", cluster.address, folder)
    said = json.loads(done.stdout.splitlines()[-1])
    assert said.pop("records") > 50
    assert said == {"executors": [3, 2, 3], "least": 2, "starts": 1, "held": True}
