"""Memory like that of blocks, for programs that write to a log without a receiver."""

from __future__ import annotations

import mmap
import os

__all__ = ["touched"]


def touched(size: int) -> memoryview:
    """Return page-aligned memory of whole MiB with random bytes in it."""
    memory = mmap.mmap(-1, size)
    memory.write(os.urandom(1 << 20) * (size >> 20))
    return memoryview(memory)
