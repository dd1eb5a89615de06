"""Files that grow: each line once, whatever rotates them."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import logging
import logging.handlers
import lzma
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.sources.growing_files import GrowingFilesReceiver, _file, _receiver
from penstock.sources.growing_files._content import Content, PlainContent, open_content
from penstock.sources.growing_files._file import FileTable
from penstock.testing import RunningReceiver, crash_test, run_receiver
from tests.bounds import HANG_S

SOON = {"spark.streaming.blockInterval": "10ms", "spark.streaming.receiverRestartDelay": "10"}


class Continued(GrowingFilesReceiver):
    """One of a stream that has a position already."""

    def __init__(self, position: Any, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.position = position

    def onStart(self) -> None:
        if self.lastPosition is None:
            self.lastPosition = self.position
        super().onStart()


@contextlib.contextmanager
def reading(
    pattern: str | Path, *, after: Any = None, settings: Any = None, **named: Any
) -> Iterator[RunningReceiver]:
    receiver = Continued(after, str(pattern), **named)
    with run_receiver(receiver, settings={**SOON, **(settings or {})}) as running:
        yield running


def read_all(pattern: str | Path, count: int, *, after: Any = None) -> tuple[list[Any], Any]:
    """Let a receiver store what there is, and end; return the records, and where it stood."""
    with reading(pattern, after=after) as running:
        running.wait_for_records(count)
        running.stop()
        return running.records, running.position


def lines(first: int, end: int, name: str = "line") -> list[str]:
    return [f"{name} {number:05} of many that are written to a log" for number in range(first, end)]


def append(path: Path, *texts: str) -> None:
    with open(path, "a") as file:
        file.writelines(f"{text}\n" for text in texts)


def rotate(folder: Path, *how: str) -> None:
    """Run the real logrotate once, for app.log."""
    if shutil.which("logrotate") is None:
        pytest.skip("platform: no logrotate; the distribution has a package")
    configuration = folder.parent / "logrotate.conf"
    settings = "\n  ".join(("rotate 20", "missingok", "nomail", *how))
    user = "su root root\n" if os.getuid() == 0 else ""
    configuration.write_text(f"{user}{folder}/app.log {{\n  {settings}\n}}\n")
    configuration.chmod(0o644)
    state = folder.parent / "logrotate.state"
    command = ["logrotate", "-f", "-s", str(state), str(configuration)]
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=HANG_S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    where = tmp_path / "logs"
    where.mkdir()
    return where


def test_a_line_is_stored_when_it_has_ended(folder: Path) -> None:
    log = folder / "app.log"
    log.write_text("one\ntw")
    with reading(log) as running:
        assert running.wait_for_records(1) == ["one"]
        with open(log, "a") as file:
            file.write("o\nthree\nfo")
        assert running.wait_for_records(3) == ["one", "two", "three"]
        running.restart()
        running.wait_for_event("registered", 2)
        with open(log, "a") as file:
            file.write("ur\n")
        assert running.wait_for_records(4) == ["one", "two", "three", "four"]
        assert not running.errors


def test_a_writer_that_is_killed_in_the_middle_of_a_line_goes_on_in_it(folder: Path) -> None:
    log = folder / "app.log"
    writer = subprocess.Popen(["/bin/sh", "-c", f"printf 'one\\ntw' >> {log}; exec sleep 1000"])
    try:
        with reading(log) as running:
            assert running.wait_for_records(1) == ["one"]
            writer.kill()
            writer.wait(HANG_S)
            append(log, "o by its next start", "three")
            assert running.wait_for_records(3) == ["one", "two by its next start", "three"]
    finally:
        writer.kill()
        writer.wait(HANG_S)


class Rotated:
    """A log that a real handler writes, which notices when its file was renamed."""

    def __init__(self, folder: Path) -> None:
        self.handler = logging.handlers.WatchedFileHandler(folder / "app.log")
        self.written: list[str] = []

    def write(self, count: int) -> None:
        first = len(self.written)
        for text in lines(first, first + count):
            self.handler.emit(logging.makeLogRecord({"msg": text}))
            self.written.append(text)


@pytest.mark.parametrize(
    "how", [["create"], ["create", "compress"], ["create", "compress", "delaycompress"]]
)
@pytest.mark.parametrize("pattern", ["app.log*", "app.log"])
def test_a_log_that_logrotate_renames_is_stored_once(
    folder: Path, how: list[str], pattern: str
) -> None:
    log = Rotated(folder)
    with reading(folder / pattern) as running:
        for _ in range(4):
            log.write(50)
            running.wait_for_records(len(log.written))
            rotate(folder, *how)
            log.write(3)
        running.wait_for_records(len(log.written))
        running.stop()
        assert running.records == log.written


@pytest.mark.parametrize("how", [["copytruncate"], ["copytruncate", "compress"]])
def test_a_log_that_logrotate_copies_and_truncates_is_stored_once(
    folder: Path, how: list[str]
) -> None:
    log = folder / "app.log"
    written: list[str] = []
    with reading(folder / "app.log*") as running:
        for turn in range(4):
            written += lines(turn * 50, turn * 50 + 50)
            append(log, *written[turn * 50 :])
            if turn % 2:
                running.wait_for_records(len(written))
            rotate(folder, *how)
        running.wait_for_records(len(written))
        running.stop()
        assert sorted(running.records) == sorted(written)


@pytest.mark.parametrize(
    "how",
    [
        ["create"],
        ["create", "compress"],
        ["create", "compress", "delaycompress"],
        ["create", "dateext", "dateformat -%s", "extension .log"],
        ["copytruncate"],
        ["copytruncate", "compress"],
    ],
)
def test_rotations_while_no_receiver_runs_lose_nothing_and_double_nothing(
    folder: Path, how: list[str]
) -> None:
    log = folder / "app.log"
    append(log, *lines(0, 30))
    found, position = read_all(folder / "app*", 30)
    append(log, *lines(30, 40))
    for turn in range(3):
        rotate(folder, *(each.replace("%s", f"2026112{turn}") for each in how))
        append(log, *lines(40 + 10 * turn, 50 + 10 * turn))
    more, position = read_all(folder / "app*", 40, after=position)
    assert sorted(found + more) == lines(0, 70)
    append(log, *lines(70, 71))
    assert read_all(folder / "app*", 1, after=position)[0] == lines(70, 71)


def test_a_file_that_shrinks_or_is_written_over_is_read_from_its_beginning(folder: Path) -> None:
    log = folder / "app.log"
    append(log, *lines(0, 20))
    with reading(log) as running:
        running.wait_for_records(20)
        os.truncate(log, 0)
        append(log, "shorter")
        assert running.wait_for_records(21)[-1] == "shorter"
        with open(log, "r+") as file:  # the same inode, and more than before
            file.writelines(f"other {text}\n" for text in lines(0, 30))
            file.truncate()
        assert running.wait_for_records(51)[21:] == [f"other {text}" for text in lines(0, 30)]


def test_a_file_that_is_replaced_is_another_one(folder: Path) -> None:
    log = folder / "app.log"
    append(log, *lines(0, 20))
    with reading(log) as running:
        running.wait_for_records(20)
        for turn in range(1, 4):
            new = folder / "new"
            append(new, *lines(0, 25, f"file {turn}"))
            new.replace(log)
            running.wait_for_records(20 + 25 * turn)
        running.stop()
        others = [text for turn in range(1, 4) for text in lines(0, 25, f"file {turn}")]
        assert running.records == [*lines(0, 20), *others]


def test_an_inode_that_is_used_again_is_another_file(folder: Path) -> None:
    log = folder / "app.log"
    append(log, *lines(0, 20))
    found, position = read_all(log, 20)
    assert found == lines(0, 20)
    inode = log.stat().st_ino
    log.unlink()
    append(log, *lines(0, 30, "another"))
    # Whether the file system gives the same one again is its own choice.
    for entry in position.values():
        entry[2] = log.stat().st_ino if entry[2] == inode else entry[2]
    assert read_all(log, 30, after=position)[0] == lines(0, 30, "another")


def test_an_inode_that_another_name_has_now_is_another_file(folder: Path) -> None:
    """Two files were compressed and deleted while no receiver ran, and others have their inodes."""
    log, other, notes = folder / "app.log", folder / "other.log", folder / "notes.txt"
    append(log, *lines(0, 20))
    _, position = read_all(folder / "app.log*", 20)
    with gzip.open(folder / "app.log.1.gz", "wt") as packed:
        packed.write(log.read_text())
    log.rename(other)
    other.write_text("".join(f"{text}\n" for text in lines(0, 30, "another")))
    with reading(folder / "*.log*", after=position) as running:
        assert running.wait_for_records(30) == lines(0, 30, "another")
        running.stop()
        position = running.position
        assert running.records == lines(0, 30, "another")
    other.rename(notes)
    notes.write_text("".join(f"{text}\n" for text in lines(0, 40, "a note")))
    append(log, *lines(0, 5, "new"))
    with reading(folder / "*.log*", after=position) as running:
        assert running.wait_for_records(5) == lines(0, 5, "new")
        running.stop()
        assert running.records == lines(0, 5, "new")


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("is_running", [True, False])
def test_a_file_whose_first_lines_are_cut_off_is_gone_on_with(
    folder: Path, in_place: bool, is_running: bool
) -> None:
    log = folder / "app.log"
    append(log, *lines(0, 200))

    def cut() -> None:
        kept = "".join(log.read_text().splitlines(keepends=True)[50:])
        if in_place:
            log.write_text(kept)
        else:
            (folder / "new").write_text(kept)
            (folder / "new").replace(log)

    with reading(log) as running:
        running.wait_for_records(200)
        if is_running:
            cut()
            append(log, *lines(200, 210))
            running.wait_for_records(210)
        running.stop()
        found, position = running.records, running.position
    if not is_running:
        cut()
        append(log, *lines(200, 210))
        found += read_all(log, 10, after=position)[0]
    assert found == lines(0, 210)


def test_a_log_that_may_not_be_opened_by_its_new_name_is_read_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that rotation gives to another user; who runs the tests may open any."""

    def opened(path: str, go_on: Callable[[], object]) -> Content:
        if path.endswith(".1"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return open_content(path, go_on)

    monkeypatch.setattr(_receiver, "open_content", opened)
    log = folder / "app.log"
    append(log, "one")
    with reading(log) as running:
        running.wait_for_records(1)
        log.rename(folder / "app.log.1")
        append(folder / "app.log.1", "two")
        assert running.wait_for_records(2) == ["one", "two"]


def test_a_renamed_log_that_cannot_be_read_at_once_is_gone_on_with_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_readable = threading.Event()

    def opened(path: str, go_on: Callable[[], object]) -> Content:
        if path.endswith("other.log") and not is_readable.is_set():
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return open_content(path, go_on)

    append(folder / "app.log", *lines(0, 20))
    _, position = read_all(folder / "*.log", 20)
    monkeypatch.setattr(_receiver, "open_content", opened)
    (folder / "app.log").rename(folder / "other.log")
    append(folder / "other.log", *lines(20, 25))
    with reading(folder / "*.log", after=position) as running:
        running.wait_for_error("other.log cannot be read")
        is_readable.set()
        assert running.wait_for_records(5) == lines(20, 25)


def test_a_log_is_read_by_a_name_that_is_not_asked_for_as_long_as_it_grows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later_s = 0.0

    def now_s() -> float:
        return time.monotonic() + later_s

    monkeypatch.setattr(_receiver, "time", SimpleNamespace(monotonic=now_s))
    monkeypatch.setattr(_receiver, "FileTable", partial(FileTable, now_s=now_s))
    log, old = folder / "app.log", folder / "app.old"
    append(log, "line 0")
    with reading(log) as running:
        running.wait_for_records(1)
        log.rename(old)
        for number in range(1, 5):
            append(old, f"line {number}")
            assert running.wait_for_records(1 + number)[-1] == f"line {number}"
            later_s += 0.6 * _file.GONE_S


def test_a_log_that_moved_to_another_folder_is_gone_on_with_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_receiver, "_DISCOVER_S", 10 * HANG_S)
    log, old, new = folder / "app.log", folder / "old" / "app.log", folder / "new"
    old.parent.mkdir()
    append(log, "one")
    with reading(folder / "**" / "*.log") as running:
        running.wait_for_records(1)
        append(new, "first of the next")
        old.hardlink_to(log)
        new.replace(log)
        running.wait_for_records(2)
        append(old, "two")
        assert running.wait_for_records(3) == ["one", "first of the next", "two"]


