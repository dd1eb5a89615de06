"""`ThreadedReceiver`: a receiver that is one thread, with a bounded stop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from pyspark import StorageLevel

from penstock.errors import PenstockError
from penstock.receiver.base import Receiver, ReceiverContext
from penstock.receiver.door import RunningCall
from penstock.receiver.exit_report import described
from penstock.receiver.user_calls import UserCall

TELL_S = 5.0
"""Wait after which a source that has not ended is named in the log."""

_LOOK_S = 1.0
_MARGIN_S = 0.5
"""What is kept of a stop's time, to report a source that does not end before it is given up."""
_OF_A_START = ("_call", "_stopped", "_interrupting")


class ThreadedReceiver(Receiver):
    """Runs `_receive` in a thread of its own, ``penstock-receiver-<streamId>-<type>``.

    `_receive` returns True when the source has ended: for good. Or a coroutine that does, which
    goes on on an event loop; where receivers share a process, on one for all, and the thread ends.
    What it raises is reported, and the receiver is restarted. What does not end in time is left
    behind and named.
    """

    STOP_BOUND_S: ClassVar[float | None] = 3.0
    """How long a source may take to end, less than `onStop` may at least; None: as long as that."""
    _IF_IT_MAY_END: ClassVar[str] = ""
    """What may be said of a source that has ended, behind that."""
    _tells_of_slow_stop = True
    is_finite: bool = False
    is_reopened: bool = False

    def __init__(self, storageLevel: StorageLevel | str | None = None) -> None:
        super().__init__(storageLevel)
        self._begin_start()

    def _begin_start(self) -> None:
        self._call: RunningCall | None = None
        self._stopped = threading.Event()
        self._interrupting: Callable[[], object] | None = None

    def onStart(self) -> None:
        """Start the thread."""
        self._begin_start()
        context = ReceiverContext(
            stream_id=self.streamId,
            last_position=self.lastPosition,
            stopped=self._stopped,
            store=self.store,
            storeFrom=self.storeFrom,
            discard=self.discard,
            seal=self.seal,
            reportError=self.reportError,
            listening=self.listening,
            splits=self.assignedSplits,
        )
        self._call = UserCall(
            f"receiver-{self.streamId}-{self._receiver_type()}",
            lambda: self._run(context),
            lambda error: self._failed(context, error),
        )
        self._call.start()

    def onStop(self) -> None:
        """Let the source end, with a bound."""
        self._stopped.set()
        if (interrupt := self._interrupting) is not None:
            interrupt()
        call = self._call
        if call is None:
            return
        began_s = time.monotonic()
        said = False
        step_s = min(_LOOK_S, self.STOP_BOUND_S or _LOOK_S)
        # The thread has begun a coroutine, or has not.
        while not (call.join(step_s) and (call := self._call or call).join(step_s)):
            took_s = time.monotonic() - began_s
            bound_s = self._stop_bound_s(took_s)
            if took_s >= bound_s:
                self._report_held_up(
                    f"did not end within {took_s:.1f} s", "was left behind", call.blocked_at()
                )
                return
            if not said and took_s >= TELL_S:
                said = True
                waits = f"is waited for {bound_s - took_s:.0f} s more at most"
                self._report_held_up(f"has not ended {took_s:.0f} s", waits, call.blocked_at())

    def _stop_bound_s(self, took_s: float) -> float:
        """Return how long the source may take to end, which has taken `took_s` seconds by now."""
        if self.STOP_BOUND_S is None:
            return took_s + max(0.0, self._attached().on_stop_left_s() - _MARGIN_S)
        return self.STOP_BOUND_S

    def _report_held_up(self, what: str, follows: str, stands: str) -> None:
        self.reportError(
            f"{self._describe()} {what} after it was stopped and {follows}; it stands at {stands}. "
            "A source that waits should wait with a time-out, or for ctx.stopped"
        )

    def _receive(self, context: ReceiverContext) -> bool | Coroutine[Any, Any, bool]:
        """Store records until the source ends (True) or the context is stopped (False).

        Or return what does so on an event loop.
        """
        raise TypeError(f"{type(self).__name__} must define _receive()")

    def _interrupt_with(self, interrupt: Callable[[], object] | None) -> None:
        """Take what wakes the source at a stop; it is called once, from another thread."""
        self._interrupting = interrupt

    def _describe(self) -> str:
        """Name the source, for messages."""
        return f"{self._receiver_type()} of receiver {self.streamId}"

    def _run(self, context: ReceiverContext) -> None:
        received = self._receive(context)
        sources = self._attached().sources
        if isinstance(received, bool):
            self._ended(context, received)
        elif sources is None:
            self._ended(context, asyncio.run(received))
        else:

            def on_end(task: asyncio.Task[bool]) -> None:
                try:
                    self._ended(context, task.result())
                except BaseException as error:  # noqa: BLE001 - the author's code may raise anything
                    self._failed(context, error)

            self._call = sources.begin(self.streamId, received, on_end)

    def _ended(self, context: ReceiverContext, is_over: bool) -> None:
        if not is_over or context.stopped.is_set():
            return
        ended = f"Source ended: {self._describe()} returned"
        if self.is_reopened:
            self.restart(ended)
            return
        if not self.is_finite:
            self.reportError(f"{ended}, and its stream gets no more records{self._IF_IT_MAY_END}")
        self._attached().finish(ended)

    def _failed(self, context: ReceiverContext, error: BaseException) -> None:
        if context.stopped.is_set():
            # The source was asked to end; then it is no news that nothing can be stored any more.
            if not isinstance(error, PenstockError):
                self.reportError(
                    f"Error in {self._describe()} while it ended: {described(error)}", error
                )
            return
        self.restart(f"Error in {self._describe()}: {described(error)}", error)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in _OF_A_START}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_start()
