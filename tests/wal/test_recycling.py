"""Files of removed segments are used again, and what they held never comes back."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.wal import (
    LogOptions,
    LogReader,
    LogWriteError,
    LogWriter,
    SyncPolicy,
    check,
    remove_log,
    segment_path,
)
from tests.wal.faulty_filesystem import FaultyFileSystem, SimulatedCrashError

FOLDER = "/data/streams/0"
DIRECT = LogOptions(segment_size=16 * 4096, alignment=4096)


def writer_on(fs: FaultyFileSystem) -> LogWriter:
    return LogWriter.create(FOLDER, fs=fs, options=DIRECT)


def payloads(fs: FaultyFileSystem) -> list[bytes]:
    return [bytes(record.payload) for record in LogReader.open(FOLDER, fs=fs).records()]


def with_a_recycled_segment(fs: FaultyFileSystem, held: int = 5) -> LogWriter:
    """Return a writer whose open segment, with one record, was one of `held` records before."""
    writer = writer_on(fs)
    for number in range(held):
        writer.append(1, b"old %d" % number)
    writer.roll()
    writer.append(1, b"between")
    writer.remove_segments([1])
    writer.roll()
    writer.append(1, b"new")
    assert fs.calls["reopen"] == 1
    return writer


def test_what_a_recycled_file_held_is_not_read(caplog: pytest.LogCaptureFixture) -> None:
    fs = FaultyFileSystem(direct=True)
    writer = with_a_recycled_segment(fs)
    assert payloads(fs) == [b"between", b"new"]
    fs.die()
    fs.restart(power_loss=True)
    assert payloads(fs) == [b"between", b"new"]
    assert check(FOLDER, fs=fs).damages == ()
    # Remains are no torn tail.
    assert "torn tail" not in caplog.text
    del writer


def test_a_torn_record_in_a_recycled_file_is_said(caplog: pytest.LogCaptureFixture) -> None:
    fs = FaultyFileSystem(direct=True)
    writer = with_a_recycled_segment(fs)
    place = writer.append(1, bytes(6000))
    fs.die()
    fs.restart(power_loss=False)
    fs.damage(segment_path(FOLDER, place.segment), place.offset + 4096, b"x" * 100)
    assert payloads(fs) == [b"between", b"new"]
    assert caplog.text.count("torn tail in segment 3") == 1


def test_damage_before_a_committed_record_of_a_recycled_file_is_an_error() -> None:
    fs = FaultyFileSystem(direct=True)
    writer = with_a_recycled_segment(fs)
    place = writer.append(1, b"damaged")
    writer.append(1, b"behind")
    fs.damage(segment_path(FOLDER, place.segment), place.offset, bytes(64))
    damages: list[object] = []
    reader = LogReader.open(FOLDER, fs=fs)
    found = [bytes(record.payload) for record in reader.records(on_damage=damages.append)]
    assert found == [b"between", b"new", b"behind"]
    assert len(damages) == 1


def test_a_closed_recycled_segment_has_its_own_end() -> None:
    fs = FaultyFileSystem(direct=True)
    writer = with_a_recycled_segment(fs)
    writer.close()
    segment = LogReader.open(FOLDER, fs=fs).segments[-1]
    assert (segment.closed, segment.record_count) == (True, 1)
    assert payloads(fs) == [b"between", b"new"]


def test_a_crash_anywhere_while_files_are_used_again_loses_nothing() -> None:
    for calls in range(10_000):
        for seed in range(3):
            fs = FaultyFileSystem(seed * 1000 + calls, direct=True)
            acknowledged: list[bytes] = []
            removed = 0
            fs.crash_after(calls)
            with contextlib.suppress(SimulatedCrashError):
                writer = writer_on(fs)
                for number in range(6):
                    writer.append(1, b"%d" % number)
                    acknowledged.append(b"%d" % number)
                    writer.roll()
                    removed = number
                    writer.remove_segments(range(number + 1))
                writer.close()
            survived = not fs.dead
            fs.restart(power_loss=True)
            found = payloads(fs) if fs.is_folder(FOLDER) else []
            assert found == sorted(found)
            assert set(acknowledged[removed:]) <= set(found) <= {b"%d" % n for n in range(6)}
        if survived:
            return
    raise AssertionError("the story has no end")


def test_a_spare_that_cannot_be_used_is_replaced_by_a_new_file() -> None:
    for call in ("reopen", "rename"):
        fs = FaultyFileSystem(direct=True)
        writer = writer_on(fs)
        writer.append(1, b"old")
        writer.roll()
        writer.append(1, b"between")
        writer.remove_segments([1])
        fs.fail_next(call)
        writer.roll()
        writer.append(1, b"new")
        assert payloads(fs) == [b"between", b"new"]


def assert_first_file_is_not_used_again(writer: LogWriter, fs: FaultyFileSystem) -> None:
    writer.append(1, b"between")
    assert writer.remove_segments([1]) is None
    writer.roll()
    writer.append(1, b"new")
    assert fs.calls["reopen"] == 0
    assert payloads(fs) == [b"between", b"new"]


@pytest.mark.parametrize("fails", ["write", "sync"])
def test_a_file_that_did_not_take_a_write_and_not_a_cut_is_not_used_again(fails: str) -> None:
    fs = FaultyFileSystem(direct=True)
    writer = writer_on(fs)
    writer.append(1, b"old")
    fs.fail_next(fails)
    for _ in range(3):
        fs.fail_next("truncate")
    with pytest.raises(LogWriteError):
        writer.append(1, b"failed")
    assert_first_file_is_not_used_again(writer, fs)


def test_a_file_whose_sync_failed_is_not_used_again() -> None:
    fs = FaultyFileSystem(direct=True)
    interval = replace(DIRECT, sync=SyncPolicy.INTERVAL, sync_interval_s=3600.0)
    writer = LogWriter.create(FOLDER, fs=fs, options=interval)
    writer.append(1, b"old")
    fs.fail_next("sync")
    with pytest.raises(LogWriteError):
        writer.sync()
    for _ in range(3):
        fs.fail_next("write_again")
    writer.roll()
    assert_first_file_is_not_used_again(writer, fs)


def test_no_spare_is_left_on_a_real_disk(tmp_path: Path) -> None:
    folder = str(tmp_path / "log")

    def spares() -> list[str]:
        return [name for name in os.listdir(folder) if name.endswith(".spare")]

    def make_spare() -> LogWriter:
        writer = LogWriter.create(folder, options=DIRECT)
        writer.append(1, b"old")
        writer.roll()
        writer.remove_segments(range(100))
        return writer

    writer = make_spare()
    if not writer.statistics().direct:
        pytest.skip("platform: no direct I/O here")
    assert len(spares()) == 1
    writer.close()
    assert spares() == []
    # One that a killed writer left goes when the next one begins, or with the log.
    for end in (lambda: LogWriter.create(folder, options=DIRECT).close(), None):
        make_spare()._lock.release()
        assert len(spares()) == 1
        if end is None:
            remove_log(folder)
            assert not os.path.exists(folder)
        else:
            end()
            assert spares() == []
