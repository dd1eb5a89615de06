"""Epochs of a continuous stream: random crashes of tasks and drivers, against a sink's memory.

The driver's half is the real one, on a real ledger. A task is what `penstock.continuous.task` is
without threads: it takes the messages that it was sent, one at a time, when the test says so.
"""

from __future__ import annotations

import queue
import random
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.continuous import (
    ContinuousOperation,
    Epoch,
    FunctionSink,
    KeyedState,
    StatePlace,
)
from penstock.errors import SettingError
from penstock.receiver import BlockLogs
from penstock.runtime.clock import SystemClock
from penstock.settings import Settings
from penstock.tracker import LedgerError
from penstock.tracker.consumers import epochs as module
from penstock.tracker.consumers.continuous_streams import (
    ContinuousStream,
    ContinuousStreams,
    TaskSurroundings,
)
from penstock.tracker.consumers.epochs import MOST_BLOCKS, EpochOwner, Epochs
from penstock.tracker.ledger._driver_log import SnapshotRule
from penstock.tracker.ledger.events import EpochEvent
from penstock.tracker.ledger.places import CONTINUOUS, LoggedEpoch, Places
from penstock.tracker.receivers.jobs import Next
from penstock.wal import EncryptionKey
from penstock.wire.messages import (
    CommitEpoch,
    EndEpoch,
    EpochCommitted,
    EpochPrepared,
    Message,
    Refused,
    ShownBlock,
    StopReceiver,
    Subscribed,
    SubscribeTask,
    TaskBlocks,
    TaskFailed,
    TaskWaits,
    TimerDue,
)
from tests.bounds import HANG_S
from tests.tracker.ledger_cases import attempt_name, block
from tests.tracker.place_cases import Case
from tests.tracker.tracker_cases import ThreadCluster


def operation(
    parallelism: int = 1, attempts: int = 3, key_by: str | None = None
) -> ContinuousOperation:
    sink = FunctionSink(lambda epoch, table: None)
    operation = ContinuousOperation(
        lambda batch, *_: batch, sink, "100 ms", parallelism, "60 s", attempts, key_by=key_by
    )
    return operation if key_by else replace(operation, deliver="stored")


