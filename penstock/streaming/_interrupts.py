"""Ctrl-C while a program waits for its streams."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["plain_interrupts"]


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