def test_a_folder_that_appears_later_is_found(folder: Path) -> None:
    with reading(folder / "*/deep/**/*.log") as running:
        deep = folder / "a" / "deep" / "deeper"
        deep.mkdir(parents=True)
        append(deep / "app.log", "one")
        assert running.wait_for_records(1) == ["one"]
        append(folder / "a" / "deep" / "other.log", "two")
        assert running.wait_for_records(2) == ["one", "two"]


def test_files_of_the_same_content_are_all_stored_and_links_are_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_file, "_HOLD_S", 0.5)
    for number in range(5):
        append(folder / f"app-{number}.log", *lines(0, 10))
    os.link(folder / "app-0.log", folder / "linked.log")
    os.symlink(folder / "app-1.log", folder / "symbolic.log")
    with reading(folder / "*.log") as running:
        running.wait_for_records(50)
        append(folder / "app-0.log", "last")
        running.wait_for_records(51)
        running.stop()
        assert sorted(running.records) == sorted([*lines(0, 10) * 5, "last"])


def test_ten_thousand_files_are_stored_once_over_a_restart(folder: Path) -> None:
    count = 10_000
    for number in range(count):
        (folder / f"{number}.log").write_text(f"first line of {number}\n")
    with reading(folder / "*.log") as running:
        running.wait_for_records(count)
        running.restart()
        running.wait_for_event("registered", 2)
        for number in range(0, count, 10):
            append(folder / f"{number}.log", f"second line of {number}")
        running.wait_for_records(count + count // 10)
        running.stop()
        expected = [f"first line of {number}" for number in range(count)]
        expected += [f"second line of {number}" for number in range(0, count, 10)]
        assert sorted(running.records) == sorted(expected)
        assert not running.errors


def test_a_compressed_file_is_stored_when_it_is_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_receiver, "_QUIET_S", 0.1)
    whole = gzip.compress("".join(f"{text}\n" for text in lines(0, 1000)).encode())
    log = folder / "app.log.gz"
    log.write_bytes(whole[: len(whole) // 2])
    with reading(folder / "app.log*") as running:
        running.wait_for_error("ends early, or is damaged")
        assert running.records == []
        log.write_bytes(whole)
        assert running.wait_for_records(1000) == lines(0, 1000)


def test_a_compressed_file_that_was_read_may_be_deleted_and_no_error_is_told(folder: Path) -> None:
    packed = folder / "app.log.1.gz"
    packed.write_bytes(gzip.compress(b"one\n"))
    with reading(folder / "app.log*") as running:
        running.wait_for_records(1)
        packed.unlink()
        append(folder / "app.log", "two")
        assert running.wait_for_records(2) == ["one", "two"]
        assert not running.errors


def test_every_stream_of_a_compressed_file_is_read(folder: Path) -> None:
    def zstd(data: bytes) -> bytes:
        return pa.Codec("zstd").compress(data, asbytes=True)

    # Python 3.11's `lzma.open` ends at the zeros that `xz -dc` (5.4) passes over.
    skipped = (0x184D2A50).to_bytes(4, "little") + bytes([2, 0, 0, 0]) + b"no"
    packed = {
        "gz": gzip.compress(b"one\n") + bytes(512) + gzip.compress(b"two\n"),
        "bz2": bz2.compress(b"one\n") + bz2.compress(b"") + bz2.compress(b"two\n"),
        "xz": lzma.compress(b"one\n") + bytes(512) + lzma.compress(b"two\n") + bytes(4),
        "zst": zstd(b"one\n") + skipped + zstd(b"two\n") + skipped,
    }
    for suffix, data in packed.items():
        with reading(folder / f"app.log.{suffix}") as running:
            (folder / f"app.log.{suffix}").touch()
            (folder / f"app.log.{suffix}").write_bytes(data)
            assert running.wait_for_records(2) == ["one", "two"], suffix
            assert not running.errors


@pytest.mark.parametrize("suffix", ["bz2", "xz"])
def test_a_compressed_file_of_which_a_later_stream_is_damaged_is_told_and_not_stored(
    folder: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(_receiver, "_QUIET_S", 0.1)
    compress = bz2.compress if suffix == "bz2" else lzma.compress
    first, damaged = compress(b"one\n"), bytes([0xFF, *compress(b"two\n")[1:]])
    for data in (first + damaged, first + compress(b"")[:-1], first + bytes(3)):
        (folder / f"app.log.{suffix}").write_bytes(data)
        with reading(folder / "app.log*") as running:
            running.wait_for_error("ends early, or is damaged")
            assert running.records == []


def test_a_last_line_that_never_ended_is_a_dead_letter(folder: Path) -> None:
    (folder / "app.log.gz").write_bytes(gzip.compress(b"one\ntwo\nthr"))
    with reading(folder / "app.log*") as running:
        assert running.wait_for_records(2) == ["one", "two"]
        running.wait_for_error("never ended")
        running.stop()
        ((data, reason),) = running.discarded
        assert data == b"thr"
        assert "from 8 on, never ended" in reason


def test_a_line_that_is_too_long_is_a_dead_letter_and_the_rest_goes_on(folder: Path) -> None:
    log = folder / "app.log"
    with open(log, "w") as file:
        file.write("one\n" + "x" * 200_000)
    with reading(log, maxLine=65536) as running:
        running.wait_for_records(1)
        append(log, "y" * 100_000, "two")
        assert running.wait_for_records(2) == ["one", "two"]
        running.stop()
        ((data, reason),) = running.discarded
        assert data == b"x" * 65536
        assert "a line of 300001 bytes" in reason


def test_lines_may_be_columns_with_their_file_and_offset(folder: Path) -> None:
    (folder / "a.log").write_bytes(b"one\r\n\nthr\xffe\n")
    (folder / "b.log").write_bytes(b"other\n")
    with reading(folder / "*.log", columns=True) as running:
        assert running.wait_for_records(4) == [
            {"path": f"{folder}/a.log", "offset": 0, "value": "one"},
            {"path": f"{folder}/a.log", "offset": 5, "value": ""},
            {"path": f"{folder}/a.log", "offset": 6, "value": "thr�e"},
            {"path": f"{folder}/b.log", "offset": 0, "value": "other"},
        ]


def test_a_stream_may_begin_at_the_end_of_what_is_there(folder: Path) -> None:
    append(folder / "app.log", *lines(0, 20))
    with open(folder / "app.log", "a") as file:
        file.write("the line that is being ")
    with reading(folder / "*.log", start="end") as running:
        end_s = time.monotonic() + HANG_S
        while running.position is None and time.monotonic() < end_s:
            time.sleep(0.01)
        append(folder / "app.log", "written")
        append(folder / "later.log", "another")
        found = running.wait_for_records(2)
        assert sorted(found) == ["another", "the line that is being written"]


def test_the_end_of_many_files_is_kept_over_a_restart(folder: Path) -> None:
    count = 700  # more than may be open, and more than one block's position takes
    for number in range(count):
        append(folder / f"{number}-of-many-files-of-an-application.log", "there at first")
    with reading(folder / "*.log", start="end") as running:
        end_s = time.monotonic() + HANG_S
        while len(running.position or ()) < count or _receiver._BEGINS in running.position:
            assert time.monotonic() < end_s
            time.sleep(0.01)
        running.restart()
        running.wait_for_event("registered", 2)
        for number in range(count):
            append(folder / f"{number}-of-many-files-of-an-application.log", f"new {number}")
        found = running.wait_for_records(count)
        assert sorted(found) == sorted(f"new {number}" for number in range(count))


def test_a_start_at_the_end_that_was_killed_half_way_begins_there_again(folder: Path) -> None:
    append(folder / "app.log", "there at first")
    position = {_receiver._BEGINS: True}
    with reading(folder / "*.log", start="end", after=position) as running:
        end_s = time.monotonic() + HANG_S
        while len(running.position or ()) != 1 or _receiver._BEGINS in running.position:
            assert time.monotonic() < end_s
            time.sleep(0.01)
        append(folder / "app.log", "new")
        assert running.wait_for_records(1) == ["new"]


def test_a_copy_that_is_seen_together_with_its_original_is_not_stored_again(folder: Path) -> None:
    log = folder / "app.log"
    append(log, *lines(0, 50))
    shutil.copy(log, folder / "app.log.1")
    with reading(folder / "app.log*") as running:
        running.wait_for_records(50)
        log.write_text("")
        append(log, "after it was truncated")
        assert running.wait_for_records(51) == [*lines(0, 50), "after it was truncated"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_file_that_is_truncated_grown_and_compressed_between_looks_is_stored_once(
    folder: Path, kept: bool
) -> None:
    log, copy, packed = folder / "app.log", folder / "app.log.2", folder / "app.log.1.gz"
    append(log, *lines(0, 20))
    with reading(folder / "app.log*") as running:
        running.wait_for_records(20)
        shutil.copy(log, copy)
        os.truncate(log, 0)
        append(log, *lines(20, 60))
        packed.write_bytes(gzip.compress(log.read_bytes()))
        if not kept:
            log.unlink()
        append(folder / "app.log.3", "last")
        # A look at the files after that one would store them again.
        for more in range(3):
            running.wait_for_records(61 + more)
            append(folder / "app.log.3", f"more {more}")
        found = running.wait_for_records(64)
    assert sorted(found) == sorted([*lines(0, 60), "last", *(f"more {n}" for n in range(3))])


@pytest.mark.parametrize("became", ["truncated", "deleted"])
def test_a_copy_is_gone_on_with_if_its_original_has_just_changed(folder: Path, became: str) -> None:
    """It is looked at after the original, of which the look has seen nothing yet."""
    log, copy = folder / "app.log", folder / "app.log.1"
    append(log, *lines(0, 50))
    table = FileTable(None, lambda path: open_content(path, lambda: None))
    file = table.meet(str(log), open_content(str(log), lambda: None))
    assert file is not None
    table.went_on(file, memoryview(log.read_bytes()))
    shutil.copy(log, copy)
    if became == "truncated":
        log.write_text("another")
    else:
        file.close()
        log.unlink()
    assert table.meet(str(copy), open_content(str(copy), lambda: None)) is None
    if became == "truncated":
        table.renew(file)
    else:
        table.lost(file)
    assert table.meet(str(copy), open_content(str(copy), lambda: None)) is file
    assert file.place == copy.stat().st_size


def test_what_begins_a_file_is_known_though_it_was_truncated_while_it_was_read(
    folder: Path,
) -> None:
    log, copy = folder / "app.log", folder / "app.log.1"
    append(log, *lines(0, 50))
    table = FileTable(None, lambda path: open_content(path, lambda: None))
    file = table.meet(str(log), open_content(str(log), lambda: None))
    assert file is not None
    data = log.read_bytes()
    shutil.copy(log, copy)
    log.write_text("another\n" * 50)
    for part in (data[:100], data[100:200], data[200:]):
        table.went_on(file, memoryview(part))
    table.renew(file)
    assert table.meet(str(copy), open_content(str(copy), lambda: None)) is file


def test_a_deleted_file_that_is_open_is_read_to_its_end_however_much_is_left(
    folder: Path,
) -> None:
    log, count = folder / "app.log", 100_000
    append(log, "first")
    with reading(
        log, maxLine=64 << 10, settings={"spark.streaming.blockQueueSize": "2"}
    ) as running:
        running.wait_for_records(1)
        running.hold()
        append(log, *lines(0, count))
        log.unlink()
        running.go_on()
        assert running.wait_for_records(1 + count)[1:] == lines(0, count)


def test_a_file_that_cannot_be_read_is_told_once_and_lets_others_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bad(PlainContent):
        """There is no real disk here with a sector that cannot be read."""

        is_bad = True

        def read_into(self, place: int, view: memoryview, before: int = 0) -> tuple[bytes, int]:
            if self.is_bad and len(view) > 1024:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().read_into(place, view, before)

    def opened(path: str, go_on: Callable[[], object]) -> Content:
        return Bad(path) if path.endswith("bad.log") else open_content(path, go_on)

    monkeypatch.setattr(_receiver, "open_content", opened)
    append(folder / "bad.log", "read in the end")
    append(folder / "good.log", "one")
    with reading(folder / "*.log") as running:
        running.wait_for_error("bad.log cannot be read")
        assert running.wait_for_records(1) == ["one"]
        append(folder / "good.log", "two")
        assert running.wait_for_records(2) == ["one", "two"]
        Bad.is_bad = False
        assert running.wait_for_records(3) == ["one", "two", "read in the end"]
        assert len(running.errors) == 1


def test_what_cannot_be_read_leaves_no_file_open(folder: Path) -> None:
    bad = Path("/sys/class/net/lo/speed")  # there, and an error when it is read
    if not bad.exists():
        pytest.skip("platform: no /sys/class/net/lo/speed")
    table = FileTable(None, lambda path: open_content(path, lambda: None))
    content = open_content(str(bad), lambda: None)
    with pytest.raises(OSError, match="Invalid argument"):
        table.meet(str(bad), content)
    with pytest.raises(OSError, match="Bad file"):
        content.length()


def test_a_pattern_that_no_file_matches_is_told(folder: Path) -> None:
    with reading(folder / "ap.log") as running:
        assert f"No file matches {folder}/ap.log yet" in running.wait_for_error("No file")
        append(folder / "ap.log", "one")
        assert running.wait_for_records(1) == ["one"]
        assert len(running.errors) == 1


def test_a_pattern_that_only_folders_match_is_told(folder: Path) -> None:
    (folder / "logs").mkdir()
    with reading(f"{folder}/logs/") as running:
        running.wait_for_error(f"{folder}/logs/ matches folders only: to read files in them")


def test_blocks_that_are_small_take_what_fits(folder: Path) -> None:
    append(folder / "app.log", *lines(0, 5000))
    settings = {"spark.penstock.block.maxSize": "100k", "spark.penstock.memory.size": "2m"}
    with reading(folder / "app.log", settings=settings) as running:
        assert running.wait_for_records(5000) == lines(0, 5000)
        assert not running.errors


def test_a_file_that_may_not_be_read_is_told_once(folder: Path) -> None:
    (folder / "loop.log").symlink_to(folder / "loop.log")
    append(folder / "app.log", "one")
    with reading(folder / "*.log") as running:
        running.wait_for_error("loop.log cannot be looked at")
        assert running.wait_for_records(1) == ["one"]
        (folder / "loop.log").unlink()
        append(folder / "loop.log", "two")
        assert running.wait_for_records(2) == ["one", "two"]
        assert len(running.errors) == 1


@pytest.mark.parametrize(
    "wrong", [{"patterns": []}, {"patterns": "relative.log"}, {"start": "middle"}]
)
def test_arguments_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not accepted"):
        GrowingFilesReceiver(**{"patterns": "/var/log/app.log", **wrong})


class Writing:
    """Some logs that a thread writes and rotates, in ways that lose nothing by themselves."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.written: list[str] = []
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        for turn in range(25):
            if self.done.is_set():
                return
            for name in ("app", "other"):
                texts = lines(turn * 20, turn * 20 + 20, name)
                append(self.folder / f"{name}.log", *texts)
                self.written += texts
            if turn % 6 == 5:
                self.rotate()
            self.done.wait(0.1)

    def rotate(self) -> None:
        log = self.folder / "app.log"
        how = self.chance.choice(["rename", "copy", "compress"])
        for number in range(8, 0, -1):
            for suffix in ("", ".gz"):
                with contextlib.suppress(FileNotFoundError):
                    old = self.folder / f"app.log.{number}{suffix}"
                    old.rename(self.folder / f"app.log.{number + 1}{suffix}")
        first = self.folder / "app.log.1"
        if how == "copy":
            shutil.copy(log, first)
            os.truncate(log, 0)
            return
        log.rename(first)
        if how == "compress":
            subprocess.run(["gzip", str(first)], check=True, timeout=HANG_S)

    def expected(self) -> list[str]:
        return [text for name in ("app", "other") for text in lines(0, 500, name)]


# So slow that there are several blocks, also where a process takes seconds to start.
SLOW = {"spark.streaming.blockInterval": "20ms", "spark.streaming.receiver.maxRate": "300"}


def logs_that_rotate(tmp_path: Path) -> Callable[[], Any]:
    seeds = iter(range(1000))

    @contextlib.contextmanager
    def opened() -> Iterator[Writing]:
        seed = next(seeds)
        folder = tmp_path / f"round-{seed}"
        folder.mkdir()
        writing = Writing(folder, seed)
        try:
            yield writing
        finally:
            writing.done.set()
            writing.thread.join(HANG_S)

    return opened


@pytest.mark.exhaustive  # `test_every_source` kills one, and rotations are above.
def test_each_line_is_stored_once_over_kills_and_rotations(tmp_path: Path) -> None:
    crash_test(
        lambda source: GrowingFilesReceiver(str(source.folder / "*.log*")),
        logs_that_rotate(tmp_path),
        claim="exactly once",
        kills=2,
        seed=7,
        settings=SLOW,
    )


# The test above does it with fewer.
@pytest.mark.exhaustive
@pytest.mark.slow
def test_each_line_is_stored_once_over_many_kills_and_rotations(tmp_path: Path) -> None:
    report = crash_test(
        lambda source: GrowingFilesReceiver(str(source.folder / "*.log*")),
        logs_that_rotate(tmp_path),
        claim="exactly once",
        kills=20,
        settings=SLOW,
    )
    assert sum(report.kills.values()) >= 20


def test_what_is_in_the_place_of_a_file_is_of_its_split(folder: Path) -> None:
    log = folder / "app.log"
    append(log, *lines(0, 50))
    table = FileTable({"q\x007": ["/q", 1, 2, 3, b"", b"", 4]}, partial(open_content, go_on=int))
    file = table.meet(str(log), open_content(str(log), int), "p")
    assert file is not None
    assert (file.name, file.split) == ("p\x008", "p")
    assert file.content is not None
    table.stand_at(file, file.content, 100)
    log.write_text("another\n")
    new = table.renew(file)
    assert new is not None
    assert (new.name, new.split) == ("p\x009", "p")
    table.forget(new)
    assert table.changed == {"p\x008": file, "p\x009": None}
