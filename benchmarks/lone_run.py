"""A program that takes its figures by itself: started, heard, and removed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from typing import Any

from benchmarks.child import Child
from benchmarks.results import Figures
from benchmarks.streaming_run import Window, shared_memory

__all__ = ["run_alone"]

_BOUND_S = 1800.0


def run_alone(
    program: str, window: Window, parent_folder: str, show: Callable[[str], None]
) -> tuple[Figures, dict[str, Any]]:
    """Run a program to its end; return its figures, and what it notes beside them.

    Args:
        program: Its module.
        window: How long a measured window is: one that takes its figures of so many records, takes
            them of fewer or more in proportion (``scale``).
        parent_folder: Where the run's own folder is made.
        show: Told now and then how far it is.

    Raises:
        ChildFailedError: It failed.
    """
    folder = tempfile.mkdtemp(prefix="penstock-benchmark-", dir=parent_folder)
    memory_folder = tempfile.mkdtemp(prefix="penstock-benchmark-", dir=shared_memory())
    heard: list[dict[str, Any]] = []

    def hear(message: dict[str, Any]) -> None:
        if "progress" in message:
            show(message["progress"])
        else:
            heard.append(message)

    options = {
        "folder": folder,
        "memory_folder": memory_folder,
        "scale": window.seconds / Window().seconds,
    }
    child = Child(program, options, hear, {"TMPDIR": folder})
    try:
        child.wait("figures", lambda: bool(heard), _BOUND_S)
        return heard[-1]["figures"], heard[-1].get("notes", {})
    finally:
        child.end()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(memory_folder, ignore_errors=True)
