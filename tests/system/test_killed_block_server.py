"""SIGKILL of the host's block server."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.system.feeder import Feeder
from tests.system.leftovers import await_that, block_servers
from tests.system.receivers import NumberedLines
from tests.system.running import run_on

pytestmark = pytest.mark.slow


def await_another(application_id: str, killed: list[int]) -> int:
    """Wait for a block server that was not killed yet; return its process."""
    found: list[int] = []

    def look() -> bool:
        found[:] = set(block_servers(application_id)) - set(killed)
        return bool(found)

    await_that("a block server", look)
    return found[0]


@pytest.mark.long
def test_a_killed_block_server_is_replaced_and_nothing_is_lost(sc: Any) -> None:
    with Feeder() as feeder, run_on(sc) as run:
        run.process(NumberedLines(feeder.address, positions=True))
        run.start()
        killed: list[int] = []
        for _ in range(2):
            feeder.await_acknowledged(2000)
            pid = await_another(run.application_id, killed)
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        await_another(run.application_id, killed)
        feeder.await_acknowledged(2000)
        total = feeder.finish()
        run.stop()
        assert run.processed == list(range(total))
        # The receiver was not disturbed: it is still the first.
        assert len(feeder.pids) == 1
