"""Who writes a log: a file in its folder says so, and each new segment asks it.

HDFS has no lock that ends with its process. So ``LOCK`` is a small closed file with the name of its
owner, put there by an atomic rename, and the newest owner wins:

* An owner of the same host, whose process lives and has not let go, keeps the folder; the newcomer
  is refused. That it has not is seen by a memory file that it holds open (`Mark`): ``LOCK`` itself
  stays where it was let go while the NameNode was away.
* An owner whose process is gone, or that is on another host, is replaced. That is what a cluster
  manager needs that starts a driver again elsewhere.
* Whoever was replaced cannot write on. Before the newcomer reads the log it has the leases of all
  its segments recovered, which breaks the open segment of a writer that is not dead after all; and
  of a new segment it is checked that the lock is still its writer's before it is begun, and again
  when it has its name, before the first append. So the newcomer, who looks at the names after it
  has the lock, sees every segment that an append can go to, whatever its number.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

import msgspec

from penstock.wal._owner import Mark, Owner

if TYPE_CHECKING:
    from penstock.wal._hdfs import HdfsFileSystem

_logger = logging.getLogger("penstock.wal")


class HdfsFolderLock:
    """The ownership of a folder; made by `HdfsFileSystem.lock`.

    Raises:
        BlockingIOError: A living process of this host has it.
        OSError: HDFS cannot be reached.
    """

    def __init__(self, fs: HdfsFileSystem, path: str, owner: str) -> None:
        self._fs = fs
        self._path = path
        self._owner = Owner.this_process(owner)
        before = self._read()
        if before is not None and before.is_alive_here:
            raise BlockingIOError(errno.EWOULDBLOCK, before.name, path)
        if before is not None:
            _logger.warning("taking the log folder of %s over from %s", path, before.name)
        self._mark = Mark(self._owner.token)
        try:
            self._put()
        except BaseException:
            self._mark.release()
            raise

    def _put(self) -> None:
        present = f"{self._path}.{self._owner.token}"
        file = self._fs.create(present, direct=False)
        try:
            file.write(0, [msgspec.json.encode(self._owner)], sync=True)
        finally:
            file.close()
        self._fs.rename(present, self._path, replace=True)

    def _read(self) -> Owner | None:
        try:
            file = self._fs.open(self._path)
        except FileNotFoundError:
            return None
        return Owner.read(file.read(0, file.size))

    def check(self) -> None:
        """Make sure that nobody has taken the folder over.

        Raises:
            OSError: Somebody has; or HDFS cannot be reached.
        """
        now = self._read()
        if now is None or now.token != self._owner.token:
            taker = "somebody who removed it" if now is None else now.name
            raise OSError(errno.ESTALE, f"the log was taken over by {taker}", self._path)

    def release(self) -> None:
        """Let others take it; one that was taken over, or cannot be reached, is left."""
        try:
            # A stop does not wait for a NameNode; who comes next replaces a dead owner.
            if self._fs.answers():
                self.check()
                self._fs.remove(self._path)
        except OSError as error:
            _logger.debug("%s is left: %s", self._path, error)
        finally:
            self._mark.release()
