"""What the short forms of a receiver become: one thread each, and its context.

Functions whose results are stored, and classes with ``run``; coroutines and async generators among
them run on an event loop, their own or one for all (`penstock.receiver.threads.source_loop`).
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import itertools
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from operator import itemgetter
from types import TracebackType
from typing import Any

import pyarrow as pa

from penstock.receiver.base import Receiver, ReceiverContext
from penstock.receiver.blocks.assembler import RecordPickleError
from penstock.receiver.blocks.bulk import MANY, WithLetters
from penstock.receiver.door import ReceiverStoppedError, acknowledge_nothing
from penstock.receiver.exit_report import described
from penstock.receiver.forms.threaded import ThreadedReceiver
from penstock.receiver.threads.source_loop import cancel_the_rest


class ShortFormReceiver(ThreadedReceiver):
    """What a short form becomes.

    Args:
        source: The author's function, class or object.
        takes_context: Whether it is given a `ReceiverContext`.
        with_positions: Whether what is yielded are pairs with positions.
    """

    _IF_IT_MAY_END = (
        '. If it may end, declare @receiver(finite=True); @receiver(restart="always") opens it '
        "again"
    )
    location: str | None = None

    def __init__(self, source: Any, takes_context: bool, with_positions: bool) -> None:
        super().__init__()
        self._source = source
        self._takes_context = takes_context
        self._with_positions = with_positions

    def __repr__(self) -> str:
        stream = f" of stream {self.streamId}" if self.streamId >= 0 else ""
        return f"<receiver {self._receiver_type()!r}{stream}>"

    def preferredLocation(self) -> str | None:
        """Return what was declared."""
        return self.location

    def _receiver_type(self) -> str:
        source = self._source
        while hasattr(source, "func"):
            source = source.func
        return str(getattr(source, "__name__", type(source).__name__))

    def _storer(self, name: str) -> Executor:
        """Return a thread that has the name while it works; a process shares those that rest."""
        name, sources = f"{name}-{self.streamId}", self._attached().sources
        if sources is None:
            return ThreadPoolExecutor(1, thread_name_prefix=f"penstock-{name}")
        return sources.lane(name, self.streamId)

    def _store_all(
        self, returned: Any, context: ReceiverContext
    ) -> Coroutine[Any, Any, bool] | None:
        """Store what a generator or an async generator yields, or run a coroutine that stores.

        Returns:
            What is to run on an event loop, and returns whether it has ended or was stopped; or
            None, when it has ended, or the context is stopped.
        """
        if isinstance(returned, AsyncGenerator):
            storing = AsyncStoring(returned, context, self._with_positions)
            self._interrupt_with(storing.interrupt)
            return storing.run(self._storer("async-store"))
        if isinstance(returned, Coroutine):
            return run_coroutine(returned, context, self._interrupt_with)
        records = returned if isinstance(returned, Generator) else (each for each in returned)
        store_from_generator(records, context, self._with_positions)
        return None


BULK = (*MANY, WithLetters)
"""What holds many records, and may hold letters beside them."""


def _is_swapped(item: Any, position: Any) -> bool:
    """Return whether a pair looks like a place in a source with the records read at it."""
    if isinstance(item, BULK) or position is None:
        return False
    if type(item) in (int, float):
        has_watermark = type(position) is dict and "watermark" in position
        return type(position) not in (int, float) and not has_watermark
    if isinstance(position, WithLetters):
        return True
    if isinstance(position, MANY):
        return not any(type(part) in (int, float) for part in position)
    return False


def store_yielded(store: Callable[..., None], item: Any, *, with_position: bool) -> None:
    """Store one record, or many, or with `with_position` a pair of these and a position.

    No one waits for many records to be durable: the queue of blocks bounds what is on its way,
    and a generator has no use for knowing more.

    Raises:
        TypeError: A pair was promised, and this is none, or has the position first.
    """
    position = None
    if with_position:
        # Exactly a tuple: a Row of two fields is a record without its position.
        if type(item) is not tuple or len(item) != 2:
            raise TypeError(
                "with positions=True everything that is yielded must be a pair (records, "
                f"position), but this is {type(item).__name__}: {str(item)[:200]!r}"
            )
        item, position = item
        if _is_swapped(item, position):
            found = f"({item!r:.80}, {position!r:.80})"
            raise TypeError(
                f"with positions=True a pair is (records, position), and {found} has the position "
                "first: it would store the place of the records and lose them. If it is a single "
                "record with such a position nevertheless, yield a list of it: ([record], position)"
            )
    if isinstance(item, BULK):
        store(item, position, acknowledge_nothing)
    else:
        store(item, position)


IN_HAND = 256
"""Records that may have been taken from the generator and not stored yet (I7)."""
CLOSE_BOUND_S = 2.0


_UNCHANGING = (bytes, str, int, float, type(None), pa.RecordBatch, pa.Table)


def as_it_is(item: Any) -> Any:
    """Return what a generator yielded so that it stays: it goes on before this is stored."""
    if isinstance(item, _UNCHANGING):
        return item
    if isinstance(item, WithLetters):
        return WithLetters(as_it_is(item.records), as_it_is(item.letters))
    if type(item) is tuple:
        return tuple(map(as_it_is, item))
    try:
        return copy.deepcopy(item)
    except Exception as error:
        raise RecordPickleError(item, error) from error


_AWAITED_S = 1.0
"""How long the error of a task may go unread before it is reported; most are awaited at once."""


def tell_of_errors(context: ReceiverContext) -> None:
    """Let the running loop report what its tasks and its unawaited stores die of."""

    def tell(loop: asyncio.AbstractEventLoop, facts: dict[str, Any]) -> None:
        error = facts.get("exception")
        if not context.stopped.is_set():
            detail = "" if error is None else f": {described(error)}"
            context.reportError(f"{facts['message']}{detail}", error)

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **others: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, **others)
        task.add_done_callback(look_later)
        return task

    def look_later(task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            loop.call_later(_AWAITED_S, look, task)

    def look(task: asyncio.Task[Any]) -> None:
        # What asyncio itself goes by when such a task is collected, which may be never.
        if getattr(task, "_log_traceback", False):
            error = task.exception()
            tell(loop, {"message": "A task of it failed that no one awaits", "exception": error})

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(tell)
    loop.set_task_factory(make)


async def run_coroutine(
    coroutine: Coroutine[Any, Any, Any],
    context: ReceiverContext,
    interrupt_with: Callable[[Callable[[], object]], object],
    *,
    tells_of_tasks: bool = True,
) -> bool:
    """Run a coroutine to its end, or until it is cancelled by what `interrupt_with` is given.

    Args:
        coroutine: What to run.
        context: Of the start of the receiver.
        interrupt_with: Takes what is called at a stop, from another thread.
        tells_of_tasks: Whether it is reported what tasks die of that no one awaits.

    Returns:
        Whether it has ended, and was not stopped. What it has begun beside it is cancelled.

    Raises:
        Exception: What it raises.
    """
    if tells_of_tasks:
        tell_of_errors(context)
    task = asyncio.ensure_future(coroutine)
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended, and so has the source.
            loop.call_soon_threadsafe(task.cancel)

    interrupt_with(interrupt)
    if context.stopped.is_set():
        task.cancel()
    try:
        await asyncio.wait([task])
        # Cancelled by anyone else it has failed, as when it awaits a task that a library cancels.
        if not (task.cancelled() and context.stopped.is_set()):
            task.result()
    finally:
        await cancel_the_rest()
    return not context.stopped.is_set()


class AsyncStoring:
    """Runs one async generator to its end on an event loop.

    A thread, ``penstock-async-store-<streamId>``, stores what has been yielded; while it waits for
    the rate limiter or the queue of blocks, the generator's loop goes on, and at most `IN_HAND`
    further records are taken. `_lock` guards what `interrupt` needs.
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

    def interrupt(self) -> None:
        """Cancel the generator where it waits; from any thread."""
        with self._lock:
            if self._loop is not None and self._taking is not None:
                self._loop.call_soon_threadsafe(self._taking.cancel)

    async def run(self, storer: Executor) -> bool:
        """Store until the generator ends or the context is stopped; return which, ends being True.

        Raises:
            Exception: What the generator or storing raises.
        """
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
            storer.shutdown(wait=False)
            await cancel_the_rest()
        if not (taking.cancelled() and self._context.stopped.is_set()):
            taking.result()
        return not self._context.stopped.is_set()

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


