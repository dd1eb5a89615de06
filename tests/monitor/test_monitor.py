"""The thread that takes points, and that a program does not depend on it."""

from __future__ import annotations

import http.client
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import pytest

from penstock.monitor import Model, Monitor, start_monitor
from penstock.monitor.registry import registered, runtime_folder
from penstock.settings import Settings
from tests.bounds import HANG_S
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

    def let_a_second_pass() -> None:
        # The thread may only just be about to wait for the next one.
        end_s = time.monotonic() + HANG_S
        while not model.ticked.acquire(timeout=0.05):
            assert time.monotonic() < end_s
            program.clock.advance(1000)

    for _ in range(3):
        let_a_second_pass()
    model.fails = True
    with caplog.at_level(logging.WARNING, logger="penstock.monitor"):
        let_a_second_pass()
        let_a_second_pass()
    assert caplog.text.count("ValueError: the tracker is gone") >= 1
    monitor.stop(30)
    monitor.stop(30)
    assert not any(thread.name == "penstock-monitor" for thread in threading.enumerate())


def test_it_can_be_switched_off() -> None:
    added: list[Model] = []
    program = Program()
    settings = Settings.from_pairs([("spark.penstock.ui.enabled", "false")])
    assert start_monitor(program.application(), settings, added.append, print) is None
    assert added == []


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = Started()
    yield made
    for monitor in made.monitors:
        monitor.stop(30)
    assert registered(runtime_folder(os.environ)) == []


class Started:
    """Starts monitors of programs that never ran."""

    def __init__(self) -> None:
        self.monitors: list[Monitor] = []
        self.added: list[Model] = []
        self.said: list[str] = []

    def __call__(self, program: Program, **changes: Any) -> Monitor:
        conf = changes.pop("spark_conf", {})
        monitor = start_monitor(
            replace(program.application(), spark_conf=conf),
            replace(Settings(), **{"ui_port": 0, **changes}),
            self.added.append,
            self.said.append,
            program.clock,
        )
        assert monitor is not None
        self.monitors.append(monitor)
        return monitor


def read(link: str, body: str | None = None) -> tuple[int, str]:
    parts = urlsplit(link)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=HANG_S)
    try:
        connection.request("GET" if body is None else "POST", f"{parts.path}?{parts.query}", body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_it_listens_and_keeps_as_many_batches_as_the_settings_say(started: Started) -> None:
    program = Program()
    monitor = started(program, retained_batches=3)
    assert started.added == [monitor.model]
    program.model = monitor.model
    for number in range(10):
        program.batch(number)
    assert len(monitor.model.batches()) == 3


def test_it_says_in_one_line_where_it_can_be_looked_at(started: Started) -> None:
    started(Program())
    (line,) = started.said
    assert line.startswith("It can be looked at on http://127.0.0.1:")
    assert read(f"{line.split()[-1]}health/live") == (200, "ok\n")
    (app,) = registered(runtime_folder(os.environ))
    assert app.url == line.split()[-1]


def test_two_programs_of_a_host_have_ports_side_by_side(started: Started) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started(Program(), ui_port=port)
        (line,) = started.said
        assert f":{port}/" not in line


def test_where_spark_asks_who_may_look_the_line_has_a_link_that_lets_in_once(
    started: Started,
) -> None:
    started(Program(), spark_conf={"spark.acls.enable": "true"})
    (line,) = started.said
    link = line.split()[-2]
    address, _, code = link.partition("#code=")
    assert read(f"{address}metrics")[0] == 403
    for status in (200, 403):
        assert read(f"{address}api/penstock/login", json.dumps({"code": code}))[0] == status


def test_an_address_that_this_host_has_not_is_told_and_the_program_goes_on(
    started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="penstock.monitor"):
        monitor = started(Program(), ui_host="192.0.2.1")
    assert "set spark.penstock.ui.host to an address of this host" in caplog.text
    assert started.said == []
    assert monitor.model.totals().completed_batches == 0


def test_what_nobody_thought_of_does_not_keep_a_program_from_its_start(
    started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="penstock.monitor"):
        monitor = started(Program(), ui_host="no\0name")
    assert "cannot be looked at from outside: TypeError" in caplog.text
    assert started.said == []
    assert monitor.model.totals().completed_batches == 0


def test_it_ends_whole_although_its_file_cannot_be_removed(
    started: Started, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = started(Program())
    (app,) = registered(runtime_folder(os.environ))
    folder = runtime_folder(os.environ)
    folder.rename(tmp_path / "away")
    folder.write_text("not a folder")
    with caplog.at_level(logging.WARNING, logger="penstock.monitor"):
        monitor.stop(30)
    assert "stays" in caplog.text
    with pytest.raises(ConnectionRefusedError):
        read(f"{app.url}health/live")
    folder.unlink()


class Interrupted(BaseException):
    """Stands for Ctrl-C."""


@pytest.mark.parametrize("at", ["views", "file", "line"])
def test_a_start_that_is_interrupted_leaves_nothing(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    urls: list[str] = []

    def interrupt(*_: object, **__: object) -> NoReturn:
        raise Interrupted

    def say(line: str) -> None:
        urls.append(line.split()[-1])
        if at == "line":
            raise Interrupted

    if at == "views":
        monkeypatch.setattr(Monitor, "start", interrupt)
    elif at == "file":
        monkeypatch.setattr("penstock.monitor.monitor.register", interrupt)
    program = Program()
    with pytest.raises(Interrupted):
        start_monitor(
            program.application(), replace(Settings(), ui_port=0), lambda model: None, say
        )
    assert registered(runtime_folder(os.environ)) == []
    with pytest.raises(ConnectionRefusedError):
        read(f"{urls[0]}health/live")
