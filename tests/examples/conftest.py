"""Examples run in processes of their own; what a failed test leaves of them is ended here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.examples.running import Run


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(*command: str) -> Run:
        folder = tmp_path / str(len(runs))
        folder.mkdir()
        runs.append(Run(folder, *command))
        return runs[-1]

    yield start
    for started in runs:
        started.close()
