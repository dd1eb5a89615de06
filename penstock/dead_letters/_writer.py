"""`DeadLetterWriter`: the log of what one attempt of a receiver discards."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.dead_letters._letter import KIND, DeadLetter, bytes_of
from penstock.dead_letters._logs import FOLDER
from penstock.dead_letters._retention import Retention
from penstock.errors import encodable, text_of
from penstock.runtime.clock import Clock, SystemClock
from penstock.wal import (
    EncryptionKey,
    FileSystem,
    LogCipher,
    LogOptions,
    LogWriter,
    SyncPolicy,
    locate,
)

_ALIGNMENT = 64
_APPEND_BYTES = 1 << 20
_WAITING_BYTES = 64 << 20
_STEP_S = 1.0
_SHOWN = 200
_REASON = 4000
_SEGMENTS = 8
"""A segment is open for at most this part of the time for which letters are kept."""
_SEGMENT_SIZE = 64 << 10
"""Small, since it is allocated in advance: Spark kills a worker that was idle for a minute,
and its log is left with what it had."""


def folder_beside(block_log_root: str) -> str:
    """Return the folder of dead letters beside the folder of the blocks' logs."""
    return os.path.join(os.path.dirname(block_log_root), FOLDER)


def dead_letter_cipher(key: EncryptionKey | None, name: str) -> LogCipher | None:
    """Return the cipher of a log of dead letters; None without a key.

    Args:
        key: The application's.
        name: Of the log's folder.

    Raises:
        MissingPackageError: The package ``cryptography`` is missing.
    """
    return None if key is None else key.cipher(f"dead letters of {name}")


@dataclass(frozen=True)
class DeadLetterPlace:
    """Where one attempt's dead letters go, and how many are kept.

    Attributes:
        folder: Of the dead letters of all streams: on this host, or on HDFS.
        stream: The stream.
        attempt: The attempt.
        receiver: The receiver's class.
        host: This host.
        sync: Sync policy of the log: that of the blocks.
        sync_interval_s: Of the policy ``interval``.
        max_bytes: Of the logs of the stream in `folder`.
        max_age_s: How old a letter gets.
        max_record_bytes: How much is kept of one record.
        is_one_of_many: Whether there are many such logs of the stream, each of them short.
        encryption: The key of the logs; None: in clear.
        stream_name: What the program calls the stream.
    """

    folder: str
    stream: int
    attempt: str
    receiver: str
    host: str
    sync: SyncPolicy = SyncPolicy.ALWAYS
    sync_interval_s: float = 0.05
    max_bytes: int = 256 << 20
    max_age_s: float = 7 * 86400.0
    max_record_bytes: int = 64 << 20
    is_one_of_many: bool = False
    encryption: EncryptionKey | None = field(default=None, repr=False)
    stream_name: str = ""

    @property
    def name(self) -> str:
        """The name of the log's folder."""
        return f"{self.stream}-{self.attempt}"


