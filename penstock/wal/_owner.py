"""The owner of a log where no lock ends with its process: what a file in it says of its writer."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets

import msgspec

from penstock.runtime.processes import ProcessIdentity


class TakenOverError(OSError):
    """Another owner has a folder now, or removed it: it is no longer this owner's, for good."""

    def __init__(self, taker: str, address: str) -> None:
        super().__init__(errno.ESTALE, f"the log was taken over by {taker}", address)
        self._taker = taker

    def __reduce__(self) -> tuple[type[TakenOverError], tuple[str, str]]:
        return TakenOverError, (self._taker, self.filename)


class Mark:
    """A memory file that the owner of a lock holds open: others of its host see it in ``/proc``.

    The system closes it with the process, and a child that was forked has it under another process
    number.
    """

    _PREFIX = "penstock-lock-"

    def __init__(self, token: str) -> None:
        self._fd = os.memfd_create(self._PREFIX + token, os.MFD_CLOEXEC)

    def release(self) -> None:
        """Close it. May be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    @classmethod
    def is_held(cls, pid: int, token: str) -> bool:
        """Return whether a process holds it; True where that cannot be seen."""
        folder = f"/proc/{pid}/fd"
        try:
            numbers = os.listdir(folder)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # It is another user's.
        for number in numbers:
            with contextlib.suppress(OSError):  # It was just closed.
                if cls._PREFIX + token in os.readlink(f"{folder}/{number}"):
                    return True
        return False


class Owner(msgspec.Struct, frozen=True):
    """What the file holds. Host and process are recognised, the name is for people."""

    name: str
    token: str
    host: str
    pid: int
    started: str
    is_marked: bool = False
    """Whether it has a `Mark`; older releases' have none."""

    @classmethod
    def this_process(cls, name: str) -> Owner:
        """Return this process as an owner, with a token of its own."""
        this = ProcessIdentity.this_process()
        return cls(name, secrets.token_hex(16), this.host, this.pid, this.started, is_marked=True)

    @classmethod
    def read(cls, data: bytes) -> Owner:
        """Return the owner that the bytes of the file name."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.DecodeError:
            return cls("an owner that has not said its name", "", "", 0, "")

    @property
    def is_alive_here(self) -> bool:
        """Whether it is a living process that this one can see, and still has the folder."""
        if not ProcessIdentity(self.host, self.pid, self.started).is_alive_here:
            return False
        return not self.is_marked or Mark.is_held(self.pid, self.token)
