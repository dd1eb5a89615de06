from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.streaming.checkpoint.recovering import Build, Program, ProgramOf


@pytest.fixture
def program_of(sc: Any, tmp_path: Path) -> Iterator[ProgramOf]:
    """Make programs that can be stopped and made again, each in a folder of its own."""
    programs: list[Program] = []

    def make(build: Build) -> Program:
        folder = tmp_path / str(len(programs))
        folder.mkdir()
        programs.append(Program(sc, folder, build))
        return programs[-1]

    yield make
    for program in programs:
        program.stop()
