"""A receiver made of a class with `run`."""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
from collections.abc import Callable
from typing import Any

from penstock.receiver._async_storing import AsyncStoring
from penstock.receiver._context import ReceiverContext
from penstock.receiver._generator_forms import store_from_generator
from penstock.receiver._receiver import Receiver
from penstock.receiver._threaded import ThreadedReceiver

__all__ = ["RunReceiver"]

_RUN_BOUND_S = 30.0
"""How long `run` may take to end, if the stop has the time. One that blocks without an end holds a
stop up for as long, so it is not more."""

_MARGIN_S = 1.5
"""What is kept of the stop's time, so that who does not end is told before it is given up."""


class RunReceiver(ThreadedReceiver):
    """Calls `run` of an object; `stop` or `close` of it, if there is one, at a stop."""

    def __init__(self, source: Any, takes_context: bool, with_positions: bool) -> None:
        super().__init__(source, takes_context)
        self._with_positions = with_positions
        self._lock = threading.Lock()
        self._interrupting: Callable[[], object] | None = None

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
        arguments = (context,) if self._takes_context else ()
        if not self._takes_context:
            self._give_attributes(context)
        self._interrupt_with(getattr(self._source, "stop", getattr(self._source, "close", None)))
        if inspect.isgeneratorfunction(run):
            return store_from_generator(run(*arguments), context, self._with_positions)
        if inspect.isasyncgenfunction(run):
            storing = AsyncStoring(run(*arguments), context, self._with_positions)
            self._interrupt_with(storing.interrupt)
            return storing.run()
        if inspect.iscoroutinefunction(run):
            asyncio.run(self._run_coroutine(run(*arguments)))
        else:
            run(*arguments)
        return not context.stopped.is_set()

    def _may_take_longer(self, took_s: float) -> bool:
        # It stores by itself, so it may be about to.
        return took_s < _RUN_BOUND_S and self._attached().on_stop_left_s() > _MARGIN_S

    async def _run_coroutine(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        loop = asyncio.get_running_loop()
        self._interrupt_with(lambda: loop.call_soon_threadsafe(task.cancel))
        if self._stopped.is_set():
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    def _give_attributes(self, context: ReceiverContext) -> None:
        """Without an argument `run` has no other way to store."""
        for name in ("store", "storeFrom"):
            if not hasattr(type(self._source), name):
                setattr(self._source, name, getattr(context, name))
        if not hasattr(type(self._source), "context"):
            self._source.context = context

    def _interrupt_with(self, interrupt: Callable[[], object] | None) -> None:
        with self._lock:
            self._interrupting = interrupt

    def _interrupt(self) -> None:
        with self._lock:
            interrupt = self._interrupting
        if interrupt is not None:
            interrupt()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._lock = threading.Lock()
        self._interrupting = None
