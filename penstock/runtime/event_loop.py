"""One thread that handles events one after the other."""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable

from penstock.runtime.threads import OwnedThread

Event = Callable[[], object]


class EventLoop:
    """Runs what is posted, in order, in a thread of its own (Spark's ``EventLoop``).

    Args:
        name: Names the thread.
        on_error: Notified of an error of an event, in the thread; the next event is handled all the
            same.
        on_start: Run in the thread before the first event.
    """

    def __init__(
        self,
        name: str,
        on_error: Callable[[BaseException], None],
        *,
        on_start: Event = lambda: None,
    ) -> None:
        self._first: Event | None = on_start
        self._on_error = on_error
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        # Of the thread alone: when, in which order, what.
        self._later: list[tuple[float, int, Event]] = []
        self._numbers = itertools.count()
        self.thread = OwnedThread(self._run, name, again=True)

    def start(self) -> None:
        """Begin to handle events, also those that were posted before."""
        self.thread.start()

    def post(self, event: Event) -> None:
        """Queue an event. Any thread may; returns at once. After `stop` it is dropped."""
        self._events.put(event)

    def post_later(self, delay_s: float, event: Event) -> None:
        """Queue an event for when some seconds have passed; `stop` drops what is not due."""
        due = (time.monotonic() + delay_s, next(self._numbers), event)
        self.post(lambda: heapq.heappush(self._later, due))

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.thread.is_alive()

    def is_current_thread(self) -> bool:
        """Return whether the caller is an event."""
        return threading.current_thread() is self.thread

    def drain(self, timeout_s: float) -> bool:
        """Wait until the events posted so far were handled; False when the time was over first."""
        if not self.thread.is_alive() or self.is_current_thread():
            return True
        handled = threading.Event()
        self.post(handled.set)
        return handled.wait(timeout_s)

    def stop(self, timeout_s: float) -> bool:
        """Handle what was posted, then end; False when that took longer."""
        self._events.put(None)
        if not self.thread.is_alive() or self.is_current_thread():
            return True
        self.thread.join(timeout_s)
        return not self.thread.is_alive()

    def _run(self) -> None:
        # Entered again after an error that could not be reported: with the next event.
        event, self._first = self._first or self._next(), None
        while event is not None:
            try:
                event()
            except BaseException as error:  # noqa: BLE001  # travels to the owner
                self._on_error(error)
            # What it refers to is not kept until the next one comes.
            event = None
            event = self._next()

    def _next(self) -> Event | None:
        """Wait for the next event; None: it is to end."""
        while True:
            left_s = self._later[0][0] - time.monotonic() if self._later else None
            try:
                return self._events.get(timeout=None if left_s is None else max(0.0, left_s))
            except queue.Empty:
                if self._later[0][0] <= time.monotonic():
                    return heapq.heappop(self._later)[2]
