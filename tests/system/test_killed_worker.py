"""SIGKILL of the Python worker that a receiver runs in."""

from __future__ import annotations

import logging
import os
import signal
from typing import Any

import pytest

from tests.system.feeder import Feeder
from tests.system.receivers import NumberedLines
from tests.system.running import run_on

pytestmark = pytest.mark.slow

KILLS = 3


@pytest.mark.long
@pytest.mark.parametrize("sync", [pytest.param("none", marks=pytest.mark.exhaustive), "always"])
def test_a_receiver_that_is_killed_again_and_again_loses_nothing_that_it_acknowledged(
    sc: Any, tmp_path: Any, caplog: pytest.LogCaptureFixture, sync: str
) -> None:
    checkpoint = str(tmp_path) if sync == "always" else None
    with Feeder() as feeder, run_on(sc, checkpoint=checkpoint) as run:
        run.process(NumberedLines(feeder.address))
        run.start()
        kill_again_and_again(feeder)
        total = feeder.finish()
        run.stop()
        assert set(run.processed) == set(range(total))
        assert len(feeder.pids) == KILLS + 1
    assert "Receiver 0 is started again at once" in caplog.messages


@pytest.mark.long
def test_with_positions_each_record_is_processed_exactly_once_and_in_order(
    sc: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with Feeder() as feeder, run_on(sc) as run:
        run.process(NumberedLines(feeder.address, positions=True))
        run.start()
        kill_again_and_again(feeder)
        total = feeder.finish()
        run.stop()
        assert run.processed == list(range(total))
        assert len(set(feeder.pids)) == KILLS + 1


def kill_again_and_again(feeder: Feeder) -> None:
    logging.getLogger("penstock.tracker").setLevel(logging.WARNING)
    for number in range(1, KILLS + 1):
        pid = feeder.await_connection(number)
        feeder.await_acknowledged(5000)
        os.kill(pid, signal.SIGKILL)
    feeder.await_connection(KILLS + 1)
    feeder.await_acknowledged(5000)
