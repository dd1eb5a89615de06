"""Lets threads wait until a context has stopped, and raises errors in them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.runtime.threads import wait_for
from penstock.streaming.errors import SparkEndedError

_log = logging.getLogger("penstock.streaming")


class ContextWaiter:
    """Where `awaitTermination` waits, and errors are reported. Any thread may call it.

    Without Spark each batch fails, and each receiver, in its own way. All that is reported then is
    that Spark has ended, once, and the context ends. `_changed` guards all of it.

    Args:
        on_spark_ended: Notified once that Spark has ended under the context; must return at once.
    """

    def __init__(self, on_spark_ended: Callable[[], None]) -> None:
        self._on_spark_ended = on_spark_ended
        self._why_ended: Callable[[], str] = str
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._stopped = False
        self._is_over = False
        self._is_stopping = False
        self._has_stopped = False

    def watch(self, why_ended: Callable[[], str]) -> None:
        """Ask from now on why Spark runs no more jobs; the answer is empty while it does."""
        self._why_ended = why_ended

    def stopping(self) -> None:
        """From now on the context is ended already, whatever goes wrong."""
        with self._changed:
            self._is_stopping = True

    def stopped(self) -> None:
        """The context was stopped: that Spark ends after it is no error."""
        with self._changed:
            self._has_stopped = True

    def tell(self, error: BaseException) -> None:
        """Let waiters raise an error, or that Spark has ended; the latest one counts."""
        if self._is_over:
            return
        reason = self._why_ended()
        if not reason:
            self.notify_error(error)
            return
        if self._has_stopped:
            _log.info("After the stop, and the end of Spark (%s): %s", reason, error)
            return
        with self._changed:
            is_first = not self._is_over
            self._is_over = True
        if not is_first:
            return
        ended = SparkEndedError(reason)
        _log.critical("%s", ended)
        _log.info("By then this had gone wrong", exc_info=error)
        self.notify_error(ended)
        if not self._is_stopping:
            self._on_spark_ended()

    def notify_stop(self) -> None:
        """Let waiters return."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def wait_for_stop_or_error(self, timeout_s: float | None) -> bool:
        """Wait for either.

        Returns:
            True when the context has stopped, False when the time was over first.

        Raises:
            PenstockError: What was reported last; it is raised again by every later call.
        """
        with self._changed:
            wait_for(self._changed, lambda: self._stopped or self._error is not None, timeout_s)
            if self._error is not None:
                # Without this, each raise would add to the traceback of the last.
                raise self._error.with_traceback(None)
            return self._stopped

    def notify_error(self, error: BaseException) -> None:
        """Let waiters raise `error`; the latest one counts."""
        with self._changed:
            self._error = error
            self._changed.notify_all()
