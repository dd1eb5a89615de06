"""`RunOperations`: a context from its start to its end, in one call or one ``with`` block."""

from __future__ import annotations

import os
import signal
import sys
import threading
from abc import abstractmethod
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from penstock.streaming.stop_report import StopReport

if TYPE_CHECKING:
    from typing import Self

__all__ = ["GIVEN_UP_EXIT_CODE", "RunOperations"]

GIVEN_UP_EXIT_CODE = 3
"""Exit code of a program whose stop gave something up."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Interrupted(BaseException):
    """A signal came while the main thread waited; nothing of the program's may catch it."""


class _Signals:
    """Ctrl-C and SIGTERM, while entered: the first ends the wait, the second ends it at once.

    An exception in the middle of a call to the JVM breaks PySpark's connection. So the first
    signal is only noted while something other than waiting goes on. Outside the main thread
    signals cannot be taken, and nothing is changed.
    """

    def __init__(self) -> None:
        self.is_waiting = False
        self.count = 0
        self._previous: dict[int, Any] = {}

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
        for number, handler in self._previous.items():
            # None: it was not set by Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        if self.count == 1:
            _say(
                f"{name}: stopping gracefully, which processes what was received within "
                "spark.streaming.gracefulStopTimeout; once more stops at once"
            )
            if self.is_waiting:
                raise _Interrupted
        elif self.count == 2:
            _say(f"{name}: stopping at once; once more ends the process")
            raise _Interrupted
        else:
            _say(f"{name}: ending the process")
            os._exit(128 + number)


class RunOperations:
    """Starts a context, waits, and stops it, whatever comes."""

    def run(self, timeout: float | None = None, *, stopSparkContext: bool = True) -> StopReport:
        """Start, wait until the context has stopped or the time is over, and stop gracefully.

        For the main thread of a program. Ctrl-C and SIGTERM stop gracefully, within
        `spark.streaming.gracefulStopTimeout`; a second one stops at once, a third one ends the
        process. An error that `awaitTermination` would raise stops at once, and is raised.

        Args:
            timeout: Seconds to run; None: until a signal or `stop`.
            stopSparkContext: Whether the SparkContext is stopped, too.

        Returns:
            What the stop gave up: nothing. At an interactive interpreter also something.

        Raises:
            SystemExit: With code 3, when something was given up: batches that were not processed,
                or records that no batch has. The log says what.
            Exception: See `start` and `awaitTermination`.
        """
        with _Signals() as signals:
            try:
                self.start()
                if not signals.count:
                    _wait(self, signals, timeout)
            except _Interrupted:
                pass
            except BaseException:
                signals.is_waiting = False
                self.stop(stopSparkContext, stopGraceFully=False)
                raise
            report = _stop(self, signals, stopSparkContext)
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
                signals.count = 1
                _say("Ctrl-C: stopping gracefully; once more stops at once")
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
    signals.is_waiting = True
    try:
        if not signals.count:
            context.awaitTerminationOrTimeout(timeout_s)
    finally:
        signals.is_waiting = False


def _stop(context: RunOperations, signals: _Signals, stop_spark_context: bool) -> StopReport:
    """Stop gracefully, and at once when a second signal comes."""
    report = None
    try:
        if signals.count < 2:
            report = context.stop(stop_spark_context, stopGraceFully=True)
    except _Interrupted:
        pass
    if signals.count >= 2:
        report = context.stop(stop_spark_context, stopGraceFully=False)
    return report or StopReport()


def _say(line: str) -> None:
    # Not by `print`: a signal may come in the middle of another one. Always to the file 2, which is
    # the terminal whatever became of `sys.stderr`; a notebook's kernel shows it in the cell.
    try:
        os.write(2, f"\n{line}\n".encode())
    except OSError:
        return