class Task:
    """An attempt of a task; also what the driver has of its connection.

    By key, its state says how many blocks it was given, which it also gives out with each.
    """

    is_connected = True

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver = driver
        self.number = number
        self.attempt = attempt_name(10_000 + next(driver.world.attempts))
        self.inbox: deque[Message] = deque()
        self.blocks: deque[tuple[int, str]] = deque()
        self.ends: deque[EndEpoch] = deque()
        self.ready: dict[int, tuple[EndEpoch, list[tuple[int, str]]]] = {}
        self.done: list[tuple[int, str]] = []
        self.source = ""
        self.state: KeyedState | None = None
        self.place: StatePlace | None = None
        if (key_by := driver.world.key_by) is not None:
            name = f"{driver.epochs.source}-{number}"
            self.place = StatePlace(str(driver.world.folder / name), key_by, "none")
        driver.epochs.launched(number, self.attempt)

    def send(self, message: Message) -> None:
        # A block of up to 256 KiB before the log has it is only offered.
        assert not isinstance(message, ShownBlock)
        self.inbox.append(message)

    def offer(self, message: Message) -> None:
        self.inbox.append(message)

    def subscribe(self) -> None:
        if self.place is not None:
            self.place.claim(self.attempt)
        asked = SubscribeTask(0, self.number, self.attempt, "host", 1)
        self.driver.epochs.subscribe(self, asked, self._answered)  # type: ignore[arg-type]

    def _answered(self, answer: Message) -> None:
        assert isinstance(answer, Subscribed)
        self.source = answer.source
        world = self.driver.world
        if world.key_by is not None:
            assert self.place is not None
            self.state = KeyedState(self.place, self.attempt, answer.number, answer.end)

    def step(self) -> bool:
        """Do one thing; False when there is none."""
        if self.inbox:
            message = self.inbox.popleft()
            if isinstance(message, TaskBlocks):
                self.blocks.extend(
                    (place, info.block_id)
                    for place, info, _ in message.blocks
                    # By key each task is sent all; here a block has one key.
                    if self.state is None or place % self.driver.tasks_wanted == self.number
                )
            elif isinstance(message, EndEpoch):
                self.ends.append(message)
            elif isinstance(message, CommitEpoch):
                self._commit(*self.ready.pop(message.number))
            return True
        if self.ends and not (self.blocks and self.blocks[0][0] < self.ends[0].end):
            end, done, self.done = self.ends.popleft(), self.done, []
            if self.state is not None:
                self.state.save(end.number, end.end)
            if end.is_logged:
                self._commit(end, done)
            else:
                self.ready[end.number] = (end, done)
                told = EpochPrepared(0, self.number, self.attempt, end.number)
                self.driver.epochs.prepared(told)
            return True
        if self.blocks:
            place, block = self.blocks.popleft()
            if self.state is not None:
                self.state["blocks"] = self.state.get("blocks", 0) + 1
                block = f"{block} {self.state['blocks']}"
            self.done.append((place, block))
            return True
        return False

    def _commit(self, end: EndEpoch, done: list[tuple[int, str]]) -> None:
        for part in range(self.number, end.parts, self.driver.tasks_wanted):
            own = [block for place, block in done if place % end.parts == part]
            name = Epoch(self.source, end.number, part, self.attempt).name
            self.driver.world.sink.setdefault(name, own)
        if self.driver.world.chance.random() < 0.2:
            return self.driver.die(self)  # Committed, and the driver does not hear of it.
        told = EpochCommitted(0, self.number, self.attempt, end.number, len(done), len(done) // 2)
        return self.driver.epochs.committed(told)


class Driver:
    """A run of the driver, with the tasks that live."""

    def __init__(self, world: World, tasks: int, lost: frozenset[str] = frozenset()) -> None:
        self.world = world
        self.tasks_wanted = tasks
        self.timers: list[Callable[[], None]] = []
        self.given_up: list[str] = []
        self.epochs = Epochs(
            0,
            "clicks",
            operation(tasks, key_by=world.key_by),
            world.case.ledger.places,
            EpochOwner(
                lambda delay_s, function: self.timers.append(function),
                lambda: None,
                world.case.release,
                lambda message, error: self.given_up.append(message),
            ),
            lost,
            world.case.clock,
        )
        self.tasks: dict[int, Task] = {}

    def start_missing(self) -> None:
        for number in range(self.tasks_wanted):
            if number not in self.tasks:
                self.tasks[number] = Task(self, number)
                self.tasks[number].subscribe()

    def die(self, task: Task) -> None:
        if self.tasks.get(task.number) is task:
            del self.tasks[task.number]
        # The driver may hear of the new attempt first.
        if self.world.chance.random() < 0.5:
            self.epochs.gone(task)  # type: ignore[arg-type]


class World:
    """What outlives drivers: the ledger's disk, and the sink."""

    def __init__(self, folder: Path, seed: int, key_by: str | None = None) -> None:
        self.folder = folder / "states"
        self.key_by = key_by
        self.chance = random.Random(seed)
        self.attempts = iter(range(1_000_000))
        self.sink: dict[str, list[str]] = {}
        self.case = Case(folder, 0, snapshots=SnapshotRule(size_bytes=2000))
        self.driver = Driver(self, self._tasks())

    def _tasks(self) -> int:
        return self.chance.randint(1, 3) if self.key_by is None else 2

    def step(self) -> None:
        chance, driver = self.chance, self.driver
        what = chance.random()
        if what < 0.05:
            self.case.add(chance.randint(1, 5))
            driver.epochs.push()
        elif what < 0.20:
            if driver.timers:
                driver.timers.pop(0)()
        elif what < 0.205:
            if driver.tasks:
                driver.die(chance.choice(list(driver.tasks.values())))
        elif what < 0.30:
            driver.start_missing()
        elif what < 0.3025:
            self.case.start_again()
            self.driver = Driver(self, self._tasks())
        elif driver.tasks:
            chance.choice(list(driver.tasks.values())).step()

    def finish(self) -> None:
        """Let all be done without another death."""
        self.chance = random.Random(0)
        self.chance.random = lambda: 0.99  # type: ignore[method-assign]
        driver = self.driver
        for _ in range(100_000):
            driver.start_missing()
            steps = [task.step() for task in list(driver.tasks.values())]
            if any(steps):
                continue
            if not driver.timers:
                return
            driver.timers.pop(0)()
        raise AssertionError("it does not end")


@pytest.mark.parametrize(
    "seed",
    [*range(8), *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(8, 25))],
)
def test_every_block_is_in_one_epoch_of_the_sink_whatever_dies(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    for _ in range(2000):
        world.step()
    world.finish()
    given = [block.block_id for block in world.case.blocks]
    found = Counter(block for blocks in world.sink.values() for block in blocks)
    assert found == Counter(given)
    assert len(world.sink) > 5
    assert len(given) > 100
    # The blocks of a part come in their order, over all epochs of the same division.
    places = {block: place for place, block in enumerate(given)}
    for blocks in world.sink.values():
        assert [places[block] for block in blocks] == sorted(places[block] for block in blocks)
    # Nothing that is committed is kept.
    world.case.release()
    assert world.case.ledger.places.stream(0).first == len(given)


@pytest.mark.parametrize(
    "seed",
    [*range(8), *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(8, 40))],
)
def test_states_are_those_of_the_epochs_of_the_sink_whatever_dies(
    tmp_path: Path, seed: int
) -> None:
    world = World(tmp_path, seed, "key")
    for _ in range(2000):
        world.step()
    world.finish()
    given = [block.block_id for block in world.case.blocks]
    assert len(given) > 100
    assert len(world.sink) > 5
    of_part: dict[str, list[str]] = {}
    for name in sorted(world.sink):
        of_part.setdefault(name[-4:], []).extend(world.sink[name])
    assert of_part == {
        f"{part:04d}": [f"{block} {at}" for at, block in enumerate(given[part::2], 1)]
        for part in range(2)
    }


