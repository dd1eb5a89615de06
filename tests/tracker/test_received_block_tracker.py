"""The ledger of received blocks, with the cases of Spark's ReceivedBlockTrackerSuite."""

from __future__ import annotations

import os
import pickle
import re
import shutil
from pathlib import Path

import msgspec
import pytest
from obstore.store import MemoryStore

from penstock.position_changes import PositionChanges, encoded_position
from penstock.runtime.clock import ManualClock
from penstock.tracker.errors import (
    BatchCleanedError,
    DamagedLedgerError,
    LedgerError,
    LedgerLostError,
    LedgerRecoveryError,
    LedgerWriteError,
)
from penstock.tracker.ledger._block_numbers import BlockNumbers
from penstock.tracker.ledger._driver_log import SnapshotRule
from penstock.tracker.ledger._kept_blocks import Retention
from penstock.tracker.ledger._ledger_state import LedgerState, StreamLedger
from penstock.tracker.ledger.events import (
    EVENTS_KIND,
    FORMAT,
    AttemptRegistrationEvent,
    BatchAllocationEvent,
    LedgerRecord,
    addition_events,
    encode,
)
from penstock.tracker.ledger.received_block_tracker import ReceivedBlockTracker
from penstock.wal import (
    CorruptRecordError,
    LocalFileSystem,
    LogFolderInUseError,
    LogReader,
    LogWriter,
    repair,
)
from penstock.wal._objects.client import ObjectsClient
from penstock.wal._objects.filesystem import ObjectFileSystem
from penstock.wire.messages import AddBlock, Failure, Ok, Refused
from tests.tracker.ledger_cases import (
    LOG_OPTIONS,
    RefusingFileSystem,
    add,
    attempt_name,
    block,
    ids,
)
from tests.wal.faulty_objects import another_host

A1, A2 = attempt_name(1), attempt_name(2)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "receivedBlockMetadata")


def recover(folder: str, *streams: int, snapshot_bytes: int = 1 << 20) -> ReceivedBlockTracker:
    return ReceivedBlockTracker.recover(
        streams or (0,), folder, options=LOG_OPTIONS, snapshots=SnapshotRule(snapshot_bytes)
    )


def after_crash(folder: str) -> str:
    """The folder as a dead process would have left it, with nobody's lock on it."""
    copy = f"{folder}-{len(os.listdir(os.path.dirname(folder)))}"
    shutil.copytree(folder, copy)
    return copy


# -- ReceivedBlockTrackerSuite --------------------------------------------------------------------


def test_block_addition_and_block_to_batch_allocation() -> None:
    tracker = ReceivedBlockTracker([0])
    first = tracker.register_attempt(0, A1, "host").first_block_number
    blocks = [block(0, A1, first + n) for n in range(5)]
    assert not tracker.has_unallocated_blocks
    assert add(tracker, 0, A1, blocks) == Ok()
    assert tracker.unallocated_blocks(0) == tuple(blocks)
    assert tracker.allocate_blocks_to_batch(1)
    assert tracker.get_blocks_of_batch_and_stream(1, 0) == tuple(blocks)
    assert tracker.get_blocks_of_batch(1) == {0: tuple(blocks)}
    assert not tracker.has_unallocated_blocks
    assert tracker.allocate_blocks_to_batch(2)
    assert tracker.get_blocks_of_batch_and_stream(2, 0) == ()
    # An older time, or the same one, takes nothing.
    assert add(tracker, 0, A1, [block(0, A1, first + 5)]) == Ok()
    assert not tracker.allocate_blocks_to_batch(2)
    assert not tracker.allocate_blocks_to_batch(1)
    assert tracker.get_blocks_of_batch_and_stream(1, 0) == tuple(blocks)
    assert len(tracker.unallocated_blocks(0)) == 1


def test_block_addition_and_block_to_batch_allocation_with_many_blocks(folder: str) -> None:
    tracker = recover(folder, 0, 1)
    added = {}
    for stream, attempt in ((0, A1), (1, A2)):
        first = tracker.register_attempt(stream, attempt, "host").first_block_number
        added[stream] = [block(stream, attempt, first + n) for n in range(5000)]
        assert add(tracker, stream, attempt, added[stream]) == Ok()
    assert tracker.allocate_blocks_to_batch(1000)
    assert {key: list(found) for key, found in tracker.get_blocks_of_batch(1000).items()} == added
    again = recover(after_crash(folder), 0, 1)
    assert {key: list(found) for key, found in again.get_blocks_of_batch(1000).items()} == added


def test_recovery_with_write_ahead_logs_should_remove_only_allocated_blocks_from_received_queue(
    folder: str,
) -> None:
    # SPARK-23438: a block that was added after the allocation was made, and before it was logged,
    # in the original went with the batch at recovery.
    tracker = recover(folder)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    blocks = [block(0, A1, first + n) for n in range(5)]
    add(tracker, 0, A1, blocks[:3])
    tracker.allocate_blocks_to_batch(1)
    add(tracker, 0, A1, blocks[3:])
    again = recover(after_crash(folder))
    assert again.get_blocks_of_batch_and_stream(1, 0) == tuple(blocks[:3])
    assert again.unallocated_blocks(0) == tuple(blocks[3:])


