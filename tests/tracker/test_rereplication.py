"""Copies that were lost are made again: what the ledger says of them, and who is asked to.

Also which hosts are remembered, and for how long.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.clock import ManualClock
from penstock.tracker import ExecutorLocation, ReceivedBlockTracker, _control, receiver_tracker
from penstock.tracker.errors import LedgerWriteError
from penstock.tracker.hosts import rereplication
from penstock.tracker.hosts.block_deletion import BlockDeletion, SharedLogs
from penstock.tracker.hosts.block_servers import BlockServers
from penstock.tracker.hosts.replica_hosts import ReplicaHosts
from penstock.tracker.hosts.rereplication import Rereplication
from penstock.tracker.ledger._driver_log import SnapshotRule
from penstock.tracker.ledger._kept_blocks import KeptBlocks
from penstock.wire.messages import (
    BlocksCopied,
    CheckLogs,
    CopiesAt,
    CopyBlocks,
    EnsureBlockServer,
    FindCopies,
    FindReplicaHost,
    LogsMissing,
    Message,
    Ok,
    ReceivedBlockInfo,
    RegisterBlockServer,
    ReleaseBlocks,
    ReplicaPlace,
    SegmentPlace,
)
from tests.tracker.ledger_cases import LOG_OPTIONS, RefusingFileSystem, add, attempt_name, block
from tests.tracker.test_replica_hosts import HostsCluster, server_of, until, with_copies
from tests.tracker.tracker_cases import WAIT_S, ThreadCluster

A, B, C, D = "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"
LEASE_S = 60.0


def copy_on(host: str, attempt: str, number: int, segment: int = 1) -> ReplicaPlace:
    place = SegmentPlace(f"/log/0-{attempt}-{host}", segment, 4096 * (number % 64), 1064)
    return ReplicaPlace(host, place, number % 1000)


def copied(attempt: str, number: int, other: str = B, segment: int = 1) -> ReceivedBlockInfo:
    """A block of host A with a copy on another one."""
    return msgspec.structs.replace(
        block(0, attempt, number, segment=segment),
        host=A,
        replicas=(copy_on(other, attempt, number, segment),),
    )


class Case:
    """A ledger of one stream, block servers on hosts, and what copies again; the test is Spark."""

    def __init__(self, folder: Path, *, kept: bool = False, level: int = 2) -> None:
        self.folder = folder
        self.clock = ManualClock(1_700_000_000_000)
        self.fs = RefusingFileSystem()
        self.kept = kept
        self.level = level
        self.cluster = ThreadCluster()
        self.attempts = 0
        self.open()

    def open(self) -> None:
        """Open the ledger as a new driver does, which no block server knows yet."""
        self.ledger = ReceivedBlockTracker.recover(
            [0, 1],
            str(self.folder),
            options=LOG_OPTIONS,
            clock=self.clock,
            snapshots=SnapshotRule(1 << 30),
            fs=self.fs,
        )
        self.ledger.register_streams({"clicks": 0, "spots": 1}, are_kept=self.kept)
        self.servers = BlockServers(LEASE_S, self.clock)
        self.peers: dict[str, Peer] = {}
        self.replica_hosts = ReplicaHosts(
            self.cluster,
            self.servers,
            receivers=1,
            copies=1,
            launch=lambda: pytest.fail("nothing is started"),
            receiver_hosts=frozenset,
            clock=self.clock,
        )
        self.copies = Rereplication(
            self.ledger,
            self.replica_hosts,
            levels={0: self.level, 1: self.level},
            is_encrypted=False,
            clock=self.clock,
        )

    def register(self) -> tuple[str, int]:
        """Register an attempt on host A."""
        self.attempts += 1
        self.attempt = attempt_name(self.attempts)
        self.first = self.ledger.register_attempt(0, self.attempt, A).first_block_number
        return self.attempt, self.first

    def add(self, *blocks: ReceivedBlockInfo) -> None:
        for one in blocks:
            add(self.ledger, 0, one.attempt, [one])

    def up(self, *hosts: str) -> None:
        for host in hosts:
            self.peers[host] = Peer()
            peer: Any = self.peers[host]
            self.servers.register(peer, RegisterBlockServer(host, (host, 1), 1))

    def down(self, *hosts: str) -> None:
        for host in hosts:
            peer: Any = self.peers.pop(host)
            self.servers.disconnected(peer)
            self.copies.gone(host)

    def wait(self, seconds: float) -> None:
        """Let time pass, and look on the way and at its end."""
        self.copies.look()
        self.clock.advance(int(seconds * 1000))
        self.copies.look()

    def asks(self, host: str) -> list[CopyBlocks]:
        """Return what a host was asked to copy since the call before."""
        return self.peers[host].take(CopyBlocks)

    def make(self, host: str) -> list[str]:
        """Let a host make all the copies that it is asked for; return the blocks."""
        made = []
        while asks := self.asks(host):
            for ask in asks:
                has = {one.block_id: one.hosts for one in self.blocks()}
                assert not [one for one in ask.blocks if ask.host in has[one.block_id]]
                made += [one.block_id for one in ask.blocks]
                self.copies.copied(BlocksCopied(ask.request, made_on(ask)))
        return made

    def blocks(self) -> list[ReceivedBlockInfo]:
        return self.ledger.blocks([0])

    def places(self) -> list[tuple[str, ...]]:
        return [one.hosts for one in self.blocks()]


def made_on(ask: CopyBlocks, segment: int = 9) -> tuple[ReplicaPlace, ...]:
    numbers = [int(one.block_id.rpartition("-")[2]) for one in ask.blocks]
    return tuple(
        copy_on(ask.host, one.attempt, number, segment)
        for one, number in zip(ask.blocks, numbers, strict=True)
    )


class Peer:
    """A block server's connection."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def take(self, kind: type[Any]) -> list[Any]:
        found = [message for message in self.sent if isinstance(message, kind)]
        self.sent = [message for message in self.sent if not isinstance(message, kind)]
        return found


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    made = Case(tmp_path)
    made.register()
    yield made
    made.ledger.close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Case]:
    made = Case(tmp_path, kept=True)
    made.register()
    yield made
    made.ledger.close()


# -- the ledger --------------------------------------------------------------------------------


