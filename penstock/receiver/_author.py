"""`Author`: calls `onStart` and `onStop` of a receiver, and is not held up by them."""

from __future__ import annotations

from collections.abc import Callable

from penstock.receiver._calls import UserCall
from penstock.receiver._receiver import Receiver

__all__ = ["Author"]


class Author:
    """The author's two methods, each in a thread of its own and joined with a bound.

    Used by the supervisor's thread only.

    Args:
        receiver: The author's object.
        bound_s: How long `onStop` may take, and then an `onStart` that still runs, in seconds.
        on_start_failed: Gets what `onStart` raises, on its thread.
        on_stop_failed: The same for `onStop`.
        report: Tells the driver of a call that was left behind.
    """

    def __init__(
        self,
        receiver: Receiver,
        bound_s: float,
        *,
        on_start_failed: Callable[[BaseException], None],
        on_stop_failed: Callable[[BaseException], None],
        report: Callable[[str], None],
    ) -> None:
        self._receiver = receiver
        self._bound_s = bound_s
        self._on_start_failed = on_start_failed
        self._on_stop_failed = on_stop_failed
        self._report = report
        self._starting: UserCall | None = None

    def start(self) -> None:
        """Call `onStart`; does not wait for it."""
        self._starting = self._call("onStart", self._receiver.onStart, self._on_start_failed)

    def stop(self) -> bool:
        """Call `onStop`, then wait for an `onStart` that still runs.

        Returns:
            Whether `onStart` has returned; if not, it cannot be called again.
        """
        stopping = self._call("onStop", self._receiver.onStop, self._on_stop_failed)
        self._wait_for(stopping, "onStop")
        return self._starting is None or self._wait_for(self._starting, "onStart")

    def _call(
        self, name: str, method: Callable[[], None], on_error: Callable[[BaseException], None]
    ) -> UserCall:
        call = UserCall(f"receiver-{self._receiver.streamId}-{name}", method, on_error)
        call.start()
        return call

    def _wait_for(self, call: UserCall, name: str) -> bool:
        if call.join(self._bound_s):
            return True
        self._report(
            f"{name} of receiver {self._receiver.streamId} did not return within "
            f"{self._bound_s:g} s after it was to stop and was left behind; it stands at "
            f"{call.blocked_at()}"
        )
        return False
