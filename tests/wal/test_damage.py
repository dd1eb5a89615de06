"""I6: a torn tail is not corruption, and corruption is named and stops nothing else."""

from __future__ import annotations

import errno
import os
import struct
from functools import partial
from pathlib import Path

import pytest
from crc32c import crc32c

from penstock.__main__ import main
from penstock.wal import (
    CorruptRecordError,
    LocalFileSystem,
    LogOptions,
    LogReader,
    LogWriter,
    RecordPlace,
    SyncPolicy,
    check,
    parse_record,
    repair,
    segment_path,
)
from penstock.wal._filesystem import LocalReadFile
from penstock.wal._segments.layout import KIND_END, pack_header, parse_segment_header
from tests.wal.faulty_filesystem import MeanwhileFileSystem
from tests.wal.records import read_record

OPTIONS = LogOptions(segment_size=1 << 16, alignment=64)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "log")


def write(folder: str, segments: int = 3, each: int = 4) -> list[RecordPlace]:
    """Write numbered records of 100 bytes and leave the last segment open, as a crash does."""
    writer = LogWriter.create(folder, options=OPTIONS)
    places = []
    for segment in range(segments):
        if segment:
            writer.roll()
        for _ in range(each):
            places.append(writer.append(1, b"%03d" % len(places) + b"x" * 97))
    writer._lock.release()  # what the death of the process does
    return places


def damage(folder: str, place: RecordPlace, offset: int, data: bytes = b"\xff\xee") -> None:
    with open(segment_path(folder, place.segment), "r+b") as file:
        file.seek(place.offset + offset)
        file.write(data)


def read(folder: str) -> tuple[list[int], list[CorruptRecordError]]:
    damages: list[CorruptRecordError] = []
    records = LogReader.open(folder).records(on_damage=damages.append)
    return [int(bytes(record.payload[:3])) for record in records], damages


