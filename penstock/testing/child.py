"""A process that runs one attempt of a receiver, and kills itself at a step of a record's way.

`penstock.testing.crashes` gives it on its standard input, pickled, a `ReceiverLaunch`, the name of
a step, and which time of coming there ends it.
"""

from __future__ import annotations

import functools
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.receiver import Receiver, run_receiver
from penstock.receiver.attempts.tracker_client import TrackerClient
from penstock.receiver.blocks.pipeline import BlockPipeline
from penstock.wal import LogWriter

_LEFT_S = 0.2


class _Fate:
    """Counts how often a step is reached, and ends the process at the last time."""

    def __init__(self, point: str, left: int) -> None:
        self._point = point
        self._left = left
        self._lock = threading.Lock()

    def reach(self, point: str) -> None:
        if point != self._point:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str, before: str, after: str) -> None:
        """Have a function of a class or an object reach a step before it is called, and after."""
        function: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(function)
        def reaching(*args: Any, **named: Any) -> Any:
            self.reach(before)
            result = function(*args, **named)
            self.reach(after)
            return result

        setattr(owner, name, reaching)


def main() -> None:
    """Run the attempt."""
    launch, point, times = pickle.load(sys.stdin.buffer)
    fate = _Fate(point, times)
    bind = Receiver._bind_store

    def bind_and_watch(receiver: Receiver, store: Any, store_from: Any) -> None:
        bind(receiver, store, store_from)
        fate.around(receiver, "store", "before store", "stored")
        read_all = receiver.storeFrom

        def read_and_watch(readinto: Callable[[memoryview], int], framing: Any) -> None:
            def watched(buffer: memoryview) -> int:
                fate.reach("stored")
                count = readinto(buffer)
                fate.reach("before store")
                return count

            read_all(watched, framing)

        receiver.__dict__["storeFrom"] = read_and_watch

    Receiver._bind_store = bind_and_watch  # type: ignore[method-assign,assignment]
    fate.around(BlockPipeline, "put", "sealed", "")
    append, write = LogWriter.append_slot, os.pwritev
    appending: set[int] = set()

    def append_and_watch(log: LogWriter, *args: Any, **named: Any) -> Any:
        appending.add(id(log))
        try:
            place = append(log, *args, **named)
        finally:
            appending.discard(id(log))
        fate.reach("synced")
        return place

    def write_and_watch(*args: Any) -> int:
        count = write(*args)
        # Not for what is written when a log is opened.
        if appending:
            fate.reach("appended")
        return count

    LogWriter.append_slot = append_and_watch  # type: ignore[method-assign,assignment]
    os.pwritev = write_and_watch
    fate.around(TrackerClient, "add_blocks", "before report", "reported")
    fate.around(BlockPipeline, "_acknowledge", "before acknowledgement", "acknowledged")
    run_receiver(launch, ensure_block_server=lambda launch: None)
    # Spark uses a Python process again, so that threads which a receiver left go on in it.
    time.sleep(_LEFT_S)
