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

from penstock.host.spark_logs import is_not_of_py4j


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