def test_the_next_epoch_of_a_state_waits_until_the_log_has_it_that_the_last_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that comes back could not have two epochs undone."""

    def refuse(*_: Any) -> None:
        raise LedgerError("it is full")

    world = World(tmp_path, 0, "key")
    world.chance.random = lambda: 0.99  # type: ignore[method-assign]
    driver = world.driver
    with monkeypatch.context() as patched:
        patched.setattr(Places, "commit", refuse)
        for _ in range(5):
            world.case.add(2)
            driver.epochs.push()
            driver.start_missing()
            for task in driver.tasks.values():
                run(task)
            driver.timers.pop(0)()
            for task in driver.tasks.values():
                run(task)
        assert len(world.sink) == 2
        assert driver.epochs.status().number == 0
    world.finish()
    assert driver.epochs.status().number > 0
    assert sum(map(len, world.sink.values())) == 10


def started(
    case: Case, tasks: int = 1, lost: frozenset[str] = frozenset()
) -> tuple[Driver, list[Task]]:
    world = World.__new__(World)
    world.key_by = None
    world.chance = random.Random(0)
    world.chance.random = lambda: 0.99  # type: ignore[method-assign]
    world.attempts = iter(range(1000))
    world.sink = {}
    world.case = case
    world.driver = Driver(world, tasks, lost)
    world.driver.start_missing()
    return world.driver, list(world.driver.tasks.values())


def run(task: Task) -> None:
    while task.step():
        pass


def test_an_epoch_ends_not_later_than_the_first_block_came_that_is_in_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer between the two would expire before a block that came before its time."""
    monkeypatch.setattr(module, "MOST_BLOCKS", 2)
    case = Case(tmp_path, 2)
    driver, (task,) = started(case)
    driver.epochs.push()
    case.clock.advance(0.01)
    came_ms = case.clock.time_ms()
    case.add(1)
    case.clock.advance(1.0)
    driver.epochs.push()
    (first,) = [found for found in task.inbox if isinstance(found, EndEpoch)]
    assert (first.end, first.clock_ms) == (2, came_ms)
    run(task)
    driver.timers.pop(0)()
    (second,) = [found for found in task.inbox if isinstance(found, EndEpoch)]
    assert (second.end, second.clock_ms) == (3, case.clock.time_ms())


def test_what_is_noted_of_the_last_epoch_says_nothing_of_the_next(tmp_path: Path) -> None:
    """That nothing came is looked at after a second, in which something may have come."""
    case = Case(tmp_path, 2)
    driver, (task,) = started(case)
    driver.epochs.push()
    driver.timers.pop(0)()
    run(task)
    (note_idle,) = driver.timers
    case.add(1)
    driver.epochs.push()
    driver.timers.pop()()
    while driver.epochs.status().number == 0:
        task.step()
    note_idle()
    known = case.ledger.places.epoch(0, CONTINUOUS)
    assert known is not None
    assert (known[0], known[1].number, known[1].end) == (2, 1, 3)
    run(task)
    driver.timers.pop()()
    assert case.ledger.places.epoch(0, CONTINUOUS) == (3, known[1])


def test_a_drain_that_takes_long_says_at_once_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)
    driver, tasks = started(Case(tmp_path, 2), 2)
    driver.epochs.push()
    run(tasks[1])
    Task(driver, 0)
    assert not driver.epochs.drain(time.monotonic() + 0.01)
    (record,) = caplog.records
    assert record.getMessage() == (
        "The graceful stop waits for continuous stream clicks, of which some is in no committed "
        "epoch: its tasks wait for its start (1), the function (1): each needs a free core of Spark"
    )


def test_a_stream_is_drained_also_while_the_one_before_it_is_stuck(tmp_path: Path) -> None:
    driver, (task,) = started(Case(tmp_path, 2))
    ended: list[bool] = []

    class Stuck:
        def drain(self, end_s: float) -> bool:
            ended.append(any(isinstance(message, EndEpoch) for message in task.inbox))
            return False

    streams: Any = ContinuousStreams.__new__(ContinuousStreams)
    streams._streams = {0: Stuck(), 1: driver.epochs}
    assert not streams.drain(0.0)
    assert ended[-1]


def test_what_was_drained_is_not_committed_once_more(tmp_path: Path) -> None:
    case = Case(tmp_path, 2)
    driver, (task,) = started(case)
    assert not driver.epochs.drain(time.monotonic())
    while task.step() or driver.epochs.status().number < 0:
        pass
    assert driver.epochs.drain(time.monotonic() + HANG_S)
    known = case.ledger.places.epoch(0, CONTINUOUS)
    assert known is not None
    assert (known[0], known[1].end) == (2, 2)


def test_blocks_that_went_with_an_earlier_run_are_given_to_no_one(tmp_path: Path) -> None:
    case = Case(tmp_path, 3)
    lost = case.attempt
    case.start_again()
    case.add(2)
    driver, (task,) = started(case, lost=frozenset({lost}))
    driver.epochs.push()
    driver.timers[0]()
    run(task)
    assert list(driver.world.sink.values()) == [[block.block_id for block in case.blocks[3:]]]
    case.release()
    driver.timers.pop()()
    case.release()
    assert case.ledger.places.stream(0).first == 5


def test_an_epoch_is_logged_when_all_tasks_have_prepared_and_committed_after(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, 4)
    driver, (first, second) = started(case, 2)
    driver.epochs.push()
    (timer,) = driver.timers
    timer()
    run(first)
    assert case.ledger.places.epoch(0, CONTINUOUS) is None
    while case.ledger.places.epoch(0, CONTINUOUS) is None:
        assert second.step()
    assert case.ledger.places.epoch(0, CONTINUOUS) == (
        0,
        LoggedEpoch(first.source, 0, 4, 2, clock_ms=case.clock.time_ms()),
    )
    assert driver.world.sink == {}
    run(first)
    run(second)
    assert sorted(map(len, driver.world.sink.values())) == [2, 2]
    status = driver.epochs.status()
    assert status.committed == 0
    assert (status.records, status.letters) == (4, 2)


def test_epochs_go_on_over_drivers_and_the_number_of_tasks_and_anew_in_another_ledger(
    tmp_path: Path,
) -> None:
    names: list[str] = []
    case = Case(tmp_path / "log", 3)
    for tasks in (1, 3):
        if names:
            case.start_again()
            case.add(3)
        driver, _ = started(case, tasks)
        driver.epochs.push()
        driver.world.finish()
        names += driver.world.sink
    sources, numbers = zip(*(name.split("-")[:2] for name in names), strict=True)
    assert len(set(sources)) == 1
    assert list(map(int, numbers)) == [0, 1, 1, 1]
    other, _ = started(Case(tmp_path / "other", 3))
    other.epochs.push()
    other.world.finish()
    assert next(iter(other.world.sink)).split("-")[0] not in sources


