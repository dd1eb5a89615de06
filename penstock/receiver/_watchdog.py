"""`Watchdog`: the last resort for a process that was to end and hangs."""

from __future__ import annotations

import faulthandler
import sys
import threading

__all__ = ["Watchdog"]


class Watchdog:
    """Ends this process, with a traceback of each thread on stderr, when a time is over.

    It needs neither a free interpreter nor a living thread: the C code of an author may hold the
    interpreter's lock for ever. Only where the receiver has the process for itself, as in Spark's
    Python worker, whose main thread runs the task.
    """

    def __init__(self) -> None:
        self._owns_process = threading.current_thread() is threading.main_thread()
        self._armed = False

    def arm(self, timeout_s: float) -> None:
        """End the process in `timeout_s` seconds; once set, the time stands."""
        if self._owns_process and not self._armed:
            self._armed = True
            stderr = sys.__stderr__ or sys.stderr
            faulthandler.dump_traceback_later(timeout_s, exit=True, file=stderr)

    def disarm(self) -> None:
        """Let the process live."""
        if self._armed:
            self._armed = False
            faulthandler.cancel_dump_traceback_later()
