"""Signals: Ctrl-C while a program starts, stops or waits for streams, and the order to end."""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from py4j.protocol import Py4JError

from penstock.host.spark.logs import is_not_of_py4j

if TYPE_CHECKING:
    from typing import Self

    from pyspark import SparkContext

_log = logging.getLogger("penstock.host")


@contextmanager
def plain_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise `KeyboardInterrupt` and do nothing else, in the main thread.

    PySpark's own handler first cancels every Spark job, receivers and running batches included,
    so that a graceful stop afterwards would have nothing left to drain. A handler of the
    program's own stays in force.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.getsignal(signal.SIGINT)
    if not getattr(previous, "__module__", "").startswith("pyspark."):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def short_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise as in `plain_interrupts`, without the frames of what was under way.

    That is mostly a wait for the JVM, thirty frames down, which Py4J logs as well.
    """
    # One of its own: a context that runs has added the function itself.
    left_out = partial(is_not_of_py4j)
    log = logging.getLogger()
    log.addFilter(left_out)
    try:
        with plain_interrupts():
            try:
                yield
            except KeyboardInterrupt:
                raise KeyboardInterrupt from None
    finally:
        log.removeFilter(left_out)


def exit_on_termination() -> None:
    """Let SIGTERM end the program like `sys.exit`, so that what is registered for that runs.

    Without a handler it ends the process at once. A handler of the program's own stays in force;
    outside the main thread nothing can be done.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


class IgnoredTermination:
    """Lets the JVM of a program ignore SIGTERM while contexts or hosts of it run.

    At SIGTERM to a whole program (``timeout``, a supervisor) the JVM would end under a stop that
    was to be graceful; PySpark has the one that it starts ignore Ctrl-C only. It ends when the
    standard input that it has from this process does, so it need not hear of signals. With
    ``spark-submit`` the JVM is the parent, and is left as it is.

    Args:
        spark_context: The Spark context.
    """

    # There is one JVM in a process. The lock guards how many want it, and what it had before.
    _lock: ClassVar[threading.Lock] = threading.Lock()
    _wanted: ClassVar[int] = 0
    _before: ClassVar[Any] = None

    def __init__(self, spark_context: SparkContext) -> None:
        untyped: Any = spark_context
        self._jvm: Any = untyped._jvm
        self._is_ours = getattr(untyped._gateway, "proc", None) is not None
        self._is_begun = False

    def begin(self) -> None:
        """Let it ignore the signal; a log line says where that cannot be done."""
        if not self._is_ours or self._is_begun:
            return
        kind = type(self)
        with kind._lock:
            if not kind._wanted:
                try:
                    kind._before = self._handle(self._does_nothing())
                except (Py4JError, AttributeError, TypeError, OSError) as error:
                    _log.info("Spark's JVM ends at SIGTERM, also while a stop needs it: %s", error)
                    return
            kind._wanted += 1
            self._is_begun = True

    def end(self) -> None:
        """Let it do what it did before, when no other one wants otherwise."""
        if not self._is_begun:
            return
        kind = type(self)
        with kind._lock:
            self._is_begun = False
            kind._wanted -= 1
            if kind._wanted:
                return
            before, kind._before = kind._before, None
            try:
                self._handle(before)
            except (Py4JError, AttributeError, TypeError, OSError) as error:
                _log.info("Spark's JVM still ignores SIGTERM: %s", error)

    def _does_nothing(self) -> Any:
        """Return a handler in Java; a signal that is ignored would also be so in executors.

        What a process ignores is ignored by those that it starts: executors of a local cluster
        could not be ended.
        """
        lang = self._jvm.java.lang
        takes = lang.Class.forName("sun.misc.Signal")
        kind = lang.invoke.MethodType.methodType(lang.Void.TYPE, takes)
        return lang.invoke.MethodHandleProxies.asInterfaceInstance(
            lang.Class.forName("sun.misc.SignalHandler"), lang.invoke.MethodHandles.empty(kind)
        )

    def _handle(self, handler: Any) -> Any:
        misc = self._jvm.sun.misc
        return misc.Signal.handle(misc.Signal("TERM"), handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Takes signals, while entered: the first is noted, the second ends the process.

    Nothing is broken off by the first, so that no call to the JVM is left with half an answer.
    Outside the main thread signals cannot be taken, and nothing is changed.

    Args:
        prefix: Stands before what is said.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._asked_s: float | None = None
        # An event's lock may be held by the code that a signal breaks into.
        self._asked: SimpleQueue[int] = SimpleQueue()
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self.listen()
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

    def listen(self) -> None:
        """Take them, also from handlers that others have set since."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                previous = signal.signal(number, self._take)
                self._previous.setdefault(number, previous)

    @property
    def is_asked(self) -> bool:
        """Whether one came."""
        return self._asked_s is not None

    def wait(self, timeout_s: float) -> bool:
        """Wait for the first one; whether it came."""
        try:
            self._asked.get(timeout=timeout_s)
        except Empty:
            return self.is_asked
        return True

    def _take(self, number: int, frame: FrameType | None) -> None:
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        if self._asked_s is not None:
            if time.monotonic() - self._asked_s < SAME_SIGNAL_S:
                return
            say_of_signal(f"{self._prefix}{name}: ending the process")
            os._exit(128 + number)
        self._asked_s = time.monotonic()
        self._asked.put(number)
        say_of_signal(f"{self._prefix}{name}: stopping gracefully; once more ends the process")


SAME_SIGNAL_S = 1.0
"""Signals within that time are one: ``timeout``, among others, sends each twice."""

_STANDARD_ERROR = 2


def say_of_signal(line: str) -> None:
    """Write a line to the terminal, out of a signal's handler. Never blocks, never raises.

    Not by `print`: a signal may come in the middle of another one. Always to the file 2, which is
    the terminal whatever became of `sys.stderr`; a notebook's kernel shows it in the cell. Where
    no one reads it just now (a pager that waits, Ctrl-S), it is left out, for a handler that waits
    there would keep the next signal from ending the process.
    """
    try:
        if select.select([], [_STANDARD_ERROR], [], 0)[1]:
            os.write(_STANDARD_ERROR, f"\n{line}\n".encode())
    except OSError:
        return
