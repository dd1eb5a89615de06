"""`ReusedMemory`: buffers that are used again, once nobody looks into them any more.

To touch new memory costs more than to read into it what lies in the page cache. So who reads many
blocks, one after the other, reads them into the same memory.
"""

from __future__ import annotations

import mmap
import threading

__all__ = ["ReusedMemory"]

_KEPT = 2
"""How many buffers are kept. Who reads one block after the other looks into one of them still when
the next is read."""


class ReusedMemory:
    """Page-aligned buffers that are used again. Any thread may come: a lock guards them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[mmap.mmap] = []

    def take(self, size: int) -> memoryview:
        """Return `size` bytes that nobody else looks into, with whatever is in them.

        They are the caller's for as long as there is any view of them: Python counts memoryviews,
        and what NumPy and Arrow make of them, alike.
        """
        with self._lock:
            for buffer in self._kept:
                if len(buffer) >= size and not _is_seen(buffer):
                    return memoryview(buffer)[:size]
            made = mmap.mmap(-1, size)
            # Who looks into one that is not kept any more has it for himself.
            self._kept = [*self._kept[1 - _KEPT :], made]
            return memoryview(made)


def _is_seen(buffer: mmap.mmap) -> bool:
    try:
        buffer.resize(len(buffer))  # Refused while there is a view.
    except BufferError:
        return True
    return False
