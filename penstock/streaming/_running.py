"""`RunOperations`: a context from its start to its end, in one call or one ``with`` block."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from abc import abstractmethod
from functools import partial
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from penstock._arguments import check_flag, check_timeout
from penstock.host.interrupts import SAME_SIGNAL_S, say_of_signal
from penstock.runtime.threads import OwnedThread
from penstock.streaming.stop_report import StopReport

if TYPE_CHECKING:
    from typing import Self

GIVEN_UP_EXIT_CODE = 3
"""Exit code of a program whose stop gave something up."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LATER_S = 0.02
_JVM_ANSWERS_S = 5.0


class _Interrupted(BaseException):
    """A signal came while the main thread waited; nothing of the program's may catch it."""


class _Signals:
    """Ctrl-C and SIGTERM, while entered: the first ends the wait, the second the graceful stop.

    What comes within a second of one that counted is that one.

    Each is only noted while something goes on that must not be broken off. That includes calls to
    the JVM, which an exception would leave with half an answer: there it is raised a little later,
    at the latest after some seconds, for the JVM may hang. Outside the main thread signals cannot
    be taken, and nothing is changed.

    Attributes:
        count: How many signals came.
        interrupt_at: From how many on the main thread expects `_Interrupted`, which it gets once;
            None: it does not.
    """

    def __init__(self) -> None:
        self.count = 0
        self.interrupt_at: int | None = None
        self._previous: dict[int, Any] = {}
        self._is_later = False
        self._interrupt_by_s = 0.0
        self._taken_s = -math.inf
        # Nothing is sent once the handlers may be others'.
        self._sending = threading.Lock()

    def __enter__(self) -> _Signals:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._sending:
            self.interrupt_at = None
        for number, handler in self._previous.items():
            # None: it was not set by Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def count_one(self) -> None:
        """Count a signal that came just before."""
        self.count += 1
        self._taken_s = time.monotonic()

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._is_later:
            self._is_later = False
            self._interrupt(number, frame)
            return
        now_s = time.monotonic()
        if now_s - self._taken_s < SAME_SIGNAL_S:
            return
        self.count_one()
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        self._interrupt_by_s = now_s + _JVM_ANSWERS_S
        if self.count == 1:
            say_of_signal(
                f"{name}: stopping gracefully, which processes what was received within "
                "spark.streaming.gracefulStopTimeout; once more stops at once"
            )
        elif self.count == 2:
            say_of_signal(f"{name}: stopping at once; once more ends the process")
        else:
            say_of_signal(f"{name}: ending the process")
            os._exit(128 + number)
        self._interrupt(number, frame)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self._is_expected():
            return
        if not _calls_jvm(frame) or time.monotonic() >= self._interrupt_by_s:
            self.interrupt_at = None
            raise _Interrupted
        OwnedThread(partial(self._take_later, number), "signal").start()

    def _take_later(self, number: int) -> None:
        time.sleep(_LATER_S)
        with self._sending:
            if self._is_expected():
                self._is_later = True
                os.kill(os.getpid(), number)

    def _is_expected(self) -> bool:
        return self.interrupt_at is not None and self.count >= self.interrupt_at


def _calls_jvm(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("py4j."):
            return True
        frame = frame.f_back
    return False


class RunOperations:
    """Starts a context, waits, and stops it, whatever comes."""

    def run(self, timeout: float | None = None, *, stopSparkContext: bool = True) -> StopReport:
        """Start, wait until the context has stopped or the time is over, and stop gracefully.

        For the main thread of a program. Ctrl-C and SIGTERM stop gracefully, within
        `spark.streaming.gracefulStopTimeout`; a second one stops at once, a third one ends the
        process. An error that `awaitTermination` would raise stops at once, and is raised; one in a
        batch that a graceful stop waits for is raised at its end.

        Args:
            timeout: Seconds to run; None: until a signal or `stop`.
            stopSparkContext: Whether the SparkContext is also stopped.

        Returns:
            What the stop gave up: nothing. At an interactive interpreter also something.

        Raises:
            SystemExit: With code 3, when something was given up: batches that were not processed,
                or records that no batch has. The log says what.
            TypeError, ValueError: An argument is not accepted; nothing was started.
            Exception: See `start` and `awaitTermination`.
        """
        check_timeout(timeout)
        check_flag(stopSparkContext, "stopSparkContext")
        with _Signals() as signals:
            try:
                self.start()
                if not signals.count:
                    _wait(self, signals, timeout)
            except _Interrupted:
                pass
            except BaseException:
                signals.interrupt_at = None
                self.stop(stopSparkContext, stopGraceFully=False)
                raise
            report = _stop(self, signals, stopSparkContext)
        if signals.count < 2:
            # What failed while the stop waited, as it may be why something was given up; no one
            # else waits any more.
            self.awaitTerminationOrTimeout(0)
        if not report.is_complete and not hasattr(sys, "ps1"):
            raise SystemExit(GIVEN_UP_EXIT_CODE)
        return report

    def __enter__(self) -> Self:
        """Return the context; what is started in the block is stopped at its end."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the streams: gracefully at the block's end and after Ctrl-C, else at once.

        The SparkContext goes on.
        """
        if kind is not None and not issubclass(kind, KeyboardInterrupt):
            self.stop(stopSparkContext=False, stopGraceFully=False)
            return
        with _Signals() as signals:
            if kind is not None:
                signals.count_one()
                say_of_signal("Ctrl-C: stopping gracefully; once more stops at once")
            _stop(self, signals, stop_spark_context=False)

    @abstractmethod
    def start(self) -> None:
        """See `StreamingContext`."""

    @abstractmethod
    def awaitTerminationOrTimeout(self, timeout: float | None) -> bool:
        """See `StreamingContext`."""

    @abstractmethod
    def stop(
        self, stopSparkContext: bool = True, stopGraceFully: bool = False
    ) -> StopReport | None:
        """See `StreamingContext`."""


def _wait(context: RunOperations, signals: _Signals, timeout_s: float | None) -> None:
    signals.interrupt_at = 1
    if not signals.count:
        context.awaitTerminationOrTimeout(timeout_s)
    signals.interrupt_at = None


def _stop(context: RunOperations, signals: _Signals, stop_spark_context: bool) -> StopReport:
    """Stop gracefully, and at once when a second signal comes."""
    report = None
    try:
        signals.interrupt_at = 2
        if signals.count < 2:
            report = context.stop(stop_spark_context, stopGraceFully=True)
        signals.interrupt_at = None
    except _Interrupted:
        pass
    if signals.count >= 2:
        report = context.stop(stop_spark_context, stopGraceFully=False)
    return report or StopReport()
