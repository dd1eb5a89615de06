"""`ReceiverContext`: what a short form of a receiver is given."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["ReceiverContext"]


@dataclass(frozen=True)
class ReceiverContext:
    """Given to a generator function, or to `run`, at each start.

    Attributes:
        stream_id: The number of the stream.
        last_position: The position after the stream's last stored record, or None; the source
            goes on from there.
        stopped: Set when a stop or restart begins. A source that waits for something can wait for
            this instead of sleeping: ``ctx.stopped.wait(1)``.
        store: `Receiver.store`. In a coroutine or an async generator it returns at once, and what
            it returns can be awaited: ``await ctx.store(record)`` goes on when that is durable.
        storeFrom: `Receiver.storeFrom`.
        reportError: `Receiver.reportError`.
    """

    stream_id: int
    last_position: Any
    stopped: threading.Event
    store: Callable[..., Any]
    storeFrom: Callable[..., None]
    reportError: Callable[..., None]
