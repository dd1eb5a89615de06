"""What stays in the receivers' logs after the clean-up of its batch, and when it goes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.receiver import log_folder
from penstock.runtime.clock import ManualClock
from penstock.tracker import Retention
from penstock.tracker.hosts.block_deletion import DiskRoom, SharedLogs
from penstock.tracker.hosts.block_servers import BlockServers
from penstock.tracker.ledger.events import RetainedSegment
from penstock.tracker.ledger.received_block_tracker import AttemptRelease, ReceivedBlockTracker
from penstock.wal import segment_path
from penstock.wire.messages import (
    LogReading,
    PipeReading,
    ReleaseBlocks,
    ReportFullLog,
    ReportRateStatus,
)
from tests.tracker.ledger_cases import (
    LOG_OPTIONS,
    RefusingFileSystem,
    add,
    attempt_name,
    block,
)

HOUR_MS = 3_600_000
NAME = attempt_name(1)
LOG = f"/log/0-{NAME}"


class Program:
    """A ledger whose stream 0 stores one block a batch, each in a segment of its own."""

    def __init__(
        self,
        folder: Path,
        retention: Retention | None,
        streams: Sequence[int] = (0,),
        **named: Any,
    ) -> None:
        self.streams = streams
        self.folder = folder
        self.clock = ManualClock(1_000_000)
        self.named = named
        self.batch = 0
        self.open(retention)

    def open(self, retention: Retention | None) -> None:
        self.ledger = ReceivedBlockTracker.recover(
            self.streams,
            str(self.folder),
            options=LOG_OPTIONS,
            clock=self.clock,
            retention=retention,
            **self.named,
        )

    def open_again(self, retention: Retention | None) -> None:
        self.ledger.close()
        self.open(retention)

    def register(self, name: str = NAME, host: str = "host") -> None:
        self.next = self.ledger.register_attempt(0, name, host).first_block_number
        self.name = name
        self.segment = 0

    def batches(self, count: int) -> list[AttemptRelease]:
        """Process so many batches; return what may go."""
        releases: list[AttemptRelease] = []
        for _ in range(count):
            self.batch += 1000
            self.segment += 1
            stored = block(0, self.name, self.next, segment=self.segment)
            self.next += 1
            add(self.ledger, 0, self.name, [stored])
            assert self.ledger.allocate_blocks_to_batch(self.batch)
            releases += self.ledger.cleanup_old_batches(self.batch + 1)
        return releases

    def retained(self) -> list[int]:
        return [found.number for found in self.ledger.logged_segments(0)]


def segments(releases: Sequence[AttemptRelease]) -> list[int]:
    return [number for release in releases for _, number in release.segments]


def test_segments_stay_for_their_time_and_the_oldest_go_first(tmp_path: Path) -> None:
    program = Program(tmp_path, Retention(HOUR_MS))
    program.register()
    released = program.batches(2)
    assert segments(released) == []
    assert [block_id for release in released for block_id in release.block_ids], "memory goes"
    program.clock.advance(HOUR_MS // 2)
    assert segments(program.batches(2)) == []
    program.clock.advance(HOUR_MS // 2)
    assert segments(program.batches(1)) == [1, 2]
    assert program.retained() == [3, 4, 5]


def test_without_a_retention_segments_go_with_the_clean_up(tmp_path: Path) -> None:
    program = Program(tmp_path, None)
    program.register()
    assert segments(program.batches(3)) == [1, 2]


def test_segments_of_more_bytes_than_the_bound_go(tmp_path: Path) -> None:
    program = Program(tmp_path, Retention(None, 2 * 1064))
    program.register()
    assert segments(program.batches(5)) == [1, 2]
    assert program.ledger._state.retained.size_bytes == 3 * 1064, "the last is newer than that"


@pytest.mark.parametrize("snapshots", [True, False])
def test_what_is_retained_outlives_drivers(tmp_path: Path, snapshots: bool) -> None:
    program = Program(tmp_path, Retention(HOUR_MS))
    program.register()
    program.batches(3)
    before = program.ledger.logged_segments(0)
    assert [found.records for found in before] == [10, 10, 10]
    program.open_again(Retention(HOUR_MS))
    if snapshots:  # The one that each start writes is now all that there is.
        program.open_again(Retention(HOUR_MS))
    assert program.ledger.logged_segments(0) == before
    (release,) = program.ledger.cleanup_old_batches(0)
    assert (release.memory, release.whole, release.segments) == (True, False, ())
    assert program.ledger.cleanup_old_batches(0) == [], "its memory goes once"
    program.ledger.forget_attempts([NAME])
    assert program.ledger.attempts == (NAME,)
    program.clock.advance(HOUR_MS)
    (release,) = program.ledger.cleanup_old_batches(0)
    assert release.whole
    assert segments([release]) == [1, 2, 3]
    program.ledger.forget_attempts([NAME])
    assert program.ledger.attempts == ()


def test_batches_that_a_killed_driver_had_processed_are_retained_too(tmp_path: Path) -> None:
    program = Program(tmp_path, Retention(HOUR_MS))
    program.register()
    add(program.ledger, 0, NAME, [block(0, NAME, program.next, segment=1)])
    program.ledger.allocate_blocks_to_batch(1000)
    program.ledger.complete_batches([1000])
    program.open_again(Retention(HOUR_MS))
    # A program without a checkpoint: it begins anew.
    assert program.ledger.return_unfinished_batches() == 0
    for _ in range(2):
        assert len(program.ledger._state.retained) == 1
        assert segments(program.ledger.cleanup_old_batches(0)) == []
        program.open_again(Retention(HOUR_MS))


def test_what_is_retained_of_another_stream_is_not_named(tmp_path: Path) -> None:
    program = Program(tmp_path, Retention(HOUR_MS), streams=(0, 1))
    program.register()
    program.batches(2)
    other = attempt_name(2)
    first = program.ledger.register_attempt(1, other, "host").first_block_number
    add(program.ledger, 1, other, [block(1, other, first, segment=7)])
    program.ledger.allocate_blocks_to_batch(9000)
    program.ledger.cleanup_old_batches(9001)
    assert program.retained() == [1, 2]
    assert [found.number for found in program.ledger.logged_segments(1)] == [7]


def test_a_program_that_retains_no_longer_lets_all_go(tmp_path: Path) -> None:
    program = Program(tmp_path, Retention(HOUR_MS))
    program.register()
    program.batches(3)
    program.open_again(None)
    assert segments(program.ledger.cleanup_old_batches(0)) == [1, 2, 3]


def test_a_segment_that_still_takes_blocks_is_not_deleted_with_its_retention(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path, Retention(HOUR_MS))
    program.register()
    program.batches(1)
    releases, count, _ = program.ledger.release_retained("host", 1)
    assert (segments(releases), count) == ([], 1)
    program.segment = 0
    assert segments(program.batches(1)) == [], "the same segment again"
    assert program.retained() == [1]


def test_blocks_that_wait_or_have_a_batch_are_named_with_what_is_retained(tmp_path: Path) -> None:
    program = Program(tmp_path, Retention(HOUR_MS))
    program.register()
    program.batches(1)
    blocks = [block(0, NAME, program.next + n, segment=1 + n // 2) for n in range(3)]
    add(program.ledger, 0, NAME, blocks[:2])
    program.ledger.allocate_blocks_to_batch(5000)
    add(program.ledger, 0, NAME, blocks[2:])
    first = program.next - 1 & 0xFFFFFFFF
    found = program.ledger.logged_segments(0)
    assert [(one.number, one.runs) for one in found] == [
        (1, ((first, first + 2),)),
        (2, ((first + 3, first + 3),)),
    ]
    # Whoever asks changes nothing, also not of what is retained later.
    assert program.ledger.logged_segments(0) == found
    program.ledger.allocate_blocks_to_batch(6000)
    program.ledger.cleanup_old_batches(6001)
    assert program.ledger.logged_segments(0) == found
    assert program.ledger._state.retained.size_bytes == sum(one.size_bytes for one in found)


@given(st.permutations(range(12)), st.integers(0, 12))
def test_sequences_become_runs_in_whatever_order_they_come(order: list[int], count: int) -> None:
    segment = RetainedSegment(NAME, LOG, 1)
    for sequence in order[:count]:
        segment.add(sequence, 1, 1, 0)
    named = [n for first, last in segment.runs for n in range(first, last + 1)]
    assert named == sorted(order[:count])
    assert all(a[1] + 1 < b[0] for a, b in zip(segment.runs, segment.runs[1:], strict=False))


# -- a disk that runs short ------------------------------------------------------------------------


class Deletion:
    def __init__(self) -> None:
        self.segments: list[int] = []

    def delete(self, ledger: Any, releases: Sequence[AttemptRelease]) -> None:
        self.segments += segments(releases)


def report(free_bytes: int) -> ReportRateStatus:
    pipe = PipeReading(log=LogReading(free_bytes=free_bytes))
    return ReportRateStatus(0, NAME, 0, 0, 0.0, False, 0.0, 0.0, pipe=pipe)


def room(program: Program, deletion: Any, segment_bytes: int) -> DiskRoom:
    return DiskRoom(
        program.ledger, deletion, program.clock, segment_bytes=segment_bytes, is_shared=False
    )


def test_the_oldest_go_when_the_disk_runs_short_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program(tmp_path, Retention(HOUR_MS))
    program.register(attempt_name(7), "another")
    program.batches(1)
    program.register()
    program.batches(4)
    deletion = Deletion()
    disk = room(program, deletion, 266)
    disk.take(report(4 * 266))
    disk.take(report(-1))
    assert deletion.segments == []
    with caplog.at_level(logging.WARNING, "penstock.tracker"):
        disk.take(report(4 * 266 - 1))
        disk.take(report(0))
    assert deletion.segments == [1, 2], "not what lies on another host, and once a while"
    (line,) = caplog.messages
    assert "runs short" in line
    assert "the oldest first" in line
    program.clock.advance(2000)
    disk.take(report(0))
    assert deletion.segments == [1, 2, 3]
    program.clock.advance(2000)
    disk.take(report(0))
    assert len(program.ledger.logged_segments(0)) == 1


def test_retained_segments_go_also_when_the_driver_log_takes_nothing(tmp_path: Path) -> None:
    fs = RefusingFileSystem()
    program = Program(tmp_path, Retention(HOUR_MS), fs=fs)
    program.register()
    program.batches(3)
    fs.full = True
    releases, count, _ = program.ledger.release_retained("host", 1 << 20)
    assert (segments(releases), count) == ([1, 2], 3)
    fs.full = False
    program.ledger.end_attempt(NAME)
    (release,) = program.ledger.cleanup_old_batches(0)
    assert release.whole
    program.ledger.forget_attempts([NAME])
    # The log still says that they are retained, and that the attempt is forgotten.
    program.open_again(Retention(HOUR_MS))
    assert program.retained() == []
    assert program.ledger.attempts == ()


def test_what_is_retained_goes_for_a_receiver_that_finds_no_room_to_begin_its_log(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path, Retention(HOUR_MS))
    program.register()
    program.batches(5)
    deletion = Deletion()
    disk = room(program, deletion, 266)
    # Its attempt is not known to the ledger yet. Much is said to be free: there is a quota.
    disk.take_full(ReportFullLog(0, attempt_name(2), "another", 1 << 30))
    assert deletion.segments == []
    disk.take_full(ReportFullLog(0, attempt_name(2), "host", 1 << 30))
    assert deletion.segments == [1]
    program.clock.advance(2000)
    disk.take_full(ReportFullLog(0, attempt_name(2), "host", -1))
    assert deletion.segments == [1, 2, 3, 4]


class FakePeer:
    def __init__(self) -> None:
        self.sent: list[msgspec.Struct] = []

    def send(self, message: msgspec.Struct) -> None:
        self.sent.append(message)


def test_memory_of_an_ended_attempt_is_let_go_by_a_block_server_that_comes_later() -> None:
    from penstock.wire.messages import RegisterBlockServer

    servers = BlockServers(10.0, ManualClock())
    servers.release_memory("host", NAME)
    peer: Any = FakePeer()
    servers.register(peer, RegisterBlockServer("host", ("127.0.0.1", 1), 1))
    servers.release_memory("host", attempt_name(2))
    assert peer.sent == [
        ReleaseBlocks((), (), (NAME,)),
        ReleaseBlocks((), (), (attempt_name(2),)),
    ]


def test_a_server_that_is_gone_is_named_until_its_lease_is_over() -> None:
    from penstock.wire.messages import RegisterBlockServer

    clock = ManualClock()
    servers = BlockServers(10.0, clock)
    peer: Any = FakePeer()
    servers.register(peer, RegisterBlockServer("a", ("127.0.0.1", 1), 1))
    servers.release_memory("never", NAME)
    assert servers.addresses() == servers.served() == {"a": ("127.0.0.1", 1)}
    assert servers.disconnected(peer) == "a"
    assert (servers.served(), servers.addresses()) == ({}, {"a": ("127.0.0.1", 1)})
    clock.advance(10_000)
    assert servers.addresses() == {}


class NotedLogs(SharedLogs):
    """Notes what would be removed."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.removed: set[str] = set()

    def _remove(self, address: str) -> None:
        self.removed.add(address)


