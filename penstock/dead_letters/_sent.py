"""`SentLetters`: which dead letters were sent through again, in a log of their stream.

What must hold:

- *Never twice by itself.* A letter is noted as being sent, durably, before its record is stored,
  and as sent once that is durable, or as not sent after all. Where there is only the first note, a
  crash came between: then no one knows, and it comes again only when asked for.
- A letter of a stream's function may be in several logs, as its batch was computed again: what was
  sent is known by its origin, in whichever of them it is found, and also when all of them went and
  the batch is computed once more: for as long as letters are kept (`DeadLetterPlace.max_age_s`).
- The log, ``sent-<stream>``, is beside the letters' logs and has one writer, the receiver of the
  stream, only while it sends.
"""

from __future__ import annotations

import enum
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType, TracebackType

import msgspec

from penstock.dead_letters._letter import DeadLetter, origin_digest
from penstock.dead_letters._logs import log_names, open_log, program_folders, program_of
from penstock.dead_letters._reader import letters_of_log
from penstock.dead_letters._writer import DeadLetterPlace, dead_letter_cipher
from penstock.wal import (
    CorruptRecordError,
    EncryptionKey,
    FileSystem,
    LogOptions,
    LogWriter,
    Record,
    SegmentInfo,
    locate,
)

LetterName = tuple[str, int]
"""Names a letter among all: the folder of its log, and its number in it."""
SentKey = tuple[str, int | bytes]
"""What is known as sent: such a name, or a program's and the `origin_digest` of its letter."""

_KIND = 2
_NAME = re.compile(r"sent-[0-9]{1,10}")
_SEGMENT_BYTES = 64 << 10


class SentState(enum.Enum):
    """How far a letter came."""

    UNKNOWN = 1
    """Its record may have been stored: its receiver was killed at that."""
    SENT = 2
    NOT_SENT = 3
    """Its record was not stored after all, which is as if nothing had been noted."""


class _Note(msgspec.Struct, frozen=True, array_like=True):
    """A record of the log."""

    log: str
    number: int
    state: int
    digest: bytes | None = None


def sent_key(name: LetterName, letter: DeadLetter, program: str = "") -> SentKey:
    """Return what a letter is known by among those that were sent.

    Args:
        name: Where it is.
        letter: The letter, with all its bytes.
        program: Whose it is, see `StoredLetter`.
    """
    digest = origin_digest(letter)
    return name if digest is None else (program, digest)


def sent_state(
    states: Mapping[SentKey, SentState], name: LetterName, key: SentKey
) -> SentState | None:
    """Return how far a letter came; None: no one has sent it.

    Args:
        states: What is known.
        name: Where it is: an earlier Penstock noted that alone.
        key: Its `sent_key`.
    """
    return states.get(key) or states.get(name)


