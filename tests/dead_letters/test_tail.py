"""Reading on in dead letters while they are written."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from penstock.dead_letters import DeadLetterPlace, DeadLetterWriter, LetterTail
from penstock.wal import EncryptionKey

MUCH = 1 << 30


class Log:
    """The dead letters of one attempt."""

    def __init__(self, folder: Path, stream: int, digit: str, **options: object) -> None:
        place = DeadLetterPlace(str(folder), stream, digit * 32, "Gauge", "here", **options)  # type: ignore[arg-type]
        self.name = place.name
        self._writer = DeadLetterWriter(place, tell=lambda message, error: None)

    def write(self, *records: bytes) -> None:
        for record in records:
            self._writer.add(record, ValueError(), "")
        self._writer.write()

    def close(self) -> None:
        self._writer.close()


class Reader:
    """A tail, with where it stands."""

    def __init__(self, folder: Path, key: EncryptionKey | None = None) -> None:
        self.told: list[str] = []
        self.tail = LetterTail(str(folder), key, but=9, tell=self.told.append)
        self.after: dict[str, int] = {}

    def read(self, most: int = 1000, most_bytes: int = MUCH) -> list[bytes]:
        found, self.after = self.tail.read(self.after, most=most, most_bytes=most_bytes)
        return [stored.letter.data for stored in found]


def test_what_comes_is_read_once_from_all_logs_but_those_of_its_own_stream(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    assert reader.read() == []
    first, second, own = Log(tmp_path, 0, "a"), Log(tmp_path, 1, "b"), Log(tmp_path, 9, "c")
    first.write(b"1", b"2")
    own.write(b"own")
    assert reader.read() == [b"1", b"2"]
    second.write(b"3")
    first.write(b"4")
    assert reader.read() == [b"4", b"3"]
    assert reader.read() == []
    first.close()
    assert reader.read() == []
    assert reader.told == []


def test_it_is_bounded_by_number_and_size(tmp_path: Path) -> None:
    Log(tmp_path, 0, "a").write(*(bytes([number]) * 100 for number in range(7)))
    reader = Reader(tmp_path)
    assert [each[0] for each in reader.read(most=3)] == [0, 1, 2]
    assert [each[0] for each in reader.read(most_bytes=150)] == [3, 4]
    assert [each[0] for each in reader.read()] == [5, 6]


def test_what_a_bound_left_is_read_next_also_of_a_log_that_is_not_written_any_more(
    tmp_path: Path,
) -> None:
    # It has several segments.
    log = Log(tmp_path, 0, "a")
    for number in range(24):
        log.write(bytes([number]) * 10_000)
    log.close()
    assert len(list((tmp_path / log.name).iterdir())) > 3
    for path in (tmp_path / log.name).iterdir():
        os.utime(path, (1, 1))
    for most in (1, 7):
        reader = Reader(tmp_path)
        found = [reader.read(most=most) for _ in range(0, 25, most)]
        assert [data[0] for part in found for data in part] == list(range(24))
        assert max(map(len, found)) == most


def test_what_is_written_without_another_time_is_read(tmp_path: Path) -> None:
    log = Log(tmp_path, 0, "a")
    reader = Reader(tmp_path)
    # The clock of files has not moved on since then, nor has that of this test.
    now_ns = time.time_ns() + 60_000_000_000
    for number in range(3):
        log.write(bytes([number]))
        for path in (tmp_path / log.name).iterdir():
            os.utime(path, ns=(now_ns, now_ns))
        assert reader.read() == [bytes([number])]


def test_a_log_that_is_not_written_any_more_is_not_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path, 0, "a")
    log.write(b"1")
    for path in (tmp_path / log.name).iterdir():
        os.utime(path, (1, 1))
    reader = Reader(tmp_path)
    assert reader.read() == [b"1"]
    with monkeypatch.context() as patched:
        patched.delattr("penstock.dead_letters._tail.open_log")
        assert reader.read() == []
    log.write(b"2")
    assert reader.read() == [b"2"]


def test_the_same_is_read_again_up_to_a_place_as_far_as_it_is_there(tmp_path: Path) -> None:
    first, second = Log(tmp_path, 0, "a"), Log(tmp_path, 1, "b")
    first.write(b"1", b"2")
    reader = Reader(tmp_path)
    reader.read()
    before = dict(reader.after)
    first.write(b"3")
    second.write(b"4")
    reader.read()
    upto = dict(reader.after)
    first.write(b"5")
    again = reader.tail.read(before, most=10, most_bytes=MUCH, upto=upto).letters
    assert [stored.letter.data for stored in again] == [b"3", b"4"]
    shutil.rmtree(tmp_path / first.name)
    again = reader.tail.read(before, most=10, most_bytes=MUCH, upto=upto).letters
    assert [stored.letter.data for stored in again] == [b"4"]


def test_its_end_is_where_later_letters_begin(tmp_path: Path) -> None:
    log = Log(tmp_path, 0, "a")
    log.write(b"1")
    reader = Reader(tmp_path)
    reader.after = reader.tail.end()
    assert reader.read() == []
    log.write(b"2")
    assert reader.read() == [b"2"]


def test_what_cannot_be_read_is_told_and_read_when_it_can(tmp_path: Path) -> None:
    key = EncryptionKey(bytes(32))
    encrypted = Log(tmp_path, 0, "a", encryption=key)
    encrypted.write(b"1")
    Log(tmp_path, 1, "b", encryption=key).write(b"2")
    wrong = Reader(tmp_path)
    assert wrong.read() == []
    assert "encrypted" in wrong.told[0]
    assert Reader(tmp_path, key).read() == [b"1", b"2"]
    moved = tmp_path.with_name("moved")
    reader = Reader(tmp_path, key)
    reader.read()
    tmp_path.rename(moved)
    tmp_path.write_text("no folder")
    assert reader.read() == []
    tmp_path.unlink()
    assert reader.read() == []
    moved.rename(tmp_path)
    encrypted.write(b"3")
    assert reader.read() == [b"3"], "what was read before does not come again"
