"""The thread that takes points, and that a program does not depend on it."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

import pytest

from penstock.clock import ManualClock
from penstock.monitor import Model, Monitor, start_monitor
from penstock.settings import Settings
from tests.monitor.feeding import Program


class Counting(Model):
    """A model that says when a point was taken, and may fail of it."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.application(), clock=program.clock)
        self.ticked = threading.Semaphore(0)
        self.fails = False

    def tick(self) -> None:
        try:
            if self.fails:
                raise ValueError("the tracker is gone")
            super().tick()
        finally:
            self.ticked.release()


def test_a_point_is_taken_every_second_until_the_end(caplog: pytest.LogCaptureFixture) -> None:
    program = Program()
    model = Counting(program)
    monitor = Monitor(model, program.clock)
    monitor.start()
    for _ in range(3):
        program.clock.advance(1000)
        assert model.ticked.acquire(timeout=30)
    model.fails = True
    with caplog.at_level(logging.WARNING, logger="penstock.monitor"):
        program.clock.advance(1000)
        assert model.ticked.acquire(timeout=30)
        program.clock.advance(1000)
        assert model.ticked.acquire(timeout=30)
    assert caplog.text.count("ValueError: the tracker is gone") >= 1
    monitor.stop(30)
    monitor.stop(30)
    assert not any(thread.name == "penstock-monitor" for thread in threading.enumerate())


def test_it_can_be_switched_off() -> None:
    added: list[Model] = []
    program = Program()
    settings = Settings.from_pairs([("spark.penstock.ui.enabled", "false")])
    assert start_monitor(program.application(), settings, added.append, ManualClock()) is None
    assert added == []


def test_it_listens_and_keeps_as_many_batches_as_the_settings_say() -> None:
    added: list[Model] = []
    program = Program()
    settings = replace(Settings(), retained_batches=3)
    monitor = start_monitor(program.application(), settings, added.append, program.clock)
    assert monitor is not None
    try:
        assert added == [monitor.model]
        program.model = monitor.model
        for number in range(10):
            program.batch(number)
        assert len(monitor.model.batches()) == 3
    finally:
        monitor.stop(30)
