"""The demo tells the truth, can be interrupted, and leaves nothing behind."""

from __future__ import annotations

import importlib
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.streaming import GivenUpBatch, StopReport
from tests.bounds import HANG_S
from tests.examples.running import ROOT, Run

DEMO = str(ROOT / "examples" / "demo.py")
START_BOUND_S = HANG_S
RUN_BOUND_S = HANG_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def result(run: Run, name: str) -> int:
    found = re.search(rf"^ *{name} +([\d,]+)$", run.output, re.MULTILINE)
    assert found is not None, run.output
    return int(found[1].replace(",", ""))


def shared_memory_of(run: Run) -> list[str]:
    application = re.search(r"application (\S+)", run.output)
    assert application is not None, run.output
    return [path.name for path in Path("/dev/shm").glob(f"*{application[1]}*")]


@pytest.mark.long
def test_every_acknowledged_line_is_processed_once_though_the_receiver_is_killed(
    run: Callable[..., Run],
) -> None:
    demo = run(DEMO, "--seconds", "8", "--rate", "5000")
    code = demo.wait_until_ended(RUN_BOUND_S)
    assert code == 0, demo.output
    assert result(demo, "sent") == result(demo, "acknowledged") == 40_000
    assert result(demo, "processed") == 40_000
    assert result(demo, "lost") == result(demo, "doubles") == 0
    assert "SIGKILL" in demo.output
    assert re.search(r"it is back after [\d.]+ s and goes on after line [\d,]+", demo.output)
    assert "Nothing acknowledged was lost" in demo.output
    assert re.search(r"^\d\d:\d\d:\d\d  \w+ [\d,]+", demo.output, re.MULTILINE), "no word counts"
    assert "Traceback" not in demo.output
    assert shared_memory_of(demo) == []
    demo.wait_until_nothing_is_left()


@pytest.mark.exhaustive  # Each program that is started again uses its folder again.
def test_the_log_folder_of_the_user_is_used_and_kept_and_can_be_used_again(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    log = tmp_path / "my log"
    for runs in (1, 2):
        demo = run(DEMO, "--seconds", "4", "--rate", "2000", "--no-kill", "--log-dir", str(log))
        assert demo.wait_until_ended(RUN_BOUND_S) == 0, demo.output
        assert "SIGKILL" not in demo.output
        assert result(demo, "processed") == 8000
        demo.wait_until_nothing_is_left()
        assert len(list(log.glob("*/receivedBlockMetadata/*.log"))) >= runs


@pytest.mark.exhaustive  # `test_interrupt` ends a program so.
def test_ctrl_c_ends_it_quickly_and_it_works_again_at_once(run: Callable[..., Run]) -> None:
    demo = run(DEMO, "--seconds", "600", "--rate", "2000")
    demo.wait_for_line(lambda line: re.match(r"\d\d:\d\d:\d\d  ", line) is not None, START_BOUND_S)
    demo.interrupt()
    assert demo.wait_until_ended(HANG_S) == 130, demo.output
    assert "Traceback" not in demo.output
    assert "nothing is left behind" in demo.output
    assert shared_memory_of(demo) == []
    demo.wait_until_nothing_is_left()

    again = run(DEMO, "--seconds", "600")
    again.wait_for_line(lambda line: "receiver LineReceiver-0 started" in line, START_BOUND_S)
    again.interrupt()
    assert again.wait_until_ended(HANG_S) == 130, again.output
    again.wait_until_nothing_is_left()


@pytest.mark.long
def test_ctrl_c_while_spark_starts_leaves_nothing_behind(run: Callable[..., Run]) -> None:
    demo = run(DEMO)
    end = time.monotonic() + START_BOUND_S
    while not any("SparkSubmit" in process for process in demo.processes().values()):
        assert time.monotonic() < end, demo.output
        threading.Event().wait(0.05)
    demo.interrupt()
    assert demo.wait_until_ended(HANG_S) == 130, demo.output
    assert "Traceback" not in demo.output
    assert "nothing is left behind" in demo.output
    demo.wait_until_nothing_is_left()


def test_what_a_slow_machine_left_in_the_log_is_not_called_lost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    demo = importlib.import_module("demo")
    tally = demo.Tally()
    tally.runs = [(1, 60)]

    def report(acknowledged: int, **facts: Any) -> tuple[int, str]:
        code = demo.report(100, acknowledged, tally, StopReport(graceful=True, **facts))
        return code, capsys.readouterr().out

    left = {"waiting_records": {"lines": 25}, "given_up": (GivenUpBatch(1000, {"lines": 15}),)}
    code, told = report(100, **left, are_kept=True, duration_s=120.0)
    assert code == 3
    assert "Nothing was lost, but 40 acknowledged lines were not processed in the 120 s" in told
    assert re.search(r"in the log +40\n +lost +0\n", told)
    # Without a folder that keeps them they are lost, and so is what no batch and no block has.
    assert report(100, **left)[0] == 1
    code, told = report(100, waiting_records={"lines": 30}, are_kept=True)
    assert code == 1
    assert "10 acknowledged lines were lost" in told
    assert report(60)[0] == 0
    # A batch that was given up may have been counted already.
    assert report(60, **left, are_kept=True)[0] == 0


def test_options_that_make_no_sense_are_named(run: Callable[..., Run]) -> None:
    demo = run(DEMO, "--seconds", "1")
    assert demo.wait_until_ended(START_BOUND_S) == 2
    assert "--seconds must be at least 4" in demo.output
