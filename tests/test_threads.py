"""Threads that are stopped, and waits of the main thread that signals end."""

from __future__ import annotations

import contextvars
import signal
import threading
import weakref
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from penstock.runtime import threads
from penstock.runtime.threads import OwnedThread, Repeated, wait_for
from tests.bounds import HANG_S


class Came(Exception):
    pass


def raise_it(number: int, frame: FrameType | None) -> None:
    raise Came


@pytest.mark.timeout(60)
def test_a_signal_that_woke_nobody_ends_the_wait() -> None:
    changed = threading.Condition()
    waits = threading.Event()

    def is_never() -> bool:
        waits.set()
        return False

    def send() -> None:
        assert waits.wait(HANG_S)
        with changed:
            pass  # The main thread has let go of the lock: it sleeps.
        # Taken by this thread, it does not wake the main one.
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    previous = signal.signal(signal.SIGUSR1, raise_it)
    sender = threading.Thread(target=send)
    try:
        sender.start()
        with changed, pytest.raises(Came):
            wait_for(changed, is_never, None)
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, previous)


def test_a_wait_ends_when_its_condition_holds_or_its_time_is_over() -> None:
    changed = threading.Condition()
    with changed:
        assert wait_for(changed, lambda: True, 0)
        assert not wait_for(changed, lambda: False, 0.01)
    holds: list[int] = []

    def let_it_hold() -> None:
        with changed:
            holds.append(1)
            changed.notify_all()

    other = threading.Timer(0.05, let_it_hold)
    other.start()
    with changed:
        assert wait_for(changed, lambda: bool(holds), None)
    other.join()


class Owner:
    """Has a thread that does something of it, and is a step that stops itself."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.repeated = Repeated(self.step, 0.001, "test")

    def step(self) -> None:
        self.answers.append(self.repeated.stop(HANG_S))


def test_a_step_that_stops_itself_is_the_last_one_and_does_not_wait_for_itself() -> None:
    owner = Owner()
    owner.repeated.start()
    owner.repeated._thread.join(HANG_S)
    assert owner.answers == [False]
    assert owner.repeated.stop(0)


def test_a_stop_says_when_a_step_has_not_ended() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def step() -> None:
        begun.set()
        may_end.wait(HANG_S)

    repeated = Repeated(step, 0.001, "test")
    repeated.start()
    assert begun.wait(HANG_S)
    assert not repeated.stop(0.01)
    may_end.set()
    assert repeated.stop(HANG_S)


def test_a_thread_that_has_ended_keeps_nothing_of_its_owner() -> None:
    done = threading.Event()

    class Sets:
        def it(self) -> None:
            done.set()

    owner = Sets()
    seen = weakref.ref(owner)
    thread = OwnedThread(owner.it, "test")
    thread.start()
    thread.join(HANG_S)
    del owner
    assert done.is_set()
    assert seen() is None


def test_a_thread_that_has_not_begun_is_not_waited_for() -> None:
    begun = threading.Event()
    thread = OwnedThread(begun.set, "late")
    thread.join(HANG_S)
    thread.start()
    thread.join(HANG_S)
    assert begun.is_set()
    assert not thread.is_alive()


def test_a_thread_has_the_context_variables_of_the_one_that_starts_it() -> None:
    cell: contextvars.ContextVar[str] = contextvars.ContextVar("cell", default="none")
    found: list[str] = []
    thread = OwnedThread(lambda: found.append(cell.get()), "test")
    cell.set("mine")
    thread.start()
    cell.set("another one's")
    thread.join(HANG_S)
    assert found == ["mine"]


def test_a_loop_that_raises_rests_before_it_is_entered_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    did: list[Any] = []

    def loop() -> None:
        did.append("raised")
        if len(did) == 1:
            raise MemoryError

    monkeypatch.setattr(threads, "time", SimpleNamespace(sleep=did.append))
    thread = OwnedThread(loop, "test", again=True)
    thread.start()
    thread.join(HANG_S)
    assert did == ["raised", threads._PAUSE_S, "raised"]
