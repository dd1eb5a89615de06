"""Appending: places, policies, group commit, rolling, options, statistics."""

from __future__ import annotations

import errno
import fcntl
import logging
import mmap
import os
import shutil
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import SettingError
from penstock.runtime.clock import ManualClock
from penstock.settings import Settings
from penstock.wal import (
    RECORD_HEADER_SIZE,
    TAG_SIZE,
    AppendTooLargeError,
    LocalFileSystem,
    LogClosedError,
    LogLostError,
    LogOptions,
    LogReader,
    LogWriteError,
    LogWriter,
    SyncPolicy,
    parse_record,
    remove_log,
    segment_path,
)
from tests.bounds import HANG_S
from tests.wal.faulty_filesystem import FaultyFileSystem
from tests.wal.records import read_record

WAIT_S = HANG_S
SMALL = LogOptions(segment_size=1 << 16, alignment=64)
DIRECT = LogOptions(segment_size=1 << 22, alignment=4096)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "new" / "log")


@pytest.mark.parametrize("policy", SyncPolicy)
@pytest.mark.parametrize("options", [SMALL, DIRECT])
def test_what_is_appended_is_read_back_in_order(
    folder: str, policy: SyncPolicy, options: LogOptions
) -> None:
    options = LogOptions(options.segment_size, options.alignment, policy, sync_interval_s=0.001)
    slot = memoryview(mmap.mmap(-1, 1 << 20))
    slot[64 : 64 + 900_000] = bytes(range(250)) * 3600
    written = []
    with LogWriter.create(folder, options=options) as writer:
        for number in range(50):
            payload = b"%d" % number * number
            written.append((writer.append(number, payload), number, payload))
        places = writer.append_many([(1, b"a"), (2, [b"b", bytearray(b"c")]), (3, b"")])
        written += zip(places, (1, 2, 3), (b"a", b"bc", b""), strict=True)
        place = writer.append_slot(9, slot, 900_000)
        written.append((place, 9, bytes(range(250)) * 3600))
        assert parse_record(slot, expected_sequence=place.sequence) == written[-1][2]
        assert writer.append_many([]) == []
    found = [
        (record.place, record.kind, bytes(record.payload))
        for record in LogReader.open(folder).records()
    ]
    assert found == written
    assert [place.sequence for place, _, _ in written] == list(range(1, len(written) + 1))
    assert all(place.offset % options.alignment == 0 for place, _, _ in written)
    for place, kind, payload in written:
        path = segment_path(folder, place.segment)
        record = read_record(path, place.offset, expected_sequence=place.sequence)
        assert (record.kind, record.payload, record.place) == (kind, payload, place)


def test_records_that_are_kept_stay_what_they_are_while_others_are_read(folder: str) -> None:
    sizes = [3 << 20, 10, 5 << 20, 5 << 20, 100, 1 << 20, 7 << 20, 0, 2 << 20, 2 << 20, 2 << 20]
    with LogWriter.create(folder, options=LogOptions(segment_size=16 << 20)) as writer:
        for number, size in enumerate(sizes, 1):
            writer.append(1, bytes([number]) * size)
    kept = list(LogReader.open(folder).records())
    assert [len(record.payload) for record in kept] == sizes
    for number, record in enumerate(kept, 1):
        assert record.payload == bytes([number]) * len(record.payload)


def test_files_and_folders_are_private_to_the_user(folder: str) -> None:
    with LogWriter.create(folder, options=SMALL) as writer:
        writer.append(1, b"x")
    paths = [Path(folder), Path(folder).parent, *Path(folder).iterdir()]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert modes == {0o700, 0o600}


def test_many_threads_share_syncs_and_none_is_lost() -> None:
    fs = FaultyFileSystem()
    gate = threading.Barrier(16)

    writer = LogWriter.create("/log", fs=fs, options=SMALL)
    places: dict[bytes, int] = {}

    def run(thread: int) -> None:
        gate.wait(WAIT_S)
        for number in range(30):
            payload = b"%d-%d" % (thread, number)
            places[payload] = writer.append(1, payload).sequence

    threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    fs.die()
    fs.restart(power_loss=True)
    found = {
        bytes(record.payload): record.sequence for record in LogReader.open("/log", fs=fs).records()
    }
    assert found == places
    assert len(found) == 480