def test_new_places_are_the_same_live_and_after_a_restart(case: Case) -> None:
    """Of blocks that wait, of those of batches; also from a snapshot."""
    blocks = [copied(case.attempt, case.first + n) for n in range(4)]
    case.add(*blocks[:2])
    case.ledger.allocate_blocks_to_batch(1000)
    case.add(*blocks[2:])
    again = [(one, copy_on(C, case.attempt, n)) for n, one in enumerate(blocks) if n != 1]
    assert case.ledger.add_copies(again, [B]) == []
    # In the place of those on the lost host, in their order, and no other block.
    assert case.places() == [(A, C), (A, B), (A, C), (A, C)]
    assert case.blocks()[3].replicas == (again[2][1],)
    (of_batch,) = case.ledger.get_blocks_of_batch(1000).values()
    live = case.blocks()
    assert list(of_batch) == live[:2]
    for _ in range(2):  # from the log, then from a snapshot
        case.ledger.close()
        case.open()
        assert case.blocks() == live
        assert case.ledger.hosts() == {A, B, C}


def test_places_of_streams_that_are_read_by_places_change_in_place(kept: Case) -> None:
    """Also of a block that filled a gap, and stands behind those with higher numbers."""
    first, attempt = kept.first, kept.attempt
    numbers = [first, first + 2, first + 1, first + 3]
    kept.add(*(copied(attempt, number) for number in numbers))
    before = kept.blocks()
    again = [(before[n], copy_on(C, attempt, n)) for n in (1, 2, 3)]
    # And one that was released meanwhile.
    gone = msgspec.structs.replace(before[0], block_id=f"input-0-{first + 9}")
    kept.ledger.add_copies([*again, (gone, copy_on(C, attempt, 9))], [B])
    live = kept.blocks()
    assert [one.block_id for one in live] == [one.block_id for one in before]
    assert kept.places() == [(A, B), (A, C), (A, C), (A, C)]
    for one in live:
        assert kept.ledger.find_block(0, one.block_id) == one
    for name in ("0-9", f"0-{first + 9}", f"1-{first}", "0-x", ""):
        assert kept.ledger.find_block(0, f"input-{name}") is None
    assert kept.ledger.find_block(7, "input-7-1") is None
    kept.ledger.close()
    kept.open()
    assert kept.blocks() == live
    _, found, _ = kept.ledger.places.between(0, 1, 3)
    assert [one.replicas[0].sequence for one in found] == [1, 2]


@given(st.permutations(range(12)), st.integers(0, 12))
def test_blocks_that_are_kept_are_found_by_number_in_any_order(
    numbers: list[int], released: int
) -> None:
    blocks = KeptBlocks("epoch")
    for number in numbers:
        blocks.append(number, block(0, attempt_name(1), number), 0)
    blocks.release(released)
    for number in range(12):
        found = blocks.find(number)
        assert (found is not None) == (number in numbers[released:])
        assert found is None or found.block_id == f"input-0-{number}"


def test_a_copy_that_is_given_up_and_one_that_came_too_late_are_released(case: Case) -> None:
    first, second, late = (copied(case.attempt, case.first + n) for n in range(3))
    case.add(late)
    case.ledger.allocate_blocks_to_batch(1000)
    case.add(first, second)
    case.ledger.cleanup_old_batches(2000)
    copies = [
        (first, copy_on(C, case.attempt, 1, 7)),
        (second, copy_on(C, case.attempt, 2, 7)),
        (late, copy_on(C, case.attempt, 3, 8)),
    ]
    case.ledger.add_copies(copies, [B])
    (release,) = case.ledger.cleanup_old_batches(2000)
    # Not that of host B: it is the newest that the receiver wrote.
    assert release.replicas == ((C, f"/log/0-{case.attempt}-{C}", 8),)
    case.ledger.end_attempt(case.attempt)
    (release,) = case.ledger.cleanup_old_batches(2000)
    assert release.replicas == ((B, f"/log/0-{case.attempt}-{B}", 1),)
    case.ledger.allocate_blocks_to_batch(3000)
    (release,) = case.ledger.cleanup_old_batches(4000)
    assert release.replicas == ((C, f"/log/0-{case.attempt}-{C}", 7),)
    assert release.whole
    assert release.replica_hosts == (B, C)
    # Now nothing is left of the attempt.
    assert case.ledger.add_copies(copies[:1], []) == [(C, case.attempt)]
    case.ledger.forget_attempts([case.attempt])
    assert case.ledger.add_copies(copies[:1], []) == [(C, case.attempt)]


def test_a_block_has_one_copy_on_a_host(case: Case) -> None:
    one = copied(case.attempt, case.first)
    case.add(one)
    case.ledger.add_copies([(one, copy_on(B, case.attempt, 5, 5))], [])
    assert case.blocks() == [one]
    case.ledger.end_attempt(case.attempt)
    (release,) = case.ledger.cleanup_old_batches(0)
    assert release.replicas == ((B, f"/log/0-{case.attempt}-{B}", 5),)


def test_no_segment_goes_where_a_copy_may_be_that_is_not_known_yet(case: Case) -> None:
    first, second = (copied(case.attempt, case.first + n) for n in range(2))
    case.add(first)
    case.ledger.allocate_blocks_to_batch(1000)
    case.add(second)
    case.ledger.add_copies([(first, copy_on(C, case.attempt, 1, 7))], [])
    case.ledger.hold_copies({(case.attempt, C)})
    (release,) = case.ledger.cleanup_old_batches(2000)
    assert release.replicas == ()
    case.ledger.add_copies([(second, copy_on(C, case.attempt, 2, 7))], [])
    case.ledger.hold_copies(())
    assert case.ledger.cleanup_old_batches(2000) == []
    case.ledger.allocate_blocks_to_batch(2000)
    (release,) = case.ledger.cleanup_old_batches(3000)
    assert release.replicas == ((C, f"/log/0-{case.attempt}-{C}", 7),)


def test_a_living_attempt_keeps_its_copies_when_one_is_not_needed_any_more(case: Case) -> None:
    """Its log on that host may have copies that are on their way; only a segment goes."""
    case.up(A, B, C)
    case.add(copied(case.attempt, case.first, segment=3))
    case.down(B)
    case.wait(LEASE_S)
    (ask,) = case.asks(A)
    case.ledger.allocate_blocks_to_batch(1000)
    case.ledger.cleanup_old_batches(2000)
    case.copies.copied(BlocksCopied(ask.request, made_on(ask)))
    assert case.peers[C].take(ReleaseBlocks) == []
    (release,) = case.ledger.cleanup_old_batches(2000)
    assert (release.replicas, release.whole) == (((C, f"/log/0-{case.attempt}-{C}", 9),), False)
    # Nor one that is as new as the receiver's own copies.
    case.add(one := copied(case.attempt, case.first + 1, C, segment=4))
    gone = msgspec.structs.replace(one, block_id=f"input-0-{case.first}")
    for segment in (3, 4, 5):
        case.ledger.add_copies([(gone, copy_on(C, case.attempt, 0, segment))], [])
    (release,) = case.ledger.cleanup_old_batches(2000)
    assert [segment for host, _, segment in release.replicas if host == C] == [3]


