"""A mailbox: items from any thread for the thread of an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Mailbox(Generic[_T]):
    """Items that any thread puts and one loop receives, in their order.

    Waking a loop costs a system call, so many items share one wake-up. One lock guards all.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._receive: Callable[[list[_T]], None]
        self._items: list[_T] = []
        self._woken = False

    def open(self, loop: asyncio.AbstractEventLoop, receive: Callable[[list[_T]], None]) -> None:
        """Begin: `receive` is called on `loop` with all items that were put since its last call."""
        with self._lock:
            self._receive = receive
            self._loop = loop

    def put(self, item: _T) -> bool:
        """Hand over one item; False when no one takes it (not open yet, or closed)."""
        with self._lock:
            if self._loop is None:
                return False
            self._items.append(item)
            if not self._woken:
                self._woken = True
                self._loop.call_soon_threadsafe(self.pass_on)
        return True

    def pass_on(self) -> None:
        """Let what was put be received now. Only on the loop's thread."""
        # The flag goes down before the items are taken: a caller that finds it up knows that its
        # item is going to be seen.
        with self._lock:
            self._woken = False
            items, self._items = self._items, []
        if items:
            self._receive(items)

    def close(self) -> list[_T]:
        """Take no more, and return what was not received. May be called twice, and unopened."""
        with self._lock:
            self._loop = None
            items, self._items = self._items, []
            return items
