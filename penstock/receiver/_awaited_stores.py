"""`AwaitedStores`: lets a coroutine wait until what it stores is durable."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any

from penstock.receiver._async_storing import IN_HAND, as_it_is
from penstock.receiver._context import ReceiverContext

__all__ = ["AwaitedStores"]


class AwaitedStores:
    """The `store` of a source on an event loop: what it returns is awaited until it is durable.

    A thread of its own, ``penstock-await-store-<streamId>``, does the storing, in the order of the
    calls, so that the loop goes on while the rate limiter or the queue of blocks makes it wait. At
    most `IN_HAND` calls wait for that; then a further call waits on the loop's own thread (I7).
    Called outside an event loop it stores at once, as ever.

    A context manager: at its end all that it was given is stored, or refused.

    Args:
        context: The source's context.
    """

    def __init__(self, context: ReceiverContext) -> None:
        self._raw = context
        self._room = threading.BoundedSemaphore(IN_HAND)
        name = f"penstock-await-store-{context.stream_id}"
        self._storer = ThreadPoolExecutor(1, thread_name_prefix=name)
        self.context = replace(context, store=self._store)

    def __enter__(self) -> AwaitedStores:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._storer.shutdown()

    def _store(
        self,
        data: Any,
        position: Any = None,
        ack: Callable[[], None] | None = None,
        framing: Any = None,
    ) -> asyncio.Future[None] | None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._raw.store(data, position, ack, framing)
            return None
        kept = _kept(data, framing)
        durable: asyncio.Future[None] = loop.create_future()
        self._room.acquire()
        try:
            self._storer.submit(self._pass_on, durable, kept, position, ack, framing)
        except BaseException:
            self._room.release()
            raise
        return durable

    def _pass_on(
        self,
        durable: asyncio.Future[None],
        data: Any,
        position: Any,
        ack: Callable[[], None] | None,
        framing: Any,
    ) -> None:
        """On the storing thread: store, and let the coroutine go on when it is durable."""

        def acknowledge() -> None:
            try:
                if ack is not None:
                    ack()
            finally:
                _settle(durable, None)

        try:
            self._raw.store(data, position, acknowledge, framing)
        except Exception as error:  # noqa: BLE001  # it is raised where the coroutine awaits
            _settle(durable, error)
        finally:
            self._room.release()


def _settle(durable: asyncio.Future[None], error: Exception | None) -> None:
    def settle() -> None:
        if durable.done():
            return
        if error is None:
            durable.set_result(None)
        else:
            durable.set_exception(error)

    # The loop has ended with the source: nobody waits any more.
    with contextlib.suppress(RuntimeError):
        durable.get_loop().call_soon_threadsafe(settle)


def _kept(data: Any, framing: Any) -> Any:
    """Return what stays as it is, whatever the coroutine does with `data` before it is stored."""
    if framing is not None:
        return bytes(data)
    return data if isinstance(data, Iterator) else as_it_is(data)
