"""Streams that are read by places: exact over crashes, nothing gone that anybody needs (I2, I4)."""

from __future__ import annotations

import contextlib
import copy
import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.runtime.clock import ManualClock
from penstock.tracker import LedgerError, LedgerWriteError, ReceivedBlockTracker
from penstock.tracker.ledger._driver_log import SnapshotRule
from penstock.tracker.ledger._kept_blocks import KeptBlocks
from penstock.tracker.ledger.places import Retention
from penstock.wal import LogOptions, SyncPolicy
from penstock.wire.messages import Failure, Ok, ReceivedBlockInfo
from tests.tracker.ledger_cases import LOG_OPTIONS, add, attempt_name, block, ids
from tests.wal.faulty_filesystem import FaultyFileSystem, SimulatedCrashError

FOLDER = "/data/receivedBlockMetadata"
OPTIONS = LogOptions(segment_size=4096, alignment=64, sync=SyncPolicy.ALWAYS)
HOUR_MS = 3_600_000


def opened(folder: Path, clock: ManualClock | None = None) -> ReceivedBlockTracker:
    return ReceivedBlockTracker.recover((), str(folder), options=LOG_OPTIONS, clock=clock)


def stored(ledger: ReceivedBlockTracker, stream: int, attempt: str, count: int) -> list[str]:
    first = ledger.register_attempt(stream, attempt, "host").first_block_number
    blocks = [block(stream, attempt, first + n, segment=n) for n in range(count)]
    assert add(ledger, stream, attempt, blocks) == Ok()
    return ids(blocks)


# -- what a stream says --------------------------------------------------------------------------


