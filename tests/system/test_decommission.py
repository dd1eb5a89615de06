"""An executor that Spark decommissions: its receiver moves before it goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.running import WAIT_S


# `tests/tracker/test_decommission.py` has what is decided.
@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(720)
def test_a_receiver_moves_from_a_decommissioned_executor_and_loses_nothing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.system.decommission_program", str(tmp_path / "checkpoint")],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.getcwd(),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found == {"exact": True, "elsewhere": True, "starts": 2, "errors": []}
