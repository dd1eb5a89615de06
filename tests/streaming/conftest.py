from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.blockstore import BlockStore
from penstock.blockstore.store import BlockStoreOptions
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


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockStore]:
    """A store whose blocks lie in the test's folder."""
    options = BlockStoreOptions(
        memory_dir=str(tmp_path), memory_bytes=1 << 20, block_max_bytes=128 << 10
    )
    made = BlockStore(
        stream_id=0,
        attempt="0" * 32,
        host="here",
        log_folder=str(tmp_path / "log"),
        options=options,
    )
    yield made
    made.close()
