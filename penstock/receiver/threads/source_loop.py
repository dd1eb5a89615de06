"""`SourceLoop`: the event loop of all async sources of a process that receivers share.

What must hold
--------------

* A source sees a loop of its own: what it sets on it, tasks, errors that no one awaits, and threads
  that it asks for are its own, reported as its own, and gone when it ends.
* Nothing of ours waits on the loop. A source that holds it is found (`look`), while others need it.
* What a source takes in its turns is known (`cpu_s`), also when they are short.

Whose the running code is stands in a context variable, which tasks and callbacks hand on; what a
thread of a source's posts is known by the thread's mark.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import resource
import sys
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from penstock.receiver.threads.slot_board import Board
from penstock.receiver.threads.workers import Lane, Workers
from penstock.receiver.user_calls import mark, standing, stream_of
from penstock.runtime.threads import OwnedThread

_BLOCKED_LOOKS = 5
"""A source holds the loop when one turn of its is seen there at that many looks."""

_TO_THREAD = min(32, (os.cpu_count() or 1) + 4)
"""How many calls of a source run in threads at a time, as many as asyncio lets."""

_source: contextvars.ContextVar[RunningSource | None] = contextvars.ContextVar(
    "penstock_source", default=None
)


def running_stream() -> int | None:
    """Return whose the code that calls this is; None where no one has said it."""
    source = _source.get()
    return stream_of(threading.current_thread()) if source is None else source.stream_id


async def cancel_the_rest() -> None:
    """Cancel what the source of this task has begun beside it, and wait for that."""
    if rest := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in rest:
            task.cancel()
        await asyncio.wait(rest)


_all_tasks = asyncio.all_tasks


def _own_tasks(loop: asyncio.AbstractEventLoop | None = None) -> set[asyncio.Task[Any]]:
    """As `asyncio.all_tasks`; on the loop of all sources only the asking source's."""
    tasks, source = _all_tasks(loop), _source.get()
    is_shared = isinstance(loop or asyncio.get_running_loop(), _Loop)
    return source.among(tasks) if is_shared and source is not None else tasks