class HeldFileSystem(FaultyFileSystem):
    """A disk whose syncs wait until the test lets them go on."""

    def __init__(self) -> None:
        super().__init__()
        self.held = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def _call(self, name: str) -> threading.RLock:
        if name == "sync" and not self.go_on.is_set():
            self.held.set()
            assert self.go_on.wait(WAIT_S)
        return super()._call(name)


def start_appends(writer: LogWriter, count: int, results: list[object]) -> list[threading.Thread]:
    def run(number: int) -> None:
        try:
            results.append(writer.append(1, b"%d" % number))
        except LogWriteError as error:
            results.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def wait_until_queued(writer: LogWriter, count: int) -> None:
    with writer._turn:
        for _ in range(2000):
            if len(writer._queue) >= count:
                return
            writer._turn.wait(0.01)
    raise AssertionError("the appends were not queued in time")


def test_appends_that_come_during_a_sync_share_the_next_one() -> None:
    fs = HeldFileSystem()
    writer = LogWriter.create("/log", fs=fs, options=SMALL)
    results: list[object] = []
    fs.go_on.clear()
    threads = start_appends(writer, 1, results)
    assert fs.held.wait(WAIT_S)
    threads += start_appends(writer, 10, results)
    wait_until_queued(writer, 10)
    before = fs.calls["sync"]
    fs.go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(results) == 11
    assert fs.calls["sync"] - before == 2
    assert writer.statistics().writes == 2


def test_a_failed_sync_fails_every_append_that_shared_it_and_no_other() -> None:
    fs = HeldFileSystem()
    writer = LogWriter.create("/log", fs=fs, options=SMALL)
    writer.append(1, b"before")
    results: list[object] = []
    fs.go_on.clear()
    threads = start_appends(writer, 1, results)
    assert fs.held.wait(WAIT_S)
    fs.fail_next("sync")
    fs.go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert isinstance(results[0], LogWriteError)
    assert isinstance(results[0].__cause__, OSError)
    writer.append(1, b"after")
    found = [bytes(record.payload) for record in LogReader.open("/log", fs=fs).records()]
    assert found == [b"before", b"after"]
    statistics = writer.statistics()
    assert (statistics.failures, statistics.segments_abandoned) == (1, 1)


def test_a_slot_and_small_appends_in_one_write_are_all_forced() -> None:
    for seed in range(20):
        fs = HeldFileSystem()
        fs.chance.seed(seed)
        writer = LogWriter.create("/log", fs=fs, options=SMALL)
        results: list[object] = []
        fs.go_on.clear()
        threads = start_appends(writer, 1, results)
        assert fs.held.wait(WAIT_S)
        slot = memoryview(mmap.mmap(-1, 4096))
        slot[64:68] = b"slot"
        threads += start_appends(writer, 2, results)
        wait_until_queued(writer, 2)
        threads.append(threading.Thread(target=writer.append_slot, args=(2, slot, 4)))
        threads[-1].start()
        wait_until_queued(writer, 3)
        threads += start_appends(writer, 2, results)
        wait_until_queued(writer, 5)
        fs.go_on.set()
        for thread in threads:
            thread.join(WAIT_S)
        fs.die()
        fs.restart(power_loss=True)
        assert len(list(LogReader.open("/log", fs=fs).records())) == 6


def test_closing_commits_what_is_queued_and_begins_nothing_new() -> None:
    for _ in range(20):
        fs = FaultyFileSystem()
        writer = LogWriter.create("/log", fs=fs, options=SMALL)
        results: list[object] = []
        with writer._lead("the test"):
            threads = [threading.Thread(target=writer.close)]
            threads += start_appends(writer, 3, results)
            wait_until_queued(writer, 3)
            threads[0].start()
        for thread in threads:
            thread.join(WAIT_S)
        assert len(results) == 3
        assert len(list(LogReader.open("/log", fs=fs).records())) == 3
        assert [segment.closed for segment in LogReader.open("/log", fs=fs).segments] == [True]


