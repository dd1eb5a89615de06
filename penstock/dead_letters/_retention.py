"""`Retention`: what of a stream's dead letters goes, when there are too many or too old ones."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.wal import (
    FileSystem,
    LocalFileSystem,
    LogFolderInUseError,
    LogReader,
    LogWriter,
    SegmentInfo,
    WalError,
    remove_log,
)

__all__ = ["DeadLettersRemovedError", "Retention", "log_names"]

_TOLD_EVERY_MS = 60_000
"""What goes in between is told in sum."""

_NAME = re.compile(r"([0-9]{1,10})-([0-9a-f]{32})")


def log_names(fs: FileSystem, root: str) -> list[tuple[int, str]]:
    """Return stream and name of each log of dead letters in a folder."""
    if not fs.is_folder(root):
        return []
    found = [(match[1], name) for name in fs.list_folder(root) if (match := _NAME.fullmatch(name))]
    return sorted((int(stream), name) for stream, name in found)


class DeadLettersRemovedError(PenstockError):
    """Dead letters were removed, since there are too many of them or they are too old.

    Attributes:
        stream_id: The stream.
        removed_bytes: How much was removed.
        reason: Why.
    """

    def __init__(self, stream_id: int, removed_bytes: int, reason: str) -> None:
        super().__init__(
            f"the oldest dead letters of stream {stream_id}, {removed_bytes} bytes of log, were "
            f"removed: {reason}"
        )
        self.stream_id = stream_id
        self.removed_bytes = removed_bytes
        self.reason = reason


class Retention:
    """Bounds the logs of one stream in a folder; whoever writes one of them applies it.

    Looked at when a log is opened and when it begins a segment. Of the log that is written,
    closed segments go; of those of attempts that are over, whole logs.

    Args:
        fs: Where the folder is.
        root: The folder of all logs.
        stream: The stream.
        max_bytes: Of all its logs.
        max_age_s: How long after its beginning a segment goes.
        now_ms: Wall time.
        tell: Told what was removed.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        stream: int,
        *,
        max_bytes: int,
        max_age_s: float,
        now_ms: Callable[[], int],
        tell: Callable[[str, BaseException], None],
    ) -> None:
        self._fs = fs
        self._root = root
        self._stream = stream
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._now_ms = now_ms
        self._tell = tell
        self._seen: int | None = None
        self._untold: dict[str, int] = {}
        self._told_ms = 0

    def apply(self, log: LogWriter) -> None:
        """Remove what is too much or too old, if a segment was begun since the last time.

        What cannot be removed is told, and tried again with the next segment.
        """
        begun = log.statistics().segments_created
        if begun == self._seen:
            return
        self._seen = begun
        try:
            self._apply(log)
        except (WalError, OSError) as error:
            self._tell("Old dead letters could not be removed", error)

    def _apply(self, log: LogWriter) -> None:
        own = list(LogReader.open(log.folder, fs=self._fs).segments)[:-1]
        others: list[tuple[str, list[SegmentInfo]]] = []
        for stream, name in log_names(self._fs, self._root):
            path = os.path.join(self._root, name)
            if stream == self._stream and path != log.folder:
                found = list(LogReader.open(path, fs=self._fs).segments)
                if found:
                    others.append((path, found))
        others.sort(key=lambda other: other[1][-1].created_ms)
        size = sum(info.size for _, found in others for info in found)
        size += sum(info.size for info in own) + log.options.segment_size
        oldest_ms = self._now_ms() - int(self._max_age_s * 1000)
        removed = self._untold
        for path, found in others:
            reason = self._reason(size, found[-1].created_ms, oldest_ms)
            if reason is not None and self._remove(path, found[-1].closed):
                gone = sum(info.size for info in found)
                removed[reason] = removed.get(reason, 0) + gone
                size -= gone
        numbers = []
        for info in own:
            reason = self._reason(size, info.created_ms, oldest_ms)
            if reason is None:
                break
            numbers.append(info.number)
            removed[reason] = removed.get(reason, 0) + info.size
            size -= info.size
        log.remove_segments(numbers)
        if self._now_ms() >= self._told_ms + _TOLD_EVERY_MS and removed:
            self._untold, self._told_ms = {}, self._now_ms()
            for reason, gone in removed.items():
                error = DeadLettersRemovedError(self._stream, gone, reason)
                self._tell(str(error), error)

    def _reason(self, size: int, created_ms: int, oldest_ms: int) -> str | None:
        if size > self._max_bytes:
            return f"spark.penstock.deadLetters.maxSize is {self._max_bytes} bytes"
        if created_ms < oldest_ms:
            return "they are older than spark.penstock.deadLetters.maxAge"
        return None

    def _remove(self, path: str, is_closed: bool) -> bool:
        # On HDFS to take a lock takes it from whoever has it: only a log that was ended is free.
        if not is_closed and not isinstance(self._fs, LocalFileSystem):
            return False
        try:
            remove_log(path, fs=self._fs)
        except LogFolderInUseError:
            return False
        return True
