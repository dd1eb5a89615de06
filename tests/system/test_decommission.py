"""An executor that Spark decommissions: its receivers move before it goes."""

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
@pytest.mark.parametrize(("slot", "starts"), [("alone", 2), ("shared", 4)])
def test_receivers_move_from_a_decommissioned_executor_and_lose_nothing(
    tmp_path: Path, slot: str, starts: int
) -> None:
    program = "tests.system.decommission_program"
    ended = subprocess.run(
        [sys.executable, "-m", program, str(tmp_path / "checkpoint"), slot],
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
    assert found == {"exact": True, "elsewhere": True, "starts": starts, "errors": []}
