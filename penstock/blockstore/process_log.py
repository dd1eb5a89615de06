"""One log for all receivers of a process, on an object store or on this host's disk.

On a store each write is paid for; on a disk each log forces its own writes, and its open segment is
allocated in advance.

What must hold

- *One write a flush.* What the receivers of a process have sealed by about the same time is one
  object, or one forced write (`penstock.wal.LogWriter` with a `Company`), so these grow with time
  and bytes, and not with receivers. A block waits for others' blocks for half a block interval at
  most, on a disk for no longer than `_DISK_WAIT_S`, and not at all where nothing is forced.
- *Each receiver's part is its own.* To the ledger an attempt has a log of its own, with a folder
  below that of the log, in which nothing is: ``<root>/process-<id>/<stream>-<attempt>``. The
  place of a block says where in the segments of the log its record is, so a reader seeks nothing.
  Its order, its acknowledgements, its end and its release are as with a log of its own.
- *A segment goes with the last claim to it.* An attempt claims each segment in which it has a
  block, until the driver releases it for that attempt. What is open, or may get an append that is
  under way, stays. No clock removes anything.
- *The log goes as a whole* when all attempts that registered with it have ended, and all their
  blocks are released: the driver removes it (`penstock.tracker`), or on a disk the host's block
  server, with what was logged and never reported. No attempt is registered with it from then on.
  So what a killed process leaves goes, and what a paused one still writes is in no ledger: its
  attempts were replaced, which fences them.
- A name is used by one process, from the first attempt that takes it to the last that lets it go;
  the next one gets another name. So does one that begins when the newest write has failed: a log
  that was taken over writes no more, and those who leave it one by one must not come back to it.

A folder ``process-<id>`` is a log as any other: ``penstock wal`` checks, repairs and prints it. It
holds the records of all its receivers in the order in which they were written; encrypted, with a
key of the log and not of each attempt.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.blockstore._encryption import block_cipher
from penstock.files.addresses import is_shared
from penstock.runtime.clock import Clock, SystemClock
from penstock.wal import (
    Company,
    LogOptions,
    LogStatistics,
    LogWriter,
    RecordPlace,
    SyncPolicy,
    locate,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.wal import EncryptionKey, LogCipher

_log = logging.getLogger("penstock.blockstore")

_PREFIX = "process-"
_DISK_WAIT_S = 0.2
"""More than a busy process takes for the blocks that its receivers seal at the same moment."""
_SYSTEM_CLOCK = SystemClock()


def is_process_log(folder: str) -> bool:
    """Return whether an attempt's folder is one in a log of several."""
    return os.path.basename(os.path.dirname(folder)).startswith(_PREFIX)


def log_of(folder: str) -> str:
    """Return the folder in which the segments of an attempt's log are."""
    return os.path.dirname(folder) if is_process_log(folder) else folder


def moved(folder: str, root: str, names: Collection[str]) -> str:
    """Return an attempt's folder as it is below another root, if the log is below it.

    Args:
        folder: The folder.
        root: Where logs are looked for.
        names: The names of the logs in it.
    """
    log = log_of(folder)
    name = os.path.basename(log)
    return os.path.join(root, name) + folder[len(log) :] if name in names else folder


def cipher_of(key: EncryptionKey | None, attempt: str, folder: str) -> LogCipher | None:
    """Return the cipher of the log in which an attempt's folder is; None without a key.

    Raises:
        EncryptionNotInstalledError: The package ``cryptography`` is missing.
    """
    return block_cipher(
        key, os.path.basename(log_of(folder)) if is_process_log(folder) else attempt
    )


