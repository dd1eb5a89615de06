"""Encrypted logs: nothing in clear on the disk, and a record decrypts in its own place only."""

from __future__ import annotations

import base64
import mmap
import pickle
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from penstock.__main__ import main
from penstock.wal import (
    RECORD_HEADER_SIZE,
    CorruptRecordError,
    EncryptionKey,
    EncryptionMismatchError,
    LogCipher,
    LogOptions,
    LogReader,
    LogWriter,
    RecordPlace,
    WalError,
    check,
    parse_record,
    remove_log,
    repair,
    segment_path,
)
from tests.wal.records import read_record

KEY = EncryptionKey(bytes(range(32)))
CIPHER = KEY.cipher("a log")
MARK = b"what nobody may find"
SEALED = bytes.fromhex(
    "af4c25e4f45249be964213205e3cb2307ba96a902e98024c89168a5d69aa1ecd"
    "c12e27d0d68f3954556d600ef4a35e2e86c3"
)
"""``as a whole``, sealed by version 0.1 with the name ``its name``."""
ALIGNMENTS = pytest.mark.parametrize("alignment", [64, 4096])


def options(alignment: int) -> LogOptions:
    return LogOptions(segment_size=1 << 16, alignment=alignment)


def payload(number: int) -> bytes:
    return b"%03d" % number + MARK * 10


def write(folder: str, alignment: int = 64, cipher: LogCipher | None = CIPHER) -> list[RecordPlace]:
    """Write eight records in two segments, in all the ways there are; the last one stays open."""
    writer = LogWriter.create(folder, options=options(alignment), cipher=cipher)
    places = [writer.append(1, payload(0)), writer.append(2, [payload(1)[:7], payload(1)[7:]])]
    places += writer.append_many([(1, payload(2)), (1, payload(3))])
    writer.roll()
    for number in range(4, 8):
        slot = memoryview(mmap.mmap(-1, 4096))
        end = RECORD_HEADER_SIZE + len(payload(number))
        slot[RECORD_HEADER_SIZE:end] = payload(number)
        places.append(writer.append_slot(1, slot, len(payload(number))))
        # Who maps the slot needs no key.
        sequence = places[-1].sequence
        assert parse_record(slot, expected_sequence=sequence) == payload(number)
    writer._lock.release()  # what the death of the process does
    return places


def read(folder: str, cipher: LogCipher | None = CIPHER) -> list[bytes]:
    return [bytes(record.payload) for record in LogReader.open(folder, cipher=cipher).records()]


def bytes_of(folder: str) -> bytes:
    return b"".join(path.read_bytes() for path in Path(folder).iterdir())


def change(folder: str, place: RecordPlace, offset: int, data: bytes) -> None:
    with open(segment_path(folder, place.segment), "r+b") as file:
        file.seek(place.offset + offset)
        file.write(data)


def header_and_payload(folder: str, place: RecordPlace) -> tuple[bytearray, bytearray]:
    data = Path(segment_path(folder, place.segment)).read_bytes()
    record = bytearray(data[place.offset : place.offset + place.length])
    return record[:RECORD_HEADER_SIZE], record[RECORD_HEADER_SIZE:]


def forge(folder: str, place: RecordPlace, header: bytearray, body: bytes) -> None:
    """Put a record there whose checksums are right."""
    struct.pack_into("<I", header, 8, crc32c(body))
    struct.pack_into("<I", header, 4, crc32c(bytes(header[8:])))
    change(folder, place, 0, bytes(header) + bytes(body))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "log")


@ALIGNMENTS
def test_records_come_back_and_none_lies_there_in_clear(folder: str, alignment: int) -> None:
    places = write(folder, alignment)
    assert read(folder) == [payload(number) for number in range(8)]
    for number, place in enumerate(places):
        path = segment_path(folder, place.segment)
        found = read_record(
            path, place.offset, expected_sequence=place.sequence, cipher=KEY.cipher("a log")
        )
        assert bytes(found.payload) == payload(number)
        assert found.place == place
    everything = bytes_of(folder)
    assert MARK not in everything
    assert MARK[:8] not in everything
    assert KEY.secret not in everything
    assert MARK in bytes_of(write_in_clear(folder, alignment))


