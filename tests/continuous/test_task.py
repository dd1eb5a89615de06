"""An attempt of a continuous task, without Spark."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.continuous.task import ContinuousLaunch, _Attempt
from penstock.wire.messages import TaskWaits
from tests.bounds import HANG_S
from tests.receiver.conftest import SETTINGS
from tests.receiver.running import Tracker, make_launch


@pytest.mark.parametrize("call", ["_function_call", "_sink_call", "_state_call"])
def test_a_call_that_hangs_is_told_and_ends_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    tracker = Tracker()
    try:
        access: Any = SimpleNamespace(link=make_launch(b"", tracker, tmp_path, SETTINGS).link)
        attempt = _Attempt(ContinuousLaunch(0, 0, 1, "a", b"", access, 2.0, 60.0, 60.0, 1 << 20))
        sent: list[Any] = []
        monkeypatch.setattr(attempt._client, "send", sent.append)
        hanging = getattr(attempt, call)
        supervising = threading.Thread(target=attempt._supervise)
        bound_s = 20.0 if call == "_state_call" else 2.0
        hanging.since_s = time.monotonic() - bound_s + 1
        supervising.start()
        supervising.join(HANG_S)
        assert not supervising.is_alive()
        assert time.monotonic() - hanging.since_s > bound_s
        assert sent[0] == TaskWaits(0, 0, "a", hanging.what)
        assert sent[-1].message == f"{hanging.what} has not returned for {bound_s:g} s"
    finally:
        tracker.server.stop()
