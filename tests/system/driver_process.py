"""`DriverProcess`: runs a program of this folder in a process of its own, and looks after it."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bounds import HANG_S
from tests.programs import TellingProgram

WAIT_S = HANG_S


class DriverProcess(TellingProgram):
    """A streaming program that is running."""

    def __init__(
        self,
        folder: Path,
        config: dict[str, Any],
        command: Sequence[str] = (sys.executable,),
        module: str = "tests.system.program",
    ) -> None:
        name = uuid.uuid4().hex
        self._numbers = folder / f"numbers-{name}"
        self.hold = Path(f"{self._numbers}-hold")
        text = json.dumps({**config, "numbers": str(self._numbers)})
        super().__init__([*command, "-m", module, text], folder, errors=folder / f"log-{name}")

    def wait_until_started(self) -> dict[str, Any]:
        return self.wait_for("started")

    def numbers(self, receiver: int = 0) -> list[int]:
        """Return all numbers of a receiver that it processed so far, in its order."""
        path = Path(f"{self._numbers}-{receiver}")
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def stop(self) -> None:
        """Let it stop gracefully; it ends with exit code 0."""
        self.tell("stop")
        assert self.wait_until_ended() == 0, self.report()
