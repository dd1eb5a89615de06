"""The listener bus: in order, whatever a listener raises, and nothing after a stop."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.listeners.bus import StreamingListenerBus
from penstock.listeners.events import StreamingStarted
from penstock.streaming import StreamingListener
from tests.bounds import HANG_S
from tests.doubles import UntoldError

WAIT_S = HANG_S


class Hearing(StreamingListener):
    def __init__(self) -> None:
        self.heard: list[int] = []
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def onStreamingStarted(self, streamingStarted: Any) -> None:
        self.entered.set()
        assert self.go_on.wait(WAIT_S)
        self.heard.append(streamingStarted.time())


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, UntoldError])
def test_what_a_listener_raises_costs_nobody_else_anything(
    error: type[BaseException], caplog: Any
) -> None:
    class Raising(StreamingListener):
        def onStreamingStarted(self, streamingStarted: Any) -> None:
            raise error("it broke")

    bus, hearing = StreamingListenerBus(), Hearing()
    bus.add(Raising())
    bus.add(hearing)
    bus.start()
    bus.post(StreamingStarted(1))
    bus.post(StreamingStarted(2))
    bus.wait_until_empty(WAIT_S)
    bus.stop(WAIT_S)
    assert hearing.heard == [1, 2]
    assert caplog.text.count("Listener Raising threw an exception in onStreamingStarted") == 1


def test_after_a_stop_no_event_is_told() -> None:
    bus, hearing = StreamingListenerBus(), Hearing()
    hearing.go_on.clear()
    bus.add(hearing)
    bus.start()
    bus.post(StreamingStarted(1))
    assert hearing.entered.wait(WAIT_S)
    bus.post(StreamingStarted(2))
    bus.stop(0.0)
    bus.post(StreamingStarted(3))
    hearing.go_on.set()
    bus._thread.join(WAIT_S)
    assert not bus._thread.is_alive()
    # It was in the first one already; the second waited, the third came after.
    assert hearing.heard == [1]
