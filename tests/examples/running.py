"""Running an example as a user does, and looking for what it left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.programs import ROOT, Program

__all__ = ["ROOT", "Run"]


class Run(Program):
    """A script in a process group of its own, with a temporary folder of its own."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        super().__init__(
            [sys.executable, *command],
            folder,
            stdin=subprocess.DEVNULL,
            PYTHONPATH=os.pathsep.join(path for path in paths if path),
            PYTHONUNBUFFERED="1",
            TMPDIR=str(self.temporary),
            SPARK_LOCAL_DIRS=None,
        )

    def wait_until_nothing_is_left(self) -> None:
        """Wait until no process of this run lives, and see that no file is left."""
        self.assert_no_process_left()
        assert sorted(path.name for path in self.temporary.iterdir()) == []
