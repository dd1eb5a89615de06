"""Crashes that lost data in other logs, each by name, on a disk that loses what it may lose."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable

import pytest

from penstock.wal import (
    AppendTooLargeError,
    LogFullError,
    LogOptions,
    LogReader,
    LogWriteError,
    LogWriter,
    SyncPolicy,
    WalError,
    check,
    remove_log,
    repair,
    segment_path,
)
from tests.wal.faulty_filesystem import FaultyFileSystem, SimulatedCrashError

FOLDER = "/data/streams/0"
SMALL = LogOptions(segment_size=4096, alignment=64)


def payloads(fs: FaultyFileSystem) -> list[bytes]:
    """Read the whole log; damage raises."""
    return [bytes(record.payload) for record in LogReader.open(FOLDER, fs=fs).records()]


def crash_at_every_call(
    story: Callable[[FaultyFileSystem, list[bytes]], None], *, power_loss: bool = True
) -> None:
    """Tell the story again and again, dying one call later each time, until it gets through.

    After each death all that the story had acknowledged must be there, and the folder must be
    usable. The story appends to its list what was acknowledged.
    """
    for calls in range(10_000):
        for seed in range(3):
            fs = FaultyFileSystem(seed * 1000 + calls)
            acknowledged: list[bytes] = []
            fs.crash_after(calls)
            with contextlib.suppress(SimulatedCrashError):
                story(fs, acknowledged)
            survived = not fs.dead
            fs.restart(power_loss=power_loss)
            found = payloads(fs) if fs.is_folder(FOLDER) else []
            assert found[: len(acknowledged)] == acknowledged
            assert len(found) <= len(acknowledged) + 1
            LogWriter.create(FOLDER, fs=fs, options=SMALL).close()
            assert payloads(fs) == found
        if survived:
            return
    raise AssertionError("the story has no end")


def rolling_story(fs: FaultyFileSystem, acknowledged: list[bytes]) -> None:
    writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
    for number in range(9):
        payload = b"%d" % number + bytes(700)
        writer.append(1, payload)
        acknowledged.append(payload)
    writer.close()


@pytest.mark.parametrize("power_loss", [True, False])
def test_case_1_nothing_is_acknowledged_before_it_is_forced(power_loss: bool) -> None:
    crash_at_every_call(rolling_story, power_loss=power_loss)


def test_case_2_names_of_segments_and_of_new_parent_folders_are_forced() -> None:
    for seed in range(50):
        fs = FaultyFileSystem(seed)
        writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
        writer.append(1, b"first")
        writer.roll()
        writer.append(1, b"second")
        fs.die()
        fs.restart(power_loss=True)
        assert payloads(fs) == [b"first", b"second"]


def test_case_2_a_folder_that_a_killed_process_made_is_forced_too() -> None:
    for seed in range(50):
        fs = FaultyFileSystem(seed)
        fs.make_folder("/data")
        fs.sync_folder("/")
        fs.make_folder("/data/streams")
        fs.sync_folder("/data")
        fs.make_folder(FOLDER)
        LogWriter.create(FOLDER, fs=fs, options=SMALL).append(1, b"first")
        fs.die()
        fs.restart(power_loss=True)
        assert payloads(fs) == [b"first"]


def test_case_3_removed_segments_that_come_back_break_nothing() -> None:
    for seed in range(50):
        fs = FaultyFileSystem(seed)
        writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
        for number in range(5):
            writer.append(1, b"%d" % number)
            writer.roll()
        writer.append(1, b"5")
        writer.remove_segments([1, 2, 3])
        fs.die()
        fs.restart(power_loss=True)
        found = payloads(fs)
        # Any of the three may be there again, whole; the others always are.
        assert found == sorted(found)
        assert found[-3:] == [b"3", b"4", b"5"]
        again = LogWriter.create(FOLDER, fs=fs, options=SMALL)
        again.remove_segments([1, 2, 3])
        assert payloads(fs) == [b"3", b"4", b"5"]
        again.remove_segments([1, 2, 3])


def test_case_4_a_crash_anywhere_in_a_roll_leaves_a_log_that_reads_and_writes() -> None:
    def story(fs: FaultyFileSystem, acknowledged: list[bytes]) -> None:
        writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
        for number in range(3):
            writer.append(1, b"%d" % number)
            acknowledged.append(b"%d" % number)
            writer.roll()

    crash_at_every_call(story)


def test_case_5_half_a_record_at_the_tail_ends_the_reading_with_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fs = FaultyFileSystem()
    writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
    writer.append(1, b"whole")
    place = writer.append(1, b"half" * 100)
    fs.die()
    fs.restart(power_loss=False)
    fs.damage(segment_path(FOLDER, 1), place.offset + 100, bytes(400))
    reader = LogReader.open(FOLDER, fs=fs)
    assert [bytes(record.payload) for record in reader.records()] == [b"whole"]
    assert [bytes(record.payload) for record in reader.records()] == [b"whole"]
    lines = [line.getMessage() for line in caplog.records if "torn tail" in line.getMessage()]
    assert len(lines) == 1
    assert "segment 1" in lines[0]
    assert str(place.offset) in lines[0]


def test_case_6_a_segment_name_is_never_used_twice() -> None:
    fs = FaultyFileSystem()
    writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
    assert writer.append(1, b"a").segment == 1
    writer.roll()
    writer.remove_segments([1, 2])  # 2 is open: it stays
    writer.close()
    writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
    assert writer.append(1, b"b").segment == 3
    # A roll that fails spends its number; the highest segment that exists stays.
    fs.fail_next("sync_folder")
    with pytest.raises(Exception, match="could not be written"):
        writer.roll()
    writer.remove_segments(range(10))
    assert writer.append(1, b"c").segment == 5
    fs.die()
    fs.restart(power_loss=False)
    fs.rename(segment_path(FOLDER, 5), segment_path(FOLDER, 5) + ".damaged")
    writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
    assert writer.append(1, b"d").segment == 6


def test_case_7_a_segment_exists_only_with_its_header_forced() -> None:
    def story(fs: FaultyFileSystem, acknowledged: list[bytes]) -> None:
        LogWriter.create(FOLDER, fs=fs, options=SMALL)

    for calls in range(30):
        for seed in range(20):
            fs = FaultyFileSystem(seed)
            fs.crash_after(calls)
            with contextlib.suppress(SimulatedCrashError):
                story(fs, [])
            fs.restart(power_loss=True)
            if not fs.is_folder(FOLDER):
                continue
            for segment in LogReader.open(FOLDER, fs=fs).segments:
                assert segment.damage is None


def fill(writer: LogWriter, acknowledged: list[bytes]) -> None:
    for number in range(100):
        payload = b"%d" % number + bytes(300)
        writer.append(1, payload)
        acknowledged.append(payload)


@pytest.mark.parametrize("power_loss", [True, False])
def test_case_8_disk_full_then_a_restart_then_space_again(power_loss: bool) -> None:
    for seed in range(20):
        fs = FaultyFileSystem(seed)
        writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
        fs.capacity = fs.used()
        acknowledged: list[bytes] = []

        with pytest.raises(LogFullError) as full:
            fill(writer, acknowledged)
        assert acknowledged
        assert full.value.folder == FOLDER
        assert FOLDER in str(full.value)
        assert str(full.value.free_bytes) in str(full.value)
        capacity = fs.capacity
        fs.die()
        fs.restart(power_loss=power_loss)
        fs.capacity = capacity
        assert payloads(fs) == acknowledged
        with pytest.raises(LogFullError):
            LogWriter.create(FOLDER, fs=fs, options=SMALL)
        assert payloads(fs) == acknowledged
        fs.heal()
        LogWriter.create(FOLDER, fs=fs, options=SMALL).append(1, b"space again")
        assert payloads(fs) == [*acknowledged, b"space again"]


def test_case_9_a_record_larger_than_a_segment_gets_a_segment_of_its_own() -> None:
    options = LogOptions(segment_size=4096, alignment=64, max_append_size=50_000)
    fs = FaultyFileSystem()
    writer = LogWriter.create(FOLDER, fs=fs, options=options)
    large = bytes(range(250)) * 160
    small = writer.append(1, b"small")
    place = writer.append(1, large)
    assert place.segment == small.segment + 1
    assert writer.append(1, b"behind").segment == place.segment + 1
    with pytest.raises(AppendTooLargeError) as error:
        writer.append(1, bytes(50_000))
    assert error.value.limit == 50_000
    assert error.value.size > 50_000
    writer.append(1, b"goes on")
    fs.die()
    fs.restart(power_loss=True)
    assert payloads(fs) == [b"small", large, b"behind", b"goes on"]


def test_case_14_files_of_others_in_the_folder_are_left_alone() -> None:
    fs = FaultyFileSystem()
    LogWriter.create(FOLDER, fs=fs, options=SMALL).close()
    for name in ("dead-letters", "segment-1.log", "segment-000000000009.log.damaged"):
        file = fs.create(f"{FOLDER}/{name}", direct=False)
        file.write(0, [b"not yours"], sync=True)
    writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
    assert writer.append(1, b"x").segment == 10
    writer.close()
    repair(FOLDER, fs=fs)
    for name in ("dead-letters", "segment-1.log", "segment-000000000009.log.damaged"):
        assert fs.content(f"{FOLDER}/{name}") == b"not yours"
    remove_log(FOLDER, fs=fs)
    assert sorted(fs.list_folder(FOLDER)) == ["dead-letters", "segment-1.log"]


def test_case_16_opening_reads_headers_and_trailers_only() -> None:
    fs = FaultyFileSystem()
    options = LogOptions(segment_size=1 << 20, alignment=64, sync=SyncPolicy.NONE)
    with LogWriter.create(FOLDER, fs=fs, options=options) as writer:
        for _ in range(10):
            writer.append_many([(1, bytes(1000))] * 900)
            writer.roll()
    total = fs.used()
    fs.bytes_read = 0
    reader = LogReader.open(FOLDER, fs=fs)
    assert [segment.record_count for segment in reader.segments[:10]] == [900] * 10
    assert [segment.last_sequence for segment in reader.segments[:3]] == [900, 1800, 2700]
    assert fs.bytes_read < total / 100
    fs.bytes_read = 0
    LogWriter.create(FOLDER, fs=fs, options=options)
    assert fs.bytes_read == 0


def test_a_failed_append_never_comes_back_once_a_later_one_succeeded() -> None:
    for seed in range(40):
        fs = FaultyFileSystem(seed)
        writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
        writer.append(1, b"before")
        # The write fails, and the disk does not even let the segment be cut.
        fs.fail_next("write" if seed % 2 else "sync", errno.EIO)
        fs.fail_next("truncate", errno.EIO)
        fs.fail_next("truncate", errno.EIO)
        with pytest.raises(Exception, match="could not be written"):
            writer.append_many([(1, b"failed %d" % number) for number in range(5)])
        writer.append(1, b"after")
        assert payloads(fs) == [b"before", b"after"]
        fs.die()
        fs.restart(power_loss=True)
        assert payloads(fs) == [b"before", b"after"]


@pytest.mark.parametrize("seed", range(20))
def test_the_remains_of_a_failed_append_stay_void_when_later_segments_are_removed(
    seed: int,
) -> None:
    fs = FaultyFileSystem(seed)
    writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
    writer.append(1, b"before")
    fs.fail_next("sync")
    fs.fail_next("truncate")
    with pytest.raises(Exception, match="could not be written"):
        writer.append(1, b"failed")
    fs.fail_next("truncate")
    assert writer.append(1, b"after").segment == 2
    fs.fail_next("truncate")
    writer.roll()
    writer.append(1, b"last")
    fs.fail_next("truncate")
    writer.remove_segments([2])
    assert b"failed" not in payloads(fs)
    writer.remove_segments([2])
    assert payloads(fs) == [b"before", b"last"]


def leave_what_failed(fs: FaultyFileSystem) -> LogWriter:
    """Fail to append to segment 1, and to cut that off; go on in the segments 2 and 3."""
    writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
    writer.append(1, b"before")
    fs.fail_next("sync")
    for _ in range(3):
        fs.fail_next("truncate")
    with pytest.raises(Exception, match="could not be written"):
        writer.append(1, b"failed")
    writer.append(1, b"after")
    writer.roll()
    writer.append(1, b"last")
    assert payloads(fs) == [b"before", b"after", b"last"]
    fs.heal()
    return writer


@pytest.mark.parametrize("is_hdfs", [False, True])
@pytest.mark.parametrize("power_loss", [False, True])
def test_what_failed_stays_void_when_the_next_writer_removes_segments(
    is_hdfs: bool, power_loss: bool
) -> None:
    for seed in range(20):
        fs = FaultyFileSystem(seed, is_hdfs=is_hdfs)
        leave_what_failed(fs)
        fs.die()
        fs.restart(power_loss=power_loss)
        writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
        fs.fail_next("truncate")
        writer.remove_segments([2])
        assert b"failed" not in payloads(fs)
        writer.remove_segments([2])
        # Nothing is cut on HDFS: there the segment stays while the one before it is there.
        kept = [b"after"] if is_hdfs else []
        assert payloads(fs) == [b"before", *kept, b"last"]
        writer.remove_segments([1, 2])
        assert payloads(fs) == [b"last"]
        writer.close()


def test_a_writer_that_cannot_look_at_older_segments_removes_none_of_them() -> None:
    fs = FaultyFileSystem(is_hdfs=True)
    leave_what_failed(fs)
    fs.die()
    fs.restart(power_loss=False)
    writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
    own = writer.append(1, b"own").segment
    writer.roll()
    fs.fail_next("read")
    with pytest.raises(LogWriteError):
        writer.remove_segments([1, 2, 3, own])
    assert payloads(fs) == [b"before", b"after", b"last"]
    writer.remove_segments([1, 2, 3, own])
    assert payloads(fs) == []


@pytest.mark.parametrize("call", ["remove", "sync_folder"])
@pytest.mark.parametrize("is_hdfs", [False, True])
def test_what_failed_stays_void_when_its_own_segment_cannot_be_removed(
    call: str, is_hdfs: bool
) -> None:
    for seed in range(20):
        fs = FaultyFileSystem(seed, is_hdfs=is_hdfs)
        writer = leave_what_failed(fs)
        fs.fail_next("truncate")
        fs.fail_next(call)
        with pytest.raises(LogWriteError):
            writer.remove_segments([1, 2])
        assert b"failed" not in payloads(fs)
        fs.die()
        fs.restart(power_loss=True)
        assert b"failed" not in payloads(fs)


def test_what_failed_stays_void_when_a_power_loss_brings_its_segment_back() -> None:
    for seed in range(40):
        fs = FaultyFileSystem(seed)
        writer = leave_what_failed(fs)
        fs.fail_next("truncate")
        writer.remove_segments([1, 2])
        assert payloads(fs) == [b"last"]
        fs.die()
        fs.restart(power_loss=True)
        assert b"failed" not in payloads(fs)


def test_what_failed_stays_void_when_the_segment_behind_it_is_put_aside() -> None:
    fs = FaultyFileSystem(is_hdfs=True)
    leave_what_failed(fs)
    fs.die()
    fs.restart(power_loss=False)
    fs.damage(segment_path(FOLDER, 2), 150, b"\xff\xee")
    actions = repair(FOLDER, fs=fs).actions
    assert [action.split(":")[0] for action in actions] == ["segment 1", "segment 2"]
    assert payloads(fs) == [b"before", b"last"]
    assert repair(FOLDER, fs=fs).actions == ()


def test_a_repair_that_died_is_done_by_the_next_one() -> None:
    for calls in range(1_000):
        fs = FaultyFileSystem(is_hdfs=True)
        leave_what_failed(fs)
        fs.die()
        fs.restart(power_loss=False)
        fs.damage(segment_path(FOLDER, 2), 150, b"\xff\xee")
        fs.crash_after(calls)
        with contextlib.suppress(SimulatedCrashError):
            repair(FOLDER, fs=fs)
        survived = not fs.dead
        fs.restart(power_loss=False)
        repair(FOLDER, fs=fs)
        assert payloads(fs) == [b"before", b"last"]
        assert repair(FOLDER, fs=fs).actions == ()
        if survived:
            return
    raise AssertionError("the repair has no end")


def test_a_writer_leaves_a_segment_that_was_cut_short_as_it_is() -> None:
    options = LogOptions(
        segment_size=4096, alignment=64, sync=SyncPolicy.INTERVAL, sync_interval_s=3600
    )
    fs = FaultyFileSystem()
    writer = LogWriter.create(FOLDER, fs=fs, options=options)
    places = [writer.append(1, bytes(100)) for _ in range(3)]
    fs.fail_next("sync")
    for _ in range(2):
        fs.fail_next("truncate")
    with pytest.raises(LogWriteError):
        writer.sync()
    writer.append(1, b"behind it")
    fs.die()
    fs.restart(power_loss=False)
    fs.truncate(segment_path(FOLDER, 1), places[1].offset + 90)
    (damage,) = check(FOLDER, fs=fs).damages
    writer = LogWriter.create(FOLDER, fs=fs, options=options)
    writer.remove_segments([2])
    assert [str(found) for found in check(FOLDER, fs=fs).damages] == [str(damage)]
    writer.close()


def test_a_segment_whose_end_could_not_be_written_is_no_damage() -> None:
    for seed in range(40):
        fs = FaultyFileSystem(seed)
        writer = LogWriter.create(FOLDER, fs=fs, options=SMALL)
        writer.append_many([(1, b"%d" % number) for number in range(20)])
        fs.fail_next("write")
        writer.roll()
        writer.append(1, b"released")
        writer.roll()
        writer.append(1, b"last")
        writer.remove_segments([2])
        assert payloads(fs) == [*(b"%d" % number for number in range(20)), b"last"]
        assert not LogReader.open(FOLDER, fs=fs).segments[0].closed


FAILED_SYNCS: dict[str, Callable[[FaultyFileSystem, LogWriter], None]] = {
    "in the background": lambda fs, writer: writer._sync_in_background(),
    "asked for": lambda fs, writer: writer.sync(),
    "of a roll": lambda fs, writer: writer.roll(),
}


@pytest.mark.parametrize(
    ("policy", "call"),
    [*((SyncPolicy.INTERVAL, call) for call in FAILED_SYNCS), (SyncPolicy.NONE, "asked for")],
)
def test_a_sync_that_succeeds_after_one_that_failed_covers_what_that_one_dropped(
    policy: SyncPolicy, call: str
) -> None:
    options = LogOptions(segment_size=4096, alignment=64, sync=policy, sync_interval_s=3600)
    for seed in range(20):
        fs = FaultyFileSystem(seed)
        writer = LogWriter.create(FOLDER, fs=fs, options=options)
        writer.append(1, b"forced")
        writer.sync()
        writer.append(1, b"dropped")
        fs.fail_next("sync")
        told: list[object] = []
        try:
            FAILED_SYNCS[call](fs, writer)
            writer.append(1, b"after")
        except WalError as error:
            told.append(error)
        assert told, "somebody hears of the sync that failed"
        writer.append(1, b"last")
        writer.sync()
        fs.die()
        with contextlib.suppress(SimulatedCrashError, WalError):
            writer.close()
        fs.restart(power_loss=True)
        found = payloads(fs)
        assert found[:2] == [b"forced", b"dropped"]
        assert found[-1] == b"last"


def test_what_cannot_be_forced_any_more_is_told_by_each_sync_and_by_the_end() -> None:
    options = LogOptions(
        segment_size=4096, alignment=64, sync=SyncPolicy.INTERVAL, sync_interval_s=3600
    )
    fs = FaultyFileSystem()
    writer = LogWriter.create(FOLDER, fs=fs, options=options)
    place = writer.append(1, b"dropped")
    fs.fail_next("sync")
    fs.fail_next("truncate")
    with pytest.raises(LogWriteError):
        writer.sync()
    # The system dropped what it showed, too: nobody has these bytes any more.
    fs.damage(segment_path(FOLDER, place.segment), place.offset, bytes(200))
    writer.append(1, b"after")
    for _ in range(3):
        with pytest.raises(LogWriteError, match="lost what it had not forced"):
            writer.sync()
    writer._sync_in_background()
    assert writer.statistics().committed_sequence == 0
    # Until nobody needs the segment.
    writer.remove_segments([place.segment])
    writer.sync()
    assert writer.statistics().committed_sequence == 2
    writer.close()


def test_a_closed_segment_whose_sync_failed_is_not_called_forced() -> None:
    options = LogOptions(segment_size=4096, alignment=64, sync=SyncPolicy.NONE)
    for seed in range(20):
        fs = FaultyFileSystem(seed)
        writer = LogWriter.create(FOLDER, fs=fs, options=options)
        writer.append(1, b"first")
        writer.roll()
        writer.append(1, b"second")
        fs.fail_next("sync_file")
        with pytest.raises(LogWriteError):
            writer.sync()
        writer.sync()
        fs.die()
        fs.restart(power_loss=True)
        assert payloads(fs) == [b"first", b"second"]
