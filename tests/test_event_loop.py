"""The event loop: in order, through errors, to an end."""

from __future__ import annotations

import threading

from penstock.runtime.event_loop import EventLoop
from tests.bounds import HANG_S

WAIT_S = HANG_S


def test_events_are_handled_in_order_and_an_error_keeps_none_from_its_turn() -> None:
    seen: list[object] = []
    loop = EventLoop("test-order", seen.append, on_start=lambda: seen.append("start"))
    loop.post(lambda: seen.append(1))
    error = SystemExit("an event's own")

    def fail() -> None:
        raise error

    loop.start()
    loop.post(fail)
    loop.post(lambda: seen.append(2))
    assert loop.stop(WAIT_S)
    assert seen == ["start", 1, error, 2]
    assert not loop.is_running


def test_what_is_posted_for_later_comes_when_it_is_due_and_holds_up_nothing() -> None:
    seen: list[int] = []
    came = threading.Semaphore(0)

    def see(number: int) -> None:
        seen.append(number)
        came.release()

    loop = EventLoop("test-later", lambda error: None)
    loop.post_later(3600.0, lambda: see(4))
    loop.post_later(0.05, lambda: see(3))
    loop.post_later(0.01, lambda: see(2))
    loop.post(lambda: see(1))
    loop.start()
    for _ in range(3):
        assert came.acquire(timeout=WAIT_S)
    assert loop.stop(WAIT_S), "what is not due is dropped"
    assert seen == [1, 2, 3]


def test_a_stop_is_bounded_while_an_event_hangs_and_ends_the_thread_after_it() -> None:
    go_on, begun = threading.Event(), threading.Event()
    loop = EventLoop("test-hang", lambda error: None)
    loop.start()
    loop.post(lambda: (begun.set(), go_on.wait(WAIT_S)))
    assert begun.wait(WAIT_S)
    assert not loop.drain(0.0)
    assert not loop.stop(0.0)
    go_on.set()
    loop.thread.join(WAIT_S)
    assert not loop.is_running


def test_an_event_may_stop_its_own_loop() -> None:
    told: list[bool] = []
    loop = EventLoop("test-itself", lambda error: None)
    loop.start()
    loop.post(lambda: told.append(loop.is_current_thread() and loop.drain(WAIT_S)))
    loop.post(lambda: told.append(loop.stop(WAIT_S)))
    loop.thread.join(WAIT_S)
    assert told == [True, True]


def test_one_that_was_never_started_has_nothing_to_wait_for() -> None:
    loop = EventLoop("test-new", lambda error: None)
    loop.post(lambda: None)
    assert loop.drain(WAIT_S)
    assert loop.stop(WAIT_S)


def test_after_an_error_that_could_not_be_told_it_goes_on_with_the_next_event() -> None:
    did: list[str] = []

    def cannot_be_told(error: BaseException) -> None:
        raise error

    def fail() -> None:
        raise MemoryError

    loop = EventLoop("test-again", cannot_be_told, on_start=lambda: did.append("start"))
    loop.post(fail)
    loop.post(lambda: did.append("next"))
    loop.start()
    assert loop.drain(WAIT_S)
    assert loop.stop(WAIT_S)
    assert did == ["start", "next"]
