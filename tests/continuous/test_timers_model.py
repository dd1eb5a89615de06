"""Timers, windows and watermarks over crashes at every step, beside a model in plain Python.

The driver's half, the ledger, the state and what a task does with a block are the real ones. What
is not here are a task's threads and its connection: it does one thing at a time, when the test says
so.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.continuous import (
    ContinuousOperation,
    Epoch,
    ExpiredTimers,
    FunctionSink,
    KeyedState,
    StatePlace,
    Timers,
    Watermark,
)
from penstock.continuous import timers as timers_module
from penstock.continuous.task import _Output
from penstock.tracker.consumers import epochs as module
from penstock.tracker.consumers.epochs import EpochOwner, Epochs, EpochStatus
from penstock.tracker.ledger._driver_log import SnapshotRule
from penstock.tracker.ledger.places import Places
from penstock.wire.messages import (
    CommitEpoch,
    EndEpoch,
    EpochCommitted,
    EpochPrepared,
    Message,
    ReceivedBlockInfo,
    Subscribed,
    SubscribeTask,
    TaskBlocks,
    TimerDue,
)
from tests.continuous.driven import DrivenAttempt, block_of
from tests.tracker.ledger_cases import attempt_name
from tests.tracker.place_cases import Case

TASKS = 2
KEYS = 6
WINDOW_MS = 1000
DELAY_MS = 700
SESSION_MS = 400
START_MS = 1_700_000_000_000

Row = tuple[int, int, str]
"""Key, event time, source."""

SCHEMA = pa.schema({"key": pa.int64(), "at": pa.timestamp("ms", "UTC"), "source": pa.string()})
MADE = pa.schema({"what": pa.string(), "key": pa.int64(), "at": pa.int64(), "count": pa.int64()})


def made(rows: list[tuple[str, int, int, int]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [[], [], [], []]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, MADE, strict=True)],
        schema=MADE,
    )


def counts(batch: pa.RecordBatch, state: KeyedState, timers: Timers) -> None:
    """Count by window of event time, and by session of processing time."""
    now_ms = timers.processing_time.now_ms
    for row in batch.to_pylist():
        key, at_ms = row["key"], int(row["at"].timestamp() * 1000)
        window_ms = at_ms // WINDOW_MS * WINDOW_MS
        window = f"{key} {window_ms}"
        state[window] = state.get(window, 0) + 1
        timers.event_time.register(window, window_ms + WINDOW_MS)
        ends_ms, count = state.get(key, (0, 0))
        if ends_ms:
            timers.processing_time.delete(key, ends_ms)
        state[key] = (now_ms + SESSION_MS, count + 1)
        timers.processing_time.register(key, now_ms + SESSION_MS)


def expired(found: ExpiredTimers, state: KeyedState, timers: Timers) -> pa.RecordBatch:
    rows = []
    for key in found.keys:
        if found.is_event_time:
            number, window_ms = map(int, str(key).split())
            rows.append(("window", number, window_ms, state.pop(key)))
        else:
            assert isinstance(key, int)
            ends_ms, count = state.pop(key)
            assert ends_ms == found.time_ms
            rows.append(("session", key, ends_ms, count))
    return made(rows)


def modelled(
    blocks: list[tuple[int, list[Row]]], by_source: bool
) -> tuple[Counter[Any], dict[Any, int]]:
    """Return what is to be in the sink when all timers of processing time have expired, and what
    windows are open then."""
    found: Counter[Any] = Counter()
    watermark_ms = -(1 << 63)
    largest: dict[str, int] = {}
    windows: dict[tuple[int, int], int] = {}
    sessions: dict[int, tuple[int, int]] = {}
    for now_ms, rows in [*blocks, (1 << 62, [])]:
        for key, (ends_ms, count) in list(sessions.items()):
            if ends_ms <= now_ms:
                found["session", key, ends_ms, count] += 1
                del sessions[key]
        for key, at_ms, _ in rows:
            if at_ms >= watermark_ms:
                window = (key, at_ms // WINDOW_MS * WINDOW_MS)
                windows[window] = windows.get(window, 0) + 1
                sessions[key] = (now_ms + SESSION_MS, sessions.get(key, (0, 0))[1] + 1)
        for _, at_ms, source in rows:
            source = source if by_source else ""
            largest[source] = max(largest.get(source, at_ms), at_ms)
        if largest:
            watermark_ms = max(watermark_ms, min(largest.values()) - DELAY_MS)
        for (key, window_ms), count in list(windows.items()):
            if window_ms + WINDOW_MS <= watermark_ms:
                found["window", key, window_ms, count] += 1
                del windows[key, window_ms]
    return found, windows


class Died(BaseException):
    """A process is killed at this point."""


class Task(DrivenAttempt):
    """An attempt of a task; also what the driver has of its connection."""

    is_connected = True

    def __init__(self, driver: Driver, number: int) -> None:
        world = driver.world
        place = StatePlace(str(world.folder / f"{driver.epochs.source}-{number}"), "key", "none")
        attempt = attempt_name(10_000 + next(world.attempts))
        super().__init__(place, attempt, number, TASKS)
        self.driver, self.number = driver, number
        self.inbox: deque[Message] = deque()
        self.blocks: deque[Any] = deque()
        self.ends: deque[EndEpoch] = deque()
        self.ready: dict[int, _Output] = {}
        driver.epochs.launched(number, self.attempt)

    def subscribe(self) -> None:
        self.place.claim(self.attempt)
        asked = SubscribeTask(*self._me, "host", 1)
        self.driver.epochs.subscribe(self, asked, self._answered)  # type: ignore[arg-type]
        self._tell_due(self.service)

    def _answered(self, answer: Message) -> None:
        assert isinstance(answer, Subscribed)
        self.source = answer.source
        self.begin(counts, expired, self.driver.world.watermark, answer.number, answer.end)

    def send(self, message: Message) -> None:
        self.inbox.append(message)

    def told(self, message: Message) -> None:
        assert isinstance(message, TimerDue)
        self.driver.epochs.timer_due(message)

    def _read(self, info: ReceivedBlockInfo) -> Any:
        rows = self.driver.world.rows[info.block_id]
        columns = zip(*rows, strict=True) if rows else [[], [], []]
        arrays = [pa.array(each, of.type) for each, of in zip(columns, SCHEMA, strict=True)]
        half = len(rows) // 2
        batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        return block_of(batch.slice(0, half), batch.slice(half))

    def step(self) -> bool:
        """Do one thing; False when there is none."""
        world = self.driver.world
        if self.inbox:
            message = self.inbox.popleft()
            if isinstance(message, TaskBlocks):
                self.blocks.extend(message.blocks)
            elif isinstance(message, EndEpoch):
                self.ends.append(message)
            elif isinstance(message, CommitEpoch):
                self._commit_one(self.ready.pop(message.number))
        elif self.ends and not (self.blocks and self.blocks[0][0] < self.ends[0].end):
            end = self.ends.popleft()
            world.may_die("before the state is saved")
            assert self._take_work(self.program, end)
            world.may_die("after the state is saved")
            output = self._sink_work.get_nowait()
            if end.is_logged:
                self._commit_one(output)
            else:
                self.ready[end.number] = output
                self.driver.epochs.prepared(EpochPrepared(*self._me, end.number))
                world.may_die("after it is prepared")
        elif self.blocks:
            assert self._take_work(self.program, self.blocks.popleft())
            world.may_die("after a block")
        else:
            return False
        return True

    def _commit_one(self, output: _Output) -> None:
        world = self.driver.world
        world.may_die("before it is committed")
        ((part, batches),) = output.parts.items()
        name = Epoch(self.source, output.end.number, part, self.attempt).name
        rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        known = world.sink.setdefault(name, rows)
        # Whoever computes it again finds the same.
        assert known == rows
        world.may_die("after it is committed")
        number = output.end.number
        told = (number, output.records, output.letters, output.late, output.watermark_ms)
        self.driver.epochs.committed(EpochCommitted(*self._me, *told))


class Driver:
    """A run of the driver, with the tasks that live."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.epochs = Epochs(
            0,
            "clicks",
            world.operation,
            world.case.ledger.places,
            EpochOwner(
                lambda delay_s, function: self.later.append((delay_s, function)),
                lambda: None,
                world.case.release,
                lambda message, error: world.given_up.append(message),
            ),
            frozenset(),
            world.case.clock,
        )
        self.tasks: dict[int, Task] = {}

    def start_missing(self) -> None:
        for number in range(TASKS):
            if number not in self.tasks:
                task = self.tasks[number] = Task(self, number)
                task.subscribe()

    def die(self, task: Task) -> None:
        del self.tasks[task.number]
        task.state.close()
        # The driver may hear of the new attempt first.
        if self.world.chance.random() < 0.5:
            self.epochs.gone(task)  # type: ignore[arg-type]

    def run_later(self) -> None:
        """Let what is to be done first be due, and do it."""
        delay_s, function = self.later.pop(0)
        self.world.case.clock.advance(max(1, int(delay_s * 1000)))
        function()


