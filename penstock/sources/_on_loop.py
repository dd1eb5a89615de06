"""`LoopReceiver`: a receiver whose client or server is one of asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar

from pyspark import StorageLevel

from penstock.errors import MissingPackageError, typed_text
from penstock.receiver import Receiver
from penstock.threads import OwnedThread

_END_S = 4.0
"""How long a source may take to end: less than `onStop` may take at least."""


class _LoopThread:
    """Runs a coroutine in a thread of its own, until `cancel`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._guard = threading.Lock()
        self._task: asyncio.Task[None] | None = None
        self._is_over = False
        self.thread: threading.Thread | None = None

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.thread = OwnedThread(lambda: asyncio.run(self._run(main)), self._name)
        self.thread.start()

    async def _run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.ensure_future(main())
        with self._guard:
            self._task = task
            if self._is_over:
                task.cancel()
        await asyncio.wait([task])
        with self._guard:
            self._task = None
        if not task.cancelled():
            task.result()

    def cancel(self) -> None:
        """End the coroutine where it waits; from any thread."""
        with self._guard:
            self._is_over = True
            if self._task is not None:
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)


class LoopReceiver(Receiver):
    """Runs `_main` on an event loop of its own, in the thread ``penstock-<extra>-<streamId>``.

    At a stop `_main` is cancelled where it waits. An error that it raises is reported, and the
    receiver is started again after the restart delay.

    Args:
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: The client is not installed.
    """

    extra: ClassVar[str]
    """The extra of the package that has what it requires."""

    _running: _LoopThread | None = None

    def __init__(self, storageLevel: StorageLevel | str) -> None:
        super().__init__(storageLevel)
        for package in self.requires:
            if importlib.util.find_spec(package) is None:
                raise MissingPackageError(f"a {type(self).__name__}", package, self.extra)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_running"}

    async def _main(self) -> None:
        """Take records until it is cancelled."""
        raise TypeError(f"{type(self).__name__} must define _main()")

    def onStart(self) -> None:
        """Start the thread."""
        self._running = _LoopThread(f"{self.extra}-{self.streamId}")
        self._running.start(self._guarded)

    def onStop(self) -> None:
        """Cancel `_main`, and wait a while for it to end."""
        running = self._running
        if running is None or running.thread is None:
            return
        running.cancel()
        running.thread.join(_END_S)

    async def _guarded(self) -> None:
        try:
            await self._main()
        except Exception as error:  # noqa: BLE001  # it is reported, with its traceback
            if not self.isStopped():
                self.restart(f"Error in {self._describe()}: {typed_text(error)}", error)

    def _describe(self) -> str:
        """Name it, for messages."""
        return type(self).__name__


def resolve(futures: Sequence[asyncio.Future[None]], error: BaseException | None = None) -> None:
    """Let who awaits futures of one loop go on, or raise; from any thread, also after its end."""

    def settle() -> None:
        for future in futures:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    if futures:
        with contextlib.suppress(RuntimeError):
            futures[0].get_loop().call_soon_threadsafe(settle)
