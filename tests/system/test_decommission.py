"""An executor that Spark decommissions: its receivers move before it goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.programs import run_to_end
from tests.system.running import WAIT_S


# `tests/tracker/test_decommission.py` has what is decided.
@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(720)
@pytest.mark.parametrize(("slot", "starts"), [("alone", 2), ("shared", 4)])
def test_receivers_move_from_a_decommissioned_executor_and_lose_nothing(
    tmp_path: Path, slot: str, starts: int
) -> None:
    ended = run_to_end(
        *("-m", "tests.system.decommission_program", tmp_path / "checkpoint", slot),
        timeout_s=2 * WAIT_S,
        SPARK_LOCAL_IP="127.0.0.1",
    )
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found == {"exact": True, "elsewhere": True, "starts": starts, "errors": []}
