"""Ctrl-C in a program that waits for its streams."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.leftovers import memory_files, scratch_folders

pytestmark = pytest.mark.slow


# `test_signals` stops programs so, and `test_leftovers` looks for what stays.
@pytest.mark.exhaustive
@pytest.mark.parametrize("stop_at_interrupt", [False, True], ids=["plain", "graceful stop"])
def test_ctrl_c_ends_the_program_and_nothing_stays_behind(
    tmp_path: Path, stop_at_interrupt: bool
) -> None:
    with (
        Feeder() as feeder,
        DriverProcess(
            tmp_path,
            {
                "master": "local[3]",
                "feeders": [feeder.address],
                "positions": [0],
                "stop_at_interrupt": stop_at_interrupt,
            },
        ) as driver,
    ):
        application = driver.wait_until_started()["application"]
        feeder.await_acknowledged(3000)
        assert len(memory_files(application)) == 1
        driver.interrupt()
        code = driver.wait_until_ended(60)
        driver.assert_no_process_left(20)
        assert memory_files(application) == []
        assert scratch_folders(application) == []
        numbers = driver.numbers()
        assert numbers == list(range(len(numbers)))
        if stop_at_interrupt:
            assert code == 0
            # I10: what was acknowledged before the stop was processed in it.
            assert len(numbers) >= feeder.acknowledged
        else:
            assert code in (1, 128 + signal.SIGINT, -signal.SIGINT)
            assert "KeyboardInterrupt" in driver.log()
