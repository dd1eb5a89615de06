"""`Retention`: what of a stream's dead letters goes, when there are too many or too old ones."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable
from typing import NamedTuple

from penstock.dead_letters._logs import is_free_log, log_names, open_log, segment_numbers
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

_TOLD_EVERY_MS = 60_000
"""Shortest time between two lines about removed letters; those between are summed up."""
_LOOKS = 8
"""Of all short logs, about this many look at all of them. So what that costs one of them does not
grow with their number, and by as little as an eighth there may be too many. One in this many of the
others looks at this many, and at all if half of them are too old: fewer come than came once."""


class _Other(NamedTuple):
    """The log of another attempt, as it is now.

    Attributes:
        path: Its folder.
        created_ms: When its last segment was begun.
        size: Its bytes.
        is_ended: It was closed by its writer.
        is_over: As far as can be seen no one writes it.
    """

    path: str
    created_ms: int
    size: int
    is_ended: bool
    is_over: bool


class Retention:
    """Bounds the logs of one stream in a folder; anyone who writes one of them applies it.

    Looked at when a log is opened and when it begins a segment. Of the log that is written,
    closed segments go; of attempts that are over, whole logs. No name of a log is used twice, so
    one that was over when it was looked at is not opened again, nor a closed segment.

    Args:
        fs: Where the folder is.
        root: The folder of all logs.
        stream: The stream.
        max_bytes: Of all its logs.
        max_age_s: How long after its beginning a segment goes.
        now_ms: Wall time.
        tell: Notified of what was removed.
        is_one_of_many: The log is one of many that are short, such as one for each worker.
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
        is_one_of_many: bool = False,
    ) -> None:
        self._is_one_of_many = is_one_of_many
        self._known: dict[str, _Other] = {}
        self._closed: dict[int, SegmentInfo] = {}
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
        self._failed: BaseException | None = None

    def apply(self, log: LogWriter) -> None:
        """Remove what is too much or too old, if a segment was begun since the last time.

        What cannot be looked at or removed is reported, keeps nothing else, and is tried again with
        the next segment.
        """
        begun = log.statistics().segments_created
        if begun == self._seen:
            return
        self._seen = begun
        try:
            if self._is_one_of_many and not self._is_due(log, begun):
                return
            self._apply(log)
        except (WalError, OSError) as error:
            self._failed = error
        if self._now_ms() >= self._told_ms + _TOLD_EVERY_MS:
            self.tell_rest()

    def tell_rest(self) -> None:
        """Report what was removed, and what could not be, and was not reported yet."""
        untold, self._untold = self._untold, {}
        failed, self._failed = self._failed, None
        if untold or failed is not None:
            self._told_ms = self._now_ms()
        for reason, gone in untold.items():
            error = PenstockError(
                f"the oldest dead letters of stream {self._stream}, {gone} bytes of log, were "
                f"removed: {reason}"
            )
            self._tell(str(error), error)
        if failed is not None:
            self._tell("Old dead letters could not be removed", failed)

    def _is_due(self, log: LogWriter, begun: int) -> bool:
        """Draw whether to look, by a name that no other log has."""
        names = [name for stream, name in log_names(self._fs, self._root) if stream == self._stream]
        drawn = zlib.crc32(f"{os.path.basename(log.folder)} {begun}".encode())
        if drawn * len(names) < _LOOKS << 32:
            return True
        if drawn % _LOOKS:
            return False
        at = drawn % len(names)
        return 2 * sum(map(self._is_old, (names + names)[at : at + _LOOKS])) >= _LOOKS

    def _is_old(self, name: str) -> bool:
        now_ms = self._now_ms()
        try:
            found = self._look_at(os.path.join(self._root, name), None, now_ms)
        except (WalError, OSError):
            return False  # The look at all of them reports it.
        return found is not None and found.created_ms < self._oldest_ms(now_ms)

    def _oldest_ms(self, now_ms: int) -> int:
        return now_ms - int(self._max_age_s * 1000)

    def _apply(self, log: LogWriter) -> None:
        now_ms = self._now_ms()
        others = self._others(log.folder, now_ms)
        own = self._own(log)
        size = sum(other.size for other in others)
        size += sum(info.size for info in own) + log.options.segment_size
        oldest_ms = self._oldest_ms(now_ms)
        for other in others:
            reason = self._reason(size, other.created_ms, oldest_ms)
            if reason is not None and self._remove(other):
                self._note_removed(reason, other.size)
                size -= other.size
        gone: list[tuple[str, SegmentInfo]] = []
        for info in own:
            reason = self._reason(size, info.created_ms, oldest_ms)
            if reason is None:
                break
            gone.append((reason, info))
            size -= info.size
        log.remove_segments([info.number for _, info in gone])
        for reason, info in gone:
            self._note_removed(reason, info.size)

    def _own(self, log: LogWriter) -> list[SegmentInfo]:
        """Return the segments of the log that is written, without the open one."""
        known, self._closed = self._closed, {}
        for number in segment_numbers(self._fs, log.folder)[:-1]:
            info = known.get(number) or self._segment(log.folder, number)
            if info is None:
                break
            self._closed[number] = info
        return list(self._closed.values())

    def _segment(self, folder: str, number: int) -> SegmentInfo | None:
        """Look at one segment; None: it is gone, or its writer could not close it (on HDFS)."""
        try:
            opened = LogReader.open(folder, fs=self._fs, only=number, before=number + 1)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return None
        return next(iter(opened.segments), None)

    def _others(self, own: str, now_ms: int) -> list[_Other]:
        """Return the other logs of the stream, the oldest first."""
        before, self._known = self._known, {}
        for stream, name in log_names(self._fs, self._root):
            path = os.path.join(self._root, name)
            if stream != self._stream or path == own:
                continue
            known = before.get(path)
            try:
                found = self._look_at(path, known, now_ms)
            except (WalError, OSError) as error:
                self._failed = error
                continue
            if found is not None:
                self._known[path] = found
        return sorted(self._known.values(), key=lambda other: other.created_ms)

    def _look_at(self, path: str, known: _Other | None, now_ms: int) -> _Other | None:
        if known is not None and known.is_over:
            return known
        # First, and only of a log that was begun before: one that is just made has no lock yet.
        is_free = known is not None and is_free_log(self._fs, path)
        found = open_log(self._fs, path)
        if found is None or not found.reader.segments:
            return None
        segments = found.reader.segments
        # Of a damaged segment it is not known.
        times_ms = [info.created_ms for info in segments if info.damage is None]
        is_ended = found.is_whole and segments[-1].closed
        return _Other(
            path,
            max(times_ms, default=now_ms),
            sum(info.size for info in segments),
            is_ended,
            is_free,
        )

    def _note_removed(self, reason: str, size: int) -> None:
        self._untold[reason] = self._untold.get(reason, 0) + size

    def _reason(self, size: int, created_ms: int, oldest_ms: int) -> str | None:
        if size > self._max_bytes:
            return f"spark.penstock.deadLetters.maxSize is {self._max_bytes} bytes"
        if created_ms < oldest_ms:
            return "they are older than spark.penstock.deadLetters.maxAge"
        return None

    def _remove(self, other: _Other) -> bool:
        # On HDFS to take a lock takes it from its holder: only a log that was ended is free.
        if not other.is_ended and not isinstance(self._fs, LocalFileSystem):
            return False
        try:
            remove_log(other.path, fs=self._fs)
        except LogFolderInUseError:
            return False
        except (WalError, OSError) as error:
            self._failed = error
            return False
        return True
