"""Steps of a stop that are bounded."""

from __future__ import annotations

import threading

import pytest

from penstock.host.spark.ending import run_bounded


def test_a_step_that_hangs_is_left_behind() -> None:
    run = threading.Event()
    assert not run_bounded("test", run.wait, 0.05)
    run.set()


def test_it_is_run_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    ran = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert run_bounded("test", lambda: ran.append(1), 1.0)
    assert ran == [1]