def keyed(case: Case, tasks: int, key_by: str | None = "key") -> Epochs:
    nothing: Any = None
    places = case.ledger.places
    owner = EpochOwner(lambda *_: None, lambda: None, lambda: None, lambda *_: None)
    wanted = operation(tasks, key_by=key_by)
    return Epochs(0, "clicks", wanted, places, owner, frozenset(), nothing)


def test_keys_stay_with_the_task_that_has_their_state(tmp_path: Path) -> None:
    case = Case(tmp_path, 3)
    case.ledger.places.log_epoch(0, CONTINUOUS, 0, LoggedEpoch("a" * 32, 0, 3, 2, "key"))
    for key_by, tasks in (("key", 1), ("key", 3), ("other", 2), (None, 2)):
        with pytest.raises(LedgerError, match="had key_by='key' and parallelism=2 up to epoch 0"):
            keyed(case, tasks, key_by)
    assert keyed(case, 2).source == "a" * 32


def test_the_number_of_tasks_may_change_where_there_are_no_keys(tmp_path: Path) -> None:
    case = Case(tmp_path, 3)
    case.ledger.places.log_epoch(0, CONTINUOUS, 0, LoggedEpoch("a" * 32, 0, 3, 2))
    for tasks in (1, 2, 3):
        assert keyed(case, tasks, None).source == "a" * 32
    with pytest.raises(LedgerError, match="had key_by=None and parallelism=2"):
        keyed(case, 2)


def test_each_task_of_a_stream_with_keys_is_sent_all_blocks(tmp_path: Path) -> None:
    case = Case(tmp_path, 5)
    for key_by, places in (("key", [[0, 1, 2, 3, 4]] * 2), (None, [[0, 2, 4], [1, 3]])):
        epochs = keyed(case, 2, key_by)
        inboxes: list[list[Message]] = []
        for number in range(2):
            inbox: list[Message] = []
            inboxes.append(inbox)
            peer: Any = SimpleNamespace(send=inbox.append, is_connected=True)
            epochs.launched(number, attempt_name(number))
            asked = SubscribeTask(0, number, attempt_name(number), "host", 1)
            epochs.subscribe(peer, asked, lambda answer: None)
        sent = [
            [place for message in inbox for place, _, _ in message.blocks]  # type: ignore[union-attr]
            for inbox in inboxes
        ]
        assert sent == places


class Waiting:
    """A driver with a task whose timers a test sets; what it does later is done by hand."""

    def __init__(self, folder: Path, epoch_ms: int = 100) -> None:
        self.case = Case(folder, 0)
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.ends: list[EndEpoch] = []
        self.epochs = Epochs(
            0,
            "clicks",
            replace(operation(1, key_by="key"), epoch=epoch_ms / 1000),
            self.case.ledger.places,
            EpochOwner(
                lambda delay_s, function: self.later.append((delay_s, function)),
                lambda: None,
                lambda: None,
                lambda message, error: None,
            ),
            frozenset(),
            self.case.clock,
        )
        self.attempt = attempt_name(9)
        self.epochs.launched(0, self.attempt)
        asked = SubscribeTask(0, 0, self.attempt, "host", 1)
        self.epochs.subscribe(self, asked, lambda answer: None)  # type: ignore[arg-type]

    def send(self, message: Message) -> None:
        if isinstance(message, EndEpoch):
            self.ends.append(message)

    def due(self, after_ms: int | None) -> None:
        due_ms = None if after_ms is None else self.case.clock.time_ms() + after_ms
        self.epochs.timer_due(TimerDue(0, 0, self.attempt, due_ms))

    def wait(self) -> float:
        """Do what is to be done first, at its time; return how long that took."""
        self.later.sort(key=lambda each: each[0])
        delay_s, function = self.later.pop(0)
        self.later = [(other_s - delay_s, other) for other_s, other in self.later]
        self.case.clock.advance(round(delay_s * 1000))
        function()
        return delay_s

    def finish(self) -> None:
        """Prepare and commit the epoch that was ended."""
        number = self.ends[-1].number
        self.epochs.prepared(EpochPrepared(0, 0, self.attempt, number))
        self.epochs.committed(EpochCommitted(0, 0, self.attempt, number, 0))


def test_an_epoch_of_timers_alone_ends_when_the_first_is_due(tmp_path: Path) -> None:
    driver = Waiting(tmp_path)
    assert driver.later == []
    driver.due(5000)
    assert driver.wait() == pytest.approx(5.0)
    assert [end.clock_ms for end in driver.ends] == [driver.case.clock.time_ms()]
    # It is prepared and committed first, and only then another can end.
    driver.due(10)
    assert driver.later == []
    driver.finish()
    assert driver.wait() == pytest.approx(0.1)
    assert len(driver.ends) == 2
    driver.due(None)
    driver.finish()
    driver.later.clear()
    driver.due(None)
    assert driver.later == []


def test_at_most_one_epoch_of_timers_alone_ends_in_the_time_of_an_epoch(tmp_path: Path) -> None:
    driver = Waiting(tmp_path, 2000)
    begin_ms = driver.case.clock.time_ms()
    for _ in range(5):
        driver.due(0)
        while not driver.ends or driver.ends[-1].number == driver.epochs.status().number:
            driver.wait()
        driver.finish()
    assert driver.case.clock.time_ms() - begin_ms == 4 * 2000


