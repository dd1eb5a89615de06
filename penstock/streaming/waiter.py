"""Lets threads wait until a context has stopped, and tells them of errors."""

from __future__ import annotations

import threading

from penstock.threads import wait_for


class ContextWaiter:
    """Where `awaitTermination` waits. One condition guards both facts."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._stopped = False

    def notify_error(self, error: BaseException) -> None:
        """Let waiters raise `error`; the latest one counts."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

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
