"""The log against a model: random operations, faults and crashes on a disk that loses and tears.

What must hold after any of it: what was acknowledged and is covered by the policy is there with
its bytes and in order; nothing is there that was not appended; what failed is not there once a
later append succeeded; and what a crash tore is never called damage.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.runtime.clock import ManualClock
from penstock.wal import (
    RECORD_HEADER_SIZE,
    CorruptRecordError,
    EncryptionKey,
    FileSystem,
    LogCipher,
    LogOptions,
    LogReader,
    LogWriter,
    RecordPlace,
    SyncPolicy,
    WalError,
    parse_record,
    segment_path,
)
from tests.wal.faulty_filesystem import FaultyFileSystem, SimulatedCrashError
from tests.wal.faulty_objects import FaultyObjectFileSystem
from tests.wal.records import read_record

FOLDER = "/data/log"
SIZES = st.one_of(st.integers(0, 200), st.sampled_from([448, 4032, 4033, 9000]))


@dataclass
class Entry:
    """One record of the model. Each payload begins with the entry's number."""

    kind: int
    payload: bytes
    place: RecordPlace | None = None
    writer: LogWriter | None = None
    acknowledged: bool = False
    durable: bool = False
    void: bool = False
    removed: bool = False


class WatchedCipher(LogCipher):
    """Encrypts as ever, and fails the test when a nonce is used twice with a key."""

    def __init__(self, key: EncryptionKey) -> None:
        super().__init__(key, "model")
        self.used: set[tuple[bytes, bytes]] = set()

    def aead(self, salt: bytes) -> Any:
        return WatchedAead(super().aead(salt), salt, self.used)


@dataclass
class WatchedAead:
    aead: Any
    salt: bytes
    used: set[tuple[bytes, bytes]]

    def encrypt(self, nonce: bytes, data: Any, bound: Any) -> bytes:
        assert (self.salt, nonce) not in self.used
        self.used.add((self.salt, nonce))
        encrypted: bytes = self.aead.encrypt(nonce, data, bound)
        return encrypted

    def decrypt(self, nonce: bytes, data: Any, bound: Any) -> bytes:
        decrypted: bytes = self.aead.decrypt(nonce, data, bound)
        return decrypted


class StillClock(ManualClock):
    """A clock on which no interval ever ends: the machine itself says when the thread syncs."""

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        while not event.wait(60):
            continue
        return True


