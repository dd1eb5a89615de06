"""One record read by its place, as tasks read blocks."""

from __future__ import annotations

from contextlib import closing

from penstock.wal import LocalFileSystem, LogCipher, Record, RecordPlace, parse_record
from penstock.wal._filesystem import FileSystem
from penstock.wal._folder import segment_number
from penstock.wal._segments.layout import HEADER, RECORD_HEADER_SIZE


def read_record(
    path: str,
    offset: int,
    *,
    expected_sequence: int | None = None,
    fs: FileSystem | None = None,
    cipher: LogCipher | None = None,
) -> Record:
    """Return the record that begins there, also of a segment that is still being written."""
    with closing((fs or LocalFileSystem()).open(path)) as file:
        data = memoryview(file.read(offset, max(0, file.size - offset)))
    payload = parse_record(data, expected_sequence=expected_sequence, cipher=cipher)
    _, _, _, kind, _, length, sequence, _, _, _ = HEADER.unpack_from(data)
    place = RecordPlace(segment_number(path) or 0, offset, RECORD_HEADER_SIZE + length, sequence)
    return Record(kind, sequence, payload, place)
