"""Stops while the JVM of Spark hangs: they say so, and end within their bounds."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.system.driver_process import DriverProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.long
@pytest.mark.parametrize(
    "when",
    [
        pytest.param("at stop", marks=pytest.mark.exhaustive),
        pytest.param("at graceful stop", marks=pytest.mark.exhaustive),
        "at start",
    ],
)
def test_a_stop_says_that_the_jvm_does_not_answer_and_ends(when: str, tmp_path: Path) -> None:
    driver = DriverProcess(tmp_path, {"when": when}, module="tests.system.silent_jvm_program")
    jvm = driver.wait_for("silent")["jvm"]
    try:
        driver.wait_for("stopped")
        assert driver.wait_until_ended() == 0
        told = driver.log()
        assert f"The JVM of Spark (process {jvm}) has not stopped the SparkContext" in told
        if when == "at start":
            assert "StreamingContext cannot be stopped yet: start() has not returned" in told
            assert "in the thread starter" in told
        else:
            assert f"The JVM of Spark (process {jvm}) has not answered for" in told
    finally:
        with suppress(ProcessLookupError):
            os.kill(jvm, signal.SIGKILL)
        driver.close()


@pytest.mark.long
def test_a_jvm_that_dies_during_a_start_is_told_as_the_end_of_spark(tmp_path: Path) -> None:
    when = {"when": "dies at start"}
    with DriverProcess(tmp_path, when, module="tests.system.silent_jvm_program") as driver:
        error = driver.wait_for("failed")["error"]
        assert error.startswith(
            "SparkEndedError: the streams have ended because Spark has: its JVM"
        )
        assert driver.wait_until_ended() == 0
