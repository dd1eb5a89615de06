"""`StreamErrors`: what goes wrong in any part of a running context, on its way to the waiter."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.streaming.errors import SparkEndedError
from penstock.streaming.waiter import ContextWaiter

_log = logging.getLogger("penstock.streaming")


class StreamErrors:
    """Tells the waiter of errors, and ends the context when they come of the end of Spark.

    Without Spark each batch fails, and each receiver, in its own way. All that is told then is
    that Spark has ended, once.

    Args:
        waiter: Told of errors.
        why_ended: Returns why Spark runs no more jobs; empty while it does.
        on_ended: Told once that it does not; must return at once.
    """

    def __init__(
        self, waiter: ContextWaiter, why_ended: Callable[[], str], on_ended: Callable[[], None]
    ) -> None:
        self._waiter = waiter
        self._why_ended = why_ended
        self._on_ended = on_ended
        self._lock = threading.Lock()
        self._is_over = False
        self._is_stopping = False
        self._has_stopped = False

    def stopping(self) -> None:
        """From now on the context is ended already, whatever goes wrong."""
        with self._lock:
            self._is_stopping = True

    def stopped(self) -> None:
        """The context was stopped: that Spark ends after it is no error."""
        with self._lock:
            self._has_stopped = True

    def tell(self, error: BaseException) -> None:
        """Take an error. Any thread may."""
        if self._is_over:
            return
        reason = self._why_ended()
        if not reason:
            self._waiter.notify_error(error)
            return
        if self._has_stopped:
            _log.info("After the stop, and the end of Spark (%s): %s", reason, error)
            return
        with self._lock:
            is_first = not self._is_over
            self._is_over = True
        if not is_first:
            return
        ended = SparkEndedError(reason)
        _log.critical("%s", ended)
        _log.info("By then this had gone wrong", exc_info=error)
        self._waiter.notify_error(ended)
        if not self._is_stopping:
            self._on_ended()
