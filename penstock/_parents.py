"""`die_with`: a process that does not outlive its parent."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that this process gets when its parent has died."""


def die_with(parent: int) -> None:
    """Have the system kill this process when its parent has died, where it can.

    Args:
        parent: The process whose thread of now has forked this one.
    """
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