def write_in_clear(folder: str, alignment: int) -> str:
    write(folder + "-clear", alignment, None)
    return folder + "-clear"


def test_equal_records_do_not_look_equal(folder: str) -> None:
    with LogWriter.create(folder, options=options(64), cipher=CIPHER) as writer:
        places = [writer.append(1, MARK) for _ in range(3)]
        writer.roll()
        places.append(writer.append(1, MARK))
    with LogWriter.create(folder, options=options(64), cipher=CIPHER) as writer:
        places.append(writer.append(1, MARK))
    bodies = {bytes(header_and_payload(folder, place)[1]) for place in places}
    assert len(bodies) == 5


@ALIGNMENTS
def test_damage_is_named_and_everything_else_is_read(folder: str, alignment: int) -> None:
    places = write(folder, alignment)
    change(folder, places[1], RECORD_HEADER_SIZE + 5, b"\xff\xee")
    damages: list[CorruptRecordError] = []
    found = list(LogReader.open(folder, cipher=CIPHER).records(on_damage=damages.append))
    assert [int(bytes(record.payload[:3])) for record in found] == [0, 2, 3, 4, 5, 6, 7]
    assert [(error.segment, error.offset) for error in damages] == [(1, places[1].offset)]


@pytest.mark.parametrize("what", ["bit", "kind", "sequence", "segment", "committed", "salt"])
def test_a_change_that_mends_the_checksums_is_found(folder: str, what: str) -> None:
    places = write(folder)
    victim = places[1]
    header, body = header_and_payload(folder, victim)
    if what == "bit":
        body[3] ^= 1
    else:
        at = {"kind": 12, "sequence": 24, "committed": 32, "segment": 48, "salt": 56}[what]
        header[at] ^= 1
    forge(folder, victim, header, body)
    with pytest.raises(CorruptRecordError):
        read_record(segment_path(folder, 1), victim.offset, cipher=CIPHER)
    with pytest.raises(CorruptRecordError) as error:
        read(folder)
    assert (error.value.segment, error.value.offset) == (1, victim.offset)


def test_the_last_record_when_it_was_changed_is_damage_and_no_torn_tail(folder: str) -> None:
    places = write(folder)
    header, body = header_and_payload(folder, places[-1])
    body[0] ^= 1
    forge(folder, places[-1], header, body)
    with pytest.raises(CorruptRecordError, match="does not decrypt") as error:
        read(folder)
    assert error.value.offset == places[-1].offset


def test_records_that_were_swapped_do_not_decrypt(folder: str) -> None:
    places = write(folder)
    first, second = places[0], places[2]
    one, two = header_and_payload(folder, first), header_and_payload(folder, second)
    # Each keeps the header that its place asks for.
    forge(folder, first, one[0], two[1])
    forge(folder, second, two[0], one[1])
    damages: list[CorruptRecordError] = []
    found = list(LogReader.open(folder, cipher=CIPHER).records(on_damage=damages.append))
    assert [record.sequence for record in found] == [2, 4, 5, 6, 7, 8]
    assert [error.offset for error in damages] == [first.offset, second.offset]


