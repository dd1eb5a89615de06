"""What a program says on its terminal."""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Iterator
from typing import Any, TextIO

import pytest

from penstock.listeners.bus import StreamingListenerBus
from penstock.listeners.events import (
    BatchCompleted,
    ReceiverInfo,
    ReceiverStarted,
    ReceiverStopped,
    SchedulerStatistics,
    StreamingStarted,
)
from penstock.listeners.input_info import BatchInput
from penstock.runtime.clock import ManualClock
from penstock.streaming.console import Console, ConsoleFacts
from penstock.streaming.dstream.job import JobSet

FACTS = ConsoleFacts(
    "Penstock runs it", lambda: SchedulerStatistics(3, 0, 7, 0, None), lambda: (1, 2)
)


class Terminal(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.has_status = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if "records/s" in text:
            self.has_status.set()
        return written

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        return self.getvalue().replace("\r\x1b[K", "").splitlines()


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def bus() -> Iterator[StreamingListenerBus]:
    bus = StreamingListenerBus()
    bus.start()
    yield bus
    bus.stop(10)


def receiver(message: str = "", error: str = "") -> ReceiverInfo:
    return ReceiverInfo(0, "lines-0", True, "host1", "2", message, error)


def tell(bus: StreamingListenerBus, mode: str, stream: TextIO, *events: Any) -> None:
    console = Console(FACTS, mode, ManualClock(), stream)
    bus.add(console)
    for event in events:
        bus.post(event)
    bus.wait_until_empty(10)


def test_a_program_says_that_it_has_started_and_what_its_receivers_do(
    terminal: Terminal, bus: StreamingListenerBus
) -> None:
    tell(
        bus,
        "auto",
        terminal,
        StreamingStarted(1),
        ReceiverStarted(receiver()),
        ReceiverStopped(receiver("Stopped by driver")),
    )
    assert terminal.lines() == [
        "Penstock runs it",
        "Receiver lines-0 runs on host1, executor 2",
        "Receiver lines-0 stopped: Stopped by driver",
    ]


def test_what_the_tracker_warns_of_is_not_said_twice(
    terminal: Terminal, bus: StreamingListenerBus
) -> None:
    tell(bus, "auto", terminal, ReceiverStopped(receiver("it failed", "Traceback …")))
    tell(
        bus,
        "auto",
        terminal,
        ReceiverStopped(receiver("Restarting receiver with delay 2000 ms: closed")),
    )
    assert terminal.lines() == []


@pytest.mark.parametrize(("mode", "lines"), [("auto", 0), ("off", 0), ("on", 1)])
def test_without_a_terminal_only_who_asks_for_it_gets_lines(
    bus: StreamingListenerBus, mode: str, lines: int
) -> None:
    file = io.StringIO()
    tell(bus, mode, file, StreamingStarted(1))
    assert file.getvalue().count("\n") == lines
    assert "\x1b" not in file.getvalue()


def test_a_program_whose_logging_shows_info_does_not_see_lines_twice(
    terminal: Terminal, bus: StreamingListenerBus, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "penstock.streaming"):
        tell(bus, "auto", terminal, StreamingStarted(1))
    assert "Penstock runs it" in caplog.messages
    assert terminal.lines() == []


def test_every_few_seconds_it_says_how_it_goes(
    terminal: Terminal, bus: StreamingListenerBus
) -> None:
    clock = ManualClock()
    console = Console(FACTS, "auto", clock, terminal)
    bus.add(console)
    batch = JobSet(1000, (), {0: BatchInput(0, 5000, {})})
    batch.submission_ms, batch.start_ms, batch.end_ms = 1000, 1100, 1500
    bus.post(BatchCompleted(batch.info()))
    bus.wait_until_empty(10)
    console.start()
    try:
        while not terminal.has_status.wait(0.01):
            clock.advance(1000)
    finally:
        console.stop(10)
    status = terminal.lines()[0]
    assert "last batch 5,000 records, delay 0.50 s | 3 batches wait | 1 of 2 receivers" in status


def test_a_terminal_that_is_gone_is_no_reason_to_stop(
    terminal: Terminal, bus: StreamingListenerBus
) -> None:
    console = Console(FACTS, "on", ManualClock(), terminal)
    terminal.close()
    console.say("something")