class SentLetters:
    """Notes what is sent, of one stream; a context that takes the log, and gives it back.

    Args:
        place: Of the stream's dead letters.

    Attributes:
        states: How far letters came, by their `sent_key`.
        program: Whose they are, see `StoredLetter`.

    Raises:
        WalError: The log cannot be written, or another one has it.
        OSError: It cannot be read.
    """

    def __init__(self, place: DeadLetterPlace) -> None:
        fs, root = locate(place.folder)
        self._place = place
        self.program = program_of(root)
        name = f"sent-{place.stream}"
        self._log = LogWriter.create(
            os.path.join(root, name),
            fs=fs,
            options=LogOptions(
                segment_size=_SEGMENT_BYTES,
                alignment=64,
                sync=place.sync,
                sync_interval_s=place.sync_interval_s,
                direct=False,
            ),
            cipher=dead_letter_cipher(place.encryption, name),
        )
        try:
            self.states = self._take_over(fs, root, name)
        except BaseException:
            self._log.close()
            raise

    def __enter__(self) -> SentLetters:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._log.close()

    def state(self, name: LetterName, key: SentKey) -> SentState | None:
        """See `sent_state`."""
        return sent_state(self.states, name, key)

    def note(
        self,
        names: Iterable[LetterName],
        state: SentState,
        keys: Mapping[LetterName, SentKey] = MappingProxyType({}),
    ) -> None:
        """Note how far letters came; returns when that is as durable as they are.

        Args:
            names: Which.
            state: How far.
            keys: The `sent_key` of each of them that is not its name.

        Raises:
            WalError: It cannot be written.
        """
        known_by = ((name, keys.get(name, name)[1]) for name in names)
        notes = [
            _Note(log, number, state.value, digest if isinstance(digest, bytes) else None)
            for (log, number), digest in known_by
        ]
        self._log.append_many([(_KIND, msgspec.msgpack.encode(note)) for note in notes])
        _apply(self.states, notes, self.program)

    def _take_over(self, fs: FileSystem, root: str, name: str) -> dict[SentKey, SentState]:
        """Return what was noted; segments that know only of letters that are gone are removed."""
        known = {log for _, log in log_names(fs, root)}
        oldest_ms = (time.time() - self._place.max_age_s) * 1000
        states: dict[SentKey, SentState] = {}
        old: dict[int, list[_Note]] = {}
        for info, records in _segments(fs, root, name, self._place.encryption):
            if info.number >= self._log.first_segment:
                break
            notes = list(map(_read, records))
            _apply(states, notes, self.program)
            # Of a batch that is computed again a letter comes back after all of its logs went.
            may_return = info.created_ms >= oldest_ms and any(note.digest for note in notes)
            if not may_return and not any(note.log in known for note in notes):
                old[info.number] = notes
        if any(note.digest is not None for notes in old.values() for note in notes):
            # Other logs may have the same letter.
            there = self._digests(log for stream, log in log_names(fs, root))
            old = {
                number: notes
                for number, notes in old.items()
                if there.isdisjoint(note.digest for note in notes)
            }
        self._log.remove_segments(list(old))
        return states

    def _digests(self, logs: Iterable[str]) -> set[bytes | None]:
        return {
            digest
            for log in logs
            for _, letter in letters_of_log(self._place, log)
            if (digest := origin_digest(letter)) is not None
        }


def sent_states(
    folder: str,
    encryption: EncryptionKey | None,
    *,
    on_damage: Callable[[CorruptRecordError], None] | None = None,
) -> dict[SentKey, SentState]:
    """Return how far the sent letters in a folder came, by their `sent_key`.

    Args:
        folder: As for `letters`.
        encryption: The key, where logs are encrypted.
        on_damage: Notified of each place that cannot be read; then what was noted there is not
            known.

    Raises:
        OSError, WalError: It cannot be read; a damaged place only without `on_damage`.
    """
    fs, path = locate(folder)
    states: dict[SentKey, SentState] = {}
    for program, root in program_folders(fs, path):
        for log in filter(_NAME.fullmatch, sorted(fs.list_folder(root))):
            for _, records in _segments(fs, root, log, encryption, on_damage):
                # A receiver that sends removes what knows only of letters that are gone.
                with suppress(FileNotFoundError):
                    _apply(states, map(_read, records), program)
    return states


def _segments(
    fs: FileSystem,
    root: str,
    name: str,
    encryption: EncryptionKey | None,
    on_damage: Callable[[CorruptRecordError], None] | None = None,
) -> Iterator[tuple[SegmentInfo, Iterator[Record]]]:
    log = open_log(fs, os.path.join(root, name), dead_letter_cipher(encryption, name))
    if log is not None:
        for info in log.reader.segments:
            yield info, log.reader.segment_records(info.number, on_damage=on_damage)


def _read(record: Record) -> _Note:
    return msgspec.msgpack.decode(record.payload, type=_Note)


def _apply(states: dict[SentKey, SentState], notes: Iterable[_Note], program: str) -> None:
    for note in notes:
        name = (note.log, note.number)
        key: SentKey = name if note.digest is None else (program, note.digest)
        if note.state == SentState.NOT_SENT.value:
            states.pop(key, None)
        else:
            states[key] = SentState(note.state)