def test_one_look_at_timers_is_due_however_often_one_is_sooner(tmp_path: Path) -> None:
    """Else each would be followed by others for ever."""
    driver = Waiting(tmp_path)
    for _ in range(20):
        driver.due(3_600_000)
        driver.due(1000)
        while not driver.ends or driver.ends[-1].number == driver.epochs.status().number:
            driver.wait()
        driver.finish()
    driver.due(3_600_000)
    waited_s = 0.0
    while waited_s < 1000:
        waited_s += driver.wait()
    # One a minute, now that those that were scheduled before are over.
    assert len(driver.later) == 1
    assert len(driver.ends) == 20


def test_a_clock_that_was_set_is_noticed(tmp_path: Path) -> None:
    driver = Waiting(tmp_path)
    driver.due(3_600_000)
    driver.wait()
    assert driver.ends == []
    driver.case.clock.set_wall_time(driver.case.clock.time_ms() + 3_600_000)
    assert driver.wait() <= 60.0
    assert len(driver.ends) == 1
    last_ms = driver.ends[-1].clock_ms
    # Set back, time stands still.
    driver.case.clock.set_wall_time(last_ms - 5000)
    driver.due(0)
    driver.finish()
    while len(driver.ends) < 2:
        driver.wait()
    assert driver.ends[-1].clock_ms == last_ms


def test_no_epoch_of_timers_ends_while_others_do_or_none_is_to(tmp_path: Path) -> None:
    driver = Waiting(tmp_path)
    driver.due(500)
    driver.case.add(1)
    driver.epochs.push()
    # The block's epoch ends first; the timer is looked at while that is prepared.
    while driver.later:
        driver.wait()
    assert len(driver.ends) == 1
    driver.finish()
    assert driver.epochs.drain(time.monotonic() + HANG_S)
    driver.due(0)
    while driver.later:
        driver.wait()
    assert len(driver.ends) == 1
    driver = Waiting(tmp_path / "stopped")
    driver.due(0)
    driver.epochs.stop()
    driver.wait()
    assert driver.ends == []


def test_a_new_attempt_says_itself_when_it_has_something_to_do(tmp_path: Path) -> None:
    driver = Waiting(tmp_path)
    driver.due(10)
    driver.epochs.launched(0, attempt_name(8))
    driver.wait()
    assert driver.epochs.status().waits == ("its start",)
    assert driver.later == []
    driver.due(0)  # Of the old one.
    assert driver.later == []


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_driver_that_comes_back_commits_an_epoch_of_timers_alone(
    tmp_path: Path, is_committed: bool
) -> None:
    driver = Waiting(tmp_path)
    driver.due(0)
    driver.wait()
    driver.epochs.prepared(EpochPrepared(0, 0, driver.attempt, 0))
    if is_committed:
        driver.epochs.committed(EpochCommitted(0, 0, driver.attempt, 0, 0))
    driver.case.start_again()
    status = keyed(driver.case, 1).status()
    assert (status.number, status.committed) == (0, 0 if is_committed else -1)


def test_what_dies_in_an_epoch_of_timers_alone_is_counted(tmp_path: Path) -> None:
    driver = Waiting(tmp_path)
    assert not driver.epochs.died(0, "it died", "")
    driver.due(0)
    driver.wait()
    assert driver.epochs.died(0, "it died", "")
    driver.epochs.prepared(EpochPrepared(0, 0, driver.attempt, 0))
    driver.epochs.launched(0, attempt_name(8))
    assert driver.epochs.died(0, "it died", "")
    status = driver.epochs.status()
    assert status.failures == 1  # It is logged, which counts as success.
    assert status.failed == 2
    assert status.last_error.startswith("Task 0 of continuous stream clicks: it died")


def test_late_records_are_counted_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Waiting(tmp_path)
    for late in (2, 3):
        driver.due(0)
        while not driver.ends or driver.ends[-1].number == driver.epochs.status().number:
            driver.wait()
        number = driver.ends[-1].number
        driver.epochs.prepared(EpochPrepared(0, 0, driver.attempt, number))
        told = EpochCommitted(0, 0, driver.attempt, number, 5, 0, late, 700 + late)
        for _ in range(2):
            driver.epochs.committed(told)
    status = driver.epochs.status()
    assert (status.records, status.late, status.watermark_ms) == (10, 5, 703)
    assert "2 records of continuous stream clicks were earlier than its watermark" in caplog.text


def test_an_epoch_of_timers_alone_is_committed_once_more_unless_the_log_has_it(
    tmp_path: Path,
) -> None:
    """It has no blocks that would say so."""
    case = Case(tmp_path, 0)
    places = case.ledger.places
    open_one = LoggedEpoch("a" * 32, 7, 0, 1, "key", 5, is_open=True)
    closed = LoggedEpoch("a" * 32, 7, 0, 1, "key", 5)
    places.log_epoch(0, CONTINUOUS, 0, open_one)
    for _ in range(2):
        assert case.ledger.places.epoch(0, CONTINUOUS) == (0, open_one)
        status = keyed(case, 1).status()
        assert (status.number, status.committed) == (7, 6)
        case.start_again()
    for wrong in (
        LoggedEpoch("a" * 32, 7, 0, 1, "key", 6),
        LoggedEpoch("b" * 32, 7, 0, 1, "key", 5),
        LoggedEpoch("a" * 32, 9, 0, 1, "key", 5),
        open_one,
    ):
        with pytest.raises(LedgerError, match="is not the next one"):
            case.ledger._state.note_epoch(EpochEvent(0, CONTINUOUS, 0, wrong, 1))
    case.ledger.places.log_epoch(0, CONTINUOUS, 0, closed)
    with pytest.raises(LedgerError, match="is not the next one"):
        case.ledger._state.note_epoch(EpochEvent(0, CONTINUOUS, 0, closed, 1))
    case.start_again()
    status = keyed(case, 1).status()
    assert (status.number, status.committed) == (7, 7)


