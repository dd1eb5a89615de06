"""The fixtures that pytest finds by itself where Penstock is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bounds import HANG_S

TESTS = """
import contextlib

from penstock.receiver import receiver


@receiver(positions=True)
def numbers(ctx):
    for number in range(ctx.last_position or 0, 20):
        yield number, number + 1
        ctx.stopped.wait(0.02)
    ctx.stopped.wait()


class Numbers:
    def expected(self):
        yield from range(20)


def test_running(run_receiver):
    running = run_receiver(numbers)
    assert running.wait_for_records(20) == list(range(20))


def test_killing(crash_test):
    report = crash_test(
        lambda source: numbers, lambda: contextlib.nullcontext(Numbers()), claim="exactly once"
    )
    assert report.seed == 5
    assert 1 <= sum(report.kills.values()) <= 3
"""


@pytest.mark.long
def test_receivers_are_run_and_killed_by_fixtures(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_own.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ["-q", "-p", "penstock.pytest_plugin", "--penstock-kills=1", "--penstock-seed=5"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert "2 passed" in ended.stdout, ended.stdout + ended.stderr


def test_the_plugin_imports_no_pyspark() -> None:
    look = "import sys, penstock.pytest_plugin; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0
