"""The programs of docs/low-latency.md run as they stand there, but for folder and time."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.bounds import HANG_S
from tests.programs import Program
from tests.system.leftovers import await_that

PAGE = Path(__file__).parents[2] / "docs" / "low-latency.md"


pytestmark = [pytest.mark.long, pytest.mark.slow]


def run(program: str, folder: Path, column: str, least: int) -> list[dict[str, Any]]:
    """Run it until a column has that many values; return the rows."""
    for shown, real in (("/tmp/payments", str(folder)), ("timeout=20", f"timeout={HANG_S}")):
        assert shown in program
        program = program.replace(shown, real)
    folder.mkdir()
    command = [sys.executable, "-c", program]
    with Program(command, folder) as running:

        def is_enough() -> bool:
            assert running.process.poll() is None, running.report()
            return len({row[column] for row in rows_in(folder)}) >= least

        await_that(f"{least} values", is_enough, HANG_S, running.report)
        running.process.terminate()
        assert running.wait_until_ended() == 0, running.report()
    return rows_in(folder)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of its files, of those that have their name already."""
    files = sorted(folder.glob("*/part-*.parquet"))
    return [row for path in files for row in pq.ParquetFile(str(path)).read().to_pylist()]


def test_the_programs_of_the_page_write_what_their_functions_return(tmp_path: Path) -> None:
    first, second, third, fourth = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    rows = run(first, tmp_path / "first", "amount", 1)
    assert min(row["amount"] for row in rows) > 200.0

    function, call = second.split("\n\n\n")
    (line,) = (line for line in first.splitlines() if line.startswith("stream.continuous("))
    changed = first.replace(line, call.strip()).replace("conf = ", f"{function}\n\n\nconf = ", 1)
    totals: dict[int, float] = {}
    for row in run(changed, tmp_path / "second", "card", 51):
        assert row["total"] > totals.get(row["card"], 0.0)
        totals[row["card"]] = row["total"]
    assert len(totals) > 50

    # With shorter windows, so that it takes no longer.
    changed = third.replace("WINDOW_MS = 10_000", "WINDOW_MS = 1000").replace("2 seconds", "1 s")
    changed = first.replace(line, "counted(stream)").replace("conf = ", f"{changed}\n\nconf = ", 1)
    changed = changed.replace("receiverStream(payments,", "receiverStream(timed_payments,")
    windows = [row["window"] for row in run(changed, tmp_path / "third", "window", 51)]
    assert len(windows) == len(set(windows))

    session = 'SparkSession.builder.master("local[3]").getOrCreate()'
    changed = f"from pyspark.sql import SparkSession\n{first.split('conf = ')[0]}{fourth}"
    rows = run(f"{changed}\nhost({session}).run(timeout=20)\n", tmp_path / "fourth", "amount", 1)
    assert min(row["amount"] for row in rows) > 200.0
