"""A receiver made of a class with `run`."""

from __future__ import annotations

import copy
import inspect
from typing import Any

from penstock.receiver._awaited_stores import AwaitedStores
from penstock.receiver._context import ReceiverContext
from penstock.receiver._generator_forms import can_be_stored, store_all
from penstock.receiver._receiver import Receiver
from penstock.receiver._threaded import ThreadedReceiver

__all__ = ["RunReceiver"]

_RUN_BOUND_S = 30.0
"""How long `run` may take to end, if the stop allows it. A `run` that never ends delays a stop by
this much."""

_MARGIN_S = 1.5
"""What is kept of the stop's time, to report a source that does not end before it is given up."""


class RunReceiver(ThreadedReceiver):
    """Calls `run` of an object; `stop` or `close` of it, if there is one, at a stop."""

    def __init__(self, source: Any, takes_context: bool, with_positions: bool) -> None:
        super().__init__(source, takes_context)
        self._with_positions = with_positions

    def _for_another_start(self) -> Receiver:
        another = super()._for_another_start()
        if isinstance(another, RunReceiver):
            # What the last start gave it stays with the threads of that start.
            another._source = copy.copy(self._source)
        return another

    def _construct(self) -> None:
        if isinstance(self._source, type):
            self._source = self._source()

    def _receive(self, context: ReceiverContext) -> bool:
        run = self._source.run
        with AwaitedStores(context) as stores:
            is_async = inspect.iscoroutinefunction(run) or inspect.isasyncgenfunction(run)
            given = stores.context if is_async else context
            if not self._takes_context:
                self._give_attributes(given)
            stop = getattr(self._source, "stop", getattr(self._source, "close", None))
            self._interrupt_with(stop)
            returned = run(given) if self._takes_context else run()
            if can_be_stored(returned):
                store_all(returned, context, self._with_positions, self._interrupt_with)
        return not context.stopped.is_set()

    def _stop_bound_s(self, took_s: float) -> float:
        # It stores by itself, so it may be about to.
        left_s = took_s + self._attached().on_stop_left_s() - _MARGIN_S
        return max(super()._stop_bound_s(took_s), min(_RUN_BOUND_S, left_s))

    def _give_attributes(self, context: ReceiverContext) -> None:
        """Without an argument `run` has no other way to store."""
        for name in ("store", "storeFrom"):
            if not hasattr(type(self._source), name):
                setattr(self._source, name, getattr(context, name))
        if not hasattr(type(self._source), "context"):
            self._source.context = context
