"""Reading the dead letters of all logs in a folder, one by one or as a DataFrame."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from penstock.dead_letters._letter import KIND, DeadLetter, origin_digest, read_letter
from penstock.dead_letters._logs import log_names, not_dead_letters, open_log, program_folders
from penstock.dead_letters._writer import DeadLetterPlace, dead_letter_cipher
from penstock.wal import (
    CorruptRecordError,
    EncryptionKey,
    FileSystem,
    LogReader,
    Record,
    locate,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("penstock.dead_letters")

_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("program", pa.string(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("batch", pa.timestamp("us", tz="UTC")),
        pa.field("stream", pa.int32(), nullable=False),
        pa.field("receiver", pa.string(), nullable=False),
        pa.field("attempt", pa.string(), nullable=False),
        pa.field("host", pa.string(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("position", pa.string()),
        pa.field("form", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)


@dataclass(frozen=True)
class StoredLetter:
    """A letter, and where it is.

    Attributes:
        id: Names it within its folder: stream, attempt (its first eight digits), number; of a
            stream's function stream and origin, the same in each log that has it.
        letter: What was kept.
        log: The name of its log.
        number: Its number in that log.
        program: Whose it is, below a folder of several programs; else empty.
    """

    id: str
    letter: DeadLetter
    log: str = ""
    number: int = 0
    program: str = ""


def stored_letter(
    letter: DeadLetter, log: str, number: int, program: str = "", digest: bytes | None = None
) -> StoredLetter:
    """Return a letter that is in a log under a number.

    Args:
        letter: The letter.
        log: The name of the log.
        number: Its number in that log.
        program: See `StoredLetter`.
        digest: Its `origin_digest`, if it has an origin.
    """
    stream, _, attempt = log.partition("-")
    name = f"{stream}-{attempt[:8]}-{number}" if digest is None else f"{stream}-{digest.hex()[:16]}"
    return StoredLetter(name, letter, log, number, program)


def letters(
    folder: str,
    *,
    stream: int | None = None,
    encryption: EncryptionKey | None = None,
    on_damage: Callable[[CorruptRecordError], None] | None = None,
) -> Iterator[StoredLetter]:
    """Yield the dead letters in a folder: by stream, attempt by attempt, as they were discarded.

    They may be read while the program runs; on HDFS without the segment that is being written,
    which is logged. What is removed meanwhile, being too much or too old, is left out. A record
    that a stream's function failed for more than once, as its batch was computed again, comes once.
    Where programs share a folder, the letters come program by program.

    Args:
        folder: A checkpoint directory or log folder, the folder ``deadLetters`` in it, or that of
            one program below: on this host, or ``hdfs://…``.
        stream: Only this stream's.
        encryption: The key, where logs are encrypted.
        on_damage: Notified of each place that cannot be read; without it, the first one is raised
            once all others of its log have been yielded.

    Raises:
        FileNotFoundError: There is no such folder.
        CorruptRecordError: What was written cannot be read.
        EncryptionMismatchError: It is encrypted, or not, or with another key.
        PenstockError: There are other logs, or other things altogether.
    """
    fs, path = locate(folder)
    if not fs.is_folder(path):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", folder)
    for program, root in program_folders(fs, path):
        yield from _letters_of_program(fs, root, program, stream, encryption, on_damage)


def _letters_of_program(
    fs: FileSystem,
    root: str,
    program: str,
    stream: int | None,
    encryption: EncryptionKey | None,
    on_damage: Callable[[CorruptRecordError], None] | None,
) -> Iterator[StoredLetter]:
    logs = []
    for number, name in log_names(fs, root):
        if stream is None or stream == number:
            found = open_log(fs, os.path.join(root, name), dead_letter_cipher(encryption, name))
            if found is None:
                continue
            if not found.is_whole:
                _log.warning(
                    "the last dead letters in %s are left out: they are being written",
                    found.reader.folder,
                )
            if found.reader.segments:
                logs.append((number, found.reader.segments[0].created_ms, name, found.reader))
    seen: set[bytes] = set()
    for _, _, name, reader in sorted(logs, key=lambda log: log[:3]):
        for record in _records(reader, on_damage):
            if record.kind == KIND:
                try:
                    letter = read_letter(record.payload)
                except msgspec.DecodeError as error:
                    raise not_dead_letters(reader.folder) from error
                digest = origin_digest(letter)
                if digest is not None:
                    if digest in seen:
                        continue
                    seen.add(digest)
                yield stored_letter(letter, name, record.sequence, program, digest)


def letters_of_log(place: DeadLetterPlace, name: str) -> Iterator[tuple[int, DeadLetter]]:
    """Yield the letters of one log in a place, each with its number; nothing if there is none.

    Those that are damaged are left out.

    Raises:
        OSError, WalError: It cannot be read.
        PenstockError: It is another log.
    """
    fs, root = locate(place.folder)
    if name not in [found for _, found in log_names(fs, root)]:
        return
    log = open_log(fs, os.path.join(root, name), dead_letter_cipher(place.encryption, name))
    for record in () if log is None else _records(log.reader, lambda damage: None):
        if record.kind == KIND:
            try:
                yield record.sequence, read_letter(record.payload)
            except msgspec.DecodeError as error:
                raise not_dead_letters(os.path.join(root, name)) from error


def _records(
    reader: LogReader, on_damage: Callable[[CorruptRecordError], None] | None
) -> Iterator[Record]:
    """Yield the records of the segments that still exist; see `letters`."""
    damages: list[CorruptRecordError] = []
    for info in reader.segments:
        try:
            yield from reader.segment_records(info.number, on_damage=on_damage or damages.append)
        except FileNotFoundError:
            continue
    if damages:
        raise damages[0]


def read(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    *,
    encryption: EncryptionKey | None = None,
) -> DataFrame:
    """Return the dead letters in a folder as a DataFrame: as they are now, read by the driver.

    Columns: ``id``, ``program`` (see `StoredLetter`), ``time``, ``batch`` (its time; null where a
    receiver discarded the record), ``stream``, ``receiver``, ``attempt``, ``host``, ``error`` (its
    type), ``reason``, ``position`` (JSON), ``form`` (see `Form`), ``size`` (of the whole record, in
    bytes) and ``data`` (its bytes, or the first of them).

    Args:
        spark: The session.
        folder: See `letters`.
        encryption: The key, where logs are encrypted.

    Raises:
        FileNotFoundError, CorruptRecordError: See `letters`.
        TypeError, ValueError: The folder is no path, or empty.
    """
    # Spark is here in any case; the commands, which do not come here, start without it.
    from penstock._arguments import as_folder

    path = as_folder(folder, "folder")
    rows = [
        {
            "id": found.id,
            "program": found.program,
            "time": found.letter.time_ms * 1000,
            "batch": None if found.letter.batch_ms is None else found.letter.batch_ms * 1000,
            "position": found.letter.position_text,
            **{
                name: getattr(found.letter, name)
                for name in _SCHEMA.names
                if name not in ("id", "program", "time", "batch", "position")
            },
        }
        for found in letters(path, encryption=encryption)
    ]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=_SCHEMA))
