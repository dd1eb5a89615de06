"""`Workers`: threads for what may wait, which the receivers of a process share.

`run_steps` runs there what yields where it waits, so that it has no thread meanwhile.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from penstock.receiver.user_calls import mark
from penstock.runtime.threads import OwnedThread

_IDLE_S = 10.0
"""How long a thread waits for work before it ends."""


class Workers:
    """As many threads as there is work at a time: what waits there holds up no other.

    Args:
        name: Of the process, such as ``slot-0``.
    """

    def __init__(self, name: str) -> None:
        self._name = f"worker-{name}"
        self._changed = threading.Condition()
        self._work: deque[tuple[Callable[[], object], str, int]] = deque()
        self._free = 0

    def post(self, work: Callable[[], object], name: str, stream_id: int) -> None:
        """Do something of a receiver's, in a thread that is called ``penstock-<name>`` meanwhile.

        Raises:
            RuntimeError: The system gives no thread.
        """
        with self._changed:
            if self._free > len(self._work):
                self._changed.notify()
            else:
                # In no one's context: it also works for others.
                contextvars.Context().run(OwnedThread(self._run, self._name).start)
            self._work.append((work, name, stream_id))

    def _run(self) -> None:
        thread = threading.current_thread()
        while (taken := self._take()) is not None:
            work, name, stream_id = taken
            thread.name = f"penstock-{name}"
            mark(thread, stream_id)
            work()
            thread.name = f"penstock-{self._name}"
            mark(thread, None)
            # What it refers to is not kept until the next one comes.
            del work, taken

    def _take(self) -> tuple[Callable[[], object], str, int] | None:
        with self._changed:
            self._free += 1
            self._changed.wait_for(lambda: self._work, _IDLE_S)
            self._free -= 1
            return self._work.popleft() if self._work else None


class Lane(Executor):
    """Calls of one receiver, in order, each in a thread of `Workers` that is free.

    Args:
        workers: The threads.
        name: What the threads are called.
        stream_id: The receiver's stream.
        width: How many calls run at a time.
    """

    def __init__(self, workers: Workers, name: str, stream_id: int, width: int = 1) -> None:
        self._workers = workers
        self._name = name
        self._stream_id = stream_id
        self._width = width
        self._lock = threading.Lock()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._busy = 0
        self._is_shut = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a function called; see `concurrent.futures.Executor`."""
        future: Future[Any] = Future()
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self._busy < self._width:
                self._workers.post(self._run, self._name, self._stream_id)
                self._busy += 1
            self._calls.append((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `wait`, return when those are over of a lane of one call."""
        if wait:
            self.submit(lambda: None).result()
        with self._lock:
            self._is_shut = True

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._busy -= 1
                    return
                future, call = self._calls.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
                    future.set_exception(error)
            del future, call


class Wake(threading.Event):
    """An event that may have something called once it is set."""

    def __init__(self) -> None:
        super().__init__()
        self._calling = threading.Lock()
        self._call: Callable[[], object] | None = None

    def set(self) -> None:
        """Set it; from any thread."""
        with self._calling:
            super().set()
            call, self._call = self._call, None
        if call is not None:
            call()

    def then(self, call: Callable[[], object]) -> bool:
        """Have `call` called once when it is set; False, and nothing is called: it is."""
        with self._calling:
            if not self.is_set():
                self._call = call
            return self._call is not None


def run_steps(steps: Iterator[Wake], post: Callable[[Callable[[], object]], object]) -> None:
    """Run to its end what yields that for which it waits.

    Args:
        steps: It; one thread at a time runs it.
        post: Has something done in a thread.
    """

    def go_on() -> None:
        for wake in steps:
            if wake.then(lambda: post(go_on)):
                return

    post(go_on)
