"""The program of docs/low-latency.md runs as it stands there, but for its folder and its time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.bounds import HANG_S

PAGE = Path(__file__).parents[2] / "docs" / "low-latency.md"


@pytest.mark.long
@pytest.mark.slow
def test_the_program_of_the_page_writes_what_its_function_returns(tmp_path: Path) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    for shown, real in (("/tmp/payments", str(tmp_path)), ("timeout=20", "timeout=8")):
        assert shown in program
        program = program.replace(shown, real)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, timeout=HANG_S
    )
    assert ended.returncode == 0, ended.stderr.decode()
    files = list((tmp_path / "suspicious").glob("part-*.parquet"))
    assert files
    for path in files:
        assert min(pq.ParquetFile(str(path)).read()["amount"].to_pylist()) > 200.0