def test_a_place_is_the_same_block_after_a_restart(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    (stream,) = ledger.register_streams({"clicks": 0}, are_kept=True).values()
    names = stored(ledger, stream, attempt_name(1), 5)
    before = ledger.places.stream(stream)
    ledger.close()
    again = opened(tmp_path)
    again.register_streams({"clicks": 0}, are_kept=True)
    names += stored(again, stream, attempt_name(2), 2)
    first, found, _ = again.places.between(stream, 3, 7)
    assert (first, ids(found)) == (3, names[3:])
    assert again.places.stream(stream).epoch == before.epoch
    assert again.places.stream(stream).records == 70


def test_a_block_without_records_says_nothing_of_the_columns(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    (stream,) = ledger.register_streams({"clicks": 0}, are_kept=True).values()
    attempt = attempt_name(1)
    first = ledger.register_attempt(stream, attempt, "host").first_block_number
    empty = msgspec.structs.replace(block(stream, attempt, first, position=b"1"), num_records=0)
    assert add(ledger, stream, attempt, [empty]) == Ok()
    assert ledger.places.columns(stream) == ("", None)
    words = msgspec.structs.replace(block(stream, attempt, first + 1), kind="string")
    empty = msgspec.structs.replace(empty, block_id=f"input-{stream}-{first + 2}")
    assert add(ledger, stream, attempt, [words, empty]) == Ok()
    assert ledger.places.columns(stream) == ("string", None)


def test_batches_do_not_see_what_is_read_by_places(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.register_streams({"clicks": 0}, are_kept=True)
    stored(ledger, 0, attempt_name(1), 3)
    assert not ledger.has_unallocated_blocks
    ledger.allocate_blocks_to_batch(1000)
    assert ledger.get_blocks_of_batch(1000) == {}
    assert ledger.places.next(0) == 3


@pytest.mark.parametrize("first_kept", [True, False])
def test_a_stream_does_not_change_between_batches_and_places(
    tmp_path: Path, first_kept: bool
) -> None:
    ledger = opened(tmp_path)
    ledger.register_streams({"clicks": 0}, are_kept=first_kept)
    ledger.close()
    again = opened(tmp_path)
    with pytest.raises(LedgerError, match="of clicks was received"):
        again.register_streams({"clicks": 0}, are_kept=not first_kept)
    again.close()
    opened(tmp_path).register_streams({"clicks": 0}, are_kept=first_kept)


def test_a_stream_of_batches_has_no_places(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.register_streams({"clicks": 0})
    with pytest.raises(LedgerError, match="not read by places"):
        ledger.places.stream(0)


# -- retention and consumers ---------------------------------------------------------------------


def kept_ledger(tmp_path: Path) -> tuple[ReceivedBlockTracker, ManualClock, list[str]]:
    clock = ManualClock(HOUR_MS)
    ledger = opened(tmp_path, clock)
    ledger.register_streams({"clicks": 0}, are_kept=True)
    names = stored(ledger, 0, attempt_name(1), 4)
    return ledger, clock, names


def test_nothing_goes_that_a_consumer_still_needs(tmp_path: Path) -> None:
    ledger, clock, _ = kept_ledger(tmp_path)
    places, retention = ledger.places, {0: Retention(1000)}
    places.hold(0, "slow", 0)
    places.commit(0, "quick", 4)
    clock.advance(HOUR_MS)
    assert places.release(retention) == []
    places.commit(0, "slow", 3)
    (release,) = places.release(retention)
    assert len(release.block_ids) == 3
    assert places.stream(0).first == 3


def test_what_the_retention_keeps_is_there_for_who_comes_later(tmp_path: Path) -> None:
    ledger, clock, names = kept_ledger(tmp_path)
    ledger.places.commit(0, "quick", 4)
    clock.advance(50_000)
    assert ledger.places.release({0: Retention(60_000)}) == []
    assert ids(ledger.places.between(0, 0, 4)[1]) == names
    clock.advance(11_000)
    ledger.places.release({0: Retention(60_000)})
    assert ledger.places.between(0, 0, 4)[1] == ()


def test_retention_by_size_keeps_the_newest(tmp_path: Path) -> None:
    ledger, _, names = kept_ledger(tmp_path)
    ledger.places.release({0: Retention(None, 2500)})
    first, found, _ = ledger.places.between(0, 0, 4)
    assert (first, ids(found)) == (2, names[2:])


def test_it_is_known_when_what_is_gone_was_added_also_after_restarts(tmp_path: Path) -> None:
    ledger, clock, _ = kept_ledger(tmp_path)
    assert ledger.places.stream(0).released_ms == -1
    clock.advance(500)
    stored(ledger, 0, attempt_name(2), 1)
    ledger.places.release({0: Retention(None, 1000)})
    assert ledger.places.stream(0).released_ms == HOUR_MS
    ledger.places.release({0: Retention(None, 0)})
    for _ in range(2):  # The second time from a snapshot.
        assert ledger.places.stream(0).released_ms == HOUR_MS + 500
        ledger.close()
        ledger = opened(tmp_path, ManualClock(HOUR_MS))
        ledger.register_streams({"clicks": 0}, are_kept=True)
    stored(ledger, 0, attempt_name(3), 1)
    # With a clock that was set back: what comes is not older than what has gone.
    assert ledger.places.between(0, 5, 6)[2] == (HOUR_MS + 500,)


def test_a_queue_keeps_everything_until_it_has_a_consumer(tmp_path: Path) -> None:
    ledger, clock, _ = kept_ledger(tmp_path)
    clock.advance(HOUR_MS)
    assert ledger.places.release({0: Retention(0)}) == []
    ledger.places.commit(0, "query", 2)
    ledger.places.release({0: Retention(0)})
    assert (ledger.places.stream(0).first, ledger.places.stream(0).next) == (2, 4)


def test_who_is_dropped_holds_nothing(tmp_path: Path) -> None:
    ledger, clock, _ = kept_ledger(tmp_path)
    ledger.places.hold(0, "forgotten", 0)
    ledger.places.commit(0, "query", 4)
    clock.advance(HOUR_MS)
    assert ledger.places.release({0: Retention(1)}) == []
    ledger.places.drop(0, ["forgotten", "never seen"])
    ledger.places.release({0: Retention(1)})
    assert ledger.places.stream(0).first == 4
    ledger.close()
    again = opened(tmp_path)
    assert [found.consumer for found in again.places.stream(0).consumers] == ["query"]


def test_a_consumer_is_told_as_far_behind_as_it_is(tmp_path: Path) -> None:
    ledger, _, _ = kept_ledger(tmp_path)
    ledger.places.commit(0, "query", 1)
    (found,) = ledger.places.stream(0).consumers
    assert (found.place, found.records_behind, found.is_committed) == (1, 30, True)


def test_a_place_that_is_not_there_yet_cannot_be_committed(tmp_path: Path) -> None:
    ledger, _, _ = kept_ledger(tmp_path)
    with pytest.raises(LedgerError, match="only 4"):
        ledger.places.commit(0, "query", 5)


def test_whoever_gives_a_stream_up_gives_up_its_places(tmp_path: Path) -> None:
    ledger, _, _ = kept_ledger(tmp_path)
    ledger.places.commit(0, "query", 1)
    ledger.close()
    again = opened(tmp_path)
    again.register_streams({"orders": 1}, removed=["clicks"], are_kept=True)
    assert again.places.stream(0).consumers == ()
    assert again.places.between(0, 0, 4)[1] == ()


# -- limits --------------------------------------------------------------------------------------


def _filled(sizes: list[tuple[int, int]]) -> KeptBlocks:
    kept = KeptBlocks("epoch")
    for n, (records, size) in enumerate(sizes):
        info = block(0, attempt_name(1), n)
        kept.append(n, _sized(info, records, size), n)
    return kept


def test_what_came_late_is_forgotten_when_it_is_released() -> None:
    kept = KeptBlocks("epoch")
    for number in (1, 3, 2, 4):
        kept.append(number, block(0, attempt_name(1), number), 0)
    assert kept._late == {2}
    kept.release(4)
    assert (kept._late, kept.first, len(kept)) == (set(), 4, 0)


def _sized(info: ReceivedBlockInfo, records: int, size: int) -> ReceivedBlockInfo:
    return msgspec.structs.replace(info, num_records=records, num_bytes=size)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=30),
    start=st.integers(0, 30),
    until=st.integers(0, 35),
    released=st.integers(0, 30),
    max_records=st.none() | st.integers(1, 40),
    max_bytes=st.none() | st.integers(1, 400),
)
def test_limits_hold_except_for_one_block(
    sizes: list[tuple[int, int]],
    start: int,
    until: int,
    released: int,
    max_records: int | None,
    max_bytes: int | None,
) -> None:
    kept = _filled(sizes)
    kept.release(released)
    end = kept.end_of(start, until, max_records, max_bytes)
    begin = max(start, kept.first)
    last = min(until, kept.next)
    assert begin <= end <= max(begin, last)
    taken = sizes[begin:end]
    records, size = sum(r for r, _ in taken), sum(b for _, b in taken)
    if len(taken) > 1:
        assert max_records is None or records <= max_records
        assert max_bytes is None or size <= max_bytes
    if begin < last:
        assert taken
    if end < last and taken:
        more_records, more_bytes = sizes[end]
        assert (max_records is not None and records + more_records > max_records) or (
            max_bytes is not None and size + more_bytes > max_bytes
        )


# -- random operations and crashes ---------------------------------------------------------------


@dataclass
class Model:
    """What the ledger must say of its one stream: written down as plainly as possible."""

    blocks: list[str] = field(default_factory=list)
    first: int = 0
    consumers: dict[str, tuple[int, bool]] = field(default_factory=dict)

    def hold(self, consumer: str, place: int) -> None:
        self.consumers.setdefault(consumer, (place, False))

    def commit(self, consumer: str, place: int) -> None:
        self.consumers[consumer] = (max(place, self.consumers.get(consumer, (0, False))[0]), True)

    def drop(self, consumer: str) -> None:
        self.consumers.pop(consumer, None)

    def release(self) -> None:
        if self.consumers:
            least = min(place for place, _ in self.consumers.values())
            self.first = max(self.first, min(least, len(self.blocks)))


class PlacesMachine(RuleBasedStateMachine):
    """A queue with consumers over the real log, on a disk that fails, tears and forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.maybe: list[Model] = []
        self.names = 0
        self.attempt = ""
        self.next_number = 0
        self.deleted: set[str] = set()
        self.tracker: ReceivedBlockTracker | None = None

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.fs = FaultyFileSystem(seed)
        self.tracker = self.open()
        self.ledger.register_streams({"clicks": 0}, are_kept=True)
        self.epoch = self.ledger.places.stream(0).epoch

    def open(self) -> ReceivedBlockTracker:
        return ReceivedBlockTracker.recover(
            (), FOLDER, options=OPTIONS, fs=self.fs, snapshots=SnapshotRule(1500)
        )

    @property
    def ledger(self) -> ReceivedBlockTracker:
        assert self.tracker is not None
        return self.tracker

    def change(self, act: Callable[[], object], effect: Callable[[Model], object]) -> None:
        try:
            answer = act()
            happened = not isinstance(answer, Failure)
        except LedgerWriteError:
            happened = False
        except SimulatedCrashError:
            self.tracker, happened = None, False
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

    @rule()
    def heal(self) -> None:
        self.fs.heal()

    @rule(calls=st.integers(0, 12))
    def die_soon(self, calls: int) -> None:
        self.fs.crash_after(calls)

    @precondition(lambda self: self.tracker is not None and not self.attempt)
    @rule()
    def register(self) -> None:
        self.names += 1
        attempt = attempt_name(self.names)
        try:
            found = self.ledger.register_attempt(0, attempt, "host")
        except LedgerWriteError:
            return
        except SimulatedCrashError:
            self.tracker = None
            return
        self.attempt, self.next_number = attempt, found.first_block_number
        self.maybe = []

    @precondition(lambda self: self.tracker is not None and self.attempt)
    @rule(count=st.integers(1, 5))
    def add_blocks(self, count: int) -> None:
        numbers = range(self.next_number, self.next_number + count)
        blocks = [block(0, self.attempt, n, segment=n & 0xFF) for n in numbers]
        before = len(self.model.blocks)
        self.change(
            lambda: add(self.ledger, 0, self.attempt, blocks),
            lambda model: model.blocks.extend(ids(blocks)),
        )
        if len(self.model.blocks) > before:
            self.next_number += count

    @precondition(lambda self: self.tracker is not None)
    @rule(consumer=st.sampled_from("abc"), ahead=st.integers(0, 5))
    def hold(self, consumer: str, ahead: int) -> None:
        place = min(self.model.first + ahead, len(self.model.blocks))
        self.change(
            lambda: self.ledger.places.hold(0, consumer, place),
            lambda model: model.hold(consumer, place),
        )

    @precondition(lambda self: self.tracker is not None)
    @rule(consumer=st.sampled_from("abc"), ahead=st.integers(0, 8))
    def commit(self, consumer: str, ahead: int) -> None:
        place = min(self.model.first + ahead, len(self.model.blocks))
        self.change(
            lambda: self.ledger.places.commit(0, consumer, place),
            lambda model: model.commit(consumer, place),
        )

    @precondition(lambda self: self.tracker is not None)
    @rule(consumer=st.sampled_from("abc"))
    def drop(self, consumer: str) -> None:
        self.change(
            lambda: self.ledger.places.drop(0, [consumer]), lambda model: model.drop(consumer)
        )

    @precondition(lambda self: self.tracker is not None)
    @rule()
    def release(self) -> None:
        other = copy.deepcopy(self.model)
        other.release()
        try:
            releases = self.ledger.places.release({0: Retention(0)})
        except SimulatedCrashError:
            self.tracker = None
            self.maybe.append(other)
            return
        gone = {name for release in releases for name in release.block_ids}
        # Released is what the model releases, all of it or nothing.
        happened = self.ledger.places.stream(0).first == other.first
        assert gone == (set(self.model.blocks[self.model.first : other.first]) & gone)
        self.deleted |= gone
        if happened:
            if other.first > self.model.first:
                assert len(gone) == other.first - self.model.first
                self.maybe = []
            self.model = other
        else:
            assert not gone
            self.maybe.append(other)

    @rule(power_loss=st.booleans(), again=st.none() | st.integers(0, 20))
    def crash(self, power_loss: bool, again: int | None) -> None:
        self.tracker = None
        self.fs.die()
        self.fs.restart(power_loss=power_loss)
        if again is not None:
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
        self.attempt = ""
        assert self.ledger.places.stream(0).epoch == self.epoch
        try:
            self.ledger.register_streams({"clicks": 0}, are_kept=True)
        except SimulatedCrashError:
            self.tracker = None

    @invariant()
    def says_what_the_model_says(self) -> None:
        if self.tracker is not None:
            assert self.state() == view(self.model)
            assert not self.deleted.intersection(self.model.blocks[self.model.first :])

    def state(self) -> object:
        places = self.ledger.places
        kept = places.stream(0)
        first, blocks, _ = places.between(0, 0, kept.next)
        assert first == kept.first
        return (
            kept.first,
            ids(blocks),
            kept.records,
            {found.consumer: (found.place, found.is_committed) for found in kept.consumers},
        )


def view(model: Model) -> object:
    return (model.first, model.blocks[model.first :], 10 * len(model.blocks), model.consumers)


QUICK = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

TestPlacesMachine = PlacesMachine.TestCase
TestPlacesMachine.settings = QUICK


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_places_for_long() -> None:
    run_state_machine_as_test(PlacesMachine, settings=settings(QUICK, max_examples=400))
