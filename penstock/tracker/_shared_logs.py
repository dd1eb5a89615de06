"""`SharedLogs`: deletes what ended receiver attempts left on HDFS.

On its own disk a host's block server does that. What lies on HDFS is no host's, and a host that is
gone for good is just when it matters: so the driver does it. A thread of its own, because a
NameNode may take its time; what cannot be deleted is one line of the log and stays.
"""

from __future__ import annotations

import logging
import queue
import threading

from penstock.receiver import log_folder
from penstock.tracker._ledger_state import AttemptRelease
from penstock.wal import HdfsFileSystem, WalError, is_on_hdfs, locate, segment_path

__all__ = ["SharedLogs"]

_log = logging.getLogger("penstock.tracker")


class SharedLogs:
    """The block logs of all hosts on HDFS; does nothing where each host has its own.

    Its thread ``penstock-shared-logs`` is started by the first deletion and ended by `close`.
    `_lock` guards the thread.

    Args:
        root: Folder below which receivers make their logs.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        # Addresses of segments and folders; None ends the thread.
        self._wanted: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def remove(self, release: AttemptRelease) -> None:
        """Have what may go of an ended attempt deleted; returns at once."""
        places = [place for place in release.segments if is_on_hdfs(place[0])]
        if release.whole:
            self.remove_attempt(release.stream_id, release.attempt)
            for folder in {folder for folder, _ in places}:
                self._remove(folder)
        else:
            for folder, number in places:
                self._remove(segment_path(folder, number))

    def remove_attempt(self, stream_id: int, attempt: str) -> None:
        """Have the log folder of an attempt deleted; returns at once."""
        if is_on_hdfs(self._root):
            self._remove(log_folder(self._root, stream_id, attempt))

    def _remove(self, address: str) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="penstock-shared-logs", daemon=True
                )
                self._thread.start()
        self._wanted.put(address)

    def close(self, timeout_s: float) -> None:
        """Delete what is wanted, as far as that is done in time, and end the thread."""
        with self._lock:
            thread = self._thread
        if thread is None:
            return
        self._wanted.put(None)
        thread.join(timeout_s)
        if thread.is_alive():
            _log.warning("HDFS is slow: what ended receivers left in %s may stay", self._root)

    def _run(self) -> None:
        while (address := self._wanted.get()) is not None:
            try:
                fs, path = locate(address)
                assert isinstance(fs, HdfsFileSystem)
                fs.remove_tree(path)
            except (OSError, WalError) as error:
                _log.warning("%s stays: %s", address, error)
