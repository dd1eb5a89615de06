"""Receivers that tests kill; executors import them from here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from penstock.sources.kafka import KafkaReceiver


class Marked(KafkaReceiver):
    """Leaves a file for each process that it runs in, named after the process's id."""

    def __init__(self, folder: Path, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.folder = folder

    def onStart(self) -> None:
        (self.folder / str(os.getpid())).touch()
        super().onStart()
