"""`ReplicaLogs`: the logs in which a host keeps copies of other hosts' blocks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from crc32c import crc32c

from penstock.blockstore._files import ApplicationFiles
from penstock.errors import PenstockError
from penstock.wal import RECORD_HEADER_SIZE, LogOptions, LogWriter, WalError
from penstock.wire.messages import SegmentPlace

__all__ = ["BLOCK_RECORD", "CopyDamagedError", "ReplicaLogs"]

_logger = logging.getLogger("penstock.blockstore")

BLOCK_RECORD = 1
"""The log's record kind of a block."""


class CopyDamagedError(PenstockError):
    """What arrived is not what was sent: its checksum differs."""


class ReplicaLogs:
    """One log for each receiver attempt that sends copies; safe to use from any thread.

    A log is made with the first copy, in a folder with a name that was never used, and closed when
    its attempt is wholly released. After that nothing of the attempt is taken any more. `_lock`
    guards the tables; no copy is written under it.

    Args:
        files: The application's files on this host.
        options: How the logs are written: as durable as those of the receivers.
    """

    def __init__(self, files: ApplicationFiles, options: LogOptions) -> None:
        self._files = files
        self._options = options
        self._lock = threading.Lock()
        self._writers: dict[str, LogWriter] = {}
        self._released: set[str] = set()
        self._closed = False

    def append(
        self, stream_id: int, attempt: str, slot: memoryview, payload_length: int, crc: int
    ) -> tuple[SegmentPlace, int]:
        """Append a copy and return when it is committed to the sync policy.

        Args:
            stream_id: The stream.
            attempt: The receiver attempt that sends it.
            slot: Page-aligned memory: 64 bytes of room, then the payload.
            payload_length: Bytes of the payload.
            crc: Its CRC-32C, as the sender has it.

        Returns:
            The place and the sequence number of the record.

        Raises:
            CopyDamagedError: The payload has another checksum.
            PathRefusedError: Stream or attempt are none.
            WalError: The log did not take it, or the attempt was released.
        """
        payload = slot[RECORD_HEADER_SIZE : RECORD_HEADER_SIZE + payload_length]
        if crc32c(payload) != crc:
            raise CopyDamagedError(f"{payload_length} bytes arrived damaged")
        writer = self._writer(stream_id, attempt)
        place = writer.append_slot(BLOCK_RECORD, slot, payload_length, crc)
        found = SegmentPlace(writer.folder, place.segment, place.offset, place.length)
        return found, place.sequence

    def _writer(self, stream_id: int, attempt: str) -> LogWriter:
        with self._lock:
            if self._closed or attempt in self._released:
                raise WalError(f"attempt {attempt} was released, or this server ends")
            writer = self._writers.get(attempt)
            if writer is None:
                folder = self._files.new_replica_folder(stream_id, attempt)
                writer = LogWriter.create(folder, options=self._options)
                self._writers[attempt] = writer
            return writer

    def release(self, attempts: Sequence[str], segments: Sequence[tuple[str, int]]) -> None:
        """Close the logs of released attempts, and remove single segments of the open ones.

        A segment that is being written stays. What is not in an open log is left to the caller.
        """
        with self._lock:
            self._released.update(attempts)
            over = [self._writers.pop(attempt, None) for attempt in attempts]
            open_ones = {writer.folder: writer for writer in self._writers.values()}
        for writer in over:
            if writer is not None:
                _close(writer)
        numbers: dict[str, list[int]] = {}
        for folder, number in segments:
            if folder in open_ones:
                numbers.setdefault(folder, []).append(number)
        for folder, found in numbers.items():
            try:
                open_ones[folder].remove_segments(found)
            except WalError as error:
                _logger.warning("copies were not removed: %s", error)

    def is_open(self, folder: str) -> bool:
        """Whether a log is being written in the folder."""
        with self._lock:
            return any(writer.folder == folder for writer in self._writers.values())

    def close(self) -> None:
        """Close all logs; their files stay."""
        with self._lock:
            self._closed = True
            writers = list(self._writers.values())
            self._writers.clear()
        for writer in writers:
            _close(writer)


def _close(writer: LogWriter) -> None:
    try:
        writer.close()
    except WalError as error:
        _logger.warning("a log of copies was not closed as it should be: %s", error)