class Store(asyncio.Future[None]):
    """A store, to be awaited; only if it is, its block is sealed before the interval ends.

    Args:
        loop: The loop of the waiter.
        seal: `Receiver.seal`.

    Attributes:
        is_awaited: Whether anyone waits, or has waited.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seal: Callable[[], None]) -> None:
        super().__init__(loop=loop)
        self._seal = seal
        self.is_awaited = self._is_stored = False

    def add_done_callback(self, call: Callable[[Any], object], /, *, context: Any = None) -> None:
        """Be waited for: by ``await``, `asyncio.gather`, or whatever."""
        super().add_done_callback(call, context=context)
        self.is_awaited = True
        if self._is_stored and not self.done():
            self._seal()

    def stored(self) -> None:
        """It is in the open block; called on the storing thread."""
        self._is_stored = True
        if self.is_awaited:
            self._seal()


class AwaitedStores:
    """The `store` of a source on an event loop: what it returns is awaited until it is durable.

    A thread, ``penstock-await-store-<streamId>``, does the storing, in the order of the calls, so
    that the loop goes on while the rate limiter or the queue of blocks makes it wait. At most
    `IN_HAND` calls wait for that; then a further call waits on the loop's own thread (I7).
    Called outside an event loop it stores at once, as ever.

    A context manager: at its end all that it was given is stored, or refused.

    Args:
        context: The source's context.
        storer: Is its thread.
    """

    def __init__(self, context: ReceiverContext, storer: Executor) -> None:
        self._raw = context
        self._room = threading.BoundedSemaphore(IN_HAND)
        self._storer = storer
        self._is_sealing = False
        self.context = replace(context, store=self._store, discard=self._discard, seal=self._seal)

    def __enter__(self) -> AwaitedStores:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._storer.shutdown()

    async def until(self, end: Coroutine[Any, Any, bool]) -> bool:
        """Do the same on a loop, at the end of a coroutine; return what that returns."""
        try:
            return await end
        finally:
            await asyncio.get_running_loop().run_in_executor(self._storer, lambda: None)
            self._storer.shutdown(wait=False)

    def _store(
        self,
        data: Any,
        position: Any = None,
        ack: Callable[[], None] | None = None,
        framing: Any = None,
    ) -> asyncio.Future[None] | None:
        loop = _running_loop()
        if loop is None:
            self._raw.store(data, position, ack, framing)
            return None
        kept = _kept(data, framing)
        return self._submit(
            loop, ack, lambda settled: self._raw.store(kept, position, settled, framing)
        )

    def _discard(
        self,
        data: Any,
        reason: str | Exception,
        position: Any = None,
        ack: Callable[[], None] | None = None,
    ) -> asyncio.Future[None] | None:
        loop = _running_loop()
        if loop is None:
            self._raw.discard(data, reason, position, ack)
            return None
        kept = as_it_is(data)
        return self._submit(
            loop, ack, lambda settled: self._raw.discard(kept, reason, position, settled)
        )

    def _submit(
        self,
        loop: asyncio.AbstractEventLoop,
        ack: Callable[[], None] | None,
        call: Callable[[Callable[[], None]], None],
    ) -> asyncio.Future[None]:
        durable = Store(loop, self._raw.seal)
        self._room.acquire()
        self._is_sealing = False
        try:
            self._storer.submit(self._pass_on, durable, ack, call)
        except BaseException:
            self._room.release()
            raise
        return durable

    def _seal(self) -> None:
        if _running_loop() is None:
            self._raw.seal()
        elif not self._is_sealing:
            # Once behind what was stored last, so that what waits is bounded.
            self._is_sealing = True
            self._storer.submit(self._seal_now)

    def _seal_now(self) -> None:
        self._is_sealing = False
        self._raw.seal()

    def _pass_on(
        self,
        durable: Store,
        ack: Callable[[], None] | None,
        call: Callable[[Callable[[], None]], None],
    ) -> None:
        """On the storing thread: store, and let the coroutine go on when it is durable."""

        def acknowledge() -> None:
            try:
                if ack is not None:
                    ack()
            finally:
                _settle(durable, None)

        try:
            try:
                call(acknowledge)
            except ReceiverStoppedError:
                if ack is not None or durable.is_awaited:
                    raise
                # A stop has begun, and no one would give it again: as of a generator, it is stored.
                call(acknowledge_nothing)
                raise
            durable.stored()
        except BaseException as error:  # noqa: BLE001  # it is raised where the coroutine awaits
            _settle(durable, error)
        finally:
            self._room.release()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _settle(durable: asyncio.Future[None], error: BaseException | None) -> None:
    def settle() -> None:
        if durable.done():
            return
        if error is None:
            durable.set_result(None)
        else:
            durable.set_exception(error)
            if isinstance(error, ReceiverStoppedError):
                # A caller that does not await it has nothing to do about a stop.
                durable.exception()

    # The loop has ended with the source: no one waits any more.
    with contextlib.suppress(RuntimeError):
        durable.get_loop().call_soon_threadsafe(settle)


def _kept(data: Any, framing: Any) -> Any:
    """Return what stays as it is, whatever the coroutine does with `data` before it is stored."""
    if framing is not None:
        return bytes(data)
    return data if isinstance(data, Iterator) else as_it_is(data)


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
        # The first item shows which loop is the quick one; either takes everything.
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
    """Return whether a short form takes what a function of the author's returned."""
    return isinstance(returned, (Iterator, AsyncGenerator, Coroutine))