def test_a_copy_that_is_not_needed_is_told_once(case: Case) -> None:
    one = copied(case.attempt, case.first)
    case.ledger.end_attempt(case.attempt)
    copies = [(one, copy_on(C, case.attempt, number)) for number in range(9)]
    assert case.ledger.add_copies(copies, []) == [(C, case.attempt)]


def test_the_newest_segments_of_a_living_attempt_stay_on_all_hosts(case: Case) -> None:
    """The next block may be there that the receiver has stored and not told of yet."""
    one = copied(case.attempt, case.first)
    case.add(msgspec.structs.replace(one, replicas=(*one.replicas, copy_on(C, case.attempt, 1))))
    case.ledger.allocate_blocks_to_batch(1000)
    (release,) = case.ledger.cleanup_old_batches(2000)
    assert release.replicas == ()
    case.ledger.end_attempt(case.attempt)
    (release,) = case.ledger.cleanup_old_batches(2000)
    assert [host for host, _, _ in release.replicas] == [B, C]


def test_what_the_log_did_not_take_did_not_happen(case: Case) -> None:
    one = copied(case.attempt, case.first)
    case.add(one)
    case.fs.full = True
    with pytest.raises(LedgerWriteError):
        case.ledger.add_copies([(one, copy_on(C, case.attempt, 1))], [B])
    case.fs.full = False
    assert case.blocks() == [one]


# -- who is asked ------------------------------------------------------------------------------


