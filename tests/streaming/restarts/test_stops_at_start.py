"""A stop while `start` hangs in another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import IllegalStateError
from penstock.streaming import StreamingContext, StreamingContextState
from penstock.streaming._engine import StreamingEngine
from tests.bounds import HANG_S
from tests.streaming.restarts.driven import Driven, World

WAIT_S = HANG_S


def build(ssc: Any, world: World) -> None:
    world.keep(world.stream(ssc), "records")


class HangingStart:
    """A program whose start hangs in a thread of its own until `go_on`.

    Attributes:
        errors: What it raised.
    """

    def __init__(self, program: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
        self._program = program
        self._is_there, self._may_go_on = threading.Event(), threading.Event()
        self.errors: list[BaseException] = []
        start = StreamingEngine.start

        def hang(engine: StreamingEngine) -> None:
            self._is_there.set()
            assert self._may_go_on.wait(WAIT_S)
            start(engine)

        monkeypatch.setattr(StreamingEngine, "start", hang)
        self._thread = threading.Thread(target=self._start)
        self._thread.start()
        assert self._is_there.wait(WAIT_S)
        assert program.ssc is not None
        self.ssc: StreamingContext = program.ssc

    def _start(self) -> None:
        try:
            self._program.start(settle=False)
        except IllegalStateError as error:
            self.errors.append(error)

    def go_on(self) -> None:
        """Let it return, and wait for that."""
        self._may_go_on.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def let_time_be_over(
    monkeypatch: pytest.MonkeyPatch, first: Callable[[], None] = lambda: None
) -> None:
    """Let the time that a stop has for a start be over when it looks, after `first`."""
    looked = iter([0.0])

    def now_s() -> float:
        begin_s = next(looked, None)
        if begin_s is not None:
            return begin_s
        first()
        return 1000.0

    monkeypatch.setattr("penstock.streaming.context.time", SimpleNamespace(monotonic=now_s))


def test_it_goes_on_without_and_the_start_stops_what_it_has_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Driven(build) as program:
        start = HangingStart(program, monkeypatch)
        let_time_be_over(monkeypatch)
        stopped: list[Any] = []
        monkeypatch.setattr("penstock.streaming.context.stop_spark", stopped.append)
        assert start.ssc.stop() is None
        assert stopped == [program.sc]
        assert "StreamingContext cannot be stopped yet: start() has not returned" in caplog.text
        start.go_on()
        (error,) = start.errors
        assert "was stopped while it started" in str(error)
        assert start.ssc.getState() is StreamingContextState.STOPPED
        assert StreamingContext.getActive() is None


def test_a_start_that_returns_at_the_last_moment_is_stopped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Driven(build) as program:
        start = HangingStart(program, monkeypatch)
        let_time_be_over(monkeypatch, start.go_on)
        assert start.ssc.stop(stopSparkContext=False) is not None
        assert start.errors == []
        assert start.ssc.getState() is StreamingContextState.STOPPED
        assert StreamingContext.getActive() is None
    assert "cannot be stopped yet" not in caplog.text
