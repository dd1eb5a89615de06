"""Taking copies of blocks over the block port: what a block server does for senders on other hosts.

On a connection that has proved the secret, beside requests for blocks
(`penstock.blockstore.reading.fetch`), little-endian:

- request: u32 length, MessagePack of a `ReplicaRequest`, and their tag; then the block's bytes, and
  the tag of their SHA-256 where `ReplicaRequest.sealed` says so;
- answer: u8 status, u64 length, and their tag; then for `FetchStatus.KEPT` MessagePack of a
  `WrittenReplica`, else a reason, and the tag of that.

A request that is refused ends the connection, since its bytes follow unasked. Copies are in logs of
their own (`ReplicaLogs`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import mmap
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from penstock.blockstore.server._files import ApplicationFiles
from penstock.runtime.checksum import crc32c
from penstock.wal import RECORD_HEADER_SIZE, LogOptions, LogWriter, WalError
from penstock.wire import TAG_BYTES
from penstock.wire.messages import SegmentPlace

_logger = logging.getLogger("penstock.blockstore")

BLOCK_RECORD = 1
"""The log's record kind of a block."""

_ATTEMPT = re.compile(r"[0-9a-f]{32}")
_WRITERS = 4
_READ_BYTES = 1 << 20
_PAGE = mmap.PAGESIZE
_IDLE_S = 600.0
"""Longer than any append takes."""


class ReplicaLogs:
    """One log for each receiver attempt that sends copies; safe to use from any thread.

    A log is made with the first copy, in a folder with a name that was never used, and closed when
    its attempt is wholly released. After that nothing of the attempt is taken any more. One that
    nothing was appended to for a while is closed, too: its open segment is allocated in advance,
    and of an attempt that has ended nothing may come again. `_lock` guards the tables; no copy is
    written under it.

    Args:
        files: The application's files on this host.
        options: How the logs are written: as durable as the receivers' logs.
    """

    def __init__(self, files: ApplicationFiles, options: LogOptions) -> None:
        self._files = files
        self._options = options
        self._lock = threading.Lock()
        self._writers: dict[str, LogWriter] = {}
        self._used_s: dict[str, float] = {}
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
            PermissionError: Stream or attempt are none.
            WalError: The payload has another checksum, the log did not take it, or the attempt was
                released.
        """
        payload = slot[RECORD_HEADER_SIZE : RECORD_HEADER_SIZE + payload_length]
        if crc32c(payload) != crc:
            raise WalError(f"{payload_length} bytes arrived damaged")
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
            self._used_s[attempt] = time.monotonic()
            return writer

    def close_idle(self) -> None:
        """Close the logs that nothing was appended to for a while; call it now and then."""
        with self._lock:
            before_s = time.monotonic() - _IDLE_S
            idle = [name for name in self._writers if self._used_s[name] < before_s]
            writers = [self._writers.pop(name) for name in idle]
            self._used_s = {name: self._used_s[name] for name in self._writers}
        for writer in writers:
            _close(writer)

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


class ReplicaRequest(msgspec.Struct, frozen=True, array_like=True, tag="keep"):
    """Keep a copy of a block whose bytes follow."""

    stream_id: int
    attempt: str
    length: int
    """Bytes of the payload of its log record."""
    crc: int
    """Their CRC-32C."""
    sealed: bool
    """Whether a tag follows them."""


class WrittenReplica(msgspec.Struct, frozen=True, array_like=True):
    """Where the copy is; it is committed to the log's sync policy."""

    segment: SegmentPlace
    sequence: int


def _sha256(data: memoryview) -> bytes:
    return hashlib.sha256(data).digest()


class Upload:
    """The memory in which one connection's copies arrive; used again for each."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None

    def room(self, length: int) -> memoryview:
        """Return page-aligned memory for a record header and `length` bytes."""
        size = -(-(RECORD_HEADER_SIZE + length) // _PAGE) * _PAGE
        if self._memory is None or len(self._memory) < size:
            # Not closed by hand: a write that was given up may still look into it.
            self._memory = mmap.mmap(-1, size)
        return memoryview(self._memory)


class ReplicaService:
    """Receives copies and has them written by threads. All methods run on one event loop.

    Args:
        logs: Where copies are written.
        block_max_bytes: The largest record, header included.
        step_timeout_s: A sender must not be silent for longer in the middle of a copy.
    """

    def __init__(self, logs: ReplicaLogs, block_max_bytes: int, step_timeout_s: float) -> None:
        self._logs = logs
        self._max_bytes = block_max_bytes
        self._step_timeout_s = step_timeout_s
        self._threads = ThreadPoolExecutor(_WRITERS, "penstock-copies")

    def refusal(self, request: ReplicaRequest) -> str | None:
        """Return why the copy is not even received, or None."""
        if request.stream_id < 0 or not _ATTEMPT.fullmatch(request.attempt):
            return "it names no receiver attempt"
        if not 0 <= request.length <= self._max_bytes - RECORD_HEADER_SIZE:
            return f"a block of {request.length} bytes; the largest has {self._max_bytes}"
        return None

    async def receive(
        self,
        reader: asyncio.StreamReader,
        request: ReplicaRequest,
        upload: Upload,
        check: Callable[[bytes, bytes], None],
    ) -> bytes:
        """Receive a copy and return the encoded `WrittenReplica` when it is written.

        Args:
            reader: Where its bytes come from.
            request: What it is.
            upload: The connection's memory.
            check: Is given a tag and what it is of; raises `TamperedError` if they do not fit.

        Raises:
            WalError: It could not be written; says why.
            TamperedError: The sender did not send it.
            OSError, EOFError, asyncio.TimeoutError: The sender went away, or is too slow.
        """
        slot = upload.room(request.length)
        end = RECORD_HEADER_SIZE + request.length
        at = RECORD_HEADER_SIZE
        while at < end:
            data = await asyncio.wait_for(
                reader.read(min(_READ_BYTES, end - at)), self._step_timeout_s
            )
            if not data:
                raise EOFError(f"the sender went away, {end - at} of {request.length} bytes short")
            slot[at : at + len(data)] = data
            at += len(data)
        loop = asyncio.get_running_loop()
        if request.sealed:
            tag = await asyncio.wait_for(reader.readexactly(TAG_BYTES), self._step_timeout_s)
            arrived = slot[RECORD_HEADER_SIZE:end]
            check(tag, await loop.run_in_executor(self._threads, _sha256, arrived))
        try:
            place, sequence = await loop.run_in_executor(
                self._threads,
                self._logs.append,
                request.stream_id,
                request.attempt,
                slot,
                request.length,
                request.crc,
            )
        except (WalError, OSError) as error:
            raise WalError(str(error)) from error
        return msgspec.msgpack.encode(WrittenReplica(place, sequence))

    def close(self) -> None:
        """Wait for the writes that are under way."""
        self._threads.shutdown()
