"""Receivers made of generator functions."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterator
from operator import itemgetter
from typing import Any

from penstock.receiver._async_storing import AsyncStoring
from penstock.receiver._context import ReceiverContext
from penstock.receiver._threaded import ThreadedReceiver
from penstock.receiver._yielded import BULK, store_yielded

__all__ = ["AsyncGeneratorReceiver", "GeneratorReceiver", "store_from_generator"]


def store_from_generator(
    records: Generator[Any, None, None], context: ReceiverContext, with_positions: bool
) -> bool:
    """Store what `records` yields until it ends (True) or the context is stopped (False).

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
    return not context.stopped.is_set()


class GeneratorReceiver(ThreadedReceiver):
    """Stores what a generator function yields."""

    def __init__(self, source: Any, takes_context: bool, with_positions: bool) -> None:
        super().__init__(source, takes_context)
        self._with_positions = with_positions

    def _receive(self, context: ReceiverContext) -> bool:
        records = self._source(context) if self._takes_context else self._source()
        return store_from_generator(records, context, self._with_positions)

    def _describe(self) -> str:
        return f"generator {self._receiver_type()!r} of receiver {self.streamId}"


class AsyncGeneratorReceiver(ThreadedReceiver):
    """Stores what an async generator function yields."""

    def __init__(self, source: Any, takes_context: bool, with_positions: bool) -> None:
        super().__init__(source, takes_context)
        self._with_positions = with_positions
        self._interrupting: Callable[[], None] | None = None

    def _receive(self, context: ReceiverContext) -> bool:
        records = self._source(context) if self._takes_context else self._source()
        storing = AsyncStoring(records, context, self._with_positions)
        self._interrupting = storing.interrupt
        return storing.run()

    def _interrupt(self) -> None:
        if self._interrupting is not None:
            self._interrupting()

    def _describe(self) -> str:
        return f"async generator {self._receiver_type()!r} of receiver {self.streamId}"

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_interrupting": None}