def test_block_allocation_to_batch_should_not_lose_blocks_from_received_queue(folder: str) -> None:
    # SPARK-23991: the allocation's write fails, and the queue keeps its blocks.
    fs = RefusingFileSystem()
    tracker = ReceivedBlockTracker.recover([0], folder, options=LOG_OPTIONS, fs=fs)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    blocks = [block(0, A1, first + n) for n in range(2)]
    add(tracker, 0, A1, blocks)
    fs.full = True
    with pytest.raises(LedgerWriteError, match="the allocation of batch 1 ms"):
        tracker.allocate_blocks_to_batch(1)
    assert tracker.get_blocks_of_batch_and_stream(1, 0) == ()
    assert tracker.unallocated_blocks(0) == tuple(blocks)
    fs.full = False
    assert tracker.allocate_blocks_to_batch(2)
    assert tracker.get_blocks_of_batch_and_stream(2, 0) == tuple(blocks)
    again = recover(after_crash(folder))
    assert again.batch_times_ms == (2,)
    assert again.get_blocks_of_batch_and_stream(2, 0) == tuple(blocks)


def test_recovery_and_cleanup_with_write_ahead_logs(folder: str) -> None:
    tracker = recover(folder)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    blocks = [block(0, A1, first + n) for n in range(3)]
    for n, info in enumerate(blocks):
        add(tracker, 0, A1, [info])
        if n < 2:
            tracker.allocate_blocks_to_batch(1000 * (n + 1))
    (release,) = tracker.cleanup_old_batches(2000)
    assert release.block_ids == (blocks[0].block_id,)
    again = recover(after_crash(folder))
    assert again.batch_times_ms == (2000,)
    with pytest.raises(BatchCleanedError, match="the batch of 1000 ms was cleaned up") as error:
        again.get_blocks_of_batch_and_stream(1000, 0)
    assert (error.value.time_ms, error.value.cleaned_before_ms) == (1000, 1001)
    assert again.get_blocks_of_batch_and_stream(2000, 0) == (blocks[1],)
    assert again.unallocated_blocks(0) == (blocks[2],)
    assert again.last_allocated_ms == 2000


def test_without_a_log_the_ledger_works_in_memory_only(tmp_path: Path) -> None:
    # "disable write ahead log when checkpoint directory is not set"
    tracker = ReceivedBlockTracker([0])
    first = tracker.register_attempt(0, A1, "host").first_block_number
    assert add(tracker, 0, A1, [block(0, A1, first)]) == Ok()
    assert tracker.allocate_blocks_to_batch(1)
    assert tracker.cleanup_old_batches(2)[0].block_ids == (f"input-0-{first}",)
    assert tracker._driver_log.records == 0
    assert list(tmp_path.iterdir()) == []


# -- I2: one block once ---------------------------------------------------------------------------


def test_i2_adding_a_block_again_changes_nothing_also_after_its_release(folder: str) -> None:
    tracker = recover(folder)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    blocks = [block(0, A1, first + n) for n in range(3)]
    add(tracker, 0, A1, blocks)
    assert add(tracker, 0, A1, blocks[1:]) == Ok()
    tracker.allocate_blocks_to_batch(1)
    assert add(tracker, 0, A1, blocks) == Ok()
    tracker.cleanup_old_batches(2)
    assert add(tracker, 0, A1, blocks) == Ok()
    assert not tracker.has_unallocated_blocks
    assert tracker.received(0) == (sum(one.num_records for one in blocks), 3)


def test_i2_the_same_block_twice_in_one_log_record_counts_once() -> None:
    tracker = ReceivedBlockTracker([0])
    first = tracker.register_attempt(0, A1, "host").first_block_number
    info = block(0, A1, first)
    message = AddBlock(0, A1, (info,))
    assert tracker.add_many([message, message]) == [Ok(), Ok()]
    assert tracker.unallocated_blocks(0) == (info,)


def test_i1_a_block_that_is_sent_twice_and_not_logged_is_answered_twice_with_a_failure(
    folder: str,
) -> None:
    """The second message has no block that is new beside the first one's."""
    fs = RefusingFileSystem()
    tracker = ReceivedBlockTracker.recover([0], folder, options=LOG_OPTIONS, fs=fs)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    message = AddBlock(0, A1, (block(0, A1, first),))
    fs.full = True
    answers = tracker.add_many((message, message))
    assert [type(answer) for answer in answers] == [Failure, Failure]
    assert not tracker.has_unallocated_blocks
    fs.full = False
    assert tracker.add_many((message, message)) == [Ok(), Ok()]
    assert len(tracker.unallocated_blocks(0)) == 1


