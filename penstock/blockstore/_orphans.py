"""Orphans: memory files that killed applications left; who keeps them, and when they go.

A memory file is a cache, and holds memory of the host until somebody removes it. That is its
application's block server; but the application may be killed as a whole before it has one. So the
file's lock (``flock``, shared) says that somebody still needs it: its receiver has it from the
beginning, and the block server takes it, too, so that the file stays when the receiver dies. The
block server of any other application of the same user removes a file that nobody has had locked for
a while. It waits because an application may be just starting, or starting its block server again.

Lock files and empty logs of killed block servers are removed by `penstock.blockstore.launch`.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import stat
from collections.abc import Iterator

from penstock.clock import Clock

_logger = logging.getLogger("penstock.blockstore")

_MEMORY_FILE = re.compile(r"penstock-.+-[0-9a-f]{32}")


class OrphanCollector:
    """Locks an application's memory files, and removes orphans: files that nobody has locked.

    For one thread.

    Args:
        application_id: Whose files are kept.
        memory_folder: The folder of the memory files, of all applications.
        patience_s: How long a file of another application must have been unlocked.
        clock: Monotonic time.
    """

    def __init__(
        self, application_id: str, memory_folder: str, patience_s: float, clock: Clock
    ) -> None:
        self._prefix = f"penstock-{application_id}-"
        self._folder = memory_folder
        self._patience_s = patience_s
        self._clock = clock
        self._kept: dict[str, int] = {}
        self._unlocked: dict[tuple[str, int], float] = {}

    def look(self) -> None:
        """Lock new files of the application; remove what was left by others. Call often."""
        self.let_go_of_removed()
        seen = set()
        for name in self._names():
            with contextlib.suppress(OSError), self._opened(name) as fd:
                if name.startswith(self._prefix):
                    self._keep(name, fd)
                else:
                    seen.add(self._look_at(name, fd))
        self._unlocked = {key: at_s for key, at_s in self._unlocked.items() if key in seen}

    def let_go_of_removed(self) -> None:
        """Close what was removed: until then it holds its memory."""
        for name, fd in list(self._kept.items()):
            if os.fstat(fd).st_nlink == 0:
                os.close(self._kept.pop(name))

    def close(self) -> None:
        """Keep no file any more."""
        while self._kept:
            os.close(self._kept.popitem()[1])

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._folder) if _MEMORY_FILE.fullmatch(name)]
        except OSError:
            return []

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        # Neither through a link nor held up by a named pipe, and with the rights to lock only.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(os.path.join(self._folder, name), flags)
        try:
            yield fd
        finally:
            os.close(fd)

    def _keep(self, name: str, fd: int) -> None:
        if name not in self._kept:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            # The lock belongs to what was opened, so also to its copy.
            self._kept[name] = os.dup(fd)

    def _look_at(self, name: str, fd: int) -> tuple[str, int] | None:
        """Remove the file if it was unlocked for long enough; else return what it is known by."""
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        key = (name, found.st_ino)
        now_s = self._clock.monotonic_s()
        if now_s - self._unlocked.setdefault(key, now_s) < self._patience_s:
            return key
        path = os.path.join(self._folder, name)
        if os.path.samestat(os.lstat(path), found):
            os.unlink(path)
            _logger.info("%s was left by an application that was killed; it is removed", path)
        return None