def test_an_append_does_not_wait_for_a_stalled_disk_for_ever() -> None:
    fs = HeldFileSystem()
    options = LogOptions(segment_size=1 << 16, alignment=64, stall_timeout_s=0.05)
    writer = LogWriter.create("/log", fs=fs, options=options)
    results: list[object] = []
    fs.go_on.clear()
    threads = start_appends(writer, 1, results)
    assert fs.held.wait(WAIT_S)
    with pytest.raises(LogWriteError, match=r"/log could not be written: waited 0\.1 s"):
        writer.append(1, b"never queued for good")
    fs.go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    writer.append(1, b"goes on")
    found = [bytes(record.payload) for record in LogReader.open("/log", fs=fs).records()]
    assert found == [b"0", b"goes on"]


def test_the_interval_policy_syncs_by_a_thread_that_ends_with_the_log() -> None:
    fs = FaultyFileSystem()
    clock = ManualClock()
    options = LogOptions(segment_size=1 << 16, alignment=64, sync=SyncPolicy.INTERVAL)
    before = set(threading.enumerate())
    writer = LogWriter.create("/data/log", fs=fs, options=options, clock=clock)
    (own,) = (
        thread
        for thread in set(threading.enumerate()) - before
        if thread.name == "penstock-wal-sync-log"
    )
    writer.append(1, b"x")
    assert writer.statistics().committed_sequence == 0
    for _ in range(2000):
        clock.advance(50)
        if writer.statistics().committed_sequence == 1:
            break
        threading.Event().wait(0.01)
    assert writer.statistics().committed_sequence == 1
    writer.close()
    assert not own.is_alive()


def test_a_sync_that_fails_in_the_background_surfaces_at_the_next_append() -> None:
    fs = FaultyFileSystem()
    options = LogOptions(segment_size=1 << 16, alignment=64, sync=SyncPolicy.INTERVAL)
    writer = LogWriter.create("/log", fs=fs, options=options, clock=ManualClock())
    writer.append(1, b"before")
    fs.fail_next("sync")
    writer._sync_in_background()
    with pytest.raises(LogWriteError, match="sync in the background failed"):
        writer.append(1, b"told")
    assert writer.append(1, b"after").segment == 2
    assert len(list(LogReader.open("/log", fs=fs).records())) == 2
    writer.close()


def test_a_sync_that_failed_in_the_background_is_told_at_the_latest_by_close() -> None:
    fs = FaultyFileSystem()
    options = LogOptions(segment_size=1 << 16, alignment=64, sync=SyncPolicy.INTERVAL)
    writer = LogWriter.create("/log", fs=fs, options=options, clock=ManualClock())
    writer.append(1, b"x")
    fs.fail_next("sync")
    writer._sync_in_background()
    with pytest.raises(LogWriteError, match="sync in the background failed"):
        writer.close()
    LogWriter.create("/log", fs=fs, options=options, clock=ManualClock()).close()


def test_sync_forces_everything_whatever_the_policy() -> None:
    for seed in range(20):
        fs = FaultyFileSystem(seed)
        options = LogOptions(segment_size=4096, alignment=64, sync=SyncPolicy.NONE)
        writer = LogWriter.create("/log", fs=fs, options=options)
        for _ in range(20):
            writer.append(1, bytes(700))
        writer.sync()
        fs.die()
        fs.restart(power_loss=True)
        assert len(list(LogReader.open("/log", fs=fs).records())) == 20


def test_a_segment_rolls_by_size_by_age_and_on_request() -> None:
    fs = FaultyFileSystem()
    clock = ManualClock()
    options = LogOptions(segment_size=4096, alignment=64, roll_age_s=10)
    writer = LogWriter.create("/log", fs=fs, options=options, clock=clock)
    writer.roll()  # it holds nothing: it stays
    assert writer.append(1, b"a").segment == 1
    clock.advance(9_999)
    assert writer.append(1, b"a").segment == 1
    clock.advance(1)
    assert writer.append(1, b"a").segment == 2
    writer.roll()
    assert writer.append(1, b"a").segment == 3
    assert writer.append(1, bytes(3000)).segment == 3
    assert writer.append(1, bytes(3000)).segment == 4
    assert len(list(LogReader.open("/log", fs=fs).records())) == 6


