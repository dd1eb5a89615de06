"""Files of HDFS that are being written and read."""

from __future__ import annotations

import errno
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.wal._answers import Answer, BoundedCalls, TooLongError, answer_of
from penstock.wal._hdfs.client import HdfsUnavailableError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.wal._hdfs.filesystem import HdfsFileSystem

_logger = logging.getLogger("penstock.wal")

_FIRST_LIMIT_S = 8.0
_LONGEST_LIMIT_S = 60.0
_FEWER_COPIES_S = 60.0
_SLOWEST_BYTES_PER_S = 1 << 20


class WriteLimit:
    """How long the DataNodes may take for a write, besides the time for its bytes.

    It is short, so that a DataNode that dies holds no one up for long. Where it was too short, as
    on disks that are too busy, it grows until writes keep it, and shrinks again when they are
    quick. The files of a process share one.

    Attributes:
        now_s: The limit, in seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now_s = _FIRST_LIMIT_S

    def passed(self, limit_s: float) -> None:
        """Take note of a write that took longer than this limit."""
        with self._lock:
            # Of several that waited for the same DataNode one counts.
            self.now_s = max(self.now_s, min(2 * limit_s, _LONGEST_LIMIT_S))

    def kept(self, took_s: float) -> None:
        """Take note of how long a write took."""
        if self.now_s > _FIRST_LIMIT_S and took_s < self.now_s / 4:
            with self._lock:
                self.now_s = max(self.now_s / 2, _FIRST_LIMIT_S)


class NewFiles:
    """How new files fare: whether the DataNodes that the NameNode gives out for them take them.

    The NameNode gives out a dead DataNode until it misses it, which takes ten minutes by default,
    and the client cannot tell it which one to leave out. Of fewer it may be none. One lock guards
    all.

    Args:
        clock: Returns the time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = 0
        self._last_s = -math.inf

    def failed(self) -> None:
        """Take note of a file that the DataNodes did not take."""
        with self._lock:
            self._failed += 1
            self._last_s = self._clock()

    def began(self) -> None:
        """Take note of a file that was taken with all its copies."""
        with self._lock:
            self._failed = 0

    @property
    def copies_left_out(self) -> int:
        """How many copies fewer the next file should begin with."""
        with self._lock:
            is_recent = self._clock() - self._last_s < _FEWER_COPIES_S
            return self._failed // 2 if is_recent else 0