class RunningSource:
    """One start of a source on the loop; `join` and `blocked_at` are as a `UserCall` has them.

    Attributes:
        make_task: Makes its tasks, if it has said how.
        tell: Gets errors that no one awaits, if it has said so.
        executor: Runs what it has run in threads.
    """

    def __init__(self, loop: SourceLoop, stream_id: int, executor: Executor) -> None:
        self.stream_id = stream_id
        self.make_task: Callable[..., Any] | None = None
        self.tell: Callable[..., object] | None = None
        self.executor = executor
        self.loop = loop
        self._over = threading.Event()

    def join(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` seconds for its end; return whether it has ended."""
        return self._over.wait(0 if self.loop.is_current_thread() else timeout_s)

    def among(self, tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
        """Return which tasks it has begun."""
        return {task for task in tasks if getattr(task, _MARK, None) is self}

    def blocked_at(self) -> str:
        """Return where it stands now, for messages."""
        if self._over.is_set():
            return "(ended)"
        if (stands := self.loop.stands(self)) is not None:
            return stands
        frames = [frame for task in self.among(self.loop.tasks()) for frame in task.get_stack()]
        return ", and at ".join(dict.fromkeys(map(standing, frames))) or "a place that it awaits"

    def run(self, work: Coroutine[Any, Any, Any], on_end: Callable[[Any], object]) -> None:
        """Begin, on the loop and in the source's context."""

        def ended(task: asyncio.Task[Any]) -> None:
            try:
                on_end(task)
            finally:
                self._over.set()
                self.executor.shutdown(wait=False)

        asyncio.get_running_loop().create_task(work).add_done_callback(ended)


class SourceLoop:
    """One thread for the async sources of a process, which begins with the first of them.

    `_lock` guards the sources and the beginning.

    Args:
        name: Of the process, such as ``slot-0``.
        workers: The threads for what waits.
        board: Shows whose turn it is; None: no one looks.

    Attributes:
        cpu_s: What the turns of each stream took.
        new_pages: How many pages of memory were met in them for the first time, while that is
            counted.
        counts_pages: Whether it is.
    """

    def __init__(self, name: str, workers: Workers, board: Board | None = None) -> None:
        self.cpu_s: dict[int, float] = defaultdict(float)
        self.new_pages: dict[int, float] = defaultdict(float)
        self._board = Board() if board is None else board
        self.counts_pages = False
        self._all_cpu_s = 0.0
        self._turn: RunningSource | None = None
        self._turns = 0
        self._workers = workers
        self._lock = threading.Lock()
        self._loop: _Loop | None = None
        self._thread = OwnedThread(self._run, f"sources-{name}", again=True)
        self._sources: weakref.WeakSet[RunningSource] = weakref.WeakSet()
        # Of the thread that looks: the turn that it saw, and how often.
        self._turn_seen = 0
        self._looks = 0

    def begin(
        self, stream_id: int, work: Coroutine[Any, Any, Any], on_end: Callable[[Any], object]
    ) -> RunningSource:
        """Run a source on the loop, from any thread.

        Args:
            stream_id: Whose it is.
            work: What to run.
            on_end: Is given its task when that has ended, on the loop.
        """
        name = f"receiver-{stream_id}-to-thread"
        source = RunningSource(self, stream_id, Lane(Workers(name), name, stream_id, _TO_THREAD))
        with self._lock:
            self._loop = self._loop or _Loop()
            if self._thread.ident is None:
                asyncio.all_tasks = asyncio.tasks.all_tasks = _own_tasks
                asyncio.Handle._run = _run_turn  # type: ignore[method-assign, assignment]
                self._thread.start()
            self._sources.add(source)
        self._loop.newest[stream_id] = source
        self._loop.call_soon_threadsafe(source.run, work, on_end, context=_context_of(source))
        return source

    def lane(self, name: str, stream_id: int) -> Lane:
        """Return what calls functions that store for a source, in a thread."""
        return Lane(self._workers, name, stream_id)

    def left(self, stream_id: int) -> list[str]:
        """Name what has not ended of the sources of a stream."""
        return [f"a coroutine at {one.blocked_at()}" for one in self._running(stream_id)]

    def look(self) -> tuple[int, str] | None:
        """Return who holds the loop while others need it, and why that is said; None: no one.

        Called about once a second, by one thread. Looks are counted, not seconds: a machine that
        stood still is no source's doing.
        """
        source, turn = self._turn, self._turns
        if source is None or turn != self._turn_seen:
            self._turn_seen, self._looks = turn, 0
            return None
        self._looks += 1
        if self._looks < _BLOCKED_LOOKS or len(self._running()) < 2:
            return None
        if (stands := self.stands(source)) is None:
            return None
        return source.stream_id, f"has held the event loop for {self._looks} s at {stands}"

    def stands(self, source: RunningSource) -> str | None:
        """Return where a source stands if it is its turn."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return standing(frame) if frame and self._turn is source else None

    @property
    def native_id(self) -> int:
        """The system's number of its thread; 0: it has not begun."""
        return self._thread.native_id or 0

    def tasks(self) -> set[asyncio.Task[Any]]:
        """Return the tasks of all sources, from any thread."""
        return set() if self._loop is None else _all_tasks(self._loop)

    def is_current_thread(self) -> bool:
        """Return whether the caller is on the loop."""
        return threading.current_thread() is self._thread

    def _running(self, stream_id: int | None = None) -> list[RunningSource]:
        with self._lock:
            sources = list(self._sources)
        return [one for one in sources if stream_id in (None, one.stream_id) and not one.join(0)]

    def take_turn(self, source: RunningSource, handle: asyncio.Handle) -> None:
        """Run a turn of a source, on the loop, whose own work between turns is the next one's."""
        counts = self.counts_pages
        pages = _pages_met() if counts else 0
        self._turns += 1
        self._turn, self._board.on_loop[0] = source, source.stream_id + 1
        try:
            _run_handle(handle)
        finally:
            self._turn, self._board.on_loop[0] = None, 0
            before_s, self._all_cpu_s = self._all_cpu_s, time.thread_time()
            self.cpu_s[source.stream_id] += self._all_cpu_s - before_s
            if counts:
                self.new_pages[source.stream_id] += _pages_met() - pages

    def _run(self) -> None:
        assert self._loop is not None
        mark(threading.current_thread(), None)
        self._board.show_thread(threading.get_native_id(), None)
        while True:
            # A source may stop it, or raise what ends a process.
            with contextlib.suppress(KeyboardInterrupt, SystemExit):
                self._loop.run_forever()


_run_handle = asyncio.Handle._run


def _run_turn(handle: Any) -> None:
    """Run a handle of any event loop; on that of sources it is one's turn."""
    source = handle._context.get(_source)
    if source is None or not isinstance(handle._loop, _Loop):
        _run_handle(handle)
    else:
        source.loop.take_turn(source, handle)


def _pages_met() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


class _Loop(asyncio.SelectorEventLoop):
    """The loop, which keeps apart what its sources set of it.

    Attributes:
        newest: By stream, the source that was begun last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.newest: weakref.WeakValueDictionary[int, RunningSource] = weakref.WeakValueDictionary()

    # Its types have names only since Python 3.11.
    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        whose = stream_of(threading.current_thread())
        if context is None and _source.get() is None and whose is not None:
            context = _context_of(self.newest.get(whose))
        return super().call_soon_threadsafe(callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return _marked(super().create_future())

    def create_task(self, coro: Any, **others: Any) -> asyncio.Task[Any]:
        super().set_task_factory(self.get_task_factory())
        return _marked(super().create_task(coro, **others))

    def get_task_factory(self) -> Any:
        return None if (source := _source.get()) is None else source.make_task

    def set_task_factory(self, factory: Any) -> None:
        if (source := _source.get()) is not None:
            source.make_task = factory

    def get_exception_handler(self) -> Any:
        return None if (source := _source.get()) is None else source.tell

    def set_exception_handler(self, handler: Any) -> None:
        if (source := _source.get()) is not None:
            source.tell = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        source = _source.get()
        if (handle := context.get("handle")) is not None:
            source = handle._context.get(_source)
        # Collected in whatever context that is.
        source = getattr(context.get("future", context.get("task")), _MARK, source)
        if source is not None and source.tell is not None:
            try:
                source.tell(self, context)
                return
            except Exception as error:  # noqa: BLE001 - the author's code; it is not the loop's end
                context = {**context, "exception": error}
        super().call_exception_handler(context)

    def set_default_executor(self, executor: Any) -> None:
        if (source := _source.get()) is not None:
            source.executor = executor

    # So have these.
    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        source = _source.get()
        if executor is None and source is not None:
            executor = source.executor
        return super().run_in_executor(executor, func, *args)


_MARK = "_penstock_source"

_T = TypeVar("_T")


def _marked(future: _T) -> _T:
    """Have it know its source when it is collected."""
    setattr(future, _MARK, _source.get())
    return future


def _context_of(source: RunningSource | None) -> contextvars.Context:
    """Return a copy of the current context, which is the source's."""
    context = contextvars.copy_context()
    context.run(_source.set, source)
    return context
