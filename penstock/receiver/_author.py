"""`Author`: calls `onStart` and `onStop` of a receiver, and is not held up by them."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.receiver._receiver import Receiver
from penstock.receiver._threaded import ThreadedReceiver
from penstock.receiver.calls import UserCall

__all__ = ["Author"]

_STEP_S = 1.0
_SLOW_S = 5.0
"""After this long the log says what the stop waits for: a graceful stop may have much time."""


class Author:
    """The author's two methods, each in a thread of its own and joined with a bound.

    Used by the supervisor's thread only.

    Args:
        receiver: The author's object.
        on_start_failed: Gets what `onStart` raises, on its thread.
        on_stop_failed: The same for `onStop`.
        report: Tells the driver of a call that was left behind.
    """

    def __init__(
        self,
        receiver: Receiver,
        *,
        on_start_failed: Callable[[BaseException], None],
        on_stop_failed: Callable[[BaseException], None],
        report: Callable[[str], None],
    ) -> None:
        self._receiver = receiver
        self._on_start_failed = on_start_failed
        self._on_stop_failed = on_stop_failed
        self._report = report
        self._starting: UserCall | None = None

    def start(self) -> None:
        """Call `onStart`; does not wait for it."""
        self._starting = self._call("onStart", self._receiver.onStart, self._on_start_failed)

    def stop(self, left_s: Callable[[], float]) -> bool:
        """Call `onStop`, then wait for an `onStart` that still runs.

        Args:
            left_s: Says how many seconds the two may still take; it is asked again and again.

        Returns:
            Whether `onStart` has returned; if not, it cannot be called again.
        """
        stopping = self._call("onStop", self._receiver.onStop, self._on_stop_failed)
        self._wait_for(stopping, "onStop", left_s)
        return self._starting is None or self._wait_for(self._starting, "onStart", left_s)

    def _call(
        self, name: str, method: Callable[[], None], on_error: Callable[[BaseException], None]
    ) -> UserCall:
        call = UserCall(f"receiver-{self._receiver.streamId}-{name}", method, on_error)
        call.start()
        return call

    def _wait_for(self, call: UserCall, name: str, left_s: Callable[[], float]) -> bool:
        began_s = time.monotonic()
        said = False
        # The short forms name what their `onStop` waits for.
        tells = name == "onStop" and isinstance(self._receiver, ThreadedReceiver)
        while not call.join(max(0.0, min(left_s(), _STEP_S))):
            if left_s() <= 0:
                break
            if not said and not tells and time.monotonic() - began_s >= _SLOW_S:
                said = True
                self._report(
                    f"{name} of receiver {self._receiver.streamId} has not returned {_SLOW_S:g} s "
                    f"after it was to stop; it is waited for {left_s():.0f} s more at most, and "
                    f"stands at {call.blocked_at()}"
                )
        else:
            return True
        took_s = time.monotonic() - began_s
        self._report(
            f"{name} of receiver {self._receiver.streamId} did not return within {took_s:.1f} s "
            f"after it was to stop and was left behind; it stands at {call.blocked_at()}"
        )
        return False