def test_a_clock_that_is_set_back_changes_nothing() -> None:
    fs = FaultyFileSystem()
    clock = ManualClock(1_000_000)
    options = LogOptions(segment_size=4096, alignment=64, roll_age_s=10)
    writer = LogWriter.create("/log", fs=fs, options=options, clock=clock)
    writer.append(1, b"a")
    clock.set_wall_time(5)
    assert writer.append(1, b"b").segment == 1
    clock.advance(10_000)
    assert writer.append(1, b"c").segment == 2
    writer.close()
    clock.set_wall_time(0)
    writer = LogWriter.create("/log", fs=fs, options=options, clock=clock)
    assert writer.append(1, b"d").segment == 3
    found = [bytes(record.payload) for record in LogReader.open("/log", fs=fs).records()]
    assert found == [b"a", b"b", b"c", b"d"]


def test_a_batch_of_records_lies_in_one_segment_also_when_larger_than_one() -> None:
    fs = FaultyFileSystem()
    writer = LogWriter.create("/log", fs=fs, options=LogOptions(segment_size=4096, alignment=64))
    writer.append(1, b"first")
    places = writer.append_many([(1, b"%d" % number * 100) for number in range(60)])
    assert {place.segment for place in places} == {2}
    assert writer.append(1, b"last").segment == 3
    assert len(list(LogReader.open("/log", fs=fs).records())) == 62


def test_a_segment_that_is_as_large_as_its_record_has_room_for_its_end(folder: str) -> None:
    """Room that is reserved: on a disk that is full by then it would have no end."""
    with LogWriter.create(folder, options=LogOptions(segment_size=64 << 10)) as log:
        place = log.append(7, bytes(1 << 20))
        reserved = os.path.getsize(segment_path(folder, place.segment))
    assert os.path.getsize(segment_path(folder, place.segment)) <= reserved


def test_what_the_slot_held_before_does_not_reach_the_disk(folder: str) -> None:
    slot = memoryview(mmap.mmap(-1, 8192))
    slot[:] = b"S" * 8192
    slot[64:70] = b"public"
    with LogWriter.create(folder, options=DIRECT) as writer:
        writer.append_slot(1, slot, 6)
    content = Path(segment_path(folder, 1)).read_bytes()
    assert b"public" in content
    assert b"SS" not in content
    assert slot[4096:] == b"S" * 4096


def test_a_slot_that_is_no_slot_is_refused(folder: str) -> None:
    with LogWriter.create(folder, options=DIRECT) as writer:
        with pytest.raises(ValueError, match="4096 bytes long, not 4095"):
            writer.append_slot(1, memoryview(bytearray(4095)), 10)
        with pytest.raises(ValueError, match="must be writable"):
            writer.append_slot(1, memoryview(bytes(4096)), 10)
        # Memory that is not page-aligned is written all the same.
        slot = memoryview(bytearray(8193))[1:]
        slot[64:67] = b"abc"
        place = writer.append_slot(1, slot, 3)
    assert read_record(segment_path(folder, 1), place.offset).payload == b"abc"


def test_a_record_larger_than_the_limit_is_refused_and_the_log_goes_on(folder: str) -> None:
    options = LogOptions(segment_size=1 << 16, alignment=64, max_append_size=1 << 18)
    with LogWriter.create(folder, options=options) as writer:
        with pytest.raises(AppendTooLargeError, match=str(1 << 18)):
            writer.append(1, bytes(1 << 18))
        with pytest.raises(ValueError, match="max_append_size"):
            writer.append_many([(1, bytes(1 << 17))] * 2)
        writer.append(1, bytes(1 << 17))
    assert check_count(folder) == 1


def test_the_largest_block_that_can_be_set_is_one_append_also_when_it_is_encrypted() -> None:
    room = {"spark.penstock.wal.segmentSize": "4g", "spark.penstock.memory.size": "4g"}
    largest = {**room, "spark.penstock.block.maxSize": "1g"}
    assert Settings.from_pairs(largest.items()).block_max_bytes == 1 << 30
    with pytest.raises(SettingError):
        Settings.from_pairs({**room, "spark.penstock.block.maxSize": "1025m"}.items())
    options = LogOptions()
    overhead = RECORD_HEADER_SIZE + TAG_SIZE + options.alignment
    assert options.max_append_size >= (1 << 30) + overhead


def check_count(folder: str) -> int:
    return len(list(LogReader.open(folder).records()))


