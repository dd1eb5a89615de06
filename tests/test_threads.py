"""Waits of the main thread that signals end."""

from __future__ import annotations

import signal
import threading
from types import FrameType

import pytest

from penstock.threads import wait_for
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
