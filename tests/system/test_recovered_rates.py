"""Rates that a program set while it ran, after SIGKILL of its driver and `getOrCreate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.system.driver_process import DriverProcess
from tests.system.rated_program import BATCH_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(720)]

RATE, BYTE_RATE, TOTAL = 700.0, 1_000_000.0, 900.0
MODULE = "tests.system.rated_program"


def wait_for_batches(driver: DriverProcess, more: int) -> list[dict[str, Any]]:
    """Return the batches of all streams that there are when `more` have come."""

    def has_all(event: dict[str, Any]) -> bool:
        return all(event["counts"])

    done = sum(event["what"] == "batch" and has_all(event) for event in driver.events)
    driver.wait_for("batch", has_all, count=done + more)
    return [event for event in list(driver.events) if event["what"] == "batch"]


# `tests/rates/test_on_spark.py` kills a receiver that has a rate.
@pytest.mark.exhaustive
def test_rates_that_were_set_hold_after_the_driver_was_killed(tmp_path: Path) -> None:
    config = {"checkpoint": str(tmp_path / "checkpoint")}
    first = {**config, "set": RATE, "set_bytes": BYTE_RATE, "group": TOTAL}
    with DriverProcess(tmp_path, first, module=MODULE) as driver:
        driver.wait_for("rates", lambda event: event["effective"][0] == RATE)
        # A checkpoint is written after each batch was made, and after it was complete.
        wait_for_batches(driver, 2)
        driver.kill()
        driver.assert_no_process_left(40)
    with DriverProcess(tmp_path, config, module=MODULE) as driver:
        found = driver.wait_for("rates")
        assert (found["asked"], found["effective"][0], found["sources"][0]) == (RATE, RATE, "user")
        assert found["effective_bytes"] == BYTE_RATE
        assert sum(found["effective"][1:]) <= TOTAL * (1 + 1e-9)
        # The first batches, too: receivers get their rates when they register. A batch has what
        # its interval and one burst let pass; a busy machine may stretch an interval.
        for batch in wait_for_batches(driver, 4):
            assert batch["counts"][0] <= RATE * (BATCH_S + 1) * 4
            assert sum(batch["counts"][1:]) <= TOTAL * (BATCH_S + 1) * 4
        driver.stop()
