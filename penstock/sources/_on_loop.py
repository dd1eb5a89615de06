"""`LoopReceiver`: a receiver whose client or server is one of asyncio."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from penstock.receiver import ReceiverContext
from penstock.receiver.forms.function_receivers import run_coroutine
from penstock.sources._common import SourceReceiver

_DRAIN_S = 2.0
_GATHER_S = 0.005
"""How long what came waits for more, to be stored with it."""
_IN_HAND = 10_000
_IN_HAND_BYTES = 4 << 20

T = TypeVar("T")


class LoopReceiver(SourceReceiver, ABC):
    """Runs `_main` on an event loop. At a stop it is cancelled where it waits."""

    @abstractmethod
    async def _main(self) -> None:
        """Take records until it is cancelled, or the source has ended for good."""

    def _receive(self, context: ReceiverContext) -> Coroutine[Any, Any, bool]:
        main = self._main()
        return run_coroutine(main, context, self._interrupt_with, tells_of_tasks=False)


async def within(awaited: Awaitable[T], timeout_s: float | None) -> T:
    """Return what it gives, as `asyncio.wait_for` does.

    That one forgets a cancellation which comes together with the result, before Python 3.12: a
    receiver that was stopped just then would go on for ever.

    Raises:
        asyncio.TimeoutError: It has not given anything within that time, and is cancelled.
    """
    task = asyncio.ensure_future(awaited)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
        if not task.done():
            raise asyncio.TimeoutError
        return task.result()
    finally:
        task.cancel()
        task.add_done_callback(retrieved)


def retrieved(done: asyncio.Future[Any]) -> None:
    """Let asyncio not complain of an error that no one waits for any more."""
    if not done.cancelled():
        done.exception()


class Batches(Generic[T]):
    """Hands what a loop takes to a thread that stores it, all that has come meanwhile at once.

    The loop goes on while the thread waits in `store`, until too much is in hand; then it waits for
    `room`, and so reads no more from its source. A context manager of a task: an error of `store`
    ends the task, and is raised at the end. At the end what is in hand is stored, if that takes no
    longer than a stop allows.

    Args:
        store: Stores one or more in the thread, in their order.
        name: The thread is called ``penstock-<name>``.
    """

    def __init__(self, store: Callable[[list[T]], None], name: str) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"penstock-{name}")
        self._waiting: list[T] = []
        self._bytes = 0
        self._storing: asyncio.Future[None] | None = None
        self._moved = asyncio.Event()
        self._error: BaseException | None = None
        self._task: asyncio.Task[Any] | None = None

    @property
    def is_full(self) -> bool:
        """Whether too much is in hand."""
        return self._bytes > _IN_HAND_BYTES or len(self._waiting) > _IN_HAND

    async def __aenter__(self) -> Batches[T]:
        self._task = asyncio.current_task()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task = None
        end_s = time.monotonic() + _DRAIN_S
        try:
            self._begin()
            while self._storing is not None and (left_s := end_s - time.monotonic()) > 0:
                await asyncio.wait([self._storing], timeout=left_s)
                await asyncio.sleep(0)
        finally:
            self._pool.shutdown(wait=False)
        if self._error is not None:
            raise self._error

    def add(self, item: T, size: int) -> bool:
        """Take something of that many bytes; return `is_full`: wait for `room` before the next."""
        if not self._waiting and self._storing is None:
            # Soon, so that what comes at once is stored at once.
            asyncio.get_running_loop().call_later(_GATHER_S, self._begin)
        self._waiting.append(item)
        self._bytes += size
        return self._bytes > _IN_HAND_BYTES or len(self._waiting) > _IN_HAND

    async def room(self) -> None:
        """Wait until it is not full."""
        while self.is_full:
            self._begin()
            self._moved.clear()
            await self._moved.wait()

    def _begin(self) -> None:
        if self._storing is not None or not self._waiting or self._error is not None:
            return
        items, self._waiting, self._bytes = self._waiting, [], 0
        self._moved.set()
        loop = asyncio.get_running_loop()
        self._storing = loop.run_in_executor(self._pool, self._store, items)
        self._storing.add_done_callback(self._stored)

    def _stored(self, storing: asyncio.Future[None]) -> None:
        self._storing = None
        self._error = None if storing.cancelled() else storing.exception()
        if self._error is not None:
            if self._task is not None:
                self._task.cancel()
            return
        if self._task is None or self.is_full:
            self._begin()
        else:
            storing.get_loop().call_later(_GATHER_S, self._begin)
        self._moved.set()
