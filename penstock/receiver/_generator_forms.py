"""Receivers made of functions: what they return is stored."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from operator import itemgetter
from typing import Any

from penstock.receiver._async_storing import AsyncStoring, run_coroutine
from penstock.receiver._awaited_stores import AwaitedStores
from penstock.receiver._context import ReceiverContext
from penstock.receiver._threaded import ThreadedReceiver
from penstock.receiver._yielded import BULK, store_yielded

__all__ = ["FunctionReceiver", "can_be_stored", "store_all", "store_from_generator"]


def store_from_generator(
    records: Generator[Any, None, None], context: ReceiverContext, with_positions: bool
) -> None:
    """Store what `records` yields until it ends or the context is stopped.

    It is closed in either case. Each record is stored before the next is asked for.
    """
    # `running` yields until the context is stopped, without a Python call per record. It stands
    # before `records`, so that no record is taken from the generator and then dropped.
    running: Iterator[bool] = iter(context.stopped.is_set, True)
    going_on = map(itemgetter(1), zip(running, records, strict=False))
    by_item = with_positions
    try:
        # The first item tells which loop is the quick one; either takes everything.
        for first in itertools.islice(going_on, 1):
            store_yielded(context.store, first, with_position=with_positions)
            by_item = with_positions or isinstance(first, BULK)
        if by_item:
            for item in going_on:
                store_yielded(context.store, item, with_position=with_positions)
        else:
            deque(map(context.store, going_on), maxlen=0)
    finally:
        records.close()


def can_be_stored(returned: object) -> bool:
    """Tell whether `store_all` takes what a function of the author's returned."""
    return isinstance(returned, (Iterator, AsyncGenerator, Coroutine))


def store_all(
    returned: Any,
    context: ReceiverContext,
    with_positions: bool,
    interrupt_with: Callable[[Callable[[], object]], object],
) -> None:
    """Store what a generator or an async generator yields, or run a coroutine that stores.

    Args:
        returned: It, or another iterator.
        context: The source's context.
        with_positions: What is yielded are pairs with positions.
        interrupt_with: Is given what ends it at a stop, from another thread.

    Returns when it has ended, or the context is stopped.
    """
    if isinstance(returned, AsyncGenerator):
        storing = AsyncStoring(returned, context, with_positions)
        interrupt_with(storing.interrupt)
        storing.run()
    elif isinstance(returned, Coroutine):
        run_coroutine(returned, context, interrupt_with)
    else:
        records = returned if isinstance(returned, Generator) else (each for each in returned)
        store_from_generator(records, context, with_positions)


class FunctionReceiver(ThreadedReceiver):
    """Stores what the generator or async generator yields that a function returns.

    Or runs the coroutine that it returns.
    """

    def __init__(self, source: Any, takes_context: bool, with_positions: bool, kind: str) -> None:
        super().__init__(source, takes_context)
        self._with_positions = with_positions
        self._kind = kind

    def _receive(self, context: ReceiverContext) -> bool:
        with AwaitedStores(context) as stores:
            given = context if self._kind == "generator" else stores.context
            returned = self._source(given) if self._takes_context else self._source()
            if not can_be_stored(returned):
                raise TypeError(
                    f"{self._describe()} returned {type(returned).__name__!r}, which is no "
                    "generator and no async generator: nothing can be received from it"
                )
            store_all(returned, context, self._with_positions, self._interrupt_with)
        return not context.stopped.is_set()

    def _describe(self) -> str:
        return f"{self._kind} {self._receiver_type()!r} of receiver {self.streamId}"
