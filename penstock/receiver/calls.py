"""`UserCall`: a call into the author's code, in a thread of its own, joined with a bound."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable

__all__ = ["UserCall", "blocked_at"]

_NOT_THEIRS = (
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
    os.path.dirname(threading.__file__) + os.sep,
)
"""Where the files of this package and of Python's library lie."""


def blocked_at(thread: threading.Thread, frames: int = 1) -> str:
    """Return where `thread` stands now, as ``file:line in function``; for messages to people.

    Args:
        thread: The thread.
        frames: How many of its calls to name, the innermost first.
    """
    frame = sys._current_frames().get(thread.ident) if thread.ident is not None else None
    if frame is None:
        return "(ended)"
    places = traceback.extract_stack(frame)[-frames:]
    return ", called from ".join(map(_shown, reversed(places)))


def _shown(place: traceback.FrameSummary) -> str:
    return f"{place.filename}:{place.lineno} in {place.name}"


class UserCall:
    """Runs one function of a receiver's author in a daemon thread.

    The supervisor owns it and joins it with a bound. What the function raises goes to
    `on_error`, in that thread, and is kept in `error`.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], object],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.name = name
        self.error: BaseException | None = None
        self._function = function
        self._on_error = on_error
        self._thread = threading.Thread(target=self._run, name=f"penstock-{name}", daemon=True)

    def start(self) -> None:
        """Begin the call."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` seconds for the call to end; return whether it has ended.

        A call does not wait for itself: from its own thread the answer is False at once.
        """
        if self._thread is threading.current_thread():
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def blocked_at(self) -> str:
        """Return where the call stands now, and in which line of the author's, for messages."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        if frame is None:
            return "(ended)"
        places = traceback.extract_stack(frame)
        theirs = [place for place in places if not place.filename.startswith(_NOT_THEIRS)]
        shown = [_shown(place) for place in (places[-1], *theirs[-1:])]
        return ", called from ".join(dict.fromkeys(shown))

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - the author's code may raise anything
            self.error = error
            self._on_error(error)
