"""An attempt of a continuous task, without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.continuous import Epoch, Sink, task
from penstock.continuous.sinks import SinkHeldError
from penstock.continuous.task import ContinuousLaunch, _Attempt
from penstock.wire.messages import TaskWaits
from tests.bounds import HANG_S
from tests.receiver.conftest import SETTINGS
from tests.receiver.running import Tracker, make_launch


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[_Attempt]:
    tracker = Tracker()
    access: Any = SimpleNamespace(link=make_launch(b"", tracker, tmp_path, SETTINGS).link)
    yield _Attempt(ContinuousLaunch(0, 0, 1, "a", b"", access, 2.0, 60.0, 60.0, 1 << 20))
    tracker.server.stop()


@pytest.fixture
def sent(attempt: _Attempt, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the attempt tells the driver."""
    told: list[Any] = []
    monkeypatch.setattr(attempt._client, "send", told.append)
    return told


@pytest.mark.parametrize("call", ["_function_call", "_sink_call", "_state_call"])
def test_a_call_that_hangs_is_told_and_ends_the_attempt(
    attempt: _Attempt, sent: list[Any], call: str
) -> None:
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


@pytest.fixture
def resting(attempt: _Attempt, monkeypatch: pytest.MonkeyPatch) -> threading.Thread:
    """The thread of an attempt that has nothing to look after, and does not look by itself."""
    monkeypatch.setattr(task, "_REST_S", 3600.0)
    supervising = threading.Thread(target=attempt._supervise)
    supervising.start()
    end_s = time.monotonic() + HANG_S
    while not attempt._rest._rests:
        assert time.monotonic() < end_s
        time.sleep(0.01)
    return supervising


def test_a_call_ends_the_rest_of_an_idle_attempt(
    attempt: _Attempt, sent: list[Any], resting: threading.Thread
) -> None:
    with attempt._function_call.timed():
        resting.join(HANG_S)
    assert not resting.is_alive()
    assert sent[-1].message == "the function has not returned for 2 s"


def test_an_idle_attempt_ends_at_once(attempt: _Attempt, resting: threading.Thread) -> None:
    attempt._end(None)
    resting.join(HANG_S)
    assert not resting.is_alive()


class HeldSink(Sink):
    """Takes a part when it is asked for the last time."""

    def __init__(self, times: int) -> None:
        self.times = times

    def commit(self, epoch: Epoch, batches: Sequence[Any]) -> None:
        self.times -= 1
        if self.times:
            raise SinkHeldError("a" * 1000)


def test_a_sink_that_is_held_is_asked_again_until_it_takes_the_part(
    attempt: _Attempt, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "_LOOK_S", 0.01)
    epoch = Epoch("e", 0, 0, "a")
    assert attempt._is_committed(HeldSink(5), epoch, [])
    assert sent == []
    with monkeypatch.context() as patched:
        patched.setattr(task, "_HELD_S", -1.0)
        with pytest.raises(SinkHeldError):
            attempt._is_committed(HeldSink(5), epoch, [])
    attempt._end(None)
    assert not attempt._is_committed(HeldSink(5), epoch, [])
