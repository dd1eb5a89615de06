"""`collect_later`: Python looks for garbage after a short piece of work, not amid it.

With the modules of a driver and a thousand receivers a full collection takes 60 to 90 ms, in
whatever thread it begins, and what makes many objects at once is where it begins. It is put off by
milliseconds; nothing is kept that reference counting frees.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator


class _Holders:
    """Who puts it off now. `lock` guards the rest; a forked process begins anew."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.was_enabled = False

    def enter(self) -> None:
        with self.lock:
            if not self.count:
                self.was_enabled = gc.isenabled()
                gc.disable()
            self.count += 1

    def leave(self) -> None:
        with self.lock:
            self.count -= 1
            if not self.count and self.was_enabled:
                gc.enable()

    def forked(self) -> None:
        if self.count and self.was_enabled:
            gc.enable()
        self.lock, self.count = threading.Lock(), 0  # A thread that is not here may have had it.


_holders = _Holders()
os.register_at_fork(after_in_child=_holders.forked)


@contextlib.contextmanager
def collect_later() -> Iterator[None]:
    """Begin no collection of garbage in this process while this is entered.

    Where the program has switched it off, it stays off.
    """
    _holders.enter()
    try:
        yield
    finally:
        _holders.leave()