ON_S3 = "s3://bucket/logs"
ITS_LOG = log_folder(ON_S3, 0, NAME)
EARLIER = f"s3://other/logs/stream-0/{NAME}"


@pytest.mark.parametrize(
    ("root", "changes", "removed"),
    [
        (ON_S3, {"whole": True, "is_first": True}, {ITS_LOG}),
        (ON_S3, {"whole": True, "is_first": False}, set()),
        ("/logs", {"whole": True, "is_first": True}, set()),
        # The logs were elsewhere in an earlier run.
        ("/logs", {"whole": True, "is_first": True, "segments": ((EARLIER, 3),)}, {EARLIER}),
        (ON_S3, {"segments": ((ITS_LOG, 3), ("/logs/a", 4))}, {segment_path(ITS_LOG, 3)}),
        (
            ON_S3,
            {"log": "s3://bucket/process-1", "segments": ((ITS_LOG, 3),)},
            {"s3://bucket/process-1"},
        ),
        (ON_S3, {"log": "/logs/process-1", "whole": True, "is_first": True}, set()),
        ("/logs", {}, set()),
    ],
)
def test_of_shared_logs_that_goes_which_no_one_needs(
    root: str, changes: dict[str, Any], removed: set[str]
) -> None:
    release = AttemptRelease(0, NAME, "host", True, False, (), ())
    logs = NotedLogs(root)
    logs.remove(msgspec.structs.replace(release, **changes))
    assert logs.removed == removed
