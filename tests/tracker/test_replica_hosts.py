"""Second copies on the driver's side: who has them, where they lie, when they go, what is lost."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from pyspark import StorageLevel

from penstock.receiver import Receiver
from penstock.tracker import ExecutorLocation, ReceivedBlockTracker, ReceiverTracker, _control
from penstock.tracker._control import what_is_there
from penstock.tracker.hosts.replica_hosts import BlockServerStart
from penstock.tracker.ledger.events import (
    BlockRow,
    LedgerRecord,
    addition_events,
    blocks_of,
    decode_record,
    encode,
)
from penstock.wire.messages import (
    BlockServerAt,
    FindBlockServer,
    FindReplicaHost,
    ReceivedBlockInfo,
    RegisterBlockServer,
    ReleaseBlocks,
    ReplicaHostAt,
    ReplicaPlace,
    SegmentPlace,
)
from tests.tracker.ledger_cases import LOG_OPTIONS, add, attempt_name, block
from tests.tracker.test_lost_hosts import wait_for_text
from tests.tracker.tracker_cases import (
    WAIT_S,
    Attempt,
    Events,
    Source,
    ThreadCluster,
    running_tracker,
)

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
HERE = attempt_name(7)


def copied(
    number: int, *, segment: int = 1, copy: int = 1, attempt: str = HERE, other: str = B
) -> ReceivedBlockInfo:
    """A block of host A with a copy on another one."""
    place = SegmentPlace(f"/log/0-{attempt}-{other}", copy, 4096 * number % 8192, 1064)
    return msgspec.structs.replace(
        block(0, attempt, number, segment=segment),
        host=A,
        replicas=(ReplicaPlace(other, place, number),),
    )


# -- the ledger --------------------------------------------------------------------------------


def test_a_copy_s_place_is_in_the_driver_log_and_logs_without_it_can_be_read() -> None:
    blocks = [
        (1, copied(1)),
        (2, copied(2, copy=2)),
        (3, copied(3, other=C)),
        (4, block(0, HERE, 4)),
    ]
    events = addition_events(blocks)
    record = decode_record(memoryview(encode(LedgerRecord(1, 0, events))))
    assert [found for event in record.events for found in blocks_of(event)] == blocks
    assert len(events) == 3

    # As they were written before there were copies: a row of ten values, an event of nine.
    (new,) = addition_events(blocks[3:])
    text = msgspec.msgpack.decode(encode(LedgerRecord(1, 0, (new,))))
    (event,) = text[2]
    assert len(event) == 10
    assert len(event[8][0]) == len(BlockRow.__struct_fields__) == 12
    del event[8][0][10:]
    event.pop()
    (old,) = decode_record(memoryview(msgspec.msgpack.encode(text))).events
    assert blocks_of(old) == blocks[3:]


@contextmanager
def ledger(folder: Path) -> Iterator[ReceivedBlockTracker]:
    made = ReceivedBlockTracker.recover([0], str(folder), options=LOG_OPTIONS)
    try:
        yield made
    finally:
        made.close()


def test_segments_of_copies_go_when_their_blocks_did_but_not_the_newest(tmp_path: Path) -> None:
    with ledger(tmp_path) as tracker:
        first = tracker.register_attempt(0, HERE, A).first_block_number
        add(tracker, 0, HERE, [copied(first), copied(first + 1, copy=2)])
        tracker.allocate_blocks_to_batch(1000)
        add(tracker, 0, HERE, [copied(first + 2, copy=2)])
        tracker.allocate_blocks_to_batch(2000)
        (release,) = tracker.cleanup_old_batches(2000)
        assert release.replicas == ((B, f"/log/0-{HERE}-{B}", 1),)
        (release,) = tracker.cleanup_old_batches(3000)
        assert release.replicas == ()
        # Another host took over.
        add(tracker, 0, HERE, [copied(first + 3, other=C)])
        (release,) = tracker.cleanup_old_batches(3000)
        assert release.replicas == ((B, f"/log/0-{HERE}-{B}", 2),)
        tracker.end_attempt(HERE)
        tracker.allocate_blocks_to_batch(4000)
        (release,) = tracker.cleanup_old_batches(5000)
        assert (release.whole, release.is_first) == (True, True)
        assert release.replica_hosts == (B, C)
        (again,) = tracker.cleanup_old_batches(5000)
        assert (again.whole, again.is_first) == (True, False)


@pytest.mark.parametrize("snapshots", [1, 2])
def test_a_new_driver_knows_where_the_copies_are(tmp_path: Path, snapshots: int) -> None:
    with ledger(tmp_path) as tracker:
        first = tracker.register_attempt(0, HERE, A).first_block_number
        blocks = [copied(first), copied(first + 1, other=C), copied(first + 2, other=C)]
        add(tracker, 0, HERE, blocks[:1])
        tracker.allocate_blocks_to_batch(1000)
        add(tracker, 0, HERE, blocks[1:])
        tracker.cleanup_old_batches(2000)
    for _ in range(snapshots - 1):
        with ledger(tmp_path):
            pass
    with ledger(tmp_path) as tracker:
        assert list(tracker.unallocated_blocks(0)) == blocks[1:]
        tracker.allocate_blocks_to_batch(2000)
        (release,) = tracker.cleanup_old_batches(3000)
        assert release.whole
        assert (C, f"/log/0-{HERE}-{C}", 1) in release.replicas
        assert release.replica_hosts == (B, C)


# -- hosts -------------------------------------------------------------------------------------


class HostsCluster(ThreadCluster):
    """Executors on several hosts; keeps what it was to run there."""

    def __init__(self, *hosts: str, racks: Mapping[str, str] | None = None) -> None:
        places = [ExecutorLocation(host, str(n)) for n, host in enumerate(hosts)]
        super().__init__(is_local=False, executors=places)
        self.known_racks = racks or {}
        self.started: queue.Queue[tuple[Callable[[], None], list[str]]] = queue.Queue()

    def racks(self) -> Mapping[str, str]:
        return self.known_racks

    def run_on_hosts(self, tag: str, task: Callable[[], None], hosts: Sequence[str]) -> None:
        self.started.put((task, list(hosts)))


@contextmanager
def with_copies(
    folder: Path, cluster: HostsCluster, source: Receiver | None = None
) -> Iterator[tuple[ReceiverTracker, Attempt, Events]]:
    receivers = {0: (source or Source(), "Source [0]")}
    with running_tracker(folder, cluster=cluster, receivers=receivers) as (tracker, _, events):
        attempt = cluster.next_attempt()
        attempt.host, attempt.executor_id = A, "0"
        yield tracker, attempt, events


def server_of(attempt: Attempt, host: str, port: int = 4711) -> Attempt:
    server = Attempt(attempt.launch, ())
    server.ask(RegisterBlockServer(host, (host, port), 1))
    return server


def find(attempt: Attempt, *silent: str) -> ReplicaHostAt:
    answer = attempt.ask(FindReplicaHost(0, attempt.launch.attempt, A, silent))
    assert isinstance(answer, ReplicaHostAt)
    return answer


def until(what: str, condition: Callable[[], bool]) -> None:
    """Wait for what nobody tells of."""
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError(f"not within {WAIT_S:g} s: {what}")


def until_nothing_is_started(tracker: ReceiverTracker) -> None:
    until("nothing is started", lambda: not tracker._replica_hosts._is_looking)


def test_a_block_server_is_started_on_another_host_and_named_to_the_receiver(
    tmp_path: Path,
) -> None:
    cluster = HostsCluster(A, B)
    with with_copies(tmp_path, cluster) as (_, attempt, _):
        assert attempt.launch.has_copies
        attempt.register()
        task, hosts = cluster.started.get(timeout=WAIT_S)
        assert hosts == [B]
        assert isinstance(task, BlockServerStart)
        assert task.launch == replace(attempt.launch.block_server(""), host="")
        assert task.executor_hosts == {"0": A, "1": B}
        server_of(attempt, A)
        server_of(attempt, B)
        assert find(attempt) == ReplicaHostAt(B, (B, 4711), False, False)
        found = find(attempt, B)
        assert found.host is None
        assert not found.is_alone
        assert cluster.cancelled == []


def test_a_level_for_three_copies_has_a_server_on_two_other_hosts(tmp_path: Path) -> None:
    source = Source()
    source.storageLevel = StorageLevel(True, True, False, False, 3)
    cluster = HostsCluster(A, B, C, "10.0.0.4")
    with with_copies(tmp_path, cluster, source) as (_, attempt, _):
        attempt.register()
        assert cluster.started.get(timeout=WAIT_S)[1] == [B, C]
        for host in (A, B, C):
            server_of(attempt, host)
        assert {find(attempt, B).host, find(attempt, C).host} == {B, C}


def test_the_block_server_of_another_receiver_is_waited_for(tmp_path: Path) -> None:
    cluster = HostsCluster(A, B)
    receivers: dict[int, tuple[Receiver, str]] = {n: (Source(), f"Source [{n}]") for n in range(2)}
    with running_tracker(tmp_path, cluster=cluster, receivers=receivers) as (tracker, _, _):
        first, second = (place(cluster.next_attempt()) for _ in range(2))
        assert {first.host, second.host} == {A, B}
        first.register()
        until_nothing_is_started(tracker)
        asked = FindReplicaHost(first.launch.stream_id, first.launch.attempt, first.host)
        # The second receiver is about to start, and starts its host's block server.
        assert first.ask(asked) == ReplicaHostAt(None, None, True, False)
        second.register()
        assert first.ask(asked) == ReplicaHostAt(None, None, True, False)
        server_of(second, second.host)
        assert first.ask(asked).host == second.host
        # A host that is lost has no executors any more; nobody waits for it.
        cluster.up = [found for found in cluster.up if found.host == first.host]
        silent = msgspec.structs.replace(asked, silent=(second.host,))
        assert first.ask(silent) == ReplicaHostAt(None, None, False, False)
        assert cluster.started.empty()


def place(attempt: Attempt) -> Attempt:
    """Let an attempt run where it was to run."""
    location = attempt.locations[0]
    assert isinstance(location, ExecutorLocation)
    attempt.host, attempt.executor_id = location.host, location.executor_id
    return attempt


def test_on_one_host_nothing_is_started_and_the_receiver_knows_at_once(tmp_path: Path) -> None:
    cluster = HostsCluster(A, A)
    with with_copies(tmp_path, cluster) as (tracker, attempt, _):
        attempt.register()
        server_of(attempt, A)
        until_nothing_is_started(tracker)
        assert find(attempt) == ReplicaHostAt(None, None, False, True)
        assert cluster.started.empty()


@pytest.mark.parametrize("level", ["MEMORY_ONLY", "MEMORY_AND_DISK", "DISK_ONLY"])
def test_nothing_is_started_when_nobody_asks_for_a_second_copy(tmp_path: Path, level: str) -> None:
    source = Source()
    source.storageLevel = getattr(StorageLevel, level)
    cluster = HostsCluster(A, B)
    with with_copies(tmp_path, cluster, source) as (_, attempt, _):
        assert not attempt.launch.has_copies
        attempt.register()
        assert not find(attempt).is_expected
        assert cluster.started.empty()


def test_another_rack_is_preferred_and_hosts_that_do_not_answer_are_passed_over(
    tmp_path: Path,
) -> None:
    cluster = HostsCluster(A, B, C, racks={A: "/1", B: "/1", C: "/2"})
    with with_copies(tmp_path, cluster) as (_, attempt, _):
        attempt.register()
        assert cluster.started.get(timeout=WAIT_S)[1] == [B]
        for host in (A, B, C):
            server_of(attempt, host)
        assert {find(attempt).host for _ in range(5)} == {C}
        assert find(attempt, C).host == B
        assert find(attempt, B, C).host is None


def test_attempts_are_spread_over_the_hosts(tmp_path: Path) -> None:
    with with_copies(tmp_path, HostsCluster(A, B, C)) as (_, attempt, _):
        attempt.register()
        for host in (A, B, C):
            server_of(attempt, host)
        hosts = [
            attempt.ask(FindReplicaHost(0, attempt_name(number), A)).host for number in range(4)
        ]
        assert hosts == [B, C, B, C]


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Believe at once that a block server is gone."""
    monkeypatch.setattr(_control, "_SERVER_GRACE_S", 0.0)