@pytest.mark.parametrize("chunk", [*range(140, 1600, 64), 128, 1024])
def test_what_follows_damage_is_found_wherever_the_read_before_it_ends(
    folder: str, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr("penstock.wal._segments.reader._CHUNK", chunk)
    with LogWriter.create(folder, options=OPTIONS) as writer:
        first = writer.append(1, b"x" * 1000)
        for number in range(3):
            writer.append(1, b"%03d" % number)
    damage(folder, first, 10)
    numbers, damages = read(folder)
    assert numbers == [0, 1, 2]
    assert [error.offset for error in damages] == [first.offset]


@pytest.mark.parametrize("offset", [0, 5, 10, 20, 30, 45, 64, 163])
@pytest.mark.parametrize("victim", [0, 2, 3, 5, 9])
def test_damage_is_named_and_everything_else_is_read(folder: str, victim: int, offset: int) -> None:
    places = write(folder)
    damage(folder, places[victim], offset)
    numbers, damages = read(folder)
    assert numbers == [number for number in range(12) if number != victim]
    assert [(error.segment, error.offset) for error in damages] == [
        (places[victim].segment, places[victim].offset)
    ]
    with pytest.raises(CorruptRecordError):
        read_record(segment_path(folder, places[victim].segment), places[victim].offset)


class BadSectors(LocalFileSystem):
    """A disk of which the second 4096 bytes of each file cannot be read."""

    def open(self, path: str) -> LocalReadFile:
        return BadFile(path)


class BadFile(LocalReadFile):
    def read(self, offset: int, length: int) -> bytes:
        self._refuse(offset, length)
        return super().read(offset, length)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        self._refuse(offset, len(buffer))
        return super().read_into(offset, buffer)

    def _refuse(self, offset: int, length: int) -> None:
        if offset < 8192 and offset + length > 4096:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class BeingWritten(LocalFileSystem):
    """Shows nothing of one file, as HDFS does of one that is being written."""

    def __init__(self, number: int) -> None:
        self._name = os.path.basename(segment_path("", number))

    def open(self, path: str) -> LocalReadFile:
        if os.path.basename(path) == self._name:
            raise OSError(errno.EBUSY, "it is being written", path)
        return super().open(path)


def test_a_closed_segment_is_read_while_the_one_behind_it_is_being_written(folder: str) -> None:
    write(folder, segments=3)
    found = LogReader.open(folder, fs=BeingWritten(3), only=2).segment_records(2)
    assert [record.sequence for record in found] == [5, 6, 7, 8]
    with pytest.raises(OSError, match="being written"):
        LogReader.open(folder, fs=BeingWritten(2), only=2)
    # Of one without an index, the one behind it tells where it ends.
    os.truncate(segment_path(folder, 2), os.path.getsize(segment_path(folder, 2)) - 8)
    with pytest.raises(OSError, match="being written"):
        LogReader.open(folder, fs=BeingWritten(3), only=2)


def test_what_lies_around_a_place_that_the_disk_cannot_read_is_read(folder: str) -> None:
    places = write(folder, segments=2, each=100)
    # What was read before is not taken for it.
    assert len(list(LogReader.open(folder).records())) == 200
    whole = [
        number
        for number, place in enumerate(places)
        if place.offset + place.length <= 4096 or place.offset >= 8192
    ]
    damages: list[CorruptRecordError] = []
    records = LogReader.open(folder, fs=BadSectors()).records(on_damage=damages.append)
    assert [int(bytes(record.payload[:3])) for record in records] == whole
    assert [error.segment for error in damages] == [1, 2]


def test_damage_is_raised_after_every_readable_record(folder: str) -> None:
    places = write(folder)
    damage(folder, places[1], 70)
    damage(folder, places[6], 70)
    seen = []
    with pytest.raises(CorruptRecordError) as error:
        seen.extend(record.sequence for record in LogReader.open(folder).records())
    assert seen == [1, 3, 4, 5, 6, 8, 9, 10, 11, 12]
    assert (error.value.segment, error.value.offset) == (1, places[1].offset)
    assert [(each.segment, each.offset) for each in error.value.damages] == [
        (1, places[1].offset),
        (2, places[6].offset),
    ]
    assert "and 1 more" in str(error.value)
    with pytest.raises(CorruptRecordError) as error:
        list(LogReader.open(folder).segment_records(2))
    assert len(error.value.damages) == 1
    assert "more" not in str(error.value)
    assert len(list(LogReader.open(folder).segment_records(3))) == 4


def test_an_unreadable_segment_header_costs_that_segment_only(folder: str) -> None:
    places = write(folder)
    damage(folder, RecordPlace(2, 0, 0, 0), 70)
    numbers, damages = read(folder)
    assert numbers == [0, 1, 2, 3, 8, 9, 10, 11]
    assert [(error.segment, error.offset) for error in damages] == [(2, 0)]
    # Its records are still read by place.
    record = read_record(segment_path(folder, 2), places[5].offset, expected_sequence=6)
    assert record.payload[:3] == b"005"


def test_several_damaged_records_in_a_row_are_one_damaged_place(folder: str) -> None:
    places = write(folder)
    damage(folder, places[1], 0, b"\0" * (places[3].offset - places[1].offset))
    numbers, damages = read(folder)
    assert numbers == [0, *range(3, 12)]
    assert [error.offset for error in damages] == [places[1].offset]


def test_the_last_record_of_a_closed_segment_cannot_be_taken_for_a_torn_tail(folder: str) -> None:
    with LogWriter.create(folder, options=OPTIONS) as writer:
        places = [writer.append(1, b"%03d" % number) for number in range(3)]
    damage(folder, places[2], 64)
    numbers, damages = read(folder)
    assert numbers == [0, 1]
    assert len(damages) == 1


def test_a_cut_file_is_damage_when_a_later_segment_knows_the_records(folder: str) -> None:
    places = write(folder)
    with open(segment_path(folder, 1), "r+b") as file:
        file.truncate(places[2].offset + 80)
    numbers, damages = read(folder)
    assert numbers == [0, 1, *range(4, 12)]
    assert [(error.segment, error.offset) for error in damages] == [(1, places[2].offset)]


def test_the_last_record_cut_anywhere_is_a_torn_tail(folder: str) -> None:
    places = write(folder, segments=1)
    path = segment_path(folder, 1)
    with open(path, "rb") as file:
        whole = file.read()
    for length in range(places[-1].offset, places[-1].offset + places[-1].length):
        with open(path, "wb") as file:
            file.write(whole[:length] + bytes(4096))
        assert read(folder) == ([0, 1, 2], [])


def test_a_file_that_ends_in_the_middle_of_a_record_was_cut_and_that_is_damage(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had its full length before the record was written, so no crash leaves that."""
    places = write(folder, segments=2)
    path = segment_path(folder, 2)
    last = places[-1]
    with open(path, "rb") as file:
        whole = file.read()
    for length in range(last.offset + 1, last.offset + last.length):
        with open(path, "wb") as file:
            file.write(whole[:length])
        numbers, (error,) = read(folder)
        assert numbers == list(range(7))
        assert (error.segment, error.offset) == (2, last.offset)
        assert "somebody cut it short" in error.reason
    assert main(["wal", "check", folder]) == 1
    assert "segment 2: DAMAGED" in capsys.readouterr().out
    # All that is whole is kept, and the log goes on behind it.
    report = repair(folder)
    (action,) = report.actions
    assert "cut short" in action
    assert Path(path).stat().st_size == last.offset
    assert read(folder) == (list(range(7)), [])
    assert check(folder).damages == repair(folder).actions == ()
    with LogWriter.create(folder, options=OPTIONS) as writer:
        writer.append(1, b"007")
    assert read(folder) == (list(range(8)), [])


def test_a_file_that_ends_between_two_records_cannot_be_told_from_the_end_of_the_log(
    folder: str,
) -> None:
    places = write(folder, segments=1)
    with open(segment_path(folder, 1), "r+b") as file:
        file.truncate(places[-1].offset)
    assert read(folder) == ([0, 1, 2], [])


def test_a_cut_segment_that_is_damaged_elsewhere_too_is_put_aside_as_a_whole(folder: str) -> None:
    places = write(folder)
    damage(folder, places[9], 70)
    with open(segment_path(folder, 3), "r+b") as file:
        file.truncate(places[11].offset + 100)
    assert any("put aside" in action for action in repair(folder).actions)
    assert read(folder) == (list(range(8)), [])


def test_an_end_that_is_cut_off_costs_no_record(folder: str) -> None:
    with LogWriter.create(folder, options=OPTIONS) as writer:
        places = [writer.append(1, b"%03d" % number) for number in range(3)]
    end = places[-1].offset + 128
    with open(segment_path(folder, 1), "r+b") as file:
        file.truncate(end + 70)
    assert read(folder) == ([0, 1, 2], [])


def test_a_closed_segment_of_before_has_an_index_in_its_end_and_is_read(folder: str) -> None:
    with LogWriter.create(folder, options=OPTIONS) as writer:
        places = [writer.append(1, b"%03d" % number) for number in range(3)]
    path = segment_path(folder, 1)
    data = Path(path).read_bytes()
    end = places[-1].offset + 128
    header = parse_segment_header(memoryview(data))
    index = b"".join(struct.pack("<IHHQ", place.offset // 64, 1, 0, 3) for place in places)
    last = pack_header(crc32c(index), KIND_END, len(index), 4, 3, header.owner) + index
    Path(path).write_bytes(data[:end] + last.ljust(128, b"\0") + data[-64:])
    assert read(folder) == ([0, 1, 2], [])
    (segment,) = check(folder).segments
    assert (segment.closed, segment.records, segment.torn) == (True, 3, False)
    writer = LogWriter.create(folder, options=OPTIONS)
    writer.append(1, b"003")
    writer.close()
    assert read(folder) == ([0, 1, 2, 3], [])


def test_a_segment_that_its_living_writer_cuts_is_read_to_its_new_end(folder: str) -> None:
    """After a failed write; a reader that knew the old length only would ask for ever."""
    writer = LogWriter.create(folder, options=LogOptions(segment_size=16 << 20, alignment=64))
    places = [writer.append(1, bytes(100_000)) for _ in range(60)]
    records = LogReader.open(folder).records()
    assert next(records).sequence == 1
    with open(segment_path(folder, 1), "r+b") as file:
        file.truncate(-(-(places[-1].offset + places[-1].length) // 64) * 64)
    assert [record.sequence for record in records] == list(range(2, 61))
    writer._lock.release()


@pytest.mark.parametrize("count", [1, 3])
def test_what_a_living_writer_appends_while_it_is_read_is_no_damage_and_no_torn_tail(
    folder: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    with LogWriter.create(folder, options=OPTIONS) as writer:
        writer.append(1, b"one")
        records = LogReader.open(folder).records()
        assert next(records).sequence == 1
        # What the reader has of the segment is older now than what it looks at next.
        for _ in range(count):
            writer.append(1, b"more")
        assert [record.sequence for record in records] == list(range(2, count + 2))
    assert caplog.text == ""


@pytest.mark.parametrize("moment", range(1, 10))
def test_what_a_living_writer_releases_while_the_log_is_looked_at_is_left_out(
    folder: str, moment: int
) -> None:
    with LogWriter.create(folder, options=OPTIONS) as writer:
        for number in range(4):
            writer.append(1, b"%03d" % number)
            writer.roll()
        release = partial(writer.remove_segments, range(1, 4))
        report = check(folder, fs=MeanwhileFileSystem(moment, release))
        assert {segment.number for segment in report.segments} >= {4, 5}
        assert not report.damages
        assert not report.gaps
    assert read(folder) == ([3], [])
    # Whoever reads them all goes on, too.
    records = LogReader.open(folder).records()
    os.remove(segment_path(folder, 4))
    assert list(records) == []


def test_other_bytes_that_look_like_records_are_not_taken_for_records(folder: str) -> None:
    with LogWriter.create(folder, options=OPTIONS) as writer:
        inner = writer.append(1, b"inner")
    with open(segment_path(folder, 1), "rb") as file:
        image = file.read()
    # A log that carries another log's bytes, at aligned places, and is damaged just before.
    outer = folder + "-outer"
    with LogWriter.create(outer, options=OPTIONS) as writer:
        first = writer.append(1, bytes(64) + image)
        writer.append(1, b"end")
    damage(outer, first, 8)
    damages: list[CorruptRecordError] = []
    records = LogReader.open(outer).records(on_damage=damages.append)
    assert [bytes(record.payload) for record in records] == [b"end"]
    assert len(damages) == 1
    assert inner.sequence == 1


def test_a_wrong_place_or_sequence_is_never_a_wrong_record(folder: str) -> None:
    places = write(folder)
    path = segment_path(folder, places[0].segment)
    with pytest.raises(CorruptRecordError, match="sequence 1 where 7 was expected"):
        read_record(path, places[0].offset, expected_sequence=7)
    with pytest.raises(CorruptRecordError, match="no record begins here"):
        read_record(path, places[0].offset + 64)
    with pytest.raises(CorruptRecordError, match="only 0 bytes"):
        read_record(path, 1 << 30)
    with pytest.raises(FileNotFoundError):
        list(LogReader.open(folder).segment_records(99))


def test_parse_record_checks_what_lies_in_memory(folder: str) -> None:
    with LogWriter.create(folder, options=OPTIONS) as writer:
        place = writer.append(1, b"payload")
    with open(segment_path(folder, 1), "rb") as file:
        file.seek(place.offset)
        memory = bytearray(file.read())
    view = memoryview(memory)
    assert parse_record(view, expected_sequence=1) == b"payload"
    memory[66] ^= 1
    with pytest.raises(CorruptRecordError, match="payload checksum"):
        parse_record(view)
    assert len(parse_record(view, verify=False)) == 7
    memory[20] ^= 1
    with pytest.raises(CorruptRecordError, match="header checksum"):
        parse_record(view, verify=False)
    with pytest.raises(CorruptRecordError, match="only 10 bytes"):
        parse_record(view[:10])
    with pytest.raises(CorruptRecordError, match="cut short"):
        parse_record(memoryview(bytes(memory[:20]) + bytes([memory[20] ^ 1]) + memory[21:68]))


def test_none_reports_a_hole_among_written_records_as_damage(folder: str) -> None:
    writer = LogWriter.create(
        folder, options=LogOptions(segment_size=1 << 16, alignment=64, sync=SyncPolicy.NONE)
    )
    places = [writer.append(1, b"%03d" % number) for number in range(4)]
    writer._lock.release()
    damage(folder, places[1], 64)
    numbers, damages = read(folder)
    assert numbers == [0, 2, 3]
    assert len(damages) == 1


def test_repair_cuts_a_torn_tail_and_puts_a_damaged_segment_aside(folder: str) -> None:
    places = write(folder)
    damage(folder, places[5], 70)
    damage(folder, places[11], 70)
    before = check(folder)
    assert before.actions == ()
    assert [segment.torn for segment in before.segments] == [False, False, True]
    assert [len(segment.damages) for segment in before.segments] == [0, 1, 0]
    report = repair(folder)
    assert len(report.actions) == 2
    assert any("torn tail" in action for action in report.actions)
    assert any("put aside" in action for action in report.actions)
    after = check(folder)
    assert after.damages == ()
    assert after.records == 7
    assert not any(segment.torn for segment in after.segments)
    assert read(folder) == ([0, 1, 2, 3, 8, 9, 10], [])
    assert repair(folder).actions == ()
    assert Path(segment_path(folder, 2) + ".damaged").exists()


def test_the_command_counts_records_and_names_what_is_no_segment(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, segments=3, each=4)
    begun = Path(segment_path(folder, 4) + ".new")
    begun.touch()
    assert main(["wal", "check", folder]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split(", ")[2] for line in told if line.startswith("segment ")] == [
        "4 records"
    ] * 3
    assert f"{folder}: 3 segments, 12 records, 0 damaged places" in told
    assert f"{begun.name}: unfinished, never a segment" in told
