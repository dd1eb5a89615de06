"""Many receivers in one slot of a real Spark, of which there is one more for batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.programs import run_to_end
from tests.system.leftovers import await_that, is_running
from tests.system.running import WAIT_S
from tests.system.shared_slot_program import EXITS, LAST, RECEIVERS


@pytest.mark.slow
@pytest.mark.long
def test_twenty_receivers_on_two_cores_lose_nothing_when_their_processes_are_killed(
    tmp_path: Path,
) -> None:
    ended = run_to_end("-m", "tests.system.shared_slot_program", tmp_path)
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["seen"] == {str(number): list(range(LAST)) for number in range(RECEIVERS)}
    assert all(state == "running" for state, _ in found["states"])
    pids = {int(number): began for number, began in found["pids"].items()}
    assert len({began[0] for began in pids.values()}) == 1
    # Who ended its process is alone in the next one.
    last = pids[EXITS][-1]
    assert [number for number, began in pids.items() if last in began] == [EXITS]
    # They share what they run in, after all that, too.
    assert len({began[-1] for began in pids.values()}) <= 4
    for pid in {pid for began in pids.values() for pid in began}:
        await_that("the end of the processes", lambda pid=pid: not is_running(pid), WAIT_S)