def test_an_epoch_that_does_not_follow_is_refused(tmp_path: Path) -> None:
    case = Case(tmp_path)
    places = case.ledger.places
    places.log_epoch(0, CONTINUOUS, 0, LoggedEpoch("a" * 32, 0, 2, 1))
    for wrong in (LoggedEpoch("a" * 32, 0, 3, 1), LoggedEpoch("b" * 32, 1, 3, 1)):
        with pytest.raises(LedgerError, match="is not the next one"):
            # As it would come from a damaged log.
            case.ledger._state.note_epoch(EpochEvent(0, CONTINUOUS, 2, wrong, 1))


def test_tasks_are_sent_a_bounded_number_of_blocks_beyond_what_is_committed(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, 0)
    driver, (task,) = started(case)
    case.add(MOST_BLOCKS + 10)
    driver.epochs.push()
    sent = sum(len(m.blocks) for m in task.inbox if isinstance(m, TaskBlocks))
    assert sent == MOST_BLOCKS
    # It does not wait for its time then.
    assert isinstance(task.inbox[-1], EndEpoch)
    driver.world.finish()
    assert sum(map(len, driver.world.sink.values())) == MOST_BLOCKS + 10


def test_older_attempts_are_fenced(tmp_path: Path) -> None:
    case = Case(tmp_path, 2)
    driver, (old,) = started(case)
    driver.epochs.push()
    driver.timers.pop()()
    new = Task(driver, 0)
    answers: list[Any] = []
    again = SubscribeTask(0, 0, old.attempt, "host", 1)
    driver.epochs.subscribe(old, again, answers.append)  # type: ignore[arg-type]
    assert isinstance(answers[0], Refused)
    driver.epochs.prepared(EpochPrepared(0, 0, old.attempt, 0))
    assert case.ledger.places.epoch(0, CONTINUOUS) is None
    new.subscribe()
    run(new)
    assert case.ledger.places.epoch(0, CONTINUOUS) is not None


def test_an_attempt_that_lost_its_connection_is_looked_for_until_its_job_ends(
    tmp_path: Path,
) -> None:
    driver, (task, other) = started(Case(tmp_path, 2), 2)
    lost = driver.epochs.gone(task)  # type: ignore[arg-type]
    assert lost == [(0, task.attempt)]
    assert driver.epochs.has_job(0, task.attempt)
    driver.epochs.job_ended(0)
    assert not driver.epochs.has_job(0, task.attempt)
    new = Task(driver, 0)
    assert not driver.epochs.has_job(0, task.attempt)
    assert driver.epochs.has_job(0, new.attempt)
    # Whose connection it was not is not.
    assert driver.epochs.gone(task) == []  # type: ignore[arg-type]
    assert driver.epochs.has_job(1, other.attempt)
    driver.epochs.stop()
    assert not driver.epochs.has_job(1, other.attempt)


def test_it_says_what_each_task_waits_for_and_how_old_its_epoch_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, 2)
    driver, tasks = started(case, 2)
    epochs = driver.epochs
    found: list[tuple[tuple[str, ...], int | None]] = []

    def look() -> None:
        case.clock.advance(10)
        status = epochs.status()
        found.append((status.waits, status.age_ms))

    def refuse(*_: Any) -> None:
        raise LedgerError("it is full")

    def says(task: Task, what: str) -> None:
        epochs.task_waits(TaskWaits(0, task.number, task.attempt, what))

    first, second = tasks
    look()
    says(first, "the function")
    look()
    driver.timers.pop()()
    look()
    run(first)
    look()
    with monkeypatch.context() as patched:
        patched.setattr(Places, "log_epoch", refuse)
        run(second)
    look()
    says(first, "")
    driver.timers.pop()()
    look()
    says(second, "the file of its state")
    look()
    run(first)
    look()
    run(second)
    look()
    third = Task(driver, 1)
    look()
    third.subscribe()
    says(second, "the sink")  # It is replaced.
    case.add(2)
    epochs.push()
    look()
    epochs.stop()
    look()
    assert found == [
        (("the source", "the source"), 10),
        (("the function", "the source"), 20),
        (("the function", "the function"), 30),
        (("other tasks", "the function"), 40),
        (("the driver log", "the driver log"), 50),
        (("the sink", "the sink"), 60),
        (("the sink", "the file of its state"), 70),
        (("other tasks", "the file of its state"), 80),
        (("the source", "the source"), None),
        (("the source", "its start"), None),
        (("the source", "the source"), 10),
        ((), 20),
    ]


def test_an_attempt_has_not_begun_until_it_subscribes(tmp_path: Path) -> None:
    driver, (task, _) = started(Case(tmp_path, 2), 2)
    assert driver.epochs.not_begun() == []
    driver.epochs.gone(task)  # type: ignore[arg-type]
    assert driver.epochs.not_begun() == []
    driver.epochs.job_ended(0)
    new = Task(driver, 0)
    assert driver.epochs.not_begun() == [(0, new.attempt)]
    driver.epochs.stop()
    assert driver.epochs.not_begun() == []


class Silent:
    """The driver's end of a connection over which nothing comes."""

    is_connected = True

    def send(self, message: Message) -> None:
        pass


