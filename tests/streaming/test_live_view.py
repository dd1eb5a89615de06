"""The table of a context that follows it."""

from __future__ import annotations

import contextvars
import queue
import threading
from typing import Any

from penstock.runtime.threads import OwnedThread
from penstock.streaming._live_view import LiveView, open_live_view
from tests.bounds import HANG_S

CELL: contextvars.ContextVar[int] = contextvars.ContextVar("CELL")


class Widget:
    def __init__(self) -> None:
        self.sent: queue.Queue[str] = queue.Queue()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "value":
            self.sent.put(value)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return {"text/plain": "HTML()", "application/vnd.jupyter.widget-view+json": {"id": 1}}


def test_a_table_is_sent_when_it_has_changed_and_once_more_at_the_end() -> None:
    widget = Widget()
    readings = iter(["1", "1", "1", "2", "2", "2"])
    view = LiveView(widget, lambda: next(readings, "the end"), every_s=0.001)
    assert [widget.sent.get(timeout=HANG_S) for _ in range(3)] == ["1", "2", "the end"]
    view.close()
    assert widget.sent.empty()
    assert "penstock-live-view" not in [thread.name for thread in threading.enumerate()]


def test_the_last_reading_is_shown_at_the_end() -> None:
    widget = Widget()
    view = LiveView(widget, lambda: "stopped", every_s=3600)
    view.close()
    assert widget.sent.get(timeout=HANG_S) == "stopped"


def test_a_cell_gets_the_view_and_not_the_name_of_the_widget() -> None:
    view = LiveView(Widget(), lambda: "")
    assert view.mimebundle() == {"application/vnd.jupyter.widget-view+json": {"id": 1}}
    view.close()


def test_an_ordinary_program_has_no_live_view() -> None:
    assert open_live_view(lambda: "") is None


def test_a_thread_sees_the_cell_that_started_it() -> None:
    seen: queue.Queue[int] = queue.Queue()
    thread = OwnedThread(lambda: seen.put(CELL.get(0)), "test")
    token = CELL.set(7)
    thread.start()
    CELL.reset(token)
    thread.join()
    assert seen.get() == 7
