"""Hands events to listeners, in order, in a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock._arguments import refused
from penstock.errors import typed_text
from penstock.listeners.events import (
    BatchCompleted,
    BatchStarted,
    BatchSubmitted,
    OutputOperationCompleted,
    OutputOperationStarted,
    ReceiverError,
    ReceiverStarted,
    ReceiverStopped,
    StreamingEvent,
    StreamingStarted,
)
from penstock.listeners.listener import StreamingListener
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.runtime.threads import OwnedThread

_log = logging.getLogger("penstock.streaming.listener_bus")

_METHODS: dict[type[StreamingEvent], str] = {
    StreamingStarted: "onStreamingStarted",
    ReceiverStarted: "onReceiverStarted",
    ReceiverError: "onReceiverError",
    ReceiverStopped: "onReceiverStopped",
    BatchSubmitted: "onBatchSubmitted",
    BatchStarted: "onBatchStarted",
    BatchCompleted: "onBatchCompleted",
    OutputOperationStarted: "onOutputOperationStarted",
    OutputOperationCompleted: "onOutputOperationCompleted",
}


class StreamingListenerBus:
    """Events in, calls of listeners out. Any thread may post.

    The queue is bounded: when listeners are more than `capacity` events behind, new events are
    dropped and counted, as Spark's bus does, rather than letting memory grow. `_lock` guards the
    listeners and that count.
    """

    def __init__(self, capacity: int = 10_000) -> None:
        self._listeners: tuple[StreamingListener, ...] = ()
        self._of_program: tuple[StreamingListener, ...] = ()
        self._queue: queue.Queue[StreamingEvent | None] = queue.Queue(capacity)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._dropped = 0
        self._limited_log = RateLimitedLog(_log)
        self._thread = OwnedThread(self._run, "listener-bus", again=True)

    def add(self, listener: StreamingListener, *, of_program: bool = False) -> None:
        """Notify `listener` of what happens from now on.

        Args:
            listener: The listener.
            of_program: Whether it is the program's own, which may count on every batch.

        Raises:
            TypeError: It is no listener; PySpark's base class will do as well.
        """
        methods = (getattr(listener, name, None) for name in _METHODS.values())
        if isinstance(listener, type) or not all(map(callable, methods)):
            accepted = "an instance of a subclass of penstock.streaming.StreamingListener"
            raise TypeError(refused("streamingListener", listener, accepted))
        with self._lock:
            self._listeners += (listener,)
            if of_program:
                self._of_program += (listener,)

    def remove(self, listener: StreamingListener) -> None:
        """Notify `listener` no more; nothing happens when it was not added."""
        with self._lock:
            self._listeners = tuple(known for known in self._listeners if known is not listener)
            self._of_program = tuple(known for known in self._of_program if known is not listener)

    def start(self) -> None:
        """Begin to call listeners."""
        self._thread.start()

    def post(self, event: StreamingEvent) -> None:
        """Queue an event. Returns at once; after `stop` the event is dropped."""
        if self._stopped.is_set():
            return
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            with self._lock:
                self._dropped += 1
                dropped = self._dropped
            if dropped == 1 or dropped % 1000 == 0:
                _log.error(
                    "Dropped %d event(s): the listeners are %d events behind",
                    dropped,
                    self._queue.maxsize,
                )

    @property
    def has_listeners_of_program(self) -> bool:
        """Whether the program itself listens."""
        return bool(self._of_program)

    @property
    def dropped(self) -> int:
        """How many events reached no listener, because the queue was full."""
        return self._dropped

    def is_current_thread(self) -> bool:
        """Return whether the caller is a listener."""
        return threading.current_thread() is self._thread

    def stop(self, timeout_s: float) -> None:
        """Deliver nothing more, queued events included; wait for the listener that runs now."""
        self._stopped.set()
        if not self._thread.is_alive():
            return
        # When it is full, the thread looks at the flag with the next event.
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            _log.warning("A streaming listener has not returned for %.1f s", timeout_s)

    def wait_until_empty(self, timeout_s: float) -> None:
        """Wait until the events posted so far were delivered, or the time is over."""
        delivered = threading.Event()
        if self._stopped.is_set() or not self._thread.is_alive() or self.is_current_thread():
            return
        end_s = time.monotonic() + timeout_s
        # It is no event that may be dropped: where there is no room, it waits for some.
        with contextlib.suppress(queue.Full):
            self._queue.put(_Marker(delivered.set), timeout=max(0.0, timeout_s))
            delivered.wait(max(0.0, end_s - time.monotonic()))

    def _run(self) -> None:
        while True:
            event = self._queue.get()
            if event is None or self._stopped.is_set():
                return
            if isinstance(event, _Marker):
                event.reached()
                continue
            for listener in self._listeners:
                self._call(listener, event)

    def _call(self, listener: StreamingListener, event: StreamingEvent) -> None:
        method: Any = getattr(listener, _METHODS[type(event)], None)
        if method is None:
            return
        try:
            method(event)
        except BaseException as error:  # noqa: BLE001  # the program's, also SystemExit
            name = type(listener).__name__
            self._limited_log.log(
                f"Listener {name} threw an exception in {method.__name__}: {typed_text(error)}",
                like=(name, type(error)),
                level=logging.ERROR,
                error=error,
            )


class _Marker(StreamingEvent):
    """Passes through the queue to show that everything before it was delivered."""

    def __init__(self, reached: Callable[[], None]) -> None:
        self.reached = reached
