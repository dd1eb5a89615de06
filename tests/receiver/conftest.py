"""Fixtures: a tracker, and a way to run a receiver against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.settings import Settings
from penstock.wire.messages import StopReceiver
from tests.receiver.running import Running, Shared, Tracker

SETTINGS = Settings(
    block_interval_ms=20,
    receiver_restart_delay_ms=10,
    memory_bytes=4 << 20,
    block_max_bytes=1 << 20,
    wal_segment_bytes=8 << 20,
    graceful_stop_timeout_ms=10_000,
    ask_timeout_s=10.0,
)


@pytest.fixture
def tracker() -> Iterator[Tracker]:
    tracker = Tracker()
    yield tracker
    tracker.server.stop()


@pytest.fixture
def shared() -> Shared:
    return Shared()


@pytest.fixture
def run(tracker: Tracker, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Run a receiver; it is stopped by the driver at the end of the test if it still runs."""
    running: list[Running] = []

    def start(receiver: object, settings: Settings = SETTINGS, **changes: Any) -> Running:
        # The arena's file outlives a receiver on purpose; here it goes with the test's folder.
        placed = replace(settings, memory_dir=str(tmp_path))
        started = Running(receiver, tracker, tmp_path, placed, **changes)
        running.append(started)
        return started

    yield start
    for started in running:
        if tracker.peer is not None:
            tracker.send(StopReceiver())
        started.join()