Timers = queue.SimpleQueue[tuple[float, Callable[[], None]]]


def streams_of(
    places: Places,
    wanted: ContinuousOperation,
    cluster: ThreadCluster,
    settings: Settings,
    logs: BlockLogs,
    timers: Timers,
    max_backlog_bytes: int | None = None,
) -> ContinuousStreams:
    nothing: Any = SimpleNamespace(continuous_error=print)
    return ContinuousStreams(
        {0: ContinuousStream("clicks", wanted, b"", max_backlog_bytes)},
        places,
        around=TaskSurroundings(cluster, settings, lambda: nothing, logs, lambda stream_id: ()),
        clock=SystemClock(),
        listeners=nothing,
        later=lambda delay_s, function, loop: timers.put((delay_s, function)),
        on_logged=lambda stream_id: None,
        release=lambda: None,
        lost=frozenset(),
    )


@pytest.mark.parametrize(
    ("logs", "wal_enable", "says"),
    [
        (BlockLogs("hdfs://host:8020/log", "always"), None, "wal.dir='hdfs"),
        (
            BlockLogs("/log", "always", encryption=EncryptionKey(bytes(32))),
            None,
            "encryption.enabled='true'",
        ),
        (BlockLogs("/scratch", "none", are_removed=True), False, "writeAheadLog.enable='false'"),
    ],
)
def test_a_state_that_would_not_be_there_after_a_restart_is_refused(
    tmp_path: Path, logs: BlockLogs, wal_enable: bool | None, says: str
) -> None:
    settings = Settings(receiver_wal_enable=wal_enable)
    places = Case(tmp_path, 2).ledger.places

    def made(key_by: str | None, logs: BlockLogs) -> ContinuousStreams:
        wanted = operation(2, key_by=key_by)
        return streams_of(places, wanted, ThreadCluster(), settings, logs, queue.SimpleQueue())

    with pytest.raises(SettingError, match=says):
        made("key", logs)
    made(None, logs)
    made("key", BlockLogs("/log", "always"))


def test_each_task_of_each_ledger_has_a_state_of_its_own(tmp_path: Path) -> None:
    paths = set()
    logs = BlockLogs("/program/receivedData", "interval")
    for name in ("one", "other"):
        places = Case(tmp_path / name, 2).ledger.places
        wanted = operation(2, key_by="key")
        streams = streams_of(places, wanted, ThreadCluster(), Settings(), logs, queue.SimpleQueue())
        for number in range(2):
            launch = streams.launch(streams._streams[0], number)
            assert launch is not None
            task: Any = launch.task
            place = task.args[0].state
            assert (place.key_by, place.sync) == ("key", "interval")
            assert Path(place.path).parent == Path("/program/keyedState")
            # What names the epochs names the state, which goes when they are forgotten.
            (source,) = streams.sources()
            assert Path(place.path).name == f"{source}-{number}-of-2.sqlite"
            paths.add(place.path)
    assert len(paths) == 4


def test_tasks_that_do_not_start_are_told_and_silent_ones_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = ThreadCluster()
    places = Case(tmp_path, 2).ledger.places
    timers: Timers = queue.SimpleQueue()
    settings = Settings()
    logs = BlockLogs("/log", "always")
    streams = streams_of(places, operation(2), cluster, settings, logs, timers)
    streams.start()
    try:
        both: list[Any] = [cluster.next_attempt().launch for _ in range(2)]
        launched = {each.task: each for each in both}
        peer: Any = Silent()
        answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
        streams.take(peer, SubscribeTask(0, 0, launched[0].attempt, "host", 1), answers.put)
        assert isinstance(answers.get(timeout=HANG_S), Subscribed)
        # Among others, that of an epoch.
        said = "1 of 2 tasks of continuous streams have waited for more than 20 s"
        while said not in caplog.text:
            timers.get(timeout=HANG_S)[1]()
        assert "(task 1 of clicks)" in caplog.text
        streams.disconnected(peer)
        delay_s = 0.0
        while delay_s != 2 * settings.block_server_lease_s:
            delay_s, end = timers.get(timeout=HANG_S)
        end()
        assert len(cluster.cancelled) == 1
        assert cluster.next_attempt().launch.task == 0
        assert "lost its connection, and has not ended since" in caplog.text
        end()
        assert len(cluster.cancelled) == 1
    finally:
        streams.stop(0.0)
    assert cluster.ended_all()


def test_an_epoch_ends_before_the_receiver_waits_for_it(tmp_path: Path) -> None:
    """Whatever its time is: of a bound of 40 blocks, two epochs and what comes meanwhile."""
    case = Case(tmp_path, 30)
    cluster = ThreadCluster()
    streams = streams_of(
        case.ledger.places,
        replace(operation(1), epoch="1 hour"),
        cluster,
        Settings(),
        BlockLogs("/log", "always"),
        queue.SimpleQueue(),
        max_backlog_bytes=40_000,
    )
    streams.start()
    try:
        sent: queue.SimpleQueue[Message] = queue.SimpleQueue()
        peer: Any = SimpleNamespace(send=sent.put, is_connected=True)
        attempt = cluster.next_attempt().launch.attempt  # type: ignore[attr-defined]
        streams.take(peer, SubscribeTask(0, 0, attempt, "host", 1), lambda answer: None)
        blocks, end = sent.get(timeout=HANG_S), sent.get(timeout=HANG_S)
        assert isinstance(blocks, TaskBlocks)
        assert len(blocks.blocks) == 10
        assert isinstance(end, EndEpoch)
    finally:
        streams.stop(0.0)
    assert cluster.ended_all()