class FunctionReceiver(ShortFormReceiver):
    """Stores what the generator or async generator yields that a function returns.

    Or runs the coroutine that it returns.
    """

    def __init__(self, source: Any, takes_context: bool, with_positions: bool, kind: str) -> None:
        super().__init__(source, takes_context, with_positions)
        self._kind = kind

    def _receive(self, context: ReceiverContext) -> bool | Coroutine[Any, Any, bool]:
        with contextlib.ExitStack() as stack:
            stores = stack.enter_context(AwaitedStores(context, self._storer("await-store")))
            given = context if self._kind == "generator" else stores.context
            returned = self._source(given) if self._takes_context else self._source()
            if not can_be_stored(returned):
                raise TypeError(
                    f"{self._describe()} returned {type(returned).__name__!r}, which is no "
                    "generator and no async generator: nothing can be received from it"
                )
            if (goes_on := self._store_all(returned, context)) is not None:
                stack.pop_all()
                return stores.until(goes_on)
        return not context.stopped.is_set()

    def _describe(self) -> str:
        return f"{self._kind} {self._receiver_type()!r} of receiver {self.streamId}"


_RUN_BOUND_S = 30.0
"""How long `run` may take to end, if the stop allows it. A `run` that never ends delays a stop by
this much."""

_MARGIN_S = 1.5
"""What is kept of the stop's time, to report a source that does not end before it is given up."""


class RunReceiver(ShortFormReceiver):
    """Calls `run` of an object; `stop` or `close` of it, if there is one, at a stop."""

    def _for_another_start(self) -> Receiver:
        another = super()._for_another_start()
        if isinstance(another, RunReceiver):
            # What the last start gave it stays with the threads of that start.
            another._source = copy.copy(self._source)
        return another

    def _construct(self) -> None:
        if isinstance(self._source, type):
            self._source = self._source()

    def _receive(self, context: ReceiverContext) -> bool | Coroutine[Any, Any, bool]:
        run = self._source.run
        with contextlib.ExitStack() as stack:
            stores = stack.enter_context(AwaitedStores(context, self._storer("await-store")))
            is_async = inspect.iscoroutinefunction(run) or inspect.isasyncgenfunction(run)
            given = stores.context if is_async else context
            if not self._takes_context:
                self._give_attributes(given)
            stop = getattr(self._source, "stop", getattr(self._source, "close", None))
            self._interrupt_with(stop)
            returned = run(given) if self._takes_context else run()
            goes_on = self._store_all(returned, context) if can_be_stored(returned) else None
            if goes_on is not None:
                stack.pop_all()
                return stores.until(goes_on)
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