class LogMachine(RuleBasedStateMachine):
    """A log, the disk below it, and what the model says must be in it."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self.pending: list[Entry] = []
        self.writer: LogWriter | None = None

    @initialize(
        seed=st.integers(0, 2**32),
        policy=st.sampled_from([*SyncPolicy, SyncPolicy.ALWAYS]),
        alignment=st.sampled_from([64, 512, 4096, 4096]),
        direct=st.booleans(),
        segments=st.sampled_from([4, 8, 40]),
        encrypted=st.booleans(),
        storage=st.sampled_from(["disk", "disk", "hdfs", "objects"]),
    )
    def begin(
        self,
        seed: int,
        policy: SyncPolicy,
        alignment: int,
        direct: bool,
        segments: int,
        encrypted: bool,
        storage: str,
    ) -> None:
        self.cipher = WatchedCipher(EncryptionKey.generate()) if encrypted else None
        self.fs = self.file_system(storage, seed, direct=direct)
        self.clock = StillClock(1)
        self.slot = memoryview(mmap.mmap(-1, 4 * 4096))
        self.options = LogOptions(
            segment_size=segments * max(alignment, 512),
            alignment=alignment,
            sync=policy,
            direct=direct,
            roll_age_s=60,
        )
        self.open_writer()

    def file_system(
        self, storage: str, seed: int, *, direct: bool
    ) -> FaultyFileSystem | FaultyObjectFileSystem:
        if storage == "objects":
            return FaultyObjectFileSystem(seed)
        return FaultyFileSystem(seed, direct=direct, is_hdfs=storage == "hdfs")

    def teardown(self) -> None:
        if self.writer is not None:
            self.crash(power_loss=False)
            self.writer.close()

    # Appending

    def make(self, kind: int, size: int) -> Entry:
        entry = Entry(kind, b"%08d" % len(self.entries) + bytes([kind]) * size)
        self.entries.append(entry)
        return entry

    def acknowledge(self, entries: list[Entry], places: list[RecordPlace]) -> None:
        for entry, place in zip(entries, places, strict=True):
            entry.place = place
            entry.writer = self.writer
            entry.acknowledged = True
            entry.durable = self.options.sync is SyncPolicy.ALWAYS
        # A later append succeeded: what failed before must never be seen again.
        for entry in self.pending:
            entry.void = True
        self.pending = []

    @rule(kind=st.integers(0, 0xFF), size=SIZES, parts=st.booleans())
    def append(self, kind: int, size: int, parts: bool) -> None:
        entry = self.make(kind, size)
        payload = [entry.payload[:5], entry.payload[5:]] if parts else entry.payload
        with self.faults([entry]) as writer:
            self.acknowledge([entry], [writer.append(kind, payload)])

    @rule(sizes=st.lists(SIZES, min_size=1, max_size=6))
    def append_many(self, sizes: list[int]) -> None:
        entries = [self.make(7, size) for size in sizes]
        with self.faults(entries) as writer:
            places = writer.append_many([(7, entry.payload) for entry in entries])
            self.acknowledge(entries, places)

    @rule(size=SIZES)
    def append_slot(self, size: int) -> None:
        entry = self.make(9, size)
        end = RECORD_HEADER_SIZE + len(entry.payload)
        self.slot[:] = b"\xa5" * len(self.slot)
        self.slot[RECORD_HEADER_SIZE:end] = entry.payload
        with self.faults([entry]) as writer:
            place = writer.append_slot(9, self.slot, len(entry.payload))
            assert parse_record(self.slot, expected_sequence=place.sequence) == entry.payload
            self.acknowledge([entry], [place])

    # The rest of a log's life

    @rule()
    def sync(self) -> None:
        with self.faults([]) as writer:
            writer.sync()
            for entry in self.entries:
                entry.durable |= entry.acknowledged and entry.writer is writer

    @rule()
    def interval_ends(self) -> None:
        if self.options.sync is SyncPolicy.INTERVAL:
            with self.faults([]) as writer:
                writer._sync_in_background()
                statistics = writer.statistics()
                for entry in self.entries:
                    entry.durable |= (
                        entry.place is not None
                        and entry.acknowledged
                        and entry.writer is writer
                        and entry.place.sequence <= statistics.committed_sequence
                    )

    @rule()
    def roll(self) -> None:
        with self.faults([]) as writer:
            writer.roll()

    @rule()
    def grow_old(self) -> None:
        self.clock.advance(61_000)

    @rule(ordinal=st.integers(0, 3), count=st.integers(1, 2))
    def remove(self, ordinal: int, count: int) -> None:
        segments = sorted({entry.place.segment for entry in self.entries if entry.place})
        if self.writer is None:
            return
        is_open = self.writer.statistics().segment
        chosen = [number for number in segments[ordinal : ordinal + count] if number != is_open]
        for entry in self.entries:
            if entry.place is not None and entry.place.segment in chosen:
                entry.removed = True
        with self.faults([]) as writer:
            writer.remove_segments(chosen)

    @rule(sizes=st.lists(SIZES, min_size=2, max_size=5))
    def go_round(self, sizes: list[int]) -> None:
        """Remove all but the open segment time and again, so that files are used again."""
        for size in sizes:
            self.append_slot(size)
            self.roll()
            self.append(1, size, False)
            self.remove(0, 100)

    @rule()
    def close_and_open(self) -> None:
        with self.faults([]) as writer:
            writer.close()
            if self.options.sync is not SyncPolicy.NONE:
                for entry in self.entries:
                    entry.durable |= entry.acknowledged and entry.writer is writer
        if self.writer is not None:
            self.crash(power_loss=False)

    # Faults

    @rule(
        call=st.sampled_from(
            [
                "write",
                "sync",
                "sync_file",
                "write_again",
                "create",
                "reopen",
                "preallocate",
                "rename",
                "sync_folder",
                "truncate",
                "cut",
            ]
        ),
        number=st.sampled_from([errno.EIO, errno.ENOSPC]),
    )
    def fail_next(self, call: str, number: int) -> None:
        self.fs.fail_next(call, number)

    @rule(size=SIZES, calls=st.integers(0, 2))
    def fail_syncs(self, size: int, calls: int) -> None:
        """Append, fail to force that in one way or another, and go on."""
        self.append(1, size, False)
        for _ in range(calls):
            self.fs.fail_next("truncate", errno.EIO)
            self.fs.fail_next("write_again", errno.EIO)
        self.fs.fail_next("sync", errno.EIO)
        self.sync() if calls % 2 else self.interval_ends()
        self.append(1, size, False)
        self.sync()

    @rule(size=SIZES, power_loss=st.booleans())
    def die_with_a_tail(self, size: int, power_loss: bool) -> None:
        """Fail to append, fail to cut that off, go on in two more segments, and die."""
        self.append(1, size, False)
        for _ in range(3):
            self.fs.fail_next("truncate", errno.EIO)
        self.fs.fail_next("sync", errno.EIO)
        for _ in range(2):
            self.append(1, size, False)
            self.append(1, size, False)
            self.roll()
        if self.writer is not None:
            self.crash(power_loss=power_loss)

    @rule(left=st.sampled_from([0, 600, 3000, 20000]))
    def fill_disk(self, left: int) -> None:
        self.fs.capacity = self.fs.used() + left

    @rule(lost=st.sampled_from([0.0, 0.1, 0.3]), not_done=st.sampled_from([0.0, 0.1]))
    def answer_badly(self, lost: float, not_done: float) -> None:
        if isinstance(self.fs, FaultyObjectFileSystem):
            self.fs.objects.answers_lost, self.fs.objects.not_done = lost, not_done

    @rule(count=st.integers(1, 3))
    def land(self, count: int) -> None:
        if isinstance(self.fs, FaultyObjectFileSystem):
            self.fs.objects.land(count)

    @rule()
    def heal(self) -> None:
        self.fs.heal()

    @rule(calls=st.integers(0, 12))
    def crash_soon(self, calls: int) -> None:
        self.fs.crash_after(calls)

    @rule(power_loss=st.booleans())
    def crash_now(self, power_loss: bool) -> None:
        self.crash(power_loss=power_loss)

    # How it is driven

    def faults(self, entries: list[Entry]) -> Faults:
        return Faults(self, entries)

    @property
    def shown(self) -> FileSystem:
        """Where the machine itself looks."""
        return self.fs.healthy if isinstance(self.fs, FaultyObjectFileSystem) else self.fs

    def open_writer(self) -> None:
        for _ in range(3):
            try:
                self.writer = LogWriter.create(
                    FOLDER,
                    options=self.options,
                    fs=self.fs,
                    clock=self.clock,
                    cipher=self.cipher,
                )
            except SimulatedCrashError:
                self.fs.restart(power_loss=True)
                if not isinstance(self.fs, FaultyObjectFileSystem):
                    self.forget_unforced()
            except WalError:
                self.fs.heal()
            else:
                return
        raise AssertionError("no writer could be opened on a healthy disk")

    def crash(self, *, power_loss: bool) -> None:
        self.fs.die()
        assert self.writer is not None
        # A dead process closes nothing. This only ends the writer's thread in this one.
        with contextlib.suppress(SimulatedCrashError, WalError):
            self.writer.close()
        self.writer = None
        self.fs.restart(power_loss=power_loss)
        # What had failed or was under way is there or not; it is known after the next look.
        self.pending = []
        if power_loss and not isinstance(self.fs, FaultyObjectFileSystem):
            self.forget_unforced()
        if isinstance(self.fs, FaultyObjectFileSystem):
            # What the dead process asked for may be done until the next one has fenced it off.
            self.open_writer()
            self.look(power_loss=False)
        else:
            self.look(power_loss=power_loss)
            self.open_writer()

    def forget_unforced(self) -> None:
        """After a power loss, what is not durable may be gone, in any part."""
        for entry in self.entries:
            if not entry.durable:
                entry.acknowledged = False

    def look(self, *, power_loss: bool) -> None:
        damages: list[CorruptRecordError] = []
        found = self.read(damages)
        policy_covers = self.options.sync is SyncPolicy.ALWAYS
        if policy_covers or not power_loss:
            assert self.tolerates_damage or not damages, damages
        else:
            self.tolerates_damage = True
        for number, entry in enumerate(self.entries):
            # What is not there now was lost for good, or released.
            if number not in found and not entry.removed:
                entry.void = True

    tolerates_damage = False

    def read(self, damages: list[CorruptRecordError]) -> dict[int, RecordPlace]:
        try:
            reader = LogReader.open(FOLDER, fs=self.shown, cipher=self.cipher)
        except FileNotFoundError:
            assert not any(entry.durable and not entry.removed for entry in self.entries)
            return {}
        found: dict[int, RecordPlace] = {}
        for record in reader.records(on_damage=damages.append):
            number = int(bytes(record.payload[:8]))
            entry = self.entries[number]
            assert not found or number > max(found), "out of order or twice"
            assert (record.kind, bytes(record.payload)) == (entry.kind, entry.payload)
            assert entry.place in (None, record.place)
            assert not entry.void, "a failed or lost record came back"
            found[number] = record.place
        for number, entry in enumerate(self.entries):
            if entry.removed:
                continue
            if entry.acknowledged:
                assert number in found, f"acknowledged record {number} is lost"
        return found

    @precondition(lambda self: self.writer is not None and not self.fs.crash_pending)
    @invariant()
    def everything_acknowledged_is_readable_at_any_time(self) -> None:
        damages: list[CorruptRecordError] = []
        self.read(damages)
        assert self.tolerates_damage or not damages, damages
        for entry in self.entries[-3:]:
            if entry.acknowledged and not entry.removed and entry.place is not None:
                place = entry.place
                record = read_record(
                    segment_path(FOLDER, place.segment),
                    place.offset,
                    expected_sequence=place.sequence,
                    fs=self.shown,
                    cipher=self.cipher,
                )
                assert record.payload == entry.payload
                assert record.place == place


class Faults:
    """What a call of the writer may meet: an error that it reports, or the end of the process."""

    def __init__(self, machine: LogMachine, entries: list[Entry]) -> None:
        self._machine = machine
        self._entries = entries

    def __enter__(self) -> LogWriter:
        assert self._machine.writer is not None
        return self._machine.writer

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if isinstance(error, WalError):
            self._machine.pending += self._entries
        elif error is not None and not isinstance(error, SimulatedCrashError):
            return False
        if self._machine.fs.dead:
            self._machine.crash(power_loss=self._machine.fs.chance.random() < 0.7)
        return True


QUICK = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

LogMachine.TestCase.settings = QUICK
TestLogAgainstModel = pytest.mark.slow(LogMachine.TestCase)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_log_against_model_for_long() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        LogMachine,
        settings=settings(QUICK, max_examples=250, stateful_step_count=60),
    )
