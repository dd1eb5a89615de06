"""The programs of the tutorial run as they stand there, one of them killed; only places change."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bounds import HANG_S
from tests.examples.running import ROOT, Run

BOUND_S = HANG_S
CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2700)]


@pytest.fixture
def programs(tmp_path: Path) -> list[str]:
    """Write each program of the page to a file, in order; return the files."""
    page = (ROOT / "docs" / "tutorial.md").read_text()
    files = []
    for number, block in enumerate(CODE.findall(page)):
        files.append(tmp_path / f"program{number}.py")
        files[-1].write_text(block.replace("/tmp/tutorial", str(tmp_path / "tutorial")))
    return [str(file) for file in files]


@pytest.mark.long
def test_the_first_program_shows_batches(run: Callable[..., Run], programs: list[str]) -> None:
    first = run(programs[0])
    first.wait_for_line(lambda line: line.startswith("class "), BOUND_S)
    first.interrupt()
    assert first.wait_until_ended(BOUND_S) == 0, first.output
    assert "Traceback" not in first.output
    first.wait_until_nothing_is_left()


@pytest.mark.exhaustive
def test_the_durable_program_is_killed_and_saves_each_line_once(
    run: Callable[..., Run],
    programs: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each run has a folder of its own for temporary files; commands find programs in this one.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    # As on a terminal.
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.penstock.console=on pyspark-shell")
    killed = run(programs[1])
    killed.wait_for_line(lambda line: line.startswith("saved the batch of"), BOUND_S)
    killed.kill()

    again = run(programs[1])
    address = again.wait_for_line(lambda line: "It can be looked at on" in line, BOUND_S)
    assert re.search(r"http://127\.0\.0\.1:\d+/", address), address
    again.wait_for_line(lambda line: line.startswith("saved the batch of"), BOUND_S)
    for command in ("top --once", "rate library 2000/second", "rate library none"):
        asked = run("-m", "penstock", *command.split())
        assert asked.wait_until_ended(BOUND_S) == 0, asked.output
    again.wait_for_line(lambda line: "Source ended" in line, BOUND_S)
    again.interrupt()
    assert again.wait_until_ended(BOUND_S) == 0, again.output
    assert "Traceback" not in again.output
    again.wait_until_nothing_is_left()

    check = run(programs[2])
    assert check.wait_until_ended(BOUND_S) == 0, check.output
    counts = [int(line.split()[0]) for line in check.lines]
    assert len(counts) == 2
    assert counts[0] == counts[1] > 0, check.output
