"""The threads of the product: each has a name, an owner who joins it, and an end that is noticed.

`OwnedThread` is the one place that makes a thread. What its function raises reaches its owner,
which says how it goes on:

* With `again` the function is a loop that is entered again after a pause: for work that others
  depend on and that an error need not end. Each error is logged, and passed to `on_error`.
* Else the thread ends, and `on_error` is called; then what others wait for must not hang.
* Without either the error travels on to `threading.excepthook`. In the process of a receiver
  that ends the attempt, and the driver starts another one (`penstock.receiver.user_calls`).
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable

from penstock.errors import typed_text
from penstock.runtime.clock import Clock, SystemClock
from penstock.runtime.rate_limited_log import RateLimitedLog

_log = logging.getLogger("penstock.runtime.threads")

_STEP_S = 1.0

_PAUSE_S = 0.5
"""How long a loop that raised rests: it neither spins nor holds up a stop."""


class OwnedThread(threading.Thread):
    """A thread that runs in a copy of the context variables of the thread that starts it.

    So what a batch prints in a notebook goes to the cell that started the streams, and not to the
    one that was run last: IPython's kernel keeps the cell in a context variable.

    Args:
        function: What it does.
        name: The thread is called ``penstock-<name>``.
        on_error: Called, in the thread, with what the function raised.
        again: Whether the function is then called again. It must have kept nothing in hand that is
            lost by that, and return at once when its owner has stopped it.
        daemon: Whether the interpreter exits without waiting for it.
    """

    def __init__(
        self,
        function: Callable[[], object],
        name: str,
        *,
        on_error: Callable[[BaseException], object] | None = None,
        again: bool = False,
        daemon: bool = True,
    ) -> None:
        super().__init__(name=f"penstock-{name}", daemon=daemon)
        self._function: Callable[[], object] | None = function
        self._on_error = on_error
        self._again = again
        self._limited_log = RateLimitedLog(_log)
        self._inherited = contextvars.Context()

    def start(self) -> None:
        """Begin."""
        self._inherited = contextvars.copy_context()
        super().start()

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end; one that has not begun has nothing to wait for.

        An owner may be stopped in one thread while another one starts it.
        """
        if self.ident is not None:
            super().join(timeout)

    def run(self) -> None:
        """Call the function; see the class."""
        try:
            self._inherited.run(self._call)
        finally:
            # What it refers to is not kept as long as the thread.
            self._function = None

    def _call(self) -> None:
        function = self._function
        assert function is not None
        while True:
            try:
                function()
                return
            except BaseException as error:
                if self._on_error is None and not self._again:
                    raise
                self._tell(error)
            if not self._again:
                return
            time.sleep(_PAUSE_S)

    def _tell(self, error: BaseException) -> None:
        how_on = "it goes on" if self._again else "it has ended"
        self._limited_log.log(
            f"The thread {self.name} met an error, and {how_on}: {typed_text(error)}",
            like=type(error).__name__,
            level=logging.ERROR,
            error=error,
        )
        if self._on_error is None:
            return
        try:
            self._on_error(error)
        except BaseException:  # noqa: BLE001  # the thread goes on, or ends, as it would have
            _log.exception("The owner of the thread %s could not be told", self.name)


class Repeated:
    """A step that a thread does every so often until it is stopped, also after one that raised.

    Args:
        step: What it does.
        every_s: The pause before each step.
        name: The thread is called ``penstock-<name>``.
        clock: Measures the pause.
    """

    def __init__(
        self, step: Callable[[], object], every_s: float, name: str, clock: Clock | None = None
    ) -> None:
        self._step = step
        self._every_s = every_s
        self._clock: Clock = SystemClock() if clock is None else clock
        self._stopped = threading.Event()
        self._thread = OwnedThread(self._run, name, again=True)

    def start(self) -> None:
        """Begin, with a pause; once."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Begin no other step; return whether the last one ended in time. May be called again.

        A step that stops it does not wait for itself.
        """
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._clock.wait(self._stopped, self._every_s):
            self._step()


def wait_for(
    changed: threading.Condition, holds: Callable[[], bool], timeout_s: float | None
) -> bool:
    """Wait like `Condition.wait_for`, but in steps.

    A signal that comes just before the main thread goes to sleep does not wake it, and Python runs
    the signal's handler only when that thread goes on: here after a step.
    """
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    while not holds():
        left_s = _STEP_S if end_s is None else min(end_s - time.monotonic(), _STEP_S)
        if left_s <= 0:
            return False
        changed.wait(left_s)
    return True