@pytest.mark.parametrize("in_between", [False, True])
def test_nobody_waits_for_epochs_once_spark_has_ended(tmp_path: Path, in_between: bool) -> None:
    cluster = ThreadCluster()
    places = Case(tmp_path, 2).ledger.places
    settings, logs = Settings(), BlockLogs("/log", "always")
    streams = streams_of(places, operation(1), cluster, settings, logs, queue.SimpleQueue())
    told: list[int] = []
    streams._listeners = SimpleNamespace(ended_with_spark=lambda stream, _: told.append(stream))  # type: ignore[assignment]
    (epochs,) = streams._streams.values()
    cluster.is_stopped = True
    if in_between:
        streams.thread_died(epochs, RuntimeError("gone"))
    else:
        assert streams.ended(epochs, 0, RuntimeError("gone")) is Next.DONE
    assert told == [0]
    assert epochs.is_over()
    assert not streams.drain(HANG_S)


def fail(driver: Driver) -> Task:
    """Let a new attempt fail; what else it tells of itself is no second failure."""
    task = driver.tasks[0] = Task(driver, 0)
    task.subscribe()
    for _ in range(2):
        driver.epochs.failed(TaskFailed(0, 0, task.attempt, "it failed", "trace"))
    return task


def test_too_many_failures_without_an_epoch_between_end_it(tmp_path: Path) -> None:
    case = Case(tmp_path, 2)
    driver, _ = started(case)
    driver.epochs.push()
    for _ in range(2):
        fail(driver)
    driver.world.finish()
    for number in range(3):
        assert driver.given_up == [], number
        task = fail(driver)
    (told,) = driver.given_up
    assert "3 times without an epoch between; what was received stays in the log" in told
    assert driver.epochs.is_over
    assert isinstance(task.inbox[-1], StopReceiver)


def test_one_that_cannot_be_mended_ends_it_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver, (task,) = started(Case(tmp_path))
    driver.epochs.failed(TaskFailed(0, 0, task.attempt, "no columns", "", permanent=True))
    assert len(driver.given_up) == 1
    assert "no columns" in caplog.text
    assert "failure 1 of" not in caplog.text  # No further one is waited for.


def next_id(case: Case, number: int) -> str:
    """Return the id of the block that is added after `number` others."""
    return block(0, case.attempt, case.next_number + number).block_id


def show(driver: Driver, case: Case, *numbers: int) -> list[str]:
    """Show blocks that are not logged yet; return their ids."""
    ids = [next_id(case, number) for number in numbers]
    for block_id in ids:
        driver.epochs.show(ShownBlock(0, case.attempt, block_id, b""))
    return ids


def seen_by(task: Task) -> list[str]:
    return [found.block_id for found in task.inbox if isinstance(found, ShownBlock)]


def test_what_is_not_logged_is_shown_to_the_task_that_is_sent_it_then(tmp_path: Path) -> None:
    case = Case(tmp_path, 2)
    driver, tasks = started(case, 2)
    driver.epochs.push()
    ids = show(driver, case, 0, 1, 2)
    assert [seen_by(task) for task in tasks] == [[ids[0], ids[2]], [ids[1]]]
    case.add(2)
    driver.epochs.push()
    ids += show(driver, case, 1)
    assert seen_by(tasks[1]) == [ids[1], ids[3]]
    case.add(2)
    driver.epochs.push()
    for task in tasks:
        messages = [found for found in task.inbox if isinstance(found, TaskBlocks)]
        sent = [info.block_id for found in messages for _, info, _ in found.blocks]
        assert sent[1:] == seen_by(task)


def test_what_was_shown_and_never_logged_misleads_no_longer_than_to_the_next_block(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, 0)
    driver, tasks = started(case, 2)
    driver.epochs.push()
    never = [ShownBlock(0, attempt_name(99), f"input-0-{number}", b"") for number in range(97, 101)]
    for message in never:
        driver.epochs.show(message)
    for task in tasks:
        task.inbox.clear()
    case.add(1)
    driver.epochs.push()
    (follows,) = show(driver, case, 0)
    assert [seen_by(task) for task in tasks] == [[], [follows]]


def test_a_block_that_is_not_shown_does_not_mislead_those_behind_it(tmp_path: Path) -> None:
    case = Case(tmp_path, 0)
    driver, tasks = started(case, 2)
    show(driver, case, 0)  # Of an attempt of which none is known yet.
    case.add(1)
    driver.epochs.push()
    ids = show(driver, case, 0, 2, 3)
    assert [seen_by(task) for task in tasks] == [[ids[2]], ids[:2]]


def test_nothing_is_shown_while_the_tasks_are_far_behind_or_have_seen_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BLOCKS", 2)
    monkeypatch.setattr(module, "_MOST_SHOWN", 3)
    case = Case(tmp_path, 2)
    driver, (task,) = started(case)
    driver.epochs.push()
    ids = show(driver, case, *range(5))
    assert seen_by(task) == ids[:3]
    case.add(5)
    driver.epochs.push()  # They are too many for an epoch.
    show(driver, case, 0)
    assert seen_by(task) == ids[:3]


def test_a_block_is_shown_while_others_are_logged_and_not_when_all_is_over(tmp_path: Path) -> None:
    case = Case(tmp_path, 1)
    driver, (task,) = started(case)
    driver.epochs.push()
    (first,) = show(driver, case, 0)
    case.add(1)
    (second,) = show(driver, case, 0)
    assert seen_by(task) == [first, second]
    driver.epochs.push()
    driver.epochs.stop()
    show(driver, case, 1)
    assert seen_by(task) == [first, second]
