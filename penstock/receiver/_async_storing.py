"""Sources on an event loop of their own: async generators, and coroutines that store themselves."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.receiver._context import ReceiverContext
from penstock.receiver._exit_report import described
from penstock.receiver._yielded import store_yielded

__all__ = ["IN_HAND", "AsyncStoring", "as_it_is", "run_coroutine"]

IN_HAND = 256
"""Records that may have been taken from the generator and not stored yet (I7)."""
CLOSE_BOUND_S = 2.0


_UNCHANGING = (bytes, str, int, float, type(None), pa.RecordBatch, pa.Table)


def as_it_is(item: Any) -> Any:
    """Return what a generator yielded so that it stays: it goes on before this is stored."""
    if isinstance(item, _UNCHANGING):
        return item
    return tuple(map(as_it_is, item)) if type(item) is tuple else copy.deepcopy(item)


def tell_of_errors(context: ReceiverContext) -> None:
    """Let the running loop report what its tasks and its unawaited stores die of."""

    def tell(loop: asyncio.AbstractEventLoop, facts: dict[str, Any]) -> None:
        error = facts.get("exception")
        if not context.stopped.is_set():
            detail = "" if error is None else f": {described(error)}"
            context.reportError(f"{facts['message']}{detail}", error)

    asyncio.get_running_loop().set_exception_handler(tell)


def run_coroutine(
    coroutine: Coroutine[Any, Any, Any],
    context: ReceiverContext,
    interrupt_with: Callable[[Callable[[], object]], object],
) -> None:
    """Run a coroutine to its end, or until it is cancelled by what `interrupt_with` is given.

    Raises:
        Exception: What it raises.
    """

    async def run() -> None:
        tell_of_errors(context)
        task = asyncio.ensure_future(coroutine)
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            with contextlib.suppress(RuntimeError):  # The loop has ended, and so has the source.
                loop.call_soon_threadsafe(task.cancel)

        interrupt_with(interrupt)
        if context.stopped.is_set():
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    asyncio.run(run())


class AsyncStoring:
    """Runs one async generator to its end on an event loop of its own.

    A second thread, ``penstock-async-store-<streamId>``, stores what has been yielded; while it
    waits for the rate limiter or the queue of blocks, the generator's loop goes on, and at most
    `IN_HAND` further records are taken. `_lock` guards what `interrupt` needs.
    """

    def __init__(
        self, records: AsyncGenerator[Any, None], context: ReceiverContext, with_positions: bool
    ) -> None:
        self._records = records
        self._context = context
        self._store = partial(store_yielded, context.store, with_position=with_positions)
        self._in_hand: deque[Any] = deque()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._taking: asyncio.Task[None] | None = None

    def run(self) -> None:
        """Store until the generator ends or the context is stopped.

        Raises:
            Exception: What the generator or storing raises.
        """
        name = f"penstock-async-store-{self._context.stream_id}"
        with ThreadPoolExecutor(1, thread_name_prefix=name) as storer:
            asyncio.run(self._main(storer))

    def interrupt(self) -> None:
        """Cancel the generator where it waits; from any thread."""
        with self._lock:
            if self._loop is not None and self._taking is not None:
                self._loop.call_soon_threadsafe(self._taking.cancel)

    async def _main(self, storer: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        tell_of_errors(self._context)
        arrived = asyncio.Event()
        room = asyncio.Event()
        taking = asyncio.ensure_future(self._take(arrived, room))
        taking.add_done_callback(lambda _: arrived.set())
        with self._lock:
            self._loop = loop
            self._taking = taking
        if self._context.stopped.is_set():
            taking.cancel()
        try:
            while self._in_hand or not taking.done():
                await arrived.wait()
                arrived.clear()
                await loop.run_in_executor(storer, self._store_in_hand)
                room.set()
        finally:
            with self._lock:
                self._loop = None
            taking.cancel()
            await asyncio.wait([taking], timeout=CLOSE_BOUND_S)
        if not taking.cancelled():
            taking.result()

    async def _take(self, arrived: asyncio.Event, room: asyncio.Event) -> None:
        try:
            async for record in self._records:
                self._in_hand.append(as_it_is(record))
                arrived.set()
                while len(self._in_hand) >= IN_HAND:
                    room.clear()
                    await room.wait()
        finally:
            await self._records.aclose()

    def _store_in_hand(self) -> None:
        """On the storing thread: a record leaves the hand once it is stored."""
        while self._in_hand:
            self._store(self._in_hand[0])
            self._in_hand.popleft()