def test_a_segment_of_another_log_does_not_decrypt(folder: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    write(folder)
    write(other, cipher=KEY.cipher("another log"))
    shutil.copy(segment_path(other, 1), segment_path(folder, 1))
    with pytest.raises(CorruptRecordError, match="does not decrypt"):
        read(folder)


def test_another_key_is_told_from_damage_and_changes_nothing(folder: str) -> None:
    write(folder)
    before = bytes_of(folder)
    with pytest.raises(EncryptionMismatchError, match=KEY.key_id.hex()) as error:
        read(folder, EncryptionKey.generate().cipher("a log"))
    assert error.value.written_with == KEY.key_id
    assert bytes_of(folder) == before


def test_a_writer_with_another_key_that_wrote_nothing_does_no_harm(folder: str) -> None:
    write(folder)
    # A driver that is started with a wrong key takes the folder before it can read.
    LogWriter.create(
        folder, options=options(64), cipher=EncryptionKey.generate().cipher("x")
    ).close()
    LogWriter.create(folder, options=options(64)).close()
    assert read(folder) == [payload(number) for number in range(8)]


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_a_log_is_encrypted_throughout_or_not_at_all(folder: str, is_encrypted: bool) -> None:
    ciphers = (CIPHER, None) if is_encrypted else (None, CIPHER)
    [first, *_] = write(folder, cipher=ciphers[0])
    with pytest.raises(EncryptionMismatchError, match=r"spark\.io\.encryption\.enabled") as error:
        read(folder, ciphers[1])
    assert error.value.is_encrypted is is_encrypted
    with pytest.raises(EncryptionMismatchError):
        read_record(segment_path(folder, 1), first.offset, cipher=ciphers[1])
    # Somebody puts a record in clear among encrypted ones, or the reverse.
    with LogWriter.create(folder, options=options(64), cipher=ciphers[1]) as writer:
        writer.append(1, b"smuggled")
    with pytest.raises(EncryptionMismatchError):
        read(folder, ciphers[0])


def test_a_log_is_looked_after_without_its_key(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    places = write(folder, 4096)
    report = check(folder)
    assert (report.records, report.damages) == (8, ())
    assert [segment.key_id for segment in report.segments] == [KEY.key_id] * 2
    with open(segment_path(folder, 2), "r+b") as file:
        file.seek(places[-1].offset + RECORD_HEADER_SIZE)
        file.write(b"torn")
    assert [segment.torn for segment in repair(folder).segments] == [False, True]
    assert read(folder) == [payload(number) for number in range(7)]
    assert main(["wal", "check", folder]) == 0
    assert f"encrypted with key {KEY.key_id.hex()}" in capsys.readouterr().out
    assert main(["wal", "dump", "--payload", folder]) == 0
    assert "(encrypted)" in capsys.readouterr().out
    remove_log(folder)
    assert not Path(folder).exists()


def test_what_was_sealed_as_a_whole_before_is_still_read() -> None:
    sealed = CIPHER.seal(b"as a whole", b"its name")
    assert CIPHER.unseal(sealed, b"its name") == b"as a whole"
    assert CIPHER.unseal(memoryview(SEALED), b"its name") == b"as a whole"
    changed = bytes([*SEALED[:-1], SEALED[-1] ^ 1])
    for wrong, name in ((SEALED, b"another name"), (changed, b"its name"), (b"", b"its name")):
        with pytest.raises(CorruptRecordError, match="it does not decrypt"):
            CIPHER.unseal(wrong, name)


def test_a_key_is_not_shown_and_comes_from_text() -> None:
    text = base64.b64encode(KEY.secret).decode()
    assert EncryptionKey.from_text(f" {text}\n") == KEY
    assert pickle.loads(pickle.dumps(KEY)) == KEY
    for shown in (repr(KEY), str(KEY), repr(CIPHER), f"{KEY!r:>5}"):
        assert text not in shown
        assert repr(KEY.secret)[2:20] not in shown
    for bad in ("", "no base64!", text[:-4], base64.b64encode(bytes(31)).decode()):
        with pytest.raises(ValueError, match=r"base64|32 bytes") as error:
            EncryptionKey.from_text(bad)
        assert not bad or bad not in str(error.value)


def test_errors_travel() -> None:
    errors: list[WalError] = [
        EncryptionMismatchError("x", True, b"12345678", b"87654321"),
        EncryptionMismatchError("x", True),
    ]
    for error in errors:
        copy: Any = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ImportError, match=r"penstock\[encryption\]"):
        KEY.cipher("a log")