def test_a_closed_writer_says_so_and_closes_twice(folder: str) -> None:
    writer = LogWriter.create(folder, options=SMALL)
    writer.append(1, b"x")
    writer.close()
    writer.close()
    calls = (lambda: writer.append(1, b"y"), writer.roll, writer.sync)
    for call in (*calls, lambda: writer.remove_segments([1])):
        with pytest.raises(LogClosedError, match=folder):
            call()
    assert check_count(folder) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"alignment": 32},
        {"alignment": 96},
        {"segment_size": 4096},
        {"sync_interval_s": 0},
        {"roll_age_s": -1},
        {"max_append_size": 0},
    ],
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LogOptions(**wrong)  # type: ignore[arg-type]


def test_kinds_of_the_log_itself_are_refused(folder: str) -> None:
    with LogWriter.create(folder, options=SMALL) as writer:
        for kind in (-1, 0xFF00, 0xFFFF, 1 << 16):
            with pytest.raises(ValueError, match="kind"):
                writer.append(kind, b"")
        writer.append(0xFEFF, b"")


def test_statistics_count_what_was_done() -> None:
    fs = FaultyFileSystem()
    writer = LogWriter.create("/log", fs=fs, options=SMALL)
    writer.append(1, bytes(10))
    writer.append_many([(1, bytes(100))] * 3)
    writer.roll()
    writer.remove_segments([1, 77])
    statistics = writer.statistics()
    assert statistics.records == 4
    assert statistics.bytes_appended == 128 + 3 * 192
    assert statistics.writes == 2
    assert (statistics.segments_created, statistics.segments_removed) == (2, 1)
    assert (statistics.last_sequence, statistics.committed_sequence) == (4, 4)
    assert statistics.segment == 2
    assert statistics.syncs >= 4
    assert 0 <= statistics.sync_seconds_max <= statistics.sync_seconds_total


def test_a_slow_sync_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.wal._segments.writer._SLOW_SYNC_S", 0.0)
    with caplog.at_level(logging.WARNING, "penstock.wal"):
        LogWriter.create("/log", fs=FaultyFileSystem(), options=SMALL).append(1, b"x")
    assert any("slow disk" in line.getMessage() for line in caplog.records)


@pytest.mark.parametrize("policy", SyncPolicy)
def test_nothing_is_acknowledged_into_a_folder_that_was_removed(
    folder: str, policy: SyncPolicy
) -> None:
    with LogWriter.create(folder, options=replace(SMALL, sync=policy)) as writer:
        writer.append(1, b"before")
        shutil.rmtree(folder)
        for _ in range(2):
            with pytest.raises(LogLostError, match=folder):
                writer.append(1, b"behind")


def test_a_log_goes_on_behind_a_segment_that_was_removed(folder: str) -> None:
    with LogWriter.create(folder, options=SMALL) as writer:
        writer.append(1, b"before")
        os.unlink(segment_path(folder, 1))
        with pytest.raises(LogLostError, match="segment-000000000001"):
            writer.append(1, b"not taken")
        place = writer.append(1, b"behind")
    assert read_record(segment_path(folder, 2), place.offset).payload == b"behind"


def test_a_removed_log_is_gone(folder: str) -> None:
    with LogWriter.create(folder, options=SMALL) as writer:
        writer.append(1, b"x")
    remove_log(folder)
    assert not Path(folder).exists()
    remove_log(folder)
    with pytest.raises(FileNotFoundError):
        LogReader.open(folder)


def test_refused_direct_io_is_said_once_and_the_log_stays_correct(
    folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.pwritev
    refused = []

    def pwritev(fd: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT or flags:
            refused.append(offset)
            raise OSError(errno.EINVAL, "refused as overlay does")
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "pwritev", pwritev)
    caplog.set_level(logging.INFO, "penstock.wal")
    with LogWriter.create(folder, options=DIRECT, fs=LocalFileSystem()) as writer:
        for number in range(5):
            writer.append(1, b"%d" % number)
        writer.roll()
        writer.append(1, b"5")
        assert not writer.statistics().direct
    assert refused
    assert check_count(folder) == 6
    lines = [line for line in caplog.records if "direct I/O is refused" in line.getMessage()]
    assert len(lines) == 1
