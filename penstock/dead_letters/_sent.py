"""`SentLetters`: which dead letters were sent through again, in a log of their stream.

What must hold:

- *Never twice by itself.* A letter is noted as being sent, durably, before its record is stored,
  and as sent once that is durable. Where there is only the first note, a crash came between: then
  nobody knows, and only who asks for it again has it again.
- The log, ``sent-<stream>``, lies beside those of the letters and has one writer, the receiver of
  the stream, only while it sends.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

import msgspec

from penstock.dead_letters._logs import log_names, open_log
from penstock.dead_letters._writer import FOLDER, DeadLetterPlace, dead_letter_cipher
from penstock.wal import (
    CorruptRecordError,
    EncryptionKey,
    FileSystem,
    LogOptions,
    LogWriter,
    Record,
    locate,
)

__all__ = ["LetterName", "SentLetters", "SentState", "sent_states"]

LetterName = tuple[str, int]
"""Names a letter among all: the folder of its log, and its number there."""

_KIND = 2
_NAME = re.compile(r"sent-[0-9]{1,10}")
_SEGMENT_BYTES = 64 << 10


class SentState(enum.Enum):
    """How far a letter came."""

    UNKNOWN = 1
    """Its record may have been stored: who stored it was killed."""
    SENT = 2


class SentLetters:
    """Notes what is sent, of one stream; a context that takes the log, and gives it back.

    Args:
        place: Of the stream's dead letters.

    Raises:
        WalError: The log cannot be written, or another one has it.
        OSError: It cannot be read.
    """

    def __init__(self, place: DeadLetterPlace) -> None:
        fs, root = locate(place.folder)
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
            self.states = self._take_over(fs, root, name, place.encryption)
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

    def note(self, names: Iterable[LetterName], state: SentState) -> None:
        """Note how far letters came; returns when that is as durable as they are.

        Raises:
            WalError: It cannot be written.
        """
        notes = [(name, number, state.value) for name, number in names]
        self._log.append_many([(_KIND, msgspec.msgpack.encode(note)) for note in notes])
        for name, number, _ in notes:
            self.states[name, number] = state

    def _take_over(
        self, fs: FileSystem, root: str, name: str, encryption: EncryptionKey | None
    ) -> dict[LetterName, SentState]:
        """Return what was noted; segments that know only of logs that are gone are removed."""
        known = {log for _, log in log_names(fs, root)}
        states: dict[LetterName, SentState] = {}
        gone = []
        for number, records in _segments(fs, root, name, encryption):
            if number >= self._log.first_segment:
                break
            noted = dict(map(_read, records))
            states.update(noted)
            if not any(log in known for log, _ in noted):
                gone.append(number)
        self._log.remove_segments(gone)
        return states


def sent_states(
    folder: str,
    encryption: EncryptionKey | None,
    *,
    on_damage: Callable[[CorruptRecordError], None] | None = None,
) -> dict[LetterName, SentState]:
    """Return how far the letters in a folder came that somebody has sent.

    Args:
        folder: As for `letters`.
        encryption: The key, where logs are encrypted.
        on_damage: Told of each place that cannot be read; what was noted there is not known then.

    Raises:
        OSError, WalError: It cannot be read; a damaged place only without `on_damage`.
    """
    fs, path = locate(folder)
    below = os.path.join(path, FOLDER)
    root = below if fs.is_folder(below) else path
    if not fs.is_folder(root):
        return {}
    states: dict[LetterName, SentState] = {}
    for log in filter(_NAME.fullmatch, sorted(fs.list_folder(root))):
        for _, records in _segments(fs, root, log, encryption, on_damage):
            # A receiver that sends removes what knows only of logs that are gone.
            with contextlib.suppress(FileNotFoundError):
                states.update(map(_read, records))
    return states


def _segments(
    fs: FileSystem,
    root: str,
    name: str,
    encryption: EncryptionKey | None,
    on_damage: Callable[[CorruptRecordError], None] | None = None,
) -> Iterator[tuple[int, Iterator[Record]]]:
    log = open_log(fs, os.path.join(root, name), dead_letter_cipher(encryption, name))
    if log is not None:
        for info in log.reader.segments:
            yield info.number, log.reader.segment_records(info.number, on_damage=on_damage)


def _read(record: Record) -> tuple[LetterName, SentState]:
    name, number, state = msgspec.msgpack.decode(record.payload, type=tuple[str, int, int])
    return (name, number), SentState(state)