def test_a_block_that_was_left_out_is_not_taken_for_known() -> None:
    # Its addition failed while the next one's did not: answering Ok to it would lose it (I1).
    tracker = ReceivedBlockTracker([0])
    first = tracker.register_attempt(0, A1, "host").first_block_number
    blocks = [block(0, A1, first + n, segment=n) for n in range(6)]
    add(tracker, 0, A1, [blocks[0], blocks[5]])
    assert add(tracker, 0, A1, [blocks[3]]) == Ok()
    assert add(tracker, 0, A1, [blocks[3], blocks[1]]) == Ok()
    assert ids(tracker.unallocated_blocks(0)) == ids([blocks[n] for n in (0, 5, 3, 1)])
    # A missing block may lie in these segments, so they stay although all they held is released.
    tracker.allocate_blocks_to_batch(1)
    (release,) = tracker.cleanup_old_batches(2)
    assert [segment for _, segment in release.segments] == [0]
    add(tracker, 0, A1, [blocks[2], blocks[4]])
    tracker.allocate_blocks_to_batch(3)
    (release,) = tracker.cleanup_old_batches(4)
    assert sorted(segment for _, segment in release.segments) == [1, 2, 3, 4]


def test_a_position_is_taken_only_when_nothing_before_it_is_missing() -> None:
    tracker = ReceivedBlockTracker([0])
    first = tracker.register_attempt(0, A1, "host").first_block_number
    late = block(0, A1, first + 1, position=b"\x02")
    assert isinstance(add(tracker, 0, A1, [late]), Failure)
    assert add(tracker, 0, A1, [block(0, A1, first, position=b"\x01")]) == Ok()
    assert tracker.last_position(0) == b"\x01"
    assert add(tracker, 0, A1, [late]) == Ok()
    assert tracker.last_position(0) == b"\x02"
    assert add(tracker, 0, A1, [block(0, A1, first + 2)]) == Ok()
    assert tracker.last_position(0) == b"\x02"
    # Also when the block just before it is there, and an earlier one is not.
    assert add(tracker, 0, A1, [block(0, A1, first + 4)]) == Ok()
    after_gap = block(0, A1, first + 5, position=b"\x05")
    assert isinstance(add(tracker, 0, A1, [after_gap]), Failure)
    assert add(tracker, 0, A1, [block(0, A1, first + 3)]) == Ok()
    assert add(tracker, 0, A1, [after_gap]) == Ok()
    assert tracker.last_position(0) == b"\x05"


def test_a_newer_attempt_fences_the_older_and_gets_its_own_numbers_and_the_position() -> None:
    tracker = ReceivedBlockTracker([0])
    one = tracker.register_attempt(0, A1, "host")
    assert one.last_position is None
    add(tracker, 0, A1, [block(0, A1, one.first_block_number, position=b"\x07")])
    two = tracker.register_attempt(0, A2, "host")
    assert two.last_position == b"\x07"
    assert two.first_block_number > one.first_block_number + (1 << 31)
    refused = add(tracker, 0, A1, [block(0, A1, one.first_block_number + 1)])
    assert isinstance(refused, Refused)
    assert A2 in refused.reason
    assert tracker.register_attempt(0, A2, "host") == two
    with pytest.raises(LedgerError, match="replaced"):
        tracker.register_attempt(0, A1, "host")


@pytest.mark.parametrize(
    ("info", "why"),
    [
        (block(0, A2, (1 << 32) + 1), "another receiver attempt"),
        (block(1, A1, (1 << 32) + 1), "not a block id"),
        (block(0, A1, 5), "not numbered from"),
        (block(0, A1, 2 << 32), "not numbered from"),
    ],
)
def test_a_block_that_is_not_the_attempts_own_is_refused_with_its_whole_message(
    info: object, why: str
) -> None:
    tracker = ReceivedBlockTracker([0])
    first = tracker.register_attempt(0, A1, "host").first_block_number
    answer = add(tracker, 0, A1, [block(0, A1, first), info])  # type: ignore[list-item]  # the case
    assert isinstance(answer, Refused)
    assert why in answer.reason
    assert not tracker.has_unallocated_blocks


def test_unknown_streams_and_attempts_are_refused() -> None:
    tracker = ReceivedBlockTracker([0])
    assert isinstance(add(tracker, 0, A1, []), Refused)
    assert isinstance(add(tracker, 9, A1, []), Refused)
    with pytest.raises(LedgerError, match="stream 9"):
        tracker.register_attempt(9, A1, "host")
    first = tracker.register_attempt(0, A1, "host").first_block_number
    tracker.end_attempt(A1)
    assert isinstance(add(tracker, 0, A1, [block(0, A1, first)]), Refused)


# -- I4: delete last ------------------------------------------------------------------------------


