"""What threads of an author die of, while a receiver runs and after it."""

from __future__ import annotations

import sys
import threading

import pytest

from penstock.receiver import ReceiverStoppedError
from penstock.receiver.user_calls import UncaughtErrors


def die_of(error: BaseException) -> None:
    def die() -> None:
        raise error

    thread = threading.Thread(target=die)
    thread.start()
    thread.join()


def test_a_thread_that_learns_late_that_its_receiver_stopped_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[BaseException | None] = []
    reported: list[BaseException] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: told.append(arguments.exc_value))
    for _ in range(2):  # a process of Python's serves one receiver after the other
        with UncaughtErrors(lambda thread, error: reported.append(error)):
            die_of(during := ReceiverStoppedError("the thread's receiver stops"))
        die_of(ReceiverStoppedError("the thread's receiver has stopped"))
        die_of(other := ValueError("a defect"))
        assert reported.pop() is during
        assert not reported
        assert told.pop() is other
        assert not told


def test_an_exit_of_a_thread_is_an_error_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    reported: list[tuple[str, object]] = []
    monkeypatch.setattr(
        threading, "excepthook", lambda arguments: told.append(arguments.thread.name)
    )

    def report(thread: threading.Thread | None, error: BaseException) -> None:
        assert isinstance(error, SystemExit)
        reported.append((thread.name if thread else "", error.code))

    with UncaughtErrors(report):
        for name in ("poller", "penstock-poller"):
            thread = threading.Thread(target=sys.exit, args=(3,), name=name)
            thread.start()
            thread.join()
    assert told == []
    assert reported == [("poller", 3), ("penstock-poller", 3)]
