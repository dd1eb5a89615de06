"""What to do with an exception that ends a thread which the receiver's author started."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

__all__ = ["UncaughtErrors", "is_ours"]


def is_ours(thread_name: str) -> bool:
    """Tell whether a thread is one of Penstock's own."""
    return thread_name.startswith("penstock-")


class UncaughtErrors:
    """While entered, hands what threads of this process die of to `on_uncaught`.

    A thread of the receiver's author has no owner of ours who would join it, so without this its
    death would be a line on stderr of an executor while the receiver looks alive. `SystemExit`
    ends a thread of the author's on purpose and is not an error, as in `threading`; no thread of
    ours ends that way on purpose.
    """

    def __init__(
        self, on_uncaught: Callable[[threading.Thread | None, BaseException], None]
    ) -> None:
        self._on_uncaught = on_uncaught
        self._previous = threading.excepthook

    def __enter__(self) -> UncaughtErrors:
        self._previous = threading.excepthook
        threading.excepthook = self._hook
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        threading.excepthook = self._previous

    def _hook(self, arguments: threading.ExceptHookArgs) -> None:
        name = arguments.thread.name if arguments.thread is not None else "(unknown)"
        is_exit = issubclass(arguments.exc_type, SystemExit) and not is_ours(name)
        if arguments.exc_value is None or is_exit:
            self._previous(arguments)
            return
        self._on_uncaught(arguments.thread, arguments.exc_value)