def test_i4_a_living_attempts_segment_goes_only_when_a_later_one_is_in_use() -> None:
    tracker = ReceivedBlockTracker([0])
    first = tracker.register_attempt(0, A1, "host").first_block_number
    for n, segment in enumerate([1, 1, 2, 2]):
        add(tracker, 0, A1, [block(0, A1, first + n, segment=segment)])
        tracker.allocate_blocks_to_batch(n + 1)
    assert [release.segments for release in tracker.cleanup_old_batches(2)] == [()]
    (release,) = tracker.cleanup_old_batches(5)
    assert release.segments == ((f"/log/0-{A1}", 1),)
    assert release.block_ids == tuple(f"input-0-{first + n}" for n in (1, 2, 3))
    assert not release.ended
    # Segment 2 goes as soon as segment 3 is in use.
    add(tracker, 0, A1, [block(0, A1, first + 4, segment=3)])
    (release,) = tracker.cleanup_old_batches(5)
    assert (release.segments, release.block_ids) == (((f"/log/0-{A1}", 2),), ())


def test_i4_an_ended_attempt_goes_segment_by_segment_and_then_wholly(folder: str) -> None:
    tracker = recover(folder)
    first = tracker.register_attempt(0, A1, "here").first_block_number
    add(tracker, 0, A1, [block(0, A1, first, segment=1), block(0, A1, first + 1, segment=2)])
    tracker.allocate_blocks_to_batch(1)
    add(tracker, 0, A1, [block(0, A1, first + 2, segment=2)])
    tracker.allocate_blocks_to_batch(2)
    tracker.end_attempt(A1)
    (release,) = tracker.cleanup_old_batches(2)
    assert (release.ended, release.whole, release.host) == (True, False, "here")
    assert [segment for _, segment in release.segments] == [1]
    (release,) = tracker.cleanup_old_batches(3)
    assert release.whole
    # It is named until somebody has dealt with it, and then forgotten for good.
    (release,) = tracker.cleanup_old_batches(3)
    assert release.whole
    tracker.forget_attempts([A1])
    assert tracker.cleanup_old_batches(3) == []
    assert recover(after_crash(folder)).cleanup_old_batches(9) == []


LOG = "s3://bucket/receivedData/process-1"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_i4_a_log_of_several_attempts_goes_when_the_last_of_them_is_let_go(
    folder: str, is_restarted: bool
) -> None:
    tracker = recover(folder, 0, 1, 2, snapshot_bytes=1 if is_restarted else 1 << 20)
    for stream, name in ((0, A1), (1, A2), (2, attempt_name(3))):
        first = tracker.register_attempt(stream, name, "host", LOG).first_block_number
        if stream < 2:
            add(tracker, stream, name, [block(stream, name, first)])
            tracker.allocate_blocks_to_batch(stream + 1)
    if is_restarted:
        tracker = recover(after_crash(folder), 0, 1, 2)
    tracker.end_attempt(A1)
    releases = {release.attempt: release for release in tracker.cleanup_old_batches(2)}
    assert (releases[A1].log, releases[A1].whole, releases[A1].log_is_over) == (LOG, True, False)
    assert releases[A1].mate == (None if is_restarted else (2, attempt_name(3)))
    tracker.end_attempt(A2)
    if not is_restarted:
        # One that lives may have a block at any time.
        assert not any(release.log_is_over for release in tracker.cleanup_old_batches(3))
    tracker.end_attempt(attempt_name(3))
    last = tracker.cleanup_old_batches(3)
    assert [release.log_is_over for release in last].count(True) == 1
    assert not any(release.log_is_over for release in tracker.cleanup_old_batches(3))
    # Nobody may write there from now on: a process may still think that it can.
    with pytest.raises(LedgerError, match=f"share {LOG}, which was removed"):
        tracker.register_attempt(0, attempt_name(4), "host", LOG)
    assert tracker.register_attempt(0, attempt_name(4), "host", f"{LOG}2")


def test_what_an_attempt_retains_keeps_the_log_that_it_shared(folder: str) -> None:
    tracker = recover(folder)
    first = tracker.register_attempt(0, A1, "host", LOG).first_block_number
    add(tracker, 0, A1, [block(0, A1, first)])
    tracker.allocate_blocks_to_batch(1)
    tracker.close()
    later = ReceivedBlockTracker.recover(
        (0,), folder, options=LOG_OPTIONS, retention=Retention(None, 1 << 20)
    )
    assert not any(release.log_is_over for release in later.cleanup_old_batches(2))
    later.close()
    (release,) = recover(folder).cleanup_old_batches(3)
    assert release.log_is_over


def test_i4_nothing_is_released_when_the_clean_up_is_not_in_the_log(folder: str) -> None:
    fs = RefusingFileSystem()
    tracker = ReceivedBlockTracker.recover([0], folder, options=LOG_OPTIONS, fs=fs)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    add(tracker, 0, A1, [block(0, A1, first)])
    tracker.allocate_blocks_to_batch(1)
    fs.full = True
    assert tracker.cleanup_old_batches(2) == []
    assert tracker.batch_times_ms == (1,)
    fs.full = False
    assert tracker.cleanup_old_batches(2)[0].block_ids == (f"input-0-{first}",)


