"""Who is told of what the tracker of a `ReceiverHost` tells."""

from __future__ import annotations

import logging

import pytest

from penstock.host.errors import ContinuousStreamError
from penstock.host.terminal import TerminalLines
from penstock.monitor import TrackerEvents
from penstock.sql._host_monitor import HostEvents
from penstock.tracker import ReceiverState, ReceiverTrackingInfo
from penstock.tracker.cluster import ExecutorLocation
from tests.monitor.feeding import START_MS, Program


def told(message: str = "") -> ReceiverTrackingInfo:
    return ReceiverTrackingInfo(
        0,
        ReceiverState.ACTIVE,
        "numbers-0",
        running=ExecutorLocation("h1", "3"),
        last_error_message=message,
        last_error="",
        last_error_time_ms=START_MS,
    )


def test_each_is_told_of_what_concerns_it(capsys: pytest.CaptureFixture[str]) -> None:
    errors: list[Exception] = []
    program = Program(batch_ms=None)
    lines = TerminalLines(logging.getLogger("penstock.sql"), "on")
    events = HostEvents(errors.append, program.readings, lines)
    events.monitor = TrackerEvents(program.model)
    program.receiver()
    program.report(at_s=1.0)
    before = program.model.events()[-1].number

    events.receiver_started(told())
    events.receiver_error(told("no route"))
    assert 0 in program.model.application.readings()
    events.receiver_stopped(told("no route"))
    assert 0 not in program.model.application.readings()
    events.permanent_error(0, "Receiver 0 failed 8 times", "Traceback")
    assert ["Receiver 0 failed 8 times" in str(error) for error in errors] == [True]
    assert [event.text for event in program.model.events(before)] == [
        "numbers-0 runs on h1",
        "numbers-0: no route",
        "numbers-0 stopped: no route",
        "Given up: Receiver 0 failed 8 times",
    ]
    assert "Receiver numbers-0 runs on h1" in capsys.readouterr().err


def test_of_a_function_that_is_given_up_each_is_told() -> None:
    errors: list[Exception] = []
    program = Program(batch_ms=None)
    lines = TerminalLines(logging.getLogger("penstock.sql"), "off")
    events = HostEvents(errors.append, program.readings, lines)
    events.continuous_error(0, "Task 0 of continuous stream numbers: it failed", "Traceback")
    events.monitor = TrackerEvents(program.model)
    events.continuous_error(0, "Task 0 of continuous stream numbers: it failed", "Traceback")
    assert [type(error) for error in errors] == [ContinuousStreamError, ContinuousStreamError]
    assert [event.text for event in program.model.events()] == [
        "Given up: Task 0 of continuous stream numbers: it failed",
    ]


def test_without_a_monitor_the_host_is_told() -> None:
    errors: list[Exception] = []
    lines = TerminalLines(logging.getLogger("penstock.sql"), "off")
    events = HostEvents(errors.append, Program(batch_ms=None).readings, lines)
    events.receiver_started(told())
    events.receiver_error(told("no route"))
    events.receiver_stopped(told("no route"))
    events.permanent_error(0, "Receiver 0 failed 8 times", "")
    assert len(errors) == 1
