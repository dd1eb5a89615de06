"""Calls into the author's code: in threads that are joined with a bound; what threads die of."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import ClassVar

from penstock.receiver.base import Receiver
from penstock.receiver.door import ReceiverStoppedError
from penstock.runtime.threads import OwnedThread

_NOT_THEIRS = (
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
    os.path.dirname(threading.__file__) + os.sep,
)
"""Where the files of this package and of Python's library are."""


def blocked_at(thread: threading.Thread, frames: int = 1) -> str:
    """Return where `thread` stands now, as ``file:line in function``; for messages to people.

    Args:
        thread: The thread.
        frames: How many of its calls to name, the innermost first.
    """
    frame = sys._current_frames().get(thread.ident) if thread.ident is not None else None
    if frame is None:
        return "(ended)"
    places = traceback.extract_stack(frame)[-frames:]
    return ", called from ".join(map(_shown, reversed(places)))


def standing(frame: FrameType) -> str:
    """Return where a frame stands, and in which line of the author's, for messages."""
    places = traceback.extract_stack(frame)
    theirs = [place for place in places if not place.filename.startswith(_NOT_THEIRS)]
    return ", called from ".join(dict.fromkeys(map(_shown, (places[-1], *theirs[-1:]))))


def _shown(place: traceback.FrameSummary) -> str:
    return f"{place.filename}:{place.lineno} in {place.name}"


class UserCall:
    """Runs one function of a receiver's author in a daemon thread.

    The supervisor owns it and joins it with a bound. What the function raises goes to
    `on_error`, in that thread, and is kept in `error`.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], object],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.name = name
        self._function = function
        self._on_error = on_error
        self._thread = OwnedThread(self._run, name)

    def start(self) -> None:
        """Begin the call."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` seconds for the call to end; return whether it has ended.

        A call does not wait for itself: from its own thread the answer is False at once.
        """
        if self._thread is threading.current_thread():
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def blocked_at(self) -> str:
        """Return where the call stands now, and in which line of the author's, for messages."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "(ended)" if frame is None else standing(frame)

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - the author's code may raise anything
            self._on_error(error)


_STEP_S = 1.0
_SLOW_S = 5.0
"""After this long the log says what the stop waits for: a graceful stop may have much time."""


class Author:
    """The author's two methods, each in a thread of its own and joined with a bound.

    Used by the supervisor's thread only.

    Args:
        receiver: The author's object.
        on_start_failed: Gets what `onStart` raises, on its thread.
        on_stop_failed: The same for `onStop`.
        report: Reports to the driver a call that was left behind.
    """

    def __init__(
        self,
        receiver: Receiver,
        *,
        on_start_failed: Callable[[BaseException], None],
        on_stop_failed: Callable[[BaseException], None],
        report: Callable[[str], None],
    ) -> None:
        self._receiver = receiver
        self._on_start_failed = on_start_failed
        self._on_stop_failed = on_stop_failed
        self._report = report
        self._starting: UserCall | None = None

    def start(self) -> None:
        """Call `onStart`; does not wait for it."""
        self._starting = self._call("onStart", self._receiver.onStart, self._on_start_failed)

    def stop(self, left_s: Callable[[], float]) -> bool:
        """Call `onStop`, then wait for an `onStart` that still runs.

        Args:
            left_s: Says how many seconds the two may still take; it is asked again and again.

        Returns:
            Whether `onStart` has returned; if not, it cannot be called again.
        """
        stopping = self._call("onStop", self._receiver.onStop, self._on_stop_failed)
        self._wait_for(stopping, "onStop", left_s)
        return self._starting is None or self._wait_for(self._starting, "onStart", left_s)

    def _call(
        self, name: str, method: Callable[[], None], on_error: Callable[[BaseException], None]
    ) -> UserCall:
        call = UserCall(f"receiver-{self._receiver.streamId}-{name}", method, on_error)
        call.start()
        return call

    def _wait_for(self, call: UserCall, name: str, left_s: Callable[[], float]) -> bool:
        began_s = time.monotonic()
        said = False
        tells = name == "onStop" and self._receiver._tells_of_slow_stop
        while not call.join(max(0.0, min(left_s(), _STEP_S))):
            if left_s() <= 0:
                break
            if not said and not tells and time.monotonic() - began_s >= _SLOW_S:
                said = True
                self._report(
                    f"{name} of receiver {self._receiver.streamId} has not returned {_SLOW_S:g} s "
                    f"after it was to stop; it is waited for {left_s():.0f} s more at most, and "
                    f"stands at {call.blocked_at()}"
                )
        else:
            return True
        took_s = time.monotonic() - began_s
        self._report(
            f"{name} of receiver {self._receiver.streamId} did not return within {took_s:.1f} s "
            f"after it was to stop and was left behind; it stands at {call.blocked_at()}"
        )
        return False