class ProcessLog:
    """A log of several attempts; made by `ProcessLogs`. Safe to use from any thread.

    `_opening` is held while the log is opened or closed, `_lock` guards the claims.

    Attributes:
        folder: Its address.
        users: How many attempts have it; of `ProcessLogs`.
        has_failed: Whether the newest write has.
    """

    def __init__(self, folder: str, interval_s: float, clock: Clock = _SYSTEM_CLOCK) -> None:
        self.folder = folder
        self.users = 0
        self.has_failed = False
        wait_s = interval_s / 2
        if not is_shared(folder):
            wait_s = min(wait_s, _DISK_WAIT_S)
        self._company = Company(interval_s, wait_s, clock)
        self._opening = threading.Lock()
        self._writer: LogWriter | None = None
        self._lock = threading.Lock()
        self._newest = 0
        # By segment that was not removed: the folders of attempts that have a block in it.
        self._claims: dict[int, set[str]] = {}
        # The newest segment at the beginning of each append that is under way.
        self._under_way: list[int] = []

    def join(
        self, folder: str, options: LogOptions, encryption: EncryptionKey | None
    ) -> ProcessLogMember:
        """Open the log, if it is not, and return what an attempt writes through.

        Raises:
            WalError: As `LogWriter.create`.
        """
        with self._opening:
            if self._writer is None:
                fs, path = locate(self.folder)
                is_forced = is_shared(self.folder) or options.sync is SyncPolicy.ALWAYS
                self._writer = LogWriter.create(
                    path,
                    fs=fs,
                    options=options,
                    cipher=cipher_of(encryption, "", folder),
                    company=self._company if is_forced else None,
                )
                self._newest = self._writer.first_segment
            return ProcessLogMember(self, self._writer, folder)

    def close(self) -> None:
        """Close the log, which no one writes any more."""
        with self._opening:
            if self._writer is not None:
                self._writer.close()

    def append(self, member: str, append: Callable[[], RecordPlace]) -> RecordPlace:
        """Append for a member, which then has a claim to the segment."""
        with self._lock:
            newest = self._newest
            self._under_way.append(newest)
        place = None
        try:
            place = append()
            return place
        finally:
            with self._lock:
                self._under_way.remove(newest)
                self.has_failed = place is None
                if place is not None:
                    for number in range(self._newest, place.segment + 1):
                        self._claims.setdefault(number, set())
                    self._newest = max(self._newest, place.segment)
                    self._claims.setdefault(place.segment, set()).add(member)

    def release(self, writer: LogWriter, segments: Iterable[tuple[str, int]]) -> None:
        """Let claims go, and remove the segments to which there are none.

        Args:
            writer: The log's.
            segments: Folder of an attempt, and number; a number below 0 stands for all.

        Raises:
            WalError: The store refused; it is tried again with the next release.
        """
        with self._lock:
            for folder, number in segments:
                for claimed in self._claims if number < 0 else (number,):
                    self._claims.get(claimed, set()).discard(folder)
            before = min((self._newest, *self._under_way))
            free = [number for number, who in self._claims.items() if not who and number < before]
        if free:
            writer.remove_segments(free)
            with self._lock:
                for number in free:
                    self._claims.pop(number, None)

    def claimed(self, member: str) -> int:
        """Return how many segments a member claims."""
        with self._lock:
            return sum(member in who for who in self._claims.values())


class ProcessLogMember:
    """One attempt's part of a `ProcessLog`, with the calls of a `LogWriter`; for one thread.

    Args:
        log: The log.
        writer: Its writer.
        folder: What the ledger knows the attempt's part by.
    """

    def __init__(self, log: ProcessLog, writer: LogWriter, folder: str) -> None:
        self._log = log
        self._writer = writer
        self._folder = folder
        self._records = 0
        self._bytes = 0

    def append(self, kind: int, payload: Buffer | Sequence[Buffer]) -> RecordPlace:
        """As `LogWriter.append`."""
        return self._counted(lambda: self._writer.append(kind, payload))

    def append_slot(
        self, kind: int, slot: memoryview, payload_length: int, payload_crc: int | None = None
    ) -> RecordPlace:
        """As `LogWriter.append_slot`."""
        return self._counted(
            lambda: self._writer.append_slot(kind, slot, payload_length, payload_crc)
        )

    def _counted(self, append: Callable[[], RecordPlace]) -> RecordPlace:
        place = self._log.append(self._folder, append)
        self._records += 1
        self._bytes += place.length
        return place

    def roll(self) -> None:
        """As `LogWriter.roll`."""
        self._writer.roll()

    def release(self, segments: Iterable[tuple[str, int]]) -> None:
        """Let claims of this attempt go, or of one that has ended; see `ProcessLog.release`."""
        self._log.release(self._writer, segments)

    def statistics(self) -> LogStatistics:
        """As `LogWriter.statistics`, with records, bytes and segments of this attempt only."""
        return replace(
            self._writer.statistics(),
            records=self._records,
            bytes_appended=self._bytes,
            segments_created=self._log.claimed(self._folder),
            segments_removed=0,
        )

    def close(self) -> None:
        """Do nothing: others may write on, and what this attempt has claimed it claims on."""


class ProcessLogs:
    """The log that the attempts of this process share. `_lock` guards which, and its users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log: ProcessLog | None = None

    @contextlib.contextmanager
    def use(self, root: str, interval_s: float) -> Iterator[ProcessLog]:
        """Give an attempt the log for as long as it lives; the last one closes it.

        Args:
            root: Folder below which logs are made; the same for all of a process.
            interval_s: The block interval, in seconds.
        """
        with self._lock:
            log = self._log
            if log is None or log.has_failed:
                name = _PREFIX + uuid.uuid4().hex
                log = self._log = ProcessLog(os.path.join(root, name), interval_s)
            log.users += 1
        try:
            yield log
        finally:
            with self._lock:
                log.users -= 1
                is_last = not log.users
                if is_last and self._log is log:
                    self._log = None
            if is_last:
                try:
                    log.close()
                except Exception as error:  # noqa: BLE001 - all that was acknowledged is there
                    _log.warning("%s was not closed: %s", log.folder, error)
