"""SIGKILL of the driver at chosen moments, and `getOrCreate`: results and states are exact.

`make soak` does the same two hundred times at random moments, `test_encryption` at others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.streaming.checkpoint.stored import stored_header
from tests.system.soak import Soak

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.mark.long
@pytest.mark.parametrize(
    "moments",
    [
        ("in a state update",),
        pytest.param(
            ("in a checkpoint", "in a state update"),
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            ("between log and jobs", "in a checkpoint", "in a state update", "before blocks go"),
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=len,
)
def test_results_are_exact_whenever_the_driver_is_killed(
    tmp_path: Path, moments: tuple[str, ...]
) -> None:
    """Spark: recovery of conf, correct spark.driver.[host|port], SPARK-30199."""
    soak = Soak(tmp_path, seed=1, latest_occasion=4)
    soak.run(len(moments), moments)
    # The last run has the settings of the first, and what belongs to a run of its own.
    header = stored_header(tmp_path / "checkpoint")
    saved, conf = dict(header.conf), soak.conf
    assert conf["spark.streaming.receiver.maxRate"] == "2000"
    assert conf["spark.master"] == saved["spark.master"] == "local[3]"
    assert conf["spark.driver.host"] == "127.0.0.1"
    assert conf["spark.app.id"] != soak.first_conf["spark.app.id"]
    assert conf["spark.driver.port"] != soak.first_conf["spark.driver.port"]