class DeadLetterWriter:
    """Keeps what one attempt discards. Usable from many threads.

    `_changed` guards what waits; no I/O happens under it. `_writing` is held while writing, and
    guards the log.

    Args:
        place: Where to.
        tell: Notified of letters that were removed since there are too many, or too old ones.
        clock: For the time of the letters.

    Attributes:
        added: Letters so far.
        added_bytes: Their bytes.
    """

    def __init__(
        self,
        place: DeadLetterPlace,
        tell: Callable[[str, BaseException], None],
        clock: Clock | None = None,
    ) -> None:
        self.added = 0
        self.added_bytes = 0
        self._place = place
        self._tell = tell
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._writing = threading.Lock()
        self._log: LogWriter | None = None
        self._retention: Retention | None = None

    @property
    def has_waiting(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """How large it is."""
        return self._waiting_bytes

    def add(
        self,
        record: Any,
        reason: BaseException,
        shown: str,
        *,
        size: int | None = None,
        position: bytes | None = None,
        batch_ms: int | None = None,
        origin: str | None = None,
        at: str = "",
    ) -> None:
        """Keep a record until it is written.

        Args:
            record: Bytes, text or any object; of one that is not at hand as a whole, its beginning.
            reason: Why it fits nowhere.
            shown: How the record begins, for people.
            size: Bytes of the whole record where `record` is only its beginning.
            position: What it was stored with, encoded.
            batch_ms: See `DeadLetter`.
            origin: See `DeadLetter`.
            at: Where the error was raised, to be shown behind what it says.

        Raises:
            MemoryError: There is none for its bytes now.
        """
        place = self._place
        form, data = bytes_of(record)
        letter = DeadLetter(
            time_ms=self._clock.time_ms(),
            stream=place.stream,
            attempt=place.attempt,
            receiver=place.receiver,
            host=place.host,
            error=type(reason).__name__,
            reason=text_of(reason)[:_REASON] + encodable(at),
            form=form.value,
            data=data[: place.max_record_bytes],
            size=max(len(data), size or 0),
            shown=encodable(shown)[:_SHOWN],
            position=position,
            batch_ms=batch_ms,
            origin=origin,
            stream_name=encodable(place.stream_name),
        ).encoded()
        with self._changed:
            self._waiting.append(letter)
            self._waiting_bytes += len(letter)
            self.added += 1
            self.added_bytes += len(letter)

    def wait_for_room(self, give_up: Callable[[], bool]) -> None:
        """Wait while too much waits to be written; another thread is to write.

        Args:
            give_up: True ends the wait.
        """
        with self._changed:
            while self._waiting_bytes > _WAITING_BYTES and not give_up():
                self._changed.wait(_STEP_S)

    def write(self) -> bool:
        """Write what waits, and return True once it is as durable as the sync policy says.

        Raises:
            WalError: It cannot be written; it waits on.
        """
        with self._writing:
            with self._changed:
                found = list(self._waiting)
            while found:
                count = size = 0
                for letter in found:
                    if count and size + len(letter) > _APPEND_BYTES:
                        break
                    count += 1
                    size += len(letter)
                log = self._opened()
                log.append_many([(KIND, letter) for letter in found[:count]])
                del found[:count]
                with self._changed:
                    for _ in range(count):
                        self._waiting_bytes -= len(self._waiting.popleft())
                    self._changed.notify_all()
                if self._retention is not None:
                    self._retention.apply(log)
        return True

    def close(self) -> None:
        """Close the log, if there is one. What waits is not written: nothing was acknowledged.

        It waits for a write under way, and for the disk.

        Raises:
            WalError: The last letters may not be on the disk.
        """
        with self._writing:
            log, self._log = self._log, None
            if self._retention is not None:
                self._retention.tell_rest()
            if log is not None:
                log.close()

    def _opened(self) -> LogWriter:
        if self._log is not None:
            return self._log
        place = self._place
        fs, root = locate(place.folder)
        roll_age_s = max(1.0, place.max_age_s / _SEGMENTS)
        self._log = LogWriter.create(
            os.path.join(root, place.name),
            fs=fs,
            options=LogOptions(
                segment_size=_SEGMENT_SIZE,
                alignment=_ALIGNMENT,
                sync=place.sync,
                sync_interval_s=place.sync_interval_s,
                roll_age_s=roll_age_s,
                direct=False,
            ),
            clock=self._clock,
            cipher=dead_letter_cipher(place.encryption, place.name),
        )
        self._retention = self._make_retention(fs, root, roll_age_s)
        return self._log

    def _make_retention(self, fs: FileSystem, root: str, roll_age_s: float) -> Retention:
        place = self._place
        return Retention(
            fs,
            root,
            place.stream,
            max_bytes=place.max_bytes,
            max_age_s=place.max_age_s + roll_age_s,
            now_ms=self._clock.time_ms,
            tell=self._tell,
            is_one_of_many=place.is_one_of_many,
        )
