"""Which process it is, so that another one on the same host can tell whether it lives.

`die_with` is for a process that is not to outlive its parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
from dataclasses import dataclass

_PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that this process gets when its parent has died."""


@dataclass(frozen=True)
class ProcessIdentity:
    """One process, not to be taken for a later one that gets the same number.

    Attributes:
        host: The boot of the host, and the process numbers that it can see.
        pid: Its number.
        started: When it was started, in ticks since the boot.
    """

    host: str
    pid: int
    started: str

    @classmethod
    def this_process(cls) -> ProcessIdentity:
        """Return who this process is."""
        pid = os.getpid()
        return cls(host_id(), pid, started(pid))

    @property
    def is_visible(self) -> bool:
        """Whether this process sees that one as long as it lives: they share host and numbers."""
        return bool(self.host) and self.host == host_id()

    @property
    def is_alive_here(self) -> bool:
        """Whether it is a living process that this one sees."""
        return self.is_visible and started(self.pid) == self.started

    @property
    def is_known_dead(self) -> bool:
        """Whether it was a process of this host and is no more. One elsewhere is never known."""
        return self.is_visible and started(self.pid) != self.started


def host_id() -> str:
    """Name this host as of this boot, and the process numbers that can be seen here.

    Returns:
        Empty where the system does not say: then no process is known.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def started(pid: int) -> str:
    """Return when a process was started, in a form to compare; empty when there is none."""
    try:
        fields = stat_of(f"/proc/{pid}")
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def stat_of(folder: str) -> list[str]:
    """Return the fields of a process or thread, from its state on, which is the third of proc(5).

    Args:
        folder: Its folder in ``/proc``.

    Raises:
        OSError: It has ended.
    """
    with open(f"{folder}/stat", encoding="utf-8", errors="replace") as file:
        # Behind the name, which may hold blanks and brackets.
        return file.read().rpartition(")")[2].split()


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
