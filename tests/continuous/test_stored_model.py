"""Random programs of blocks that are shown before they are logged.

What the tasks hand to the sink is what is logged, each block in its part and in order, and within
an attempt of a receiver and of a task the function is called in order; whatever is not shown, is
lost on the way, fails, or dies.
"""

from __future__ import annotations

import itertools
import queue
import random
import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from penstock.blockstore import BlockAccess
from penstock.continuous import task
from penstock.continuous.task import _Attempt, _Output, _Program
from penstock.tracker.consumers import epochs as module
from penstock.wire.messages import (
    CommitEpoch,
    EpochCommitted,
    EpochPrepared,
    Message,
    ReceivedBlockInfo,
    ShownBlock,
    SubscribeTask,
)
from tests.continuous.driven import _Nothing, block_of
from tests.tracker.ledger_cases import add, attempt_name, block
from tests.tracker.place_cases import Case
from tests.tracker.test_epochs import started

_names = itertools.count(50_000)


def content_of(attempt: str, block_id: str) -> Any:
    return block_of(pa.RecordBatch.from_pydict({"value": [f"{attempt} {block_id}"]}))


class Task(_Attempt):
    """An attempt of a task, which does one thing at a time; also the driver's end of it."""

    is_connected = True

    def __init__(self, program: Program, number: int) -> None:
        self.program, self.number, self.name = program, number, attempt_name(next(_names))
        self._launch: Any = SimpleNamespace(
            task=number, tasks=program.tasks, state=None, access=BlockAccess()
        )
        self._changed = threading.Condition()
        self._blocks, self._ends = deque(), deque()
        self._shown, self._ahead, self._behind = {}, {}, None
        self._by_place, self._records, self._due_ms = [], 0, None
        self._letters, self._is_over, self._with = None, False, ""
        self._sink_work: Any = queue.SimpleQueue()
        self._function_call = self._state_call = SimpleNamespace(timed=_Nothing)  # type: ignore[assignment]
        self.is_ahead = False
        self.ahead = 0
        self.calls: list[str] = []
        self.inbox: deque[Message] = deque()
        self.ready: dict[int, _Output] = {}
        program.epochs.launched(number, self.name)
        asked = SubscribeTask(0, number, self.name, "host", 1)
        program.epochs.subscribe(self, asked, lambda answer: None)

    def function(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.is_ahead and self.program.chance.random() < 0.1:
            raise ValueError("not now")
        self.calls.append(batch["value"][0].as_py())
        self.ahead += self.is_ahead
        return batch

    def send(self, message: Message) -> None:
        self.inbox.append(message)

    def offer(self, message: Message) -> None:
        if self.program.chance.random() < 0.9:
            self.inbox.append(message)

    def _read(self, info: ReceivedBlockInfo) -> Any:
        return content_of(info.attempt, info.block_id)

    def _fail(self, message: str, error: BaseException, *, permanent: bool = False) -> None:
        raise error

    def step(self) -> None:
        """Take a message, or do what is next."""
        called = _Program(self.function, lambda expired: None)
        if self.inbox and self.program.chance.random() < 0.6:
            message = self.inbox.popleft()
            if isinstance(message, CommitEpoch):
                self.commit(self.ready.pop(message.number))
            else:
                self._take(message)
        elif self._blocks or self._ends or self._behind in self._shown:
            work = self._next()
            assert work is not None
            if isinstance(work, ShownBlock):
                self.is_ahead = True
                self._see_ahead(called, work)
                self.is_ahead = False
            else:
                assert self._take_work(called, work)
            while not self._sink_work.empty():
                output = self._sink_work.get()
                if output.end.is_logged:
                    self.commit(output)
                else:
                    self.ready[output.end.number] = output
                    told = EpochPrepared(0, self.number, self.name, output.end.number)
                    self.program.epochs.prepared(told)

    def commit(self, output: _Output) -> None:
        for part, batches in output.parts.items():
            values = [batch["value"][0].as_py() for batch in batches]
            self.program.sink.setdefault((part, output.end.number), values)
        told = EpochCommitted(0, self.number, self.name, output.end.number, output.records, 0)
        self.program.epochs.committed(told)


class Program:
    """A driver, its tasks, and a receiver that may die."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.tasks = self.chance.randint(1, 3)
        self.case = Case(folder, 0)
        self.driver, _ = started(self.case, self.tasks)
        self.epochs: Any = self.driver.epochs
        self.sink: dict[tuple[int, int], list[str]] = {}
        self.logged: list[str] = []
        self.unlogged: deque[int] = deque()
        self.attempt, self.next_number = self.case.attempt, self.case.next_number
        self.living = [Task(self, number) for number in range(self.tasks)]
        self.all_tasks = list(self.living)

    def run(self, blocks: int) -> None:
        while blocks or self.unlogged or sum(map(len, self.sink.values())) < len(self.logged):
            what = self.chance.random()
            if blocks and what < 0.15 and len(self.unlogged) < 10:
                blocks -= 1
                if self.chance.random() < 0.93:
                    block_id = f"input-0-{self.next_number}"
                    self.epochs.show(ShownBlock(0, self.attempt, block_id, b""))
                self.unlogged.append(self.next_number)
                self.next_number += 1
            elif what < 0.3 and self.unlogged:
                self.log(self.chance.randint(1, len(self.unlogged)))
            elif what < 0.35:
                self.epochs.push()
            elif what < 0.353:
                self.start_receiver_again()
            elif what < 0.355:
                number = self.chance.randrange(self.tasks)
                self.epochs.gone(self.living[number])
                self.living[number] = Task(self, number)
                self.all_tasks.append(self.living[number])
            elif what < 0.45 and self.driver.timers:
                self.driver.timers.pop(0)()
            else:
                self.chance.choice(self.living).step()

    def log(self, count: int) -> None:
        numbers = [self.unlogged.popleft() for _ in range(count)]
        found = [replace(block(0, self.attempt, each), num_records=1) for each in numbers]
        add(self.case.ledger, 0, self.attempt, found)
        self.logged += [f"{each.attempt} {each.block_id}" for each in found]
        if self.chance.random() < 0.7:
            self.epochs.push()

    def start_receiver_again(self) -> None:
        self.unlogged.clear()
        self.attempt = attempt_name(next(_names))
        registered = self.case.ledger.register_attempt(0, self.attempt, "host")
        self.next_number = registered.first_block_number


@pytest.mark.parametrize("most_shown", [3, 64])
def test_the_sink_has_what_is_logged_and_the_function_is_called_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_shown: int
) -> None:
    monkeypatch.setattr(module, "_MOST_SHOWN", most_shown)
    monkeypatch.setattr(task, "_MOST_AHEAD", 2 * most_shown)
    monkeypatch.setattr(
        task, "shown_block", lambda shown, access: content_of(shown.attempt, shown.block_id)
    )
    ahead = 0
    for seed in range(40):
        program = Program(tmp_path / f"{seed}", seed)
        program.run(blocks=100)
        for part in range(program.tasks):
            epochs = [program.sink[at] for at in sorted(program.sink) if at[0] == part]
            assert list(itertools.chain(*epochs)) == program.logged[part :: program.tasks], seed
        for attempt in program.all_tasks:
            numbers: dict[str, list[int]] = {}
            for called in attempt.calls:
                receiver, _, number = called.partition(" input-0-")
                numbers.setdefault(receiver, []).append(int(number))
            for each in numbers.values():
                assert each == sorted(set(each)), seed
            ahead += attempt.ahead
    assert ahead > 100
