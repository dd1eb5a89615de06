"""Signals: Ctrl-C while a program starts, stops or waits for streams, and the order to end."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar

from py4j.protocol import Py4JError

from penstock.host.spark_logs import is_not_of_py4j

if TYPE_CHECKING:
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
    # One of its own: a context that runs has the function itself there.
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
        """Return a handler in Java; a signal that is ignored would be so in executors, too.

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