def test_a_copy_is_made_again_once_the_lease_of_its_host_is_over(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.tracker")
    case.up(A, B, C)
    blocks = [copied(case.attempt, case.first + n) for n in range(100)]
    case.add(*blocks)
    case.wait(600)
    case.down(B)
    case.wait(LEASE_S - 1)
    assert case.asks(A) == []
    case.wait(1)
    (ask,) = case.asks(A)
    # As the host has it, without what only others need.
    assert (ask.host, ask.address) == (C, (C, 1))
    assert ask.blocks[0] == msgspec.structs.replace(blocks[0], replicas=())
    assert [one.block_id for one in ask.blocks] == [one.block_id for one in blocks[:64]]
    # One at a time.
    case.wait(100)
    assert case.asks(A) == []
    case.copies.copied(BlocksCopied(ask.request, made_on(ask)))
    assert len(case.make(A)) == 36
    assert case.places() == [(A, C)] * 100
    case.wait(2)
    assert f"100 blocks have another copy again, on {C}" in caplog.messages
    # All is said and done.
    case.wait(10_000)
    assert case.asks(A) == case.asks(C) == []


def test_a_host_that_is_back_in_time_costs_nothing(case: Case) -> None:
    case.up(A, B, C)
    case.add(copied(case.attempt, case.first))
    case.wait(1)
    case.down(B)
    case.wait(LEASE_S - 1)
    case.up(B)
    case.wait(10 * LEASE_S)
    assert case.asks(A) == case.asks(C) == []


def test_the_copy_is_copied_when_the_receiver_s_host_is_lost(kept: Case) -> None:
    kept.up(A, B, C)
    one = copied(kept.attempt, kept.first)
    kept.add(one)
    kept.ledger.end_attempt(kept.attempt)
    kept.down(A)
    kept.wait(LEASE_S)
    (ask,) = kept.asks(B)
    (sent,) = ask.blocks
    assert (sent.host, sent.memory) == (B, None)
    assert (sent.segment, sent.sequence) == (one.replicas[0].segment, one.replicas[0].sequence)
    kept.copies.copied(BlocksCopied(ask.request, made_on(ask)))
    # Its own host stays: what is there goes when it is back.
    assert kept.places() == [(A, B, C)]
    # And again, with what was made again.
    kept.up(D)
    kept.down(B)
    kept.wait(LEASE_S)
    assert kept.make(C) == [one.block_id]
    assert kept.places() == [(A, C, D)]


def test_a_new_driver_waits_for_the_hosts_of_the_one_before(kept: Case) -> None:
    kept.up(A, B, C)
    kept.add(copied(kept.attempt, kept.first))
    kept.ledger.close()
    kept.open()
    kept.up(A, C)
    kept.wait(LEASE_S - 1)
    assert kept.asks(A) == []
    kept.wait(1)
    assert len(kept.make(A)) == 1
    assert kept.places() == [(A, C)]


def test_what_was_stored_when_there_was_no_other_host_gets_its_copy(case: Case) -> None:
    case.up(A)
    alone = msgspec.structs.replace(copied(case.attempt, case.first), replicas=())
    case.add(alone)
    case.wait(600)
    case.up(B)
    # Stored just then, before the receiver has found it.
    case.wait(1)
    assert case.make(A) == [alone.block_id]
    case.wait(1)
    case.add(late := msgspec.structs.replace(alone, block_id=f"input-0-{case.first + 1}"))
    case.wait(60)
    assert case.make(A) == [late.block_id]
    assert case.places() == [(A, B)] * 2


def test_a_level_for_three_copies_has_three_again(tmp_path: Path) -> None:
    case = Case(tmp_path, level=3)
    attempt, number = case.register()
    case.up(A, B, C, D)
    for n in range(2):
        one = copied(attempt, number)
        case.add(msgspec.structs.replace(one, replicas=(*one.replicas, copy_on(C, attempt, 1))))
        if not n:
            case.ledger.end_attempt(attempt)
            attempt, number = case.register()
    case.down(C)
    case.wait(LEASE_S)
    assert len(case.make(A) + case.make(B)) == 2
    assert case.places() == [(A, B, D)] * 2
    case.ledger.close()


def test_blocks_that_lack_different_hosts_are_not_asked_for_together(tmp_path: Path) -> None:
    case = Case(tmp_path, level=3)
    case.register()
    # Its hosts come in another order.
    attempt, number = case.register()
    case.add(*(copied(attempt, number + n, (B, C)[n // 2 % 2]) for n in range(8)))
    case.up(A, B, C, D)
    case.wait(1)
    for _ in range(10):
        for host in (A, B, C):
            case.make(host)
        case.wait(1)
    assert {len(set(hosts)) for hosts in case.places()} == {3}
    case.ledger.close()


def test_where_there_is_no_host_for_it_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(tmp_path, level=3)
    attempt, number = case.register()
    case.up(A, B)
    case.add(copied(attempt, number))
    for _ in range(20):
        case.wait(60)
    said = "blocks stay on fewer hosts than asked for: no other host takes copies"
    assert caplog.messages == [said]
    case.ledger.close()


def test_a_segment_stays_while_more_copies_may_come_into_it(case: Case) -> None:
    case.up(A, B, C)
    blocks = [copied(case.attempt, case.first + n) for n in range(70)]
    case.add(*blocks[:64])
    case.ledger.allocate_blocks_to_batch(1000)
    case.add(*blocks[64:])
    case.down(B)
    case.wait(LEASE_S)
    (ask,) = case.asks(A)
    case.copies.copied(BlocksCopied(ask.request, made_on(ask)))
    (ask,) = case.asks(A)
    # Nor is more asked for when another host comes just then.
    case.up(D)
    case.wait(1)
    assert case.asks(A) == []
    # Its first blocks are released before the last are known to be there.
    on_c = (C, f"/log/0-{case.attempt}-{C}", 9)
    releases = case.ledger.cleanup_old_batches(2000)
    assert on_c not in [place for one in releases for place in one.replicas]
    case.copies.copied(BlocksCopied(ask.request, made_on(ask)))
    case.ledger.allocate_blocks_to_batch(2000)
    releases = case.ledger.cleanup_old_batches(3000)
    assert on_c in [place for one in releases for place in one.replicas]


def test_a_copy_of_an_attempt_that_was_let_go_meanwhile_is_released(case: Case) -> None:
    case.up(A, B, C)
    case.add(copied(case.attempt, case.first))
    case.down(B)
    case.wait(LEASE_S)
    (ask,) = case.asks(A)
    case.ledger.end_attempt(case.attempt)
    case.ledger.allocate_blocks_to_batch(1000)
    (release,) = case.ledger.cleanup_old_batches(2000)
    assert release.whole
    case.ledger.forget_attempts([case.attempt])
    case.copies.copied(BlocksCopied(ask.request, made_on(ask)))
    assert case.peers[C].take(ReleaseBlocks) == [ReleaseBlocks((case.attempt,), ())]


def test_a_block_that_is_nowhere_any_more_is_given_up(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    case.up(A, B, C)
    bad, good = (copied(case.attempt, case.first + n) for n in range(2))
    case.add(bad, good)
    case.down(B)
    case.wait(LEASE_S)
    asked = 0
    for _ in range(20):
        for ask in case.asks(A):
            asked += 1
            places = [
                None if one.block_id == bad.block_id else place
                for one, place in zip(ask.blocks, made_on(ask), strict=True)
            ]
            case.copies.copied(BlocksCopied(ask.request, tuple(places), "it is damaged"))
        case.wait(60)
    assert asked == 3
    assert case.places() == [(A, B), (A, C)]
    assert "1 blocks stay on fewer hosts than asked for: it is damaged" in caplog.messages
    # Until the hosts change.
    case.up(D)
    case.wait(1)
    assert len(case.asks(A)) == 1


def test_a_host_that_takes_none_is_passed_over_and_not_asked_for_ever(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    case.up(A, B, C, D)
    case.add(*(copied(case.attempt, case.first + n) for n in range(2)))
    case.down(B)
    case.wait(LEASE_S)
    (ask,) = case.asks(A)
    case.copies.copied(BlocksCopied(ask.request, (None,), "its disk is full", is_refused=True))
    case.wait(1)
    first, (ask,) = ask.host, case.asks(A)
    assert {first, ask.host} == {C, D}
    assert len(ask.blocks) == 2
    asked = 2
    case.copies.copied(BlocksCopied(ask.request, (None,), "its disk is full", is_refused=True))
    for _ in range(50):
        case.wait(30)
        for ask in case.asks(A):
            asked += 1
            refused = BlocksCopied(ask.request, (None,), "its disk is full", is_refused=True)
            case.copies.copied(refused)
    assert 2 < asked < 10
    assert any("fewer hosts than asked for: its disk is full" in text for text in caplog.messages)


def test_a_source_that_goes_while_it_copies_leaves_that_to_another(kept: Case) -> None:
    kept.up(A, B, C, D)
    one = copied(kept.attempt, kept.first)
    kept.add(msgspec.structs.replace(one, replicas=(*one.replicas, copy_on(C, kept.attempt, 3))))
    kept.replica_hosts.leaving = frozenset({A, B})
    kept.wait(1)
    (asking,) = [host for host in (A, B, C) if (found := kept.asks(host)) and found]
    kept.down(asking)
    kept.wait(LEASE_S)
    made = [name for host in (A, B, C) if host in kept.peers for name in kept.make(host)]
    assert made == [one.block_id]
    assert D in kept.places()[0]


def refuse(case: Case, host: str) -> list[str]:
    """Let a host say that the other takes none; return the others that it was to copy to."""
    asks = case.asks(host)
    for ask in asks:
        case.copies.copied(BlocksCopied(ask.request, (None,), "full", is_refused=True))
    return [ask.host for ask in asks]


def test_what_was_given_up_begins_anew_when_the_hosts_change(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    case.up(A, B, C)
    case.add(*(copied(case.attempt, case.first + number) for number in range(8)))
    case.down(B)
    case.wait(LEASE_S)
    for told in (1, 2):
        for _ in range(50):
            refuse(case, A)
            case.wait(30)
        given_up = [text for text in caplog.messages if "fewer hosts" in text]
        assert len([text for text in given_up if text.startswith("blocks stay")]) == told
        # A host that took none has been started again: at once, not after a minute.
        case.down(C)
        case.wait(1)
        case.up(C)
        case.wait(1)
        assert refuse(case, A) == [C]


def test_where_there_is_one_host_alone_nothing_is_tried_or_told(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    case.up(A)
    case.add(copied(case.attempt, case.first))
    for _ in range(30):
        case.wait(60)
    assert caplog.messages == []


def test_hosts_without_a_server_are_looked_at_for_executors_now_and_then(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    monkeypatch.setattr(case.replica_hosts, "look", lambda host=None: looked.append(host))
    case.up(A, B)
    case.add(copied(case.attempt, case.first))
    case.wait(60)
    assert looked == []
    case.down(B)
    for _ in range(60):
        case.wait(1)
    assert 5 <= len(looked) <= 8
    assert set(looked) == {B}


def test_all_hosts_that_have_blocks_copy_some_and_none_to_one_that_has_it(tmp_path: Path) -> None:
    case = Case(tmp_path, level=3)
    for _ in range(2):
        attempt, number = case.register()
        blocks = [
            msgspec.structs.replace(one, replicas=(*one.replicas, copy_on(C, attempt, n)))
            for n in range(2)
            for one in [copied(attempt, number + n)]
        ]
        case.add(*blocks)
    case.up(A, B, C, D)
    case.wait(60)
    case.down(C)
    case.wait(LEASE_S)
    asks = [*case.asks(A), *case.asks(B)]
    assert {ask.host for ask in asks} == {D}
    assert sorted(len(ask.blocks) for ask in asks) == [2, 2]
    case.ledger.close()


def test_one_ask_has_blocks_of_a_bounded_size(case: Case) -> None:
    case.up(A, B, C)
    blocks = [copied(case.attempt, case.first + number) for number in range(5)]
    case.add(*(msgspec.structs.replace(one, num_bytes=20 << 20) for one in blocks))
    case.down(B)
    case.wait(LEASE_S)
    sizes = []
    while asks := case.asks(A):
        sizes += [len(ask.blocks) for ask in asks]
        for ask in asks:
            case.copies.copied(BlocksCopied(ask.request, made_on(ask)))
    assert sizes == [2, 2, 1]


def test_a_host_that_will_go_gets_no_copy_although_there_is_no_other(case: Case) -> None:
    case.up(A, B)
    case.replica_hosts.leaving = frozenset({B})
    case.add(msgspec.structs.replace(copied(case.attempt, case.first), replicas=()))
    for _ in range(10):
        case.wait(60)
    assert case.asks(A) == []


def test_a_copy_of_an_attempt_that_is_over_goes_from_where_it_was_made(case: Case) -> None:
    case.up(A, B, C)
    case.add(copied(case.attempt, case.first))
    case.ledger.end_attempt(case.attempt)
    case.down(B)
    case.wait(LEASE_S)
    (ask,) = case.asks(A)
    case.ledger.allocate_blocks_to_batch(1000)
    case.ledger.cleanup_old_batches(2000)
    case.copies.copied(BlocksCopied(ask.request, made_on(ask)))
    assert case.peers[C].take(ReleaseBlocks) == [ReleaseBlocks((case.attempt,), ())]


def test_a_host_that_has_just_gone_is_asked_for_nothing(case: Case) -> None:
    case.up(A, B, C)
    case.add(*(copied(case.attempt, case.first + number) for number in range(100)))
    case.down(B)
    case.wait(LEASE_S)
    (ask,) = case.asks(A)
    peer: Any = case.peers.pop(A)
    case.servers.disconnected(peer)
    case.copies.copied(BlocksCopied(ask.request, made_on(ask)))
    assert case.ledger._state.held == frozenset()
    case.up(A)
    case.wait(2)
    assert len(case.make(A)) == 36


def test_a_host_that_does_not_answer_keeps_no_other_from_it(
    kept: Case, caplog: pytest.LogCaptureFixture
) -> None:
    kept.up(A, B, C, D)
    one = copied(kept.attempt, kept.first)
    kept.add(msgspec.structs.replace(one, replicas=(*one.replicas, copy_on(C, kept.attempt, 3))))
    kept.replica_hosts.leaving = frozenset({A, B})
    kept.wait(1)
    (asked,) = [host for host in (A, B, C) if (found := kept.asks(host)) and found]
    kept.wait(170)
    assert not any(kept.asks(host) for host in (A, B, C))
    kept.wait(15)
    kept.wait(2)
    assert asked not in [host for host in (A, B, C) if kept.make(host)]
    assert D in kept.places()[0]
    assert kept.ledger._state.held == frozenset()


def test_a_host_that_never_answers_is_given_up(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    case.up(A, B, C)
    case.add(copied(case.attempt, case.first))
    case.down(B)
    case.wait(LEASE_S)
    for _ in range(100):
        case.wait(60)
    assert len(case.asks(A)) == 3
    what = f"{A} has not said in 180 s what it has copied"
    assert f"blocks stay on fewer hosts than asked for: {what}" in caplog.messages
    assert case.ledger._state.held == frozenset()


def test_who_looks_for_a_host_in_vain_has_its_blocks_copied_once_there_is_one(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    """The other host was silent for receivers, and has been there for the driver all the time."""
    case.up(A, B)
    case.wait(600)
    alone = [
        msgspec.structs.replace(copied(case.attempt, case.first + number), replicas=())
        for number in range(2)
    ]
    case.add(*alone)
    case.wait(600)
    assert case.asks(A) == []
    refused = 0
    for _ in range(600):
        case.wait(5)
        # Just before it is refused here, the receiver finds it.
        case.copies.look_soon()
        for ask in case.asks(A):
            refused += 1
            case.copies.copied(BlocksCopied(ask.request, (None,), "silent", is_refused=True))
    # Nothing of what may be released meanwhile is held.
    assert case.copies._unseen is None
    # Once a minute, and told once.
    assert 10 < refused < 60
    assert len([text for text in caplog.messages if "fewer hosts" in text]) == 1
    case.wait(60)
    assert case.make(A) == [one.block_id for one in alone]
    case.wait(600)
    assert case.places() == [(A, B)] * 2
    # No more once nothing is missing.
    case.copies.look_soon()
    case.wait(60)
    case.wait(10_000)
    assert case.asks(A) == []


def test_many_blocks_are_looked_at_a_part_at_a_time(
    kept: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rereplication, "_LOOKED_AT", 7)
    monkeypatch.setattr(rereplication, "_ROUND", 3)
    kept.up(A, B, C, D)
    hosts = [B if number % 5 == 4 else C for number in range(40)]
    kept.add(*(copied(kept.attempt, kept.first + n, host) for n, host in enumerate(hosts)))
    kept.wait(600)
    kept.down(B)
    kept.wait(LEASE_S)
    made: list[str] = []
    for _ in range(20):
        before = len(made)
        made += kept.make(A)
        assert len(made) - before <= 3
        kept.wait(2)
    assert made == [f"input-0-{kept.first + n}" for n, host in enumerate(hosts) if host == B]
    assert all(B not in places for places in kept.places())


def test_what_was_released_since_it_was_listed_is_not_copied(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rereplication, "_ROUND", 2)
    case.up(A, B, C)
    first = [copied(case.attempt, case.first + number) for number in range(4)]
    case.add(*first)
    case.ledger.allocate_blocks_to_batch(1000)
    case.add(last := copied(case.attempt, case.first + 4))
    case.down(B)
    case.wait(LEASE_S)
    case.ledger.cleanup_old_batches(2000)
    (ask,) = case.asks(A)
    assert [one.block_id for one in ask.blocks] == [one.block_id for one in first[:2]]
    case.copies.copied(BlocksCopied(ask.request, made_on(ask)))
    case.wait(2)
    assert case.make(A) == [last.block_id]


def test_a_round_that_fails_half_way_is_begun_again(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.up(A, B, C)
    case.add(one := copied(case.attempt, case.first))
    case.down(B)
    case.wait(LEASE_S - 1)
    find = case.replica_hosts.find
    monkeypatch.setattr(case.replica_hosts, "find", lambda _: pytest.fail("Spark is silent"))
    with pytest.raises(pytest.fail.Exception):
        case.wait(1)
    monkeypatch.setattr(case.replica_hosts, "find", find)
    case.wait(60)
    assert case.make(A) == [one.block_id]
    assert case.places() == [(A, C)]


def test_what_failed_does_not_keep_a_later_look_from_what_came_since(case: Case) -> None:
    case.up(A, B)
    case.add(bad := msgspec.structs.replace(copied(case.attempt, case.first), replicas=()))
    case.up(C)
    asked = 0
    for _ in range(55):
        for ask in case.asks(A):
            asked += 1
            case.copies.copied(BlocksCopied(ask.request, (None,) * len(ask.blocks), "damaged"))
        case.wait(1)
    late = msgspec.structs.replace(bad, block_id=f"input-0-{case.first + 1}")
    case.add(late)
    case.wait(60)
    case.wait(60)
    assert late.block_id in case.make(A)


def test_an_answer_that_no_one_waits_for_is_not_taken(case: Case) -> None:
    case.up(A, B, C)
    case.add(one := copied(case.attempt, case.first))
    case.down(B)
    case.wait(LEASE_S)
    (ask,) = case.asks(A)
    case.copies.copied(BlocksCopied(ask.request + 1, made_on(ask)))
    assert case.blocks() == [one]
    case.copies.copied(BlocksCopied(ask.request, made_on(ask)))
    case.copies.copied(BlocksCopied(ask.request, made_on(ask, 10)))
    assert case.blocks()[0].replicas[0].segment.segment == 9


def test_a_log_that_is_full_is_no_end(case: Case) -> None:
    case.up(A, B, C)
    case.add(copied(case.attempt, case.first))
    case.down(B)
    case.wait(LEASE_S)
    (ask,) = case.asks(A)
    case.fs.full = True
    case.copies.copied(BlocksCopied(ask.request, made_on(ask)))
    assert case.places() == [(A, B)]
    case.fs.full = False
    case.wait(60)
    assert len(case.make(A)) == 1
    assert case.places() == [(A, C)]


def test_what_is_in_memory_in_clear_is_not_asked_for_where_logs_are_encrypted(case: Case) -> None:
    case.copies = Rereplication(
        case.ledger, case.replica_hosts, levels={0: 2}, is_encrypted=True, clock=case.clock
    )
    case.up(A, B, C)
    case.add(one := copied(case.attempt, case.first))
    case.down(B)
    case.wait(LEASE_S)
    ((sent,),) = [ask.blocks for ask in case.asks(A)]
    assert (sent.memory, sent.segment) == (None, one.segment)


def test_a_host_that_will_go_has_its_blocks_copied_before_it_does(kept: Case) -> None:
    kept.up(A, B, C)
    kept.add(one := copied(kept.attempt, kept.first))
    kept.wait(600)
    kept.replica_hosts.leaving = frozenset({B})
    # No new copies for it, if there is another.
    for number in range(4):
        asked = FindReplicaHost(0, attempt_name(number), A, ())
        assert kept.replica_hosts.find(asked).host == C
    assert kept.replica_hosts.find(msgspec.structs.replace(asked, silent=(C,))).host == B
    kept.wait(1)
    assert [*kept.make(A), *kept.make(B)] == [one.block_id]
    # It is there yet.
    assert kept.places() == [(A, B, C)]
    kept.down(B)
    kept.wait(LEASE_S)
    assert kept.asks(A) == kept.asks(C) == []


def test_nothing_is_copied_to_a_host_that_will_go(kept: Case) -> None:
    kept.up(A, B, C)
    kept.add(copied(kept.attempt, kept.first))
    kept.replica_hosts.leaving = frozenset({B, C})
    kept.wait(600)
    assert kept.asks(A) == kept.asks(B) == []
    kept.replica_hosts.leaving = frozenset({B})
    kept.wait(1)
    assert len([*kept.make(A), *kept.make(B)]) == 1


def made_anew(ask: CopyBlocks) -> tuple[ReplicaPlace, ...]:
    """Return the places of copies in a log that the host did not have before."""
    return tuple(
        msgspec.structs.replace(
            copy, segment=msgspec.structs.replace(copy.segment, folder=f"/log/anew-{ask.host}")
        )
        for copy in made_on(ask)
    )


def is_back(case: Case, host: str, *missing: str) -> None:
    """Let a host be back with a block server, and say which of its logs are not there."""
    case.up(host)
    case.copies.registered(host)
    (asked,) = case.peers[host].take(CheckLogs)
    assert {*missing} <= {*asked.folders}
    case.copies.missing(LogsMissing(host, (*missing, "/log/that/was/released")))


def test_a_host_that_is_back_without_its_disk_gets_its_copies_again(kept: Case) -> None:
    kept.up(A, B)
    old = [copied(kept.attempt, kept.first + n) for n in range(2)]
    new = copied(kept.attempt, kept.first + 2)
    place = copy_on(B, kept.attempt, 2)
    place = msgspec.structs.replace(place, segment=SegmentPlace("/log/new", 1, 0, 1064))
    kept.add(*old, msgspec.structs.replace(new, replicas=(place,)))
    kept.down(B)
    is_back(kept, B, f"/log/0-{kept.attempt}-{B}")
    kept.copies.look()
    (ask,) = kept.asks(A)
    assert (ask.host, len(ask.blocks)) == (B, 2)
    made = made_anew(ask)
    kept.copies.copied(BlocksCopied(ask.request, made))
    kept.wait(600)
    assert kept.asks(A) == kept.asks(B) == []
    assert [one.replicas for one in kept.blocks()] == [(made[0],), (made[1],), (place,)]
    live = kept.blocks()
    kept.ledger.close()
    kept.open()
    assert kept.blocks() == live


def test_a_receivers_host_that_is_back_without_its_disk_takes_a_copy(case: Case) -> None:
    case.up(A, B)
    case.add(one := copied(case.attempt, case.first))
    assert one.segment is not None
    case.down(A)
    is_back(case, A, one.segment.folder)
    case.copies.look()
    (ask,) = case.asks(B)
    assert (ask.host, [each.host for each in ask.blocks]) == (A, [B])
    (copy,) = made_anew(ask)
    case.copies.copied(BlocksCopied(ask.request, (copy,)))
    assert case.blocks()[0].replicas == (*one.replicas, copy)
    # It is one of two now: where the other is lost, it is the source.
    case.down(B)
    case.up(C)
    case.wait(LEASE_S)
    (ask,) = case.asks(A)
    assert (ask.host, [each.segment for each in ask.blocks]) == (C, [copy.segment])


def test_of_a_host_that_is_back_with_its_disk_nothing_is_copied(case: Case) -> None:
    case.up(A, B, C)
    case.copies.registered(A)
    assert case.peers[A].take(CheckLogs) == [], "the ledger knows of nothing there"
    case.add(copied(case.attempt, case.first))
    case.down(B)
    is_back(case, B)
    case.wait(600)
    assert case.asks(A) == case.asks(B) == []
    # And without it, at last with it again: it was mounted late.
    is_back(case, B, f"/log/0-{case.attempt}-{B}")
    is_back(case, B)
    case.wait(600)
    assert case.asks(A) == []


# -- with a tracker ----------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_control, "LOOK_S", 0.01)
    monkeypatch.setattr(_control, "_SERVER_GRACE_S", 0.0)
    monkeypatch.setattr(receiver_tracker, "_LEAVING_S", 0.01)


@pytest.mark.usefixtures("quick")
def test_the_tracker_has_copies_made_again(tmp_path: Path) -> None:
    with with_copies(tmp_path, HostsCluster(A, B, C)) as (tracker, attempt, _):
        tracker._block_servers.lease_s = 0.1
        attempt.register()
        servers = {host: server_of(attempt, host) for host in (A, B, C)}
        one = copied(attempt.launch.attempt, attempt.first)
        attempt.add(one)
        servers[B].close()
        assert isinstance(servers[A].next_message(), CopyBlocks)
        # It is killed before it has answered; the next one is asked again.
        servers[A].close()
        until("nothing is asked for", lambda: not tracker._rereplication._asks)
        servers[A] = server_of(attempt, A, 4712)
        assert one.segment is not None
        assert servers[A].next_message() == CheckLogs((one.segment.folder,))
        ask = servers[A].next_message()
        assert isinstance(ask, CopyBlocks)
        client = servers[A].client
        assert client is not None
        client.send(BlocksCopied(ask.request, made_on(ask)))
        until("it is known", lambda: tracker.ledger.blocks([0])[0].hosts == (A, C))
        # So that tasks find it that know the first places only.
        (copy,) = made_on(ask)
        assert attempt.ask(FindCopies(0, one.block_id)) == CopiesAt((copy,))
        assert attempt.ask(FindCopies(0, "input-0-1")) == CopiesAt(())


@pytest.mark.usefixtures("quick")
def test_what_was_asked_over_a_connection_that_is_replaced_is_asked_again(tmp_path: Path) -> None:
    """A host that was cut off connects again before its first connection is known to be gone."""
    with with_copies(tmp_path, HostsCluster(A, B, C)) as (tracker, attempt, _):
        tracker._block_servers.lease_s = 0.1
        attempt.register()
        servers = {host: server_of(attempt, host) for host in (A, B, C)}
        attempt.add(copied(attempt.launch.attempt, attempt.first))
        servers[B].close()
        first = servers[A].next_message()
        assert isinstance(first, CopyBlocks)
        again = server_of(attempt, A)
        assert isinstance(again.next_message(), CheckLogs)
        ask = again.next_message()
        assert isinstance(ask, CopyBlocks)
        assert (ask.host, ask.blocks) == (first.host, first.blocks)
        assert again.client is not None
        again.client.send(BlocksCopied(ask.request, made_on(ask)))
        until("it is known", lambda: tracker.ledger.blocks([0])[0].hosts == (A, C))


@pytest.mark.usefixtures("quick")
def test_the_tracker_looks_again_when_a_receiver_looks_for_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rereplication, "_PASSED_OVER_S", 0.05)
    with with_copies(tmp_path, HostsCluster(A, B)) as (tracker, attempt, _):
        attempt.register()
        servers = {host: server_of(attempt, host) for host in (A, B)}
        until("both are seen", lambda: tracker._rereplication._served == {A, B})
        until("all is said", lambda: tracker._rereplication._next_s == math.inf)
        alone = msgspec.structs.replace(copied(attempt.launch.attempt, attempt.first), replicas=())
        attempt.add(alone)
        attempt.ask(FindReplicaHost(0, alone.attempt, A, (B,)))
        ask = servers[A].next_message()
        assert isinstance(ask, CopyBlocks)
        assert ask.host == B


@pytest.mark.usefixtures("quick")
def test_a_receiver_that_is_back_on_a_host_that_was_forgotten_starts_a_block_server(
    tmp_path: Path,
) -> None:
    with with_copies(tmp_path, HostsCluster(A, B, C)) as (tracker, attempt, _):
        tracker._block_servers.lease_s = 0.1
        attempt.register()
        server = server_of(attempt, A)
        attempt.close()
        server.close()
        until("it is forgotten", lambda: A not in tracker._block_servers._hosts)
        attempt.client = None
        attempt.register()
        assert attempt.next_message() == EnsureBlockServer()


@pytest.mark.usefixtures("quick")
def test_a_host_that_is_back_has_a_server_for_what_is_to_be_deleted_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No receiver runs there, and no block is there any more."""
    with with_copies(tmp_path, cluster := HostsCluster(A, C)) as (tracker, attempt, _):
        servers = {host: server_of(attempt, host) for host in (A, B, C)}
        attempt.register()
        servers[B].close()
        until("B is away", lambda: f"the block server of {B} is gone" in caplog.text)
        hosts_of_copies = tracker._replica_hosts
        until(
            "it was looked for", lambda: hosts_of_copies._next_s and not hosts_of_copies._is_looking
        )
        left = attempt_name(77)
        tracker._block_servers.release_copies(B, (left,), ())
        cluster.up.append(ExecutorLocation(B, "7"))
        _, hosts = cluster.started.get(timeout=WAIT_S)
        assert hosts == [B]
        back = server_of(attempt, B)
        message = back.next_message()
        assert isinstance(message, ReleaseBlocks)
        assert message.attempts == (left,)
        back.close()


@pytest.mark.usefixtures("quick")
def test_the_tracker_has_blocks_copied_from_a_host_whose_last_executor_will_go(
    tmp_path: Path,
) -> None:
    cluster = HostsCluster(A, B, C)
    cluster.up.append(ExecutorLocation(B, "9"))
    with with_copies(tmp_path, cluster) as (tracker, attempt, _):
        attempt.register()
        servers = {host: server_of(attempt, host) for host in (A, B, C)}
        attempt.add(copied(attempt.launch.attempt, attempt.first))
        cluster.leaving_ids = frozenset({"1"})
        tracker._move_from_leaving()
        # Another executor stays there.
        assert tracker._replica_hosts.leaving == frozenset()
        cluster.leaving_ids = frozenset({"1", "9"})
        found = []
        until("B is to be left", lambda: tracker._replica_hosts.leaving == {B})
        until(
            "the copy is asked for",
            lambda: bool(found) or found.extend(_asks(servers[A], servers[B])) or bool(found),
        )
        assert found[0].host == C
        cluster.leaving_ids = frozenset()
        until("no host will go", lambda: tracker._replica_hosts.leaving == frozenset())


def _asks(*servers: Any) -> list[CopyBlocks]:
    return [server.next_message() for server in servers if not server.messages.empty()]


# -- hosts that are gone -----------------------------------------------------------------------


def test_a_month_on_hosts_that_come_and_go_leaves_no_more_than_a_day(case: Case) -> None:
    """One receiver lives all the time, with copies on hosts that go; another goes with them."""
    case.up(A)
    receivers: Any = SimpleNamespace(clean_up=lambda *_, **__: None)
    logs = SharedLogs(str(case.folder))
    deletion = BlockDeletion(
        receivers, case.servers, logs, with_copies=frozenset({0, 1}), is_shared=False
    )
    state = case.ledger._state
    lasting = state.attempts[case.attempt]
    sizes = []
    for hour in range(24 * 30):
        host, attempt = f"spot-{hour}", attempt_name(1000 + hour)
        case.up(host)
        case.ledger.end_attempt(attempt_name(999 + hour))
        number = case.ledger.register_attempt(1, attempt, host).first_block_number
        spot = msgspec.structs.replace(block(1, attempt, number), host=host)
        assert add(case.ledger, 1, attempt, [spot]) == Ok()
        case.add(copied(case.attempt, case.first + hour, host, segment=hour))
        case.ledger.allocate_blocks_to_batch(2 * hour)
        deletion.delete(case.ledger, case.ledger.cleanup_old_batches(2 * hour))
        case.wait(1800)
        case.down(host)
        case.wait(1800)
        attempts = [lasting.replicas, lasting.replica_hosts, state.attempts]
        hosts = [case.servers._hosts, case.servers._ever, case.copies._away]
        sizes.append(sum(map(len, [*hosts, *attempts])))
    assert max(sizes[72:]) <= max(sizes[:72]) < 150


def test_ended_attempts_of_a_host_that_is_gone_are_forgotten_after_a_day(case: Case) -> None:
    # Of a host that had no server in this run, it is not known when it went.
    case.wait(48 * 3600)
    case.up(A, B)
    on_b = attempt_name(99)
    case.ledger.register_attempt(1, on_b, B)
    case.ledger.end_attempt(on_b)
    case.servers.release_memory("before", on_b)
    case.wait(23 * 3600)
    case.up("before")
    assert case.peers["before"].take(ReleaseBlocks) == [ReleaseBlocks((), (), (on_b,))]
    case.add(copied(case.attempt, case.first))
    case.ledger.end_attempt(case.attempt)
    case.down(A)
    case.ledger.allocate_blocks_to_batch(1000)
    release, other = case.ledger.cleanup_old_batches(2000)
    assert release.whole
    assert other.whole
    assert not case.servers.release(A, [case.attempt], [(f"/log/0-{case.attempt}", 1)])
    case.wait(23 * 3600)
    assert case.ledger.attempts == (case.attempt, on_b)
    # Until then it is told when it comes back.
    case.wait(3600)
    assert case.ledger.attempts == (on_b,)
    case.up(A)
    assert case.peers[A].take(ReleaseBlocks) == []


def test_a_living_attempt_is_not_forgotten_with_its_host(case: Case) -> None:
    """Nor one of another host, nor a host on which a segment of it is left."""
    case.up(A, B, C)
    case.add(copied(case.attempt, case.first))
    other = case.ledger.register_attempt(1, attempt_name(7), C)
    assert other.first_block_number
    case.ledger.end_attempt(attempt_name(7))
    case.ledger.allocate_blocks_to_batch(1000)
    case.ledger.cleanup_old_batches(2000)
    case.down(A, B)
    for _ in range(3):
        case.wait(24 * 3600)
    assert case.ledger.attempts == (case.attempt, attempt_name(7))
    assert list(case.ledger._state.attempts[case.attempt].replica_hosts) == [B]
    case.add(copied(case.attempt, case.first + 1))
    assert len(case.blocks()) == 1


def test_a_host_that_no_one_has_seen_yet_is_given_its_day_and_none_goes_that_is_back(
    case: Case,
) -> None:
    case.wait(7 * 24 * 3600)
    case.servers.release(D, [], [("/log/1", 1)])
    assert case.servers.gone() == []
    case.wait(23 * 3600)
    assert case.servers.gone() == []
    case.clock.advance(3600 * 1000)
    assert case.servers.gone() == [D]
    case.up(D)
    case.servers.forget(D)
    assert case.servers.is_served(D)


def test_an_attempt_without_segments_is_named_to_its_host_when_that_is_back_in_a_day(
    case: Case,
) -> None:
    """Its folder is there, and room that was allocated in advance."""
    case.up(A, B)
    case.ledger.end_attempt(case.attempt)
    case.down(A)
    assert not case.servers.release(A, [case.attempt], [])
    case.ledger.cleanup_old_batches(0)
    case.wait(23 * 3600)
    assert case.ledger.attempts == (case.attempt,)
    case.up(A)
    case.down(A)
    # It was told.
    case.wait(LEASE_S)
    assert case.ledger.attempts == ()


def test_a_host_is_remembered_while_the_ledger_names_it(case: Case) -> None:
    case.up(A, B)
    case.add(copied(case.attempt, case.first))
    case.down(B)
    case.wait(48 * 3600)
    assert case.servers.is_lost(B)
    case.ledger.allocate_blocks_to_batch(1000)
    case.ledger.cleanup_old_batches(2000)
    case.wait(1)
    assert not case.servers.is_lost(B)
    assert case.servers.is_served(A)
    assert case.servers.ever() == {A, B}


def test_a_receiver_is_not_alone_in_a_cluster_that_had_other_hosts(case: Case) -> None:
    case.up(A, B)
    case.down(B)
    case.wait(48 * 3600)
    assert "is_alone=False" in repr(case.replica_hosts.find(FindReplicaHost(0, case.attempt, A)))
