"""Records the system calls of the local file system, which are carried out all the same.

The functions of `os` are what hands a call to the kernel. Here each of them notes the file, by
the name that it has at that moment, and then does what it always does; or it fails, or takes only
a part of a write, as a test asks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

__all__ = ["Call", "SystemCalls"]


@dataclass(frozen=True)
class Call:
    """One call that succeeded.

    Attributes:
        name: Of the call.
        path: The file or folder that it was about; of a rename the new name.
        forced: Of a write: the kernel was asked to force it.
        direct: Of a write: it passed the page cache.
        fd: The descriptor, -1 when there was none.
    """

    name: str
    path: str
    forced: bool = False
    direct: bool = False
    fd: int = -1


class SystemCalls:
    """What was called, in order.

    Attributes:
        calls: The calls that succeeded.
        refuse: Asked before each call with its name and flags; returns an errno, or 0.
        take: How many bytes a write of so many takes.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[Call] = []
        self.refuse: Callable[[str, int], int] = lambda name, flags: 0
        self.take: Callable[[int], int] = lambda size: size
        for name in ("fsync", "fdatasync", "ftruncate"):
            monkeypatch.setattr(os, name, self._of_descriptor(name, getattr(os, name)))
        for name in ("rename", "unlink", "mkdir"):
            monkeypatch.setattr(os, name, self._of_path(name, getattr(os, name)))
        self._pwritev = os.pwritev
        monkeypatch.setattr(os, "pwritev", self._write)

    def _of_descriptor(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: int, *arguments: Any) -> Any:
            self._check(name, 0)
            result = real(fd, *arguments)
            self.calls.append(Call(name, _path(fd), fd=fd))
            return result

        return call

    def _of_path(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: str, *arguments: Any, **options: Any) -> Any:
            self._check(name, 0)
            result = real(path, *arguments, **options)
            self.calls.append(Call(name, arguments[0] if name == "rename" else path))
            return result

        return call

    def _write(self, fd: int, buffers: Sequence[Any], offset: int, flags: int = 0) -> int:
        self._check("pwritev", flags)
        data = b"".join(bytes(buffer) for buffer in buffers)
        taken = self.take(len(data))
        if taken == 0:
            return 0
        if taken < len(data):
            written = self._pwritev(fd, _first(buffers, taken), offset, flags)
        else:
            written = self._pwritev(fd, buffers, offset, flags)
        forced = bool(flags & os.RWF_DSYNC)
        self.calls.append(Call("pwritev", _path(fd), forced, _is_direct(fd), fd))
        return written

    def _check(self, name: str, flags: int) -> None:
        number = self.refuse(name, flags)
        if number:
            raise OSError(number, os.strerror(number))

    def unforced_writes(self, path: str) -> list[int]:
        """Return which calls wrote to a file that nothing after them forced."""
        found: list[int] = []
        for at, call in enumerate(self.calls):
            if call.path not in (path, path + ".new"):
                continue
            if call.name == "pwritev" and not call.forced:
                found.append(at)
            elif call.name in ("fsync", "fdatasync"):
                found = []
        return found

    def names(self, *names: str) -> list[tuple[str, str]]:
        """Return name and last part of the path of these calls, in order."""
        return [(c.name, os.path.basename(c.path)) for c in self.calls if c.name in names]


def _path(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def _is_direct(fd: int) -> bool:
    with open(f"/proc/self/fdinfo/{fd}") as info:
        flags = next(line for line in info if line.startswith("flags:"))
    return bool(int(flags.split()[1], 8) & os.O_DIRECT)


def _first(buffers: Sequence[Any], size: int) -> list[memoryview]:
    views = []
    for buffer in buffers:
        view = memoryview(buffer).cast("B")[:size]
        size -= len(view)
        if len(view):
            views.append(view)
    return views