def is_ours(thread_name: str) -> bool:
    """Return whether a thread is one of Penstock's own."""
    return thread_name.startswith("penstock-")


_MARK = "_penstock_stream"


_show: Callable[[int, int], object] | None = None


def mark(thread: threading.Thread, stream_id: int | None) -> None:
    """Say that a thread, and what it starts, belongs to the receiver of a stream; None: to none."""
    setattr(thread, _MARK, stream_id)
    if _show is not None and stream_id is not None and thread.native_id is not None:
        _show(thread.native_id, stream_id)


def stream_of(thread: threading.Thread | None) -> int | None:
    """Return whose a thread is; None where no one has said it."""
    return getattr(thread, _MARK, None)


def threads_of(stream_id: int) -> frozenset[threading.Thread]:
    """Return the other threads of this process but those that are not of a stream's receiver."""
    others = set(threading.enumerate()) - {threading.current_thread()}
    return frozenset(one for one in others if getattr(one, _MARK, stream_id) == stream_id)


def mark_new_threads(whose: Callable[[], int | None], show: Callable[[int, int], object]) -> None:
    """Have each thread that this process starts marked with the receiver that starts it.

    Only in a process that several receivers share; elsewhere all threads belong to the one.

    Args:
        whose: Returns whose the code that calls it is.
        show: Called for each marked thread before it runs: its system's number, and whose it is.
    """
    global _show
    _show = show
    start = threading.Thread.start

    def start_marked(thread: threading.Thread) -> None:
        stream_id = whose()
        if stream_id is not None and stream_of(thread) is None:
            mark(thread, stream_id)
            run = thread.run

            def run_shown() -> None:
                del thread.run
                show(threading.get_native_id(), stream_id)
                run()

            thread.run = run_shown  # type: ignore[method-assign]
        start(thread)

    threading.Thread.start = start_marked  # type: ignore[assignment, method-assign]


class UncaughtErrors:
    """While entered, hands what threads of a receiver die of to `on_uncaught`.

    A thread of the receiver's author has no owner of ours who would join it, so without this its
    death would be a line on stderr of an executor while the receiver looks alive. So would a
    `SystemExit`, of which `threading` says nothing at all.

    In a process that receivers share it is for the threads with the receiver's mark, else for all.

    Python keeps the process for other tasks. A thread that only learns in its next `store` that its
    receiver has stopped also ends without a word.
    """

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _entered: ClassVar[list[UncaughtErrors]] = []
    _previous: ClassVar[Callable[[threading.ExceptHookArgs], object]] = threading.excepthook

    def __init__(
        self,
        on_uncaught: Callable[[threading.Thread | None, BaseException], None],
        stream_id: int | None = None,
    ) -> None:
        self._on_uncaught = on_uncaught
        self._stream_id = stream_id

    def __enter__(self) -> UncaughtErrors:
        with self._lock:
            if not self._entered:
                UncaughtErrors._previous = threading.excepthook
                threading.excepthook = self._hook
            self._entered.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._entered.remove(self)
            if not self._entered:
                threading.excepthook = _QuietLatecomers.over(UncaughtErrors._previous)

    @classmethod
    def _hook(cls, arguments: threading.ExceptHookArgs) -> None:
        stream_id = stream_of(arguments.thread)
        with cls._lock:
            whose = [one for one in cls._entered if stream_id in (None, one._stream_id)]
        if arguments.exc_value is None or not whose:
            _QuietLatecomers.over(cls._previous)(arguments)
            return
        for one in whose:
            one._on_uncaught(arguments.thread, arguments.exc_value)


class _QuietLatecomers:
    """The hook for errors of threads where a receiver has ended: `ReceiverStoppedError` is none."""

    def __init__(self, previous: Callable[[threading.ExceptHookArgs], object]) -> None:
        self._previous = previous

    @classmethod
    def over(cls, hook: Callable[[threading.ExceptHookArgs], object]) -> _QuietLatecomers:
        return hook if isinstance(hook, cls) else cls(hook)

    def __call__(self, arguments: threading.ExceptHookArgs) -> None:
        if not issubclass(arguments.exc_type, ReceiverStoppedError):
            self._previous(arguments)
