"""`ReusedMemory`: buffers that are used again, once no one looks into them any more.

To touch new memory costs more than to read into it what is in the page cache. So a reader of many
blocks, one after the other, reads them into the same memory.
"""

from __future__ import annotations

import mmap
import os
import threading

_KEPT = 2
"""How many buffers are kept. A reader of one block after the other still looks into one of them
when the next is read."""


class ReusedMemory:
    """Page-aligned buffers that are used again. Any thread may come: a lock guards them.

    A process that is forked begins with none, and what it still looks into is its own.
    """

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        # Also the lock: the thread that had it may not be in a child.
        self._lock = threading.Lock()
        self._kept: list[mmap.mmap] = []

    def take(self, size: int) -> memoryview:
        """Return `size` bytes that no one else looks into, with whatever is in them.

        They are the caller's for as long as there is any view of them: Python counts memoryviews,
        and what NumPy and Arrow make of them, alike.
        """
        with self._lock:
            for buffer in self._kept:
                if len(buffer) >= size and not _is_seen(buffer):
                    return memoryview(buffer)[:size]
            # Shared memory, the default, a child would share.
            made = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            # A reader that looks into one that is not kept any more has it for itself.
            self._kept = [*self._kept[1 - _KEPT :], made]
            return memoryview(made)


def _is_seen(buffer: mmap.mmap) -> bool:
    try:
        buffer.resize(len(buffer))  # Refused while there is a view.
    except BufferError:
        return True
    return False
