"""`ThreadedReceiver`: what the short forms share: one thread, its context, a bounded stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.errors import PenstockError
from penstock.receiver._context import ReceiverContext
from penstock.receiver._exit_report import described
from penstock.receiver._receiver import Receiver
from penstock.receiver.calls import UserCall

__all__ = ["ThreadedReceiver"]

STOP_BOUND_S = 3.0
"""How long a source may take to end: less than the supervisor allows `onStop` at least."""

TELL_S = 5.0
"""Wait after which a source that has not ended is named in the log."""

_STEP_S = 1.0


class ThreadedReceiver(Receiver):
    """Runs `_receive` in a thread of its own.

    `_receive` returns True when the source has ended: for good. What it raises is reported, and
    the receiver is restarted. A thread that does not end in time is left behind and named.
    """

    location: str | None = None
    is_finite: bool = False
    is_reopened: bool = False

    def __init__(self, source: Any, takes_context: bool) -> None:
        super().__init__()
        self._source = source
        self._takes_context = takes_context
        self._call: UserCall | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._interrupting: Callable[[], object] | None = None

    def __repr__(self) -> str:
        stream = f" of stream {self.streamId}" if self.streamId >= 0 else ""
        return f"<receiver {self._receiver_type()!r}{stream}>"

    def onStart(self) -> None:
        """Start the thread."""
        self._stopped = threading.Event()
        context = ReceiverContext(
            stream_id=self.streamId,
            last_position=self.lastPosition,
            stopped=self._stopped,
            store=self.store,
            storeFrom=self.storeFrom,
            reportError=self.reportError,
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
        self._interrupt()
        call = self._call
        if call is None:
            return
        began_s = time.monotonic()
        said = False
        while not call.join(min(_STEP_S, STOP_BOUND_S)):
            took_s = time.monotonic() - began_s
            bound_s = self._stop_bound_s(took_s)
            if took_s >= bound_s:
                self._report_held_up(f"did not end within {took_s:.1f} s", "was left behind", call)
                return
            if not said and took_s >= TELL_S:
                said = True
                waits = f"is waited for {bound_s - took_s:.0f} s more at most"
                self._report_held_up(f"has not ended {took_s:.0f} s", waits, call)

    def _stop_bound_s(self, took_s: float) -> float:
        """Return how long the source may take to end, which has taken `took_s` seconds by now."""
        return STOP_BOUND_S

    def _report_held_up(self, what: str, follows: str, call: UserCall) -> None:
        self.reportError(
            f"{self._describe()} {what} after it was stopped and {follows}; it stands at "
            f"{call.blocked_at()}. A source that waits should wait with a time-out, or for "
            "ctx.stopped"
        )

    def preferredLocation(self) -> str | None:
        """Return what was declared."""
        return self.location

    def _receive(self, context: ReceiverContext) -> bool:
        """Store records until the source ends (True) or the context is stopped (False)."""
        raise TypeError(f"{type(self).__name__} must define _receive()")

    def _interrupt_with(self, interrupt: Callable[[], object] | None) -> None:
        """Take what wakes the source at a stop; it is called once, from another thread."""
        with self._lock:
            self._interrupting = interrupt

    def _interrupt(self) -> None:
        with self._lock:
            interrupt = self._interrupting
        if interrupt is not None:
            interrupt()

    def _describe(self) -> str:
        """Name the source, for messages."""
        return f"{self._receiver_type()} of receiver {self.streamId}"

    def _run(self, context: ReceiverContext) -> None:
        if not self._receive(context) or context.stopped.is_set():
            return
        ended = f"Source ended: {self._describe()} returned"
        if self.is_reopened:
            self.restart(ended)
            return
        if not self.is_finite:
            self.reportError(
                f"{ended}, and its stream gets no more records. If it may end, declare "
                '@receiver(finite=True); @receiver(restart="always") opens it again'
            )
        self._attached().finish(ended)

    def _failed(self, context: ReceiverContext, error: BaseException) -> None:
        if context.stopped.is_set():
            # The source was told to end; that nothing can be stored any more is no news then.
            if not isinstance(error, PenstockError):
                self.reportError(
                    f"Error in {self._describe()} while it ended: {described(error)}", error
                )
            return
        self.restart(f"Error in {self._describe()}: {described(error)}", error)

    def _receiver_type(self) -> str:
        source = self._source
        while hasattr(source, "func"):
            source = source.func
        return str(getattr(source, "__name__", type(source).__name__))

    def __getstate__(self) -> dict[str, Any]:
        dropped = ("_call", "_stopped", "_lock", "_interrupting")
        return {
            name: value for name, value in super().__getstate__().items() if name not in dropped
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._call = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._interrupting = None