class HdfsAppendFile:
    """A file of HDFS that is being written, from its beginning to its end.

    When a DataNode dies while the client waits for its answer to an `hsync`, the client may wait
    for ever: the task that sends packets waits for a next one, and the one that should begin the
    recovery waits for that task (hdfs-native 0.14.7, `Pipeline::shutdown`; no setting bounds it).

    `_lock` is held by each call: the client's writer takes one at a time. After a failure the file
    takes no more: how much of the failed write it has is not known.
    """

    def __init__(
        self, fs: HdfsFileSystem, path: str, writer: Any, copies: int | None = None
    ) -> None:
        self._fs = fs
        self._path = path
        self._writer = writer
        self._copies = copies
        self._calls = BoundedCalls("HDFS")
        self._lock = threading.Lock()
        self._size = 0
        self._is_broken = False
        self._closed = False

    @property
    def direct(self) -> bool:
        return False

    @property
    def forces_writes(self) -> bool:
        return True

    @property
    def preallocates(self) -> bool:
        return False

    def preallocate(self, size: int) -> None:
        """Do nothing: HDFS reserves a block when its first byte is written."""

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        with self._lock:
            if offset != self._size or self._is_broken or self._closed:
                raise OSError(errno.ESPIPE, f"HDFS writes at the end, not at {offset}", self._path)
            views = [memoryview(buffer).cast("B") for buffer in buffers]
            size = sum(map(len, views))
            self._is_broken = True
            try:
                # Once: after a failure between two of HDFS's blocks a part of it is written. As
                # `bytes`: of any other buffer the client takes one byte after the other, with the
                # interpreter's lock (hdfs-native 0.14.7: 14 ms a MiB in place of 0.3).
                self._call(partial(self._writer.write, b"".join(views)), size)
                self._force(size)
            except OSError as error:
                # A NameNode that hangs looks the same from here.
                if not self._size and _is_of_data_nodes(error) and self._fs.answers():
                    self._fs.new_files.failed()
                raise
            if not self._size:
                self._ask_for_all_copies()
            self._size += size
            self._is_broken = False

    def _ask_for_all_copies(self) -> None:
        copies = self._copies
        if copies is None:
            self._fs.new_files.began()
            return
        try:
            self._fs.set_copies(self._path, copies)
        except OSError as error:
            # Its bytes are forced; the next file will be another attempt.
            _logger.warning("%s stays with fewer copies than %d: %s", self._path, copies, error)

    def sync(self) -> None:
        """Do nothing but say what broke: `write` returns when its bytes are forced."""
        with self._lock:
            if self._is_broken:
                raise OSError(errno.EIO, "an earlier write failed", self._path)

    def _force(self, size: int) -> None:
        """Force what was written; while the NameNode is away, wait and ask again.

        That does no harm: what the DataNodes already have is not sent again. But when it was a
        DataNode that did not answer, the client would wait for ever: then the write has failed.
        """
        end_s = time.monotonic() + self._fs.patience_s
        may_be_back = True
        while True:
            try:
                self._call(self._writer.hsync, size)
            except HdfsUnavailableError as error:
                if time.monotonic() > end_s:
                    raise
                if not error.by_name_node and self._fs.answers():
                    # The NameNode refused, and is back since, or else refuses again.
                    if not (error.is_refusal and may_be_back):
                        raise
                    may_be_back = False
                else:
                    may_be_back = True
                    self._fs.wait_until_it_answers()
            else:
                return

    def _call(self, function: Callable[[], Any], size: int) -> None:
        limit_s = min(self._fs.write_limit.now_s, self._fs.patience_s)
        timeout_s = limit_s + size / _SLOWEST_BYTES_PER_S
        begin_s = time.monotonic()
        try:
            self._fs.call_by(self._calls, self._path, function, timeout_s)
        except TooLongError:
            self._fs.write_limit.passed(limit_s)
            raise
        self._fs.write_limit.kept(time.monotonic() - begin_s)

    def truncate(self, size: int) -> None:
        if size != self._size:
            raise OSError(errno.EOPNOTSUPP, "a file on HDFS is not cut", self._path)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            writer, self._writer = self._writer, None
            if self._is_broken:
                # To close it would be tried for a quarter of a minute. The recovery of its lease
                # ends it in the background; a reader that comes before waits for that.
                self._calls.abandon()
                self._fs.begin_recovery(self._path)
                return
            try:
                self._call(writer.close, 0)
            except OSError:
                # All its bytes are forced; what ends a dead writer's file also ends this one.
                self._calls.abandon()
                self._fs.settle([self._path])
            else:
                self._calls.end()


def _is_of_data_nodes(error: OSError) -> bool:
    if isinstance(error, HdfsUnavailableError):
        return not error.by_name_node
    return answer_of(error) is Answer.AWAY or error.errno == errno.EIO


class HdfsReadFile:
    """A file of HDFS that is being read; its size is that at the opening."""

    def __init__(self, fs: HdfsFileSystem, path: str, reader: Any) -> None:
        self._fs = fs
        self._path = path
        self._reader = reader
        self._size = len(reader)

    @property
    def size(self) -> int:
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        # The client dies of a read beyond the end instead of raising.
        length = min(length, self._size - offset)
        if length <= 0 or offset < 0:
            return b""
        return bytes(
            self._fs.read(self._path, lambda: self._reader.read_range(offset, length), length)
        )

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Do nothing: nothing is held open."""