def test_what_was_processed_is_not_given_again_to_a_driver_that_starts_anew(folder: str) -> None:
    tracker = recover(folder)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    for number in range(3):
        add(tracker, 0, A1, [block(0, A1, first + number, segment=number)])
        tracker.allocate_blocks_to_batch(number + 1)
        if number:
            # It rides on the next record, and needs none of its own.
            tracker.complete_batches([number])
    assert tracker.incomplete_batches() == (3,)
    # That of batch 2 rode on nothing yet: a crash processes it once more.
    crashed = recover(after_crash(folder))
    assert crashed.incomplete_batches() == (2, 3)
    tracker.close()
    again = recover(folder, snapshot_bytes=1)
    assert again.incomplete_batches() == (3,)
    assert again.return_unfinished_batches() == 1
    assert ids(again.unallocated_blocks(0)) == [f"input-0-{first + 2}"]
    assert again.batch_times_ms == ()
    # What the complete ones held may go.
    (release,) = again.cleanup_old_batches(0)
    assert [number for _, number in release.segments] == [0, 1]
    third = recover(after_crash(folder))
    assert third.return_unfinished_batches() == 0
    assert ids(third.unallocated_blocks(0)) == [f"input-0-{first + 2}"]


def test_i15_a_batch_that_was_cleaned_up_is_never_empty_for_later_drivers(folder: str) -> None:
    tracker = recover(folder)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    for number in range(3):
        add(tracker, 0, A1, [block(0, A1, first + number)])
        tracker.allocate_blocks_to_batch(number + 1)
    tracker.cleanup_old_batches(2)
    tracker.complete_batches([2])
    # From events; they are returned, and batch 2 is cleaned up, in events, too; from a snapshot.
    again = recover(after_crash(folder))
    with pytest.raises(BatchCleanedError):
        again.get_blocks_of_batch(1)
    assert again.get_blocks_of_batch(2)
    tracker.cleanup_old_batches(2)
    copy = after_crash(folder)
    for _ in range(2):
        again = recover(copy)
        assert again.incomplete_batches() == (3,)
        again.close()
    assert tracker.return_unfinished_batches() == 1
    tracker.close()
    for _ in range(2):
        later = recover(folder)
        assert later.batch_times_ms == ()
        assert ids(later.unallocated_blocks(0)) == [f"input-0-{first + 2}"]
        with pytest.raises(BatchCleanedError):
            later.get_blocks_of_batch(1)
        with pytest.raises(BatchCleanedError):
            later.get_blocks_of_batch(2)
        later.close()


def test_a_completion_that_the_log_does_not_take_is_written_later(folder: str) -> None:
    fs = RefusingFileSystem()
    tracker = ReceivedBlockTracker.recover([0], folder, options=LOG_OPTIONS, fs=fs)
    tracker.allocate_blocks_to_batch(1)
    tracker.complete_batches([1, 7])
    fs.full = True
    assert tracker.cleanup_old_batches(1) == []
    assert recover(after_crash(folder)).incomplete_batches() == (1,)
    fs.full = False
    assert tracker.cleanup_old_batches(1) == []
    assert recover(after_crash(folder)).incomplete_batches() == ()
    written = tracker._driver_log.records
    tracker.cleanup_old_batches(1)
    assert tracker._driver_log.records == written


def test_after_a_restart_old_attempts_are_ended_and_their_numbers_stay_theirs(folder: str) -> None:
    tracker = recover(folder)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    add(tracker, 0, A1, [block(0, A1, first, position=b"\x05")])
    again = recover(after_crash(folder))
    assert isinstance(add(again, 0, A1, [block(0, A1, first + 1)]), Refused)
    registration = again.register_attempt(0, A2, "host")
    assert registration.first_block_number > first
    assert registration.last_position == b"\x05"


# -- the log --------------------------------------------------------------------------------------


def test_i1_a_full_disk_is_a_failure_and_later_the_same_message_is_taken(folder: str) -> None:
    fs = RefusingFileSystem()
    tracker = ReceivedBlockTracker.recover([0], folder, options=LOG_OPTIONS, fs=fs)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    fs.full = True
    info = block(0, A1, first, position=b"\x01")
    answer = add(tracker, 0, A1, [info])
    assert isinstance(answer, Failure)
    assert "1 blocks" in answer.reason
    assert (tracker.has_unallocated_blocks, tracker.last_position(0)) == (False, None)
    with pytest.raises(LedgerWriteError):
        tracker.register_attempt(0, A2, "host")
    fs.full = False
    assert add(tracker, 0, A1, [info]) == Ok()
    again = recover(after_crash(folder))
    assert again.unallocated_blocks(0) == (info,)
    assert again.last_position(0) == b"\x01"