@pytest.mark.usefixtures("no_grace")
def test_a_host_of_copies_whose_block_server_died_gets_another(tmp_path: Path) -> None:
    cluster = HostsCluster(A, B)
    with with_copies(tmp_path, cluster) as (tracker, attempt, _):
        attempt.register()
        assert cluster.started.get(timeout=WAIT_S)[1] == [B]
        server_of(attempt, A)
        server = server_of(attempt, B)
        until_nothing_is_started(tracker)
        for _ in range(cluster.started.qsize()):
            cluster.started.get()
        server.close()
        # No receiver is there, so a task starts it.
        assert cluster.started.get(timeout=WAIT_S)[1] == [B]
        server_of(attempt, B, 4712)
        # A server is expected until the task's thread has seen that it is there.
        until_nothing_is_started(tracker)
        assert attempt.ask(FindBlockServer(B)) == BlockServerAt((B, 4712), False)


@pytest.mark.usefixtures("no_grace")
def test_a_host_that_was_cut_off_gets_a_block_server_when_it_has_executors_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log is still there, and no receiver: also where nobody asked for second copies."""
    monkeypatch.setattr(_control, "_LOST_HOST_S", 0.02)
    source = Source()
    source.storageLevel = StorageLevel.MEMORY_AND_DISK
    cluster = HostsCluster(A, B)
    with with_copies(tmp_path, cluster, source) as (tracker, attempt, _):
        attempt.register()
        server = server_of(attempt, A)
        info = block(0, attempt.launch.attempt, attempt.first)
        attempt.add(msgspec.structs.replace(info, host=A))
        back, cluster.up = cluster.up, cluster.up[1:]
        attempt.close()
        until("the receiver is gone", lambda: tracker._receivers.peer_on(A) is None)
        server.close()
        until("it was looked for executors", lambda: tracker._replica_hosts._began_s > 0)
        until_nothing_is_started(tracker)
        assert cluster.started.empty()
        cluster.up = back
        task, hosts = cluster.started.get(timeout=WAIT_S)
        assert hosts == [A]
        assert isinstance(task, BlockServerStart)
        again = server_of(Attempt(attempt.launch, ()), A, 4712)
        # Nobody looks any more.
        until_nothing_is_started(tracker)
        assert again.ask(FindBlockServer(A)) == BlockServerAt((A, 4712), False)


# -- clean-up ----------------------------------------------------------------------------------


def test_what_was_cleaned_up_goes_on_both_hosts(tmp_path: Path) -> None:
    """I4, on the host of the copies too, also when it was not connected just then."""
    with with_copies(tmp_path, HostsCluster(A, B)) as (tracker, attempt, _):
        attempt.register()
        name = attempt.launch.attempt
        first, second = server_of(attempt, A), server_of(attempt, B)

        def add_copied(number: int, copy: int, segment: int) -> None:
            info = copied(attempt.first + number, copy=copy, segment=segment, attempt=name)
            attempt.add(info)

        add_copied(0, 1, 1)
        add_copied(1, 2, 2)
        tracker.allocate_blocks_to_batch(1000)
        add_copied(2, 3, 3)
        tracker.allocate_blocks_to_batch(2000)
        tracker.cleanup_old_blocks_and_batches(2000)
        folder = f"/log/0-{name}-{B}"
        assert second.next_message() == ReleaseBlocks((), ((folder, 1), (folder, 2)))
        second.close()
        until("the server is gone", lambda: not tracker._block_servers.is_served(B))
        # The receiver ends; what it left goes, on the second host when it is back.
        attempt.fail()
        until("the attempt is over", lambda: tracker.ledger._state.attempts[name].ended)
        tracker.cleanup_old_blocks_and_batches(3000)
        found = first.next_message()
        assert isinstance(found, ReleaseBlocks)
        assert name in found.attempts
        # A driver that is killed now leaves it to the next one, which has only the ledger.
        tracker.cleanup_old_blocks_and_batches(4000)
        assert name in tracker.ledger._state.attempts
        again = Attempt(attempt.launch, ())
        again.ask(RegisterBlockServer(B, (B, 4713), 2))
        assert again.next_message() == ReleaseBlocks((name,), ((folder, 3),))
        assert first.next_message() == ReleaseBlocks((name,), ((f"/log/0-{name}", 3),))
        # Its own host is not told again and again meanwhile. What was sent comes before an answer.
        first.ask(FindBlockServer(A))
        assert first.messages.empty()
        tracker.cleanup_old_blocks_and_batches(5000)
        assert first.next_message() == ReleaseBlocks((name,), ())
        assert name not in tracker.ledger._state.attempts


# -- loss --------------------------------------------------------------------------------------


def test_a_block_is_missed_only_when_both_of_its_hosts_are_gone() -> None:
    blocks = {1000: (copied(1), copied(2)), None: (block(0, HERE, 3),)}
    assert what_is_there(blocks, {B}).endswith("blocks: 1 waiting for a batch (input-0-3)")
    assert what_is_there({1000: (copied(1),)}, {B}) == ""
    assert what_is_there({1000: (copied(1),)}, {A}) == ""
    assert "2 of the batch of 1000 ms (input-0-1 to input-0-2)" in what_is_there(blocks, {C})


@pytest.mark.usefixtures("no_grace")
def test_the_loss_of_one_host_is_no_loss_and_that_of_both_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock.tracker")
    with with_copies(tmp_path, HostsCluster(A, B)) as (tracker, attempt, _):
        attempt.register()
        first, second = server_of(attempt, A), server_of(attempt, B)
        attempt.add(copied(attempt.first, attempt=attempt.launch.attempt))
        attempt.close()
        until("the receiver is gone", lambda: tracker._receivers.peer_on(A) is None)
        first.close()
        said = wait_for_text(caplog, f"the block server of {A} is gone")
        assert "cannot read" not in said
        second.close()
        said = wait_for_text(caplog, f"the block server of {B} is gone")
        assert f"1 waiting for a batch (input-0-{attempt.first})" in said