class World:
    """What outlives drivers: the ledger's disk, the states and the sink."""

    def __init__(self, folder: Path, seed: int, by_source: bool) -> None:
        self.folder = folder / "states"
        self.chance = random.Random(seed)
        self.by_source = by_source
        self.watermark = Watermark("at", DELAY_MS / 1000, "source" if by_source else None)
        self.operation = ContinuousOperation(
            counts,
            FunctionSink(lambda epoch, table: None),
            parallelism=TASKS,
            key_by="key",
            on_timer=expired,
            watermark=self.watermark,
        )
        self.attempts = iter(range(1_000_000))
        self.sink: dict[str, list[Any]] = {}
        self.rows: dict[str, list[Row]] = {}
        self.added: list[tuple[int, list[Row]]] = []
        self.deaths: Counter[str] = Counter()
        self.given_up: list[str] = []
        self.dies = 0.02
        self.case = Case(folder, 0, snapshots=SnapshotRule(size_bytes=2000))
        self.driver = Driver(self)

    def may_die(self, where: str) -> None:
        if self.chance.random() < self.dies:
            self.deaths[where] += 1
            raise Died

    def add(self) -> None:
        """Receive a block, whose records are about as old as the clock says, in random order."""
        clock, chance = self.case.clock, self.chance
        clock.advance(chance.choice([1, 10, 100, 300, 900]))
        rows = []
        for _ in range(chance.randint(0, 12)):
            late_ms = chance.choice([0, 50, 300, 600, 1500])
            source = chance.choice(["a", "b"])
            rows.append((chance.randrange(KEYS), clock.time_ms() - late_ms, source))
        self.case.add(1, len(rows))
        self.rows[self.case.blocks[-1].block_id] = rows
        self.added.append((clock.time_ms(), rows))
        self.driver.epochs.push()

    def step(self) -> None:
        chance, driver = self.chance, self.driver
        what = chance.random()
        try:
            if what < 0.12:
                self.add()
            elif what < 0.22:
                if driver.later:
                    driver.run_later()
            elif what < 0.30:
                driver.start_missing()
            elif what < 0.302:
                self.driver_dies("at any time")
            elif driver.tasks:
                task = chance.choice(list(driver.tasks.values()))
                try:
                    task.step()
                except Died:
                    if self.driver is driver and driver.tasks.get(task.number) is task:
                        driver.die(task)
        except DriverDied as where:
            self.driver_dies(str(where))

    def driver_dies(self, where: str) -> None:
        self.deaths[f"driver {where}"] += 1
        for task in list(self.driver.tasks.values()):
            self.driver.die(task)
        self.case.start_again()
        self.driver = Driver(self)

    def finish(self) -> EpochStatus:
        """Let all be done without another death, and all timers of processing time expire."""
        self.dies = 0.0
        driver = self.driver
        for _ in range(100_000):
            driver.start_missing()
            steps = [task.step() for task in list(driver.tasks.values())]
            if any(steps):
                continue
            if not driver.later:
                return driver.epochs.status()
            driver.run_later()
        raise AssertionError("it does not end")


