"""Random operations, refused writes and crashes against a simple model of the ledger (I1 to I4)."""

from __future__ import annotations

import contextlib
import copy
import errno
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.position_changes import PositionChanges, decoded_position, encoded_position
from penstock.tracker.errors import LedgerWriteError
from penstock.tracker.ledger._driver_log import SnapshotRule
from penstock.tracker.ledger.received_block_tracker import ReceivedBlockTracker
from penstock.wal import LogOptions, SyncPolicy
from penstock.wire.messages import Failure, Ok, ReceivedBlockInfo, Refused
from tests.system.leftovers import threads
from tests.tracker.ledger_cases import add, attempt_name, block
from tests.wal.faulty_filesystem import FaultyFileSystem, SimulatedCrashError

FOLDER = "/data/receivedBlockMetadata"
OPTIONS = LogOptions(segment_size=4096, alignment=64, sync=SyncPolicy.ALWAYS)

STREAMS = (0, 1)


POSITIONS = st.sampled_from(["none", "a number", "a dict", "changes"])


def position_of(n: int, kind: str) -> bytes:
    if kind == "changes":
        return encoded_position(PositionChanges({str(n % 3): n}))
    return encoded_position(n if kind == "a number" else {"0": n})


@dataclass
class Model:
    """What the ledger must say: written down as plainly as possible."""

    waiting: dict[int, list[str]] = field(default_factory=lambda: {s: [] for s in STREAMS})
    batches: dict[int, dict[int, list[str]]] = field(default_factory=dict)
    complete: set[int] = field(default_factory=set)
    last_batch: int = -1
    position: dict[int, bytes | None] = field(default_factory=lambda: dict.fromkeys(STREAMS))
    accepted: dict[str, int] = field(default_factory=dict)
    """Blocks accepted per attempt: they are numbered without gaps."""

    def add(self, stream: int, attempt: str, blocks: list[ReceivedBlockInfo]) -> None:
        for info in blocks:
            self.waiting[stream].append(info.block_id)
            self.accepted[attempt] += 1
            if info.position is not None:
                position = decoded_position(info.position)
                if isinstance(position, PositionChanges):
                    before = msgspec.msgpack.decode(self.position[stream] or b"\x80")
                    position = {**(before if isinstance(before, dict) else {}), **position}
                self.position[stream] = msgspec.msgpack.encode(position)

    def allocate(self, time: int) -> None:
        self.batches[time] = {s: found for s, found in self.waiting.items() if found}
        self.waiting = {s: [] for s in STREAMS}
        self.last_batch = time

    def clean(self, threshold: int) -> None:
        self.batches = {time: found for time, found in self.batches.items() if time >= threshold}
        self.complete.intersection_update(self.batches)

    def give_back(self) -> None:
        for time in sorted(self.batches.keys() - self.complete, reverse=True):
            for stream, found in self.batches[time].items():
                self.waiting[stream] = found + self.waiting[stream]
        self.batches = {}
        self.complete = set()

    def needed(self) -> set[str]:
        waiting = {name for found in self.waiting.values() for name in found}
        return waiting.union(
            *(found for streams in self.batches.values() for found in streams.values())
        )


