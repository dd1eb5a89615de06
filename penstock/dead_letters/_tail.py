"""`LetterTail`: reads on in the dead letters of a folder, while they are written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from penstock.dead_letters._letter import KIND, origin_digest, read_letter
from penstock.dead_letters._logs import is_free_log, log_names, open_log, program_of
from penstock.dead_letters._reader import StoredLetter, stored_letter
from penstock.dead_letters._writer import dead_letter_cipher
from penstock.wal import (
    CorruptRecordError,
    EncryptionKey,
    HdfsFileSystem,
    LogReader,
    Record,
    WalError,
    locate,
)

_STEP_NS = 1_000_000_000
"""Longer than a step of the time of files."""


class NewLetters(NamedTuple):
    """What was read.

    Attributes:
        letters: The letters.
        after: Up to which record each existing log has been read.
    """

    letters: list[StoredLetter]
    after: dict[str, int]


class LetterTail:
    """Reads on in the dead letters of a folder. For one thread at a time.

    A log that has not changed since it was read to its end is not opened again, and one that has no
    writer any more is not looked at.

    Args:
        folder: Of the logs: on this host, or on HDFS.
        encryption: The key of the logs; None: they are in clear.
        but: A stream whose letters are left out.
        tell: Notified of what cannot be read; it is left out, and tried again where that may help.
    """

    def __init__(
        self,
        folder: str,
        encryption: EncryptionKey | None,
        *,
        but: int,
        tell: Callable[[str], None],
    ) -> None:
        self._fs, self._root = locate(folder)
        self._program = program_of(self._root)
        self._encryption = encryption
        self._but = but
        self._tell = tell
        self._ended: dict[str, object] = {}
        # Logs of which something was read; and those of them that are read for good.
        self._begun: set[str] = set()
        self._over: set[str] = set()

    def read(
        self, after: Mapping[str, int], *, most: int, most_bytes: int, upto: Mapping[str, int] = {}
    ) -> NewLetters:
        """Return letters that come behind those that were read.

        Args:
            after: Up to which record each log has been read.
            most: How many letters at most.
            most_bytes: With one that reaches this size the last one is read.
            upto: Read only these logs, up to these records; empty: all there is.
        """
        found: list[StoredLetter] = []
        reached: dict[str, int] = {}
        size = 0
        try:
            if not self._fs.is_folder(self._root):
                # There are none yet; or it is away, and what was read of it is when it is back.
                return NewLetters([], dict(after))
            names = log_names(self._fs, self._root)
        except OSError as error:
            self._tell(f"The dead letters in {self._root} cannot be looked at: {error}")
            return NewLetters([], dict(after))
        for stream, name in names:
            reached[name] = after.get(name, 0)
            if stream == self._but or (upto and name not in upto):
                continue
            if len(found) >= most or size >= most_bytes:
                continue
            if not upto and name in self._over:
                continue
            # First, and only of one that was begun: one that is just made has no lock yet.
            is_free = name in self._begun and is_free_log(self._fs, os.path.join(self._root, name))
            stamp = self._stamp(name)
            is_read = stamp is not None and self._ended.get(name) == stamp
            if not upto and is_read and not is_free:
                continue
            try:
                for number, stored in self._behind(name, reached[name]):
                    if upto and number > upto[name]:
                        break
                    reached[name] = number
                    if stored is None:
                        continue
                    found.append(stored)
                    size += len(stored.letter.data)
                    if len(found) >= most or size >= most_bytes:
                        break
                else:
                    self._ended[name] = stamp
                    if is_free:
                        self._over.add(name)
                    if reached[name]:
                        self._begun.add(name)
            except (WalError, OSError) as error:
                self._tell(f"Dead letters in {os.path.join(self._root, name)} are left: {error}")
        self._ended = {name: stamp for name, stamp in self._ended.items() if name in reached}
        self._begun &= reached.keys()
        self._over &= reached.keys()
        return NewLetters(found, reached)

    def end(self) -> dict[str, int]:
        """Return up to which record each log is written now.

        Raises:
            WalError, OSError: A log cannot be read.
        """
        found: dict[str, int] = {}
        for stream, name in log_names(self._fs, self._root):
            if stream != self._but:
                for number, _ in self._behind(name, 0):
                    found[name] = number
        return found

    def _behind(self, name: str, after: int) -> Iterator[tuple[int, StoredLetter | None]]:
        """Yield the letters of a log behind a record; None where there is no readable one."""
        path = os.path.join(self._root, name)
        log = open_log(self._fs, path, dead_letter_cipher(self._encryption, name))
        if log is not None:
            for record in _records(log.reader, after, lambda error: self._tell(str(error))):
                yield record.sequence, self._stored(name, record)

    def _stored(self, name: str, record: Record) -> StoredLetter | None:
        if record.kind != KIND:
            return None
        try:
            letter = read_letter(record.payload)
        except msgspec.DecodeError as error:
            self._tell(f"{name} has a record that is no dead letter: {error}")
            return None
        digest = origin_digest(letter)
        return stored_letter(letter, name, record.sequence, self._program, digest)

    def _stamp(self, name: str) -> object:
        """Return what changes when something is written to a log; None: that is not known."""
        path = os.path.join(self._root, name)
        try:
            if isinstance(self._fs, HdfsFileSystem):
                return tuple(self._fs.files(path))
            with os.scandir(path) as entries:
                found = sorted((each.name, each.stat().st_mtime_ns) for each in entries)
            newest_ns = max((changed_ns for _, changed_ns in found), default=0)
            # A file may be written twice without another time: the system's clock has steps.
            return tuple(found) if newest_ns < time.time_ns() - _STEP_NS else None
        except OSError:
            return None


def _records(
    reader: LogReader, after: int, on_damage: Callable[[CorruptRecordError], None]
) -> Iterator[Record]:
    for info in reader.segments:
        if info.last_sequence is not None and info.last_sequence <= after:
            continue
        try:
            for record in reader.segment_records(info.number, on_damage=on_damage):
                if record.sequence > after:
                    yield record
        except FileNotFoundError:
            continue  # It was too much, or too old.