def position_of(n: int) -> bytes:
    return encoded_position(PositionChanges({n % 7: n}) if n % 50 else {"all": n})


def test_snapshots_let_old_segments_go_and_keep_everything(folder: str) -> None:
    tracker = recover(folder, 0, 1, snapshot_bytes=2000)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    tracker.register_attempt(1, A2, "host")
    for n in range(400):
        add(tracker, 0, A1, [block(0, A1, first + n, segment=n // 50, position=position_of(n))])
        if n % 10 == 9:
            tracker.allocate_blocks_to_batch(n)
            tracker.cleanup_old_batches(n - 50)
    assert tracker._driver_log.snapshots > 3
    crashed = after_crash(folder)
    with LogReader.open(crashed) as reader:
        assert reader.segments[0].number > 3
    again = recover(crashed, 0, 1)
    assert again.batch_times_ms == tracker.batch_times_ms
    for time_ms in tracker.batch_times_ms:
        assert again.get_blocks_of_batch(time_ms) == tracker.get_blocks_of_batch(time_ms)
    assert again.unallocated_blocks(0) == tracker.unallocated_blocks(0)
    expected = {"all": 350, **{n % 7: n for n in range(351, 400)}}
    assert msgspec.msgpack.decode(again.last_position(0) or b"", strict=False) == expected
    assert again.last_position(0) == tracker.last_position(0)
    third = recover(after_crash(crashed), 0, 1)
    assert third.batch_times_ms == tracker.batch_times_ms


def test_snapshots_come_with_age_too_so_that_a_quiet_log_does_not_grow(folder: str) -> None:
    clock = ManualClock()
    tracker = ReceivedBlockTracker.recover(
        [0], folder, options=LOG_OPTIONS, clock=clock, snapshots=SnapshotRule(age_s=60)
    )
    for minute in range(5):
        for n in range(20):
            tracker.allocate_blocks_to_batch(minute * 100 + n)
            tracker.cleanup_old_batches(minute * 100 + n)
        assert tracker._driver_log.snapshots == minute
        clock.advance(60_000)
        tracker.allocate_blocks_to_batch(minute * 100 + 50)
        assert tracker._driver_log.snapshots == minute + 1
    with LogReader.open(folder) as reader:
        assert len(reader.segments) == 1


def test_a_ledger_that_was_removed_takes_nothing_more_in_this_run(folder: str) -> None:
    tracker = recover(folder, 0)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    shutil.rmtree(folder)
    answer = add(tracker, 0, A1, [block(0, A1, first)])
    assert isinstance(answer, Refused)  # a receiver does not ask again
    assert folder in answer.reason
    # A new segment would not have what the old one had.
    os.makedirs(folder)
    with pytest.raises(LedgerLostError, match="the allocation of batch 1 ms"):
        tracker.allocate_blocks_to_batch(1)
    assert os.listdir(folder) == []


def test_a_ledger_that_another_driver_took_over_takes_nothing_more_in_this_run() -> None:
    fs = ObjectFileSystem(ObjectsClient(MemoryStore(), "s3://bucket"), "s3://bucket")

    def driver() -> ReceivedBlockTracker:
        return ReceivedBlockTracker.recover([0], "/ledger", options=LOG_OPTIONS, fs=fs)

    first = driver()
    begin = first.register_attempt(0, A1, "host").first_block_number
    with another_host():
        second = driver()
    # What it meets is the end of a segment. That it can have no other one it learns with the next.
    with pytest.raises(LedgerWriteError):
        first.allocate_blocks_to_batch(1)
    for _ in range(2):
        with pytest.raises(LedgerLostError, match=r"taken over by .*: the other driver") as caught:
            first.allocate_blocks_to_batch(1)
        assert caught.value.is_taken_over
    assert isinstance(add(first, 0, A1, [block(0, A1, begin)]), Refused)
    assert second.allocate_blocks_to_batch(1)


def test_a_snapshot_that_fails_harms_nothing(folder: str) -> None:
    fs = RefusingFileSystem()
    tracker = ReceivedBlockTracker.recover(
        [0], folder, options=LOG_OPTIONS, fs=fs, snapshots=SnapshotRule(1)
    )
    fs.full = True
    with pytest.raises(LedgerWriteError):
        tracker.allocate_blocks_to_batch(1)
    fs.full = False
    for time_ms in range(2, 30):
        assert tracker.allocate_blocks_to_batch(time_ms)
    assert recover(after_crash(folder)).batch_times_ms == tuple(range(2, 30))


def test_a_snapshot_without_its_end_is_as_if_never_begun(folder: str) -> None:
    from penstock.tracker.ledger._recovery import snapshot_parts
    from penstock.tracker.ledger.events import SNAPSHOT_KIND

    tracker = recover(folder)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    blocks = [block(0, A1, first + n, position=b"x" * 1_500_000) for n in range(3)]
    for info in blocks:
        add(tracker, 0, A1, [info])
    parts = list(
        snapshot_parts(tracker._state, tracker._driver_log._number + 1, tracker._driver_log._after)
    )
    assert len(parts) > 1
    tracker.close()
    with LogWriter.create(folder, options=LOG_OPTIONS) as log:
        for part in parts[:-1]:
            log.append(SNAPSHOT_KIND, encode(part))
    again = recover(folder)
    assert again.unallocated_blocks(0) == tuple(blocks)
    add_numbers = again.register_attempt(0, A2, "host")
    assert add(again, 0, A2, [block(0, A2, add_numbers.first_block_number)]) == Ok()
    assert len(recover(after_crash(folder)).unallocated_blocks(0)) == 4


def test_i6_damage_in_the_driver_log_names_segment_and_offset(folder: str) -> None:
    tracker = recover(folder)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    for n in range(3):
        add(tracker, 0, A1, [block(0, A1, first + n)])
    tracker.close()
    with LogReader.open(folder) as reader:
        places = [record.place for record in reader.records()]
    path = LogReader.open(folder).segments[0].path
    with open(path, "r+b") as file:
        file.seek(places[1].offset + 70)
        file.write(b"\xff\xff")
    with pytest.raises(CorruptRecordError) as error:
        recover(folder)
    assert f"`penstock wal check {folder}`" in str(error.value)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    assert (error.value.segment, error.value.offset) == (places[1].segment, places[1].offset)


class ElsewhereFileSystem(LocalFileSystem):
    """A file system whose addresses are no paths, as those of an object store."""

    def address(self, path: str) -> str:
        return f"s3://bucket{path}"


def test_a_damaged_driver_log_elsewhere_is_named_as_commands_take_it(folder: str) -> None:
    with LogWriter.create(folder, options=LOG_OPTIONS) as log:
        for _ in range(2):
            log.append(EVENTS_KIND, b"x")
    with LogReader.open(folder) as reader:
        places = [record.place for record in reader.records()]
    with open(LogReader.open(folder).segments[0].path, "r+b") as file:
        file.seek(places[0].offset + 20)
        file.write(b"\xff\xff")
    commands = f"`penstock wal check s3://bucket{folder}`"
    with pytest.raises(DamagedLedgerError, match=re.escape(commands)):
        ReceivedBlockTracker.recover((0,), folder, fs=ElsewhereFileSystem())
    with pytest.raises(DamagedLedgerError, match=re.escape(commands)):
        ReceivedBlockTracker.read(folder, fs=ElsewhereFileSystem())


def test_i6_a_driver_log_that_was_cut_short_is_damage_and_repair_keeps_what_is_whole(
    folder: str,
) -> None:
    tracker = recover(folder)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    blocks = [block(0, A1, first + n) for n in range(3)]
    for each in blocks:
        assert add(tracker, 0, A1, [each]) == Ok()
    cut = after_crash(folder)
    with LogReader.open(cut) as reader:
        (*_, last) = reader.records()
    with open(LogReader.open(cut).segments[0].path, "r+b") as file:
        file.truncate(last.place.offset + last.place.length - 1)
    with pytest.raises(DamagedLedgerError, match="somebody cut it short") as error:
        recover(cut)
    assert f"`penstock wal repair {cut}`" in str(error.value)
    assert repair(cut).damages
    assert recover(cut).unallocated_blocks(0) == tuple(blocks[:2])


def test_a_record_that_is_no_ledger_event_names_segment_and_offset(folder: str) -> None:
    with LogWriter.create(folder, options=LOG_OPTIONS) as log:
        place = log.append(EVENTS_KIND, b"\x93\x01\x00nonsense")
    with pytest.raises(LedgerRecoveryError, match="cannot be decoded") as error:
        recover(folder)
    assert (error.value.segment, error.value.offset) == (place.segment, place.offset)
    # The log is free again after the error.
    with pytest.raises(LedgerRecoveryError):
        recover(folder)


def test_a_record_that_was_carried_out_after_its_append_had_failed_counts_for_nothing(
    folder: str,
) -> None:
    """The disk had stalled; the ledger went on without it and took the block when it came again."""
    first = BlockNumbers.first_number(1)
    info = block(0, A1, first)
    addition = addition_events([(first, info)])
    with LogWriter.create(folder, options=LOG_OPTIONS) as log:
        for number, after, events in (
            (1, 0, (AttemptRegistrationEvent(0, A1, "host", 1),)),
            (2, 1, addition),
            (3, 1, addition),
        ):
            log.append(EVENTS_KIND, encode(LedgerRecord(number, after, events, FORMAT)))
    assert recover(folder).unallocated_blocks(0) == (info,)


def test_a_log_of_something_else_is_not_taken_for_a_ledger(folder: str) -> None:
    with LogWriter.create(folder, options=LOG_OPTIONS) as log:
        log.append(3, b"a block")
    with pytest.raises(LedgerRecoveryError, match="not a driver log"):
        recover(folder)


def test_a_second_application_on_the_same_driver_log_gets_a_clear_error(folder: str) -> None:
    tracker = recover(folder)
    with pytest.raises(LogFolderInUseError, match=str(os.getpid())):
        recover(folder)
    tracker.close()
    recover(folder).close()


def test_a_closed_ledger_can_be_asked_but_not_changed(folder: str) -> None:
    tracker = recover(folder)
    tracker.allocate_blocks_to_batch(5)
    tracker.close()
    tracker.close()
    assert tracker.batch_times_ms == (5,)
    with pytest.raises(LedgerWriteError):
        tracker.allocate_blocks_to_batch(6)
    assert tracker.cleanup_old_batches(9) == []


def test_i1_a_driver_that_starts_anew_processes_what_the_last_one_did_not_finish(
    folder: str,
) -> None:
    tracker = recover(folder)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    blocks = [block(0, A1, first + n) for n in range(6)]
    add(tracker, 0, A1, blocks[:2])
    tracker.allocate_blocks_to_batch(1)
    add(tracker, 0, A1, blocks[2:4])
    tracker.allocate_blocks_to_batch(2)
    tracker.cleanup_old_batches(2)
    add(tracker, 0, A1, blocks[4:])
    second_folder = after_crash(folder)
    again = recover(second_folder)
    assert again.return_unfinished_batches() == 2
    assert again.unallocated_blocks(0) == tuple(blocks[2:])
    assert again.return_unfinished_batches() == 0
    # The same after another crash, and each block goes to one batch as before (I2, I3).
    third = recover(after_crash(second_folder))
    assert third.unallocated_blocks(0) == tuple(blocks[2:])
    assert third.allocate_blocks_to_batch(3)
    assert third.get_blocks_of_batch_and_stream(3, 0) == tuple(blocks[2:])


def test_a_recovered_block_still_says_how_its_records_lie(folder: str) -> None:
    tracker = recover(folder)
    first = tracker.register_attempt(0, A1, "host").first_block_number
    kinds = [("string", None), ("arrow", b"a schema"), ("arrow", b"another"), ("binary", None)]
    blocks = [
        msgspec.structs.replace(block(0, A1, first + n), kind=kind, schema=schema)
        for n, (kind, schema) in enumerate(kinds)
    ]
    add(tracker, 0, A1, blocks)
    assert recover(after_crash(folder)).unallocated_blocks(0) == tuple(blocks)


def test_attempts_that_are_registered_together_are_in_the_log_together_or_not_at_all(
    folder: str,
) -> None:
    ledger = ReceivedBlockTracker.recover([0, 1], folder, options=LOG_OPTIONS)
    old, newest = attempt_name(8), attempt_name(9)
    first_old = ledger.register_attempt(0, old, "host")
    records = ledger._driver_log.records
    first, unknown, second, again = ledger.register_attempts(
        [(0, A1, "host", ""), (7, newest, "host", ""), (1, A2, "host", "log"), (0, A1, "host", "")]
    )
    assert isinstance(unknown, LedgerError)
    assert not isinstance(first, LedgerError)
    assert first == again
    assert first.first_block_number > first_old.first_block_number
    assert ledger._driver_log.records == records + 1
    assert ledger.register_attempt(1, A2, "host", "log") == second
    with pytest.raises(LedgerError, match="replaced or ended"):
        ledger.register_attempt(0, old, "host")
    # A driver that is killed before the record is whole, and one that is right after.
    cut, whole = after_crash(folder), folder
    with LogReader.open(cut) as reader:
        (*_, last) = reader.records()
    half = last.place.length // 2
    with open(LogReader.open(cut).segments[0].path, "r+b") as file:
        file.seek(last.place.offset + half)
        file.write(bytes(last.place.length - half))
    ledger.close()
    assert ReceivedBlockTracker.recover([0, 1], cut).attempts == (old,)
    assert set(ReceivedBlockTracker.recover([0, 1], whole).attempts) == {old, A1, A2}


@pytest.mark.parametrize(
    ("batch", "streams", "says"),
    [
        (1000, ((7, ((1, 1),)),), "of unknown stream 7"),
        (1000, ((0, ((1 << 33, 1),)),), f"takes block input-0-{1 << 33}, which is not waiting"),
        (-1, (), "batch -1 is allocated after batch 0, but not later"),
    ],
)
def test_a_batch_takes_only_what_waits(
    batch: int, streams: tuple[tuple[int, tuple[tuple[int, int], ...]], ...], says: str
) -> None:
    state = LedgerState()
    state.streams[0] = StreamLedger()
    state.last_batch = 0
    with pytest.raises(LedgerError, match=says):
        state.apply(BatchAllocationEvent(batch, streams))
    assert (state.batches, state.last_batch) == ({}, 0)