class LedgerMachine(RuleBasedStateMachine):
    """A ledger over the real log, on a disk that fails, tears and forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        # What the log may hold instead, because a write that failed may have arrived.
        self.maybe: list[Model] = []
        self.attempts: dict[int, str] = {}
        self.first: dict[str, int] = {}
        self.given: set[tuple[int, int]] = set()
        self.blocks: dict[str, ReceivedBlockInfo] = {}
        self.released: set[str] = set()
        self.unsaid: set[int] = set()
        self.names = 0
        self.tracker: ReceivedBlockTracker | None = None

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.fs = FaultyFileSystem(seed)
        self.tracker = self.open()

    def open(self) -> ReceivedBlockTracker:
        return ReceivedBlockTracker.recover(
            STREAMS, FOLDER, options=OPTIONS, fs=self.fs, snapshots=SnapshotRule(1500)
        )

    @property
    def ledger(self) -> ReceivedBlockTracker:
        assert self.tracker is not None
        return self.tracker

    def change(self, happened: bool, effect: Callable[[Model], None]) -> None:
        if happened:
            effect(self.model)
            self.maybe = []
        else:
            other = copy.deepcopy(self.model)
            effect(other)
            self.maybe.append(other)

    @rule(
        call=st.sampled_from(["write", "write", "sync", "create", "rename", "preallocate"]),
        number=st.sampled_from([errno.EIO, errno.ENOSPC]),
    )
    def fault(self, call: str, number: int) -> None:
        self.fs.fail_next(call, number)

    @rule(full=st.booleans())
    def disk(self, full: bool) -> None:
        self.fs.capacity = self.fs.used() if full else None

    @rule()
    def heal(self) -> None:
        self.fs.heal()

    @rule(calls=st.integers(0, 12))
    def die_soon(self, calls: int) -> None:
        self.fs.crash_after(calls)

    @precondition(lambda self: self.tracker is not None)
    @rule(stream=st.sampled_from(STREAMS))
    def register(self, stream: int) -> None:
        self.names += 1
        attempt = attempt_name(self.names)
        try:
            registration = self.ledger.register_attempt(stream, attempt, "host")
        except LedgerWriteError:
            return
        except SimulatedCrashError:
            self.tracker = None
            return
        assert registration.last_position == self.model.position[stream]
        assert (stream, registration.first_block_number) not in self.given
        self.given.add((stream, registration.first_block_number))
        older = self.attempts.get(stream)
        if older is not None:
            self.ledger.end_attempt(older)
        self.attempts[stream] = attempt
        self.first[attempt] = registration.first_block_number
        self.model.accepted[attempt] = 0
        self.maybe = []

    @precondition(lambda self: self.tracker is not None and self.attempts)
    @rule(data=st.data(), count=st.integers(1, 5), again=st.integers(0, 3), position=POSITIONS)
    def add_blocks(self, data: st.DataObject, count: int, again: int, position: str) -> None:
        stream = data.draw(st.sampled_from(sorted(self.attempts)))
        attempt = self.attempts[stream]
        done = self.model.accepted[attempt]
        numbers = range(max(0, done - again), done + count)
        blocks = [
            block(
                stream,
                attempt,
                self.first[attempt] + n,
                segment=n // 4,
                position=None if position == "none" else position_of(n, position),
            )
            for n in numbers
        ]
        new = blocks[done - numbers.start :]
        self.blocks.update((info.block_id, info) for info in new)
        try:
            answer = add(self.ledger, stream, attempt, blocks)
        except SimulatedCrashError:
            self.tracker, answer = None, None
        else:
            assert isinstance(answer, (Ok, Failure))
        self.change(answer == Ok(), lambda model: model.add(stream, attempt, new))

    @precondition(lambda self: self.tracker is not None)
    @rule(step=st.integers(-1, 3))
    def allocate(self, step: int) -> None:
        time = self.model.last_batch + step
        try:
            happened = self.ledger.allocate_blocks_to_batch(time)
        except SimulatedCrashError:
            self.tracker, happened = None, False
        except LedgerWriteError:
            happened = False
        assert not (happened and step <= 0)
        if step > 0:
            self.change(happened, lambda model: model.allocate(time))
        if happened:
            self.model.complete |= self.unsaid.intersection(self.model.batches)
            self.unsaid = set()

    @precondition(lambda self: self.tracker is not None)
    @rule(back=st.integers(0, 4))
    def clean(self, back: int) -> None:
        threshold = self.model.last_batch - back
        old = [time for time in self.model.batches if time < threshold]
        try:
            releases = self.ledger.cleanup_old_batches(threshold)
        except SimulatedCrashError:
            self.tracker = None
            self.change(False, lambda model: model.clean(threshold))
            return
        happened = bool(old) and self.ledger.batch_times_ms[:1] != tuple(old[:1])
        if old:
            self.change(happened, lambda model: model.clean(threshold))
        needed = self.model.needed()
        for release in releases:
            self.released.update(release.block_ids)
            assert not needed.intersection(release.block_ids)
            mine = [self.blocks[name] for name in needed]
            mine = [info for info in mine if info.attempt == release.attempt]
            assert not (release.whole and mine)
            held = {(info.segment.folder, info.segment.segment) for info in mine if info.segment}
            assert not held.intersection(release.segments)
        whole = [release.attempt for release in releases if release.whole]
        try:
            self.ledger.forget_attempts(whole)
        except SimulatedCrashError:
            self.tracker = None

    @precondition(lambda self: self.tracker is not None and self.model.batches)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        times = data.draw(st.sets(st.sampled_from(sorted(self.model.batches)), max_size=2))
        self.ledger.complete_batches(times)
        # The next record says it; until then a crash may lose it.
        self.unsaid |= times - self.model.complete

    @rule(power_loss=st.booleans(), again=st.none() | st.integers(0, 20), anew=st.booleans())
    def crash(self, power_loss: bool, again: int | None, anew: bool) -> None:
        self.tracker = None
        self.fs.die()
        self.fs.restart(power_loss=power_loss)
        if again is not None:
            # The new driver dies too, in the middle of its recovery, or is refused by the disk.
            self.fs.crash_after(again)
            with contextlib.suppress(SimulatedCrashError):
                self.open()
                self.fs.die()
            self.fs.restart(power_loss=power_loss)
        self.tracker = self.open()
        found = self.state()
        assert found in [view(self.model), *(view(other) for other in self.maybe)]
        if found != view(self.model):
            self.model = next(other for other in self.maybe if view(other) == found)
        self.maybe = []
        complete = set(self.ledger.batch_times_ms) - set(self.ledger.incomplete_batches())
        assert self.model.complete <= complete <= self.model.complete | self.unsaid
        self.model.complete, self.unsaid = complete, set()
        if anew:
            self.start_anew()
        if self.tracker is None:
            return
        for stream, attempt in self.attempts.items():
            info = block(stream, attempt, self.first[attempt] + 1_000_000)
            assert isinstance(add(self.ledger, stream, attempt, [info]), Refused)
        self.attempts = {}

    def start_anew(self) -> None:
        """Do what a driver does that does not know the batches of the one before."""
        try:
            self.ledger.return_unfinished_batches()
            happened = True
        except LedgerWriteError:
            happened = False
        except SimulatedCrashError:
            self.tracker, happened = None, False
        self.change(happened, Model.give_back)

    @invariant()
    def says_what_the_model_says(self) -> None:
        if self.tracker is not None:
            assert self.state() == view(self.model)
            assert not self.released.intersection(self.model.needed())

    def state(self) -> object:
        tracker = self.ledger
        return (
            {s: [info.block_id for info in tracker.unallocated_blocks(s)] for s in STREAMS},
            {
                time: {
                    s: [info.block_id for info in found]
                    for s, found in tracker.get_blocks_of_batch(time).items()
                }
                for time in tracker.batch_times_ms
            },
            tracker.last_allocated_ms,
            {s: tracker.last_position(s) for s in STREAMS},
        )


def view(model: Model) -> object:
    return (model.waiting, model.batches, model.last_batch, model.position)


QUICK = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = QUICK


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_the_ledger_for_long() -> None:
    run_state_machine_as_test(LedgerMachine, settings=settings(QUICK, max_examples=400))


def test_a_power_loss_after_a_snapshot_takes_the_last_interval_and_nothing_before() -> None:
    """The segments that a snapshot replaces hold what was forced long ago."""
    before = threads()
    options = replace(OPTIONS, sync=SyncPolicy.INTERVAL, sync_interval_s=3600)
    for seed in range(30):
        fs = FaultyFileSystem(seed)

        def driver(fs: FaultyFileSystem = fs) -> ReceivedBlockTracker:
            return ReceivedBlockTracker.recover(
                STREAMS, FOLDER, options=options, fs=fs, snapshots=SnapshotRule(1500)
            )

        ledger = driver()
        name = attempt_name(1)
        first = ledger.register_attempt(0, name, "host").first_block_number
        blocks = [block(0, name, first + n, position=bytes([n])) for n in range(3)]
        assert add(ledger, 0, name, blocks) == Ok()
        ledger.close()
        fs.die()
        fs.restart(power_loss=True)
        # It reads the log, begins a segment with a snapshot, and removes the one before.
        dead = driver()
        fs.die()
        # Its thread ends; nothing that it writes any more gets anywhere.
        with contextlib.suppress(SimulatedCrashError):
            dead.close()
        fs.restart(power_loss=True)
        again = driver()
        assert again.unallocated_blocks(0) == tuple(blocks)
        assert again.last_position(0) == bytes([2])
        again.close()
    # Ledgers that other tests of this process let die may still have theirs.
    left = threads() - before
    assert not [thread for thread in left if thread.name.startswith("penstock-wal-sync")]