class DriverDied(BaseException):
    """The driver is killed at this point."""


@pytest.fixture
def world_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, bool], World]:
    worlds: list[World] = []

    def make(seed: int, by_source: bool) -> World:
        worlds.append(World(tmp_path, seed, by_source))
        return worlds[0]

    def killing(name: str) -> Callable[..., None]:
        plain = getattr(Places, name)

        def call(self: Places, *arguments: Any) -> None:
            for before in (True, False):
                if not before:
                    plain(self, *arguments)
                if worlds and worlds[0].chance.random() < worlds[0].dies:
                    raise DriverDied(f"{'before' if before else 'after'} {name}")

        return call

    for name in ("log_epoch", "commit"):
        monkeypatch.setattr(Places, name, killing(name))
    # Epochs end while others wait, too.
    monkeypatch.setattr(module, "MOST_BLOCKS", 3)
    return make


def is_exact(world: World) -> int:
    """Compare what the sink and the states have with the model; return how many rows there are."""
    found = Counter(row for rows in world.sink.values() for row in rows)
    wanted, windows = modelled(world.added, world.by_source)
    assert found == wanted
    states: dict[Any, int] = {}
    for task in world.driver.tasks.values():
        states.update(task.state)
    assert states == {f"{key} {window_ms}": count for (key, window_ms), count in windows.items()}
    # Of a key, windows and sessions are in their order.
    last: dict[Any, int] = {}
    for name in sorted(world.sink):
        for what, key, at_ms, _ in world.sink[name]:
            assert at_ms >= last.get((what, key), 0)
            last[what, key] = at_ms
    assert world.given_up == []
    return found.total()


@pytest.mark.parametrize("by_source", [False, True], ids=["one source", "two sources"])
@pytest.mark.parametrize(
    "seed",
    [*range(4), *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(4, 100))],
)
def test_windows_and_sessions_are_those_of_the_log_whatever_dies(
    world_of: Callable[[int, bool], World], seed: int, by_source: bool
) -> None:
    world = world_of(seed, by_source)
    for _ in range(2500):
        world.step()
    world.finish()
    assert is_exact(world) > 300
    assert len(world.deaths) >= 8, world.deaths


@pytest.mark.parametrize("most", [1, 7])
def test_no_more_expire_in_an_epoch_than_memory_is_for(
    world_of: Callable[[int, bool], World], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(timers_module, "MOST_EXPIRED", most)
    world = world_of(1, False)
    world.dies = 0.0
    for _ in range(30):
        world.add()
    world.finish()
    rows = [rows for rows in world.sink.values() if rows]
    assert max(map(len, rows)) == most
    assert len(rows) > 10
    found = Counter(row for each in rows for row in each)
    wanted, _ = modelled(world.added, by_source=False)
    # A session that is over may go on, as it has not been told; a window may not.
    assert {row for row in found if row[0] == "window"} == {
        row for row in wanted if row[0] == "window"
    }
    assert max(found.values()) == 1
